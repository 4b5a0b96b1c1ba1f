//go:build long

package reports

import (
	"errors"
	"io"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func TestRun_ClickHouseKilledInTheMiddleIsAnError(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a, database := newArchive(t, e)
	insertMany(t, e, database)
	p := period(t, "2026-11-01", "2026-12-31")
	for _, row := range []int{1, blockRows, 50_000} {
		s := &trap{Sink: NewSink(CSV, io.Discard), at: row, spring: func() error { e.Kill(t); return nil }}
		_, err := ledger.Run(t.Context(), a, p, s, nil)
		if !errors.Is(err, delivery.ErrUnavailable) || s.ended || s.aborted != 1 || s.rows >= manyOrders {
			t.Errorf("at %d: %v after %d rows; ended %v", row, err, s.rows, s.ended)
		}
		e.Start(t)
	}
	summary, err := ledger.Run(t.Context(), a, p, NewSink(CSV, io.Discard), nil)
	if err != nil || summary.Rows != manyOrders {
		t.Errorf("afterwards: %d rows, %v", summary.Rows, err)
	}
}
