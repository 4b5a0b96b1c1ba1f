package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// figures are what a round on a system of its own has measured. One that is not as wanted is a violation.
type figures struct {
	fault      string // whose round it is
	print      func(format string, args ...any)
	checked    int // how many figures something was wanted of
	violations []validate.Violation
}

// expectation is a figure of which something is wanted.
type expectation struct {
	what  string
	want  string
	got   string
	holds bool
}

// figure prints a figure of which nothing is wanted.
func (f *figures) figure(what, format string, args ...any) {
	f.print("  %s: %s", what, fmt.Sprintf(format, args...))
}

func (f *figures) check(e expectation) {
	f.checked++
	if e.holds {
		f.print("  %s: %s  holds", e.what, e.got)
		return
	}

	f.print("  %s: %s  FAILS, wanted: %s", e.what, e.got, e.want)
	f.violations = append(f.violations, validate.Violation{
		Invariant: validate.WrongFigure,
		Subjects:  []string{f.fault},
		Text:      fmt.Sprintf("%s: %s, wanted: %s", e.what, e.got, e.want),
	})
}

// condition is what must become true within a time.
type condition struct {
	what   string
	within time.Duration
	// holds reports whether it is true, and how far it has come.
	holds func() (bool, string)
}

// checkBecomes polls until the condition holds or its time is over.
func (f *figures) checkBecomes(ctx context.Context, c condition) {
	began := time.Now()
	var held bool
	var progress string
	_ = harness.Await(ctx, c.what, c.within, pollInterval, func() (bool, error) { // what it is about is checked below
		held, progress = c.holds()
		return held, nil
	})

	took := time.Since(began).Round(time.Millisecond)
	f.check(expectation{
		what:  c.what,
		want:  "within " + c.within.String(),
		got:   fmt.Sprintf("%s after %s", progress, took),
		holds: held && took <= c.within,
	})
}

// checkServed checks that at least a share of the requests was answered with success, and none wrongly.
func (f *figures) checkServed(t *tally, share float64, what string) {
	f.check(expectation{
		what:  what,
		want:  "all answered with success",
		got:   fmt.Sprintf("%d of %d%s", t.accepted.TotalCount(), t.sent, t.problems()),
		holds: t.served(t.accepted, share),
	})
}

func (f *figures) checkP99(h *hdrhistogram.Histogram, most time.Duration, what string) {
	f.check(expectation{
		what:  what + ", p99",
		want:  "at most " + most.String(),
		got:   milliseconds(p99(h)),
		holds: p99(h) <= most,
	})
}

// orError returns what was got, or the error that came in its place.
func orError(got string, err error) string {
	if err != nil {
		return err.Error()
	}
	return got
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
