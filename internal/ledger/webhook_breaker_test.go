package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestBreaker_OpensAfterSoManyFailuresInARow(t *testing.T) {
	const n = 4
	s := newWebhookEnv(t, n)
	s.publish(t, 20)
	ds := s.lease(t, 20)
	fails := failsFor(time.Hour)
	s.ends(t, fails, ds[:n-1]...)
	s.ends(t, accepts, ds[n-1]) // starts the count over
	s.ends(t, fails, ds[n:2*n-1]...)
	if e := s.endpoint(t); e.BreakerOpen || e.State != EndpointFailing {
		t.Fatalf("after %d failures in a row: %+v", n-1, e)
	}
	s.pass(t, time.Minute)
	s.ends(t, fails, ds[2*n-1])
	e := s.endpoint(t)
	require(t, e.BreakerOpen && e.BreakerSince.Equal(s.now()) && e.HeldUntil.Equal(s.now().Add(time.Second)), "after %d failures in a row: %+v", n, e)
	g, _ := s.gate(t)
	check(t, g.failures == n && g.probes == 0, "gate %+v", g)
}

// In one call as in many: results count in the order in which they are given.
func TestBreaker_CountsWithinOneCall(t *testing.T) {
	for _, test := range []struct {
		answers string // + accepted, - failed
		open    bool
	}{{"---", true}, {"--+--", false}, {"+---", true}, {"---+", false}, {"---+---", true}} {
		s := newWebhookEnv(t, 3)
		s.publish(t, len(test.answers))
		results := make([]Result, len(test.answers))
		for i, d := range s.lease(t, len(test.answers)) {
			results[i] = Result{d, failsFor(time.Hour)(s, d)}
			if test.answers[i] == '+' {
				results[i].Outcome = accepts(s, d)
			}
		}
		get(s.Queue.Record(t.Context(), results, grant(100), s.breaker))(t)
		e := s.endpoint(t)
		check(t, e.BreakerOpen == test.open, "%s: open %v", test.answers, e.BreakerOpen)
	}
}

func TestBreaker_HeedsNothingThatTellsNothing(t *testing.T) {
	s := newWebhookEnv(t, 2)
	s.publish(t, 10)
	ds := s.lease(t, 10)
	s.ends(t, failsFor(time.Hour), ds[0])
	s.ends(t, defers, ds[1:3]...)
	s.ends(t, expires, ds[3:5]...)
	if e := s.endpoint(t); e.BreakerOpen || e.RecentFailed != 1 {
		t.Fatalf("opened by what was never sent: %+v", e)
	}
	// Neither did they break the row of failures.
	s.ends(t, failsFor(time.Hour), ds[5])
	require(t, s.endpoint(t).BreakerOpen, "still closed")
	// What was sent to another URL does not count for this one.
	get2(s.Webhooks.SetURL(t.Context(), s.account, "https://new.example/hook"))(t)
	s.ends(t, failsFor(time.Hour), ds[6:9]...)
	e := s.endpoint(t)
	check(t, !e.BreakerOpen && e.State == EndpointHealthy, "by results of the old URL: %+v", e)
	g, _ := s.gate(t)
	check(t, g.failures == 0, "gate %+v", g)
	s.setGate(t, gateState{hold: s.ms.Load() + 1000, open: 1, failures: 2, since: s.ms.Load()})
	s.ends(t, accepts, ds[9])
	check(t, s.endpoint(t).BreakerOpen, "a success of the old URL healed the new one")
}

//rule:webhooks/an-endpoint-whose-breaker-is
func TestBreaker_ProbesOneAtATimeEverMoreSeldom(t *testing.T) {
	s := opened(t, 3, 20*time.Hour)
	s.publish(t, 40) // far more than is probed
	for i, gap := range []int{1, 2, 4, 8, 16, 30, 30, 30} {
		d := s.silentFor(t, time.Duration(gap)*time.Second)
		require(t, !d.Probe && d.Attempt == 1, "probe %d: %+v", i, d)
		// While it is in flight nothing else goes, however long it takes.
		s.pass(t, 20*time.Second)
		s.lease(t, 0)
		_, next, err := s.Queue.Lease(t.Context(), 0, grant(10))
		require(t, err == nil && !next.Before(s.now().Add(10*time.Second)), "looked at again at %s while a probe is in flight, %v", next, err)
		recorded := s.recordMore(t, d, failsFor(20*time.Hour))
		require(t, len(recorded.Deliveries) == 0, "recording a probe handed out another event")
	}
	e := s.endpoint(t)
	check(t, e.Backlog == 43 && e.Retried == 11, "endpoint %+v", e)
}

func (s *env) recordMore(t *testing.T, d *Delivery, a answer) Recorded {
	t.Helper()
	o := a(s, d)
	o.At = s.now()
	return get(s.Queue.Record(t.Context(), []Result{{d, o}}, grant(100), s.breaker))(t)
}

func TestBreaker_TurnsBetweenNewAndDueEvents(t *testing.T) {
	s := opened(t, 6, 500*time.Millisecond) // six of them are due long before the first probe
	s.publish(t, 10)
	var got strings.Builder
	for range 6 {
		s.pass(t, 30*time.Second)
		d := s.one(t)
		fmt.Fprint(&got, d.Attempt)
		s.ends(t, failsFor(20*time.Hour), d)
	}
	check(t, got.String() == "121212", "attempts %s, want new and due ones by turns", &got)
}

func TestBreaker_EarlyProbeLeavesTheScheduleAlone(t *testing.T) {
	s := opened(t, 2, 3*time.Hour)
	due := s.now().Add(3 * time.Hour)
	lines := len(s.attempts(t, ""))
	for i, gap := range []int{1, 2, 4, 8} {
		s.pass(t, time.Duration(gap)*time.Second)
		d := s.one(t)
		require(t, d.Probe && d.Attempt == 2 && !d.Ping, "probe %d: %+v", i, d)
		s.ends(t, failsFor(0), d)
		got := s.due(t, d)
		require(t, got.Equal(due), "probe %d moved its event from %s to %s", i, due, got)
	}
	log := s.attempts(t, "")
	check(t, len(log) == lines+1 && log[0].Probe && log[0].Probes == 4 && log[0].State == "retrying" && log[0].NextAt.Equal(due) && log[0].At.Equal(s.now()) && log[0].HTTPStatus == 500,
		"the log begins with %+v of %d lines, had %d", log[0], len(log), lines)
	e := s.endpoint(t)
	check(t, e.Retried == 2 && e.RecentFailed == 6 && len(s.outcomes(t)) == 0, "endpoint %+v", e)
	// An attempt of its own ends the run of probes; the next run has a line of its own.
	s.publish(t, 1)
	s.pass(t, 30*time.Second)
	s.ends(t, failsFor(20*time.Hour), s.one(t))
	s.pass(t, 30*time.Second)
	s.ends(t, failsFor(0), s.one(t))
	if log = s.attempts(t, ""); log[0].Probes != 1 || log[1].Probe || log[2].Probes != 4 {
		t.Errorf("lines %+v", log[:3])
	}
}

// A lone event's later attempts come at exactly their times, whatever probes
// there are in between, and each has its number.
func TestBreaker_LoneEventKeepsItsSchedule(t *testing.T) {
	s := newWebhookEnv(t, 1)
	s.publish(t, 1)
	gaps := []time.Duration{10, 30, 60, 120, 300, 600, 1200, 2400, 3600}
	d := s.one(t)
	probes := 0
	for i, gap := range gaps {
		again := gap*time.Second + 137*time.Millisecond
		due := s.now().Add(again)
		s.ends(t, failsFor(again), d)
		for d = nil; d == nil; {
			_, next := get2(s.Queue.Lease(t.Context(), 0, grant(10)))(t)
			require(t, !next.IsZero() && next.After(s.now()) && !next.After(due), "attempt %d is due at %s, the next look at %s", i+2, due, next)
			s.pass(t, next.Sub(s.now()))
			ds, _ := get2(s.Queue.Lease(t.Context(), 0, grant(10)))(t)
			for _, one := range ds {
				if one.Probe {
					probes++
					require(t, !s.now().Equal(due), "attempt %d became a probe", i+2)
					s.ends(t, failsFor(0), one)
				} else {
					d = one
				}
			}
		}
		require(t, s.now().Equal(due) && d.Attempt == i+2, "attempt %d at %s, want %d at %s", d.Attempt, s.now(), i+2, due)
	}
	seconds := 8320
	check(t, probes >= seconds/60-len(gaps) && probes <= seconds/30, "%d probes in %d s", probes, seconds)
	s.ends(t, failsFor(0), d)
	e := s.endpoint(t)
	check(t, e.State == EndpointUnreachable && e.Backlog == 0 && e.Undelivered == 1, "endpoint %+v", e)
}

//rule:webhooks/an-endpoint-whose-breaker-is
func TestBreaker_PingsWhenNothingWaits(t *testing.T) {
	s := newWebhookEnv(t, 1)
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.one(t)) // undelivered
	finals := len(s.outcomes(t))
	first := s.silentFor(t, time.Second)
	require(t, first.Ping && first.Type == delivery.WebhookTest && first.Attempt == 1 && !first.Probe && first.Order == nil && strings.HasPrefix(first.EventID, "evt_") && strings.Contains(string(first.Data), s.account.String()),
		"ping %+v", first)
	s.ends(t, failsFor(0), first)
	second := s.silentFor(t, 2*time.Second)
	require(t, second.Ping && second.EventID != first.EventID, "pings %s and %s", first.EventID, second.EventID)
	s.ends(t, failsFor(0), second)
	if e := s.endpoint(t); e.Backlog != 0 || !e.NextAttempt.IsZero() && e.NextAttempt.Before(s.now()) {
		t.Errorf("a ping stayed: %+v", e)
	}
	log := s.attempts(t, "")
	check(t, len(log) == 2 && log[0].Probe && log[0].Probes == 2 && log[0].EventID == second.EventID, "log %+v", log)
	if got := s.outcomes(t); len(got) != finals {
		t.Errorf("a ping was published as %+v", got[finals:])
	}
	third := s.silentFor(t, 4*time.Second)
	s.ends(t, accepts, third)
	if e := s.endpoint(t); e.BreakerOpen || e.State != EndpointHealthy || e.Undelivered != 1 {
		t.Errorf("not healed by a ping: %+v", e)
	}
	if got := s.outcomes(t); len(got) != finals {
		t.Errorf("a ping was published as %+v", got[finals:])
	}
}

func TestBreaker_PingsStopAfterThreeDays(t *testing.T) {
	s := newWebhookEnv(t, 1)
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.one(t))
	opened := s.now()
	s.pass(t, 72*time.Hour-time.Millisecond)
	s.ends(t, failsFor(0), s.one(t))
	s.pass(t, time.Minute)
	s.lease(t, 0)
	_, next, err := s.Queue.Lease(t.Context(), 0, grant(10))
	check(t, err == nil && next.IsZero(), "looked at again at %s, %v", next, err)
	// The next event is the probe.
	s.publish(t, 2)
	d := s.one(t)
	require(t, !d.Ping && d.Attempt == 1, "leased %+v", d)
	e := s.endpoint(t)
	check(t, e.BreakerOpen && e.BreakerSince.Equal(opened), "endpoint %+v", e)
	s.ends(t, accepts, d)
	check(t, !s.endpoint(t).BreakerOpen, "not healed")
}

// Events that are past their deadline are settled one after the other, without
// waiting for the probes' pauses and without counting as probes.
func TestBreaker_ExpiredEventsDoNotUseUpProbes(t *testing.T) {
	s := opened(t, 1, 30*time.Hour)
	s.publish(t, 5)
	s.pass(t, 24*time.Hour)
	before, _ := s.gate(t)
	for range 5 {
		d := s.one(t)
		require(t, !s.now().Before(d.Deadline), "%s may still be sent", d.EventID)
		s.ends(t, expires, d)
	}
	after, _ := s.gate(t)
	check(t, after == before, "gate before %+v, after %+v", before, after)
	e := s.endpoint(t)
	check(t, e.Undelivered == 5 && e.State == EndpointUnreachable && e.Backlog == 1, "endpoint %+v", e)
	s.publish(t, 1)
	if d := s.one(t); d.Probe || d.Attempt != 1 {
		t.Errorf("the probe is %+v", d)
	}
}

// stragglers is an env whose breaker has just opened while so many events are
// still in flight, which are returned.
func stragglers(t *testing.T, n int) (*env, []*Delivery) {
	t.Helper()
	s := newWebhookEnv(t, 3)
	s.publish(t, 3+n)
	ds := s.lease(t, 3+n)
	s.ends(t, failsFor(20*time.Hour), ds[:3]...)
	require(t, s.endpoint(t).BreakerOpen, "closed")
	return s, ds[3:]
}

// What fails before the first probe is nothing new: the pause neither grows
// nor begins again.
func TestStragglers_ThatFailSoonChangeNothing(t *testing.T) {
	s, late := stragglers(t, 6)
	before, _ := s.gate(t)
	for _, d := range late {
		s.pass(t, 100*time.Millisecond)
		s.ends(t, failsFor(20*time.Hour), d)
	}
	after, _ := s.gate(t)
	check(t, after.hold == before.hold && after.probes == 0 && after.since == before.since && after.failures == 9, "gate before %+v, after %+v", before, after)
	s.publish(t, 1)
	if d := s.silentFor(t, 400*time.Millisecond); d.Attempt != 1 || d.Probe {
		t.Errorf("probe %+v", d)
	}
}

func TestStragglers_AreAwaitedBeforeTheFirstProbe(t *testing.T) {
	s, late := stragglers(t, 2)
	s.publish(t, 1)
	s.pass(t, 30*time.Second)
	s.lease(t, 0)
	// The first one that fails after its time takes the place of the probe.
	s.ends(t, failsFor(20*time.Hour), late[0])
	s.lease(t, 0)
	s.ends(t, failsFor(20*time.Hour), late[1])
	g, _ := s.gate(t)
	check(t, g.probes == 1 && g.hold == s.ms.Load()+2000, "gate %+v at %d", g, s.ms.Load())
	s.silentFor(t, 2*time.Second)
}

// A straggler's worker died: its lease runs out, and only then a probe goes.
func TestStragglers_LostOnesAreTakenBack(t *testing.T) {
	s, late := stragglers(t, 2)
	s.pass(t, 10*time.Second)
	s.ends(t, failsFor(20*time.Hour), late[0])
	s.lease(t, 0)
	s.pass(t, lease-10*time.Second-time.Millisecond)
	s.lease(t, 0)
	s.pass(t, time.Millisecond)
	d := s.one(t)
	check(t, d.EventID == late[1].EventID && d.Attempt == 1 && !d.Probe, "handed out %+v", d)
	check(t, !s.records(t, late[1], accepts(s, late[1])) && s.endpoint(t).BreakerOpen, "a lost straggler's result was recorded")
}

func (s *env) records(t *testing.T, d *Delivery, o Outcome) bool {
	t.Helper()
	o.At = s.now()
	recorded := get(s.Queue.Record(t.Context(), []Result{{d, o}}, noGrant, s.breaker))(t)
	return recorded.OK[0]
}

func TestStragglers_ThatSucceedHeal(t *testing.T) {
	s, late := stragglers(t, 2)
	s.ends(t, accepts, late[0])
	e := s.endpoint(t)
	require(t, !e.BreakerOpen && e.Pace == firstRate && e.State == EndpointHealthy && e.HeldUntil.Before(s.now()), "endpoint %+v", e)
	// The other one's failure begins a new row.
	s.ends(t, failsFor(20*time.Hour), late[1])
	g, _ := s.gate(t)
	check(t, g.open == 0 && g.failures == 1, "gate %+v", g)
}

func TestBreaker_OpensAgainAfterItHealed(t *testing.T) {
	s := opened(t, 2, 20*time.Hour)
	s.publish(t, 8)
	first := s.endpoint(t).BreakerSince
	for range 4 { // its pauses have grown
		s.pass(t, 30*time.Second)
		s.ends(t, failsFor(20*time.Hour), s.one(t))
	}
	s.pass(t, 30*time.Second)
	s.ends(t, accepts, s.one(t))
	require(t, !s.endpoint(t).BreakerOpen, "not healed by a probe")
	s.ends(t, failsFor(20*time.Hour), s.take(t, 2)...)
	e := s.endpoint(t)
	check(t, e.BreakerOpen && e.BreakerSince.After(first) && e.HeldUntil.Equal(s.now().Add(time.Second)) && e.Pace == 0, "endpoint %+v", e)
}

func TestBreaker_ProbeHeedsRetryAfter(t *testing.T) {
	s := opened(t, 1, 20*time.Hour)
	s.publish(t, 3)
	s.pass(t, time.Second)
	s.ends(t, isBusy(10*time.Minute), s.one(t))
	s.ends(t, isBusy(0), s.silentFor(t, 10*time.Minute))
	// Without a Retry-After the pauses are those of every failure.
	s.ends(t, isBusy(24*time.Hour), s.silentFor(t, 4*time.Second))
	s.silentFor(t, time.Hour)
}

// The same when the answer with the Retry-After is the one that opens it, or
// comes from what was in flight.
func TestBreaker_OpeningAnswerAsksToBeSpared(t *testing.T) {
	s := newWebhookEnv(t, 2)
	s.publish(t, 4)
	ds := s.lease(t, 4)
	s.publish(t, 1)
	s.ends(t, failsFor(20*time.Hour), ds[0])
	s.ends(t, isBusy(5*time.Minute), ds[1])
	e := s.endpoint(t)
	check(t, e.BreakerOpen && e.HeldUntil.Equal(s.now().Add(5*time.Minute)), "held until %s at %s", e.HeldUntil, s.now())
	s.ends(t, failsFor(20*time.Hour), ds[2])
	s.ends(t, isBusy(20*time.Minute), ds[3])
	s.silentFor(t, 20*time.Minute)
}

// What was in flight opens the breaker while the receiver has asked to be left
// alone: that holds on.
func TestBreaker_OpeningDoesNotShortenRetryAfter(t *testing.T) {
	s := newWebhookEnv(t, 3)
	s.publish(t, 4)
	ds := s.lease(t, 4)
	s.publish(t, 1)
	s.ends(t, isBusy(40*time.Minute), ds[0])
	s.ends(t, failsFor(20*time.Hour), ds[1:]...)
	e := s.endpoint(t)
	require(t, e.BreakerOpen, "endpoint %+v", e)
	s.silentFor(t, 40*time.Minute)
}

// jump moves the scripts' clock alone, as when Redis's machine loses the time.
func (s *env) jump(t *testing.T, d time.Duration) {
	t.Helper()
	s.setClock(t, s.ms.Load()*1000+d.Microseconds())
}

// What Redis planned with its clock an hour ahead is not an hour late once the
// clock is right again.
func TestClock_EndpointsAreLookedAtAfterAJumpBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead func(t *testing.T, s *env) // what happens with the clock ahead
	}{
		{"breaker opened", func(t *testing.T, s *env) {
			s.ends(t, failsFor(time.Minute), s.lease(t, s.breaker)...)
			require(t, s.endpoint(t).BreakerOpen, "the breaker is not open")
		}},
		{"asked to be left alone", func(t *testing.T, s *env) {
			s.ends(t, isBusy(10*time.Second), s.lease(t, s.breaker)[0])
		}},
		{"leased by a process that died", func(t *testing.T, s *env) { s.lease(t, s.breaker) }},
		{"lost leases taken back", func(t *testing.T, s *env) {
			s.lease(t, s.breaker)
			s.jump(t, time.Hour+lease)
			s.lease(t, s.breaker)
		}},
		{"nothing", func(*testing.T, *env) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWebhookEnv(t, 3)
			s.publish(t, s.breaker)
			s.jump(t, time.Hour)
			c.ahead(t, s)
			s.jump(t, 0)
			delivered := 0
			for passed := time.Duration(0); passed < 5*time.Minute; passed += time.Second {
				s.pass(t, time.Second)
				s.unpaced(t)
				ds, _ := get2(s.Queue.Lease(t.Context(), 0, grant(100)))(t)
				for _, d := range ds {
					s.ends(t, accepts, d)
					if !d.Ping {
						delivered++
					}
				}
			}
			check(t, delivered == s.breaker, "%d of %d events were handed out within five minutes of the jump back", delivered, s.breaker)
		})
	}
}

func TestClock_SmallStepsBackChangeNoPlans(t *testing.T) {
	s := opened(t, 1, 20*time.Hour)
	before, _ := s.gate(t)
	for range 20 {
		s.jump(t, -900*time.Millisecond)
		s.lease(t, 0)
		s.jump(t, 0)
		s.lease(t, 0)
	}
	after, there := s.gate(t)
	check(t, there && after == before, "the gate was %+v, is %+v", before, after)
}
