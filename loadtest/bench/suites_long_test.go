//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
)

// The benchmarks of other packages run once, and say what the table asks of them.
func TestBenchmarks_OfOtherPackagesSayWhatIsAsked(t *testing.T) {
	t.Parallel()
	b := &bench{dir: t.TempDir(), out: io.Discard, compiled: map[string]*testBinary{}}
	for _, c := range []struct{ pkg, name, unit string }{
		{"./gateway", "BenchmarkServe/*", perSecond}, {"./gateway", "BenchmarkServe/*", "cpu-us/order"}, {"./gateway", "BenchmarkDecode/*/*", "ns/op"},
		{"./internal/ledger", "BenchmarkRedisCost/*", redisCost},
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
	b := &bench{rounds: 1, quick: true, dir: t.TempDir(), out: io.Discard, costs: map[string][]float64{}}
	err := b.withSystem(t.Context(), "programs", nil, func(ctx context.Context, s *system) error {
		r, err := harness.OpenLoop(ctx, harness.Load{
			Addrs: s.addrs, Connections: 8, Rate: 200, Duration: 300 * time.Millisecond, Want: 201, Request: s.newOrders(),
		})
		if err != nil || r.Answered != 60 {
			return fmt.Errorf("%+v, %w", r, err)
		}
		perSecond, webhooks, err := b.measureDelivery(ctx, s)
		if err == nil && (perSecond <= 0 || webhooks == 0) {
			err = fmt.Errorf("%v orders/s, %d webhooks", perSecond, webhooks)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, rounds := range b.costs {
		// Redis frees its clients' buffers meanwhile: over so few orders its memory may shrink.
		if rounds[0] < 0 && name != "delivered.redis_memory_bytes" {
			t.Errorf("%s is %v", name, rounds)
		}
	}
	for _, name := range []string{"delivered.redis_us", "delivered.redis_net_in_bytes", "delivered.aof_bytes", "delivered.webhook_bytes"} {
		if c := b.costs[name]; len(c) != 1 || c[0] == 0 {
			t.Errorf("%s is %v", name, c)
		}
	}
}

// quickRun is the short form of a suite and its figures by key.
func quickRun(t *testing.T, args ...string) (report, map[string]*harness.Figure) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "figures.json")
	var out bytes.Buffer
	err := run(t.Context(), append(args, "-quick", "-json", path), &out)
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	got := map[string]*harness.Figure{}
	for _, f := range r.Figures {
		got[f.Key] = f
	}
	return r, got
}

// A worker, Redis, endpoints of every behaviour, a backlog that drains, kills.
// Everything that holds on any machine is checked.
func TestWebhooks_QuickRunLosesNothing(t *testing.T) {
	t.Parallel()
	_, got := quickRun(t, "webhooks", "-seed", "7")
	keys := []string{"backlog.drained", "backlog.left", "backlog.late", "backlog.unrecorded"}
	for _, part := range []string{"throughput", "latency", "isolation", "backlog", "kill"} {
		keys = append(keys, part+".lost", part+".duplicates", part+".invalid")
	}
	for _, key := range keys {
		if f := got[key]; f == nil || f.Result != harness.Passed {
			t.Errorf("%s: %+v", key, f)
		}
	}
	if f := got["throughput"]; f.Median <= 0 || f.Result != "" {
		t.Errorf("a quick run checks no rates: %+v", f)
	}
}

// Orders through Redis into ClickHouse, every report over HTTP, downloads.
func TestReporting_QuickRunIsExact(t *testing.T) {
	t.Parallel()
	r, got := quickRun(t, "reporting", "-orders", "1000", "-history", "10000")
	for _, key := range []string{"export.wrong", "export.left", "download.differs",
		"download.http.memory", "download.file.memory", "download.xlsx.memory"} {
		if f := got[key]; f == nil || f.Result != harness.Passed {
			t.Errorf("%s: %+v", key, f)
		}
	}
	for _, key := range []string{"export.rows", "reports.account_month.order-ledger", "reports.account_month.order-ledger.cold",
		"reports.year.fleet-statement", "reports.year.fleet-statement.bare", "reports.year.control-totals"} {
		if f := got[key]; f == nil || f.Median <= 0 || f.Result != "" {
			t.Errorf("a quick run checks no times and rates: %s %+v", key, f)
		}
	}
	if rows := got["reports.year.order-ledger.rows"].Median; rows != 10_000 || !r.Quick || r.Orders != 1000 {
		t.Errorf("%v rows in the year, %+v", rows, r)
	}
}

// What is interrupted says so, and leaves nothing behind.
func TestRun_EndsWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, args := range [][]string{{"webhooks", "-only", "latency"}, {"reporting", "-parts", "reports"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, append(args, "-json", filepath.Join(dir, "figures.json")), io.Discard) }()
		left := func(below ...string) []string {
			found, _ := filepath.Glob(filepath.Join(append([]string{dir, "bench-*"}, below...)...)) // the pattern is well formed
			return found
		}
		testserver.Await(t, "its Redis runs", func() bool { return len(left("*", "redis", "appendonlydir")) > 0 })
		interrupt()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v: ended with %v", args, err)
		}
		if folders := left(); len(folders) > 0 {
			t.Errorf("%v: left %v", args, folders)
		}
	}
}

func TestRun_RefusesFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-only", "nothing"}, {"-only", "("}, {"-rounds", "51"}, {"further"}, {"-need", "fast"}, {"-parts", "export"},
		{"webhooks", "-parts", "kill"}, {"reporting", "-parts", "export,nothing"}, {"reporting", "-orders", "1"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	const content = `{"per_order": {"delivered.redis_us": 100, "delivered.gateway_us": 200, "delivered.worker_us": 400, "delivered.aof_bytes": 10000,
		"delivered.disk_flushes": 0.5, "delivered.redis_net_in_bytes": 6000, "delivered.redis_net_out_bytes": 4000, "delivered.webhooks": 5,
		"delivered.webhook_bytes": 5000, "created.http_in_bytes": 900, "created.http_out_bytes": 600,
		"growth.memory_per_live_order": 1000, "growth.memory_per_retired_id": 20},
		"choices": {"utilisation": 0.5, "day_to_peak": 0.25, "live_days": 10, "id_years": 1, "program_cores": 4, "master_memory_gb": 60,
		"partitions_per_master": 8, "least_partitions": 16}}`
	s, err := readSizing([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"orders a day":                          21.6, // 1000 x 86,400 / 4, in millions
		"Redis masters, by CPU":                 1,    // 0.1 s a second, 0.2 at half use
		"memory of live orders":                 216,  // 216 million of 1 kB
		"memory of retired ids":                 157.68,
		"Redis masters, by memory":              7, // 373.68 GB in 60 GB each
		"partitions, 1,024 at most":             64,
		"gateways":                              1,
		"workers":                               1,
		"disk, all masters, rewriting included": 20,
		"fsyncs, all masters, at most":          500,
		"network of Redis":                      10,
		"network of vendors, creations":         1.5,
		"webhooks":                              5000,
		"network of webhooks":                   5,
	}
	for _, n := range s.needs(1000) {
		if math.Abs(n.value/want[n.what]-1) > 1e-6 {
			t.Errorf("%s: %v, want %v", n.what, n.value, want[n.what])
		}
		delete(want, n.what)
	}
	if len(want) > 0 {
		t.Errorf("no rows for %v", want)
	}
	for _, change := range [][2]string{{`"delivered.redis_us": 100, `, ""}, {`"live_days": 10`, `"live_days": 0`}, {`"utilisation"`, `"use"`}, {`0.25`, `1.5`}, {`"delivered.webhooks"`, `"webhooks"`}} {
		if _, err := readSizing([]byte(strings.Replace(content, change[0], change[1], 1))); err == nil {
			t.Errorf("%q in place of %q is taken", change[1], change[0])
		}
	}
}
