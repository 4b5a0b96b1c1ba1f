package closing

import (
	"context"
	"slices"

	"vendorapi/reporting/journal"
)

// DisputedRows are rows that do not belong to the log. Somebody may have written any number of them, so
// the entry says what all of them are with one digest.
type DisputedRows struct {
	// Count is how many there are, and SHA256 that of their digests in order.
	Count  int    `json:"count"`
	SHA256 string `json:"sha256,omitempty"`

	// First are at most journal.MaxNamed of them. A foreign head of the log is among these, and is not
	// counted.
	First []journal.Foreign `json:"first"`
}

// disputedRows are the foreign rows of the log.
func (b *Books) disputedRows(ctx context.Context, l *Log) (DisputedRows, error) {
	count, sum, err := b.archive.SumForeign(ctx, l.rows())
	return DisputedRows{Count: count, SHA256: sum, First: l.Foreign.First}, err
}

// covers reports whether every foreign row that is named now is named in the dispute.
func (d *DisputedRows) covers(foreign *journal.ForeignRows) bool {
	isNamed := map[string]bool{}
	for _, row := range d.First {
		isNamed[row.Digest] = true
	}

	for _, f := range foreign.First {
		if !f.IsHead && !isNamed[f.Digest] {
			return false
		}
	}

	return true
}

// foreignAreAmong reports whether all foreign rows of the log are among those of one dispute. A few are
// looked up by name: some may have been removed since, or written again. More must be the same ones.
func (b *Books) foreignAreAmong(ctx context.Context, l *Log, disputes ...*DisputedRows) (bool, error) {
	if len(disputes) == 0 {
		return false, nil
	}

	if l.Foreign.Unnamed() == 0 {
		areNamed := func(d *DisputedRows) bool { return d.covers(&l.Foreign) }
		return slices.ContainsFunc(disputes, areNamed), nil
	}

	_, sum, err := b.archive.SumForeign(ctx, l.rows())
	if err != nil {
		return false, err
	}

	areTheSame := func(d *DisputedRows) bool { return d.SHA256 == sum }

	return slices.ContainsFunc(disputes, areTheSame), nil
}

// dispute notes that rows do not belong to the log. Another person then sets them aside; until that
// is done, nothing else is decided.
func (b *Books) dispute(ctx context.Context, d Decision) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}

	if l.Foreign.AreNone() {
		return nil, refuse("every row belongs to the log")
	}
	if d.Note == "" {
		return nil, refuse("a note has to say what is known of these rows")
	}

	if l.Disputed != nil {
		areDisputed, err := b.foreignAreAmong(ctx, l, &l.Disputed.Rows)
		if err != nil {
			return nil, err
		}
		if areDisputed {
			return nil, refuse("%s disputes these rows already: somebody else sets them aside", l.Disputed.By)
		}
	}

	rows, err := b.disputedRows(ctx, l)
	if err != nil {
		return nil, err
	}

	return b.append(ctx, l, &Manifest{Kind: KindDispute, By: d.By, Note: d.Note, Rows: rows})
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

	areDisputed, err := b.foreignAreAmong(ctx, l, &l.Disputed.Rows)
	if err != nil {
		return nil, err
	}

	if !areDisputed {
		return nil, refuse("there are further rows since %s disputed some: dispute them all again", l.Disputed.By)
	}

	e, err := b.append(ctx, l, &Manifest{Kind: KindSetAside, By: d.By, Note: d.Note, Rows: l.Disputed.Rows})
	if err == nil {
		b.step("set aside")
		b.removeForeign(ctx, l)
	}

	return e, err
}

// removeSetAside removes the foreign rows if all of them were set aside, also when they appear again: a
// crash may have come before it. What cannot be removed stays foreign.
func (b *Books) removeSetAside(ctx context.Context, l *Log) {
	if l.Foreign.Count == 0 {
		return
	}

	var setAside []*DisputedRows
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindSetAside {
			setAside = append(setAside, &e.Rows)
		}
	}

	wereSetAside, err := b.foreignAreAmong(ctx, l, setAside...)
	if err != nil {
		b.log.Error("it cannot be seen whether rows of the books' log were set aside", "rows", l.Foreign.Count, "error", err)
	}

	if wereSetAside {
		b.removeForeign(ctx, l)
	}
}

// removeForeign removes the foreign rows from the table. Those that were written after l was read stay. A
// foreign head needs no removal: the dispute replaces it.
func (b *Books) removeForeign(ctx context.Context, l *Log) {
	if l.Foreign.Count == 0 {
		return
	}

	if err := b.archive.RemoveRows(ctx, l.rows(), l.Foreign.LastBlock); err != nil {
		b.log.Error("rows that were set aside cannot be removed from the books' log", "rows", l.Foreign.Count, "error", err)
		return
	}

	b.log.Warn("rows that were set aside are removed from the books' log", "rows", l.Foreign.Count, "why", l.Foreign.String())
	l.Foreign = l.Foreign.OnlyHead()
}
