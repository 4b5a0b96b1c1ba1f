//go:build long

package main

import (
	"io"
	"maps"
	"math"
	"strings"
	"testing"
)

const output = `goos: linux
pkg: vendorapi/gateway
BenchmarkServe/order         	   30000	     41375 ns/op	     24169 orders/s	        16.40 redis-us/order	    5120 B/op	      24 allocs/op
PASS
`

func TestSumOfBenchmarks(t *testing.T) {
	t.Parallel()

	got, err := sumOfBenchmarks(output, "BenchmarkServe/order")
	want := measures{"ns/op": 41375, "orders/s": 24169, "redis-us/order": 16.40, "B/op": 5120, "allocs/op": 24, resultCount: 1}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if rounds := (trials{"order": {got}}).rounds("order", "MB/s"); !math.IsNaN(rounds[0]) {
		t.Error("a unit that is not there was found")
	}

	// A star stands for every sub-benchmark; each may be there once.
	const several = "BenchmarkDecode/small/sonic 10 100 ns/op 3 allocs/op\nBenchmarkDecode/long/sonic 10 900 ns/op 4 allocs/op\n"
	got, err = sumOfBenchmarks(several, "BenchmarkDecode/*/sonic")
	if want := (measures{"ns/op": 1000, "allocs/op": 7, resultCount: 2}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}

	line := output[strings.Index(output, "BenchmarkServe"):strings.Index(output, "PASS")]
	for name, out := range map[string]string{
		"no result":       "PASS\n",
		"another's":       strings.ReplaceAll(output, "order ", "order_pipelines "),
		"one's part":      strings.ReplaceAll(output, "order ", "order/deep "),
		"two results":     line + line,
		"a torn line":     "BenchmarkServe/order   30",
		"a failed run":    "--- FAIL: BenchmarkServe/order\nFAIL\n",
		"no such program": "exec format error",
	} {
		if got, err := sumOfBenchmarks(out, "BenchmarkServe/order"); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The benchmarks of other packages run once, and say what the table asks of them.
func TestBenchmarks_OfOtherPackagesSayWhatIsAsked(t *testing.T) {
	t.Parallel()

	b := &bench{dir: t.TempDir(), out: io.Discard}
	for _, c := range []struct{ pkg, name, unit string }{
		{"./gateway", "BenchmarkServe/*", perSecond}, {"./gateway", "BenchmarkServe/*", "cpu-us/order"}, {"./gateway", "BenchmarkDecode/*/*", "ns/op"},
		{"./internal/ledger", "BenchmarkRedisCost/*", redisCost},
	} {
		var found measures
		err := caught(func() { found = b.runBenchmark(t.Context(), c.pkg, c.name, 20) })
		if err != nil || found[c.unit] == 0 {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
	}
}
