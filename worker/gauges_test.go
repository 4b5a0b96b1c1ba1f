package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// newGauges are those of a worker over a server of the test's own.
func newGauges(t *testing.T) (*gauges, *stack.Redis) {
	t.Helper()
	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		stack.GatewayUser: "a", stack.WorkerUser: "b", stack.ReportingUser: "c", stack.BackupUser: "d", stack.OperatorUser: "e",
	}}})
	l, err := ledger.Open(t.Context(), ledger.Config{URL: server.URLFor(stack.WorkerUser), Environment: "sandbox", Partitions: 4,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = l.Close() })

	return &gauges{ledger: l, log: slog.New(slog.DiscardHandler), isFirst: func() bool { return true }}, server
}

// shown are the gauges by their names with their labels' values.
func (g *gauges) shown(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	shown := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := []string{family.GetName()}
			for _, label := range m.GetLabel() {
				name = append(name, label.GetValue())
			}
			shown[strings.Join(name, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}

	return shown
}

// A partition that does not answer hides no other one's figures, and the age of the figures tells.
func TestGauges_ShowThePartitionsThatAnswerAndSinceWhenSomeAreMissing(t *testing.T) {
	t.Parallel()

	g, server := newGauges(t)
	whole := time.UnixMilli(1)
	if err := g.readQueues(t.Context(), &whole); err != nil {
		t.Fatal(err)
	}
	if time.Since(whole) > time.Hour {
		t.Fatalf("a whole reading is of %s", whole)
	}

	whole = time.UnixMilli(5000)
	if _, err := server.Command(t.Context(), "ACL", "SETUSER", stack.WorkerUser, "resetkeys", "~{sg*", "~{s0[^2]*"); err != nil {
		t.Fatal(err)
	}

	for what, read := range map[string]func() error{
		figuresQueues: func() error { return g.readQueues(t.Context(), &whole) },
		figuresAges:   func() error { return g.readAges(t.Context(), &whole) },
	} {
		if err := read(); err == nil {
			t.Errorf("%s of a part are called whole", what)
		}
		if got := g.shown(t)["worker_figures_timestamp_seconds "+what]; got != 5 {
			t.Errorf("%s are said to be whole at %v, want 5", what, got)
		}
	}

	shown := g.shown(t)
	for _, name := range []string{"worker_stream_entries events", "worker_dead_letters", "worker_feed_oldest_seconds status"} {
		if _, ok := shown[name]; !ok {
			t.Errorf("%s is hidden by a partition that does not answer", name)
		}
	}
}

// What cannot be read is not shown as it was for ever: "0 lag" would say that all is well.
func TestGauges_ShowNothingOldAndHowOldItIs(t *testing.T) {
	t.Parallel()

	g, server := newGauges(t)
	whole := time.UnixMilli(0)
	for _, read := range []error{g.readServers(t.Context(), &whole), g.readQueues(t.Context(), &whole), g.readAges(t.Context(), &whole)} {
		if read != nil {
			t.Fatal(read)
		}
	}

	before := g.shown(t)
	memory, answered := "worker_redis_memory_used_bytes "+server.Addr, "worker_redis_figures_timestamp_seconds "+server.Addr
	if before[memory] == 0 || before[answered] == 0 {
		t.Fatalf("shown are %v", before)
	}

	server.Kill()
	for name, err := range map[string]error{figuresServers: g.readServers(t.Context(), &whole), figuresQueues: g.readQueues(t.Context(), &whole),
		figuresAges: g.readAges(t.Context(), &whole)} {
		if err == nil {
			t.Fatalf("%s were read of a dead server", name)
		}
	}

	if got := g.shown(t)[memory]; got != before[memory] {
		t.Errorf("one reading that fails hides the memory: %v", got)
	}

	// When the time of the last good reading is over, its ages are left.
	for _, into := range []*reading{g.servers.Load(), g.queues.Load(), g.ages.Load()} {
		if until := time.Until(into.shown); until > readingsShown*rarely*g.interval() {
			t.Errorf("figures are shown for %s more", until)
		}
		into.shown = time.Now().Add(-time.Second)
	}

	after := g.shown(t)
	for name := range after {
		if !strings.Contains(name, "figures_timestamp_seconds") {
			t.Errorf("%s is still shown", name)
		}
	}

	for _, name := range []string{answered, "worker_figures_timestamp_seconds queues", "worker_figures_timestamp_seconds ages", "worker_figures_timestamp_seconds servers"} {
		if after[name] == 0 || after[name] > before[answered]+3600 {
			t.Errorf("%s is %v", name, after[name])
		}
	}

	if after[answered] != before[answered] {
		t.Errorf("a silent server answered at %v, want %v", after[answered], before[answered])
	}
}

func TestGauges_ForgetAServerThatIsNoMasterAnyMore(t *testing.T) {
	t.Parallel()

	g := &gauges{}
	first, later := time.UnixMilli(1000), time.UnixMilli(2000)
	g.note([]ledger.Server{{Addr: "a"}, {Addr: "b"}}, nil, first)
	g.note([]ledger.Server{{Addr: "a"}}, fmt.Errorf("reading: %w", &operations.SilentServers{Addrs: []string{"b", "c"}}), later)
	if !g.seen["a"].Equal(later) || !g.seen["b"].Equal(first) || !g.seen["c"].Equal(later) {
		t.Errorf("seen are %v", g.seen)
	}

	g.note([]ledger.Server{{Addr: "a"}, {Addr: "c"}}, nil, later)
	if len(g.seen) != 2 {
		t.Errorf("seen are %v, with one that no other names", g.seen)
	}
}
