package ledger

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

//rule:webhooks/an-endpoint-whose-breaker-is
func TestRecovery_BringsEverythingForward(t *testing.T) {
	s := opened(t, 1, time.Hour)
	// Thousands of retries: many at one time, others spread over a day.
	const sameTime, spread = 2300, 1200
	var members []redis.Z
	for i := range sameTime + spread {
		due := s.now().Add(5 * time.Hour)
		if i >= sameTime {
			due = s.now().Add(time.Duration(i) * 15 * time.Second)
		}
		members = append(members, redis.Z{Score: float64(due.UnixMilli()), Member: fmt.Sprintf("\x02evt_%d", i)})
	}
	must(t, s.rdb.ZAdd(t.Context(), s.key(kindRetries), members...).Err())
	s.pass(t, time.Second)
	s.ends(t, accepts, s.one(t))
	total := int64(len(members))
	for look := 1; ; look++ {
		// One look moves a thousand of them.
		s.unpaced(t)
		leased, _ := get2(s.Queue.Lease(t.Context(), 0, grant(1)))(t)
		require(t, len(leased) == 0, "leased %+v, which have no body", leased)
		now := fmt.Sprint(s.ms.Load())
		due := s.rdb.ZCount(t.Context(), s.key(kindRetries), "-inf", now).Val()
		left := s.rdb.ZCard(t.Context(), s.key(kindRetries)).Val() - due
		want := max(total-int64(look)*1000, 0)
		require(t, left <= want, "after look %d %d are still put off, want at most %d", look, left, want)
		g, _ := s.gate(t)
		require(t, (g.forward == 0) == (left == 0), "after look %d: forward %d, %d left", look, g.forward, left)
		if left == 0 {
			break
		}
		s.pass(t, 20*time.Millisecond)
	}
}

func TestRecovery_LaterFailuresKeepTheirSchedule(t *testing.T) {
	s := opened(t, 3, 5*time.Hour)
	s.pass(t, time.Second)
	s.ends(t, accepts, s.one(t))
	d := s.take(t, 1)[0]
	require(t, d.Attempt == 2 && !d.Probe, "leased %+v", d)
	due := s.now().Add(7 * time.Hour)
	s.ends(t, failsFor(7*time.Hour), d)
	s.ends(t, accepts, s.take(t, 1)...)
	for range 3 {
		s.pass(t, time.Second)
		s.lease(t, 0)
	}
	got := s.due(t, d)
	check(t, got.Equal(due), "due at %s, want %s", got, due)
}

//rule:webhooks/a-changed-url-takes-the
func TestRecovery_NewURLTakesTheBacklogSlowly(t *testing.T) {
	s := opened(t, 3, 20*time.Hour)
	s.publish(t, 5)
	get2(s.Webhooks.SetURL(t.Context(), s.account, "https://new.example/hook"))(t)
	e := s.endpoint(t)
	require(t, !e.BreakerOpen && e.Pace == firstRate && e.Backlog == 8 && e.State == EndpointHealthy, "endpoint %+v", e)
	for _, d := range s.take(t, 8) {
		check(t, d.Receiver.URL == "https://new.example/hook" && !d.Probe, "leased %+v for %s", d, d.Receiver.URL)
	}
}

// Between two looks at a long backlog: what has failed since then keeps the time
// that it was given.
func TestRecovery_BringsForwardWhatWasThereBefore(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 2)
	ds := s.lease(t, 2)
	s.ends(t, failsFor(10*time.Minute), ds[0])
	s.ends(t, failsFor(2*time.Hour), ds[1])
	due := s.due(t, ds[0])
	s.setGate(t, gateState{rate: firstRate, forward: s.ms.Load() + time.Hour.Milliseconds()})
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{InFlight: -1, PerSecond: -1})) // has it looked at
	d := s.take(t, 1)[0]
	check(t, d.EventID == ds[1].EventID && s.due(t, ds[0]).Equal(due), "leased %s; the other one is due at %s, want %s", d.EventID, s.due(t, ds[0]), due)
}

func TestRecovery_NewURLClearsTheBreaker(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *env){
		"changed": func(t *testing.T, s *env) {
			get2(s.Webhooks.SetURL(t.Context(), s.account, "https://new.example/hook"))(t)
		},
		"deleted": func(t *testing.T, s *env) {
			must(t, s.Webhooks.Delete(t.Context(), s.account))
			s.register(t)
		},
	} {
		s := newWebhookEnv(t, 1)
		s.publish(t, 1)
		s.ends(t, failsFor(0), s.one(t))
		change(t, s)
		g, there := s.gate(t)
		check(t, !there, "%s: gate %+v", name, g)
		e := s.endpoint(t)
		check(t, e.State == EndpointHealthy && !e.BreakerOpen && e.StateSince.Equal(s.now()), "%s: endpoint %+v", name, e)
	}
}

// What is in flight to the old URL when it changes is part of that backlog: when
// it fails it goes to the new one at once, not by the old one's schedule.
func TestRecovery_NewURLTakesWhatWasInFlight(t *testing.T) {
	s := newWebhookEnv(t, 3)
	s.publish(t, 2)
	ds := s.lease(t, 2)
	secret, err := s.Webhooks.RotateSecret(t.Context(), s.account, false) // the same receiver
	must(t, err)
	s.ends(t, failsFor(8*time.Hour), ds[0])
	got := s.due(t, ds[0])
	check(t, got.Equal(s.now().Add(8*time.Hour)), "after a rotation due at %s", got)
	get2(s.Webhooks.SetURL(t.Context(), s.account, "https://new.example/hook"))(t)
	taken := s.take(t, 1) // the old backlog has been brought forward
	s.ends(t, failsFor(8*time.Hour), ds[1])
	for _, d := range append(taken, s.take(t, 1)...) {
		check(t, d.Attempt == 2 && d.Receiver.URL == "https://new.example/hook" && d.Receiver.Secret == secret, "leased %+v for %+v", d, d.Receiver)
	}
}

// success is one more accepted event at a gate that the test has set.
func (s *env) success(t *testing.T, g gateState) gateState {
	t.Helper()
	s.publish(t, 1)
	d := s.take(t, 1)[0]
	s.setGate(t, g)
	s.ends(t, accepts, d)
	after, _ := s.gate(t)
	return after
}

//rule:webhooks/an-endpoint-whose-breaker-is
func TestRecovery_RateGrows(t *testing.T) {
	s := newWebhookEnv(t, 5)
	s.publish(t, 1) // one that always waits: with nothing left the recovery is over
	for _, test := range []struct {
		name             string
		rate, calm, want float64
		since            time.Duration // the end of the pause
	}{
		{"one more for each success", 10, 0, 11, 0},
		{"still below the last one that was borne", 39, 40, 40, 0},
		{"above it by ten a second", 40, 40, 42.5, 250 * time.Millisecond},
		{"above it, whatever the traffic", 40, 40, 640, time.Minute},
		{"never less than before", 50, 40, 50, time.Millisecond},
		{"the last step", 1998.5, 0, 1999.5, 0},
		{"full", 1999, 0, 0, 0},
		{"full, slowly", 100, 100, 0, 190 * time.Second},
	} {
		ended := s.now().Add(time.Second - test.since) // to take the event takes a second
		got := s.success(t, gateState{rate: test.rate, calm: test.calm, hold: ended.UnixMilli()})
		check(t, math.Abs(got.rate-test.want) <= 1e-2, "%s: %v after %v, calm %v; want %v", test.name, got.rate, test.rate, test.calm, test.want)
	}
	_, there := s.gate(t)
	check(t, !there || s.success(t, gateState{rate: 1999.9}).rate == 0, "a gate that holds nothing back is kept")
}

func TestRecovery_EndsWhenNothingWaits(t *testing.T) {
	s := newWebhookEnv(t, 5)
	if g := s.success(t, gateState{rate: 10}); g.rate != 0 {
		t.Errorf("paced at %v with nothing to send", g.rate)
	}
	if g := s.success(t, gateState{rate: 10, calm: 20}); g.rate != 11 {
		t.Errorf("an endpoint that asked to be spared is paced at %v, want 11", g.rate)
	}
}

func TestRecovery_FullRateNeedsNoGate(t *testing.T) {
	s := newWebhookEnv(t, 5)
	s.success(t, gateState{rate: 1999.5})
	g, there := s.gate(t)
	check(t, !there, "gate %+v", g)
	s.publish(t, 40)
	s.lease(t, 32)
}

func TestBusy_HalvesOncePerPause(t *testing.T) {
	s := newWebhookEnv(t, 1000)
	s.publish(t, 60)
	ds := s.lease(t, 32)
	s.ends(t, isBusy(0), ds[:8]...)
	e := s.endpoint(t)
	require(t, e.Pace == firstRate && e.HeldUntil.Equal(s.now().Add(time.Second)) && !e.BreakerOpen, "after eight answers of 503: %+v", e)
	s.silentForAll(t, time.Second)
	s.ends(t, isBusy(0), ds[8:12]...)
	if e = s.endpoint(t); e.Pace != firstRate/2 || !e.HeldUntil.Equal(s.now().Add(time.Second)) {
		t.Fatalf("after the next pause: %+v", e)
	}
	for range 5 {
		s.pass(t, time.Second)
		s.ends(t, isBusy(0), ds[12:14]...)
		ds = ds[2:]
	}
	if e = s.endpoint(t); e.Pace != 1 {
		t.Errorf("the least pace is %v, want 1", e.Pace)
	}
	// One that is recovering is halved where it is.
	s.pass(t, time.Minute)
	s.setGate(t, gateState{rate: 300})
	s.ends(t, isBusy(0), ds[12])
	g, _ := s.gate(t)
	check(t, g.rate == 150 && g.calm == 150, "gate %+v", g)
}

// silentForAll demands that nothing is handed out until that much time has
// passed, and that something may go then.
func (s *env) silentForAll(t *testing.T, d time.Duration) {
	t.Helper()
	s.lease(t, 0)
	s.pass(t, d-time.Millisecond)
	s.unpaced(t)
	s.lease(t, 0)
	s.pass(t, time.Millisecond)
	s.unpaced(t)
	ds, _, err := s.Queue.Lease(t.Context(), 0, grant(1))
	require(t, err == nil && len(ds) == 1, "%d events leased when the pause was over, %v", len(ds), err)
}

func TestBusy_RetryAfterHoldsTheWholeEndpoint(t *testing.T) {
	for _, test := range []struct{ asked, held time.Duration }{
		{10 * time.Millisecond, time.Second}, {90 * time.Second, 90 * time.Second}, {time.Hour, time.Hour}, {24 * time.Hour, time.Hour},
	} {
		s := newWebhookEnv(t, 1000)
		s.publish(t, 40)
		ds := s.lease(t, 32)
		s.ends(t, isBusy(test.asked), ds[0])
		e := s.endpoint(t)
		check(t, e.HeldUntil.Equal(s.now().Add(test.held)), "asked for %s, held until %s at %s", test.asked, e.HeldUntil, s.now())
		// Neither a new event nor room in flight, nor a success of what was in
		// flight, opens the gate.
		s.publish(t, 1)
		more := s.recordMore(t, ds[1], accepts)
		check(t, len(more.Deliveries) == 0, "a success in flight handed out another event")
		s.silentForAll(t, test.held)
	}
}

func TestBusy_LongerRetryAfterOfWhatWasInFlight(t *testing.T) {
	s := newWebhookEnv(t, 1000)
	s.publish(t, 40)
	ds := s.lease(t, 32)
	s.ends(t, isBusy(0), ds[0])
	s.ends(t, isBusy(10*time.Minute), ds[1])
	s.ends(t, isBusy(time.Minute), ds[2])
	e := s.endpoint(t)
	check(t, e.Pace == firstRate, "halved by what was in flight: %v", e.Pace)
	s.silentForAll(t, 10*time.Minute)
}

func TestBusy_FullRateWaitsForTheEndOfThePause(t *testing.T) {
	s := newWebhookEnv(t, 1000)
	s.publish(t, 3)
	d := s.lease(t, 3)[0]
	s.setGate(t, gateState{hold: s.ms.Load() + 30_000, rate: 1999.5, failures: 1})
	more := s.recordMore(t, d, accepts)
	check(t, len(more.Deliveries) == 0, "handed out while the endpoint is held")
	must(t, s.Webhooks.Publish(t.Context(), Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: s.now(), Data: []byte(`{}`)}))
	queued := get(s.Queue.Add(t.Context(), 0, collect(t, s.Ledger, RoleWebhook, "pump", 1), grant(10)))(t)
	check(t, len(queued.Deliveries) == 0, "handed out while the endpoint is held")
	s.silentFor(t, 30*time.Second)
}

func TestBusy_OtherEndpointsGoOn(t *testing.T) {
	s := newWebhookEnv(t, 3)
	other := s.beside(t)
	s.publish(t, 4)
	s.ends(t, isBusy(time.Hour), s.lease(t, 4)...)
	s.publish(t, 1)
	other.publish(t, 5)
	for _, d := range s.lease(t, 5) {
		check(t, d.Account == other.account, "leased for %s", d.Account)
		other.ends(t, accepts, d)
	}
}
