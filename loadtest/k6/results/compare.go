package results

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"vendorapi/loadtest/harness"
)

const (
	// defaultFactor is how many times as long as before a latency may be. A longer one is a
	// regression.
	defaultFactor = 1.5

	// leastSlowdown is how many times as long as before a latency must be by the clock before it can
	// be a regression relative to the empty path. Otherwise a quicker empty path alone would make
	// regressions of latencies that have not changed.
	leastSlowdown = 1.1

	// leastForComparison is how many requests an endpoint must have had, in both runs, before its
	// latencies are compared.
	leastForComparison = 100
)

// Comparison is what has changed between two runs.
type Comparison struct {
	Before string  // when the earlier run began, and which commit it tested
	Factor float64 // how many times as long as before a latency may be

	// OwnSystems says that the driver started the systems of both runs. Then latencies are compared
	// relative to the empty path, which shows how fast the machine was. Otherwise they are compared
	// as they are: the network and proxies are part of what is tested.
	OwnSystems bool

	// Warnings say what makes the runs hard to compare.
	Warnings []string

	Rows        []ComparisonRow
	Regressions []string // sentences; empty if there is no regression

	// Incomparable says why no latency could be compared; empty if one could.
	Incomparable string
}

// ComparisonRow is one figure of one script.
type ComparisonRow struct {
	Script string
	Figure string // such as "POST /orders 201 p95"
	Unit   string // as it stands behind a number, with the space before it

	Before, After *float64 // nil: not measured
	Ratio         *float64 // of After to Before

	// RelativeRatio is Ratio with each latency divided by the empty path's of its own run. So it
	// does not depend on how fast the machine was. It is nil where this cannot be computed.
	RelativeRatio *float64

	Note       string // why a ratio is missing; empty if none is
	Regression bool

	canRegress bool // a latency whose percentile does not move by chance
}

// Compare compares two runs. A latency that is more than factor times as long as before is a
// regression; factor 0 stands for 1.5. Between two runs of the driver's own systems this is so
// relative to the empty path, and the latency must be longer by the clock as well.
func Compare(before, after *Run, factor float64) *Comparison {
	if factor <= 0 {
		factor = defaultFactor
	}

	c := &Comparison{
		Before: fmt.Sprintf("%s, commit %s", before.Began.Format("2 January 2006, 15:04"), before.Machine.Commit),
		Factor: factor,

		OwnSystems: before.Target == OwnSystems && after.Target == OwnSystems,
	}

	c.warn(before, after)

	hasCommonScript := false
	for _, script := range after.Scripts {
		earlier := before.script(script.Name)
		if earlier == nil {
			c.Warnings = append(c.Warnings, "the earlier run has no script "+script.Name)
			continue
		}

		hasCommonScript = true
		c.warnOfFailure("the earlier run", earlier)
		c.warnOfFailure("this run", script)
		c.compareScripts(earlier, script)
	}

	for _, script := range before.Scripts {
		if after.script(script.Name) == nil {
			c.Warnings = append(c.Warnings, "this run has no script "+script.Name)
		}
	}

	for i := range c.Rows {
		row := &c.Rows[i]
		if row.Regression {
			c.Regressions = append(c.Regressions, c.regression(row))
		}
	}

	c.Incomparable = c.whyIncomparable(hasCommonScript)

	return c
}

// regression says in a sentence what became slower.
func (c *Comparison) regression(row *ComparisonRow) string {
	text := fmt.Sprintf("%s: %s is %.1f times as long: %s before, %s now",
		row.Script, row.Figure, *row.Ratio, row.format(row.Before), row.format(row.After))
	if c.OwnSystems {
		text += fmt.Sprintf("; relative to the empty path %.1f times", *row.RelativeRatio)
	}

	return text
}

// whyIncomparable returns why no latency could be compared; empty if one could. hasCommonScript
// says whether any script is in both runs.
func (c *Comparison) whyIncomparable(hasCommonScript bool) string {
	if !hasCommonScript {
		return "no script is in both runs"
	}

	for i := range c.Rows {
		if c.isDecided(&c.Rows[i]) {
			return ""
		}
	}

	why := fmt.Sprintf("no endpoint was answered successfully at least %d times in both runs", leastForComparison)
	if c.OwnSystems {
		why += fmt.Sprintf(", with at least %d answers from the empty path beside it", leastForRelative)
	}

	return why
}

// isDecided reports whether it is known if a row is a regression.
func (c *Comparison) isDecided(row *ComparisonRow) bool {
	if c.OwnSystems {
		return row.canRegress && row.Ratio != nil && row.RelativeRatio != nil
	}

	return row.canRegress && row.Ratio != nil
}

// isRegression reports whether a row's latency became too long.
func (c *Comparison) isRegression(row *ComparisonRow) bool {
	if !c.isDecided(row) {
		return false
	}
	if c.OwnSystems {
		return *row.RelativeRatio > c.Factor && *row.Ratio > leastSlowdown
	}

	return *row.Ratio > c.Factor
}

// Err returns an error if nothing could be compared, or if anything became slower. Its text names
// all regressions.
func (c *Comparison) Err() error {
	if c.Incomparable != "" {
		return errors.New("nothing could be compared: " + c.Incomparable)
	}
	if len(c.Regressions) > 0 {
		return errors.New("slower than before: " + strings.Join(c.Regressions, "; "))
	}

	return nil
}

// script returns the script of a name; nil if there is none.
func (r *Run) script(name string) *Script {
	for _, script := range r.Scripts {
		if script.Name == name {
			return script
		}
	}

	return nil
}

// warn sets Warnings, except those about missing scripts.
func (c *Comparison) warn(before, after *Run) {
	earlier, later := &before.Machine, &after.Machine
	sameMachine := earlier.CPU == later.CPU && earlier.Cores == later.Cores && earlier.Memory == later.Memory
	if !sameMachine {
		warning := fmt.Sprintf("the machines differ (%s, %d cores; %s, %d cores)", earlier.CPU, earlier.Cores, later.CPU, later.Cores)
		if c.OwnSystems {
			warning += ": only what is relative to the empty path can be compared"
		}
		c.Warnings = append(c.Warnings, warning)
	}

	if before.Target != after.Target {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the targets differ: %s before, %s now", before.Target, after.Target))
	}

	if before.K6 != after.K6 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the versions of k6 differ: %s before, %s now", before.K6, after.K6))
	}

	if before.Interrupted != "" {
		c.Warnings = append(c.Warnings, "the earlier run was interrupted")
	}

	if after.Interrupted != "" {
		c.Warnings = append(c.Warnings, "this run was interrupted")
	}
}

// warnOfFailure adds a warning if a script failed: its figures are those of another load, or of fewer answers.
func (c *Comparison) warnOfFailure(run string, script *Script) {
	if !script.Passed() {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s failed in %s", script.Name, run))
	}
}

// warnOfEmptyPath adds a warning if the empty path itself became much slower or quicker: then the
// machine, k6 or the network was another one.
func (c *Comparison) warnOfEmptyPath(before, after *Script) {
	if !hasBaseline(before) || !hasBaseline(after) {
		return
	}

	earlier, later := before.Baseline.P50, after.Baseline.P50
	isMuchSlower := float64(later) > c.Factor*float64(earlier)
	isMuchQuicker := float64(earlier) > c.Factor*float64(later)
	if isMuchSlower || isMuchQuicker {
		warning := fmt.Sprintf("%s: the empty path itself took p50 %s before and %s now: k6, the machine or the network changed",
			after.Name, formatLatency(earlier), formatLatency(later))
		c.Warnings = append(c.Warnings, warning)
	}
}

// formatLatency returns a latency with as many digits as it needs, as the table shows it.
func formatLatency(latency Latency) string {
	row := ComparisonRow{Unit: " ms"}

	return row.format(pointerTo(float64(latency)))
}

// compareScripts adds the rows of one script.
func (c *Comparison) compareScripts(before, after *Script) {
	c.warnOfEmptyPath(before, after)

	for i := range after.Endpoints {
		endpoint := &after.Endpoints[i]
		if isSuccess(endpoint.Status) {
			c.compareEndpoints(before, after, before.endpoint(endpoint.Name, endpoint.Status), endpoint)
		}
	}

	for i := range before.Endpoints {
		endpoint := &before.Endpoints[i]
		isMissing := isSuccess(endpoint.Status) && after.endpoint(endpoint.Name, endpoint.Status) == nil
		if isMissing {
			c.Rows = append(c.Rows, ComparisonRow{Script: after.Name, Figure: endpoint.answers(), Note: "not in this run"})
		}
	}

	createsOrders := before.Counts.OrdersAccepted > 0 || after.Counts.OrdersAccepted > 0
	if createsOrders {
		c.addRow(ComparisonRow{
			Script: after.Name, Figure: "orders accepted", Unit: "/s",
			Before: before.ordersPerSecond(), After: after.ordersPerSecond(),
		})
	}

	c.addRow(ComparisonRow{
		Script: after.Name, Figure: "iterations dropped", Unit: "",
		Before: pointerTo(float64(before.Counts.Dropped)), After: pointerTo(float64(after.Counts.Dropped)),
	})

	c.compareKnees(before, after)
}

// isSuccess reports whether a status is 2xx.
func isSuccess(status int) bool { return status >= 200 && status < 300 }

// endpoint returns the row of an endpoint and status; nil if there is none.
func (s *Script) endpoint(name string, status int) *Endpoint {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.Name == name && e.Status == status {
			return e
		}
	}

	return nil
}

// ordersPerSecond returns how many orders were accepted per second; nil if the script took no time.
func (s *Script) ordersPerSecond() *float64 {
	if s.TookSeconds <= 0 {
		return nil
	}

	return pointerTo(float64(s.Counts.OrdersAccepted) / s.TookSeconds)
}

// compareEndpoints adds the rows of one endpoint; earlier is nil if the run before had no such
// requests. Only p50 and p95 can be regressions: so few requests decide p99 that chance moves it.
func (c *Comparison) compareEndpoints(before, after *Script, earlier, endpoint *Endpoint) {
	row := ComparisonRow{Script: after.Name, Figure: endpoint.answers(), Unit: " ms"}
	if earlier == nil {
		row.Note = "not in the earlier run"
		c.Rows = append(c.Rows, row)
		return
	}

	if earlier.Latency.Count < leastForComparison || endpoint.Latency.Count < leastForComparison {
		row.Note = fmt.Sprintf("too few: %d and %d requests, %d are needed", earlier.Latency.Count, endpoint.Latency.Count, leastForComparison)
		c.Rows = append(c.Rows, row)
		return
	}

	emptyBefore, emptyAfter := Percentiles{}, Percentiles{}
	hasBaselines := hasBaseline(before) && hasBaseline(after)
	if hasBaselines {
		emptyBefore, emptyAfter = *before.Baseline, *after.Baseline
	}

	if !hasBaselines && c.OwnSystems {
		row.Note = "no empty path to compare with"
	}

	earlierLatency, latency := earlier.Latency, endpoint.Latency
	c.addLatencies(row, []latencyChange{
		{name: "p50", before: earlierLatency.P50, after: latency.P50, emptyBefore: emptyBefore.P50, emptyAfter: emptyAfter.P50, decisive: true},
		{name: "p95", before: earlierLatency.P95, after: latency.P95, emptyBefore: emptyBefore.P95, emptyAfter: emptyAfter.P95, decisive: true},
		{name: "p99", before: earlierLatency.P99, after: latency.P99, emptyBefore: emptyBefore.P99, emptyAfter: emptyAfter.P99, decisive: false},
	})
}

// latencyChange is a percentile of an endpoint in two runs, beside that of the empty path.
type latencyChange struct {
	name string // such as "p95"

	before, after           Latency
	emptyBefore, emptyAfter Latency // 0: not known

	decisive bool // a change may be a regression
}

// addLatencies adds a row for each percentile of an endpoint. base is what the rows share.
func (c *Comparison) addLatencies(base ComparisonRow, changes []latencyChange) {
	for _, change := range changes {
		row := base
		row.Figure += " " + change.name
		row.Before = pointerTo(float64(change.before))
		row.After = pointerTo(float64(change.after))
		row.canRegress = change.decisive

		relatable := change.before > 0 && change.emptyBefore > 0 && change.emptyAfter > 0
		if relatable {
			ratio := float64((change.after / change.emptyAfter) / (change.before / change.emptyBefore))
			row.RelativeRatio = &ratio
		}

		c.addRow(row)
	}
}

// hasBaseline reports whether the empty path was requested often enough to compare with it.
func hasBaseline(s *Script) bool { return s.Baseline != nil && s.Baseline.Count >= leastForRelative }

// compareKnees adds a row for the knees, if both scripts have a ramp.
func (c *Comparison) compareKnees(before, after *Script) {
	if before.Ramp == nil || after.Ramp == nil {
		return
	}

	row := ComparisonRow{Script: after.Name, Figure: "knee", Unit: "/s", Before: before.Ramp.Knee, After: after.Ramp.Knee}
	if row.Before == nil || row.After == nil {
		row.Note = fmt.Sprintf("%s before, %s now", before.Ramp.KneeWords, after.Ramp.KneeWords)
	}

	c.addRow(row)
}

// addRow adds a row with its ratio, and decides whether it is a regression.
func (c *Comparison) addRow(row ComparisonRow) {
	hasRatio := row.Before != nil && row.After != nil && *row.Before > 0
	if hasRatio {
		row.Ratio = pointerTo(*row.After / *row.Before)
	}
	row.Regression = c.isRegression(&row)

	c.Rows = append(c.Rows, row)
}

// rowsOf returns the rows of one script.
func (c *Comparison) rowsOf(script string) []ComparisonRow {
	var rows []ComparisonRow
	for _, row := range c.Rows {
		if row.Script == script {
			rows = append(rows, row)
		}
	}

	return rows
}

// format returns a value with its unit, or "-" for one that was not measured.
func (r *ComparisonRow) format(value *float64) string {
	if value == nil || math.IsInf(*value, 0) {
		return "-"
	}

	return harness.Number(*value) + r.Unit
}

// Values returns the earlier and the later value, the ratio and the relative one, as text.
func (r *ComparisonRow) Values() []string {
	return []string{r.format(r.Before), r.format(r.After), formatRatio(r.Ratio), formatRatio(r.RelativeRatio)}
}

func formatRatio(ratio *float64) string {
	if ratio == nil {
		return "-"
	}

	return harness.Number(*ratio)
}

// Words returns "REGRESSION" for a row that is one, and the note of any other.
func (r *ComparisonRow) Words() string {
	if r.Regression {
		return "REGRESSION"
	}

	return r.Note
}

// WriteTable writes the comparison for a terminal.
func (c *Comparison) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "Compared with the run of %s\n", c.Before)
	for _, warning := range c.Warnings {
		fmt.Fprintf(table, "WARNING: %s\n", warning)
	}

	fmt.Fprint(table, "\nscript\tfigure\tbefore\tnow\tratio\trelative to the empty path\t\n")
	for i := range c.Rows {
		row := &c.Rows[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", row.Script, row.Figure, strings.Join(row.Values(), "\t"), row.Words())
	}

	if c.Incomparable != "" {
		fmt.Fprintf(table, "\nNOTHING COULD BE COMPARED: %s\n", c.Incomparable)
	} else {
		fmt.Fprintf(table, "\nregressions beyond %.4g times: %d\n", c.Factor, len(c.Regressions))
	}

	for _, regression := range c.Regressions {
		fmt.Fprintf(table, "- %s\n", regression)
	}

	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}

	return nil
}

func pointerTo(value float64) *float64 { return &value }
