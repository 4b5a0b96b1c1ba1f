package ledger

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func TestLease_LostProbesAndPingsAreFenced(t *testing.T) {
	s := opened(t, 1, 20*time.Hour)
	s.pass(t, time.Second)
	lost := s.one(t)
	require(t, lost.Probe, "leased %+v", lost)
	s.pass(t, lease-time.Millisecond)
	s.lease(t, 0)
	s.pass(t, time.Millisecond)
	again := s.one(t)
	check(t, again.EventID == lost.EventID && again.Attempt == 2, "handed out again as %+v", again)
	require(t, !s.records(t, lost, accepts(s, lost)) && s.endpoint(t).BreakerOpen && s.endpoint(t).Delivered == 0,
		"a probe whose lease had run out healed the endpoint")
	s.ends(t, failsFor(0), again)

	// A ping is sent once: a lost one is gone, and another one is made.
	s = newWebhookEnv(t, 1)
	s.publish(t, 1)
	s.ends(t, failsFor(0), s.one(t))
	s.pass(t, time.Second)
	ping := s.one(t)
	s.pass(t, lease)
	second := s.one(t)
	require(t, ping.Ping && second.Ping && ping.EventID != second.EventID, "pings %+v, %+v", ping, second)
	check(t, !s.records(t, ping, accepts(s, ping)) && s.endpoint(t).BreakerOpen, "a ping whose lease had run out healed the endpoint")
	s.ends(t, accepts, second)
	e := s.endpoint(t)
	check(t, !e.BreakerOpen && e.Backlog == 0, "endpoint %+v", e)
}

func TestLease_LostRetryKeepsItsNumber(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 1)
	for attempt := 1; attempt <= 3; attempt++ {
		lost := s.one(t)
		s.pass(t, lease)
		d := s.one(t)
		require(t, d.Attempt == attempt && lost.Attempt == attempt, "attempt %d, lost %d, want %d", d.Attempt, lost.Attempt, attempt)
		require(t, !s.records(t, lost, failsFor(time.Minute)(s, lost)), "a stale result was recorded")
		s.ends(t, failsFor(time.Minute), d)
		s.pass(t, time.Minute)
	}
	log := s.attempts(t, "")
	check(t, len(log) == 3, "log %+v", log)
}

// A reply that was lost: the same results come again.
func TestLease_ResultsRepeatedAreLost(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 4)
	ds := s.lease(t, 4)
	results := make([]Result, len(ds))
	for i, d := range ds {
		results[i] = Result{d, []Outcome{{OK: true, Status: 200}, failsFor(time.Hour)(s, d), {Error: "timeout: x"}, {Expired: true}}[i]}
	}
	for round := range 2 {
		recorded := get(s.Queue.Record(t.Context(), results, noGrant, s.breaker))(t)
		require(t, !slices.Contains(recorded.OK, round == 1), "round %d: %v", round, recorded.OK)
	}
	e := s.endpoint(t)
	check(t, e.Delivered == 1 && e.Retried == 1 && e.Undelivered == 2 && e.Backlog == 1 && e.RecentFailed == 2 && e.RecentOK == 1, "endpoint %+v", e)
	check(t, len(s.outcomes(t)) == 3 && len(s.attempts(t, "")) == 4, "%d outcomes, %d lines", len(s.outcomes(t)), len(s.attempts(t, "")))
}

func (s *env) leaseWith(t *testing.T, g Grant, want int) []*Delivery {
	t.Helper()
	g.Lease = lease
	ds, _ := get2(s.Queue.Lease(t.Context(), 0, g))(t)
	require(t, len(ds) == want, "%+v: %d events leased, want %d", g, len(ds), want)
	return ds
}

func TestLease_KeepsToTheGrant(t *testing.T) {
	s := newWebhookEnv(t, 1)
	s.publish(t, 10)
	s.leaseWith(t, Grant{Limit: 0, Share: 32, InFlight: 32}, 0)
	ds := s.leaseWith(t, Grant{Limit: 2, Share: 32, InFlight: 32}, 2)
	ds = append(ds, s.leaseWith(t, Grant{Limit: 1, Share: 32, InFlight: 32}, 1)...)
	ds = append(ds, s.leaseWith(t, Grant{Limit: 10, Share: 32, InFlight: 4}, 1)...)
	s.leaseWith(t, Grant{Limit: 10, Share: 4, InFlight: 32}, 0)
	s.ends(t, accepts, ds[0])
	s.leaseWith(t, Grant{Limit: 10, Share: 4, InFlight: 32}, 1)
	// With the breaker open too.
	s.setGate(t, gateState{open: 1, failures: 1, since: s.ms.Load()})
	s.pass(t, lease)
	s.leaseWith(t, Grant{Limit: 0, Share: 32, InFlight: 32}, 0)
	s.leaseWith(t, Grant{Limit: 10, Share: 32, InFlight: 32}, 1)
}

func TestLease_BusyProcessHidesNothingFromOthers(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 10)
	s.leaseWith(t, Grant{Limit: 10, Share: 1, InFlight: 32}, 1)
	s.pass(t, time.Second)
	s.leaseWith(t, Grant{Limit: 10, Share: 32, InFlight: 32}, 9)
}

func TestLease_SharesBetweenEndpoints(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.publish(t, 100)
	vendors := []*env{s}
	for range 3 {
		other := s.beside(t)
		other.publish(t, 10)
		vendors = append(vendors, other)
	}
	given := make(map[delivery.AccountID]int)
	for range 4 {
		ds, _ := get2(s.Queue.Lease(t.Context(), 0, grant(8)))(t)
		for _, d := range ds {
			given[d.Account]++
		}
		s.pass(t, time.Millisecond)
	}
	for i, one := range vendors {
		check(t, given[one.account] == 8, "endpoint %d of a backlog of 100 and three of 10: %d of 32 events", i, given[one.account])
	}
}

// sends watches what two processes send at the same time.
type sends struct {
	mu        sync.Mutex
	inFlight  map[string]bool
	attempts  map[string]int
	delivered map[string]int
	most      int
}

func (w *sends) begin(t *testing.T, ds []*Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range ds {
		check(t, !w.inFlight[d.EventID], "%s is in flight twice", d.EventID)
		w.inFlight[d.EventID] = true
		w.most = max(w.most, len(w.inFlight))
		w.attempts[d.EventID]++
		check(t, d.Attempt == w.attempts[d.EventID], "%s: attempt %d, want %d", d.EventID, d.Attempt, w.attempts[d.EventID])
	}
}

// end is what became of it: every fifth attempt fails.
func (w *sends) end(d *Delivery, n int) Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inFlight, d.EventID)
	if n%5 == 0 {
		return Result{d, Outcome{At: time.Now(), Status: 500, Error: "status: 500", Retry: time.Now()}}
	}
	w.delivered[d.EventID]++
	return Result{d, Outcome{At: time.Now(), OK: true, Status: 200}}
}

// work leases and records, half of what it has at a time, until all is delivered.
func (w *sends) work(t *testing.T, l *Ledger, g Grant, events int) error {
	var ds []*Delivery
	deadline := time.Now().Add(testserver.Timeout)
	for n := 0; len(ds) > 0 || w.missing(events) > 0; n++ {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d events are not delivered", w.missing(events))
		}
		if len(ds) == 0 {
			var err error
			if ds, _, err = l.Queue.Lease(t.Context(), 0, g); err != nil {
				return err
			}
			w.begin(t, ds)
			continue
		}
		half := (len(ds) + 1) / 2
		results := make([]Result, half)
		for i, d := range ds[:half] {
			results[i] = w.end(d, n+i)
		}
		recorded, err := l.Queue.Record(t.Context(), results, g, breakerAt)
		if err != nil || slices.Contains(recorded.OK, false) {
			return fmt.Errorf("recorded %v, %w", recorded.OK, err)
		}
		w.begin(t, recorded.Deliveries)
		ds = append(slices.Clone(ds[half:]), recorded.Deliveries...)
	}
	return nil
}

func (w *sends) missing(events int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return events - len(w.delivered)
}

// Two processes share a backlog: every event goes out once at a time, is
// delivered once, and no more than the cap is in flight over both.
func TestLease_TwoWorkersAtOnce(t *testing.T) {
	const events, atMost = 300, 12
	s := newWebhookEnv(t, breakerAt)
	second := openTest(t, sameDatabase(s.Ledger))
	s.publish(t, events)
	must(t, s.rdb.Del(t.Context(), "test:clock").Err())
	w := &sends{inFlight: make(map[string]bool), attempts: make(map[string]int), delivered: make(map[string]int)}
	g := Grant{Limit: 7, Share: atMost, InFlight: 32, Lease: lease}
	var workers sync.WaitGroup
	for _, l := range []*Ledger{s.Ledger, second} {
		workers.Go(func() {
			equal(t, w.work(t, l, g, events), nil, "got")
		})
	}
	workers.Wait()
	check(t, len(w.delivered) == events && w.most <= atMost && len(s.outcomes(t)) == events && s.endpoint(t).Backlog == 0,
		"%d of %d events delivered, %d outcomes, %d in flight at most, endpoint %+v", len(w.delivered), events, len(s.outcomes(t)), w.most, s.endpoint(t))
	equal(t, s.rdb.HLen(t.Context(), s.key(kindAttempts)).Val(), 0, "counts of attempts are left")
}

// A worker that starts again takes up what it had, at once, and nothing of the
// others'.
func TestLease_IsReleasedByItsHolder(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	other := s.beside(t)
	s.publish(t, 6)
	other.publish(t, 2)
	holding := func(holder string, limit int) []*Delivery {
		t.Helper()
		ds, _ := get2(s.Queue.Lease(t.Context(), 0, Grant{Limit: limit, Share: 32, InFlight: 32, Lease: lease, Holder: holder}))(t)
		return ds
	}
	mine := holding("worker-1", 4)
	theirs := holding("worker-2", 10)
	require(t, len(mine) == 4 && len(theirs) == 4, "%d and %d leased", len(mine), len(theirs))
	s.ends(t, failsFor(time.Hour), mine[0])
	s.pass(t, time.Second)
	equal(t, get(s.Queue.ReleaseLeases(t.Context(), "worker-1"))(t), 3, "leases ended")
	again := holding("worker-1", 10)
	want := eventIDs(mine[1:])
	check(t, slices.Equal(eventIDs(again), want), "handed out %v, want %v", eventIDs(again), want)
	for _, d := range again {
		check(t, d.Attempt == 1, "attempt %d", d.Attempt)
	}
	// What it knew before it died counts no more; what the other one knows does.
	check(t, !s.records(t, mine[1], accepts(s, mine[1])), "a result of before was recorded")
	s.ends(t, accepts, theirs...)
	s.ends(t, accepts, again...)
	equal(t, get(s.Queue.ReleaseLeases(t.Context(), "worker-2"))(t), 0, "leases ended")
}
