// Package harness is what the load tests and benchmarks share: figures with
// their limits, the table and the JSON; what processes use; the machine that it
// was measured on; a load generator.
package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figure is one line of the table.
type Figure struct {
	Key    string // its name in the JSON
	Title  string
	Unit   string
	Rounds []float64 // what was measured; the median is judged
	// Base was measured in turn with Rounds; their ratio is taken round by round,
	// so that what slows a whole round down cancels out. Baseline says what it is;
	// empty: there is none.
	Base     []float64
	Baseline string
	Limit    *Limit   // optional
	Note     string   // at the end of the line
	Aside    []Figure // further figures, in the JSON only
}

// Limit is what is accepted of a figure: either of the bounds.
type Limit struct {
	Of      string   `json:"of,omitempty"` // which figure is judged; default: the median of the rounds
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
	// AnyMachine marks what holds on any machine and in a run of any length, so
	// that a quick run judges it, too.
	AnyMachine bool   `json:"any_machine,omitempty"`
	Why        string `json:"why,omitempty"`
}

const (
	ofRatio    = "ratio"    // the median of the ratios to the baseline
	ofMeasured = "measured" // the median of the rounds, beside a baseline
	ofLeast    = "least"    // the least of the rounds
)

// AtLeast accepts what is as great or greater.
func AtLeast(v float64) *Limit { return &Limit{AtLeast: &v} }

// AtMost accepts what is as small or smaller.
func AtMost(v float64) *Limit { return &Limit{AtMost: &v} }

// Always makes a limit hold on any machine.
func Always(l *Limit) *Limit {
	l.AnyMachine = true
	return l
}

// Ratio makes a limit one of the ratio to the baseline.
func Ratio(l *Limit) *Limit {
	l.Of = ofRatio
	return l
}

// Least makes a limit one of the least of the rounds: what is certain of a time,
// which other programs can only make longer.
func Least(l *Limit) *Limit {
	l.Of = ofLeast
	return l
}

// Because says where a limit comes from.
func (l *Limit) Because(why string) *Limit {
	l.Why = why
	return l
}

// String is ">= 3" or "ratio >= 3".
func (l *Limit) String() string {
	sign, bound := ">=", l.AtLeast
	if bound == nil {
		sign, bound = "<=", l.AtMost
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", l.Of, sign, Number(*bound)))
}

// Results. A figure without a limit, or whose limit a quick run cannot judge, has
// none.
const (
	Passed = "ok"
	Missed = "MISSED"
)

// Spread is what several rounds come to.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf is nil of no figures.
func SpreadOf(rounds []float64) *Spread {
	if len(rounds) == 0 {
		return nil
	}
	return &Spread{Median(rounds), slices.Min(rounds), slices.Max(rounds)}
}

// String is "0.52 (0.50..0.55)", or "0.52" of one round.
func (s *Spread) String() string {
	if s.Min == s.Max {
		return Number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", Number(s.Median), Number(s.Min), Number(s.Max))
}

// Judged is a figure as it is written to the JSON.
type Judged struct {
	Key      string    `json:"key"`
	Title    string    `json:"title"`
	Unit     string    `json:"unit,omitempty"`
	Median   float64   `json:"median"`
	Least    float64   `json:"least"`
	Most     float64   `json:"most"`
	Rounds   []float64 `json:"rounds"`
	Baseline string    `json:"baseline,omitempty"`
	Measured *Spread   `json:"measured,omitempty"` // with a baseline only, as the next three
	Base     *Spread   `json:"base,omitempty"`
	Ratio    *Spread   `json:"ratio,omitempty"` // absent when a baseline is 0
	Bases    []float64 `json:"base_rounds,omitempty"`
	Limit    *Limit    `json:"limit,omitempty"`
	Result   string    `json:"verdict,omitempty"`
	Note     string    `json:"note,omitempty"`

	aside bool
}

// Judge compares every figure with its limit. The error names each that misses
// it and each that is no measurement.
func Judge(figures []Figure, quick bool) (all []Judged, err error) {
	var faults []error
	for _, f := range figures {
		for i, each := range append([]Figure{f}, f.Aside...) {
			j, err := each.judge(quick)
			faults = append(faults, err)
			if j != nil {
				j.aside = i > 0
				all = append(all, *j)
			}
		}
	}
	return all, errors.Join(faults...)
}

func (f *Figure) judge(quick bool) (*Judged, error) {
	noNumber := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	switch {
	case len(f.Rounds) == 0 || slices.ContainsFunc(slices.Concat(f.Rounds, f.Base), noNumber):
		return nil, fmt.Errorf("%s: %v and %v are no measurement", f.Key, f.Rounds, f.Base)
	case f.Baseline != "" && len(f.Base) != len(f.Rounds):
		return nil, fmt.Errorf("%s: %d rounds, %d of the baseline", f.Key, len(f.Rounds), len(f.Base))
	}
	measured := SpreadOf(f.Rounds)
	j := &Judged{Key: f.Key, Title: f.Title, Unit: f.Unit, Median: measured.Median, Least: measured.Min, Most: measured.Max,
		Rounds: f.Rounds, Baseline: f.Baseline, Bases: f.Base, Note: f.Note, Limit: f.Limit}
	if f.Baseline != "" {
		var ratios []float64
		for i, base := range f.Base {
			if base != 0 {
				ratios = append(ratios, f.Rounds[i]/base)
			}
		}
		j.Measured, j.Base, j.Ratio = measured, SpreadOf(f.Base), SpreadOf(ratios)
	}
	if f.Limit == nil {
		return j, nil
	}
	if f.Baseline != "" && f.Limit.Of == "" {
		f.Limit.Of = ofMeasured
	}
	judged, unit := j.Median, f.Unit
	switch f.Limit.Of {
	case ofLeast:
		judged = j.Least
	case ofRatio:
		if j.Ratio == nil {
			return nil, fmt.Errorf("%s: there is no ratio to judge", f.Key)
		}
		judged, unit = j.Ratio.Median, ""
	}
	switch {
	case quick && !f.Limit.AnyMachine:
		return j, nil
	case f.Limit.AtLeast != nil && judged >= *f.Limit.AtLeast, f.Limit.AtMost != nil && judged <= *f.Limit.AtMost:
		j.Result = Passed
		return j, nil
	}
	j.Result = Missed
	return j, fmt.Errorf("%s is %s, accepted is %s", f.Key, strings.TrimSpace(Number(judged)+" "+unit), f.Limit)
}

// Print writes the table: one line for each figure, but for those aside. Columns
// for baselines are there when a figure has one.
func Print(out io.Writer, all []Judged) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	baselines, above := "", ""
	if slices.ContainsFunc(all, func(j Judged) bool { return j.Ratio != nil }) {
		baselines = "baseline\tratio\t"
	}
	fmt.Fprintf(w, "\tmeasured\t%saccepted\t\t\n", baselines)
	for _, j := range all {
		if j.aside {
			continue
		}
		title, measured := j.Title, strings.TrimSpace((&Spread{j.Median, j.Least, j.Most}).String()+" "+j.Unit)
		if title == above { // the same figure to another baseline
			title, measured = "", ""
		}
		above = j.Title
		fmt.Fprintf(w, "%s\t%s\t", title, measured)
		switch {
		case j.Ratio != nil:
			fmt.Fprintf(w, "%s  %s\t%s\t", Number(j.Base.Median), j.Baseline, j.Ratio)
		case baselines != "":
			fmt.Fprint(w, "\t\t")
		}
		accepted := ""
		if j.Limit != nil {
			accepted = j.Limit.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", accepted, j.Result, j.Note)
	}
	_ = w.Flush() // nobody reads it: the exit status says whether all is well
	fmt.Fprintln(out)
}

// WriteJSON writes what a run has found to a file and says where.
func WriteJSON(path string, what any, out io.Writer) error {
	content, err := json.MarshalIndent(what, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(content, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	fmt.Fprintln(out, "figures:", path)
	return nil
}

// Median of at least one figure; between the two middle ones of an even number.
func Median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Quantile of at least one figure, by the nearest rank; q is 0 to 1.
func Quantile(figures []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Number writes a figure with three digits or more, thousands set apart.
func Number(v float64) string {
	switch {
	case v >= 999.5:
		return Grouped(int64(math.Round(v)))
	case v >= 99.95 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Grouped sets thousands apart.
func Grouped(n int64) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + " " + digits[at:]
	}
	return digits
}
