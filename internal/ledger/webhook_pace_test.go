package ledger

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestPace_SlowerOneCounts(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	paced := func(g gateState, perSecond int) int {
		t.Helper()
		must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{InFlight: -1, PerSecond: perSecond}))
		s.setGate(t, g)
		s.pass(t, time.Second)
		leased, waiting, _, err := s.Ledger.lease(t.Context(), s.partitions[0], grant(10))
		must(t, err)
		require(t, len(leased) == 0 && len(waiting) == 1 && waiting[0].could == 10, "%d leased, paced %+v", len(leased), waiting)
		return waiting[0].rate
	}
	s.publish(t, 20)
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{PerSecond: 5}))
	for _, test := range []struct {
		rate      float64
		perSecond int
		want      int
	}{{100, 7, 7}, {100, 0, 100}, {3.9, 7, 3}, {1, 5000, 1}, {1999, 10000, 1999}} {
		got := paced(gateState{rate: test.rate}, test.perSecond)
		check(t, got == test.want, "rate %v, setting %d: asked %d", test.rate, test.perSecond, got)
	}
}

func TestLimits_KeepAndClear(t *testing.T) {
	s := newUnregistered(t, breakerAt)
	wantCode(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{InFlight: 1}), delivery.CodeWebhookNotConfigured)
	s.register(t)
	for _, test := range []struct{ set, want EndpointLimits }{
		{EndpointLimits{InFlight: 64, PerSecond: 100}, EndpointLimits{InFlight: 64, PerSecond: 100}},
		{EndpointLimits{InFlight: -1, PerSecond: 7}, EndpointLimits{InFlight: 64, PerSecond: 7}},
		{EndpointLimits{InFlight: 3, PerSecond: -1}, EndpointLimits{InFlight: 3, PerSecond: 7}},
		{EndpointLimits{InFlight: -1, PerSecond: -1}, EndpointLimits{InFlight: 3, PerSecond: 7}},
		{EndpointLimits{InFlight: -1}, EndpointLimits{InFlight: 3}},
	} {
		must(t, s.Webhooks.SetLimits(t.Context(), s.account, test.set))
		got := s.endpoint(t).Limits
		check(t, got == test.want, "set %+v: %+v, want %+v", test.set, got, test.want)
	}
	version := s.endpoint(t).Version
	s.publish(t, 40)
	ds := s.lease(t, 3)
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{InFlight: 2, PerSecond: -1}))
	s.ends(t, accepts, ds[0])
	s.lease(t, 0) // two are in flight
	// Room is used at once when the limit is raised, and nothing of it was a
	// change of the receiver.
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{}))
	s.lease(t, 30)
	if e := s.endpoint(t); e.Limits != (EndpointLimits{}) || e.Version != version {
		t.Errorf("endpoint %+v", e)
	}
	// They are an operator's: the vendor's DELETE and PUT change nothing about them.
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{InFlight: 1, PerSecond: 1}))
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	if e := s.register(t); e.Limits != (EndpointLimits{InFlight: 1, PerSecond: 1}) {
		t.Errorf("registered again with %+v", e.Limits)
	}
}

func TestPace_IsNotPassedBy(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{PerSecond: 1}))
	must(t, s.Webhooks.Publish(t.Context(), Notice{Account: s.account, Type: delivery.StoreActivated, OccurredAt: s.now(), Data: []byte(`{}`)}))
	queued := get(s.Queue.Add(t.Context(), 0, collect(t, s.Ledger, RoleWebhook, "pump", 1), grant(10)))(t)
	check(t, len(queued.Deliveries) == 0 && queued.More, "queued %+v", queued)
	s.publish(t, 5)
	for _, d := range s.take(t, 2) {
		recorded := s.recordMore(t, d, accepts)
		check(t, len(recorded.Deliveries) == 0, "a recorded attempt handed out another event")
	}
}

func TestPace_SeveralEndpointsInOneLook(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	vendors := []*env{s, s.beside(t), s.beside(t), s.beside(t)}
	for i, one := range vendors {
		if i > 0 {
			must(t, s.Webhooks.SetLimits(t.Context(), one.account, EndpointLimits{PerSecond: 10_000}))
		}
		one.publish(t, 5)
	}
	ds := s.leaseWith(t, Grant{Limit: 20, Share: 32, InFlight: 32}, 20)
	for i, one := range vendors {
		n := len(slices.DeleteFunc(slices.Clone(ds), func(d *Delivery) bool { return d.Account != one.account }))
		check(t, n == 5, "endpoint %d got %d", i, n)
	}
	// The grant is one for all of them.
	for _, one := range vendors {
		one.publish(t, 5)
	}
	s.leaseWith(t, Grant{Limit: 7, Share: 32, InFlight: 32}, 7)
}

// The rate limiter's arithmetic must not keep an endpoint waiting for ever.
func TestPace_EveryRateLetsSomethingGo(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 100)
	for rate := 1; rate <= 30; rate++ {
		s.setGate(t, gateState{rate: float64(rate), calm: float64(rate)})
		s.unpaced(t)
		s.pass(t, time.Second)
		ds, _ := get2(s.Queue.Lease(t.Context(), 0, grant(10)))(t)
		check(t, len(ds) != 0 && len(ds) <= max(2, rate/paceBurst), "%d events a second: %d went", rate, len(ds))
		s.ends(t, accepts, ds...)
	}
}
