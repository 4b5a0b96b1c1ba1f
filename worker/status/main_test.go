package status

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) {
	testserver.Parallel(8)
	testserver.Main(m)
}

// env is a ledger with a vendor, and a role with the worker's rights that has not
// been started.
type env struct {
	*testenv.Env
	vendor *testenv.Vendor
	role   *Role
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	e := &env{Env: testenv.New(t)}
	e.vendor, e.role = e.Vendor(), e.newRole("w1")
	return e
}

// newRole is the role of a process of its own.
func (e *env) newRole(consumer string) *Role {
	e.T.Helper()
	return newRole(e.OpenAs(stack.WorkerUser), consumer)
}

func newRole(l *ledger.Ledger, consumer string) *Role {
	settings := Settings{Batch: 256, ClaimAfter: time.Minute, TimerInterval: 100 * time.Millisecond,
		HousekeepingInterval: time.Minute, Retention: 7 * 24 * time.Hour, StreamRetention: 25 * time.Hour}
	return New(l, settings, consumer, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// order is one of just now.
func (e *env) order() *delivery.Order {
	e.T.Helper()
	return e.vendor.Order("", time.Now())
}

// entries is how many entries had a result.
func (e *env) entries(result string) float64 {
	return testenv.Value(e.T, e.role.metrics.entries.WithLabelValues(result))
}

// checkPath holds an order's statuses, and what is true of every order: versions
// are dense and time never goes back.
func (e *env) checkPath(o *delivery.Order, want string) {
	e.T.Helper()
	last := e.Read(o.ID)
	path, at := delivery.Searching.String(), last.CreatedAt
	for _, c := range last.Changes {
		path += " " + c.Status.String()
		if c.At.Before(at) {
			e.T.Errorf("%s at %s, before %s", c.Status, c.At, at)
		}
		at = c.At
	}
	if path != want {
		e.T.Errorf("%s, want %s", path, want)
	}
	if int(delivery.Sequence(last.Version)) != len(last.Changes)+1 {
		e.T.Errorf("version %x after %d changes", last.Version, len(last.Changes))
	}
}
