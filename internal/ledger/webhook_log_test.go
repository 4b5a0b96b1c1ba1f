package ledger

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

func (s *env) attempts(t *testing.T, state string) []partitions.AttemptRecord {
	t.Helper()
	return get(s.Webhooks.Attempts(t.Context(), s.account, state))(t)
}

// exporting makes the groups of an exporter, as its first start does.
func (s *env) exporting(t *testing.T) {
	t.Helper()
	must(t, makeGroups(context.WithoutCancel(t.Context()), partitions.NewFeedReader(s.core, &partitions.Feed{Role: core.RoleExport, Consumer: "x"}, s.core.Partitions)))
}

// What was written of an attempt is read again, whatever ends it and whatever the event is.
//
//rule:webhooks/every-attempt-is-recorded-time
func TestAttempts_AreReadAsTheyWereMade(t *testing.T) {
	s := newWebhookEnv(t)
	o, keys := s.moved(t, "X-1", delivery.Assigned)
	notice := s.publish(t, 1)[0]
	want := []partitions.AttemptRecord{
		{Attempt: 1, State: partitions.StateRetrying, HTTPStatus: 503, Error: "status: 503", Millis: 12, Answer: "busy", NextAt: s.now().Add(time.Minute)},
		{Attempt: 2, State: partitions.StateDelivered, HTTPStatus: 200, Millis: 7, Replay: true},
		{Attempt: 3, State: partitions.StateRetrying, Error: "timeout", Probe: true, Probes: 1},
		{Attempt: 14, State: partitions.StateUndelivered, HTTPStatus: 500, Error: "status: 500"},
		{State: partitions.StateNotSent, Error: partitions.NoEndpointError},
	}

	var lines [][]byte
	for i := range want {
		a := &want[i]
		a.At = s.now()
		d := partitions.GoneEvent(s.core.Partitions[0], []string{keys[0], notice}[i%2])
		if d.Type == "" {
			d.Type = delivery.StoreActivated
		}

		line, unanswered := a.Lines(d, a.Probe)
		lines = append(lines, line)
		again := get(partitions.DecodeLine(s.core.Partitions[0], string(unanswered)))(t)
		check(t, again.Answer == "" && again.EventID == d.EventID && again.State == a.State && again.Attempt == a.Attempt, "without the answer: %+v", again)
		a.EventID, a.Event = d.EventID, string(d.Type)
		if i%2 == 0 {
			a.OrderID = o.ID.String()
		}
	}

	slices.Reverse(want)
	s.owns(t, func(step *partitions.Step) { step.Log(s.account, lines, 10, false) })
	log := s.attempts(t, "")
	for i := range log {
		log[i].Subject = want[i].Subject
	}

	equal(t, log, want, "the log")
	for state, n := range map[string]int{partitions.StateRetrying: 2, partitions.StateDelivered: 1, partitions.StateUndelivered: 1, partitions.StateNotSent: 1} {
		equal(t, len(s.attempts(t, state)), n, state)
	}

	equal(t, get(s.Webhooks.LastAttempts(t.Context(), s.account, 2))(t)[1].State, partitions.StateUndelivered, "the second of the chunk is")
}

func TestAttempts_AtMostTwoHundredAreShown(t *testing.T) {
	s := newWebhookEnv(t)
	for first := 1; first <= 256; first += 16 {
		var lines [][]byte
		for i := range 16 {
			lines = append(lines, s.line(first+i, 0))
		}
		s.owns(t, func(step *partitions.Step) { step.Log(s.account, lines, partitions.AttemptsShown, false) })
	}

	log := s.attempts(t, "")
	check(t, len(log) == partitions.AttemptsShown && log[0].Attempt == 256 && log[199].Attempt == 57, "%d shown, from %d to %d", len(log), log[0].Attempt, log[len(log)-1].Attempt)
}

// An exporter gets them, settles them, and then they go, whatever is kept of
// other streams.
func TestTries_GoOnceTheyAreExported(t *testing.T) {
	s := newWebhookEnv(t)
	s.exporting(t)
	key := s.publish(t, 1)[0]
	const failures = 4
	for range failures {
		s.ends(t, partitions.StateRetrying, key)
	}

	s.ends(t, partitions.StateDelivered, key)
	length := func() [2]int64 {
		return [2]int64{s.core.Redis.XLen(t.Context(), s.core.Partitions[0].Key(core.KindOutcomes)).Val(), s.core.Redis.XLen(t.Context(), s.core.Partitions[0].Key(core.KindTries)).Val()}
	}
	trim := func() {
		t.Helper()
		get(s.worker.Streams.Trim(t.Context(), 0, 25*time.Hour))(t)
	}

	trim()
	equal(t, length(), [2]int64{1, failures}, "before it is exported")
	entries := collectFrom(t, s.Ledger, s.core.Partitions, core.RoleExport, 1+1+failures)
	var kinds strings.Builder
	for i := range entries {
		kinds.WriteByte(entries[i].Kind())
	}

	check(t, strings.Count(kinds.String(), "V") == failures && strings.Count(kinds.String(), "v") == 1, "streams %s", &kinds)
	trim()
	equal(t, length(), [2]int64{1, failures}, "while it is being exported")
	must(t, s.Streams.Ack(t.Context(), core.RoleExport, entries...))
	equal(t, s.lag(t).Entries, 0, "entries that are not exported")
	trim()
	if got := length(); got[0] != 1 || got[1] > 1 { // the last one read stays as the mark
		t.Errorf("after it: %v", got)
	}
}
