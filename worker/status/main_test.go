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

// env is a ledger with a vendor, and a role with the worker's rights.
type env struct {
	*testenv.Env
	vendor *testenv.Vendor
	role   *Role
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	e := &env{Env: testenv.New(t)}
	e.vendor, e.role = e.Vendor(), newRole(e.OpenAs(stack.WorkerUser))
	return e
}

func newRole(l *ledger.Ledger) *Role {
	settings := Settings{Batch: 64, TimerInterval: 100 * time.Millisecond, HousekeepingInterval: time.Minute,
		ShrinkAfter: 24 * time.Hour, Retention: 7 * 24 * time.Hour, StreamRetention: 25 * time.Hour}
	return New(l, settings, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
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
