// Package harness is what the load tests and benchmarks share: figures with their limits, the table and the JSON;
// what processes use; the machine that it was measured on; a load generator.
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

// Figure is one line of the table: what is measured and accepted, what the rounds
// found, and what Check makes of them.
type Figure struct {
	Key    string  `json:"key"`
	Title  string  `json:"title"`
	Unit   string  `json:"unit,omitempty"`
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	// Rounds were measured in turn with Bases, if there is a Baseline. Their ratio
	// is taken round by round, so that what slows a whole round down cancels out.
	Rounds   []float64 `json:"rounds"`
	Baseline string    `json:"baseline,omitempty"`
	Measured *Spread   `json:"measured,omitempty"` // with a baseline only, as the next three
	Base     *Spread   `json:"base,omitempty"`
	Ratio    *Spread   `json:"ratio,omitempty"` // absent when the baseline is 0
	Bases    []float64 `json:"base_rounds,omitempty"`
	Limit    *Limit    `json:"limit,omitempty"`
	Result   string    `json:"result,omitempty"`
	Note     string    `json:"note,omitempty"` // at the end of the line
	Aside    bool      `json:"-"`              // in the JSON only
}

// Limit is what is accepted of a figure: either of the bounds.
type Limit struct {
	// Of is the value that is compared: the median of the rounds ("" and, beside a
	// baseline, "measured"), the median "ratio", the "least" or the "most" of the
	// rounds. Other programs can only make a time longer, so its least is certain.
	Of      string   `json:"of,omitempty"`
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
	// AnyMachine marks what holds on any machine and in a run of any length, so that a quick run compares it, too.
	AnyMachine bool   `json:"any_machine,omitempty"`
	Why        string `json:"why,omitempty"`
}

// String is ">= 3" or "ratio >= 3".
func (l *Limit) String() string {
	sign, bound := ">=", l.AtLeast
	if bound == nil {
		sign, bound = "<=", l.AtMost
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", l.Of, sign, Number(*bound)))
}

// Results. A figure without a limit, or whose limit a quick run cannot check, has none.
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

// Check compares every figure with its limit and returns those that are
// measurements. The error names the others and each that misses its limit.
func Check(figures []*Figure, quick bool) (measured []*Figure, err error) {
	var faults []error
	for _, f := range figures {
		if err := f.summarize(); err != nil {
			faults = append(faults, err)
			continue
		}
		measured = append(measured, f)
		if f.Limit != nil && (f.Limit.AnyMachine || !quick) {
			faults = append(faults, f.check())
		}
	}
	return measured, errors.Join(faults...)
}

// summarize fills in what follows from the rounds.
func (f *Figure) summarize() error {
	noNumber := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	switch {
	case len(f.Rounds) == 0 || slices.ContainsFunc(slices.Concat(f.Rounds, f.Bases), noNumber):
		return fmt.Errorf("%s: %v and %v are no measurement", f.Key, f.Rounds, f.Bases)
	case f.Baseline != "" && len(f.Bases) != len(f.Rounds):
		return fmt.Errorf("%s: %d rounds, %d of the baseline", f.Key, len(f.Rounds), len(f.Bases))
	}
	measured := SpreadOf(f.Rounds)
	f.Median, f.Least, f.Most = measured.Median, measured.Min, measured.Max
	if f.Baseline != "" {
		var ratios []float64
		for i, base := range f.Bases {
			if base != 0 {
				ratios = append(ratios, f.Rounds[i]/base)
			}
		}
		f.Measured, f.Base, f.Ratio = measured, SpreadOf(f.Bases), SpreadOf(ratios)
	}
	if f.Limit != nil && f.Limit.Of == "ratio" && f.Ratio == nil {
		return fmt.Errorf("%s: there is no ratio", f.Key)
	}
	return nil
}

func (f *Figure) check() error {
	checked, unit := f.Median, f.Unit
	switch f.Limit.Of {
	case "least":
		checked = f.Least
	case "most":
		checked = f.Most
	case "ratio":
		checked, unit = f.Ratio.Median, ""
	}
	if f.Limit.AtLeast != nil && checked >= *f.Limit.AtLeast || f.Limit.AtMost != nil && checked <= *f.Limit.AtMost {
		f.Result = Passed
		return nil
	}
	f.Result = Missed
	return fmt.Errorf("%s is %s, accepted is %s", f.Key, strings.TrimSpace(Number(checked)+" "+unit), f.Limit)
}

// Print writes the table: one line for each figure, but for those aside. Columns
// for baselines are there when a figure has one.
func Print(out io.Writer, figures []*Figure) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	baselines, above := "", ""
	if slices.ContainsFunc(figures, func(f *Figure) bool { return f.Ratio != nil }) {
		baselines = "baseline\tratio\t"
	}
	fmt.Fprintf(w, "\tmeasured\t%saccepted\t\t\n", baselines)
	for _, f := range figures {
		if f.Aside {
			continue
		}
		title, measured := f.Title, strings.TrimSpace((&Spread{f.Median, f.Least, f.Most}).String()+" "+f.Unit)
		if title == above { // the same figure to another baseline
			title, measured = "", ""
		}
		above = f.Title
		fmt.Fprintf(w, "%s\t%s\t", title, measured)
		switch {
		case f.Ratio != nil:
			fmt.Fprintf(w, "%s  %s\t%s\t", Number(f.Base.Median), f.Baseline, f.Ratio)
		case baselines != "":
			fmt.Fprint(w, "\t\t")
		}
		accepted := ""
		if f.Limit != nil {
			accepted = f.Limit.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", accepted, f.Result, f.Note)
	}
	_ = w.Flush() // the exit status says whether all is well
	fmt.Fprintln(out)
}

// WriteJSON writes what a run has found to a file and prints where.
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

// Median is between the two middle ones of an even number of figures; NaN of none.
func Median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Quantile is by the nearest rank, q from 0 to 1; NaN of no figures.
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
func Grouped[N int | int64](n N) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + " " + digits[at:]
	}
	return digits
}
