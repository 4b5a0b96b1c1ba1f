//go:build long

package samples

import (
	"strings"
	"testing"
)

const inspected = `{"scenarios": {}, "thresholds": {
  "http_req_duration{name:POST /orders}": ["p(99)<50", "p(95)<20"], "checks": ["rate==1"],
  "refused": ["count==0"], "latency_drift": ["max<2"], "http_req_duration{step:200/s}": ["max>=0"]},
 "ext": {"loadtest": {"title": "Steady state", "proves": "It holds.", "levels": [
  {"metric": "refused", "threshold": "count==0", "words": "nobody is refused"},
  {"metric": "http_req_duration{name:POST /orders}", "threshold": "p(99)<50", "words": "quick"},
  {"metric": "http_req_duration{name:POST /orders}", "threshold": "p(95)<20", "words": "quicker"},
  {"metric": "http_req_duration{step:200/s}", "threshold": "max>=0", "words": ""},
  {"metric": "latency_drift", "threshold": "max<2", "words": "no drift"},
  {"metric": "checks", "threshold": "rate==1", "words": "right answers"}]}}}`

// k6 writes true for a threshold that was crossed.
const summary = `{"metrics": {
  "http_req_duration{name:POST /orders}": {"p(95)": 20.53, "p(99)": 41.26, "max": 300, "thresholds": {"p(99)<50": false, "p(95)<20": true}},
  "refused": {"count": 3, "rate": 0.1, "thresholds": {"count==0": true}},
  "latency_drift": {"max": 1.25, "thresholds": {"max<2": false}},
  "checks": {"passes": 9999, "fails": 1, "value": 0.9999, "thresholds": {"rate==1": true}}}}`

func TestPlan_Measure(t *testing.T) {
	t.Parallel()
	plan, err := ReadPlan([]byte(inspected))
	if err != nil {
		t.Fatal(err)
	}
	if plan.Title != "Steady state" || plan.Proves != "It holds." || len(plan.Levels) != 5 {
		t.Fatalf("%+v", plan)
	}
	if err := plan.Measure([]byte(summary)); err != nil {
		t.Fatal(err)
	}
	want := []Level{
		{Words: "nobody is refused", Measured: "3"},
		{Words: "quick", Measured: "41.3 ms", Held: true},
		{Words: "quicker", Measured: "20.5 ms"},
		{Words: "no drift", Measured: "1.25", Held: true},
		{Words: "right answers", Measured: "99.990 %"},
	}
	for i, l := range plan.Levels {
		if l.Words != want[i].Words || l.Measured != want[i].Measured || l.Held != want[i].Held {
			t.Errorf("%+v, want %+v", l, want[i])
		}
	}
	if plan.Held() {
		t.Error("a plan with broken levels was held")
	}
}

func TestPlan_WhatWasNotMeasuredWasNotHeld(t *testing.T) {
	t.Parallel()
	plan, err := ReadPlan([]byte(inspected))
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Measure([]byte(`{"metrics": {"refused": {"count": 0, "thresholds": {"count==0": false}}}}`)); err != nil {
		t.Fatal(err)
	}
	if !plan.Levels[0].Held || plan.Levels[1].Held || plan.Levels[1].Measured != "not measured" || plan.Held() {
		t.Errorf("%+v", plan.Levels)
	}
	if err := plan.Measure([]byte("nothing")); err == nil {
		t.Error("a summary that is none was read")
	}
}

func TestReadPlan_RefusesThresholdsWithoutWords(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":               "k6 said something else",
		"no plan":               `{"ext": {}, "thresholds": {}}`,
		"no sentence":           strings.Replace(inspected, `"It holds."`, `""`, 1),
		"a threshold of itself": strings.Replace(inspected, `"checks": ["rate==1"]`, `"checks": ["rate==1", "rate>0"]`, 1),
	} {
		if plan, err := ReadPlan([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, plan)
		}
	}
}
