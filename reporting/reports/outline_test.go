package reports

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// collected is a sink that keeps the rows.
type collected struct{ rows [][]Cell }

func (k *collected) Begin(*Report, Params) error { return nil }
func (k *collected) End(Summary) error           { return nil }
func (k *collected) Abort()                      {}
func (k *collected) Row(cells []Cell) error {
	k.rows = append(k.rows, slices.Clone(cells))
	return nil
}

func paged() []*Report { return []*Report{ledger, collections, statement, exceptions} }

// requirePages compares a report's outline and all its pages with what Run reads.
func requirePages(t *testing.T, a *archive.Archive, r *Report, p Params, size int, by ...string) {
	t.Helper()
	what := fmt.Sprintf("%s, %s, by %v, pages of %d", r.Name, p.String(), by, size)
	var all collected
	s, err := r.Run(t.Context(), a, p, &all, nil)
	noError(t, err)
	o, err := r.Outline(t.Context(), a, p, by...)
	noError(t, err)
	if o.Rows != s.Rows || !slices.Equal(o.Totals, s.Totals) {
		t.Errorf("%s: %+v, want %+v", what, o.Summary, s)
	}

	var rows [][]Cell
	for skip := int64(0); skip < o.Rows; skip += int64(size) {
		page, err := o.Page(t.Context(), a, skip, size)
		noError(t, err)
		if len(page) != size && skip+int64(len(page)) != o.Rows {
			t.Fatalf("%s: %d rows after %d", what, len(page), skip)
		}
		rows = append(rows, page...)
	}

	if len(rows) != len(all.rows) {
		t.Fatalf("%s: %d rows, want %d", what, len(rows), len(all.rows))
	}

	for i := range rows {
		if !slices.Equal(rows[i], all.rows[i]) {
			t.Fatalf("%s, row %d:\n got %+v\nwant %+v", what, i, rows[i], all.rows[i])
		}
	}

	if beyond, err := o.Page(t.Context(), a, o.Rows, size); err != nil || len(beyond) != 0 {
		t.Errorf("%s: %d rows beyond the end, %v", what, len(beyond), err)
	}
}

func TestOutline_AndItsPagesAreTheReport(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	by := map[*Report][]string{ledger: {"status"}, statement: {"fleetId"}, exceptions: {"kind", "reason"}}
	for i, q := range questions() {
		if r := paged()[i%4]; testserver.Long || i%4 == i/4 {
			requirePages(t, a, r, q.params(), []int{100, 7, 35, 1000}[i%4], by[r]...)
		}
	}

	for _, r := range paged() {
		requirePages(t, a, r, asked{from: "2026-10-29", to: "2028-03-05"}.params(), 97, by[r]...)
	}
}

func TestOutline_IsCutByDaysAndColumns(t *testing.T) {
	t.Parallel()

	a, s := exampleArchive(t)
	q := asked{from: "2026-10-29", to: "2028-03-05"}
	o, err := ledger.Outline(t.Context(), a, q.params(), "status")
	noError(t, err)
	want := map[string]int64{}
	for i := range s.orders {
		if q.covers(s.orders[i].CreatedAt) {
			want[dayText(s.orders[i].CreatedAt)+" "+s.orders[i].Status.String()]++
		}
	}

	last := Day(0)
	for i := range o.Pieces {
		p := &o.Pieces[i]
		key := p.Day.String() + " " + p.By[0]
		if p.Rows != want[key] || p.Day < last {
			t.Errorf("%s: %d orders, want %d", key, p.Rows, want[key])
		}
		delete(want, key)
		last = p.Day
	}

	if len(want) > 0 {
		t.Errorf("%v are missing", want)
	}
}

func TestOutline_RefusesWhatHasNoMeaning(t *testing.T) {
	t.Parallel()

	a, _ := newArchive(t, testserver.SharedClickHouse(t))
	p := period(t, "2026-11-01", "2026-11-30")
	for _, c := range []struct {
		r   *Report
		key string
	}{{control, "line"}, {ledger, "orderAmount"}, {ledger, "nothing"}, {ledger, "status) FROM orders --"}} {
		if _, err := c.r.Outline(t.Context(), a, p, c.key); err == nil {
			t.Errorf("%s by %s was added up", c.r.Name, c.key)
		}
	}

	o, err := ledger.Outline(t.Context(), a, p)
	noError(t, err)
	if o.Rows != 0 || len(o.Pieces) != 0 || !o.Totals[ledger.Column("orderAmount")].Given {
		t.Errorf("nothing is %+v", o)
	}

	for _, c := range [][2]int64{{-1, 10}, {0, 0}, {0, 1001}} {
		if _, err := o.Page(t.Context(), a, c[0], int(c[1])); err == nil {
			t.Errorf("a page of %d after %d", c[1], c[0])
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ledger.Outline(ctx, a, p); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled one: %v", err)
	}
}

// Sums beyond what 64 bits hold are an error and not another number.
func TestOutline_RefusesSumsThatDoNotFit(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	a, database := newArchive(t, e)
	for day := range 12 { // each day fits, and at first so do their sums
		e.Exec(t, fmt.Sprintf(`INSERT INTO %s.orders (account_id, business_day, order_id, version, status, created_at, order_amount)
			VALUES (generateUUIDv4(), '2026-11-%02d', generateUUIDv4(), 1, 'Searching', '2026-11-%02d 12:00:00', 9999999999999999.99)`, database, day+1, day+1))
	}

	o, err := ledger.Outline(t.Context(), a, period(t, "2026-11-01", "2026-11-09"))
	if err != nil || ledger.Total(o.Summary, "orderAmount") != 9*999_999_999_999_999_999 {
		t.Errorf("%v, %v", o, err)
	}
	if _, err := ledger.Outline(t.Context(), a, period(t, "2026-11-01", "2026-11-12")); err == nil || !strings.Contains(err.Error(), "orderAmount") {
		t.Errorf("%v", err)
	}
}

// A page keeps the sums of days and fleets in memory. Beyond a bound it is refused before it takes more.
func TestOutline_RefusesMorePiecesThanAPageTakes(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	a, database := newArchive(t, e)
	insert := func(pieces int) {
		e.Exec(t, fmt.Sprintf(`INSERT INTO %s.orders (account_id, business_day, order_id, version, external_order_id, external_store_id, fleet_id, fleet_name, status,
				created_at, delivered_at, ended_at, payment_type, order_amount)
			SELECT reinterpretAsUUID(sipHash128(1)), toDate('2026-11-02'), reinterpretAsUUID(sipHash128(number, %d)), 1, toString(number), 'moda', reinterpretAsUUID(sipHash128(number, %d)), 'Hızlı Kurye', 'Delivered',
				toDateTime64('2026-11-02 12:00:00', 3, 'Etc/GMT-3') AS created_at, created_at, created_at, 'Cash', 0.05 FROM numbers(%d)`, database, pieces, pieces, pieces))
	}

	p := period(t, "2026-11-01", "2026-11-30")
	var before, after runtime.MemStats
	insert(mostPieces)
	runtime.GC()
	runtime.ReadMemStats(&before)
	o, err := collections.Outline(t.Context(), a, p, "fleetId", "fleetName")
	noError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Log("a piece takes", (after.HeapAlloc-before.HeapAlloc)/mostPieces, "bytes")
	if len(o.Pieces) != mostPieces || o.Rows != mostPieces {
		t.Errorf("%d pieces of %d rows", len(o.Pieces), o.Rows)
	}

	insert(1)
	_, err = collections.Outline(t.Context(), a, p, "fleetId", "fleetName")
	var wrong ParamErrors
	if !errors.As(err, &wrong) || wrong[0].Field != "to" || !strings.Contains(wrong[0].Message, "take the CSV, or a shorter period") {
		t.Errorf("one more: %v", err)
	}
}
