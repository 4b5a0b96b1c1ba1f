//go:build long

package main

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func bound(v float64) *float64 { return &v }

func TestJudge(t *testing.T) {
	t.Parallel()
	floor := limit{Of: ofRatio, AtLeast: bound(0.5), Why: "w"}
	ceiling := limit{Of: ofMeasured, AtMost: bound(30), Why: "w", AnyMachine: true}
	half := line{key: "half", baseline: "b", measured: []float64{50}, base: []float64{100}}
	less := line{key: "half", baseline: "b", measured: []float64{90, 49, 10}, base: []float64{100, 100, 100}}
	thirty := line{key: "allocations", measured: []float64{30}}
	more := line{key: "allocations", measured: []float64{29, 31, 31}}
	for _, c := range []struct {
		name         string
		lines        []line
		limits       map[string]limit
		quick, whole bool
		verdict      string // of the first line
		fault        string // part of the error; empty: none
	}{
		{"at the floor", []line{half}, map[string]limit{"half": floor}, false, true, passed, ""},
		{"below the floor", []line{less}, map[string]limit{"half": floor}, false, true, failed, "half: 0.49 is beyond the accepted ratio >= 0.50"},
		{"at the ceiling", []line{thirty}, map[string]limit{"allocations": ceiling}, false, true, passed, ""},
		{"above the ceiling", []line{more}, map[string]limit{"allocations": ceiling}, false, true, failed, "allocations: 31 is beyond the accepted measured <= 30"},
		{"no limit", []line{half}, map[string]limit{}, false, true, unasked, ""},
		{"a quick run proves no ratio", []line{less}, map[string]limit{"half": floor}, true, true, unasked, ""},
		{"a quick run proves allocations", []line{more}, map[string]limit{"allocations": ceiling}, true, true, failed, "31 is beyond"},
		{"not measured", []line{half}, map[string]limit{"half": floor, "lost": floor}, false, true, passed, "lost: has a limit and was not measured"},
		{"not asked for", []line{half}, map[string]limit{"half": floor, "lost": floor}, false, false, passed, ""},
		{"no ratio to judge", []line{thirty}, map[string]limit{"allocations": floor}, false, true, unasked, "no ratio"},
		{"every fault is named", []line{less, more}, map[string]limit{"half": floor, "allocations": ceiling}, false, true, failed, "beyond the accepted ratio >= 0.50\nallocations: 31"},
	} {
		judged, err := judge(c.lines, c.limits, c.quick, c.whole)
		if judged[0].Verdict != c.verdict {
			t.Errorf("%s: verdict %q, want %q", c.name, judged[0].Verdict, c.verdict)
		}
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.fault)
		}
	}
}

// A line without figures is an error even where it has no limit.
func TestJudge_RefusesALineThatProvesNothing(t *testing.T) {
	t.Parallel()
	if judged, err := judge([]line{{key: "empty"}}, nil, false, true); len(judged) != 0 || err == nil {
		t.Errorf("%v, %v", judged, err)
	}
}

func TestReadLimits_Refuses(t *testing.T) {
	t.Parallel()
	for content, fault := range map[string]string{
		`{`:  "unexpected EOF",
		`{}`: "there are none",
		`{"a":{"of":"ratio","at_least":1,"at_leest":2,"why":"w"}}`: "at_leest",
		`{"a":{"of":"speed","at_least":1,"why":"w"}}`:              "a: of",
		`{"a":{"of":"ratio","why":"w"}}`:                           "either at_least or at_most",
		`{"a":{"of":"ratio","at_least":1,"at_most":2,"why":"w"}}`:  "either at_least or at_most",
		`{"a":{"of":"ratio","at_least":1}}`:                        "why: missing",
	} {
		path := filepath.Join(t.TempDir(), "floors.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readLimits(path); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: error %v, want %q", content, err, fault)
		}
	}
}

// A machine that is half as fast in one round changes the figures and not the
// ratio, because both are of that round.
func TestRatios_AreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	l := line{measured: []float64{50, 25, 55}, base: []float64{100, 50, 100}}
	if got := l.ratios(); !reflect.DeepEqual(got, []float64{0.5, 0.5, 0.55}) {
		t.Errorf("got %v", got)
	}
	l = line{measured: []float64{24}, base: []float64{0}}
	if got := l.ratios(); got != nil {
		t.Errorf("a ratio to 0: %v", got)
	}
}

func TestLine_RefusesWhatProvesNothing(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]line{
		"no rounds":           {key: "x"},
		"a round is missing":  {key: "x", baseline: "b", measured: []float64{1, 2}, base: []float64{1}},
		"no number":           {key: "x", measured: []float64{math.NaN()}},
		"an infinite one":     {key: "x", measured: []float64{math.Inf(1)}},
		"less than nothing":   {key: "x", measured: []float64{-1}},
		"a baseline of chaos": {key: "x", baseline: "b", measured: []float64{1}, base: []float64{math.NaN()}},
	} {
		if l.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	good := line{key: "x", baseline: "b", measured: []float64{1, 2}, base: []float64{0, 1}}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}

// figured is a sizing whose needs can be computed in the head.
func figured() *sizing {
	return &sizing{
		Costs: orderCosts{
			RedisMicros: 100, GatewayMicros: 200, WorkerMicros: 400, FileBytes: 10_000, Flushes: 0.5,
			RedisIn: 6000, RedisOut: 4000, Webhooks: 5, WebhookBytes: 5000, RequestBytes: 900, AnswerBytes: 600,
			LiveBytes: 1000, IDBytes: 20,
		},
		Choices: sizingDecision{
			Utilisation: 0.5, DayToPeak: 0.25, LiveDays: 10, IDYears: 1, ProgramCores: 4, MasterMemory: 60, PerMaster: 8, LeastPartitions: 16,
		},
	}
}

func TestNeeds(t *testing.T) {
	t.Parallel()
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
	for _, n := range needs {
		got, measured := n.of(figured(), 1000)
		if !measured || got < want[n.what]*0.999999 || got > want[n.what]*1.000001 {
			t.Errorf("%s: %v, want %v", n.what, got, want[n.what])
		}
	}
	if len(needs) != len(want) {
		t.Errorf("%d rows, %d of them checked", len(needs), len(want))
	}
}

const output = `goos: linux
goarch: amd64
pkg: vendorapi/gateway
cpu: AMD EPYC
BenchmarkServe/order-2         	   30000	     41375 ns/op	     24169 orders/s	        16.40 redis-us/order	    5120 B/op	      24 allocs/op
PASS
`

func TestParseBenchmark(t *testing.T) {
	t.Parallel()
	got, err := parseBenchmark(strings.NewReader(output), "BenchmarkServe/order")
	if err != nil {
		t.Fatal(err)
	}
	want := measures{"ns/op": 41375, "orders/s": 24169, "redis-us/order": 16.40, "B/op": 5120, "allocs/op": 24, resultCount: 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := got.need("MB/s"); err == nil {
		t.Error("a unit that is not there was found")
	}
	// A star stands for every sub-benchmark; each may be there once. On one processor
	// Go adds no number to the name.
	const out = "BenchmarkDecode/small/sonic 10 100 ns/op 3 allocs/op\nBenchmarkDecode/long/sonic 10 900 ns/op 4 allocs/op\n"
	got, err = parseBenchmark(strings.NewReader(out), "BenchmarkDecode/*/sonic")
	if want := (measures{"ns/op": 1000, "allocs/op": 7, resultCount: 2}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := parseBenchmark(strings.NewReader(out+out), "BenchmarkDecode/*/sonic"); err == nil {
		t.Errorf("twice: %v", got)
	}
}

func TestParseBenchmark_Refuses(t *testing.T) {
	t.Parallel()
	line := output[strings.Index(output, "BenchmarkServe"):strings.Index(output, "PASS")]
	for name, out := range map[string]string{
		"no result":       "PASS\n",
		"another's":       strings.ReplaceAll(output, "order-2", "order_pipelines-2"),
		"one's part":      strings.ReplaceAll(output, "order-2", "order/deep-2"),
		"two results":     line + line,
		"a torn line":     "BenchmarkServe/order-2   30",
		"a failed run":    "--- FAIL: BenchmarkServe/order\nFAIL\n",
		"no such program": "exec format error",
	} {
		if got, err := parseBenchmark(strings.NewReader(out), "BenchmarkServe/order"); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestResults_LineOf(t *testing.T) {
	t.Parallel()
	r := results{
		"order":           {{"orders/s": 10}, {"orders/s": 12}, {"orders/s": 11}},
		"order_pipelines": {{"orders/s": 30}, {"orders/s": 9}, {"orders/s": 9}},
		"xadd":            {{"orders/s": 20}, {"orders/s": 20}, {}},
	}
	if got, err := r.better("orders/s", "order", "order_pipelines"); got != "order" || err != nil {
		t.Errorf("the better is %q, %v", got, err)
	}
	if _, err := r.lineOf("k", "t", "order", "orders/s", "xadd", "b"); err == nil {
		t.Error("a round without the unit was accepted")
	}
}
