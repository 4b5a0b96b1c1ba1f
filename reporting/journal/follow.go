package journal

import (
	"fmt"
	"slices"
)

// Chain is the log as it was found among rows.
type Chain struct {
	// Entries is the log from its first entry on.
	Entries []Entry

	// Unstored reports that the row of the head is missing: a process has died between moving the head
	// and storing the row. The entry is Entries[len(Entries)-1-Ahead].
	Unstored bool

	// Ahead is how many of Entries follow the head: Redis was restored from an older state.
	Ahead int

	// Foreign are the rows that do not belong to the log, and the head if it does not.
	Foreign []Foreign
}

// Foreign is a row that does not belong to the log.
type Foreign struct {
	Entry
	Why string

	// IsHead is set when it is what Redis has as the head, and no row.
	IsHead bool
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

// signed is an entry whose signature is right.
type signed struct {
	Entry
	link
	seal string
}

// whyForeign returns why a signed entry is not in a log of some length.
func (s signed) whyForeign(length int) string {
	switch {
	case s.Sequence <= length:
		return fmt.Sprintf("it is signed, but another entry %d is in the log", s.Sequence)
	case s.Sequence == length+1:
		return fmt.Sprintf("it is signed, but not the only one that could be entry %d", s.Sequence)
	}
	return fmt.Sprintf("it is signed, but the entries before it are missing after number %d", length)
}

// Follow finds the log among rows, which may be in any order and repeated. It walks back from the
// head to the first entry, then forward from the head while exactly one row continues the chain:
// Redis may have been restored from an older state. Without a head (nil: it is not known, or there is
// no entry yet) it walks forward from the first entry.
//
// The error is a *MissingError when rows are missing before the head, and ErrNoKeys when there is
// something to check, but no key. What is wrong with single rows is no error: they are Foreign.
func (k Keys) Follow(rows []Entry, head *Entry) (*Chain, error) {
	if len(k.keys) == 0 && (head != nil || len(rows) > 0) {
		return nil, ErrNoKeys
	}

	chain := &Chain{}
	found := k.checkRows(rows, chain)
	last := k.checkHead(head, chain)

	path, err := leadingTo(last, found)
	if err != nil {
		return nil, err
	}
	_, isStored := found.bySeal[last.seal]
	chain.Unstored = last.seal != "" && !isStored

	following := found.following(last)
	chain.Ahead = len(following)
	path = append(path, following...)

	inLog := map[string]bool{}
	for _, s := range path {
		inLog[s.seal] = true
		chain.Entries = append(chain.Entries, s.Entry)
	}
	for _, s := range found.all {
		if inLog[s.seal] {
			continue
		}
		chain.Foreign = append(chain.Foreign, Foreign{Entry: s.Entry, Why: s.whyForeign(len(path))})
	}
	return chain, nil
}

// rowsFound are the rows with a valid signature, each seal once.
type rowsFound struct {
	all        []signed
	bySeal     map[string]signed
	byPrevious map[string][]signed
}

// checkRows returns the signed rows, and adds the others to the foreign ones.
func (k Keys) checkRows(rows []Entry, chain *Chain) rowsFound {
	found := rowsFound{bySeal: map[string]signed{}, byPrevious: map[string][]signed{}}
	for _, e := range rows {
		l, err := k.check(&e)
		if err != nil {
			chain.Foreign = append(chain.Foreign, Foreign{Entry: e, Why: err.Error()})
			continue
		}

		s := signed{Entry: e, link: l, seal: e.Seal()}
		_, isRepeated := found.bySeal[s.seal]
		if isRepeated {
			continue
		}
		found.all = append(found.all, s)
		found.bySeal[s.seal] = s
		found.byPrevious[s.Previous] = append(found.byPrevious[s.Previous], s)
	}
	return found
}

// checkHead returns the head; without a valid one, the place before the first entry.
func (k Keys) checkHead(head *Entry, chain *Chain) signed {
	if head == nil {
		return signed{}
	}
	l, err := k.check(head)
	if err != nil {
		chain.Foreign = append(chain.Foreign, Foreign{Entry: *head, Why: "the head in Redis: " + err.Error(), IsHead: true})
		return signed{}
	}
	return signed{Entry: *head, link: l, seal: head.Seal()}
}

// leadingTo walks back from the last entry to the first, and returns them in their order.
func leadingTo(last signed, found rowsFound) ([]signed, error) {
	var path []signed
	for current := last; current.seal != ""; {
		path = append(path, current)
		if current.Previous == "" {
			break
		}

		before, exists := found.bySeal[current.Previous]
		if !exists || before.Sequence != current.Sequence-1 {
			to := current.Sequence - 1
			return nil, &MissingError{From: found.firstMissing(to), To: to}
		}
		current = before
	}
	slices.Reverse(path)
	return path, nil
}

// firstMissing returns the sequence of the first missing entry: at most to, which is known to be
// missing. It walks forward from the first entry.
func (f rowsFound) firstMissing(to int) int {
	next := f.following(signed{})
	return min(len(next)+1, to)
}

// following returns what follows an entry, as long as only one row can.
func (f rowsFound) following(last signed) []signed {
	var path []signed
	for {
		next := f.byPrevious[last.seal]
		if len(next) != 1 || next[0].Sequence != last.Sequence+1 {
			return path
		}
		last = next[0]
		path = append(path, last)
	}
}
