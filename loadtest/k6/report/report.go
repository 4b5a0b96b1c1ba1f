// Package report writes the page that `make loadtest` leaves: one HTML file
// that a person reads, with nothing to fetch from anywhere, in light and dark.
//
// It owns the page's content and form. It refuses to measure or judge: whoever
// fills in a Page has done that.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Page is the whole report.
type Page struct {
	Began       time.Time
	Took        time.Duration
	Machine     []Fact
	Scripts     []Script
	Interrupted string // why not all scripts were played; empty: all were
}

// Passed reports whether everything that was to be played held.
func (p Page) Passed() bool {
	return p.Interrupted == "" && len(p.Scripts) > 0 && !slices.ContainsFunc(p.Scripts, func(s Script) bool { return !s.Passed() })
}

// Held is how many scripts passed.
func (p Page) Held() (n int) {
	for _, s := range p.Scripts {
		if s.Passed() {
			n++
		}
	}
	return n
}

// Fact is a line of a list.
type Fact struct{ Name, Value string }

// Script is one script's part.
type Script struct {
	Name      string // of the file, without .js; the anchor, too
	Title     string
	Proves    string // one sentence
	Failures  []string
	Took      time.Duration
	Levels    []Level
	Total     Figures
	Endpoints []Figures
	Steps     []Step // of a ramp
	Knee      string // of a ramp, in words
	Limits    []Limit
	Webhooks  *Webhooks // nil: not checked
	Programs  []Program
	Moments   []Moment
	Log       string // path of k6's log
}

// Passed reports whether everything held.
func (s Script) Passed() bool { return len(s.Failures) == 0 }

// LevelsHeld is how many service levels were held.
func (s Script) LevelsHeld() (n int) {
	for _, l := range s.Levels {
		if l.Held {
			n++
		}
	}
	return n
}

// Level is a service level and what was measured.
type Level struct {
	Words, Threshold, Metric, Measured string
	Held                               bool
}

// Figures sum up requests.
type Figures struct {
	Name               string
	Count              int
	Rate               float64 // per second
	P50, P95, P99, Max time.Duration
	Answers            []Answer // by status
}

// Answer is how often a status was answered; 0 stands for no answer. A 5xx that
// a script asked for has not failed.
type Answer struct {
	Status, Count int
	Failed        bool
}

// Step is one rate of a ramp.
type Step struct {
	Figures
	Offered float64 // requests per second that were asked for
	Within  bool    // p99 was within the service level and the rate was reached
}

// Limit is one limit, seen from outside.
type Limit struct {
	Bucket, Limit                     string
	Accounts, Admitted, Refused, Most int
	Wronged                           int // -1: cannot be told
	Held                              bool
}

// Webhooks is what the receivers got.
type Webhooks struct {
	Orders, Histories, Stores, Expected, Received, Duplicates int
	P50, P99                                                  time.Duration
}

// Program is what a program used.
type Program struct {
	Name       string
	CPU        time.Duration
	Share      float64 // of one processor, in percent
	Begin, End uint64  // resident memory in bytes
}

//go:embed report.tmpl.html
var text string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms":      millis,
	"n":       Grouped,
	"rate":    func(r float64) string { return fmt.Sprintf("%.1f", r) },
	"percent": func(p float64) string { return fmt.Sprintf("%.0f %%", p) },
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) },
	"minutes": func(d time.Duration) string { return d.Round(time.Second).String() },
	"mb":      func(b uint64) string { return fmt.Sprintf("%.0f MB", float64(b)/1e6) },
	"when":    func(t time.Time) string { return t.Format("Monday, 2 January 2006, 15:04") },
	"verdict": verdict,
	"status":  statusText,
	"charts":  charts,
}).Parse(text))

// Write puts the page into the file, in one step.
func Write(path string, p Page) error {
	var out bytes.Buffer
	if err := page.Execute(&out, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { _ = os.Remove(fresh.Name()) }() // gone already after the rename
	_, err = fresh.Write(out.Bytes())
	if closed := fresh.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(fresh.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// verdict is a mark that does without colour.
func verdict(held bool) template.HTML {
	if held {
		return `<span class="held">✓ held</span>`
	}
	return `<span class="broken">✗ broken</span>`
}

func statusText(status int) string {
	if status == 0 {
		return "no answer"
	}
	return fmt.Sprint(status)
}

func millis(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms >= 100 {
		return Grouped(int(ms+0.5)) + " ms"
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// Grouped writes 12345 as 12,345.
func Grouped(n int) string {
	digits := fmt.Sprint(n)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
