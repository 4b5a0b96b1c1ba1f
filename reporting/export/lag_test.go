package export

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// "0 lag" is no figure of a Redis that cannot be read, and one of a part says since when it is one.
func TestMeasureLag_TellsHowOldItIs(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "a", stack.WorkerUser: "b", stack.ReportingUser: "c", stack.BackupUser: "d", stack.OperatorUser: "e",
	}}})
	log := slog.New(slog.DiscardHandler)
	l, err := ledger.Open(t.Context(), ledger.Config{URL: server.URLFor(stack.ReportingUser), Environment: "sandbox", Partitions: 4, Log: log})
	testenv.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	x := New(l, nil, Settings{}, "x1", log, prometheus.NewRegistry())
	started := testenv.Value(t, x.metrics.lagRead)
	if started == 0 {
		t.Error("before the first reading nothing counts how long there has been none")
	}

	testenv.Must(t, x.measureLag(t.Context()))
	whole := testenv.Value(t, x.metrics.lagRead)
	if whole < started-1 || testenv.Value(t, x.metrics.lagSeconds) != 0 {
		t.Errorf("read at %v, after %v", whole, started)
	}

	_, err = server.Command(t.Context(), "ACL", "SETUSER", stack.ReportingUser, "resetkeys", "~{sg*", "~{s0[^2]*")
	testenv.Must(t, err)
	if err := x.measureLag(t.Context()); err == nil {
		t.Error("the lag of a part is called whole")
	}
	if got := testenv.Value(t, x.metrics.lagRead); got != whole {
		t.Errorf("the lag of a part is said to be whole at %v, want %v", got, whole)
	}
	if got := testenv.Value(t, x.metrics.lagSeconds); got != 0 {
		t.Errorf("a partition that does not answer hides the others' lag: %v", got)
	}

	server.Kill()
	if err := x.measureLag(t.Context()); err == nil {
		t.Fatal("the lag was read of a dead server")
	}
	if got := testenv.Value(t, x.metrics.lagSeconds); math.IsNaN(got) {
		t.Error("one failure hides the lag")
	}

	x.lagRead = time.Now().Add(-2 * lagShown)
	if err := x.measureLag(t.Context()); err == nil {
		t.Fatal("the lag was read of a dead server")
	}
	if got := testenv.Value(t, x.metrics.lagSeconds); !math.IsNaN(got) {
		t.Errorf("the lag is still %v", got)
	}
}
