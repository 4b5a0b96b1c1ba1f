package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	figures := []figure{
		{key: "fast", title: "fast", rounds: []float64{40_000, 70_000, 90_000}, limit: atLeast(50_000)},
		{key: "slow", title: "slow", rounds: []float64{200, 80, 300}, limit: atMost(100), unit: "ms",
			aside: []figure{{key: "slow.cold", title: "slow, cold", rounds: []float64{900}}}},
		{key: "wrong", title: "wrong", rounds: []float64{1}, limit: always(atMost(0))},
		{key: "told", title: "told", rounds: []float64{3, 5}, note: "by the way"},
	}
	all, err := judge(figures, false)
	if err == nil || !strings.Contains(err.Error(), "slow is 200 ms, accepted is <= 100") ||
		!strings.Contains(err.Error(), "wrong is 1, accepted is <= 0") || strings.Contains(err.Error(), "fast") {
		t.Errorf("%v", err)
	}
	if len(all) != 5 || all[0].Verdict != passed || all[0].Median != 70_000 || all[1].Verdict != missed ||
		all[2].Key != "slow.cold" || all[4].Verdict != "" || all[4].Median != 4 {
		t.Errorf("%+v", all)
	}
	var out bytes.Buffer
	(&report{Figures: all}).print(&out)
	if text := out.String(); !strings.Contains(text, "by the way") || !strings.Contains(text, "MISSED") || strings.Contains(text, "slow, cold") {
		t.Errorf("%s", text)
	}
	all, err = judge(figures, true)
	if err == nil || strings.Contains(err.Error(), "slow") || all[1].Limit != nil {
		t.Errorf("quick: %v, %+v", err, all)
	}
	if _, err := judge([]figure{{key: "empty"}}, false); err == nil {
		t.Error("a figure without a measurement passes")
	}
	if _, err := judge([]figure{{key: "fast", rounds: []float64{1}, aside: []figure{{key: "empty"}}}}, false); err == nil {
		t.Error("a figure without a measurement passes at the side")
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.254: "0.25", 9.996: "10.0", 47.23: "47.2", 100: "100", 999.7: "1 000", 5_000_000: "5 000 000"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
