package reports

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

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
	s.rows++
	if s.rows == s.at {
		if err := s.spring(); err != nil {
			return err
		}
	}
	return s.Sink.Row(cells)
}

func (s *trap) End(sum Summary) error { s.ended = true; return s.Sink.End(sum) }
func (s *trap) Abort()                { s.aborted++; s.Sink.Abort() }

// A report that is given up in the middle, by a context or by its sink, is never
// ended, and its query stops.
func TestRun_GivenUpInTheMiddleEndsTheQuery(t *testing.T) {
	t.Parallel()

	readShared(t)
	p := period(t, "2026-11-01", "2026-12-31")
	ctx, cancel := context.WithCancel(t.Context())
	gone := errors.New("the reader has gone")
	for want, spring := range map[error]func() error{
		context.Canceled: func() error { cancel(); return nil },
		gone:             func() error { return gone },
	} {
		s := &trap{Sink: JSON.Sink(io.Discard), at: 20_000, spring: spring}
		runCtx := t.Context()
		if want == context.Canceled {
			runCtx = ctx
		}

		_, err := ledger.Run(runCtx, shared.many, p, s, nil)
		if !errors.Is(err, want) || errors.Is(err, delivery.ErrUnavailable) || s.ended || s.aborted != 1 || s.rows >= manyOrders || want == gone && s.rows != s.at {
			t.Errorf("%v after %d rows; ended %v, aborted %d times", err, s.rows, s.ended, s.aborted)
		}
	}

	testserver.Await(t, "no query of the report runs", func() bool {
		return testserver.SharedClickHouse(t).Exec(t, "SELECT count() FROM system.processes WHERE current_database = '"+shared.database+"'") == "0\n"
	})
}

func TestRun_ClickHouseUnavailableOrEmpty(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	opened := func(url, database string) *archive.Archive {
		a, err := archive.Open(archive.Settings{URL: url, Database: database})
		noError(t, err)
		t.Cleanup(func() { a.Close() })
		return a
	}

	bare := e.NewDatabase(t)
	e.Exec(t, "CREATE DATABASE "+bare)
	unavailable := opened("http://127.0.0.1:9", "")
	p := period(t, "2026-11-01", "2026-11-30")
	for _, r := range All() {
		if _, err := r.Run(t.Context(), unavailable, p, CSV.Sink(io.Discard), nil); !errors.Is(err, delivery.ErrUnavailable) {
			t.Errorf("%s, unavailable: %v", r.Name, err)
		}

		for name, a := range map[string]*archive.Archive{"no database": opened(e.URL, "never_migrated"), "no tables": opened(e.URL, bare)} {
			_, err := r.Run(t.Context(), a, p, CSV.Sink(io.Discard), nil)
			if err == nil || errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "reporting migrate") {
				t.Errorf("%s, %s: %v", r.Name, name, err)
			}
		}
	}

	if _, err := ledger.Outline(t.Context(), unavailable, p); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("outline: %v", err)
	}

	a, _ := exampleArchive(t)
	o, err := ledger.Outline(t.Context(), a, allDays.params())
	noError(t, err)
	if _, err := o.Page(t.Context(), unavailable, 0, 10); !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("page: %v", err)
	}
}

// A sum that an int64 cannot hold is an error, never a wrong number.
func TestSummary_RefusesToOverflow(t *testing.T) {
	t.Parallel()

	sum := ledger.nothing()
	cells := make([]Cell, len(ledger.Columns))
	cells[ledger.Column("orderAmount")] = Cell{Number: 1 << 62, Given: true}
	noError(t, ledger.add(&sum, 1, cells))
	if err := ledger.add(&sum, 1, cells); err == nil || !strings.Contains(err.Error(), "orderAmount") {
		t.Errorf("%v", err)
	}
}
