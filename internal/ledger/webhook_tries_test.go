package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// exporting makes the groups of an exporter, as its first start does.
func (s *env) exporting(t *testing.T) {
	t.Helper()
	must(t, newFeedReader(s.Ledger, &Feed{Role: RoleExport, Consumer: "x"}, s.rooms).makeGroups(t.Context()))
}

// exported are the attempts that an exporter gets, in the order of its streams:
// "state attempt status", "probe" for one.
func (s *env) exported(t *testing.T) (lines []string) {
	t.Helper()
	must(t, s.EachEntry(t.Context(), RoleExport, time.Time{}, func(entries []Entry) error {
		for _, e := range entries {
			if e.Outcomes == nil {
				continue
			}
			for _, a := range e.Outcomes.Records {
				line := fmt.Sprint(a.State, " ", a.Attempt, " ", a.HTTPStatus)
				if a.Probe {
					line += " probe"
				}
				check(t, a.State != outcomeRetrying || a.Answer == "" && a.Error == "status: 500" && !a.NextAt.IsZero(), "%+v", a)
				lines = append(lines, line)
			}
		}
		return nil
	}))
	return lines
}

//rule:webhooks/every-attempt-is-recorded-time
func TestTries_EveryAttemptIsExportedOnce(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.exporting(t)
	s.moved(t, delivery.Assigned)
	for _, answer := range []answer{failsFor(time.Second), answers(2048, time.Second), accepts} {
		d := s.one(t)
		s.ends(t, answer, d)
		// What is recorded again is somebody else's by then.
		recorded, err := s.RecordAttempts(t.Context(), []Result{{d, answer(s, d)}}, noGrant, s.breaker)
		check(t, err == nil && !recorded.OK[0], "recorded again: %+v %v", recorded, err)
		s.pass(t, time.Second)
	}
	if got, want := s.exported(t), []string{"delivered 3 200", "retrying 1 500", "retrying 2 500"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	log := s.attempts(t, outcomeRetrying)
	check(t, len(log) == 2 && len(log[0].Answer) == 2048, "the log lost the answer: %+v", log)
	equal(t, len(s.outcomes(t)), 1, "final outcomes")
}

// Several events of one call share an entry; each keeps its line.
func TestTries_OfOneCall(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.exporting(t)
	s.publish(t, 3)
	ds := s.lease(t, 3)
	results := []Result{{ds[0], failsFor(time.Hour)(s, ds[0])}, {ds[1], accepts(s, ds[1])}, {ds[2], answers(9, time.Hour)(s, ds[2])}}
	for i := range results {
		results[i].Outcome.At = s.now()
	}
	get(s.RecordAttempts(t.Context(), results, noGrant, s.breaker))(t)
	got, want := s.exported(t), []string{"delivered 1 200", "retrying 1 500", "retrying 1 500"}
	check(t, slices.Equal(got, want), "%q, want %q", got, want)
	equal(t, s.rdb.XLen(t.Context(), s.rooms[0].key(kindTries)).Val(), 1, "entries")
}

// Probes share a line in the log, but each has its own here; pings have none.
func TestTries_ProbesAndPings(t *testing.T) {
	s := newWebhookEnv(t, 1)
	s.exporting(t)
	s.open(t, 20*time.Hour)
	for range 3 {
		s.pass(t, 30*time.Second)
		s.ends(t, failsFor(0), s.one(t))
	}
	log := s.attempts(t, "")
	require(t, len(log) == 2 && log[0].Probes == 3, "log %+v", log)
	want := []string{"retrying 1 500", "retrying 2 500 probe", "retrying 2 500 probe", "retrying 2 500 probe"}
	equal(t, s.exported(t), want, "got")
	s.pass(t, 30*time.Second)
	s.ends(t, accepts, s.one(t)) // and nothing waits any more
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.take(t, 1)...)
	s.pass(t, time.Minute)
	ping := s.one(t)
	require(t, ping.Ping, "%+v is no ping", ping)
	s.ends(t, failsFor(0), ping)
	want = append([]string{"delivered 2 200 probe", "undelivered 1 500"}, want...)
	equal(t, s.exported(t), want, "got")
}

// Where nobody exports, an event that waits costs nothing more.
func TestTries_CostNothingWithoutExporter(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 1)
	for range 5 {
		s.ends(t, failsFor(time.Second), s.one(t))
		s.pass(t, time.Second)
	}
	n := s.rdb.Exists(t.Context(), s.rooms[0].key(kindTries)).Val()
	check(t, n == 0, "there is a stream that nobody reads")
	log := s.attempts(t, "")
	check(t, len(log) == 5, "%d lines", len(log))
}

// An exporter gets them, settles them, and then they go, whatever is kept of
// other streams.
func TestTries_GoOnceTheyAreExported(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.exporting(t)
	s.publish(t, 1)
	const failures = 4
	for range failures {
		s.ends(t, failsFor(time.Second), s.one(t))
		s.pass(t, time.Second)
	}
	s.ends(t, accepts, s.one(t))
	length := func() [2]int64 {
		return [2]int64{s.rdb.XLen(t.Context(), s.rooms[0].key(kindOutcomes)).Val(), s.rdb.XLen(t.Context(), s.rooms[0].key(kindTries)).Val()}
	}
	trim := func() {
		t.Helper()
		get(s.Trim(t.Context(), 0, 25*time.Hour))(t)
	}
	trim()
	equal(t, length(), [2]int64{1, failures}, "before it is exported")
	entries := collectFrom(t, s.Ledger, s.rooms, RoleExport, 1+1+failures)
	var kinds strings.Builder
	for i := range entries {
		kinds.WriteByte(entries[i].kind())
	}
	check(t, strings.Count(kinds.String(), "V") == failures && strings.Count(kinds.String(), "v") == 1, "streams %s", &kinds)
	trim()
	equal(t, length(), [2]int64{1, failures}, "while it is being exported")
	must(t, s.Ack(t.Context(), RoleExport, entries...))
	lag, err := s.Lag(t.Context(), RoleExport)
	check(t, err == nil && lag.Entries == 0, "lag %+v %v", lag, err)
	trim()
	if got := length(); got[0] != 1 || got[1] > 1 { // the last one read stays as the mark
		t.Errorf("after it: %v", got)
	}
}

// A replay by outcome asks how events ended, not what goes on.
func TestTries_AreNoOutcomeForReplays(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.exporting(t)
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.one(t))
	yesterday := s.now().Add(-23 * time.Hour)
	for range 2 {
		s.pass(t, time.Second)
		n, err := s.ReplayOutcomes(t.Context(), s.account, outcomeUndelivered, yesterday)
		check(t, err == nil && n == 1, "%d events, %v", n, err)
		s.ends(t, failsFor(time.Hour), s.one(t))
	}
}
