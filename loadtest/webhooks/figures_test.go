package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	figures := []figure{
		{key: "fast", title: "fast", rounds: []float64{4000, 7000, 9000}, limit: atLeast(5000)},
		{key: "slow", title: "slow", rounds: []float64{20, 8, 30}, limit: atMost(10), unit: "ms"},
		{key: "lost", title: "lost", rounds: []float64{1}, limit: always(atMost(0))},
		{key: "told", title: "told", rounds: []float64{3}},
	}
	all, err := judge(figures, false)
	if err == nil || !strings.Contains(err.Error(), "slow is 20 ms, accepted is <= 10") || !strings.Contains(err.Error(), "lost is 1, accepted is <= 0") ||
		strings.Contains(err.Error(), "fast") {
		t.Errorf("%v", err)
	}
	if len(all) != 4 || all[0].Verdict != passed || all[0].Median != 7000 || all[1].Verdict != missed || all[3].Verdict != "" {
		t.Errorf("%+v", all)
	}
	all, err = judge(figures, true)
	if err == nil || strings.Contains(err.Error(), "slow") || all[1].Limit != nil {
		t.Errorf("quick: %v, %+v", err, all)
	}
	if _, err := judge([]figure{{key: "empty"}}, false); err == nil {
		t.Error("a figure without a measurement passes")
	}
}

func TestCalmest_IsChosenByWhatOthersTook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		leftOut []float64 // round by round
		want    []int
	}{
		{"calm", []float64{0.1, 0, 0.5}, []int{1, 0, 2}},
		{"one disturbed", []float64{0.1, 1, 0.2, 0.05}, []int{3, 0, 2}},
		{"all but one disturbed", []float64{1, 1, 0.2, 0.6}, []int{2}},
		{"all disturbed", []float64{1, 0.9, 0.8, 0.7}, []int{3, 2, 1}},
	} {
		measured := 0
		rounds, err := calmest(&bench{flags: flags{rounds: 3}}, func(round int) (turn, error) {
			measured++
			return turn{leftOut: c.leftOut[round], waits: []float64{float64(round)}}, nil
		})
		var got []int
		for _, r := range rounds {
			got = append(got, int(r.waits[0]))
		}
		if err != nil || measured != len(c.leftOut) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v of %d, %v", c.name, got, measured, err)
		}
	}
}

func TestRates_FollowTheCurve(t *testing.T) {
	t.Parallel()
	curve := []point{{0, 0}, {1, 1}, {2, 101}, {3, 301}, {9, 1501}}
	if at := after(curve, 300); at != 3 {
		t.Errorf("300 after %v s", at)
	}
	if at := after(curve, 9999); at != 9 {
		t.Errorf("never: %v s", at)
	}
	if got := rates(curve); !strings.HasPrefix(got, "2.0 s: 101/s") || !strings.HasSuffix(got, "9.0 s: 200/s") {
		t.Errorf("%s", got)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("%v: %v", q, got)
		}
	}
	if median([]float64{3, 1, 2}) != 2 || median([]float64{4, 1, 2, 3}) != 2.5 {
		t.Error("median")
	}
}

func TestTurn_LeavesOutWhatOthersDisturbed(t *testing.T) {
	t.Parallel()
	var waits []wait
	for i := range 100 { // one every 100 ms, those about 3 s are slow
		took := 2 * time.Millisecond
		if i >= 29 && i <= 33 {
			took = 90 * time.Millisecond
		}
		waits = append(waits, wait{moment(i) * 100 * time.Millisecond, took})
	}
	got, err := newTurn(waits, noise{{3 * time.Second, 3100 * time.Millisecond}})
	if err != nil || quantile(got.waits, 1) != 2 || len(got.waits) != 95 || got.leftOut < 0.049 || got.leftOut > 0.051 {
		t.Errorf("%v of %d, %v", got.leftOut, len(got.waits), err)
	}
	if got, err = newTurn(waits, nil); err != nil || len(got.waits) != 100 || got.leftOut != 0 || quantile(got.waits, 0.99) != 90 {
		t.Errorf("calm: %v, %v", got, err)
	}
	if got, err = newTurn(waits, noise{{0, time.Minute}}); err != nil || len(got.waits) != 100 || got.leftOut != 1 {
		t.Errorf("all disturbed: %v, %v", got, err)
	}
	if _, err = newTurn(nil, nil); err == nil {
		t.Error("nothing was received, and nobody says so")
	}
}
