package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// The service level that a ramp's knee is found by: above it, or when less than
// this part of the offered rate is reached, a rate is too much.
const (
	kneeP99     = 100.0 // ms
	kneeReached = 0.97
)

//go:embed report.html
var pageText string

var pageTemplate = template.Must(template.New("report").Parse(pageText))

// page is the report of all scripts.
type page struct {
	Began       time.Time
	Took        time.Duration
	Machine     string
	Interrupted string // why not all scripts were played; empty: all were
	Scripts     []scriptPart
}

type scriptPart struct {
	Name, Title, Proves, Headline string
	Failures                      []string
	Figures                       string // tables
	Dashboard                     bool   // k6 left Name.html
}

// Passed reports whether everything that was to be played held.
func (p *page) Passed() bool {
	return p.Interrupted == "" && len(p.Scripts) > 0 && !slices.ContainsFunc(p.Scripts, func(s scriptPart) bool { return len(s.Failures) > 0 })
}

func (p *page) add(r *result) {
	var tables strings.Builder
	r.print(&tables)
	p.Scripts = append(p.Scripts, scriptPart{
		Name: r.script.name, Title: cmp.Or(r.Title, r.script.name), Proves: r.Proves, Headline: r.headline(),
		Failures: r.failures, Figures: tables.String(),
	})
}

// write puts the page into the file, in one step.
func (p *page) write(path string) error {
	p.Took = time.Since(p.Began).Round(time.Second)
	for i := range p.Scripts {
		s := &p.Scripts[i]
		_, err := os.Stat(filepath.Join(filepath.Dir(path), s.Name+".html"))
		s.Dashboard = err == nil
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, p)
	if err == nil {
		err = os.WriteFile(path+".partial", out.Bytes(), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".partial", path)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// headline is one script's result in a line.
func (r *result) headline() string {
	all, held := figuresOf(r.samples.requests), 0
	for _, l := range r.Levels {
		if l.Held {
			held++
		}
	}
	word := "held"
	if len(r.failures) > 0 {
		word = "FAILED"
	}
	return fmt.Sprintf("%s: %.0f s, %d requests, p99 %.1f ms, %d of %d service levels, %d of %d webhooks", word,
		r.took.Seconds(), all.count, all.p99, held, len(r.Levels), r.webhooks.received, r.webhooks.expected)
}

// print writes the script's tables.
func (r *result) print(out io.Writer) {
	table := func(head string, rows func(row func(format string, args ...any))) {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, head)
		rows(func(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) })
		fmt.Fprintln(t)
		_ = t.Flush() // out is memory
	}
	mark := map[bool]string{true: "held", false: "BROKEN"}
	table("service level\tthreshold\tmeasured\t", func(row func(string, ...any)) {
		for _, l := range r.Levels {
			row("%s\t%s of %s\t%s\t%s", l.Words, l.Threshold, l.Metric, l.Measured, mark[l.Held])
		}
	})
	r.printSteps(out, table)
	table("endpoint\trequests\tper second\tp50 ms\tp95\tp99\tmax\tanswers", func(row func(string, ...any)) {
		endpoints := group(r.samples.requests, func(r *request) string { return r.endpoint })
		busiest := func(a, b string) int {
			return cmp.Or(cmp.Compare(len(endpoints[b]), len(endpoints[a])), strings.Compare(a, b))
		}
		for _, name := range slices.SortedFunc(maps.Keys(endpoints), busiest) {
			requests := endpoints[name]
			f := figuresOf(requests)
			row("%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%s", name, f.count, f.rate, f.p50, f.p95, f.p99, f.max, answers(requests))
		}
	})
	if len(r.limits) > 0 {
		fmt.Fprint(out, "Limits, from outside: only what is certain from the moments of sending and answering is claimed.\n\n")
		table("bucket\tallowed\tmost let through\taccounts\tadmitted\trefused\twrongly\t", func(row func(string, ...any)) {
			for _, l := range r.limits {
				wronged := "-" // something else refuses, too
				if l.wronged >= 0 {
					wronged = strconv.Itoa(l.wronged)
				}
				row("%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s", l.bucket, l.limit, l.most, l.accounts, l.admitted, l.refused, wronged, mark[l.held])
			}
		})
	}
	w := r.webhooks
	fmt.Fprintf(out, "Webhooks: %d of %d expected events arrived and were verified: %d stores, and every status after Searching of %d orders (%d accepted),\n"+
		"each compared with the order's history. %d came more than once. From occurrence to arrival: median %.1f ms, p99 %.1f ms.\n\n",
		w.received, w.expected, w.stores, w.histories, w.orders, w.duplicates, w.delay(0.5), w.delay(0.99))
	table("program\tCPU\tof one processor\tmemory before\tafter", func(row func(string, ...any)) {
		for _, p := range r.programs {
			row("%s\t%.1f s\t%.0f %%\t%.0f MB\t%.0f MB", p.Name, p.CPU.Seconds(), 100*p.CPU.Seconds()/r.took.Seconds(), float64(p.Begin)/1e6, float64(p.Now)/1e6)
		}
	})
}

// answers counts statuses; 0 stands for no answer.
func answers(requests []request) string {
	var parts []string
	for status, answered := range group(requests, func(r *request) string { return strconv.Itoa(r.status) }) {
		part := fmt.Sprintf("%s: %d", status, len(answered))
		if slices.ContainsFunc(answered, func(r request) bool { return r.failed }) {
			part += " (failed)"
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// printSteps writes a ramp's rates and its knee: the highest rate that is within
// the service level.
func (r *result) printSteps(out io.Writer, table func(string, func(func(string, ...any)))) {
	steps := group(r.samples.requests, func(r *request) string { return strings.TrimSuffix(r.step, "/s") })
	delete(steps, "")
	if len(steps) == 0 {
		return
	}
	var offered []int
	for name := range steps {
		rate, _ := strconv.Atoi(name) // the scripts name steps by whole rates
		offered = append(offered, rate)
	}
	slices.Sort(offered)
	knee := "below the lowest rate"
	table("offered/s\tanswered/s\tp50 ms\tp95\tp99\tmax\twithin the service level", func(row func(string, ...any)) {
		for _, rate := range offered {
			f := figuresOf(steps[strconv.Itoa(rate)])
			within := f.p99 <= kneeP99 && f.rate >= kneeReached*float64(rate)
			if within {
				knee = fmt.Sprintf("%d/s", rate)
			}
			row("%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%t", rate, f.rate, f.p50, f.p95, f.p99, f.max, within)
		}
	})
	fmt.Fprintf(out, "Knee, the highest rate with p99 of at most %.0f ms and at least %.0f %% of the offered rate: %s.\n"+
		"It belongs to this machine, which k6 shares: it is reported and not a service level.\n\n", kneeP99, 100*kneeReached, knee)
}
