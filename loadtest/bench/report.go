package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"vendorapi/loadtest/machine"
)

// report is what a run leaves behind.
type report struct {
	Machine machine.Machine `json:"machine"`
	Rounds  int             `json:"rounds"`
	Quick   bool            `json:"quick"`
	Seconds float64         `json:"seconds"`
	Lines   []judgedLine    `json:"lines"`
	// Costs are per order; see costs.
	Costs map[string]*spread `json:"costs,omitempty"`
}

// print shows the table. What is judged stands in the spread: the ratio's where
// there is one, else the figure's own.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%d rounds in %.0f s; medians, in brackets the rounds' least and greatest\n\n", r.Machine, r.Rounds, r.Seconds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmeasured\tbaseline\tratio\taccepted\t")
	above := ""
	for _, l := range r.Lines {
		base, ratio := "", ""
		if l.Base != nil {
			base = fmt.Sprintf("%s  %s", number(l.Base.Median), l.Baseline)
		}
		if l.Ratio != nil {
			ratio = l.Ratio.String()
		}
		measured := number(l.Measured.Median) + " " + l.Unit
		if l.Limit != nil && l.Limit.Of == ofMeasured {
			measured = l.Measured.String() + " " + l.Unit
		}
		accepted := ""
		if l.Limit != nil {
			accepted = l.Limit.String()
		}
		title := l.Title
		if title == above { // the same figure against another baseline
			title, measured = "", ""
		}
		above = l.Title
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", title, measured, base, ratio, accepted, l.Verdict)
	}
	_ = w.Flush() // nobody reads it: the verdict is the exit status
	fmt.Fprintln(out)
}

// String is "0.52 (0.50..0.55)".
func (s *spread) String() string {
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// writeJSON writes what a run has found and says where.
func writeJSON(path string, what any, out io.Writer) error {
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
