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
	if b.quick { // the narrowest and the widest
		scopes = []scope{scopes[0], scopes[3]}
	}
	for _, s := range scopes {
		for i, name := range []string{"order-ledger", "expected-collections", "fleet-statement", "exceptions", "control-totals"} {
			// A quick run starts the engine again for the first report only.
			e.measureReport(ctx, name, s, !b.quick || i == 0)
		}
	}
}

// measureReport asks for a report and, unless it took long, again and again; then
// ClickHouse alone for its rows, unsorted, which go nowhere.
func (e *reportingEnv) measureReport(ctx context.Context, name string, s scope, cold bool) {
	const disturbing = 0.3 // processors that other programs may keep busy before the table notes it
	b, key := e.bench, "reports."+s.key+"."+name
	if cold {
		e.restartEngine(ctx)
	}
	var first fetched
	var took time.Duration // of the first
	used := got(harness.During(func() error {
		return caught(func() {
			began := time.Now()
			first = e.fetch(ctx, name, s)
			if took = time.Since(began); took >= longestRepeated {
				b.add(key, milliseconds(took))
			} else {
				b.repeat(key, short(b, 5, 2), func() {
					if again := e.fetch(ctx, name, s); again != first {
						must(fmt.Errorf("%s has %d rows in %d bytes, then %d in %d", key, first.rows, first.bytes, again.rows, again.bytes))
					}
				})
			}
			b.repeat(key+".bare", short(b, 5, 1), func() {
				e.ask(ctx, fmt.Sprintf(`SELECT * FROM delivery.%s(from = '%s', to = '%s', account = '%s', fleet = '%s', store = '')
					SETTINGS final = 1 FORMAT Null`, strings.ReplaceAll(name, "-", "_"), s.from, s.to, s.account, s.fleet))
			})
		})
	}, harness.Process{Name: "panel", PID: e.Reporting.PID()}, harness.Process{Name: "engine", PID: e.ClickHouse.PID()},
		harness.Process{Name: "redis", PID: e.Redis.PID()}, harness.Self("bench")))
	if cold {
		b.add(key+".cold", milliseconds(took))
		b.note(key, "cold %s ms", harness.Number(milliseconds(took)))
	}
	b.add(key+".rows", float64(first.rows))
	b.note(key, "bare query %s ms; %s rows, %s kB", harness.Number(harness.Median(b.figure(key+".bare").Rounds)),
		harness.Grouped(first.rows), harness.Number(float64(first.bytes)/1000))
	if others := used.Others(); others > disturbing {
		b.note(key, "DISTURBED: other programs kept %s cores busy", harness.Number(others))
	}
	f := b.figure(key)
	b.progress("%s: %s ms, %s", f.Title, harness.Number(harness.Median(f.Rounds)), f.Note)
}

// longestRepeated is after how long nothing is asked once more: the state of the caches does not matter then.
const longestRepeated = 10 * time.Second

// repeat notes the milliseconds of several answers, as many as fit into longestRepeated but at least one.
func (b *bench) repeat(key string, times int, ask func()) {
	began := time.Now()
	for n := 0; n == 0 || n < times && time.Since(began) < longestRepeated; n++ {
		asked := time.Now()
		ask()
		b.add(key, milliseconds(time.Since(asked)))
	}
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

type fetched struct{ rows, bytes int64 }

// fetch downloads a report as JSON, a row a line, and reads its last line, which has the number of rows.
func (e *reportingEnv) fetch(ctx context.Context, name string, s scope) (f fetched) {
	resp := e.open(ctx, name+".json", s)
	defer resp.Body.Close()
	var last []byte
	balances := true
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		last = append(last[:0], lines.Bytes()...)
		f.bytes += int64(len(last)) + 1
		balances = balances && !bytes.Contains(last, []byte(`"ties":"no"`))
	}
	must(lines.Err())
	end, found := bytes.CutPrefix(last, []byte(`],"totals":`))
	var totals struct{ Rows int64 }
	err := json.Unmarshal(bytes.TrimSuffix(end, []byte("}}")), &totals)
	f.rows = totals.Rows
	switch {
	case err != nil || !found:
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
