package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// How far a replay reaches: events are kept for a day, and one request names at
// most so many.
const (
	maxReplayed    = 1000
	replayReach    = 24 * time.Hour
	clockTolerance = time.Minute // between the caller's clock and ours
)

// replayStates are the final outcomes that operators may send again.
var replayStates = []string{"undelivered", "notSent"}

// replayOwn is POST /webhook/replay {since}: the vendor's own events since a
// time are sent once more, under their own ids, for a receiver that has lost
// some. One replay of an account runs at a time: another one meanwhile is
// RATE_LIMITED, with the wait. That request has passed the bucket, so unlike one
// that the bucket refuses it counts.
func (g *gateway) replayOwn(x *exchange) error {
	f := newForm(x.text())
	given := f.text("since")
	if err := f.read(); err != nil {
		return g.counted(x, err)
	}
	f.require("since", given.Set)
	since := f.replayFrom("since", given, x.now)
	if err := f.err(); err != nil {
		return g.counted(x, err)
	}
	l, err := g.countAndOpen(x)
	if err != nil {
		return err
	}
	replayed, err := l.Webhooks.ReplaySince(g.work, x.account, since)
	if err != nil {
		return err
	}
	return x.okJSON(map[string]int{"replayed": replayed})
}

// replayFrom is the time from which on events are to be sent again: within the
// last 24 hours, give or take the clocks. Zero when absent or wrong.
func (f *form) replayFrom(path string, t *delivery.Text, now time.Time) time.Time {
	from := f.moment(path, t)
	switch {
	case !t.Set:
	case from.Before(now.Add(-replayReach - clockTolerance)):
		f.invalid(path, "must not be more than 24 hours ago"+delivery.ReadAs(t.Value, from))
	case from.After(now.Add(clockTolerance)):
		f.invalid(path, "must not lie in the future"+delivery.ReadAs(t.Value, from))
	}
	return from
}

// replayScope says what an operator wants sent again: exactly one of events, what
// came since a time, and what ended in a state since a time.
type replayScope struct {
	ids   []string  // nil: not asked for
	state string    // empty: not asked for
	since time.Time // zero with ids
}

func readReplayScope(x *exchange) (replayScope, error) {
	f := newForm(x.text())
	ids, since, status := f.texts("eventIds"), f.text("since"), f.text("status")
	if err := f.read(); err != nil {
		return replayScope{}, err
	}
	if err := f.err(); err != nil { // before a wrong type is taken for an absent field
		return replayScope{}, err
	}
	switch named := *ids != nil; {
	case named && (since.Set || status.Set):
		f.invalid("eventIds", "must stand alone, without since and status")
	case named:
		f.checkEventIDs("eventIds", *ids)
	case status.Set && !slices.Contains(replayStates, status.Value):
		f.invalid("status", "must be undelivered or notSent")
	case !status.Set && !since.Set:
		f.invalid("eventIds", "is required, or since or status instead of it")
	}
	r := replayScope{ids: distinct(*ids), state: status.Value, since: f.replayFrom("since", since, x.now)}
	if r.state != "" && !since.Set {
		r.since = x.now.Add(-replayReach)
	}
	return r, f.err()
}

func (f *form) checkEventIDs(path string, ids []string) {
	if len(ids) == 0 || len(ids) > maxReplayed {
		f.invalid(path, fmt.Sprintf("must have 1 to %d ids", maxReplayed))
		return
	}
	for i, id := range ids {
		if id == "" {
			f.invalid(fmt.Sprintf("%s[%d]", path, i), "must not be empty")
		}
	}
}

// distinct drops what occurs again: one request sends an event once.
func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	return slices.DeleteFunc(ids, func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// run queues what is in it and tells how many events that were.
func (r *replayScope) run(ctx context.Context, l *ledger.Ledger, account delivery.AccountID) (int, error) {
	switch {
	case r.ids != nil:
		return l.Webhooks.ReplayEvents(ctx, account, r.ids)
	case r.state != "":
		return l.Webhooks.ReplayOutcomes(ctx, account, r.state, r.since)
	}
	return l.Webhooks.ReplaySince(ctx, account, r.since)
}

// replayEvents is POST /accounts/{id}/webhook/replay: {eventIds}, or {since},
// or {status, since?} for everything whose final outcome was that one, since
// 24 hours ago unless it says otherwise.
func (g *gateway) replayEvents(x *exchange) error {
	scope, err := readReplayScope(x)
	if err != nil {
		return err
	}
	l, id, err := g.webhookOf(x)
	if err != nil {
		return err
	}
	replayed, err := scope.run(g.work, l, id)
	if err != nil {
		return err
	}
	g.audit(x, "events replayed", "account", id.String(), "events", replayed)
	return x.okJSON(map[string]int{"replayed": replayed})
}
