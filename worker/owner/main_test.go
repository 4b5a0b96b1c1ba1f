package owner

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

func TestMain(m *testing.M) {
	testserver.Parallel(8)
	testserver.Main(m)
}

// env is a ledger with a vendor, and a worker with a worker's rights that has not been started.
type env struct {
	*testenv.Env
	vendor  *testenv.Vendor
	role    *Role
	metrics *prometheus.Registry // of the last role
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	e := &env{Env: testenv.New(t)}
	e.vendor, e.role = e.Vendor(), e.newRole("w1")
	return e
}

// newRole is the role of a process of its own, with timeouts that no busy machine reaches.
func (e *env) newRole(name string, edits ...func(*dispatch.Settings)) *Role {
	e.T.Helper()
	return e.roleOf(e.OpenAs(stack.WorkerUser), name, edits...)
}

func (e *env) roleOf(l *ledger.Ledger, name string, edits ...func(*dispatch.Settings)) *Role {
	e.T.Helper()
	return e.roleWithSettings(l, name, status.Settings{Batch: 64, TimerInterval: 100 * time.Millisecond, HousekeepingInterval: time.Minute,
		ShrinkAfter: 24 * time.Hour, Retention: 7 * 24 * time.Hour, StreamRetention: 25 * time.Hour}, edits...)
}

func (e *env) roleWithSettings(l *ledger.Ledger, name string, settings status.Settings, edits ...func(*dispatch.Settings)) *Role {
	e.T.Helper()
	e.metrics = prometheus.NewRegistry()
	reg := e.metrics
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.Default()
	}

	webhooks := dispatch.Settings{Concurrency: 64, PerEndpoint: 8, BreakerFailures: 5, Timeout: time.Minute, LocalReceivers: "auto", Memory: 64}
	for _, edit := range edits {
		edit(&webhooks)
	}

	sender := dispatch.New(l, webhooks, dispatch.Options{Sandbox: true, CourierStep: time.Second}, log, reg)
	role := New(l, status.New(l, settings, nil, log, reg), sender, settings, name, log, reg)
	if role.endTimeout != endTimeout {
		e.T.Errorf("a worker ends within %s, want %s", role.endTimeout, endTimeout)
	}

	role.endTimeout = testserver.Timeout

	return role
}

// order is one of just now.
func (e *env) order() *delivery.Order {
	e.T.Helper()
	return e.vendor.Order("", time.Now())
}

//rule:order-states/the-five-non-terminal-rows-follow
func TestRole_TakesAnOrderThroughItsLife(t *testing.T) {
	e := newEnv(t)
	e.Start(e.role.Run)
	o := e.order()
	e.Await("the job list names the order", func() bool {
		jobs, _, err := e.Ledger.Orders.Jobs(t.Context(), e.Fleet.ID, delivery.Searching, "", 10)
		return err == nil && len(jobs) == 1
	})

	e.Accept(o, time.Now())
	e.AwaitStatus(o, delivery.Assigned)
	for status := delivery.PickingUp; status <= delivery.Delivered; status++ {
		e.Reach(o, status, time.Now())
		e.AwaitStatus(o, status)
	}

	e.AwaitSettled(ledger.RoleStatus)
	if last := e.Read(o.ID); last.Courier != testenv.Courier {
		t.Errorf("courier %+v", last.Courier)
	}
}

func TestRole_SendsWebhooks(t *testing.T) {
	e := newEnv(t)
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got.Add(1) }))
	t.Cleanup(server.Close)
	_, _, err := e.Ledger.Webhooks.SetURL(t.Context(), e.vendor.Account, server.URL)
	testenv.Must(t, err)
	e.Start(e.role.Run)
	for range 10 {
		o := e.order()
		e.Accept(o, time.Now())
		e.Reach(o, delivery.Delivered, time.Now())
		e.AwaitStatus(o, delivery.Delivered)
	}

	e.Await("50 webhooks", func() bool { return got.Load() == 50 })
	e.Await("the figures", func() bool {
		endpoint, err := e.Ledger.Webhooks.Endpoint(t.Context(), e.vendor.Account)
		return err == nil && endpoint.Delivered == 50 && endpoint.Backlog == 0 && !endpoint.Unknown
	})

	e.Await("50 attempts", func() bool {
		attempts, err := e.Ledger.Webhooks.Attempts(t.Context(), e.vendor.Account, "")
		return err == nil && len(attempts) == 50
	})

	e.AwaitSettled(ledger.RoleWebhook)
}
