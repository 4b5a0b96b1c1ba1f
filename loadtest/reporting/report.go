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
	Orders  int              `json:"orders"`
	History int              `json:"history"`
	Seconds float64          `json:"seconds"`
	Figures []harness.Judged `json:"figures"`
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n%.0f s; %s orders exported, %s in the year; medians, in brackets the least and the greatest\n",
		r.Machine, r.Seconds, harness.Grouped(int64(r.Orders)), harness.Grouped(int64(r.History)))
	if r.Quick {
		fmt.Fprintln(out, "A quick run: too short for its times and rates to say anything.")
	}
	fmt.Fprintln(out)
	harness.Print(out, r.Figures)
}
