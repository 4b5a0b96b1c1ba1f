package closing

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/reports"
)

// hold holds a month and notes the digest of its rows, so that close can refuse a month that has changed since.
func (b *Books) hold(ctx context.Context, d Decision) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.settled(); err != nil {
		return nil, err
	}
	if l.Held != nil {
		return nil, refuse("%s is held by %s", l.Held.Month.Name(), l.Held.By)
	}

	list, err := b.Checklist(ctx, l, d.Month)
	if err != nil {
		return nil, err
	}
	if err := allowsHold(list, d.Note); err != nil {
		return nil, err
	}

	digest, err := b.archive.DigestOpen(ctx, d.Month.LastDay())
	if err != nil {
		return nil, err
	}
	return b.append(ctx, l, &Manifest{Kind: KindHold, Month: d.Month, By: d.By, Note: d.Note, Checklist: list, Digest: digest})
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
	if err := l.settled(); err != nil {
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

// close closes a month that another person holds, if nothing in it has changed since. It cannot be
// taken back.
func (b *Books) close(ctx context.Context, d Decision, progress func(string)) (*Entry, error) {
	l, err := b.readHeld(ctx, d)
	if err != nil {
		return nil, err
	}
	if d.By == l.Held.By {
		return nil, refuse("%s has held %s, so somebody else has to close it", d.By, d.Month.Name())
	}

	progress("calculating the reports")
	control, err := reports.CloseLines(ctx, b.archive, params(d.Month))
	if err != nil {
		return nil, err
	}
	b.step("calculated")

	closing := &Manifest{Kind: KindClose, Month: d.Month, By: d.By, Note: d.Note, Batch: uuid.New(), Digest: l.Held.Digest, Control: control}
	freeze := func() error { return b.archive.Freeze(ctx, closing.Batch, d.Month.LastDay()) }
	return b.book(ctx, l, closing, progress, freeze)
}

// book stores rows under the manifest's batch, reads them back, adds them up, and decides. After an
// error the rows are removed, unless they may have been decided on.
func (b *Books) book(ctx context.Context, l *Log, m *Manifest, progress func(string), store func() error) (*Entry, error) {
	err := b.storeBatch(ctx, l, m, progress, store)
	if err != nil {
		return nil, errors.Join(err, b.archive.RemoveBatch(context.WithoutCancel(ctx), m.Batch))
	}

	e, err := b.append(ctx, l, m)
	if errors.Is(err, ledger.ErrLate) {
		err = errors.Join(err, b.archive.RemoveBatch(context.WithoutCancel(ctx), m.Batch))
	}
	if errors.Is(err, ErrChanged) {
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

func (b *Books) storeBatch(ctx context.Context, l *Log, m *Manifest, progress func(string), store func() error) error {
	progress("storing the rows")
	if err := store(); err != nil {
		return err
	}
	b.step("rows stored")

	progress("reading them back")
	digest, err := b.archive.DigestBatch(ctx, m.Batch)
	if err != nil {
		return err
	}
	isChanged := m.Kind == KindClose && digest != m.Digest
	if isChanged {
		return refuse("orders of %s have changed since %s held it on %s: release it, and look again",
			m.Month.Name(), l.Held.By, l.Held.At.Format("2 Jan 2006 15:04"))
	}
	m.Digest = digest

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
