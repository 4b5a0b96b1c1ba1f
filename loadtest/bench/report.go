package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"vendorapi/loadtest/harness"
)

// report is what a run leaves behind.
type report struct {
	Machine harness.Machine `json:"machine"`
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
			base = fmt.Sprintf("%s  %s", harness.Number(l.Base.Median), l.Baseline)
		}
		if l.Ratio != nil {
			ratio = l.Ratio.String()
		}
		measured := harness.Number(l.Measured.Median) + " " + l.Unit
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
	return fmt.Sprintf("%s (%s..%s)", harness.Number(s.Median), harness.Number(s.Min), harness.Number(s.Max))
}
