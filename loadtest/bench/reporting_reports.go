// This file measures how long a report takes, from the request to the last byte.

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vendorapi/loadtest/harness"
)

// reportNames are those that are measured.
var reportNames = []string{"order-ledger", "expected-collections", "fleet-statement", "exceptions", "control-totals"}

// Whose orders the reports are asked for: keys of figures, and how the table names them.
var reportScopes = []struct{ key, what string }{
	{"account_month", "an account's month"},
	{"fleet_month", "a fleet's month"},
	{"month", "the month of all"},
	{"year", "the year of all"},
}

// reportFigures are one for each report and scope: warm, from the request to the last byte of JSON.
func reportFigures() []*figure {
	var all []*figure
	for _, s := range reportScopes {
		for _, name := range reportNames {
			f := &figure{Key: "reports." + s.key + "." + name, What: name + ", " + s.what, Unit: "ms", Baseline: "its bare query"}
			switch {
			case s.key == "account_month" && name == "control-totals":
				f.Limit = ratioAtMost(10) // it reads the other four reports and hashes them
			case s.key == "account_month":
				f.Limit = ratioAtMost(6) // of the time of few rows, what a request costs is a large part
			case s.key == "year" && name == "fleet-statement":
				f.Limit = ratioAtMost(4)
			}

			all = append(all, f)
		}
	}

	return all
}

// measureReports asks for every report of every scope as JSON over HTTP: once
// cold, then warm; and for its rows in ClickHouse alone.
func (b *bench) measureReports(ctx context.Context) {
	e := b.openYear(ctx)
	b.progress("reports: cold: the engine started again, with none of its tables' files in the page cache")
	scopes := []scope{
		{key: "account_month", from: monthFirst, to: monthLast, account: e.account},
		{key: "fleet_month", from: monthFirst, to: monthLast, fleet: e.fleet},
		{key: "month", from: monthFirst, to: monthLast},
		{key: "year", from: yearFirst, to: yearLast},
	}

	if b.short { // the narrowest and the widest
		scopes = []scope{scopes[0], scopes[3]}
	}

	for _, s := range scopes {
		for i, name := range reportNames {
			isFirst := i == 0
			e.measureReport(ctx, name, s, isFirst || !b.short)
		}
	}
}

// measureReport asks for a report and, unless it took long, again and again, in turns with its bare query.
func (e *reportingEnv) measureReport(ctx context.Context, name string, s scope, cold bool) {
	const disturbing = 0.3 // processors that other programs may keep busy before the table notes it
	b, key := e.bench, "reports."+s.key+"."+name
	if cold {
		e.restartEngine(ctx)
	}

	var first fetched
	var firstTook time.Duration
	used := got(harness.During(func() error {
		return caught(func() {
			firstTook = timed(func() { first = e.fetch(ctx, name, s) })
			if firstTook >= longestRepeated {
				b.addBeside(key, milliseconds(firstTook), milliseconds(timed(func() { e.askBare(ctx, name, s) })))
				return
			}

			b.repeat(key, short(b, 5, 2), func() {
				again := e.fetch(ctx, name, s)
				if again != first {
					must(fmt.Errorf("%s has %d rows in %d bytes, then %d in %d", key, first.rows, first.bytes, again.rows, again.bytes))
				}
			}, func() { e.askBare(ctx, name, s) })
		})
	}, harness.Process{Name: "panel", PID: e.Reporting.PID()}, harness.Process{Name: "engine", PID: e.ClickHouse.PID()},
		harness.Process{Name: "redis", PID: e.Redis.PID()}, harness.Self("bench")))

	if cold {
		b.note(key, "cold %s ms", number(milliseconds(firstTook)))
	}

	b.note(key, "%s rows, %s kB", harness.Grouped(first.rows), number(float64(first.bytes)/1000))
	if others := used.Others(); others > disturbing {
		b.note(key, "DISTURBED: other programs kept %s cores busy", number(others))
	}

	f := b.figure(key)
	b.progress("%s: %s ms, bare query %s ms; %s", f.What, number(harness.Median(f.Values)), number(harness.Median(f.Bases)), f.Note)
}

// askBare asks ClickHouse alone for a report's rows, unsorted, and they go nowhere.
func (e *reportingEnv) askBare(ctx context.Context, name string, s scope) {
	e.ask(ctx, fmt.Sprintf(`SELECT * FROM delivery.%s(from = '%s', to = '%s', account = '%s', fleet = '%s', store = '')
		SETTINGS final = 1 FORMAT Null`, strings.ReplaceAll(name, "-", "_"), s.from, s.to, s.account, s.fleet))
}

// longestRepeated is after how long nothing is asked once more: the state of the caches does not matter then.
const longestRepeated = 10 * time.Second

// repeat notes the milliseconds of several answers and of their baselines in turns, as many as fit into
// longestRepeated but at least one.
func (b *bench) repeat(key string, times int, ask, base func()) {
	began := time.Now()
	for n := range times {
		isLate := time.Since(began) >= longestRepeated
		if n > 0 && isLate {
			return
		}
		took := timed(ask)
		b.addBeside(key, milliseconds(took), milliseconds(timed(base)))
	}
}

// timed returns how long something took.
func timed(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// restartEngine starts the engine again, with a cold page cache, and returns when
// reporting has found it.
func (e *reportingEnv) restartEngine(ctx context.Context) {
	e.ClickHouse.Stop()
	must(dropPages(filepath.Join(e.dir, "clickhouse")))
	must(e.ClickHouse.Start(ctx))
	must(e.Reporting.AwaitReady(ctx))
}

// dropPages takes a folder's files out of the page cache, which needs no privileges.
func dropPages(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}

		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()

		// Pages that are not on the disk yet would stay.
		return errors.Join(file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
	})
}

// fetched is how much of a report has come.
type fetched struct{ rows, bytes int64 }

// fetch downloads a report as JSON, a row a line, and reads its last line, which has the number of rows.
func (e *reportingEnv) fetch(ctx context.Context, name string, s scope) fetched {
	resp := e.open(ctx, name+".json", s)
	defer resp.Body.Close()

	var f fetched
	var last []byte
	balances := true
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		last = append(last[:0], lines.Bytes()...)
		f.bytes += int64(len(last)) + 1
		balances = balances && !bytes.Contains(last, []byte(`"ties":"no"`))
	}

	must(lines.Err())

	end, hasTotals := bytes.CutPrefix(last, []byte(`],"totals":`))
	var totals struct{ Rows int64 }
	err := json.Unmarshal(bytes.TrimSuffix(end, []byte("}}")), &totals)
	f.rows = totals.Rows
	switch {
	case err != nil || !hasTotals:
		err = fmt.Errorf("ends with %.100q", last)
	case f.rows == 0 && name != "exceptions":
		err = errors.New("has no rows")
	case !balances:
		err = errors.New("does not balance")
	}

	if err != nil {
		must(fmt.Errorf("%s, %s: it %w", name, s.key, err))
	}

	return f
}
