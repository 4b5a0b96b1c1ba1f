package closing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

const (
	// storedWithin is how long a row can be stored before it is seen: an insert takes at most a minute, and
	// the clocks of a cluster's servers differ.
	storedWithin = 10 * time.Minute

	// maxLeft bounds the orders that wait for a person and are remembered. While there are more, every look
	// reads everything.
	maxLeft = 10_000
)

// lookState is how far closed months have been compared with the table orders. It is kept in Redis, so that
// a look need only read what was stored since.
type lookState struct {
	// Until is a time of ClickHouse's clock. Rows that were stored more than storedWithin before it were
	// compared. Zero: none were, so the next look compares everything.
	Until time.Time `json:"until,omitzero"`

	// Left are the orders that waited for a person.
	Left []archive.Place `json:"left,omitempty"`
}

// replace takes compared out of Left, and puts left there. An order is in Left once.
func (k *lookState) replace(compared, left []archive.Place) {
	isReplaced := map[archive.Place]bool{}
	for _, p := range slices.Concat(compared, left) {
		isReplaced[p] = true
	}
	k.Left = slices.DeleteFunc(k.Left, func(p archive.Place) bool { return isReplaced[p] })
	k.Left = append(k.Left, left...)
}

// placesOf returns where orders that are left are, each once.
func placesOf(left []Unexplained) []archive.Place {
	var places []archive.Place
	seen := map[archive.Place]bool{}
	for i := range left {
		place := left[i].Place
		if !seen[place] {
			places = append(places, place)
		}
		seen[place] = true
	}
	return places
}

// lastLook returns what was stored last, as text too, for updateLook.
func (b *Books) lastLook(ctx context.Context) (stored string, last *lookState, err error) {
	last = &lookState{}
	stored, err = b.ledger.Books.Looked(ctx)
	if err != nil || stored == "" {
		return stored, last, err
	}
	if err := json.Unmarshal([]byte(stored), last); err != nil {
		return stored, last, fmt.Errorf("how far closed months were compared: %w", err)
	}
	for i := range last.Left {
		last.Left[i].Day = archive.BusinessDay(last.Left[i].Day) // equal to what ClickHouse returns
	}
	return stored, last, nil
}

// maxLookAttempts bounds how often updateLook tries while other processes do the same.
const maxLookAttempts = 5

// updateLook changes what is stored.
func (b *Books) updateLook(ctx context.Context, change func(k *lookState)) error {
	for range maxLookAttempts {
		stored, k, err := b.lastLook(ctx)
		if err != nil {
			return err
		}
		change(k)
		text, err := json.Marshal(k)
		if err != nil {
			return fmt.Errorf("how far closed months were compared: %w", err)
		}

		err = b.ledger.Books.SetLooked(ctx, stored, string(text))
		if !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("how far closed months were compared: %w", ledger.ErrConflict)
}

// correctParts corrects the parts that partsOf returns, in which everything is that can have changed since
// the last look, and notes how far that went.
func (b *Books) correctParts(ctx context.Context, partsOf func(context.Context, *Log, *lookState) ([]archive.Part, error), progress func(string)) (Corrected, error) {
	l, err := b.Read(ctx)
	if err != nil || l.Last == nil {
		return Corrected{}, err
	}
	if err := l.requireSettled(); err != nil {
		return Corrected{}, err
	}
	_, before, err := b.lastLook(ctx)
	if err != nil {
		return Corrected{}, err
	}
	began, err := b.archive.Now(ctx)
	if err != nil {
		return Corrected{}, err
	}
	if before.Until.After(began) { // a clock was ahead: nothing tells what was stored since
		before.Until = time.Time{}
	}
	parts, err := partsOf(ctx, l, before)
	if err != nil {
		return Corrected{}, err
	}

	c := newCorrector(b)
	for _, part := range parts {
		progress(part.Name)
		if err := c.correct(ctx, part); err != nil {
			return c.result, err
		}
	}

	left := placesOf(c.result.Left)
	isCutOff := c.isCutOff || len(left) > maxLeft
	return c.result, b.updateLook(ctx, func(k *lookState) {
		k.replace(before.Left, left[:min(len(left), maxLeft)])
		k.Until = began
		if isCutOff {
			k.Until = time.Time{}
		}
	})
}

// CorrectMonth is Correct for one closed month.
func (b *Books) CorrectMonth(ctx context.Context, m Month) (Corrected, error) {
	c := newCorrector(b)
	if err := c.correct(ctx, archive.MonthPart(m.Time, time.Time{})); err != nil {
		return c.result, err
	}
	left := placesOf(c.result.Left)
	return c.result, b.updateLook(ctx, func(k *lookState) {
		inMonth := slices.DeleteFunc(slices.Clone(k.Left), func(p archive.Place) bool { return MonthOf(p.Day) != m })
		k.replace(inMonth, left)
		if c.isCutOff || len(k.Left) > maxLeft {
			k.Left = k.Left[:min(len(k.Left), maxLeft)]
			k.Until = time.Time{}
		}
	})
}

// changedParts returns the orders of closed months that can differ: those that waited for a person at the
// last look, and those of which something was stored since. Without a last look it is everything.
func (b *Books) changedParts(ctx context.Context, l *Log, before *lookState) ([]archive.Part, error) {
	if before.Until.IsZero() {
		return b.allParts(ctx, l, before)
	}

	since := before.Until.Add(-storedWithin)
	months, err := b.archive.MonthsStoredSince(ctx, since, l.Last.Month.Next().Time)
	if err != nil {
		return nil, err
	}
	var parts []archive.Part
	for _, month := range months {
		parts = append(parts, archive.MonthPart(month, since))
	}
	for places := range slices.Chunk(before.Left, archive.MaxPlaces) {
		parts = append(parts, archive.PlacesPart(places))
	}
	return parts, nil
}

// allParts returns every closed month.
func (b *Books) allParts(ctx context.Context, l *Log, _ *lookState) ([]archive.Part, error) {
	months, err := b.closedMonths(ctx, l)
	if err != nil {
		return nil, err
	}
	parts := make([]archive.Part, len(months))
	for i, m := range months {
		parts[i] = archive.MonthPart(m.Time, time.Time{})
	}
	return parts, nil
}

// closedMonths returns the months up to the last closing of which there are orders or entries, in their order.
func (b *Books) closedMonths(ctx context.Context, l *Log) ([]Month, error) {
	if l.Last == nil {
		return nil, nil
	}
	stored, err := b.archive.MonthsStoredSince(ctx, time.Time{}, l.Last.Month.Next().Time)
	if err != nil {
		return nil, err
	}

	var months []Month
	for _, month := range stored {
		months = append(months, MonthOf(month))
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindClose {
			months = append(months, e.Month)
		}
		for _, c := range e.Corrections {
			months = append(months, c.Month)
		}
	}
	slices.SortFunc(months, func(a, b Month) int { return a.Compare(b.Time) })
	return slices.Compact(months), nil
}
