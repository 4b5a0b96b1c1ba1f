package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/k6/report"
	"vendorapi/loadtest/k6/samples"
)

// The service level that the ramp's knee is told by: above it, or when less
// than this part of the offered rate is reached, a rate is too much.
const (
	kneeP99     = 100 * time.Millisecond
	kneeReached = 0.97
)

// mostMoments is how finely a run's time is cut.
const mostMoments = 120

// compose turns results into the page.
func compose(all []*played, began time.Time, machine []report.Fact) report.Page {
	page := report.Page{Began: began, Took: time.Since(began), Machine: machine}
	for _, p := range all {
		page.Scripts = append(page.Scripts, part(p))
	}
	return page
}

func part(p *played) report.Script {
	s := report.Script{
		Name: p.script.name, Title: p.plan.Title, Proves: p.plan.Proves, Failures: p.failures,
		Took: p.took, Total: figures(p.run.All()), Log: p.log,
	}
	for _, l := range p.plan.Levels {
		s.Levels = append(s.Levels, report.Level{
			Words: l.Words, Threshold: l.Threshold, Metric: l.Metric, Measured: l.Measured, Held: l.Held,
		})
	}
	for _, f := range p.run.Endpoints() {
		s.Endpoints = append(s.Endpoints, figures(f))
	}
	s.Steps, s.Knee = steps(p.run.Steps())
	for _, l := range p.limits {
		s.Limits = append(s.Limits, report.Limit(l))
	}
	if w := p.webhooks; w != nil {
		s.Webhooks = &report.Webhooks{
			Orders: w.Orders, Histories: w.Histories, Stores: w.Stores, Expected: w.Expected,
			Received: w.Received, Duplicates: w.Duplicates, P50: w.P50, P99: w.P99,
		}
	}
	for _, u := range p.usage {
		s.Programs = append(s.Programs, report.Program{
			Name: u.Name, CPU: u.CPU, Share: 100 * u.CPU.Seconds() / p.took.Seconds(), Begin: u.Begin, End: u.End,
		})
	}
	for _, m := range p.run.Moments(mostMoments) {
		s.Moments = append(s.Moments, report.Moment(m))
	}
	return s
}

func figures(f samples.Figures) report.Figures {
	r := report.Figures{Name: f.Name, Count: f.Count, Rate: f.Rate, P50: f.P50, P95: f.P95, P99: f.P99, Max: f.Max}
	for a, n := range f.Answers {
		r.Answers = append(r.Answers, report.Answer{Status: a.Status, Count: n, Failed: a.Failed})
	}
	slices.SortFunc(r.Answers, func(a, b report.Answer) int { return cmp.Compare(a.Status, b.Status) })
	return r
}

// steps are a ramp's rates, and its knee in words.
func steps(all []samples.Figures) (rows []report.Step, knee string) {
	last := -1 // the highest rate within the service level
	for i, f := range all {
		within := f.P99 <= kneeP99 && f.Rate >= kneeReached*f.Offered()
		rows = append(rows, report.Step{Figures: figures(f), Offered: f.Offered(), Within: within})
		if within {
			last = i
		}
	}
	if len(all) == 0 {
		return nil, ""
	}
	level := fmt.Sprintf("p99 at most %d ms and at least %.0f %% of the offered rate", kneeP99.Milliseconds(), 100*kneeReached)
	switch {
	case last < 0:
		knee = fmt.Sprintf("Already the lowest rate, %s, was beyond %s.", all[0].Name, level)
	case last == len(all)-1:
		knee = fmt.Sprintf("No knee up to %s: there it still was within %s.", all[last].Name, level)
	default:
		knee = fmt.Sprintf("The knee: %s was within %s, %s was not.", all[last].Name, level, all[last+1].Name)
	}
	var between []string
	for _, r := range rows[:max(last, 0)] {
		if !r.Within {
			between = append(between, r.Name)
		}
	}
	if len(between) > 0 {
		knee += " In between, " + strings.Join(between, " and ") + " was not."
	}
	return rows, knee + " It belongs to this machine, which k6 shares: it is reported and not judged."
}
