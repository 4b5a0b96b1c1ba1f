package results

import (
	"slices"
	"testing"
	"time"
)

// addStep adds a step's samples: iterations that created an order in so many milliseconds, and
// dropped ones.
func addStep(t *testing.T, samples *sampleSet, scenario string, created, dropped int, ms float64) {
	t.Helper()
	endpoint, err := samples.index(createOrder)
	if err != nil {
		t.Fatal(err)
	}
	scenarioIndex, err := samples.index(scenario)
	if err != nil {
		t.Fatal(err)
	}

	for range created {
		samples.requests = append(samples.requests, request{
			answered: start.UnixNano(), took: ms, endpoint: endpoint, scenario: scenarioIndex, status: 201,
		})
	}

	samples.iterations[scenario] = created
	samples.drops = append(samples.drops, drop{at: start.UnixNano(), count: dropped, scenario: scenarioIndex})
}

func TestRampOf_Knee(t *testing.T) {
	t.Parallel()

	type measured struct {
		created, dropped int
		ms               float64
	}

	holds := measured{created: 1000, ms: 10}
	slow := measured{created: 1000, ms: 101}

	for name, c := range map[string]struct {
		steps []measured
		knee  float64 // 0: none
		words string
	}{
		"none breaks":                   {steps: []measured{holds, holds}, knee: 0, words: "not reached"},
		"the first breaks":              {steps: []measured{slow, holds}, knee: 0, words: "below the lowest rate"},
		"the last is slow":              {steps: []measured{holds, holds, slow}, knee: 200, words: "200/s"},
		"a later one holds":             {steps: []measured{holds, slow, holds}, knee: 100, words: "100/s"},
		"one of a thousand is dropped":  {steps: []measured{holds, {created: 999, dropped: 1, ms: 10}}, knee: 0, words: "not reached"},
		"two of a thousand are dropped": {steps: []measured{holds, {created: 998, dropped: 2, ms: 10}}, knee: 100, words: "100/s"},
		"some are never begun":          {steps: []measured{holds, {created: 990, ms: 10}}, knee: 100, words: "100/s"},
		"the very last is never begun":  {steps: []measured{holds, {created: 999, ms: 10}}, knee: 0, words: "not reached"},
		"nothing is begun":              {steps: []measured{holds, {}}, knee: 100, words: "100/s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			samples := newSamples()
			var script summary
			for i, step := range c.steps {
				scenario := []string{"step_0100", "step_0200", "step_0300"}[i]
				rate := float64(100 * (i + 1))
				addStep(t, samples, scenario, step.created, step.dropped, step.ms)
				script.Steps = append(script.Steps, summaryStep{Scenario: scenario, Offered: rate, Seconds: 1000 / rate})
			}

			ramp := rampOf(samples, script)

			knee := 0.0
			if ramp.Knee != nil {
				knee = *ramp.Knee
			}

			if knee != c.knee || ramp.KneeWords != c.words {
				t.Errorf("the knee is %v, %q; steps %+v", knee, ramp.KneeWords, ramp.Steps)
			}
		})
	}
}

func TestRampOf_EmptyPathOfSteps(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	addStep(t, samples, "step_0010", 10, 0, 10)
	addStep(t, samples, "step_0020", 20, 0, 10)
	addEmpty(t, samples, "step_0010", leastForStep, 3)
	addEmpty(t, samples, "step_0020", leastForStep-1, 3)
	unanswered := samples.requests[len(samples.requests)-1]
	unanswered.status = 0
	samples.requests = append(samples.requests, unanswered)

	ramp := rampOf(samples, summary{Steps: []summaryStep{
		{Scenario: "step_0010", Offered: 10, Seconds: 1},
		{Scenario: "step_0020", Offered: 20, Seconds: 1},
	}})

	enough, few := ramp.Steps[0].EmptyP99, ramp.Steps[1].EmptyP99
	if enough == nil || *enough != 3 || few != nil {
		t.Errorf("p99 of the empty path: %v and %v", enough, few)
	}
}

func TestRampOf_Bottleneck(t *testing.T) {
	t.Parallel()

	const (
		outside = "in the first step that breaks the empty path took p99 60.0 ms, too: k6, the machine or the network is at its limit, not the service"
		tooFew  = "k6 had too few virtual users (LONGEST_WAIT)"
		service = "the service is at its limit"
	)

	for name, c := range map[string]struct {
		created, dropped int
		ms               float64 // of an accepted order
		emptyMs          float64
		empty            int // answers from the empty path
		want             string
	}{
		"nothing breaks":                 {created: 100, ms: 99, empty: 5, emptyMs: 60, want: ""},
		"a slow empty path":              {created: 100, ms: 120, empty: 5, emptyMs: 60, want: outside},
		"a slow empty path, and drops":   {created: 90, dropped: 10, ms: 50, empty: 5, emptyMs: 60, want: outside},
		"an empty path below half of it": {created: 100, ms: 121, empty: 5, emptyMs: 60, want: service},
		"too few of the empty path":      {created: 100, ms: 120, empty: 4, emptyMs: 60, want: service},
		"drops of quick orders":          {created: 90, dropped: 10, ms: 99, empty: 5, emptyMs: 1, want: tooFew},
		"drops of quick orders only":     {created: 90, dropped: 10, ms: 99, want: tooFew},
		"drops of slow orders":           {created: 90, dropped: 10, ms: 100, empty: 5, emptyMs: 1, want: service},
		"refusals without drops":         {created: 90, ms: 10, empty: 5, emptyMs: 1, want: service},
		"nothing accepted":               {dropped: 100, empty: 5, emptyMs: 60, want: service},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			samples := newSamples()
			addStep(t, samples, "step_0010", 10, 0, 1)
			addStep(t, samples, "step_0100", c.created, c.dropped, c.ms)
			addEmpty(t, samples, "step_0100", c.empty, c.emptyMs)
			steps := []summaryStep{
				{Scenario: "step_0010", Offered: 10, Seconds: 1},
				{Scenario: "step_0100", Offered: 100, Seconds: 1},
			}

			ramp := rampOf(samples, summary{Steps: steps})

			if ramp.Bottleneck != c.want {
				t.Errorf("the bottleneck is %q; steps %+v", ramp.Bottleneck, ramp.Steps)
			}
		})
	}
}

// What was not accepted is in the percentiles, as slowest.
func TestRampOf_CountsWhatWasNotAccepted(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	addStep(t, samples, "step_0010", 90, 4, 10)
	others := []int16{503, 503, 429, 0}
	for i, status := range others {
		added := samples.requests[i]
		added.status = status
		added.took = 0.2
		samples.requests = append(samples.requests, added)
	}

	samples.iterations["step_0010"] = 93
	samples.resends["step_0010"] = 1

	ramp := rampOf(samples, summary{Steps: []summaryStep{{Scenario: "step_0010", Offered: 10, Seconds: 10}}})

	step := ramp.Steps[0]
	if step.Offered != 100 || step.Started != 93 || step.Dropped != 4 || step.Accepted != 90 {
		t.Errorf("orders: %+v", step)
	}
	if step.Unavailable != 2 || step.Refused != 1 || step.Unanswered != 1 {
		t.Errorf("answers: %+v", step)
	}
	if step.Latency.Count != 100 || step.Latency.P50 != 10 || step.Latency.P95 != never || step.Latency.Max != never {
		t.Errorf("latencies: %+v", step.Latency)
	}
	if step.Broken == "" || ramp.KneeP99 != 100 {
		t.Errorf("broken: %q, bound %v", step.Broken, ramp.KneeP99)
	}
}

// k6 may schedule an order less, or some more, than the rate asks for.
func TestStepOf_Offered(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		offered  float64
		measured stepSamples
		want     Step // of which only these fields are compared: Offered, Started and Broken
	}{
		"all":              {offered: 10, measured: stepSamples{created: emptyOf(10, 1), requests: 10}, want: Step{Offered: 10, Started: 10}},
		"one less":         {offered: 10, measured: stepSamples{created: emptyOf(9, 1), requests: 9}, want: Step{Offered: 9, Started: 9}},
		"two less":         {offered: 10, measured: stepSamples{created: emptyOf(8, 1), requests: 8}, want: Step{Offered: 10, Started: 8, Broken: "only 8 of 10 orders were accepted"}},
		"some more":        {offered: 10, measured: stepSamples{created: emptyOf(12, 1), requests: 12}, want: Step{Offered: 12, Started: 12}},
		"some sent none":   {offered: 10, measured: stepSamples{created: emptyOf(8, 1), requests: 8, iterations: 10}, want: Step{Offered: 10, Started: 10, Broken: "only 8 of 10 orders were accepted"}},
		"some interrupted": {offered: 10, measured: stepSamples{created: emptyOf(8, 1), requests: 10, iterations: 8}, want: Step{Offered: 10, Started: 10, Broken: "only 8 of 10 orders were accepted"}},
		"none":             {offered: 0.4, measured: stepSamples{}, want: Step{Broken: "no order was offered"}},
		"rounded":          {offered: 2.6, measured: stepSamples{}, want: Step{Offered: 3, Broken: "only 0 of 3 orders were accepted"}},
	} {
		step := stepOf(summaryStep{Offered: c.offered, Seconds: 1}, &c.measured, 100)

		if step.Offered != c.want.Offered || step.Started != c.want.Started || step.Broken != c.want.Broken {
			t.Errorf("%s: offered %d, started %d, broken %q", name, step.Offered, step.Started, step.Broken)
		}
	}
}

// A script may name another bound for the p99 of a step. A p99 at the bound holds.
func TestRampOf_UsesTheScriptsBound(t *testing.T) {
	t.Parallel()

	for ms, want := range map[float64]string{50: "", 51: "p99 is 51.0 ms"} {
		samples := newSamples()
		addStep(t, samples, "step_0010", 10, 0, ms)

		ramp := rampOf(samples, summary{KneeP99: 50, Steps: []summaryStep{{Scenario: "step_0010", Offered: 10, Seconds: 1}}})

		if ramp.Steps[0].Broken != want {
			t.Errorf("%v ms: broken %q, want %q", ms, ramp.Steps[0].Broken, want)
		}
	}
}

func TestRamp_ComparesTheScriptsKnee(t *testing.T) {
	t.Parallel()

	found := Ramp{Knee: pointerTo(40), KneeWords: "40/s"}
	none := Ramp{KneeWords: "not reached"}

	for name, c := range map[string]struct {
		ramp    Ramp
		script  *float64
		differs bool
	}{
		"the same":            {ramp: found, script: pointerTo(40), differs: false},
		"neither":             {ramp: none, script: nil, differs: false},
		"another":             {ramp: found, script: pointerTo(80), differs: true},
		"only the samples":    {ramp: found, script: nil, differs: true},
		"only the script has": {ramp: none, script: pointerTo(80), differs: true},
	} {
		difference := c.ramp.differsFrom(c.script)
		if (difference != "") != c.differs {
			t.Errorf("%s: %q", name, difference)
		}
	}
}

func TestRamp_NearCeiling(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		ramp Ramp
		near bool
	}{
		"far below":      {ramp: Ramp{Knee: pointerTo(400), Ceiling: pointerTo(1000)}, near: false},
		"above the half": {ramp: Ramp{Knee: pointerTo(600), Ceiling: pointerTo(1000)}, near: true},
		"no ceiling":     {ramp: Ramp{Knee: pointerTo(600)}, near: false},
		"no knee":        {ramp: Ramp{Ceiling: pointerTo(1000)}, near: false},
	} {
		if c.ramp.NearCeiling() != c.near {
			t.Errorf("%s: %v", name, !c.near)
		}
	}
}

func TestBucketLength(t *testing.T) {
	t.Parallel()

	for seconds, want := range map[int]int{1: 1, 120: 1, 121: 2, 600: 5, 3600: 30, 7200: 60, 86400: 900, 30 * 86400: 6 * 3600} {
		got := bucketLength(seconds)
		if got != want {
			t.Errorf("%d s: %d, want %d", seconds, got, want)
		}
	}
}

func TestCurvesOf(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	addRequests(t, samples, createOrder, "1", 201, 201, 429, 503)
	addRequests(t, samples, emptyPath, "1", 404, 0)
	samples.requests[3].unexpected = true
	for i := range samples.requests {
		samples.requests[i].took = float64(i + 1)
	}

	late := samples.requests[0]
	late.answered += int64(2500 * time.Millisecond)
	samples.requests = append(samples.requests, late)
	samples.orders["1"] = []Order{{ID: "o-1", at: start.UnixNano()}, {ID: "o-2", at: start.UnixNano() + int64(time.Second)}}
	samples.drops = []drop{{at: start.Add(2 * time.Second).UnixNano(), count: 5}, {at: start.Add(-time.Hour).UnixNano(), count: 5}}

	curves := curvesOf(samples)

	for name, c := range map[string]struct{ got, want []float64 }{
		"requests": {got: curves.Requests, want: []float64{4, 0, 1}},
		"accepted": {got: curves.Accepted, want: []float64{1, 1, 0}},
		"dropped":  {got: curves.Dropped, want: []float64{0, 0, 5}},
		"failed":   {got: curves.Failed, want: []float64{1, 0, 0}},
		"refused":  {got: curves.Refused, want: []float64{1, 0, 0}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}

	if curves.P50[1] != nil || *curves.P50[0] != 1.5 || *curves.P99[2] != 1 || *curves.EmptyP99[0] != 5 {
		t.Errorf("latencies: %v, %v, %v", curves.P50, curves.P99, curves.EmptyP99)
	}
	if curvesOf(newSamples()) != nil {
		t.Error("nothing has curves")
	}
}

// Rates are those of a second, however long a bucket is. Only accepted orders are in the curves of
// latencies.
func TestCurvesOf_LongBuckets(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	addRequests(t, samples, createOrder, "1", 201, 201, 201, 201)
	addRequests(t, samples, "PUT /stores/{id}", "1", 201)
	samples.requests[4].took = 1000
	late := samples.requests[0]
	late.answered += int64(150 * time.Second)
	samples.requests = append(samples.requests, late)

	curves := curvesOf(samples)

	if curves.BucketSeconds != 2 || len(curves.Requests) != 76 || curves.Requests[0] != 2.5 || curves.Requests[75] != 0.5 {
		t.Errorf("%d buckets of %d s: %v", len(curves.Requests), curves.BucketSeconds, curves.Requests)
	}
	if *curves.P99[0] != 0 {
		t.Errorf("p99 of the first bucket is %v", *curves.P99[0])
	}
}

// The page divides by the number of buckets and by their length.
func TestCurves_IsValid(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		change func(*Curves)
		want   bool
	}{
		"whole":              {change: func(*Curves) {}, want: true},
		"accepted":           {change: func(c *Curves) { c.Accepted = nil }, want: false},
		"dropped":            {change: func(c *Curves) { c.Dropped = nil }, want: false},
		"failed":             {change: func(c *Curves) { c.Failed = nil }, want: false},
		"refused":            {change: func(c *Curves) { c.Refused = nil }, want: false},
		"p50":                {change: func(c *Curves) { c.P50 = nil }, want: false},
		"p99":                {change: func(c *Curves) { c.P99 = nil }, want: false},
		"the empty path":     {change: func(c *Curves) { c.EmptyP99 = nil }, want: false},
		"no length":          {change: func(c *Curves) { c.BucketSeconds = 0 }, want: false},
		"a length too large": {change: func(c *Curves) { c.BucketSeconds = maxBucketSeconds + 1 }, want: false},
		"too many buckets":   {change: func(c *Curves) { *c = *newCurves(start, 1, maxBuckets+1) }, want: false},
	} {
		curves := newCurves(start, 1, maxBuckets)
		c.change(curves)

		if curves.isValid() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}
