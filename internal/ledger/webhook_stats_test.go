package ledger

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestQueueStats_ByTheStateOfTheEndpoints(t *testing.T) {
	s := newWebhookEnv(t, 3)
	stats := func() map[EndpointState]QueueStats {
		t.Helper()
		all := get(s.QueueStats(t.Context()))(t)
		return all
	}
	if all := stats(); len(all) != 0 {
		t.Errorf("nothing waits, but %+v", all)
	}
	happened := s.now()
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	s.pump(t, 2)
	s.pass(t, time.Minute)
	s.publish(t, 4)
	healthy := stats()[EndpointHealthy]
	if age := healthy.Oldest.Sub(happened).Abs(); healthy.Endpoints != 1 || healthy.Events != 5 || healthy.BreakersOpen != 0 || age > time.Second {
		t.Errorf("%+v, the oldest is %s off", healthy, age)
	}
	s.ends(t, failsFor(time.Hour), s.lease(t, 5)[:3]...)
	all := stats()
	if failing := all[EndpointFailing]; len(all) != 1 || failing.Endpoints != 1 || failing.Events != 5 || failing.BreakersOpen != 1 {
		t.Errorf("%+v", all)
	}
}

// A process that died leaves its leases to the one that is started in its place.
func TestReleaseLeases_OfTheNamedHolderOnly(t *testing.T) {
	s := newWebhookEnv(t, 5)
	s.publish(t, 4)
	take := func(holder string, n int) []*Delivery {
		t.Helper()
		g := grant(n)
		g.Holder = holder
		ds, _ := get2(s.Lease(t.Context(), 0, g))(t)
		require(t, len(ds) == n, "%s was handed %d events, want %d", holder, len(ds), n)
		return ds
	}
	dead, alive := take("w1", 2), take("w2", 1)
	released := get(s.ReleaseLeases(t.Context(), "w1"))(t)
	check(t, released == 2, "%d leases released, want 2", released)
	s.pass(t, time.Millisecond) // no process starts faster
	again := take("w1", 3)
	check(t, (again[0].EventID == dead[0].EventID || again[0].EventID == dead[1].EventID) && again[0].Attempt == 1, "handed out again: %+v", again[0])
	s.ends(t, accepts, alive...)
	recorded := get(s.RecordAttempts(t.Context(), []Result{{dead[0], Outcome{OK: true, At: s.now()}}}, noGrant, 5))(t)
	check(t, !recorded.OK[0], "a result of the dead process was recorded")
	if released, err := s.ReleaseLeases(t.Context(), "nobody"); err != nil || released != 0 {
		t.Errorf("%d leases of nobody, %v", released, err)
	}
}
