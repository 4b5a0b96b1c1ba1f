package main

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

	"vendorapi/loadtest/machine"
)

// figure is one line of the table.
type figure struct {
	key   string // its name in the JSON
	title string
	unit  string
	// rounds are what was measured, round by round; the median is judged.
	rounds []float64
	limit  *limit // nil: the figure is told, not judged
	// note stands behind the line; aside are further figures that only the JSON
	// has, and that the note tells of.
	note  string
	aside []figure
}

// limit is what is accepted of a figure.
type limit struct {
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
	// AnyMachine marks what holds on any machine and in a run of any length, so
	// that a quick run judges it, too.
	AnyMachine bool `json:"any_machine,omitempty"`
}

func atLeast(v float64) *limit { return &limit{AtLeast: &v} }
func atMost(v float64) *limit  { return &limit{AtMost: &v} }

// always makes a limit hold on any machine.
func always(l *limit) *limit {
	l.AnyMachine = true
	return l
}

func (l *limit) String() string {
	if l.AtLeast != nil {
		return ">= " + number(*l.AtLeast)
	}
	return "<= " + number(*l.AtMost)
}

func (l *limit) holds(v float64) bool {
	if l.AtLeast != nil {
		return v >= *l.AtLeast
	}
	return v <= *l.AtMost
}

// Verdicts. A figure without a limit, or whose limit a quick run cannot judge,
// has none.
const (
	passed = "ok"
	missed = "MISSED"
)

// judged is a figure as it is written to the JSON.
type judged struct {
	Key     string    `json:"key"`
	Title   string    `json:"title"`
	Unit    string    `json:"unit,omitempty"`
	Median  float64   `json:"median"`
	Least   float64   `json:"least"`
	Most    float64   `json:"most"`
	Rounds  []float64 `json:"rounds"`
	Limit   *limit    `json:"limit,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Note    string    `json:"note,omitempty"`

	aside bool // in the JSON only
}

// judge compares every figure with its limit; the error names each that misses
// it or proves nothing.
func judge(figures []figure, quick bool) ([]judged, error) {
	var all []judged
	var faults []error
	for _, f := range figures {
		j, err := f.judge(quick)
		if err != nil {
			faults = append(faults, err)
		}
		if j != nil {
			all = append(all, *j)
		}
		for _, besides := range f.aside {
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

func (f *figure) judge(quick bool) (*judged, error) {
	if len(f.rounds) == 0 || slices.ContainsFunc(f.rounds, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil, fmt.Errorf("%s: %v is no measurement", f.key, f.rounds)
	}
	j := &judged{Key: f.key, Title: f.title, Unit: f.unit, Rounds: f.rounds, Note: f.note,
		Median: median(f.rounds), Least: slices.Min(f.rounds), Most: slices.Max(f.rounds)}
	if f.limit == nil || quick && !f.limit.AnyMachine {
		return j, nil
	}
	j.Limit, j.Verdict = f.limit, passed
	if f.limit.holds(j.Median) {
		return j, nil
	}
	j.Verdict = missed
	return j, fmt.Errorf("%s is %s, accepted is %s", f.key, strings.TrimSpace(number(j.Median)+" "+f.unit), f.limit)
}

// report is what a run leaves behind.
type report struct {
	Machine machine.Machine `json:"machine"`
	Quick   bool            `json:"quick"`
	Orders  int             `json:"orders"`
	History int             `json:"history"`
	Seconds float64         `json:"seconds"`
	Figures []judged        `json:"figures"`
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%.0f s; %s orders exported, %s in the year; medians, in brackets the least and the greatest\n",
		r.Machine, r.Seconds, grouped(int64(r.Orders)), grouped(int64(r.History)))
	if r.Quick {
		fmt.Fprintln(out, "A quick run: too short for its times and rates to say anything.")
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmeasured\taccepted\t\t")
	for _, f := range r.Figures {
		if f.aside {
			continue
		}
		measured := number(f.Median)
		if len(f.Rounds) > 1 {
			measured += fmt.Sprintf(" (%s..%s)", number(f.Least), number(f.Most))
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

func (r *report) write(path string, out io.Writer) error {
	content, err := json.MarshalIndent(r, "", "  ")
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

// median of at least one figure; between the two middle ones of an even number.
func median(figures []float64) float64 {
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

// number writes a figure with three digits or more, thousands set apart.
func number(v float64) string {
	switch {
	case v >= 999.5:
		return grouped(int64(math.Round(v)))
	case v >= 99.95 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func grouped(n int64) string {
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
