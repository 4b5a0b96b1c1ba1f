// Package figures is the sheet of a benchmark: what was measured, what is
// accepted, and the verdict.
//
// It owns medians, limits, the table and its JSON. It refuses to measure, and to
// know what a figure means.
package figures

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
	Key   string // its name in the JSON
	Title string
	Unit  string
	// Rounds are what was measured, round by round; the median is judged.
	Rounds []float64
	Limit  *Limit // nil: the figure is told, not judged
	// Note stands behind the line; Aside are further figures that only the JSON
	// has, and that the note tells of.
	Note  string
	Aside []Figure
}

// Limit is what is accepted of a figure.
type Limit struct {
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
	// AnyMachine marks what holds on any machine and in a run of any length, so
	// that a quick run judges it, too.
	AnyMachine bool `json:"any_machine,omitempty"`
}

// AtLeast accepts what is as great or greater.
func AtLeast(v float64) *Limit { return &Limit{AtLeast: &v} }

// AtMost accepts what is as small or smaller.
func AtMost(v float64) *Limit { return &Limit{AtMost: &v} }

// Always makes a limit hold on any machine.
func Always(l *Limit) *Limit {
	l.AnyMachine = true
	return l
}

// String is ">= 3".
func (l *Limit) String() string {
	if l.AtLeast != nil {
		return ">= " + Number(*l.AtLeast)
	}
	return "<= " + Number(*l.AtMost)
}

func (l *Limit) holds(v float64) bool {
	if l.AtLeast != nil {
		return v >= *l.AtLeast
	}
	return v <= *l.AtMost
}

// Verdicts. A figure without a limit, or whose limit a quick run cannot judge,
// has none.
const (
	Passed = "ok"
	Missed = "MISSED"
)

// Judged is a figure as it is written to the JSON.
type Judged struct {
	Key     string    `json:"key"`
	Title   string    `json:"title"`
	Unit    string    `json:"unit,omitempty"`
	Median  float64   `json:"median"`
	Least   float64   `json:"least"`
	Most    float64   `json:"most"`
	Rounds  []float64 `json:"rounds"`
	Limit   *Limit    `json:"limit,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Note    string    `json:"note,omitempty"`

	aside bool // in the JSON only
}

// Judge compares every figure with its limit; the error names each that misses
// it or proves nothing.
func Judge(figures []Figure, quick bool) ([]Judged, error) {
	var all []Judged
	var faults []error
	for _, f := range figures {
		j, err := f.judge(quick)
		if err != nil {
			faults = append(faults, err)
		}
		if j != nil {
			all = append(all, *j)
		}
		for _, besides := range f.Aside {
			j, err := besides.judge(quick)
			if err != nil {
				faults = append(faults, err)
			}
			if j != nil {
				j.aside = true
				all = append(all, *j)
			}
		}
	}
	return all, errors.Join(faults...)
}

func (f *Figure) judge(quick bool) (*Judged, error) {
	if len(f.Rounds) == 0 || slices.ContainsFunc(f.Rounds, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil, fmt.Errorf("%s: %v is no measurement", f.Key, f.Rounds)
	}
	j := &Judged{Key: f.Key, Title: f.Title, Unit: f.Unit, Rounds: f.Rounds, Note: f.Note,
		Median: Median(f.Rounds), Least: slices.Min(f.Rounds), Most: slices.Max(f.Rounds)}
	if f.Limit == nil || quick && !f.Limit.AnyMachine {
		return j, nil
	}
	j.Limit, j.Verdict = f.Limit, Passed
	if f.Limit.holds(j.Median) {
		return j, nil
	}
	j.Verdict = Missed
	return j, fmt.Errorf("%s is %s, accepted is %s", f.Key, strings.TrimSpace(Number(j.Median)+" "+f.Unit), f.Limit)
}

// Print writes the table: one line for each figure, but for those aside.
func Print(out io.Writer, all []Judged) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmeasured\taccepted\t\t")
	for _, f := range all {
		if f.aside {
			continue
		}
		measured := Number(f.Median)
		if len(f.Rounds) > 1 {
			measured += fmt.Sprintf(" (%s..%s)", Number(f.Least), Number(f.Most))
		}
		if f.Unit != "" {
			measured += " " + f.Unit
		}
		accepted := ""
		if f.Limit != nil {
			accepted = f.Limit.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Title, measured, accepted, f.Verdict, f.Note)
	}
	_ = w.Flush() // nobody reads it: the verdict is the exit status
	fmt.Fprintln(out)
}

// WriteJSON writes what a run has found to a file and says where.
func WriteJSON(path string, what any, out io.Writer) error {
	content, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
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
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
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
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}
