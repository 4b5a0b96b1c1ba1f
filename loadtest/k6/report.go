package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// result is what one script did and found.
type result struct {
	// Title, Proves and Levels are what the script says of itself and of its service
	// levels (handleSummary in loadtest/lib/levels.js).
	Title, Proves string
	Levels        []struct {
		Metric, Threshold, Words string
		Measured                 string
		Held                     bool
	}

	Name      string
	samples   *samples
	Limits    []limitRow
	Webhooks  *webhooks
	Programs  []harness.Watched
	Took      time.Duration     // k6's own run
	Dashboard bool              // k6 left one
	Failures  receiver.Problems // why the script failed; none: everything held
}

// read reads what k6 wrote. Without the files there is nothing to check, and that is a failure, too.
func (r *result) read(files k6Files) error {
	r.samples = &samples{}
	in, err := os.Open(files.samples)
	if err != nil {
		r.Failures.Add("k6 wrote no samples: %v", err)
		return nil
	}
	defer in.Close()
	if r.samples, err = readSamples(in); err != nil {
		return err
	}
	text, err := os.ReadFile(files.summary)
	if err != nil {
		r.Failures.Add("the script wrote no summary: %v", err)
		return nil
	}
	return json.Unmarshal(text, r)
}

func (r *result) check() {
	if len(r.Levels) == 0 {
		r.Failures.Add("the script has no service levels")
	}
	for _, l := range r.Levels {
		if !l.Held {
			r.Failures.Add("service level not held: %s (%s of %s): %s", l.Words, l.Threshold, l.Metric, l.Measured)
		}
	}
	for _, l := range r.Limits {
		if !l.Held {
			r.Failures.Add("limit not exact: %s, %s: %d admitted within it, %d refused with room left", l.Bucket, l.Limit, l.Most, max(0, l.Wronged))
		}
	}
	const most = 20 // nobody reads more
	for _, problem := range r.Webhooks.Problems[:min(most, len(r.Webhooks.Problems))] {
		r.Failures.Add("webhooks: %s", problem)
	}
	if more := len(r.Webhooks.Problems) - most; more > 0 {
		r.Failures.Add("webhooks: … and %d more", more)
	}
	if len(r.samples.requests) == 0 {
		r.Failures.Add("nothing was sent")
	}
}

// Headline is one script's result in a line.
func (r *result) Headline() string {
	all, held := figuresOf(r.samples.requests), 0
	for _, l := range r.Levels {
		if l.Held {
			held++
		}
	}
	word := "held"
	if len(r.Failures) > 0 {
		word = "FAILED"
	}
	return fmt.Sprintf("%s: %.0f s, %d requests, p99 %.1f ms, %d of %d service levels, %d of %d webhooks", word,
		r.Took.Seconds(), all.Count, all.P99, held, len(r.Levels), r.Webhooks.Received, r.Webhooks.Expected)
}

// endpoint is a row of the page: the requests to one endpoint.
type endpoint struct {
	Name string
	figures
	Answers string // statuses with their numbers; 0 stands for no answer
}

// Endpoints are the script's, the busiest first.
func (r *result) Endpoints() (rows []endpoint) {
	for name, requests := range group(r.samples.requests, func(r *request) string { return r.endpoint }) {
		var answers []string
		for status, answered := range group(requests, func(r *request) string { return strconv.Itoa(r.status) }) {
			part := fmt.Sprintf("%s: %d", status, len(answered))
			if slices.ContainsFunc(answered, func(r request) bool { return r.failed }) {
				part += " (failed)"
			}
			answers = append(answers, part)
		}
		slices.Sort(answers)
		rows = append(rows, endpoint{name, figuresOf(requests), strings.Join(answers, ", ")})
	}
	slices.SortFunc(rows, func(a, b endpoint) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// The service level that a ramp's knee is found by: above it, or when less than
// this part of the offered rate is reached, a rate is too much.
const (
	kneeP99     = 100.0 // ms
	kneeReached = 0.97
)

// step is one rate of a ramp.
type step struct {
	Offered int // a second
	figures
	Within bool // the service level
}

// Steps are a ramp's rates; none for other scripts.
func (r *result) Steps() (steps []step) {
	groups := group(r.samples.requests, func(r *request) string { return strings.TrimSuffix(r.step, "/s") })
	delete(groups, "")
	for name, requests := range groups {
		offered, _ := strconv.Atoi(name) // the scripts name steps by whole rates
		f := figuresOf(requests)
		steps = append(steps, step{offered, f, f.P99 <= kneeP99 && f.Rate >= kneeReached*float64(offered)})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.Offered, b.Offered) })
	return steps
}

// Knee is the highest rate that is within the service level.
func (r *result) Knee() string {
	for _, s := range slices.Backward(r.Steps()) {
		if s.Within {
			return fmt.Sprintf("%d/s", s.Offered)
		}
	}
	return "below the lowest rate"
}

//go:embed report.html
var pageText string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"megabytes": func(bytes uint64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) },
}).Parse(pageText))

type page struct {
	Began       time.Time
	Took        time.Duration
	Machine     string
	Interrupted string // why not all scripts were played; empty: all were
	Scripts     []*result
}

// Passed reports whether everything that was to be played held.
func (p *page) Passed() bool {
	return p.Interrupted == "" && len(p.Scripts) > 0 && !slices.ContainsFunc(p.Scripts, func(r *result) bool { return len(r.Failures) > 0 })
}

// write puts the page into the file.
func (p *page) write(path string) error {
	p.Took = time.Since(p.Began).Round(time.Second)
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
