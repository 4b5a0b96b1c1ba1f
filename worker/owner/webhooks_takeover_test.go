package owner

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/worker/dispatch"
)

// many lets a test's only endpoint have as many sends in flight as an endpoint may.
func many(s *dispatch.Settings) { s.Concurrency = 1024 }

// cancelAll are the events of some orders.
func (h *hooks) cancelAll(n int) (events []string) {
	h.T.Helper()
	for range n {
		events = append(events, h.cancelled(h.now()))
	}
	return events
}

// awaitAll waits until every event has ended, and holds that each was sent and no others.
func (h *hooks) awaitAll(events []string) {
	h.T.Helper()
	h.Await("everything is sent", func() bool {
		return !slices.ContainsFunc(events, func(id string) bool { return len(h.of(id)) == 0 })
	})
	h.AwaitSettled(ledger.RoleWebhook)
	h.Await("nothing waits", func() bool { return h.endpoint().Backlog == 0 })
	for _, q := range h.received() {
		if !slices.Contains(events, q.event.EventID) {
			h.T.Errorf("%s was sent, too", q.event.EventID)
		}
	}
}

// startProxied runs a process that can be cut off from Redis for good, as if it were killed.
func (h *hooks) startProxied(name string, edits ...func(*dispatch.Settings)) (kill func()) {
	h.T.Helper()
	role, p := h.proxied(name, edits...)
	h.role = role
	h.Start(role.Run)
	return p.kill
}

//rule:delivery-rules/3
func TestWebhooks_OfAKilledWorkerAreSentByTheNext(t *testing.T) {
	var arrived atomic.Int64
	dead := make(chan struct{})
	release := sync.OnceFunc(func() { close(dead) })
	defer release()
	h := newHooks(t, func(http.ResponseWriter, request) {
		if n := arrived.Add(1); n > 10 && n <= 18 { // in flight when it dies
			<-dead
		}
	})

	kill := h.startProxied("w1", many)
	events := h.cancelAll(40)
	h.await(18)
	kill()
	release()
	h.start("w2")
	events = append(events, h.cancelAll(5)...)
	h.awaitAll(events)
	for _, q := range h.received() {
		if q.attempt() != "1" {
			t.Errorf("attempt %s, but none has failed", q.attempt())
		}
	}
}

// Who leaves schedules what is in flight; the next owner sends it, and nothing else again.
func TestWebhooks_InFlightAreScheduledByWhoLeaves(t *testing.T) {
	left := make(chan struct{})
	release := sync.OnceFunc(func() { close(left) })
	defer release()
	var arrived atomic.Int64
	h := newHooks(t, func(http.ResponseWriter, request) {
		if n := arrived.Add(1); n > 3 && n <= 8 {
			<-left
		}
	})

	stop := h.start("w1", many)
	events := h.cancelAll(8)
	h.await(8)
	h.awaitTally(tally{delivered: 3, backlog: 5})
	stop()
	release()
	h.awaitTally(tally{delivered: 3, backlog: 5})
	h.start("w2")
	h.awaitAll(events)
	if n := len(h.received()); n != 13 {
		t.Errorf("%d requests, want 8 and 5 of them again", n)
	}
}

// While Redis is unavailable nothing is begun for long; afterwards everything goes on.
func TestWebhooks_OutliveRedis(t *testing.T) {
	t.Parallel()

	e := &env{Env: testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{}))}
	e.vendor = e.Vendor()
	down := make(chan struct{})
	release := sync.OnceFunc(func() { close(down) })
	defer release()
	var arrived atomic.Int64
	h := hooksOf(e, func(http.ResponseWriter, request) {
		if arrived.Add(1) <= 8 { // answered while Redis is down
			<-down
		}
	})

	h.start("w1", many)
	events := h.cancelAll(30)
	h.await(8)
	e.Server.Kill()
	h.Await("the worker lets go", func() bool { return len(h.role.Owned()) == 0 })
	begun := len(h.received())
	release()
	if begun != 8 {
		t.Errorf("%d sends, 8 at once", begun)
	}

	testenv.Must(t, e.Server.Start(t.Context()))
	h.Await("the ledger answers", func() bool { return e.Ledger.Ping(t.Context()) == nil })
	h.awaitAll(events)
	h.awaitAll(append(events, h.cancelAll(1)...)) // the role goes on
}

// An order's versions stay in order over a takeover, whatever has been decided by whom.
func TestWebhooks_StayInOrderOverATakeover(t *testing.T) {
	h := newHooks(t, nil)
	kill := h.startProxied("w1")
	var orders []*delivery.Order
	for range 5 {
		orders = append(orders, h.reported("", delivery.PickedUp))
	}

	h.await(5)
	kill()
	for _, o := range orders {
		h.Reach(o, delivery.Delivered, time.Now())
	}

	h.start("w2")
	h.Await("everything is sent", func() bool {
		events := map[string]bool{}
		for _, q := range h.received() {
			events[q.event.EventID] = true
		}
		return len(events) == 25
	})

	first := map[string][]string{} // when each status came first
	for _, q := range h.received() {
		if d := q.event.Data; !slices.Contains(first[d.OrderID], d.Status) {
			first[d.OrderID] = append(first[d.OrderID], d.Status)
		}
	}

	for id, got := range first {
		if !slices.Equal(got, []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}) {
			t.Errorf("order %s: %v", id, got)
		}
	}

	h.AwaitSettled(ledger.RoleWebhook)
}
