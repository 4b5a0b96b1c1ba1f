package reports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// trap is a sink that does something at a row.
type trap struct {
	Sink
	at      int
	spring  func() error
	rows    int
	aborted int
	ended   bool
}

func (s *trap) Row(cells []Cell) error {
	if s.rows++; s.rows == s.at {
		if err := s.spring(); err != nil {
			return err
		}
	}
	return s.Sink.Row(cells)
}

func (s *trap) End(sum Summary) error { s.ended = true; return s.Sink.End(sum) }
func (s *trap) Abort()                { s.aborted++; s.Sink.Abort() }

const many = 300_000

// manyOrders is an archive whose ledger takes a while.
func manyOrders(t *testing.T, e *testserver.ClickHouse) (*archive.Archive, string) {
	t.Helper()
	database := e.NewDatabase(t)
	a, err := archive.Open(archive.Settings{URL: e.URL, Database: database})
	noError(t, err)
	t.Cleanup(func() { a.Close() })
	_, err = a.Migrate(t.Context())
	noError(t, err)
	e.Exec(t, fmt.Sprintf(`INSERT INTO %s.orders (account_id, business_day, order_id, version, external_order_id, status, created_at)
		SELECT reinterpretAsUUID(sipHash128(number %% 100)), toDate(created_at), reinterpretAsUUID(sipHash128(number, 1)), 1, repeat('x', 60), 'Searching',
			toDateTime64('2026-11-01 00:00:00', 3, 'Etc/GMT-3') + toIntervalSecond(number * 8) AS created_at FROM numbers(%d)`, database, many))
	return a, database
}

func TestRun_CancelledInTheMiddleEndsTheQuery(t *testing.T) {
	t.Parallel()
	e := testserver.SharedClickHouse(t)
	a, database := manyOrders(t, e)
	for _, f := range []Format{CSV, XLSX} {
		ctx, cancel := context.WithCancel(t.Context())
		s := &trap{Sink: NewSink(f, io.Discard), at: 20_000, spring: func() error { cancel(); return nil }}
		_, err := ledger.Run(ctx, a, period(t, "2026-11-01", "2026-12-31"), s, nil)
		if !errors.Is(err, context.Canceled) || errors.Is(err, delivery.ErrUnavailable) || s.ended || s.aborted != 1 || s.rows >= many {
			t.Errorf("%s: %v after %d rows; ended %v, aborted %d times", f, err, s.rows, s.ended, s.aborted)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		running := e.Exec(t, "SELECT count() FROM system.processes WHERE current_database = '"+database+"'")
		if running == "0\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running: %s", e.Exec(t, "SELECT query FROM system.processes"))
		}
	}
}

func TestRun_ReaderWhoGoesEndsTheQuery(t *testing.T) {
	t.Parallel()
	a, _ := manyOrders(t, testserver.SharedClickHouse(t))
	gone := errors.New("the reader has gone")
	s := &trap{Sink: NewSink(JSON, io.Discard), at: 10_000, spring: func() error { return gone }}
	began := time.Now()
	_, err := ledger.Run(t.Context(), a, period(t, "2026-11-01", "2026-12-31"), s, nil)
	if !errors.Is(err, gone) || s.aborted != 1 || s.rows != 10_000 {
		t.Errorf("%v after %d rows, aborted %d times, %v", err, s.rows, s.aborted, time.Since(began))
	}
}

func TestRun_ClickHouseKilledInTheMiddleIsAnError(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a, _ := manyOrders(t, e)
	p := period(t, "2026-11-01", "2026-12-31")
	for _, row := range []int{1, blockRows, 50_000} {
		s := &trap{Sink: NewSink(CSV, io.Discard), at: row, spring: func() error { e.Kill(t); return nil }}
		_, err := ledger.Run(t.Context(), a, p, s, nil)
		if !errors.Is(err, delivery.ErrUnavailable) || s.ended || s.aborted != 1 || s.rows >= many {
			t.Errorf("at %d: %v after %d rows; ended %v", row, err, s.rows, s.ended)
		}
		e.Start(t)
	}
	summary, err := ledger.Run(t.Context(), a, p, NewSink(CSV, io.Discard), nil)
	if err != nil || summary.Rows != many {
		t.Errorf("afterwards: %d rows, %v", summary.Rows, err)
	}
}

func TestRun_ClickHouseAwayOrEmpty(t *testing.T) {
	t.Parallel()
	p := period(t, "2026-11-01", "2026-11-30")
	away, err := archive.Open(archive.Settings{URL: "http://127.0.0.1:9"})
	noError(t, err)
	defer away.Close()
	e := testserver.SharedClickHouse(t)
	empty, err := archive.Open(archive.Settings{URL: e.URL, Database: "never_migrated"})
	noError(t, err)
	defer empty.Close()
	database := e.NewDatabase(t)
	e.Exec(t, "CREATE DATABASE "+database)
	half, err := archive.Open(archive.Settings{URL: e.URL, Database: database})
	noError(t, err)
	defer half.Close()
	for _, r := range All() {
		if _, err := r.Run(t.Context(), away, p, NewSink(CSV, io.Discard), nil); !errors.Is(err, delivery.ErrUnavailable) {
			t.Errorf("%s, away: %v", r.Name, err)
		}
		for name, a := range map[string]*archive.Archive{"no database": empty, "no tables": half} {
			_, err := r.Run(t.Context(), a, p, NewSink(CSV, io.Discard), nil)
			if err == nil || errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "reporting migrate") {
				t.Errorf("%s, %s: %v", r.Name, name, err)
			}
		}
	}
}

// A sum that an int64 cannot hold is an error, never a wrong number.
func TestTally_RefusesToOverflow(t *testing.T) {
	t.Parallel()
	count := newTally(ledger)
	cells := make([]Cell, len(ledger.Columns))
	amount := 15
	cells[amount] = Cell{Number: 1 << 62, Given: true}
	noError(t, count.add(cells))
	if err := count.add(cells); err == nil || !strings.Contains(err.Error(), "orderAmount") {
		t.Errorf("%v", err)
	}
}
