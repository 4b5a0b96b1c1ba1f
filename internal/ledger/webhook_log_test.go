package ledger

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func (s *env) attempts(t *testing.T, state string) []AttemptRecord {
	t.Helper()
	return get(s.Webhooks.Attempts(t.Context(), s.account, state))(t)
}

// exporting makes the groups of an exporter, as its first start does.
func (s *env) exporting(t *testing.T) {
	t.Helper()
	must(t, newFeedReader(s.core, &Feed{Role: RoleExport, Consumer: "x"}, s.partitions).makeGroups(context.WithoutCancel(t.Context())))
}

// What was written of an attempt is read again, whatever ends it and whatever the event is.
//
//rule:webhooks/every-attempt-is-recorded-time
func TestAttempts_AreReadAsTheyWereMade(t *testing.T) {
	s := newWebhookEnv(t)
	o, keys := s.moved(t, "X-1", delivery.Assigned)
	notice := s.publish(t, 1)[0]
	want := []AttemptRecord{
		{Attempt: 1, State: StateRetrying, HTTPStatus: 503, Error: "status: 503", Millis: 12, Answer: "busy", NextAt: s.now().Add(time.Minute)},
		{Attempt: 2, State: StateDelivered, HTTPStatus: 200, Millis: 7, Replay: true},
		{Attempt: 3, State: StateRetrying, Error: "timeout", Probe: true, Probes: 1},
		{Attempt: 14, State: StateUndelivered, HTTPStatus: 500, Error: "status: 500"},
		{State: StateNotSent, Error: NoEndpointError},
	}

	var lines [][]byte
	for i := range want {
		a := &want[i]
		a.At = s.now()
		d := s.partitions[0].goneEvent([]string{keys[0], notice}[i%2])
		if d.Type == "" {
			d.Type = delivery.StoreActivated
		}

		line, unanswered := a.Lines(d, a.Probe)
		lines = append(lines, line)
		again := get(s.partitions[0].decodeLine(string(unanswered)))(t)
		check(t, again.Answer == "" && again.EventID == d.EventID && again.State == a.State && again.Attempt == a.Attempt, "without the answer: %+v", again)
		a.EventID, a.Event = d.EventID, string(d.Type)
		if i%2 == 0 {
			a.OrderID = o.ID.String()
		}
	}

	slices.Reverse(want)
	s.owns(t, func(step *Step) { step.Log(s.account, lines, 10, false) })
	log := s.attempts(t, "")
	for i := range log {
		log[i].event = want[i].event
	}

	equal(t, log, want, "the log")
	for state, n := range map[string]int{StateRetrying: 2, StateDelivered: 1, StateUndelivered: 1, StateNotSent: 1} {
		equal(t, len(s.attempts(t, state)), n, state)
	}

	equal(t, get(s.Webhooks.LastAttempts(t.Context(), s.account, 2))(t)[1].State, StateUndelivered, "the second of the chunk is")
}

func TestAttempts_AtMostTwoHundredAreShown(t *testing.T) {
	s := newWebhookEnv(t)
	for first := 1; first <= 256; first += 16 {
		var lines [][]byte
		for i := range 16 {
			lines = append(lines, s.line(first+i, 0))
		}
		s.owns(t, func(step *Step) { step.Log(s.account, lines, attemptsShown, false) })
	}

	log := s.attempts(t, "")
	check(t, len(log) == attemptsShown && log[0].Attempt == 256 && log[199].Attempt == 57, "%d shown, from %d to %d", len(log), log[0].Attempt, log[len(log)-1].Attempt)
}

// An exporter gets them, settles them, and then they go, whatever is kept of
// other streams.
func TestTries_GoOnceTheyAreExported(t *testing.T) {
	s := newWebhookEnv(t)
	s.exporting(t)
	key := s.publish(t, 1)[0]
	const failures = 4
	for range failures {
		s.ends(t, StateRetrying, key)
	}

	s.ends(t, StateDelivered, key)
	length := func() [2]int64 {
		return [2]int64{s.rdb.XLen(t.Context(), s.partitions[0].key(kindOutcomes)).Val(), s.rdb.XLen(t.Context(), s.partitions[0].key(kindTries)).Val()}
	}
	trim := func() {
		t.Helper()
		get(s.worker.Lifecycle.Trim(t.Context(), 0, 25*time.Hour))(t)
	}

	trim()
	equal(t, length(), [2]int64{1, failures}, "before it is exported")
	entries := collectFrom(t, s.Ledger, s.partitions, RoleExport, 1+1+failures)
	var kinds strings.Builder
	for i := range entries {
		kinds.WriteByte(entries[i].kind())
	}

	check(t, strings.Count(kinds.String(), "V") == failures && strings.Count(kinds.String(), "v") == 1, "streams %s", &kinds)
	trim()
	equal(t, length(), [2]int64{1, failures}, "while it is being exported")
	must(t, s.Streams.Ack(t.Context(), RoleExport, entries...))
	equal(t, s.lag(t).Entries, 0, "entries that are not exported")
	trim()
	if got := length(); got[0] != 1 || got[1] > 1 { // the last one read stays as the mark
		t.Errorf("after it: %v", got)
	}
}
