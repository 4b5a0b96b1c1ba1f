//go:build long

package lib_test

import (
	"maps"
	"strings"
	"testing"
)

// measuredStep is what k6 measured of a step of one second.
type measuredStep struct {
	Offered  int     `json:"offered"`
	Started  int     `json:"started"`
	Dropped  int     `json:"dropped"`
	Accepted int     `json:"accepted"`
	P99      float64 `json:"p99"`      // of the orders, in ms
	EmptyP99 float64 `json:"emptyP99"` // of the empty path, in ms
}

// notedSteps is what testdata/steps.js notes.
type notedSteps struct {
	Runs []struct {
		Text    string  `json:"text"`
		Knee    int     `json:"knee"`
		Ceiling float64 `json:"ceiling"`
	} `json:"runs"`
	Scenarios map[string]scenario `json:"scenarios"`
}

// scenario is when a k6 scenario begins, and how many virtual users it has.
type scenario struct {
	StartTime         string `json:"startTime"`
	Duration          string `json:"duration"`
	Users             int    `json:"vus"`
	PreAllocatedUsers int    `json:"preAllocatedVUs"`
	MaxUsers          int    `json:"maxVUs"`
}

func TestSteps_TheKneeIsTheLastRateBeforeTheFirstThatBreaks(t *testing.T) {
	t.Parallel()

	held := func(offered int) measuredStep {
		return measuredStep{Offered: offered, Started: offered, Accepted: offered, P99: 100, EmptyP99: 5}
	}
	const service = "is at the limit of the service"
	cases := []struct {
		name  string
		steps []measuredStep
		knee  int // 0: none
		text  []string
	}{
		{
			name:  "no step breaks",
			steps: []measuredStep{held(1000), held(2000)},
			text:  []string{"not reached at 2000/s, the highest rate", "1000 such orders a second at most"},
		},
		{
			name:  "the first one breaks",
			steps: []measuredStep{{Offered: 1000, Started: 1000, Accepted: 998, P99: 10, EmptyP99: 1}, held(2000)},
			text:  []string{"below 1000/s, the lowest rate", service},
		},
		{
			name:  "one of 1,000 orders is not accepted",
			steps: []measuredStep{{Offered: 1000, Started: 1000, Accepted: 999, P99: 10, EmptyP99: 1}},
			text:  []string{"not reached at 1000/s"},
		},
		{
			name:  "answers are slow, and a later step holds",
			steps: []measuredStep{held(1000), {Offered: 2000, Started: 2000, Accepted: 2000, P99: 100.1, EmptyP99: 50}, held(3000)},
			knee:  1000,
			text:  []string{"accepted, or p99 above 100 ms): 1000/s", service},
		},
		{
			name:  "the empty path is slow, too",
			steps: []measuredStep{held(1000), {Offered: 2000, Started: 2000, Accepted: 2000, P99: 120, EmptyP99: 60}},
			knee:  1000,
			text:  []string{"the empty path took p99 60.0 ms, too: k6, the machine or the network is at its limit"},
		},
		{
			name:  "k6 has too few virtual users",
			steps: []measuredStep{held(1000), {Offered: 2000, Started: 1990, Dropped: 10, Accepted: 1990, P99: 90, EmptyP99: 5}},
			knee:  1000,
			text:  []string{"k6 had too few virtual users", "1000/s"},
		},
		{
			name:  "k6 begins one order less than the rate asks for",
			steps: []measuredStep{{Offered: 100, Started: 99, Accepted: 99, P99: 10, EmptyP99: 1}},
			text:  []string{"not reached at 100/s"},
		},
		{
			name:  "k6 neither starts nor drops two orders",
			steps: []measuredStep{{Offered: 100, Started: 98, Accepted: 98, P99: 10, EmptyP99: 1}},
			text:  []string{"below 100/s"},
		},
	}

	runs := make([][]measuredStep, len(cases))
	for i, c := range cases {
		runs[i] = c.steps
	}

	r := play(t, "steps.js", settings{"RUNS": asJSON(t, runs)})

	found := notes[notedSteps](t, r)
	if len(found) != 1 || len(found[0].Runs) != len(cases) {
		t.Fatalf("the script found %+v", found)
	}

	for i, c := range cases {
		got := found[0].Runs[i]
		if got.Knee != c.knee || got.Ceiling != 1000 {
			t.Errorf("%s: knee %d, ceiling %v, want %d and 1000", c.name, got.Knee, got.Ceiling, c.knee)
		}

		for _, want := range c.text {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, got.Text)
			}
		}
	}
}

// Two steps of 5 s, of 100 and 200 orders a second that may each wait half a second.
func TestSteps_FollowEachOtherWithUsersForTheLongestWait(t *testing.T) {
	t.Parallel()

	r := play(t, "steps.js", settings{"RUNS": "[]"})

	found := notes[notedSteps](t, r)
	want := map[string]scenario{
		"ceiling":    {Duration: "4s", Users: 50},
		"step_00100": {StartTime: "5s", Duration: "5s", PreAllocatedUsers: 50, MaxUsers: 50},
		"step_00200": {StartTime: "15s", Duration: "5s", PreAllocatedUsers: 100, MaxUsers: 100},
	}
	if len(found) != 1 || !maps.Equal(found[0].Scenarios, want) {
		t.Errorf("the script found %+v, want the scenarios %+v", found, want)
	}
}
