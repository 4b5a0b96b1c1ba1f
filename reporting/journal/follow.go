package journal

import (
	"fmt"
	"slices"
)

// Chain is the log as it was found among rows.
type Chain struct {
	// Entries is the log from its first entry on, and Rows are the digests of its rows (Row.Digest).
	Entries []Entry
	Rows    []string

	// Unstored reports that the row of the head is missing: a process has died between moving the head
	// and storing the row. The entry is Entries[len(Entries)-1-Ahead].
	Unstored bool

	// Ahead is how many of Entries follow the head: Redis was restored from an older state.
	Ahead int

	// Foreign are the rows that do not belong to the log, and the head if it does not.
	Foreign ForeignRows
}

// MissingError reports that rows are missing between the first entry and the head: ClickHouse was
// restored from an older state, or entries were removed.
type MissingError struct {
	From, To int // the sequences that are missing, both included
}

// Error names the sequences.
func (e *MissingError) Error() string {
	if e.From == e.To {
		return fmt.Sprintf("entry %d of the books' log is missing", e.From)
	}
	return fmt.Sprintf("entries %d to %d of the books' log are missing", e.From, e.To)
}

// Follow finds the log among the rows. It walks back from the head to the first entry, then forward from
// the head while exactly one row continues the chain: Redis may have been restored from an older state.
// Without a head (nil: it is not known, or there is no entry yet) it walks forward from the first entry.
// It is called once, after every row was added.
//
// The error is a *MissingError when rows are missing before the head, and ErrNoKeys when there is
// something to check, but no key. What is wrong with single rows is no error: they are Foreign.
func (r *Rows) Follow(head *Entry) (*Chain, error) {
	hasSomething := head != nil || r.count > 0
	if len(r.keys.keys) == 0 && hasSomething {
		return nil, ErrNoKeys
	}

	last, foreignHead := r.checkHead(head)
	path, err := r.found.leadingTo(last)
	if err != nil {
		return nil, err
	}

	_, isStored := r.found.bySeal[last.seal]
	following := r.found.following(last)
	path = append(path, following...)

	chain := &Chain{Unstored: last.seal != "" && !isStored, Ahead: len(following)}
	for _, s := range path {
		chain.Entries = append(chain.Entries, s.Entry)
		stored, exists := r.found.bySeal[s.seal]
		if exists {
			chain.Rows = append(chain.Rows, stored.rows...)
		}
	}

	chain.Foreign = r.foreignBeside(path, foreignHead)

	return chain, nil
}

// checkHead returns the head. Without a valid one, it returns the place before the first entry, and the
// head as foreign if there is one.
func (r *Rows) checkHead(head *Entry) (last *signed, foreign *Foreign) {
	if head == nil {
		return &signed{}, nil
	}

	l, err := r.keys.check(head)
	if err != nil {
		return &signed{}, &Foreign{
			Digest: head.Digest(), Text: beginning(head.Text), Why: "the head in Redis: " + err.Error(), IsHead: true,
		}
	}

	return &signed{Entry: *head, link: l, seal: head.Seal()}, nil
}

// leadingTo walks back from the last entry to the first, and returns them in their order.
func (f signedRows) leadingTo(last *signed) ([]*signed, error) {
	var path []*signed
	for current := last; current.seal != ""; {
		path = append(path, current)
		if current.Previous == "" {
			break
		}

		before, exists := f.bySeal[current.Previous]
		if !exists || before.Sequence != current.Sequence-1 {
			to := current.Sequence - 1
			return nil, &MissingError{From: f.firstMissing(to), To: to}
		}

		current = before
	}

	slices.Reverse(path)

	return path, nil
}

// firstMissing returns the sequence of the first missing entry: at most to, which is known to be
// missing. It walks forward from the first entry.
func (f signedRows) firstMissing(to int) int {
	next := f.following(&signed{})
	return min(len(next)+1, to)
}

// following returns what follows an entry, as long as only one row can.
func (f signedRows) following(last *signed) []*signed {
	var path []*signed
	for {
		next := f.byPrevious[last.seal]
		if len(next) != 1 || next[0].Sequence != last.Sequence+1 {
			return path
		}
		last = next[0]
		path = append(path, last)
	}
}
