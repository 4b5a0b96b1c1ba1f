package core

import (
	"errors"
	"fmt"

	"vendorapi/internal/delivery"
)

// ErrIncomplete reports that a list or a sum lacks what some partitions hold, because their servers
// do not answer. What is returned beside it is valid, its cursor too, and may be shown together with
// the remark that something is missing (Gaps). Nothing may be decided by what it does not contain.
// An error that wraps it also wraps delivery.ErrUnavailable, so whoever does not look for it fails.
var ErrIncomplete = errors.New("some partitions do not answer")

// Gaps notes whether something is missing from what several calls returned. The zero value says that
// nothing is.
type Gaps struct{ Found bool }

// Allow returns err, but nil for ErrIncomplete, of which it takes note.
func (g *Gaps) Allow(err error) error {
	if errors.Is(err, ErrIncomplete) {
		g.Found = true
		return nil
	}
	return err
}

// MissingParts counts the parts of a list that were asked for and that failed, and keeps the first error
// of each kind. The zero value has none.
type MissingParts struct {
	asked, failed int
	first         error // the first error of a server that does not answer
	defect        error // the first other error
}

// Note counts parts that were asked for, by their errors: nil says that a part was read.
func (m *MissingParts) Note(errs []error) {
	m.asked += len(errs)
	for _, err := range errs {
		m.Add(err)
	}
}

// Add takes a later error of a part that Note has counted as asked for. It ignores nil.
func (m *MissingParts) Add(err error) {
	if err == nil {
		return
	}

	err = Failure(err)
	if !errors.Is(err, delivery.ErrUnavailable) {
		if m.defect == nil {
			m.defect = err
		}
		return
	}

	m.failed++
	if m.first == nil {
		m.first = err
	}
}

// Err returns nil when all parts were read, ErrIncomplete when some were, and else why none was. A
// reply that shows a defect is an error for all: nobody would find it in a list that goes on.
func (m *MissingParts) Err() error {
	switch {
	case m.defect != nil:
		return m.defect
	case m.failed == 0:
		return nil
	case m.failed >= m.asked:
		return m.first
	}
	return m.incomplete()
}

func (m *MissingParts) incomplete() error {
	return fmt.Errorf("%w, %d of %d: %w", ErrIncomplete, m.failed, m.asked, m.first)
}

// ErrOfRest is the error of parts that may be the rest of a list only. When in a cluster none of them
// answers, but something else of the list did, the list is incomplete.
func (l *Client) ErrOfRest(missing *MissingParts, isRest bool) error {
	if l.IsCluster && isRest && missing.defect == nil && missing.failed > 0 {
		return missing.incomplete()
	}
	return missing.Err()
}

// Partly is the error of a list that was read in one go, from those of its parts.
func Partly(errs []error) error {
	var missing MissingParts
	missing.Note(errs)
	return missing.Err()
}

// NoteReadability logs when the record under a key begins to be unreadable, and when it can be read
// again. A nil problem means that it was read.
func (l *Client) NoteReadability(key string, problem error) {
	if problem == nil {
		_, wasUnreadable := l.unreadableRecords.LoadAndDelete(key)
		if wasUnreadable {
			l.Log.Info("a record is read again", "key", key)
		}
		return
	}

	_, isLogged := l.unreadableRecords.LoadOrStore(key, struct{}{})
	if !isLogged {
		l.Log.Error("a record cannot be read; lists leave it out", "key", key, "error", problem)
	}
}
