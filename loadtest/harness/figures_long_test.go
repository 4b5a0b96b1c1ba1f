//go:build long

package harness

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func bound(v float64) *float64 { return &v }

func TestCheck(t *testing.T) {
	t.Parallel()
	figures := func() []*Figure {
		return []*Figure{
			{Key: "fast", Rounds: []float64{40_000, 70_000, 90_000}, Limit: &Limit{AtLeast: bound(50_000)}},
			{Key: "slow", Rounds: []float64{200, 80, 300}, Limit: &Limit{AtMost: bound(100)}, Unit: "ms"},
			{Key: "certain", Rounds: []float64{200, 80, 300}, Limit: &Limit{Of: "least", AtMost: bound(100)}},
			{Key: "wrong", Rounds: []float64{0, 0, 1}, Limit: &Limit{Of: "most", AtMost: bound(0), AnyMachine: true}},
			{Key: "free", Rounds: []float64{3, 5}, Note: "by the way"},
		}
	}
	all, err := Check(figures(), false)
	if err == nil || !strings.Contains(err.Error(), "slow is 200 ms, accepted is <= 100") ||
		!strings.Contains(err.Error(), "wrong is 1, accepted is most <= 0") || strings.Contains(err.Error(), "fast") {
		t.Errorf("%v", err)
	}
	var results []string
	for _, f := range all {
		results = append(results, f.Result)
	}
	if !slices.Equal(results, []string{Passed, Missed, Passed, Missed, ""}) || all[0].Median != 70_000 || all[4].Median != 4 {
		t.Errorf("%v, %+v", results, all)
	}
	all, err = Check(figures(), true)
	if err == nil || strings.Contains(err.Error(), "slow") || all[1].Result != "" {
		t.Errorf("quick: %v, %+v", err, all)
	}
	if all, err := Check([]*Figure{{Key: "empty"}}, false); err == nil || len(all) > 0 {
		t.Error("a figure without a measurement passes")
	}
	half := Figure{Key: "half", Rounds: []float64{50, 25, 55}, Bases: []float64{100, 50, 100}, Baseline: "b", Limit: &Limit{Of: "ratio", AtLeast: bound(0.5)}}
	good := half
	all, err = Check([]*Figure{&good}, false)
	if err != nil || *all[0].Ratio != (Spread{0.5, 0.5, 0.55}) || all[0].Limit.String() != "ratio >= 0.50" {
		t.Errorf("a ratio is taken round by round: %v, %+v", err, all)
	}
	for name, change := range map[string]func(*Figure){
		"a round of the baseline is missing": func(f *Figure) { f.Bases = f.Bases[:2] },
		"a baseline of 0":                    func(f *Figure) { f.Bases = []float64{0, 0, 0} },
		"no number":                          func(f *Figure) { f.Bases = []float64{1, 2, math.NaN()} },
	} {
		broken := half
		change(&broken)
		if _, err := Check([]*Figure{&broken}, false); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := Quantile(hundred, q); got != want {
			t.Errorf("%v: %v", q, got)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rounds []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1000, 1, 2, 3, 0}, 2}, // one bad round does not count
	} {
		if got := Median(c.rounds); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.rounds, got, c.want)
		}
	}
}
