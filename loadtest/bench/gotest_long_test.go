//go:build long

package main

import (
	"maps"
	"strings"
	"testing"
)

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
	// On one processor Go adds no number to the name.
	if _, err := parseBenchmark(strings.NewReader(strings.ReplaceAll(output, "order-2", "order")), "BenchmarkServe/order"); err != nil {
		t.Error(err)
	}
}

func TestParseBenchmark_Refuses(t *testing.T) {
	t.Parallel()
	line := output[strings.Index(output, "BenchmarkServe"):strings.Index(output, "PASS")]
	for name, out := range map[string]string{
		"no result":       "PASS\n",
		"another's":       strings.ReplaceAll(output, "order-2", "order_pipelines-2"),
		"the whole's":     strings.ReplaceAll(output, "/order-2", "-2"),
		"one's part":      strings.ReplaceAll(output, "order-2", "order/deep-2"),
		"two results":     line + line,
		"nothing at all":  "",
		"a torn line":     "BenchmarkServe/order-2   30",
		"a failed run":    "--- FAIL: BenchmarkServe/order\nFAIL\n",
		"no such program": "exec format error",
	} {
		if got, err := parseBenchmark(strings.NewReader(out), "BenchmarkServe/order"); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestResults(t *testing.T) {
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
	l, err := r.lineOf("k", "t", "order", "orders/s", "order_pipelines", "b")
	if err != nil || len(l.ratios()) != 3 || l.check() != nil {
		t.Errorf("%+v, %v", l, err)
	}
}

// A star stands for every sub-benchmark; each may be there once.
func TestParseBenchmark_AddsUp(t *testing.T) {
	t.Parallel()
	const out = "BenchmarkDecode/small/sonic-2 10 100 ns/op 3 allocs/op\nBenchmarkDecode/long/sonic-2 10 900 ns/op 4 allocs/op\n"
	got, err := parseBenchmark(strings.NewReader(out), "BenchmarkDecode/*/sonic")
	if want := (measures{"ns/op": 1000, "allocs/op": 7, resultCount: 2}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := parseBenchmark(strings.NewReader(out+out), "BenchmarkDecode/*/sonic"); err == nil {
		t.Errorf("twice: %v", got)
	}
	if got, err := parseBenchmark(strings.NewReader(out), "BenchmarkDecode/*/strictjson"); err == nil {
		t.Errorf("another's: %v", got)
	}
}
