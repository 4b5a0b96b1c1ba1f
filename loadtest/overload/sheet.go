package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table: a figure, and what it has to be.
type row struct {
	part, what, figure, want string
	bad                      bool
}

// sheet collects what was found. It is filled by one goroutine.
type sheet struct {
	out  io.Writer
	part string // the case that is under way
	rows []row
}

// begin opens a case and says so.
func (s *sheet) begin(part, what string) {
	s.part = part
	fmt.Fprintf(s.out, "%s: %s\n", part, what)
}

// tell adds a figure that nothing is demanded of.
func (s *sheet) tell(what, format string, a ...any) {
	s.add(row{part: s.part, what: what, figure: fmt.Sprintf(format, a...)})
}

// demand adds a figure with what it has to be.
func (s *sheet) demand(ok bool, what, want, format string, a ...any) {
	s.add(row{part: s.part, what: what, figure: fmt.Sprintf(format, a...), want: want, bad: !ok})
}

func (s *sheet) add(r row) {
	s.rows = append(s.rows, r)
	fmt.Fprintf(s.out, "  %s: %s%s\n", r.what, r.figure, r.verdict())
}

func (r row) verdict() string {
	switch {
	case r.bad:
		return "  FAILS, wanted: " + r.want
	case r.want == "":
		return ""
	}
	return "  holds"
}

// print writes the table.
func (s *sheet) print() error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ncase\twhat\tfigure\twanted\tverdict")
	for _, r := range s.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.part, r.what, r.figure, r.want, strings.TrimSpace(strings.SplitN(r.verdict(), ",", 2)[0]))
	}
	return w.Flush()
}

// failure names what did not hold; nil when everything did.
func (s *sheet) failure() error {
	var faults []error
	for _, r := range s.rows {
		if r.bad {
			faults = append(faults, fmt.Errorf("%s: %s is %s, wanted %s", r.part, r.what, r.figure, r.want))
		}
	}
	return errors.Join(faults...)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func mebibytes(bytes uint64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
