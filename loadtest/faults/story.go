package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/faults/judge"
)

// story is everything that is known of one thing that a violation is about (an
// order, an external id, an idempotency key, an event), by time.
type story struct {
	id    string
	lines []storyLine
}

type storyLine struct {
	at   time.Time
	text string
}

// tell composes the story of an id; an account's is cut to its latest part.
func tell(id string, ops []history.Op, f *judge.Facts) string {
	s := &story{id: id}
	for i := range ops {
		op := &ops[i]
		if op.Order == id || op.External == id || op.Key == id && id != "" || op.Account == id {
			s.add(op.Start, "client %d %s %s key %q external %q body %s: %d %s %s %s (until %s)", op.Client, op.Kind, op.Order, op.Key, op.External,
				op.Body, op.Status, op.Code, op.State, replayed(op), op.End.Format(clockForm))
		}
	}
	for _, o := range f.Orders {
		if o.ID == id || o.External == id {
			s.add(o.Created, "Redis: order %s external %q created, now %s, version %d", o.ID, o.External, o.Status, o.Version)
			for _, c := range o.Changes {
				s.add(c.At, "Redis: %s %s, version %d", c.Status, c.Failure, c.Version)
			}
		}
	}
	s.archive(f)
	for _, a := range f.Arrivals {
		if a.Order == id || a.External == id || a.EventID == id {
			s.add(a.Began, "receiver: %s %s attempt %d, answered %d at %s %s", a.EventID, a.Status, a.Attempt, a.Answered, a.Ended.Format(clockForm), a.Invalid)
		}
	}
	return s.String()
}

func (s *story) archive(f *judge.Facts) {
	if f.Archive == nil {
		return
	}
	for _, o := range f.Archive.Orders {
		if o.ID == s.id || o.External == s.id {
			s.add(o.Created, "ClickHouse: order %s external %q, now %s, version %d", o.ID, o.External, o.Status, o.Version)
		}
	}
	for _, e := range f.Archive.Events {
		if e.Order == s.id {
			s.add(e.At, "ClickHouse: %s %s, version %d", e.Status, e.Failure, e.Version)
		}
	}
	for _, a := range f.Archive.Attempts {
		if a.EventID == s.id || strings.HasPrefix(a.EventID, s.id) {
			s.add(a.At, "ClickHouse: attempt %d of %s %s", a.Attempt, a.EventID, a.State)
		}
	}
}

const clockForm = "15:04:05.000"

func replayed(op *history.Op) string {
	if op.Replayed {
		return "replayed"
	}
	return ""
}

func (s *story) add(at time.Time, format string, args ...any) {
	s.lines = append(s.lines, storyLine{at, fmt.Sprintf(format, args...)})
}

// String has one line for each thing that happened.
func (s *story) String() string {
	slices.SortStableFunc(s.lines, func(a, b storyLine) int { return a.at.Compare(b.at) })
	const most = 60
	var b strings.Builder
	fmt.Fprintf(&b, "what is known of %s:", s.id)
	for _, l := range s.lines[max(0, len(s.lines)-most):] {
		fmt.Fprintf(&b, "\n  %s  %s", l.at.Format(clockForm), l.text)
	}
	return b.String()
}
