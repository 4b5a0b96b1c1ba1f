// This file is the table: figures beside their baselines, and what is accepted of them.

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"vendorapi/loadtest/harness"
)

// A figure is one line of the table: what is measured, beside the baseline of the same run, and
// what is accepted of it. The table shows medians of the rounds.
type figure struct {
	Key  string `json:"key"`
	What string `json:"what"`
	Unit string `json:"unit,omitempty"`

	// Baseline says what the figure is compared with; "" if with nothing.
	Baseline string `json:"baseline,omitempty"`
	Limit    *limit `json:"limit,omitempty"`

	// Values are the figure round by round, Bases the baseline. The ratio is taken in each round,
	// so that what slows a whole round down cancels out.
	Values []float64 `json:"values"`
	Bases  []float64 `json:"baseline_values,omitempty"`

	// What summarize and compare derive from Values and Bases.
	Figure *spread `json:"figure"`
	Base   *spread `json:"baseline_figure,omitempty"`
	Ratio  *spread `json:"ratio,omitempty"` // nil without a baseline, or when all of it is 0
	Result string  `json:"result,omitempty"`

	Note string `json:"note,omitempty"` // at the end of the line
}

// The results of comparing a figure with its limit.
const (
	resultOK     = "ok"
	resultBeyond = "BEYOND"
)

// A limit is either of two bounds, of the median ratio to the baseline or of the greatest figure
// of all rounds.
type limit struct {
	OfRatio bool     `json:"of_ratio"`
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`

	// InShortRuns is set where the limit holds in a run of any length, and beside any other program.
	InShortRuns bool `json:"in_short_runs"`
}

// ratioAtLeast accepts a median ratio from the bound on.
func ratioAtLeast(bound float64) *limit {
	return &limit{OfRatio: true, AtLeast: &bound}
}

// ratioAtMost accepts a median ratio up to the bound.
func ratioAtMost(bound float64) *limit {
	return &limit{OfRatio: true, AtMost: &bound}
}

// shareAtMost accepts a part of what the baseline counts. Like atMost it holds in a short run.
func shareAtMost(bound float64) *limit {
	return &limit{OfRatio: true, AtMost: &bound, InShortRuns: true}
}

// atMost accepts a figure up to the bound in every round. It is for what no other program and no
// faster machine changes: counts, and bytes.
func atMost(bound float64) *limit {
	return &limit{AtMost: &bound, InShortRuns: true}
}

// String returns a text such as "ratio >= 0.50", or "<= 200".
func (l *limit) String() string {
	sign, bound := ">=", l.AtLeast
	if bound == nil {
		sign, bound = "<=", l.AtMost
	}

	text := sign + " " + number(*bound)
	if l.OfRatio {
		text = "ratio " + text
	}

	return text
}

// accepts reports whether a value is within the bound.
func (l *limit) accepts(value float64) bool {
	if l.AtLeast != nil {
		return value >= *l.AtLeast
	}
	return value <= *l.AtMost
}

// A spread summarizes the rounds of a figure.
type spread struct {
	Median   float64 `json:"median"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
}

// spreadOf summarizes rounds. It panics if there are none.
func spreadOf(rounds []float64) *spread {
	return &spread{
		Median:   harness.Median(rounds),
		Least:    slices.Min(rounds),
		Greatest: slices.Max(rounds),
	}
}

// String returns a text such as "0.52 (0.50..0.55)", or "0.52" if all rounds are the same.
func (s *spread) String() string {
	if s.Least == s.Greatest {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Least), number(s.Greatest))
}

// number writes a figure with about three digits, and two of a small share.
func number(v float64) string {
	if v > 0 && v < 0.0995 {
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return harness.Number(v)
}

// check summarizes every figure and compares it with its limit, in a short run only where the limit
// holds there, too. The error names the figures that were not measured and those beyond their limits.
func check(figures []*figure, short bool) error {
	var failures []error
	for _, f := range figures {
		err := f.summarize()
		if err == nil && f.Limit != nil && (f.Limit.InShortRuns || !short) {
			err = f.compare()
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// summarize sets the spreads of the figure, of its baseline and of their ratio. It fails if the figure was not measured, if
// a round is not a number, or if the baseline has another number of rounds.
func (f *figure) summarize() error {
	isNoNumber := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	all := slices.Concat(f.Values, f.Bases)

	switch {
	case len(f.Values) == 0:
		return fmt.Errorf("%s was not measured", f.Key)
	case slices.ContainsFunc(all, isNoNumber):
		return fmt.Errorf("%s: %v and %v are no measurement", f.Key, f.Values, f.Bases)
	case f.Baseline != "" && len(f.Bases) != len(f.Values):
		return fmt.Errorf("%s: %d rounds, %d of the baseline", f.Key, len(f.Values), len(f.Bases))
	}

	f.Figure = spreadOf(f.Values)
	if f.Baseline == "" {
		return nil
	}

	f.Base = spreadOf(f.Bases)
	var ratios []float64
	for i, base := range f.Bases {
		if base != 0 {
			ratios = append(ratios, f.Values[i]/base)
		}
	}

	if len(ratios) > 0 {
		f.Ratio = spreadOf(ratios)
	}

	return nil
}

// compare sets the result of a figure that has a limit. It fails if the figure is beyond the limit, or if the limit is one
// of the ratio and there is no ratio. summarize must have been called.
func (f *figure) compare() error {
	var compared float64
	switch {
	case !f.Limit.OfRatio:
		compared = f.Figure.Greatest
	case f.Ratio != nil:
		compared = f.Ratio.Median
	default:
		return fmt.Errorf("%s: there is no ratio, its baseline is %v", f.Key, f.Bases)
	}

	if f.Limit.accepts(compared) {
		f.Result = resultOK
		return nil
	}

	f.Result = resultBeyond

	return fmt.Errorf("%s is %s, the limit is %s", f.Key, number(compared), f.Limit)
}

// printTable writes a line for each figure that has been summarized, and leaves the others out.
func printTable(out io.Writer, figures []*figure) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tfigure\tunit\tbaseline of the same run\tratio\tlimit\t\t")

	previous := ""
	for _, f := range figures {
		if f.Figure == nil {
			continue
		}

		// The same figure to another baseline stands in the table once.
		what, value, unit := f.What, f.Figure.String(), f.Unit
		if what == previous {
			what, value, unit = "", "", ""
		}

		previous = f.What
		baseline, ratio, accepted := "", "", ""
		if f.Base != nil {
			baseline = fmt.Sprintf("%s  %s", number(f.Base.Median), f.Baseline)
		}

		if f.Ratio != nil {
			ratio = f.Ratio.String()
		}

		if f.Limit != nil {
			accepted = f.Limit.String()
		}

		fmt.Fprintln(w, strings.Join([]string{what, value, unit, baseline, ratio, accepted, f.Result, f.Note}, "\t"))
	}

	_ = w.Flush() // the exit status says whether all is well
	fmt.Fprintln(out)
}
