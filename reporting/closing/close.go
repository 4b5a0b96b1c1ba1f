package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"vendorapi/internal/ledger/operations"
	"vendorapi/reporting/archive"
)

// hold holds a month, and notes the digest of its rows, so that close can refuse a month that has changed
// since. The first hold holds every month since the oldest order.
func (b *Books) hold(ctx context.Context, d Decision, progress func(string)) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.requireSettled(); err != nil {
		return nil, err
	}
	if l.Held != nil {
		return nil, refuse("%s is held by %s", l.Held.Month.Name(), l.Held.By)
	}

	months, err := b.monthsToHold(ctx, l, d.Month)
	if err != nil {
		return nil, err
	}

	// What is held now is what close compares with.
	held := make([]HeldMonth, len(months))
	for i, m := range months {
		progress(m.String() + ": reading the rows")
		held[i], err = b.readMonth(ctx, m)
		if err != nil {
			return nil, err
		}
	}

	progress("the checklist")
	list, err := b.checklist(ctx, l, held)
	if err != nil {
		return nil, err
	}
	if err := allowsHold(list, d.Note); err != nil {
		return nil, err
	}

	hold := &Manifest{
		Kind: KindHold, Month: d.Month, By: d.By, Note: d.Note,
		Checklist: list, Months: held,
	}

	return b.append(ctx, l, hold)
}

// monthsToHold returns the months that a hold of m is about: m alone or, before anything is closed, every
// month from that of the oldest order on.
func (b *Books) monthsToHold(ctx context.Context, l *Log, m Month) ([]Month, error) {
	if l.Last != nil {
		return []Month{m}, nil
	}

	oldest, err := b.archive.FirstDay(ctx)
	if err != nil {
		return nil, err
	}

	first := m
	if !oldest.IsZero() && oldest.Before(m.Time) {
		first = MonthOf(oldest)
	}

	var months []Month
	for month := first; !month.After(m.Time); month = month.Next() {
		months = append(months, month)
	}

	return months, nil
}

// readMonth returns what holding the month notes.
func (b *Books) readMonth(ctx context.Context, m Month) (HeldMonth, error) {
	days, err := b.archive.DigestRows(ctx, m.Time, m.LastDay())
	if err != nil {
		return HeldMonth{}, err
	}
	uncompared, err := b.uncompared(ctx, m, days)
	return HeldMonth{Month: m, Digest: archive.Sum(days), Uncompared: uncompared}, err
}

// DigestOpen returns the digest of what closing a month would freeze now, as a hold notes it.
func (b *Books) DigestOpen(ctx context.Context, m Month) (archive.Digest, error) {
	days, err := b.archive.DigestRows(ctx, m.Time, m.LastDay())
	return archive.Sum(days), err
}

// allowsHold refuses a hold that the checklist does not allow with that note.
func allowsHold(list []Check, note string) error {
	refusal := &Refusal{}
	for _, c := range list {
		switch {
		case c.OK, c.NeedsNote && note != "":
		case c.NeedsNote:
			refusal.Reasons = append(refusal.Reasons, fmt.Sprintf("a note is needed, because this is not so: %s (%s)", c.Name, c.Detail))
		default:
			refusal.Reasons = append(refusal.Reasons, fmt.Sprintf("not so: %s (%s)", c.Name, c.Detail))
		}
	}

	if len(refusal.Reasons) > 0 {
		return refusal
	}

	return nil
}

// release takes a hold back.
func (b *Books) release(ctx context.Context, d Decision) (*Entry, error) {
	l, err := b.readHeld(ctx, d)
	if err != nil {
		return nil, err
	}
	return b.append(ctx, l, &Manifest{Kind: KindRelease, Month: d.Month, By: d.By, Note: d.Note})
}

// readHeld reads the log, in which the decision's month must be held.
func (b *Books) readHeld(ctx context.Context, d Decision) (*Log, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.requireSettled(); err != nil {
		return nil, err
	}

	switch {
	case l.Closed(d.Month):
		return nil, refuse("%s is closed", d.Month.Name())
	case l.Held == nil || l.Held.Month != d.Month:
		return nil, refuse("%s is not held", d.Month.Name())
	case d.Held != "" && d.Held != l.Held.Seal:
		return nil, ErrChanged
	}

	return l, nil
}

// close closes the month that another person holds, and, the first time, those before it: one by one, each
// by itself, so that what is interrupted can be continued. A month that has changed since it was held is
// refused. Closing cannot be taken back.
func (b *Books) close(ctx context.Context, d Decision, progress func(string)) (*Entry, error) {
	for {
		l, err := b.readHeld(ctx, d)
		if err != nil {
			return nil, err
		}

		if d.By == l.Held.By {
			return nil, refuse("%s has held %s, so somebody else has to close it", d.By, d.Month.Name())
		}

		next := l.nextToClose().Month
		e, err := b.closeMonth(ctx, l, d, func(step string) { progress(next.String() + ": " + step) })
		if err != nil {
			return e, err // with an entry: it was decided, but not stored
		}

		if e.Month == d.Month {
			return e, nil
		}
	}
}

// closeMonth closes the next month that is held.
func (b *Books) closeMonth(ctx context.Context, l *Log, d Decision, progress func(string)) (*Entry, error) {
	began, err := b.archive.Now(ctx)
	if err != nil {
		return nil, err
	}

	held := l.nextToClose()
	progress("calculating the reports")
	control, err := b.reports.closeLines(ctx, b.archive, params(held.Month))
	if err != nil {
		return nil, err
	}

	b.step("calculated")

	closing := &Manifest{
		Kind: KindClose, Month: held.Month, By: d.By, Note: d.Note,
		Batch: uuid.New(), Digest: held.Digest, Control: control,
	}

	isFirst := l.Last == nil
	e, err := b.book(ctx, l, closing, progress, func() error {
		return b.freeze(ctx, l, closing, held, progress)
	})
	if err != nil {
		return e, err
	}

	// A row that was stored after began may not be among the frozen ones, so the next look begins there at the
	// latest. Before the first closing nothing had to be compared, so it begins there exactly.
	err = b.updateReview(context.WithoutCancel(ctx), func(r *review) {
		if isFirst || r.ComparedUntil.After(began) {
			r.ComparedUntil = began
		}
	})

	if err != nil {
		b.log.Warn("the next look at closed months reads all of them", "error", err)
	}

	return e, nil
}

// freeze copies the rows of a held month into the batch of closing, and fills in closing.Days. It refuses a
// month whose rows are not those that were held, or of which a day no longer counts as compared.
func (b *Books) freeze(ctx context.Context, l *Log, closing *Manifest, held *HeldMonth, progress func(string)) error {
	m := held.Month
	if err := b.archive.Freeze(ctx, closing.Batch, m.Time, m.LastDay()); err != nil {
		return err
	}

	b.step("rows stored")

	progress("reading them back")
	days, err := b.archive.DigestBatch(ctx, closing.Batch, held.Digest.Rows)
	if err != nil {
		return err
	}

	if archive.Sum(days) != held.Digest {
		return refuse("orders of %s have changed since %s held it on %s: release it, and look again",
			m.Name(), l.Held.By, l.Held.At.Format("2 Jan 2006 15:04"))
	}

	uncompared, err := b.uncompared(ctx, m, days)
	if err != nil {
		return err
	}

	for _, day := range uncompared.days() {
		if !slices.Contains(held.Uncompared.days(), day) {
			return refuse("the orders of %s are not any more those that were compared with Redis: release the month, and look again", day)
		}
	}

	closing.Days = days

	return nil
}

// book stores rows under the manifest's batch, reads them back, adds them up, and decides. After an
// error the rows are removed, unless they may have been decided on. store stores the rows, and fills in the manifest.
func (b *Books) book(ctx context.Context, l *Log, m *Manifest, progress func(string), store func() error) (*Entry, error) {
	err := b.storeBatch(ctx, m, progress, store)
	if err != nil {
		return nil, errors.Join(err, b.archive.RemoveBatch(context.WithoutCancel(ctx), m.Batch))
	}

	e, err := b.append(ctx, l, m)
	switch {
	case errors.Is(err, operations.ErrLate), errors.Is(err, errNotSigned):
		return nil, errors.Join(err, b.archive.RemoveBatch(context.WithoutCancel(ctx), m.Batch))
	case errors.Is(err, ErrChanged):
		return b.decidedBefore(context.WithoutCancel(ctx), m.Batch)
	}

	return e, err
}

// decidedBefore returns the entry of a batch, if it was decided although its process was told that
// somebody else was earlier: the answer was lost, the client asked again, and in between another process
// added an entry. Otherwise it removes the batch's rows, and returns ErrChanged.
func (b *Books) decidedBefore(ctx context.Context, batch uuid.UUID) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("it is not known whether it was decided, `reporting month status` shows it: %w", err)
	}

	for i := range l.Entries {
		if l.Entries[i].Batch == batch {
			return &l.Entries[i], nil
		}
	}

	return nil, errors.Join(ErrChanged, b.archive.RemoveBatch(ctx, batch))
}

// storeBatch stores the rows of a batch and their sums, and checks that the sums are those of the rows.
func (b *Books) storeBatch(ctx context.Context, m *Manifest, progress func(string), store func() error) error {
	progress("storing the rows")
	if err := store(); err != nil {
		return err
	}

	progress("adding them up")
	if err := b.archive.InsertDays(ctx, m.Batch); err != nil {
		return err
	}

	b.step("added up")

	differing, err := b.archive.DaysDiffering(ctx, m.Batch)
	if err == nil && len(differing) > 0 {
		err = fmt.Errorf("the sums that were stored are not those of the rows: %v", differing)
	}

	return err
}
