package closing

import (
	"context"
	"slices"

	"vendorapi/reporting/journal"
)

// textShown is how much of a disputed row's text the log keeps, in bytes.
const textShown = 2000

// dispute notes that rows do not belong to the log. Another person then sets them aside; until that
// is done, nothing else is decided.
func (b *Books) dispute(ctx context.Context, d Decision) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if len(l.Foreign) == 0 {
		return nil, refuse("every row belongs to the log")
	}
	if d.Note == "" {
		return nil, refuse("a note has to say what is known of these rows")
	}
	return b.append(ctx, l, &Manifest{Kind: KindDispute, By: d.By, Note: d.Note, Rows: disputedRows(l.Foreign)})
}

func disputedRows(foreign []journal.Foreign) []DisputedRow {
	var rows []DisputedRow
	for _, f := range foreign {
		text := f.Text[:min(len(f.Text), textShown)]
		rows = append(rows, DisputedRow{SHA256: f.Digest(), Why: f.Why, Text: text})
	}
	return rows
}

// setAside removes the rows that another person disputes. The log keeps what they were.
func (b *Books) setAside(ctx context.Context, d Decision) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if l.Disputed == nil {
		return nil, refuse("nothing is disputed")
	}
	if l.Disputed.By == d.By {
		return nil, refuse("%s disputes these rows, so somebody else has to set them aside", d.By)
	}

	disputed := l.Disputed.Rows
	isNew := func(f journal.Foreign) bool {
		return !slices.ContainsFunc(disputed, func(row DisputedRow) bool { return row.SHA256 == f.Digest() })
	}
	if slices.ContainsFunc(l.Foreign, isNew) {
		return nil, refuse("there are further rows since %s disputed some: dispute them all again", l.Disputed.By)
	}

	e, err := b.append(ctx, l, &Manifest{Kind: KindSetAside, By: d.By, Note: d.Note, Rows: disputed})
	if err == nil {
		b.removeSetAside(ctx, l)
	}
	return e, err
}

// removeSetAside removes the foreign rows that were set aside, also those that appear again. A crash
// before it leaves them to the next reading. A foreign head needs no removal: the dispute
// replaces it. A row that cannot be removed stays foreign.
func (b *Books) removeSetAside(ctx context.Context, l *Log) {
	if len(l.Foreign) == 0 {
		return
	}
	isSetAside := map[string]bool{}
	for i := range l.Entries {
		if l.Entries[i].Kind != KindSetAside {
			continue
		}
		for _, row := range l.Entries[i].Rows {
			isSetAside[row.SHA256] = true
		}
	}

	var left []journal.Foreign
	for _, f := range l.Foreign {
		if f.IsHead || !isSetAside[f.Digest()] {
			left = append(left, f)
			continue
		}
		if err := b.archive.RemoveEntry(ctx, &f.Entry); err != nil {
			b.log.Error("a row that was set aside cannot be removed from the books' log", "row", f.Digest(), "error", err)
			left = append(left, f)
			continue
		}
		b.log.Warn("a row that was set aside is removed from the books' log", "row", f.Digest(), "why", f.Why)
	}
	l.Foreign = left
}
