//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// The benchmarks of other packages run once, and say what the table asks of them.
func TestBenchmarks_OfOtherPackagesSayWhatIsAsked(t *testing.T) {
	t.Parallel()
	b := &bench{dir: t.TempDir(), out: io.Discard}
	for _, c := range []struct{ pkg, name, unit string }{
		{"./gateway", "BenchmarkServe/*", perSecond}, {"./gateway", "BenchmarkServe/*", "cpu-us/order"}, {"./gateway", "BenchmarkDecode/*/*", "ns/op"},
		{"./internal/ledger", "BenchmarkRedisCost/*", redisCost},
	} {
		var found measures
		if err := caught(func() { found = b.runBenchmark(t.Context(), c.pkg, c.name, 20) }); err != nil || found[c.unit] == 0 {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
	}
}

// One system, for a moment: what is sent is accepted, what is created is
// delivered, every webhook is verified, and what it cost is known.
func TestDelivery_CarriesOrdersTheWholeWay(t *testing.T) {
	t.Parallel()
	b := &bench{rounds: 1, quick: true, dir: t.TempDir(), out: io.Discard, costs: map[string][]float64{}}
	if err := caught(func() {
		must(stack.Build(t.Context(), b.file("bin")))
		b.measureDelivery(t.Context())
		b.measureNative(t.Context())
	}); err != nil {
		t.Fatal(err)
	}
	for name, rounds := range b.costs {
		// Redis frees its clients' buffers meanwhile: over so few orders its memory may shrink.
		if rounds[0] < 0 && !strings.HasSuffix(name, ".redis_memory_bytes") {
			t.Errorf("%s is %v", name, rounds)
		}
	}
	for _, name := range append(slices.Clone(requiredCosts), "delivered.calls", "delivered.commands", "delivered.redis_net_in_bytes", "delivered.aof_bytes",
		"delivered.webhooks", "delivered.webhook_bytes", "created.http_in_bytes", "created.http_out_bytes") {
		if c := b.costs[name]; len(c) != 1 || c[0] == 0 {
			t.Errorf("%s is %v", name, c)
		}
	}
	for _, key := range []string{"delivered_minute", "told_p99", "delivered_redis", "wait_p99_delivering", "created", "native_1", "native_64"} {
		if f := b.figure(key); len(f.Rounds) != 1 || f.Rounds[0] <= 0 {
			t.Errorf("%s: %v", key, f.Rounds)
		}
	}
}

// Steps are due in order, at the rate and spacing, and only those of orders that go the whole way.
func TestTimetable(t *testing.T) {
	t.Parallel()
	table := timetable{start: time.Now().Add(-time.Hour), rate: 100, orders: 50, every: 4}
	last, due := time.Time{}, map[int]int{}
	table.run(t.Context(), func(order, step int) {
		at := table.at(order, step)
		late := at.Sub(table.start) - time.Duration(step)*spacing - time.Duration(order)*10*time.Millisecond
		if at.Before(last) || late < 0 || late > 10*time.Millisecond || step > 0 && order%4 != 0 {
			t.Errorf("step %d of order %d is due %v late, at %v after %v", step, order, late, at, last)
		}
		last = at
		due[step]++
	})
	if want := map[int]int{0: 50, 1: 13, 2: 13, 3: 13, 4: 13, 5: 13}; !maps.Equal(due, want) || table.whole() != 13 {
		t.Errorf("steps due: %v, want %v", due, want)
	}
}

// Every webhook is the order's next one, or the run fails.
func TestJourneys_TakeEachWebhookOnceAndInOrder(t *testing.T) {
	t.Parallel()
	j := &journeys{timetable: timetable{start: time.Now().Add(-time.Minute), rate: 1, orders: 2, every: 1}, told: hdrhistogram.New(1, 1e9, 3),
		states: []journey{{id: "a"}, {id: "b"}}}
	webhook := func(id string, n int, status string) error {
		return j.seen(fmt.Appendf(nil, `{"data":{"orderId":"%s","externalOrderId":"POS-%016d","status":"%s"}}`, id, 7*ordersPerBatch+n, status), time.Now())
	}
	for i, c := range []struct {
		id     string
		n      int
		status string
		taken  bool
	}{
		{"a", 0, "PickingUp", false}, {"a", 0, "Assigned", true}, {"a", 0, "Assigned", false}, {"a", 0, "PickedUp", false},
		{"a", 0, "PickingUp", true}, {"b", 0, "PickedUp", false}, {"c", 2, "Assigned", false}, {"", 0, "", false},
		{"a", 0, "PickedUp", true}, {"a", 0, "Delivering", true}, {"a", 0, "Delivered", true}, {"a", 0, "Delivered", false}, {"b", 1, "Assigned", true},
	} {
		if err := webhook(c.id, c.n, c.status); (err == nil) != c.taken {
			t.Errorf("%d: %+v: %v", i, c, err)
		}
	}
	if j.left() != 1 || j.told.TotalCount() != 6 {
		t.Errorf("%d orders left, %d waits", j.left(), j.told.TotalCount())
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
		"growth.memory_per_live_order": 1000, "growth.memory_per_shrunk_order": 1000, "growth.memory_per_retired_id": 20},
		"choices": {"utilisation": 0.5, "day_to_peak": 0.25, "live_days": 10, "id_years": 1, "program_cores": 4, "master_memory_gb": 60,
		"receiver_seconds": 0.1, "worker_slots": 100, "per_endpoint": 8,
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
		"workers, by CPU":                       1,
		"webhooks in flight":                    500,
		"workers, by slots":                     10, // at half use
		"disk, all masters, rewriting included": 20,
		"fsyncs, all masters, at most":          500,
		"network of Redis":                      10,
		"network of vendors, creations":         1.5,
		"webhooks":                              5000,
		"network of webhooks":                   5,
		"most of one account, by its receiver":  16, // 80 webhooks a second
		"most of one account, by Redis":         10_000,
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
	for _, change := range [][2]string{{`"delivered.redis_us": 100, `, ""}, {`"live_days": 10`, `"live_days": 0`}, {`"utilisation"`, `"use"`}, {`"receiver_seconds": 0.1, `, ""}, {`"per_endpoint": 8`, `"per_endpoint": 0`}, {`0.25`, `1.5`}, {`"delivered.webhooks"`, `"webhooks"`}} {
		if _, err := readSizing([]byte(strings.Replace(content, change[0], change[1], 1))); err == nil {
			t.Errorf("%q in place of %q is taken", change[1], change[0])
		}
	}
}
