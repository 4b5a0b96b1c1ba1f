//go:build long

package main

import (
	"math"
	"reflect"
	"testing"
)

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
