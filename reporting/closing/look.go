package closing

import (
	"context"
	"slices"
	"time"

	"vendorapi/reporting/archive"
)

const (
	// storedWithin is how long a row can be stored before it is seen: an insert takes at most a minute, and
	// the clocks of a cluster's servers differ.
	storedWithin = 10 * time.Minute

	// maxWaiting bounds the orders that wait for a person and are remembered. While there are more, every look
	// reads everything.
	maxWaiting = 10_000
)

// placesOf returns where orders that wait for a person are, each once.
func placesOf(waiting []Unexplained) []archive.Place {
	var places []archive.Place
	seen := map[archive.Place]bool{}
	for i := range waiting {
		place := waiting[i].Place
		if !seen[place] {
			places = append(places, place)
		}
		seen[place] = true
	}

	return places
}

// look books what needs no person among the orders that can have changed since the last look or, with everything,
// among all. It stores in the review how far it got.
func (b *Books) look(ctx context.Context, everything bool, progress func(string)) (Outcome, error) {
	l, err := b.Read(ctx)
	if err != nil || l.Last == nil {
		return Outcome{}, err
	}
	if err := l.requireSettled(); err != nil {
		return Outcome{}, err
	}

	_, before, err := b.readReview(ctx)
	if err != nil {
		return Outcome{}, err
	}
	began, err := b.archive.Now(ctx)
	if err != nil {
		return Outcome{}, err
	}

	if everything {
		before.ComparedUntil = time.Time{}
	}

	parts, err := b.changedParts(ctx, l, before, began)
	if err != nil {
		return Outcome{}, err
	}

	c := newCorrector(b)
	for _, part := range parts {
		progress(part.Name)
		if err := c.correct(ctx, part); err != nil {
			return c.result, err
		}
	}

	waiting := placesOf(c.result.Waiting)
	isCutOff := c.isCutOff || len(waiting) > maxWaiting

	return c.result, b.updateReview(ctx, func(r *review) {
		r.replaceWaiting(before.Waiting, waiting[:min(len(waiting), maxWaiting)])
		r.ComparedUntil = began
		if isCutOff {
			r.ComparedUntil = time.Time{}
		}
	})
}

// CorrectMonth is Correct for one closed month.
func (b *Books) CorrectMonth(ctx context.Context, m Month) (Outcome, error) {
	c := newCorrector(b)
	if err := c.correct(ctx, archive.MonthPart(m.Time, time.Time{})); err != nil {
		return c.result, err
	}

	waiting := placesOf(c.result.Waiting)
	return c.result, b.updateReview(ctx, func(r *review) {
		inMonth := slices.DeleteFunc(slices.Clone(r.Waiting), func(p archive.Place) bool { return MonthOf(p.Day) != m })
		r.replaceWaiting(inMonth, waiting)
		if c.isCutOff || len(r.Waiting) > maxWaiting {
			r.Waiting = r.Waiting[:min(len(r.Waiting), maxWaiting)]
			r.ComparedUntil = time.Time{}
		}
	})
}

// changedParts returns the orders of closed months that can differ: those that waited for a person at the
// last look, and those of which something was stored since. Without a last look it is everything. now is ClickHouse's.
func (b *Books) changedParts(ctx context.Context, l *Log, before *review, now time.Time) ([]archive.Part, error) {
	wasClockAhead := before.ComparedUntil.After(now) // nothing tells what was stored since
	if before.ComparedUntil.IsZero() || wasClockAhead {
		return b.allParts(ctx, l)
	}

	since := before.ComparedUntil.Add(-storedWithin)
	months, err := b.archive.MonthsStoredSince(ctx, since, l.Last.Month.Next().Time)
	if err != nil {
		return nil, err
	}

	var parts []archive.Part
	for _, month := range months {
		parts = append(parts, archive.MonthPart(month, since))
	}

	for places := range slices.Chunk(before.Waiting, archive.MaxPlaces) {
		parts = append(parts, archive.PlacesPart(places))
	}

	return parts, nil
}

// allParts returns every closed month.
func (b *Books) allParts(ctx context.Context, l *Log) ([]archive.Part, error) {
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

	months := l.months()
	for _, month := range stored {
		months = append(months, MonthOf(month))
	}

	slices.SortFunc(months, func(a, b Month) int { return a.Compare(b.Time) })

	return slices.Compact(months), nil
}
