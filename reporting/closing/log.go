package closing

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
)

// Log is all that was decided.
//
//	                 hold                      close, by another person
//	open months ---------------> month held ---------------------------> month closed, for good
//	     ^                           |
//	     +---------------------------+
//	                release
//
// The months that the first hold is about, all since the oldest order, are closed one by one. Should that
// be interrupted, the rest stays held.
//
// Corrections of closed months are booked at any time in the month that is open. While a dispute is
// open, nothing is decided but a further dispute, until another person has set aside what it is about.
type Log struct {
	Entries  []Entry
	Held     *Entry // the hold of the month that is held; nil: none is
	Last     *Entry // the latest closing; nil: there is none
	Disputed *Entry // the dispute that is open; nil: none is

	// Foreign are rows that do not belong to the log: they are not signed, or contradict it. While
	// there are any, only a dispute about them and the set-aside after it are decided.
	Foreign journal.ForeignRows

	head string // in Redis, as it was read

	stored []string // the digests of the rows that were read of it

	between []string // manifests since the last closing or correction

	// corrections are the indexes of the entries that have corrections of an order.
	corrections map[delivery.OrderID][]int
}

// LastSeal returns the seal of the last entry; empty: there is none.
func (l *Log) LastSeal() string {
	if len(l.Entries) == 0 {
		return ""
	}
	return l.Entries[len(l.Entries)-1].Seal
}

// rows returns the digests of the log's rows, those included that were stored since it was read.
func (l *Log) rows() []string {
	all := slices.Clone(l.stored)
	for i := range l.Entries {
		all = append(all, l.Entries[i].signed.Digest())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Closed reports whether the month, or a later one, was closed.
func (l *Log) Closed(m Month) bool { return l.Last != nil && !m.After(l.Last.Month.Time) }

// NextMonth returns the month that is held or can be closed next: by default the one before now's.
func (l *Log) NextMonth(now time.Time) Month {
	switch {
	case l.Held != nil:
		return l.Held.Month
	case l.Last != nil:
		return l.Last.Month.Next()
	}
	return MonthOf(MonthOf(now).AddDate(0, 0, -1))
}

// State says in words what has become of a month.
func (l *Log) State(m Month) string {
	isHeld := l.Held != nil && l.Held.Month == m
	if isHeld {
		return fmt.Sprintf("held by %s since %s", l.Held.By, l.Held.At.Format("2 Jan 2006 15:04"))
	}
	if !l.Closed(m) {
		return "open"
	}

	e := l.Closing(m)
	if e != nil {
		return fmt.Sprintf("closed by %s on %s, seal %.12s", e.By, e.At.Format("2 Jan 2006 15:04"), e.Seal)
	}

	return "before the first month that was closed"
}

// Closing returns the entry that closed the month; nil: it is open, or lies before the first one.
func (l *Log) Closing(m Month) *Entry {
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindClose && e.Month == m {
			return e
		}
	}
	return nil
}

// correctionsOf returns the entries that have corrections of an order.
func (l *Log) correctionsOf(order delivery.OrderID) []*Entry {
	var found []*Entry
	for _, i := range l.corrections[order] {
		found = append(found, &l.Entries[i])
	}
	return found
}

// batchesAbout returns the batches of those entries that can have rows of some orders.
func batchesAbout(entries []Entry, orders []archive.Place) []uuid.UUID {
	isOrder := map[delivery.OrderID]bool{}
	isMonth := map[Month]bool{}
	for _, place := range orders {
		isOrder[place.Order] = true
		isMonth[MonthOf(place.Day)] = true
	}

	var batches []uuid.UUID
	for i := range entries {
		e := &entries[i]
		closes := e.Kind == KindClose && isMonth[e.Month]
		corrects := slices.ContainsFunc(e.Corrections, func(c Correction) bool { return isOrder[c.Order] })
		if closes || corrects {
			batches = append(batches, e.Batch)
		}
	}

	return batches
}

// add checks that an entry may follow, and adds it.
func (l *Log) add(e Entry) error {
	if e.Sequence != len(l.Entries)+1 || e.Previous != l.LastSeal() {
		return fmt.Errorf("entry %d does not follow entry %d", e.Sequence, len(l.Entries))
	}
	if !l.mayFollow(&e) {
		return fmt.Errorf("entry %d: a %s of %s by %s cannot follow", e.Sequence, e.Kind, e.Month, e.By)
	}

	if e.Batch == uuid.Nil {
		l.between = append(l.between, e.JSON)
	} else {
		e.between, l.between = l.between, nil
	}

	for _, c := range e.Corrections {
		if l.corrections == nil {
			l.corrections = map[delivery.OrderID][]int{}
		}
		of := append(slices.Clone(l.corrections[c.Order]), len(l.Entries))
		l.corrections[c.Order] = slices.Compact(of)
	}

	l.Entries = append(l.Entries, e)
	switch e.Kind {
	case KindHold:
		l.Held = &e
	case KindRelease:
		l.Held = nil
	case KindClose:
		l.Last = &e
		if e.Month == l.Held.Month {
			l.Held = nil
		}
	case KindDispute:
		l.Disputed = &e
	case KindSetAside:
		l.Disputed = nil
	}

	return nil
}

// mayFollow reports whether the state of the log allows an entry. Two people are needed for a
// closing and for setting rows aside.
func (l *Log) mayFollow(e *Entry) bool {
	isSettled := l.Disputed == nil

	switch e.Kind {
	case KindHold:
		return isSettled && l.Held == nil && l.mayHold(e)
	case KindRelease:
		return isSettled && l.Held != nil && l.Held.Month == e.Month
	case KindClose:
		return isSettled && l.Held != nil && l.nextToClose().Month == e.Month && e.By != l.Held.By
	case KindCorrection:
		return isSettled && l.Last != nil && !l.Closed(e.Month)
	case KindDispute:
		return true
	case KindSetAside:
		return !isSettled && e.By != l.Disputed.By
	}

	return false
}

// mayHold reports whether the months of a hold follow each other, and the last closing, and end with Month.
func (l *Log) mayHold(e *Entry) bool {
	if len(e.Months) == 0 || e.Months[len(e.Months)-1].Month != e.Month {
		return false
	}

	follows := l.Last == nil || e.Months[0].Month == l.Last.Month.Next()
	for i := 1; i < len(e.Months); i++ {
		follows = follows && e.Months[i].Month == e.Months[i-1].Month.Next()
	}
	return follows
}

// nextToClose returns the earliest held month that is not closed. Something must be held.
func (l *Log) nextToClose() *HeldMonth {
	for i := range l.Held.Months {
		if !l.Closed(l.Held.Months[i].Month) {
			return &l.Held.Months[i]
		}
	}
	return &HeldMonth{} // never reached: add ends the hold with its last month
}

// ErrTampered reports that there are rows that do not belong to the log, or an open dispute about
// some: until two people have set them aside, nothing else is decided.
var ErrTampered = errors.New("the log of the books was tampered with")

// requireSettled returns ErrTampered unless decisions are possible.
func (l *Log) requireSettled() error {
	if l.Disputed != nil {
		return fmt.Errorf("%w: %s disputes %d rows, and somebody else has to set them aside (`reporting month set-aside`)", ErrTampered, l.Disputed.By, l.Disputed.Rows.Count)
	}
	if !l.Foreign.AreNone() {
		return fmt.Errorf("%w: two people can set aside what is not of it (`reporting month dispute`): %s", ErrTampered, l.Foreign.String())
	}
	return nil
}
