package ledger

import (
	"fmt"
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

// The log stays below 256 kB, also when lines that are there grow.
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

// The figures of events count events: not deferrals, probes or pings.
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

// Exactly one final outcome for every event, whatever it went through, with what
// ended it.
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
		all := get(s.QueueStats(t.Context()))(t)
		return all
	}
	equal(t, len(stats()), 0, "nothing waits, but")
	happened := s.now()
	s.moved(t, delivery.Assigned)
	s.pass(t, time.Minute)
	s.publish(t, 4)
	healthy := stats()[EndpointHealthy]
	age := healthy.Oldest.Sub(happened).Abs()
	check(t, healthy.Endpoints == 1 && healthy.Events == 5 && healthy.BreakersOpen == 0 && age <= time.Second, "%+v, the oldest is %s off", healthy, age)
	s.ends(t, failsFor(time.Hour), s.lease(t, 5)[:3]...)
	all := stats()
	failing := all[EndpointFailing]
	check(t, len(all) == 1 && failing.Endpoints == 1 && failing.Events == 5 && failing.BreakersOpen == 1, "%+v", all)
}
