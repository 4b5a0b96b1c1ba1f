package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// logSize is the length of the attempt log, its bytes, and what the figures
// count of them.
func (s *env) logSize(t *testing.T) (lines, bytes, counted int) {
	t.Helper()
	all := get(s.rdb.LRange(t.Context(), s.key(kindAttemptLog), 0, -1).Result())(t)
	for _, line := range all {
		bytes += len(line)
	}
	f := fields{rest: s.rdb.HGet(t.Context(), s.key(kindEndpoint), "tally").Val()}
	f.take(20)
	return len(all), bytes, int(f.uint32())
}

// answers is a failure with that much of an answer.
func answers(size int, again time.Duration) answer {
	return func(s *env, d *Delivery) Outcome {
		o := failsFor(again)(s, d)
		o.Answer = []byte(strings.Repeat("x", size))
		return o
	}
}

func TestAttemptLog_KeepsTheNewestTwoHundred(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 1)
	for i := range 450 {
		s.ends(t, answers(i%7, time.Millisecond), s.one(t))
		s.pass(t, time.Millisecond)
		if i%50 == 0 || i > 430 {
			if lines, bytes, counted := s.logSize(t); lines > 216 || lines < min(i+1, attemptsShown) || bytes != counted {
				t.Fatalf("after %d attempts: %d lines, %d bytes, counted %d", i+1, lines, bytes, counted)
			}
		}
	}
	log := s.attempts(t, "")
	check(t, len(log) == attemptsShown, "%d shown", len(log))
	for i, a := range log {
		require(t, a.Attempt == 450-i && len(a.Answer) == (450-i-1)%7, "line %d: %+v", i, a)
	}
}

func TestAttemptLog_BytesAreBounded(t *testing.T) {
	const most = 256 << 10
	s := newWebhookEnv(t, 140)
	s.publish(t, 1)
	bounded := func() {
		t.Helper()
		lines, bytes, counted := s.logSize(t)
		require(t, bytes <= most && bytes == counted && lines >= 100, "%d lines, %d bytes, counted %d", lines, bytes, counted)
	}
	for i := range s.breaker - 1 {
		s.ends(t, answers(2048, time.Millisecond), s.one(t))
		s.pass(t, time.Millisecond)
		if i > 110 {
			bounded()
		}
	}
	s.ends(t, answers(2048, 20*time.Hour), s.one(t)) // and the breaker is open
	for i := range 6 {                               // early probes share one line
		s.pass(t, 30*time.Second)
		s.ends(t, answers(400*i, 0), s.one(t))
		bounded()
	}
	log := s.attempts(t, "")
	check(t, log[0].Probes == 6 && len(log[0].Answer) == 2000, "the log begins with %+v", log[0])
}

func TestTally_OverAChangeOfHours(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	hour := time.UnixMilli(s.ms.Load()).Truncate(time.Hour).Add(time.Hour)
	s.pass(t, hour.Sub(s.now()))
	want := func(ok, failed int64) {
		t.Helper()
		if e := s.endpoint(t); e.RecentOK != ok || e.RecentFailed != failed {
			t.Errorf("at %s: %d succeeded, %d failed; want %d, %d", s.now().Sub(hour), e.RecentOK, e.RecentFailed, ok, failed)
		}
	}
	attempt := func(ok, failed int) {
		t.Helper()
		s.publish(t, ok+failed)
		ds := s.lease(t, ok+failed)
		s.ends(t, accepts, ds[:ok]...)
		s.ends(t, failsFor(0), ds[ok:]...)
	}
	attempt(3, 1)
	want(3, 1)
	s.pass(t, time.Hour-time.Millisecond)
	attempt(2, 2)
	want(5, 3)
	s.pass(t, time.Millisecond) // the next hour of the clock, before anything happens in it
	want(5, 3)
	attempt(1, 0)
	want(6, 3)
	s.pass(t, time.Hour)
	want(1, 0)
	attempt(0, 1)
	want(1, 1)
	s.pass(t, 2*time.Hour)
	want(0, 0)
	attempt(1, 1)
	want(1, 1)
	if e := s.endpoint(t); e.Delivered != 7 || e.Undelivered != 5 || e.Retried != 0 || e.NotSent != 0 {
		t.Errorf("endpoint %+v", e)
	}
}

func TestTally_CountsEventsNotProbes(t *testing.T) {
	s := opened(t, 1, 20*time.Hour)
	s.pass(t, time.Second)
	s.ends(t, failsFor(0), s.one(t)) // an early probe
	s.pass(t, 2*time.Second)
	s.ends(t, accepts, s.one(t)) // another one
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.take(t, 1)...)
	s.pass(t, time.Minute)
	s.ends(t, failsFor(0), s.one(t)) // a ping
	s.pass(t, time.Minute)
	s.ends(t, accepts, s.one(t))
	e := s.endpoint(t)
	check(t, e.Delivered == 1 && e.Retried == 1 && e.Undelivered == 1 && e.RecentOK == 2 && e.RecentFailed == 4, "endpoint %+v", e)
}

func TestOutcomes_OneForEachEvent(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 6)
	ds := s.lease(t, 6)
	want := make(map[string]string)
	s.ends(t, accepts, ds[0])
	want[ds[0].EventID] = "delivered 1 200"
	s.ends(t, failsFor(0), ds[1])
	want[ds[1].EventID] = "undelivered 1 500"
	s.ends(t, expires, ds[2])
	want[ds[2].EventID] = "undelivered 0 0"
	for _, d := range ds[3:5] {
		s.ends(t, failsFor(time.Second), d)
	}
	s.ends(t, defers, ds[5])
	equal(t, len(s.outcomes(t)), 3, "outcomes")
	s.pass(t, time.Second)
	for _, d := range s.lease(t, 3) {
		if d.EventID == ds[4].EventID {
			s.ends(t, expires, d)
			want[d.EventID] = "undelivered 1 0"
			continue
		}
		s.ends(t, accepts, d)
		want[d.EventID] = fmt.Sprintf("delivered %d 200", d.Attempt)
	}
	got := s.outcomes(t)
	for _, a := range got {
		text := fmt.Sprint(a.State, " ", a.Attempt, " ", a.HTTPStatus)
		check(t, want[a.EventID] == text && !a.Replay && a.Event == string(delivery.StoreActivated) && a.NextAt.IsZero(), "%+v, want %s", a, want[a.EventID])
		delete(want, a.EventID)
	}
	check(t, len(got) == 6 && len(want) == 0, "%d outcomes, without one: %v", len(got), want)
}

func TestQueueStats_ByTheStateOfTheEndpoints(t *testing.T) {
	s := newWebhookEnv(t, 3)
	stats := func() map[EndpointState]QueueStats {
		t.Helper()
		return get(s.Monitor.QueueStats(t.Context()))(t)
	}
	equal(t, len(stats()), 0, "nothing waits, but")
	before := time.Now().Truncate(time.Millisecond)
	s.moved(t, delivery.Assigned)
	after := time.Now()
	s.pass(t, time.Minute)
	s.publish(t, 4)
	healthy := stats()[EndpointHealthy]
	check(t, healthy.Endpoints == 1 && healthy.Events == 5 && healthy.BreakersOpen == 0, "%+v", healthy)
	check(t, !healthy.Oldest.Before(before) && !healthy.Oldest.After(after), "the oldest is from %s, not from %s to %s", healthy.Oldest, before, after)
	s.ends(t, failsFor(time.Hour), s.lease(t, 5)[:3]...)
	all := stats()
	failing := all[EndpointFailing]
	check(t, len(all) == 1 && failing.Endpoints == 1 && failing.Events == 5 && failing.BreakersOpen == 1, "%+v", all)
}

// exporting makes the groups of an exporter, as its first start does.
func (s *env) exporting(t *testing.T) {
	t.Helper()
	must(t, newFeedReader(s.core, &Feed{Role: RoleExport, Consumer: "x"}, s.partitions).makeGroups(t.Context()))
}

// exported are the attempts that an exporter gets, in the order of its streams:
// "state attempt status", "probe" for one.
func (s *env) exported(t *testing.T) (lines []string) {
	t.Helper()
	must(t, s.Streams.EachEntry(t.Context(), RoleExport, time.Time{}, func(entries []Entry) error {
		for _, e := range entries {
			if e.Outcomes == nil {
				continue
			}
			for _, a := range e.Outcomes {
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
		recorded, err := s.Queue.Record(t.Context(), []Result{{d, answer(s, d)}}, noGrant, s.breaker)
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

func TestTries_OfOneCall(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.exporting(t)
	s.publish(t, 3)
	ds := s.lease(t, 3)
	results := []Result{{ds[0], failsFor(time.Hour)(s, ds[0])}, {ds[1], accepts(s, ds[1])}, {ds[2], answers(9, time.Hour)(s, ds[2])}}
	for i := range results {
		results[i].Outcome.At = s.now()
	}
	get(s.Queue.Record(t.Context(), results, noGrant, s.breaker))(t)
	got, want := s.exported(t), []string{"delivered 1 200", "retrying 1 500", "retrying 1 500"}
	check(t, slices.Equal(got, want), "%q, want %q", got, want)
	equal(t, s.rdb.XLen(t.Context(), s.partitions[0].key(kindTries)).Val(), 1, "entries")
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

func TestTries_CostNothingWithoutExporter(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 1)
	for range 5 {
		s.ends(t, failsFor(time.Second), s.one(t))
		s.pass(t, time.Second)
	}
	n := s.rdb.Exists(t.Context(), s.partitions[0].key(kindTries)).Val()
	check(t, n == 0, "there is a stream that nobody reads")
	equal(t, len(s.attempts(t, "")), 5, "lines")
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
		return [2]int64{s.rdb.XLen(t.Context(), s.partitions[0].key(kindOutcomes)).Val(), s.rdb.XLen(t.Context(), s.partitions[0].key(kindTries)).Val()}
	}
	trim := func() {
		t.Helper()
		get(s.Lifecycle.Trim(t.Context(), 0, 25*time.Hour))(t)
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
	lag, err := s.Streams.Lag(t.Context(), RoleExport)
	check(t, err == nil && lag.Entries == 0, "lag %+v %v", lag, err)
	trim()
	if got := length(); got[0] != 1 || got[1] > 1 { // the last one read stays as the mark
		t.Errorf("after it: %v", got)
	}
}

func TestTries_AreNoOutcomeForReplays(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.exporting(t)
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.one(t))
	yesterday := s.now().Add(-23 * time.Hour)
	for range 2 {
		s.pass(t, 10*time.Minute)
		n, err := s.Webhooks.ReplayOutcomes(t.Context(), s.account, outcomeUndelivered, yesterday)
		check(t, err == nil && n == 1, "%d events, %v", n, err)
		s.ends(t, failsFor(time.Hour), s.one(t))
	}
}
