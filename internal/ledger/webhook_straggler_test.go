package ledger

import (
	"testing"
	"time"
)

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

// What fails before the first probe tells nothing new: the pause neither grows
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

// No probe goes while something is in flight: one at a time is sent.
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

// records tells whether the result was taken.
func (s *env) records(t *testing.T, d *Delivery, o Outcome) bool {
	t.Helper()
	o.At = s.now()
	recorded := get(s.RecordAttempts(t.Context(), []Result{{d, o}}, noGrant, s.breaker))(t)
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

// A receiver that asks to be spared is not probed before.
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
