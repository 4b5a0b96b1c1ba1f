//go:build long

package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCheck_HoldsEveryFigureAgainstItsLimit(t *testing.T) {
	t.Parallel()

	figures := func() []*figure {
		return []*figure{
			{Key: "fast", Values: []float64{50, 25, 55}, Bases: []float64{100, 50, 100}, Baseline: "b", Limit: ratioAtLeast(0.5)},
			{Key: "slow", Values: []float64{50, 25, 55}, Bases: []float64{10, 50, 10}, Baseline: "b", Limit: ratioAtMost(2)},
			{Key: "lost", Values: []float64{0, 0, 1}, Limit: atMost(0)},
			{Key: "again", Values: []float64{1}, Bases: []float64{1000}, Baseline: "events", Limit: shareAtMost(0.01)},
			{Key: "free", Values: []float64{3, 5}, Note: "by the way"},
		}
	}

	full := figures()
	err := check(full, false)
	if err == nil || err.Error() != "slow is 5, the limit is ratio <= 2\nlost is 1, the limit is <= 0" {
		t.Errorf("%v", err)
	}
	if got := resultsOf(full); !slices.Equal(got, []string{resultOK, resultBeyond, resultBeyond, resultOK, ""}) {
		t.Errorf("%v", got)
	}

	// A ratio is taken round by round.
	if got, want := *full[0].Ratio, (spread{Median: 0.5, Least: 0.5, Greatest: 0.55}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	shortened := figures()
	err = check(shortened, true)
	if err == nil || err.Error() != "lost is 1, the limit is <= 0" {
		t.Errorf("a short run: %v", err)
	}
	if got := resultsOf(shortened); !slices.Equal(got, []string{"", "", resultBeyond, resultOK, ""}) {
		t.Errorf("a short run: %v", got)
	}
}

func resultsOf(figures []*figure) []string {
	var results []string
	for _, f := range figures {
		results = append(results, f.Result)
	}
	return results
}

func TestCheck_RefusesWhatIsNoMeasurement(t *testing.T) {
	t.Parallel()

	for name, f := range map[string]figure{
		"nothing measured":                   {Key: "f"},
		"a round of the baseline is missing": {Key: "f", Baseline: "b", Values: []float64{1, 2}, Bases: []float64{1}},
		"no number":                          {Key: "f", Values: []float64{1, math.NaN()}},
		"no number in the baseline":          {Key: "f", Baseline: "b", Values: []float64{1}, Bases: []float64{math.Inf(1)}},
		"a limit of a ratio to 0":            {Key: "f", Baseline: "b", Values: []float64{1}, Bases: []float64{0}, Limit: ratioAtMost(2)},
	} {
		if err := check([]*figure{&f}, false); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPrintTable_HasEveryColumn(t *testing.T) {
	t.Parallel()

	figures := []*figure{
		{Key: "a", What: "orders", Unit: "/s", Values: []float64{1500, 1000, 2000}, Bases: []float64{3000, 4000, 4000}, Baseline: "one XADD", Limit: ratioAtLeast(0.3)},
		{Key: "b", What: "orders", Unit: "/s", Values: []float64{1500}, Bases: []float64{3000}, Baseline: "nothing at all"},
		{Key: "c", What: "again", Values: []float64{1}, Bases: []float64{4000}, Baseline: "events", Limit: atMost(0), Note: "by the way"},
	}

	err := check(figures, false)
	if err == nil {
		t.Error("c is within its limit")
	}

	var out bytes.Buffer
	printTable(&out, figures)
	want := [][]string{
		{"what", "figure", "unit", "baseline of the same run", "ratio", "limit"},
		{"orders", "1 500 (1 000..2 000)", "/s", "4 000  one XADD", "0.50 (0.25..0.50)", "ratio >= 0.30", "ok"},
		{"3 000  nothing at all", "0.50"},
		{"again", "1", "4 000  events", "0.00025", "<= 0", "BEYOND", "by the way"},
	}

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%s", out.String())
	}

	for i, cells := range want {
		rest := lines[i]
		for _, cell := range cells {
			_, after, found := strings.Cut(rest, cell)
			if !found {
				t.Errorf("%q is missing in %q", cell, lines[i])
			}
			rest = after
		}
	}
}
