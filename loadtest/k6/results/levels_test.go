package results

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// emptyOf returns latencies of the empty path: n of the same length.
func emptyOf(n int, ms float64) []float64 { return slices.Repeat([]float64{ms}, n) }

func TestLevelOf(t *testing.T) {
	t.Parallel()

	slow := summaryLevel{
		Metric: "http_req_duration{name:POST /orders}", Threshold: "p(95)<50", Words: "orders are quick",
		Samples: 500, Value: pointerTo(80), Unit: "ms", Measured: "80 ms", Held: false, Relative: 20,
	}

	quick := slow
	quick.Value, quick.Held = pointerTo(8), true
	unmeasured := quick
	unmeasured.Samples = 0
	few := slow
	few.Samples = 19
	absolute := slow
	absolute.Relative = 0
	rate := slow
	rate.Metric, rate.Threshold = "checks", "rate==1"
	otherTrend := slow
	otherTrend.Metric = "waited"
	median := slow
	median.Threshold = "med<50"
	cappedBound := slow
	cappedBound.Value = pointerTo(500)
	beyondCap := slow
	beyondCap.Value = pointerTo(501)

	for name, c := range map[string]struct {
		level    summaryLevel
		empty    []float64
		want     LevelState
		relative bool
	}{
		"held":                           {level: quick, empty: nil, want: levelHeld, relative: false},
		"held, with an empty path":       {level: quick, empty: emptyOf(20, 2), want: levelHeld, relative: true},
		"not measured, whatever it says": {level: unmeasured, empty: emptyOf(20, 2), want: levelNotMeasured, relative: false},
		"slow as the machine":            {level: slow, empty: emptyOf(20, 4), want: levelHeldRelative, relative: true},
		"slow by the median":             {level: median, empty: emptyOf(20, 4), want: levelHeldRelative, relative: true},
		"ten times its threshold":        {level: cappedBound, empty: emptyOf(20, 400), want: levelHeldRelative, relative: true},
		"beyond ten times its threshold": {level: beyondCap, empty: emptyOf(20, 400), want: levelNotHeld, relative: true},
		"slower than the machine":        {level: slow, empty: emptyOf(20, 3.9), want: levelNotHeld, relative: true},
		"too few of the empty path":      {level: slow, empty: emptyOf(19, 4), want: levelNotHeld, relative: false},
		"too few of the endpoint":        {level: few, empty: emptyOf(20, 4), want: levelNotHeld, relative: false},
		"no empty path":                  {level: slow, empty: nil, want: levelNotHeld, relative: false},
		"an empty path of no time":       {level: slow, empty: emptyOf(20, 0), want: levelNotHeld, relative: false},
		"absolute only":                  {level: absolute, empty: emptyOf(20, 4), want: levelNotHeld, relative: false},
		"no latency of requests":         {level: otherTrend, empty: emptyOf(20, 4), want: levelNotHeld, relative: false},
		"no latency":                     {level: rate, empty: emptyOf(20, 4), want: levelNotHeld, relative: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			level := levelOf(c.level, c.empty)

			if level.State != c.want || (level.Relative != nil) != c.relative {
				t.Errorf("%s, relative %+v; want %s", level.State, level.Relative, c.want)
			}
		})
	}
}

func TestPercentileOf(t *testing.T) {
	t.Parallel()

	for threshold, want := range map[string]struct{ q, bound float64 }{
		"p(95)<50": {0.95, 50}, "p(99.9) <= 100": {0.999, 100}, "med<5.5": {0.5, 5.5},
		"p(95)>50": {}, "max<5000": {}, "avg<5": {}, "count==0": {}, "p(101)<5": {}, "": {},
	} {
		q, bound, found := percentileOf(threshold)

		if found != (want.q > 0) || math.Abs(q-want.q) > 1e-9 || bound != want.bound {
			t.Errorf("%q: %v, %v, %v", threshold, q, bound, found)
		}
	}
}

func TestScenarioOf(t *testing.T) {
	t.Parallel()

	for metric, want := range map[string]string{
		"http_req_duration": "",
		"http_req_duration{name:GET /orders/{id},status:200}":               "",
		"http_req_duration{name:GET /orders/{id}, scenario:peak}":           "peak",
		"http_req_duration{scenario:peak,name:GET /orders/{id},status:200}": "peak",
	} {
		got := scenarioOf(metric)
		if got != want {
			t.Errorf("%s: %q, want %q", metric, got, want)
		}
	}
}

// Where the network and proxies belong to what is tested, they excuse nothing. In one scenario the
// machine may have been busier than in another.
func TestDecideLevels(t *testing.T) {
	t.Parallel()

	ofScript := summaryLevel{Metric: "http_req_duration{name:POST /orders}", Threshold: "p(95)<50", Samples: 500, Value: pointerTo(80), Relative: 20}
	ofScenario := func(scenario string) summaryLevel {
		level := ofScript
		level.Metric = "http_req_duration{name:POST /orders,scenario:" + scenario + "}"
		return level
	}

	samples := newSamples()
	addEmpty(t, samples, "busy", 20, 400)
	addEmpty(t, samples, "quiet", 20, 1)
	addEmpty(t, samples, "rare", 19, 400)

	for name, c := range map[string]struct {
		level      summaryLevel
		isRelative bool
		want       LevelState
	}{
		"own systems":                      {level: ofScript, isRelative: true, want: levelHeldRelative},
		"a deployment":                     {level: ofScript, isRelative: false, want: levelNotHeld},
		"a busy scenario":                  {level: ofScenario("busy"), isRelative: true, want: levelHeldRelative},
		"a quiet scenario":                 {level: ofScenario("quiet"), isRelative: true, want: levelNotHeld},
		"too few in the scenario":          {level: ofScenario("rare"), isRelative: true, want: levelNotHeld},
		"a scenario without an empty path": {level: ofScenario("absent"), isRelative: true, want: levelNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			script := &Script{}

			script.decideLevels([]summary{{Levels: []summaryLevel{c.level}}}, samples, c.isRelative)

			if script.Levels[0].State != c.want {
				t.Errorf("the level is %+v, want %s", script.Levels[0], c.want)
			}
		})
	}
}

// addEmpty adds answers from the empty path that took so many milliseconds.
func addEmpty(t *testing.T, samples *sampleSet, scenario string, count int, ms float64) {
	t.Helper()
	endpoint, err := samples.index(emptyPath)
	if err != nil {
		t.Fatal(err)
	}
	scenarioIndex, err := samples.index(scenario)
	if err != nil {
		t.Fatal(err)
	}

	for range count {
		samples.requests = append(samples.requests, request{
			answered: start.UnixNano(), took: ms, endpoint: endpoint, scenario: scenarioIndex, status: 404,
		})
	}
}

// A level of a distributed run is held if it is in every part that measured it.
func TestMergeLevels(t *testing.T) {
	t.Parallel()

	level := func(samples int, value float64, held bool) summaryLevel {
		return summaryLevel{Metric: "m", Threshold: "p(95)<50", Samples: samples, Value: &value, Held: held}
	}

	for name, c := range map[string]struct {
		parts   []summaryLevel
		samples int
		value   float64
		state   LevelState
	}{
		"one part":               {parts: []summaryLevel{level(9, 20, true)}, samples: 9, value: 20, state: levelHeld},
		"both hold":              {parts: []summaryLevel{level(9, 20, true), level(5, 30, true)}, samples: 14, value: 30, state: levelHeld},
		"the first does not":     {parts: []summaryLevel{level(9, 60, false), level(5, 30, true)}, samples: 14, value: 60, state: levelNotHeld},
		"the second does not":    {parts: []summaryLevel{level(9, 20, true), level(5, 60, false)}, samples: 14, value: 60, state: levelNotHeld},
		"one did not measure it": {parts: []summaryLevel{level(0, 0, true), level(5, 30, true)}, samples: 5, value: 30, state: levelHeld},
		"the second did not":     {parts: []summaryLevel{level(5, 30, true), level(0, 0, false)}, samples: 5, value: 30, state: levelHeld},
		"none measured it":       {parts: []summaryLevel{level(0, 0, true), level(0, 0, true)}, samples: 0, value: 0, state: levelNotMeasured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var summaries []summary
			for _, part := range c.parts {
				summaries = append(summaries, summary{Levels: []summaryLevel{part}})
			}

			merged := mergeLevels(summaries)

			if len(merged) != 1 || merged[0].Samples != c.samples || *merged[0].Value != c.value {
				t.Fatalf("merged %+v", merged)
			}

			state := levelOf(merged[0], nil).State
			if state != c.state {
				t.Errorf("the state is %s, want %s", state, c.state)
			}
		})
	}
}

// Which value is the worse one depends on the threshold.
func TestMergeLevels_KeepsTheWorse(t *testing.T) {
	t.Parallel()

	for threshold, values := range map[string]struct{ worse, better float64 }{
		"p(95)<50":   {worse: 80, better: 60},
		"count>=10":  {worse: 4, better: 7},
		"rate==1":    {worse: 0.5, better: 0.9},
		"rate === 1": {worse: 0.5, better: 0.9},
		"count==0":   {worse: 7, better: 4},
	} {
		part := func(value float64) summary {
			return summary{Levels: []summaryLevel{{Metric: "m", Threshold: threshold, Samples: 1, Value: &value}}}
		}

		for _, parts := range [][]summary{{part(values.worse), part(values.better)}, {part(values.better), part(values.worse)}} {
			merged := mergeLevels(parts)
			if *merged[0].Value != values.worse {
				t.Errorf("%s: merged %v, want %v", threshold, *merged[0].Value, values.worse)
			}
		}
	}
}

// A part without a value does not replace one that has a value.
func TestMergeLevels_WithoutAValue(t *testing.T) {
	t.Parallel()

	value := 60.0
	first := summaryLevel{Metric: "m", Threshold: "p(95)<50", Samples: 1, Value: &value}
	second := first
	second.Value = nil

	merged := mergeLevels([]summary{{Levels: []summaryLevel{first}}, {Levels: []summaryLevel{second}}})

	if merged[0].Value != &value || merged[0].Samples != 2 {
		t.Errorf("merged %+v", merged)
	}
}

func TestLevel_FailureNamesBothFigures(t *testing.T) {
	t.Parallel()

	level := levelOf(summaryLevel{
		Metric: "http_req_duration", Threshold: "p(99)<100", Words: "everything is quick",
		Samples: 100, Value: pointerTo(300), Measured: "300 ms", Relative: 20,
	}, emptyOf(30, 2))

	failure := level.failure()

	for _, part := range []string{"NOT HELD", "everything is quick", "p(99)<100 of http_req_duration", "300 ms", "150 times the empty path's 2.0 ms (accepted: 20 times, at most 40.0 ms)"} {
		if !strings.Contains(failure, part) {
			t.Errorf("%q is not in %q", part, failure)
		}
	}
}
