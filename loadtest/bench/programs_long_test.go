//go:build long

package main

import (
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/harness"
)

// The benchmarks of other packages run once, and say what the table asks of them.
func TestBenchmarks_OfOtherPackagesSayWhatIsAsked(t *testing.T) {
	t.Parallel()
	b := &bench{dir: t.TempDir(), out: &strings.Builder{}, compiled: map[string]*testBinary{}}
	for _, c := range []struct{ pkg, name, unit string }{
		{"./gateway", "BenchmarkServe/*", "orders/s"}, {"./gateway", "BenchmarkDecode/*/*", "ns/op"}, {"./internal/ledger", "BenchmarkRedisCost/*", redisCost},
	} {
		compiled, err := b.compileTests(t.Context(), c.pkg)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := compiled.run(t.Context(), c.name, 20); err != nil || found[c.unit] == 0 {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
	}
}

// One system, for a moment: what is sent is accepted, what is created is
// delivered, every webhook is verified, and what it cost is known.
func TestPrograms_CarryOrdersTheWholeWay(t *testing.T) {
	t.Parallel()
	b := &bench{flags: flags{rounds: 1, quick: true}, dir: t.TempDir(), out: &strings.Builder{}, costs: costs{}}
	s, err := b.startSystem(t.Context(), "programs", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	r, err := harness.OpenLoop(t.Context(), harness.Load{
		Addrs: s.vendorAddrs, Connections: 8, Rate: 200, Duration: 300 * time.Millisecond, Want: 201, Request: s.orders.batch(),
	})
	if err != nil || r.Answered != 60 {
		t.Fatalf("%+v, %v", r, err)
	}
	err = s.account(t.Context(), costDelivered, b.costs, func() (float64, error) {
		d := &delivery{s: s, create: s.orders.batch(), open: make(chan struct{}, 20)}
		err := d.run(t.Context(), time.Now().Add(300*time.Millisecond))
		if d.webhooks.Load() != 5*d.done.Load() || d.done.Load() == 0 {
			t.Errorf("%d webhooks, %d orders delivered", d.webhooks.Load(), d.done.Load())
		}
		return float64(d.done.Load()), err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, figure := range b.costs.spreads() {
		// Redis frees its clients' buffers meanwhile: over so few orders its memory may shrink.
		if figure.Median < 0 && name != "delivered.redis_memory_bytes" {
			t.Errorf("%s is %v", name, figure)
		}
	}
	for _, name := range []string{"delivered.redis_us", "delivered.redis_net_in_bytes", "delivered.aof_bytes"} {
		if c := b.costs.spreads()[name]; c == nil || c.Median == 0 {
			t.Errorf("%s is %v", name, c)
		}
	}
}

func TestCosts(t *testing.T) {
	t.Parallel()
	c := costs{}
	c.note("created", usage{redis: 0.002, aof: 1000}, 100)
	c.note("created", usage{redis: 0.004, aof: -5000, aofBase: 9000}, 100) // rewritten meanwhile
	c.note("created", usage{redis: 9}, 0)
	got := c.spreads()
	if us := got["created.redis_us"]; us == nil || us.Min != 20 || us.Max != 40 {
		t.Errorf("Redis: %v", us)
	}
	if aof := got["created.aof_bytes"]; aof == nil || *aof != (spread{10, 10, 10}) {
		t.Errorf("file: %v", aof)
	}
}
