//go:build long

package main

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSpreadOf(t *testing.T) {
	t.Parallel()
	if got, want := spreadOf([]float64{3, 1, 2}), (&spread{2, 1, 3}); *got != *want {
		t.Errorf("got %v, want %v", got, want)
	}
	if spreadOf(nil) != nil {
		t.Error("a spread of nothing")
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

func TestReport_PrintsOneTable(t *testing.T) {
	t.Parallel()
	half := 0.5
	judged, err := judge([]line{
		{key: "a", title: "orders", unit: "orders/s", baseline: "one XADD", measured: []float64{24_000}, base: []float64{48_000}},
		{key: "b", title: "orders", unit: "orders/s", baseline: "an empty handler", measured: []float64{24_000}, base: []float64{120_000}},
		{key: "c", title: "allocations", unit: "allocs/op", baseline: "none", measured: []float64{24, 26, 25}, base: []float64{0, 0, 0}},
	}, map[string]limit{"a": {Of: ofRatio, AtLeast: &half, Why: "w"}}, false, true)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	(&report{Lines: judged}).print(&out)
	var rows []string
	for _, row := range strings.Split(out.String(), "\n") {
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	for _, want := range []string{
		"orders 24 000 orders/s 48 000 one XADD 0.50 (0.50..0.50) ratio >= 0.50 ok",
		"120 000 an empty handler 0.20 (0.20..0.20)",
		"allocations 25 allocs/op 0 none",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in\n%s", want, out.String())
		}
	}
}
