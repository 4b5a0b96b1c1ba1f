//go:build long

package harness

import (
	"math"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	sheet := []Figure{
		{Key: "fast", Title: "fast", Rounds: []float64{40_000, 70_000, 90_000}, Limit: AtLeast(50_000)},
		{Key: "slow", Title: "slow", Rounds: []float64{200, 80, 300}, Limit: AtMost(100), Unit: "ms",
			Aside: []Figure{{Key: "slow.cold", Title: "slow, cold", Rounds: []float64{900}}}},
		{Key: "wrong", Title: "wrong", Rounds: []float64{1}, Limit: Always(AtMost(0))},
		{Key: "told", Title: "told", Rounds: []float64{3, 5}, Note: "by the way"},
	}
	all, err := Judge(sheet, false)
	if err == nil || !strings.Contains(err.Error(), "slow is 200 ms, accepted is <= 100") ||
		!strings.Contains(err.Error(), "wrong is 1, accepted is <= 0") || strings.Contains(err.Error(), "fast") {
		t.Errorf("%v", err)
	}
	if len(all) != 5 || all[0].Result != Passed || all[0].Median != 70_000 || all[1].Result != Missed ||
		all[2].Key != "slow.cold" || all[4].Result != "" || all[4].Median != 4 {
		t.Errorf("%+v", all)
	}
	all, err = Judge(sheet, true)
	if err == nil || strings.Contains(err.Error(), "slow") || all[1].Result != "" {
		t.Errorf("quick: %v, %+v", err, all)
	}
	if _, err := Judge([]Figure{{Key: "empty"}}, false); err == nil {
		t.Error("a figure without a measurement passes")
	}
	half := Figure{Key: "half", Rounds: []float64{50, 25, 55}, Base: []float64{100, 50, 100}, Baseline: "b", Limit: Ratio(AtLeast(0.5))}
	all, err = Judge([]Figure{half}, false)
	if err != nil || *all[0].Ratio != (Spread{0.5, 0.5, 0.55}) || all[0].Limit.String() != "ratio >= 0.50" {
		t.Errorf("a ratio is taken round by round: %v, %+v", err, all)
	}
	for name, change := range map[string]func(*Figure){
		"a round of the baseline is missing": func(f *Figure) { f.Base = f.Base[:2] },
		"a baseline of 0":                    func(f *Figure) { f.Base = []float64{0, 0, 0} },
		"no number":                          func(f *Figure) { f.Base = []float64{1, 2, math.NaN()} },
	} {
		broken := half
		change(&broken)
		if _, err := Judge([]Figure{broken}, false); err == nil {
			t.Errorf("%s: judged", name)
		}
	}
	if _, err := Judge([]Figure{{Key: "fast", Rounds: []float64{1}, Aside: []Figure{{Key: "empty"}}}}, false); err == nil {
		t.Error("a figure without a measurement passes at the side")
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
