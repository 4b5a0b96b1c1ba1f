//go:build long

package lib_test

import (
	"net/http"
	"strings"
	"testing"
)

// someLevels are levels of each kind of metric.
var someLevels = [][3]string{
	{"some_rate", "rate==1", "a rate"},
	{"some_rate{kind:right}", "rate>0.9", "a rate with a tag"},
	{"some_trend", "p(95)<50", "a trend"},
	{"some_trend{kind:right}", "max<50", "a trend with a tag"},
	{"some_counter", "count>=2", "a counter"},
	{"some_counter", "count!=0", "a counter that is not 0"},
	{"http_reqs", "rate>0.1", "requests a second"},
	{"checks{check:an order is accepted}", "rate==1", "a check"},
	{"admitted{name:POST /orders}", "rate==1", "a rate of the library"},
	{"http_req_duration{name:POST /orders,status:201}", "p(99)<10000", "an endpoint"},
	{"http_req_failed{name:POST /orders}", "rate==0", "failures of an endpoint"},
	{"dropped_iterations", "count==0", "dropped iterations"},
	{"dropped_iterations{scenario:only}", "count==0", "dropped iterations of a scenario"},
}

func TestLevels_HoldWhenTheyWereMeasured(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "levels.js", api.settings(settings{"LEVELS": asJSON(t, someLevels)}))

	r.requireExit(t, exitHeld)
	for _, l := range someLevels {
		r.requireLevel(t, l[0]+" "+l[1], true)
		if !strings.Contains(r.stdout, "✓ "+l[2]+": ") {
			t.Errorf("the summary does not show %q as held", l[2])
		}
	}

	if !strings.Contains(r.stdout, "\nLevels: held\n") {
		t.Error("the summary does not say that everything held")
	}

	// Only whole requests have a line.
	for _, trend := range []string{"http_req_waiting", "iteration_duration", "expected_response"} {
		if strings.Contains(r.stdout, trend) {
			t.Errorf("the summary shows %s", trend)
		}
	}

	// What is only to be shown is no level.
	if _, isThere := r.levels["shown_trend max>=0"]; isThere || !strings.Contains(r.stdout, "  shown_trend ") {
		t.Error("a trend that is to be shown is a level, or not shown")
	}
}

func TestLevels_OfNothingAreNotMeasured(t *testing.T) {
	t.Parallel()

	for _, l := range [][3]string{
		{"http_req_duration{name:POST /order,status:201}", "p(95)<50", "a misspelt endpoint"},
		{"some_trend{kind:rihgt}", "max<50", "a misspelt tag of a trend"},
		{"some_rate{kind:rihgt}", "rate==1", "a misspelt tag of a rate"},
		{"answered{name:POST /order}", "rate==1", "a misspelt endpoint of a rate of the library"},
		{"checks{check:misspelt}", "rate==1", "a misspelt check"},
		{"http_req_failed{name:POST /order}", "rate==0", "failures of a misspelt endpoint"},
		{"dropped_iterations{scenario:misspelt}", "count==0", "dropped iterations of a misspelt scenario"},
		{"some_counter{kind:rihgt}", "count>0", "a misspelt tag of a counter"},
	} {
		t.Run(l[2], func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			env := settings{"LEVELS": asJSON(t, [][3]string{l})}

			whole := play(t, "levels.js", api.settings(env))

			whole.requireExit(t, exitLevelsNotHeld)
			whole.requireNotMeasured(t, l[0]+" "+l[1], l[2])
			if !strings.Contains(whole.stdout, "\nLevels: NOT HELD, 1 of ") {
				t.Error("the summary does not say that one level did not hold")
			}
		})
	}
}

func TestLevels_OfAScriptThatDoesNothingAreNotMeasured(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "levels.js", api.settings(settings{
		"MEASURE": "no",
		"LEVELS":  asJSON(t, [][3]string{{"some_rate", "rate==1", "a rate"}, {"some_trend", "max<5", "a trend"}}),
	}))

	r.requireExit(t, exitLevelsNotHeld)
	r.requireNotMeasured(t, "some_rate rate==1", "a rate")
	r.requireNotMeasured(t, "some_trend max<5", "a trend")
	r.requireNotMeasured(t, checksLevel, "every answer is what the contract says")
}

// Each level is tested alone, because another one would end k6 with the same status.
func TestLevels_OfARateThatNobodyAddsToFail(t *testing.T) {
	t.Parallel()

	r := play(t, "nothing.js", nil)

	r.requireExit(t, exitLevelsNotHeld)
	r.requireNotMeasured(t, answeredLevel, "every request is answered, with no failure that the script does not ask for")
	r.requireNotMeasured(t, checksLevel, "every answer is what the contract says")
	r.requireNotMeasured(t, headersLevel, "every answer's X-RateLimit headers are there and make sense")
	for _, metric := range []string{"answered_samples", "checks_samples", "limit_headers_right_samples"} {
		if !contains(r.messages("error"), metric) {
			t.Errorf("k6 did not fail because of %s", metric)
		}
	}
}

// Nothing ran: the only iteration was interrupted, and k6 counts those that ended.
func TestLevels_OfDroppedIterationsFailWhenNothingRan(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.alwaysReply(postOrder, stall)

	r := play(t, "stall.js", api.settings(nil))

	r.requireExit(t, exitLevelsNotHeld)
	r.requireNoException(t)
	r.requireNotMeasured(t, "dropped_iterations count==0", "every iteration was started")
	if !contains(r.messages("error"), "iterations") {
		t.Error("k6 did not fail because nothing ran")
	}
}

func TestLevels_ThatBreakSayWhatWasMeasured(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "levels.js", api.settings(settings{
		"BREAK":  "yes",
		"LEVELS": asJSON(t, [][3]string{{"some_rate", "rate==1", "a rate"}}),
	}))

	r.requireExit(t, exitLevelsNotHeld)
	r.requireLevel(t, "some_rate rate==1", false)
	if !strings.Contains(r.stdout, "✗ a rate: 66.666 % (rate==1 of some_rate, 3 samples)") {
		t.Error("the summary does not show the rate that was measured, rounded down")
	}
}

func TestLevels_ThatWouldHoldOfNothingAreRefused(t *testing.T) {
	t.Parallel()

	for _, threshold := range []string{"count==0", "count<5", "count<=5", "count>=0", "count>=-2", "count>-1", "count!=3"} {
		t.Run(threshold, func(t *testing.T) {
			t.Parallel()

			r := play(t, "levels.js", settings{"LEVELS": asJSON(t, [][3]string{{"some_counter", threshold, "a counter"}})})

			r.requireExit(t, exitScriptException)
			want := "the level " + threshold + " of some_counter would hold if nothing was measured: state it as a rate of which 1 is good"
			said := r.messages("error")
			if len(said) != 1 || !strings.Contains(said[0], want) {
				t.Errorf("k6 said %q", said)
			}
		})
	}
}

func TestLevels_OfMetricsThatDoNotExistAreRefused(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		level [3]string
		exit  int
	}{
		"a trend":   {[3]string{"http_req_durations", "p(95)<50", "misspelt"}, exitInvalidConfig},
		"a rate":    {[3]string{"some_rates", "rate==1", "misspelt"}, exitScriptException}, // by level() itself
		"a counter": {[3]string{"some_counters", "count>0", "misspelt"}, exitInvalidConfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := play(t, "levels.js", settings{"LEVELS": asJSON(t, [][3]string{c.level})})

			r.requireExit(t, c.exit)
			if !contains(r.messages("error"), c.level[0]) {
				t.Errorf("k6 does not name the metric: %q", r.messages("error"))
			}
		})
	}
}

func TestPart_DoesNotFailForWhatOthersMeasure(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	levels := [][3]string{
		{"http_req_duration{name:POST /order,status:201}", "p(95)<50", "a trend of others"},
		{"some_rate{kind:others}", "rate==1", "a rate of others"},
		{"dropped_iterations{scenario:others}", "count==0", "dropped iterations of others"},
		{"some_counter{kind:others}", "count>0", "a counter of others"},
		{"some_trend", "max<50", "a trend of this part"},
		{"some_counter", "count>0", "a counter of this part"},
	}

	r := play(t, "levels.js", api.settings(settings{"PART": "yes", "LEVELS": asJSON(t, levels)}))

	r.requireExit(t, exitHeld)
	for _, l := range levels[:4] {
		r.requireNotMeasured(t, l[0]+" "+l[1], "- "+l[2])
	}

	r.requireLevel(t, "some_trend max<50", true)
	r.requireLevel(t, "some_counter count>0", true)
	if !strings.Contains(r.stdout, "\nLevels: held\n") {
		t.Error("the part says that it did not hold")
	}
}

func TestPart_SaysWhichItIs(t *testing.T) {
	t.Parallel()
	r := play(t, "nothing.js", nil, "--execution-segment", "0:1/2", "--execution-segment-sequence", "0,1/2,1")

	if !strings.Contains(r.summary, `"segment": "0:1/2"`) {
		t.Errorf("SUMMARY does not say which part it is: %s", r.summary)
	}
}

func TestPart_FailsForWhatItMeasures(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "levels.js", api.settings(settings{
		"PART":   "yes",
		"BREAK":  "yes",
		"LEVELS": asJSON(t, [][3]string{{"some_rate", "rate==1", "a rate"}}),
	}))

	r.requireExit(t, exitLevelsNotHeld)
	r.requireLevel(t, "some_rate rate==1", false)
}

func TestAbort_InTheMiddleKeepsTheSummary(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		env    settings
		broken reply
		reason string
	}{
		"an iteration aborts":  {reason: "the account is gone", env: settings{"ABORT": "yes"}},
		"the teardown aborts":  {reason: "the teardown aborts", env: settings{"ABORT_IN_TEARDOWN": "yes"}},
		"a renewal is refused": {reason: "gets no token: 401", env: nil, broken: refuse(http.StatusUnauthorized, "INVALID_CREDENTIALS")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			if c.broken != nil {
				api.expireFirstToken()
				api.onceReply(postToken, nil, c.broken)
			}

			r := play(t, "till.js", api.settings(c.env))

			r.requireExit(t, exitAborted)
			r.requireNoException(t)
			r.requireLevel(t, headersLevel, true)
			if !strings.Contains(r.stdout, "A till: ") {
				t.Error("the summary is lost")
			}

			said := r.messages("error")
			if len(said) != 1 || !strings.Contains(said[0], c.reason) {
				t.Errorf("the reason is not said, or not once: %q", said)
			}
		})
	}
}

func TestSummary_OfAScriptWithoutSetupIsThere(t *testing.T) {
	t.Parallel()
	r := play(t, "nothing.js", nil)

	if !strings.Contains(r.stdout, "A script without setup(): NOT HELD") {
		t.Error("there is no summary")
	}
}

func TestSummary_IsLeftToK6WhereSummaryIsK6(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "till.js", api.settings(settings{"SUMMARY": "k6"}))

	r.requireExit(t, exitHeld)
	if !strings.Contains(r.stdout, "THRESHOLDS") || strings.Contains(r.stdout, "A till: held") {
		t.Error("k6's own summary is not there, or not alone")
	}
}

func TestLevels_WhatK6DropsIsNotHeldInAnyScript(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "drops.js", api.settings(nil))

	r.requireExit(t, exitLevelsNotHeld)
	if !strings.Contains(r.stdout, "✗ k6 offered everything that the rates ask for") {
		t.Errorf("the summary does not name what was dropped:\n%s", r.stdout)
	}
}
