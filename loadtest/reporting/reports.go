package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"vendorapi/loadtest/harness"
)

// asked is a report by its name, and by that of its view for the bare query.
type asked struct{ name, view string }

var reports = []asked{
	{"order-ledger", "order_ledger"},
	{"expected-collections", "expected_collections"},
	{"fleet-statement", "fleet_statement"},
	{"exceptions", "exceptions"},
	{controlTotals, "control_totals"},
}

const (
	warmRuns = 5 // the median counts
	// warmLongest is after how long a report is not asked for once more.
	warmLongest = 10 * time.Second
	// disturbing is how many processors other programs may keep busy before the
	// table says so.
	disturbing = 0.3
)

// measureReports asks for every report of every scope as JSON over HTTP: once
// cold, then warm; and for its rows in ClickHouse alone.
func (b *bench) measureReports(ctx context.Context) ([]harness.Figure, error) {
	y, err := b.openYear(ctx)
	if err != nil {
		return nil, err
	}
	b.progress("reports: %s", coldMeans)
	var sheet []harness.Figure
	for _, s := range y.scopes() {
		for i, r := range reports {
			// A quick run starts the engine anew for the first report only.
			f, err := y.measureReport(ctx, r, &s, !b.quick || i == 0)
			if err != nil {
				return sheet, fmt.Errorf("%s, %s: %w", r.name, s.title, err)
			}
			b.progress("%s: %s %s, %s", f.Title, harness.Number(harness.Median(f.Rounds)), f.Unit, f.Note)
			sheet = append(sheet, f)
		}
	}
	return sheet, nil
}

// scopes are all of them, or for a quick run the narrowest and the widest.
func (y *year) scopes() []scope {
	all := []scope{
		{key: "account_month", title: "an account's month", from: monthFirst, to: monthLast, account: y.account,
			judged: everyReport, accepted: harness.AtMost(100)},
		{key: "fleet_month", title: "a fleet's month", from: monthFirst, to: monthLast, fleet: y.fleet},
		{key: "month", title: "the month of all", from: monthFirst, to: monthLast},
		{key: "year", title: "the year of all", from: yearFirst, to: yearLast,
			judged: "fleet-statement", accepted: harness.AtMost(2000)},
	}
	if y.bench.quick {
		return []scope{all[0], all[len(all)-1]}
	}
	return all
}

// control-totals reads the other four reports and hashes each, besides a query of
// its own, so it has a limit of its own.
const (
	controlTotals = "control-totals"
	controlMillis = 500
)

func (s *scope) limit(report string) *harness.Limit {
	switch {
	case s.judged == everyReport && report == controlTotals:
		return harness.AtMost(controlMillis)
	case s.judged == report || s.judged == everyReport:
		return s.accepted
	}
	return nil
}

// answer is what is noted of a report that has arrived whole.
type answer struct {
	took        time.Duration // from the request to the last byte
	rows, bytes int64
}

func (y *year) measureReport(ctx context.Context, r asked, s *scope, cold bool) (f harness.Figure, err error) {
	f = harness.Figure{Key: "reports." + s.key + "." + r.name, Title: r.name + ", " + s.title, Unit: "ms", Limit: s.limit(r.name)}
	if cold {
		if err := y.restart(ctx, true); err != nil {
			return f, err
		}
	}
	before, err := takeUsage(y.panel.PID(), y.engine.PID(), y.redis.PID())
	if err != nil {
		return f, err
	}
	first, err := y.fetch(ctx, r.name, s)
	if err != nil {
		return f, err
	}
	if f.Rounds, err = y.warm(ctx, r.name, s, first); err != nil {
		return f, err
	}
	bare, err := y.bare(ctx, r, s)
	if err != nil {
		return f, err
	}
	after, err := takeUsage(y.panel.PID(), y.engine.PID(), y.redis.PID())
	if err != nil {
		return f, err
	}
	f.Note = fmt.Sprintf("bare query %s ms; %s rows, %s kB", harness.Number(harness.Median(bare)), harness.Grouped(first.rows), harness.Number(float64(first.bytes)/1000))
	f.Aside = []harness.Figure{
		{Key: f.Key + ".bare", Title: f.Title + ", bare query", Unit: "ms", Rounds: bare},
		{Key: f.Key + ".rows", Title: f.Title + ", rows", Rounds: []float64{float64(first.rows)}},
	}
	if used := after.since(&before); used.others() > disturbing {
		f.Note += fmt.Sprintf("; DISTURBED: other programs kept %s cores busy", harness.Number(used.others()))
	}
	if !cold {
		return f, nil
	}
	took := milliseconds(first.took)
	f.Aside = append(f.Aside, harness.Figure{Key: f.Key + ".cold", Title: f.Title + ", cold", Unit: "ms", Rounds: []float64{took}})
	f.Note = fmt.Sprintf("cold %s ms, %s", harness.Number(took), f.Note)
	if len(f.Rounds) == 0 {
		f.Rounds, f.Note = f.Aside[len(f.Aside)-1].Rounds, "this is "+f.Note
	}
	return f, nil
}

// warm asks for the report again and again; not once when the first answer took
// too long for the state of the caches to matter.
func (y *year) warm(ctx context.Context, report string, s *scope, first answer) (took []float64, err error) {
	runs := warmRuns
	if y.bench.quick {
		runs = 2
	}
	began := time.Now()
	for len(took) < runs && (len(took) == 0 || time.Since(began) < warmLongest) && first.took < warmLongest {
		a, err := y.fetch(ctx, report, s)
		if err != nil {
			return nil, err
		}
		if a.rows != first.rows || a.bytes != first.bytes {
			return nil, fmt.Errorf("it has %d rows in %d bytes, then %d in %d", first.rows, first.bytes, a.rows, a.bytes)
		}
		took = append(took, milliseconds(a.took))
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fetch downloads a report as JSON and reads its end, which says how many rows
// there were.
func (y *year) fetch(ctx context.Context, report string, s *scope) (a answer, err error) {
	began := time.Now()
	resp, err := y.open(ctx, report+".json", s)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	look := &lookout{mark: []byte(`"ties":"no"`)}
	if a.bytes, err = io.Copy(look, resp.Body); err != nil {
		return a, fmt.Errorf("read %s: %w", report, err)
	}
	a.took = time.Since(began)
	_, end, found := bytes.Cut(look.tail, []byte("\"totals\":"))
	var totals struct{ Rows int64 }
	if err := json.Unmarshal(bytes.TrimSuffix(bytes.TrimSpace(end), []byte("}}")), &totals); !found || err != nil {
		return a, fmt.Errorf("%s ends with %.100q", report, look.tail)
	}
	a.rows = totals.Rows
	switch {
	case a.rows == 0 && report != "exceptions":
		return a, errors.New("it has no rows")
	case look.met:
		return a, errors.New("it does not tie")
	}
	return a, nil
}

// lookout keeps the end of what is written, and looks out for a text.
type lookout struct {
	mark []byte
	tail []byte
	met  bool
}

const tailLength = 2000

func (l *lookout) Write(p []byte) (int, error) {
	// The end of what came before goes along, so that no mark is cut in two.
	l.tail = append(l.tail, p...)
	l.met = l.met || bytes.Contains(l.tail, l.mark)
	if surplus := len(l.tail) - tailLength; surplus > 0 {
		l.tail = append(l.tail[:0], l.tail[surplus:]...)
	}
	return len(p), nil
}

// bare is how long ClickHouse alone takes for the rows, unsorted, which then go
// nowhere.
func (y *year) bare(ctx context.Context, r asked, s *scope) (took []float64, err error) {
	statement := fmt.Sprintf("SELECT * FROM delivery.%s(from = '%s', to = '%s', account = '%s', fleet = '%s', store = '') SETTINGS final = 1 FORMAT Null",
		r.view, s.from, s.to, s.account, s.fleet)
	runs := warmRuns
	if y.bench.quick {
		runs = 1
	}
	began := time.Now()
	for len(took) == 0 || len(took) < runs && time.Since(began) < warmLongest {
		each := time.Now()
		if _, err := y.ask(ctx, statement); err != nil {
			return nil, err
		}
		took = append(took, milliseconds(time.Since(each)))
	}
	return took, nil
}
