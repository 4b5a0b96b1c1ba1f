package main

import (
	"fmt"
	"io"

	"vendorapi/loadtest/harness"
)

// report is what a run leaves behind.
type report struct {
	Machine harness.Machine  `json:"machine"`
	Quick   bool             `json:"quick"`
	Seed    uint64           `json:"seed"`
	Seconds float64          `json:"seconds"`
	Figures []harness.Judged `json:"figures"`
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%.0f s, seed %d; medians, in brackets the rounds' least and greatest\n", r.Machine, r.Seconds, r.Seed)
	if r.Quick {
		fmt.Fprintln(out, "A quick run: too short, and beside too much else, for its times and rates to say anything.")
	}
	fmt.Fprintln(out)
	harness.Print(out, r.Figures)
}

// lost, duplicates and invalid are what every part tells of its receipts.
func lost(part string, c counts) harness.Figure {
	return harness.Figure{Key: part + ".lost", Title: fmt.Sprintf("  lost, of %s events", harness.Number(float64(c.Expected))),
		Rounds: []float64{float64(c.Expected - c.Received - c.Expired)}, Limit: harness.Always(harness.AtMost(0))}
}

func duplicates(part string, c counts) harness.Figure {
	percent := 0.0
	if c.Expected > 0 {
		percent = 100 * float64(c.Duplicates) / float64(c.Expected)
	}
	return harness.Figure{Key: part + ".duplicates", Title: fmt.Sprintf("  received again: %d, of all events", c.Duplicates), Unit: "%",
		Rounds: []float64{percent}, Limit: harness.Always(harness.AtMost(1))}
}

func invalid(part string, c counts) harness.Figure {
	return harness.Figure{Key: part + ".invalid", Title: "  not verified, or of no event",
		Rounds: []float64{float64(c.Invalid)}, Limit: harness.Always(harness.AtMost(0))}
}
