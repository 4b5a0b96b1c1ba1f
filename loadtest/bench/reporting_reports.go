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
func (b *bench) measureReports(ctx context.Context) error {
	e, err := b.openYear(ctx)
	if err != nil {
		return err
	}
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
			if err := e.measureReport(ctx, name, s, !b.quick || i == 0); err != nil {
				return fmt.Errorf("%s, %s: %w", name, s.key, err)
			}
		}
	}
	return nil
}

// measureReport asks for a report and, unless it took long, again and again; then
// ClickHouse alone for its rows, unsorted, which go nowhere.
func (e *reportingEnv) measureReport(ctx context.Context, name string, s scope, cold bool) error {
	const disturbing = 0.3 // processors that other programs may keep busy before the table notes it
	b, key := e.bench, "reports."+s.key+"."+name
	if cold {
		if err := e.restartEngine(ctx); err != nil {
			return err
		}
	}
	query := fmt.Sprintf("SELECT * FROM delivery.%s(from = '%s', to = '%s', account = '%s', fleet = '%s', store = '') SETTINGS final = 1 FORMAT Null",
		strings.ReplaceAll(name, "-", "_"), s.from, s.to, s.account, s.fleet)
	var first fetched
	used, err := harness.During(func() (err error) {
		if first, err = e.fetch(ctx, name, s); err != nil {
			return err
		}
		if first.took >= longestRepeated {
			b.add(key, milliseconds(first.took))
		} else if err = e.repeat(key, short(b, 5, 2), func() (time.Duration, error) {
			again, err := e.fetch(ctx, name, s)
			if err == nil && (again.rows != first.rows || again.bytes != first.bytes) {
				err = fmt.Errorf("it has %d rows in %d bytes, then %d in %d", first.rows, first.bytes, again.rows, again.bytes)
			}
			return again.took, err
		}); err != nil {
			return err
		}
		return e.repeat(key+".bare", short(b, 5, 1), func() (time.Duration, error) {
			began := time.Now()
			_, err := e.ask(ctx, query)
			return time.Since(began), err
		})
	}, harness.Process{Name: "panel", PID: e.Reporting.PID()}, harness.Process{Name: "engine", PID: e.ClickHouse.PID()},
		harness.Process{Name: "redis", PID: e.Redis.PID()}, harness.Self("bench"))
	if err != nil {
		return err
	}
	if cold {
		b.add(key+".cold", milliseconds(first.took))
		b.note(key, "cold %s ms", harness.Number(milliseconds(first.took)))
	}
	b.add(key+".rows", float64(first.rows))
	b.note(key, "bare query %s ms; %s rows, %s kB", harness.Number(harness.Median(b.figure(key+".bare").Rounds)),
		harness.Grouped(first.rows), harness.Number(float64(first.bytes)/1000))
	if others := used.Others(); others > disturbing {
		b.note(key, "DISTURBED: other programs kept %s cores busy", harness.Number(others))
	}
	f := b.figure(key)
	b.progress("%s: %s ms, %s", f.Title, harness.Number(harness.Median(f.Rounds)), f.Note)
	return nil
}

// longestRepeated is after how long nothing is asked once more: the state of the caches does not matter then.
const longestRepeated = 10 * time.Second

// repeat notes the milliseconds of several answers, as many as fit into longestRepeated but at least one.
func (e *reportingEnv) repeat(key string, times int, ask func() (time.Duration, error)) error {
	began := time.Now()
	for n := 0; n == 0 || n < times && time.Since(began) < longestRepeated; n++ {
		took, err := ask()
		if err != nil {
			return err
		}
		e.bench.add(key, milliseconds(took))
	}
	return nil
}

// restartEngine starts the engine again, with a cold page cache, and returns when
// reporting has found it.
func (e *reportingEnv) restartEngine(ctx context.Context) error {
	e.ClickHouse.Stop()
	if err := dropPages(filepath.Join(e.dir, "clickhouse")); err != nil {
		return fmt.Errorf("make the page cache forget the tables: %w", err)
	}
	if err := e.ClickHouse.Start(ctx); err != nil {
		return err
	}
	return e.Reporting.AwaitReady(ctx)
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

type fetched struct {
	took        time.Duration // from the request to the last byte
	rows, bytes int64
}

// fetch downloads a report as JSON, a row a line, and reads its last line, which has the number of rows.
func (e *reportingEnv) fetch(ctx context.Context, name string, s scope) (f fetched, err error) {
	began := time.Now()
	resp, err := e.open(ctx, name+".json", s)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	var last []byte
	balances := true
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		last = append(last[:0], lines.Bytes()...)
		f.bytes += int64(len(last)) + 1
		balances = balances && !bytes.Contains(last, []byte(`"ties":"no"`))
	}
	f.took = time.Since(began)
	if err := lines.Err(); err != nil {
		return f, fmt.Errorf("read %s: %w", name, err)
	}
	end, found := bytes.CutPrefix(last, []byte(`],"totals":`))
	var totals struct{ Rows int64 }
	if err := json.Unmarshal(bytes.TrimSuffix(end, []byte("}}")), &totals); !found || err != nil {
		return f, fmt.Errorf("%s ends with %.100q", name, last)
	}
	f.rows = totals.Rows
	switch {
	case f.rows == 0 && name != "exceptions":
		return f, errors.New("it has no rows")
	case !balances:
		return f, errors.New("it does not balance")
	}
	return f, nil
}
