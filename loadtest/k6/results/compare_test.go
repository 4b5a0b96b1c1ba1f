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
		"as quick on a quicker machine":   {before: comparableScript(10, 2), after: comparableScript(10, 1), relative: "2", regressions: 0},
		"quicker, the empty path more so": {before: comparableScript(29, 10), after: comparableScript(1, 0.1), relative: "3.45", regressions: 0},
		"slower on a quicker machine":     {before: comparableScript(10, 2), after: comparableScript(11.2, 1), relative: "2.24", regressions: 2},
		"hardly slower, quicker machine":  {before: comparableScript(10, 2), after: comparableScript(10.9, 1), relative: "2.18", regressions: 0},
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
			if len(comparison.Regressions) != c.regressions {
				t.Errorf("regressions %q", comparison.Regressions)
			}
		})
	}
}

// Between deployments the network and proxies are compared, too, so the empty path excuses nothing.
func TestCompare_ComparesDeploymentsAbsolutely(t *testing.T) {
	t.Parallel()

	noBaseline := comparableScript(10, 1)
	noBaseline.Baseline = nil

	for name, c := range map[string]struct {
		before, after *Script
		regressions   []string
	}{
		"slower through a slower network": {
			before: comparableScript(10, 1), after: comparableScript(30, 3),
			regressions: []string{
				"steady: POST /orders 201 p50 is 3.0 times as long: 10 ms before, 30 ms now",
				"steady: POST /orders 201 p95 is 3.0 times as long: 20 ms before, 60 ms now",
			},
		},
		"slower, without an empty path":      {before: noBaseline, after: comparableScript(16, 1), regressions: []string{"steady: POST", "steady: POST"}},
		"as quick through a quicker network": {before: comparableScript(10, 2), after: comparableScript(10, 1), regressions: nil},
		"slower, within the factor":          {before: comparableScript(10, 2), after: comparableScript(15, 1), regressions: nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before, after := runOf(c.before), runOf(c.after)
			after.Target = "https://staging.example.com"

			comparison := Compare(before, after, 0)

			if !slices.EqualFunc(comparison.Regressions, c.regressions, strings.HasPrefix) || comparison.Incomparable != "" {
				t.Errorf("regressions %q, incomparable %q", comparison.Regressions, comparison.Incomparable)
			}
			if comparison.Rows[0].Note != "" {
				t.Errorf("the note is %q, though a ratio is there", comparison.Rows[0].Note)
			}
		})
	}
}

func TestCompare_WarnsOfAnotherEmptyPath(t *testing.T) {
	t.Parallel()

	few := comparableScript(10, 1)
	few.Baseline.Count = leastForRelative - 1

	for name, c := range map[string]struct {
		before, after *Script
		want          []string
	}{
		"slower":                    {before: comparableScript(10, 1), after: comparableScript(10, 2), want: []string{"steady: the empty path itself took p50 1 ms before and 2 ms now: k6, the machine or the network changed"}},
		"quicker":                   {before: comparableScript(10, 0.2), after: comparableScript(10, 0.1), want: []string{"steady: the empty path itself took p50 0.20 ms before and 0.10 ms now: k6, the machine or the network changed"}},
		"slower, within the factor": {before: comparableScript(10, 2), after: comparableScript(10, 3), want: nil},
		"too few":                   {before: few, after: comparableScript(10, 9), want: nil},
	} {
		comparison := Compare(runOf(c.before), runOf(c.after), 0)

		if !slices.Equal(comparison.Warnings, c.want) {
			t.Errorf("%s: warnings %q", name, comparison.Warnings)
		}
	}
}

func TestComparison_Err(t *testing.T) {
	t.Parallel()

	const deployment = "https://staging.example.com"
	few := comparableScript(10, 1)
	few.Endpoints[0].Latency.Count = leastForComparison - 1
	noBaseline := comparableScript(10, 1)
	noBaseline.Baseline = nil
	other := comparableScript(10, 1)
	other.Name = "burst"

	for name, c := range map[string]struct {
		before, after *Script
		target        string
		want          string // empty: no error
	}{
		"the same": {before: comparableScript(10, 1), after: comparableScript(10, 1), target: OwnSystems, want: ""},
		"slower": {
			before: comparableScript(10, 1), after: comparableScript(16, 1), target: OwnSystems,
			want: "slower than before: steady: POST /orders 201 p50 is 1.6 times as long: 10 ms before, 16 ms now; relative to the empty path 1.6 times; steady: " +
				"POST /orders 201 p95 is 1.6 times as long: 20 ms before, 32 ms now; relative to the empty path 1.6 times",
		},
		"no common script": {before: other, after: comparableScript(10, 1), target: OwnSystems, want: "nothing could be compared: no script is in both runs"},
		"too few": {
			before: few, after: comparableScript(10, 1), target: deployment,
			want: "nothing could be compared: no endpoint was answered successfully at least 100 times in both runs",
		},
		"no empty path": {
			before: noBaseline, after: comparableScript(10, 1), target: OwnSystems,
			want: "nothing could be compared: no endpoint was answered successfully at least 100 times in both runs, with at least 20 answers from the empty path beside it",
		},
		"no empty path of a deployment": {before: noBaseline, after: comparableScript(10, 1), target: deployment, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before, after := runOf(c.before), runOf(c.after)
			before.Target, after.Target = c.target, c.target

			comparison := Compare(before, after, 0)

			got := ""
			if err := comparison.Err(); err != nil {
				got = err.Error()
			}

			if got != c.want {
				t.Errorf("the error is %q, want %q", got, c.want)
			}

			var table strings.Builder
			if err := comparison.WriteTable(&table); err != nil {
				t.Fatal(err)
			}

			saysSo := strings.Contains(table.String(), "NOTHING COULD BE COMPARED: "+comparison.Incomparable)
			if saysSo != (comparison.Incomparable != "") {
				t.Errorf("the table is:\n%s", table.String())
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

func TestCompare_WarnsOfScriptsThatFailed(t *testing.T) {
	t.Parallel()

	before, after := runOf(comparableScript(10, 1)), runOf(comparableScript(10, 1))
	before.Scripts[0].Failures = []string{"a level did not hold"}

	comparison := Compare(before, after, 0)
	backwards := Compare(after, before, 0)

	if !slices.Equal(comparison.Warnings, []string{"steady failed in the earlier run"}) {
		t.Errorf("warnings: %q", comparison.Warnings)
	}
	if !slices.Equal(backwards.Warnings, []string{"steady failed in this run"}) {
		t.Errorf("warnings the other way round: %q", backwards.Warnings)
	}
}

// A script that accepts no order any more shows 0, not "not measured". One that creates none has no such row.
func TestCompare_ShowsThatNoOrderIsAccepted(t *testing.T) {
	t.Parallel()

	before, after := runOf(comparableScript(10, 1)), runOf(comparableScript(10, 1))
	before.Scripts[0].TookSeconds, after.Scripts[0].TookSeconds = 10, 10
	before.Scripts[0].Counts.OrdersAccepted, after.Scripts[0].Counts.OrdersAccepted = 200, 0
	without := runOf(comparableScript(10, 1))
	without.Scripts[0].Counts.OrdersAccepted = 0
	isOfOrders := func(row ComparisonRow) bool { return row.Figure == "orders accepted" }

	rows := Compare(before, after, 0).Rows
	rowsWithout := Compare(without, without, 0).Rows

	at := slices.IndexFunc(rows, isOfOrders)
	if at < 0 || rows[at].After == nil || *rows[at].Before != 20 || *rows[at].After != 0 {
		t.Errorf("rows: %+v", rows)
	}
	if slices.ContainsFunc(rowsWithout, isOfOrders) {
		t.Errorf("rows without orders: %+v", rowsWithout)
	}
}

func TestCompare_WarnsOfOtherMachines(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*harness.Machine){
		"another processor": func(m *harness.Machine) { m.CPU = "y" },
		"more cores":        func(m *harness.Machine) { m.Cores = 64 },
		"more memory":       func(m *harness.Machine) { m.Memory = 64 << 30 },
	} {
		before, after := runOf(comparableScript(10, 1)), runOf(comparableScript(10, 1))
		change(&after.Machine)

		warnings := Compare(before, after, 0).Warnings

		isWarned := len(warnings) == 1 && strings.HasPrefix(warnings[0], "the machines differ (x, 2 cores; ") &&
			strings.HasSuffix(warnings[0], "): only what is relative to the empty path can be compared")
		if !isWarned {
			t.Errorf("%s: warnings %q", name, warnings)
		}
	}
}

// Each percentile is divided by the same percentile of the empty path.
func TestCompare_DividesByTheSamePercentile(t *testing.T) {
	t.Parallel()

	before, after := comparableScript(10, 1), comparableScript(10, 1)
	before.Baseline.P95 *= 2
	before.Baseline.P99 *= 4
	after.Baseline.P99 *= 8

	rows := Compare(runOf(before), runOf(after), 0).Rows

	ratios := []string{formatRatio(rows[0].RelativeRatio), formatRatio(rows[1].RelativeRatio), formatRatio(rows[2].RelativeRatio)}
	if !slices.Equal(ratios, []string{"1", "2", "0.50"}) {
		t.Errorf("relative ratios: %q", ratios)
	}
}

func TestCompare_UsesTheFactor(t *testing.T) {
	t.Parallel()

	for factor, want := range map[float64]int{0: 2, 1.5: 2, 2: 0} {
		comparison := Compare(runOf(comparableScript(10, 1)), runOf(comparableScript(16, 1)), factor)

		if len(comparison.Regressions) != want {
			t.Errorf("factor %v: regressions %q", factor, comparison.Regressions)
		}
	}
}

// A deployment is compared absolutely, whichever of both runs was against it.
func TestCompare_OfOneDeployment(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ before, after string }{
		"the earlier run": {before: "a deployment", after: OwnSystems},
		"the later run":   {before: OwnSystems, after: "a deployment"},
	} {
		before, after := runOf(comparableScript(10, 1)), runOf(comparableScript(30, 3))
		before.Target, after.Target = c.before, c.after
		after.Machine.Cores = 4

		comparison := Compare(before, after, 0)

		saysRelative := slices.ContainsFunc(comparison.Warnings, func(w string) bool { return strings.Contains(w, "relative") })
		if comparison.OwnSystems || len(comparison.Regressions) != 2 || saysRelative {
			t.Errorf("%s: regressions %q, warnings %q", name, comparison.Regressions, comparison.Warnings)
		}
	}
}

// What was refused or failed has no row, and a script with a ramp in one run only has no knee.
func TestCompare_ComparesWhatBothRunsHave(t *testing.T) {
	t.Parallel()

	before, after := comparableScript(10, 1), comparableScript(10, 1)
	after.Endpoints = after.Endpoints[:1]
	after.Ramp = &Ramp{}
	after.Baseline.P50 = 0

	rows := Compare(runOf(before), runOf(after), 0).Rows

	var figures []string
	for i := range rows {
		figures = append(figures, rows[i].Figure)
	}

	want := []string{"POST /orders 201 p50", "POST /orders 201 p95", "POST /orders 201 p99", "orders accepted", "iterations dropped"}
	if !slices.Equal(figures, want) {
		t.Errorf("rows: %q", figures)
	}
	if rows[0].RelativeRatio != nil {
		t.Errorf("relative to an empty path of no time: %v", *rows[0].RelativeRatio)
	}
}

func TestComparison_RowsOf(t *testing.T) {
	t.Parallel()

	other := comparableScript(10, 1)
	other.Name = "soak"
	run := runOf(comparableScript(10, 1), other)

	rows := Compare(run, run, 0).rowsOf("soak")

	isOther := slices.ContainsFunc(rows, func(r ComparisonRow) bool { return r.Script != "soak" })
	if len(rows) != 5 || isOther {
		t.Errorf("rows: %+v", rows)
	}
}

func TestScript_OrdersPerSecond(t *testing.T) {
	t.Parallel()

	for want, script := range map[string]*Script{
		"20": {TookSeconds: 10, Counts: Counts{OrdersAccepted: 200}},
		"0":  {TookSeconds: 10},
		"-":  {TookSeconds: 0, Counts: Counts{OrdersAccepted: 200}},
	} {
		got := formatRatio(script.ordersPerSecond())
		if got != want {
			t.Errorf("%v s: %s, want %s", script.TookSeconds, got, want)
		}
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
		"regressions beyond 1.5 times: 1 - ramp: POST /orders 201 p95 is 3.0 times as long: 195 ms before, 584 ms now; relative to the empty path 3.0 times",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, table.String())
		}
	}
}
