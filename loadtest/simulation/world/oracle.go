package world

import (
	"context"
	"time"

	"vendorapi/loadtest/faults/validate"
)

// heal lets everything work again, and demands that nothing remains to be done.
func (w *world) heal(ctx context.Context) {
	for _, v := range w.vendors {
		v.receiver.mu.Lock()
		v.receiver.until = time.Now()
		v.receiver.mu.Unlock()
	}

	w.story.note("    everything is healed")
	// The longest waits: the last attempt of an event, a day after it; an order that nobody carries, four hours.
	time.Sleep(4 * time.Hour)
	sources := w.sources()
	what := ""
	isSettled := func() bool {
		f, err := sources.Gather(ctx)
		if err != nil {
			what = err.Error()
			return false
		}

		what = ""
		for _, found := range f.Found {
			if found.Invariant == validate.PendingLeft {
				what = found.Text
			}
		}

		for _, left := range f.Remains {
			if len(left.Waiting) > 0 {
				what = left.Account + " waits for webhooks"
			}
		}

		return what == ""
	}

	for until := time.Now().Add(26 * time.Hour); !isSettled(); time.Sleep(time.Hour) {
		if time.Now().After(until) {
			w.breach("stuck", "the system", "a day after everything was healed: %s", what)
			return
		}
	}
}

func (w *world) sources() *validate.Sources {
	s := &validate.Sources{Ledger: w.ledger, Redis: w.redis, Stored: w.rows.archived}
	for _, v := range w.vendors {
		s.Accounts = append(s.Accounts, validate.Account{ID: v.id, Limits: v.limits, Disturbed: v.prone, Couriers: true})
	}
	return s
}

// check compares what everybody has been told with what is stored.
func (w *world) check(ctx context.Context) {
	f, err := w.sources().Gather(ctx)
	if err != nil {
		w.breach("unreadable", "the ledger", "%v", err)
		return
	}

	f.Arrivals, f.Replays = w.arrivals, w.replays
	f.UnrecordedWithin = 6 * time.Hour // a takeover alone takes the better part of an hour here, and workers die in a row
	w.facts = f
}

// Judge adds the breaches that need no bubble. The time of a search is the machine's.
func (w *world) judge() {
	if w.facts == nil {
		return
	}
	_, violations := validate.Check(w.operations, w.facts)
	for _, v := range violations {
		w.breach(string(v.Invariant), firstOf(v.Subjects), "%s", v.Text)
	}
}

func firstOf(subjects []string) string {
	if len(subjects) == 0 {
		return ""
	}
	return subjects[0]
}
