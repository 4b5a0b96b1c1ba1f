package results

import (
	"slices"
	"strings"
	"testing"

	"vendorapi/loadtest/harness"
)

// comparableScript is a script with 200 orders at the given p50 and an empty path at another one;
// p95 is twice, p99 four times as long.
func comparableScript(created, empty Latency) *Script {
	percentiles := func(count int, p50 Latency) Percentiles {
		return Percentiles{Count: count, P50: p50, P95: 2 * p50, P99: 4 * p50}
	}
	baseline := percentiles(20, empty)

	return &Script{
		Name: "steady", TookSeconds: 10,
		Endpoints: []Endpoint{
			{Name: createOrder, Status: 201, Latency: percentiles(200, created)},
			{Name: createOrder, Status: 429, Latency: percentiles(200, created)},
		},
		Baseline: &baseline,
		Counts:   Counts{OrdersAccepted: 200},
	}
}

func runOf(scripts ...*Script) *Run {
	return &Run{Began: start, Target: OwnSystems, Machine: harness.Machine{CPU: "x", Cores: 2, Commit: "abc"}, Scripts: scripts}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	few := comparableScript(100, 1)
	few.Endpoints[0].Latency.Count = 99
	noBaseline := comparableScript(100, 1)
	noBaseline.Baseline = nil
	other := comparableScript(10, 1)
	other.Endpoints[0].Name = "POST /other"

	for name, c := range map[string]struct {
		before, after *Script
		relative      string // of p50 and p95; "-": none
		note          string // of the first row
		regressions   int
	}{
		"the same":                        {before: comparableScript(10, 1), after: comparableScript(10, 1), relative: "1", regressions: 0},
		"slower":                          {before: comparableScript(10, 1), after: comparableScript(16, 1), relative: "1.60", regressions: 2},
		"slower, within the factor":       {before: comparableScript(10, 1), after: comparableScript(15, 1), relative: "1.50", regressions: 0},
		"slower on a slower machine":      {before: comparableScript(10, 1), after: comparableScript(30, 3), relative: "1", regressions: 0},
		"as quick on a quicker machine":   {before: comparableScript(10, 2), after: comparableScript(10, 1), relative: "2", regressions: 2},
		"too few":                         {before: comparableScript(10, 1), after: few, relative: "-", note: "too few: 200 and 99 requests, 100 are needed", regressions: 0},
		"no empty path to compare with":   {before: noBaseline, after: comparableScript(200, 1), relative: "-", note: "no empty path to compare with", regressions: 0},
		"another endpoint":                {before: other, after: comparableScript(10, 1), relative: "-", note: "not in the earlier run", regressions: 0},
		"an earlier latency of no length": {before: comparableScript(0, 1), after: comparableScript(10, 1), relative: "-", regressions: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			comparison := Compare(runOf(c.before), runOf(c.after), 0)

			first := comparison.Rows[0]
			if formatRatio(first.RelativeRatio) != c.relative || first.Note != c.note {
				t.Errorf("the first row is %+v", first)
			}
			if len(comparison.Regressions) != c.regressions || len(comparison.Warnings) != 0 {
				t.Errorf("regressions %q, warnings %q", comparison.Regressions, comparison.Warnings)
			}
		})
	}
}

func TestCompare_WarnsOfDifferentRuns(t *testing.T) {
	t.Parallel()
	before, after := runOf(comparableScript(10, 1)), runOf(comparableScript(10, 1))
	before.Machine.Cores = 64
	before.Target = "https://staging.example.com"
	before.K6 = "v1.8.0"
	before.Interrupted = "Ctrl-C"
	after.Interrupted = "Ctrl-C"
	before.Scripts[0].Name = "soak"

	comparison := Compare(before, after, 2)

	want := []string{"the machines differ", "the targets differ", "the versions of k6 differ", "the earlier run was interrupted",
		"this run was interrupted", "the earlier run has no script steady", "this run has no script soak"}
	if !slices.EqualFunc(comparison.Warnings, want, strings.HasPrefix) || len(comparison.Rows) != 0 {
		t.Errorf("warnings: %q", comparison.Warnings)
	}
}

func TestComparison_WriteTable(t *testing.T) {
	t.Parallel()
	before, after := buildRamp(t), buildRamp(t)
	after.endpoint(createOrder, 201).Latency.P95 *= 3
	after.Ramp.Knee = nil
	after.Ramp.KneeWords = "below the lowest rate"
	after.Endpoints = slices.DeleteFunc(after.Endpoints, func(e Endpoint) bool { return e.Name == "POST /token" })
	var table strings.Builder

	if err := Compare(runOf(before), runOf(after), 0).WriteTable(&table); err != nil {
		t.Fatal(err)
	}

	text := strings.Join(strings.Fields(table.String()), " ")
	for _, part := range []string{
		"Compared with the run of 21 November 2026, 12:00, commit abc",
		"script figure before now ratio relative to the empty path",
		"ramp POST /orders 201 p95", "3 3 REGRESSION",
		"ramp POST /token 200 - - - - not in this run",
		"ramp orders accepted 34.3/s 34.3/s 1 -", "ramp iterations dropped 35 35 1 -",
		"ramp knee 40/s - - - 40/s before, below the lowest rate now",
		"regressions beyond 1.5 times: 1 - ramp: POST /orders 201 p95 is 3.0 times as long relative to the empty path",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, table.String())
		}
	}
}
