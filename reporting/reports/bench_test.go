package reports

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// benchOrders is how many orders the reports are measured with; the environment
// variable REPORT_ORDERS says another number.
const benchOrders = 200_000

// yearOf fills a database with orders of 500 accounts, 10 stores each, over 2026.
const yearOf = `INSERT INTO %s.orders (account_id, business_day, order_id, version, external_order_id, external_store_id, store_name, tax_number,
	fleet_id, fleet_name, status, failure_reason, created_at, ready_at, picked_up_at, delivered_at, ended_at, updated_at, payment_type, order_amount, collection_amount)
SELECT reinterpretAsUUID(sipHash128('account', r %% 500)), toDate(created), reinterpretAsUUID(sipHash128('order', number)), 4294967302,
	concat('A-', toString(number)), concat('store-', toString(store)), concat('Çiğköfteci Ömer Şubesi ', toString(r %% 500), '-', toString(store)), toString(1000000000 + r %% 5000),
	reinterpretAsUUID(sipHash128('fleet', (r + store) %% 20)), concat('Hızlı Kurye ', toString((r + store) %% 20)),
	multiIf(k < 92, 'Delivered', k < 96, 'Failed', 'Cancelled') AS reached, if(reached = 'Failed', 'CustomerUnreachable', ''),
	toDateTime64('2026-01-01 00:00:00', 3, 'Etc/GMT-3') + toIntervalMillisecond(intDiv(number * 31536000000, %d)) AS created, created + toIntervalMinute(10),
	if(reached = 'Delivered', created + toIntervalMinute(12), NULL), if(reached = 'Delivered', created + toIntervalMinute(31), NULL),
	created + toIntervalMinute(31) AS ended, ended,
	multiIf(p < 40, 'Cash', p < 70, 'Card', p < 98, 'Prepaid', '') AS type,
	toDecimal64(toInt64(5000 + r %% 95000), 0) / 100 AS amount, if(type IN ('Cash', 'Card'), amount, NULL)
FROM (SELECT number, sipHash64(number) AS r, intDiv(r, 500) %% 10 AS store, intDiv(r, 5000) %% 100 AS k, intDiv(r, 500000) %% 100 AS p FROM numbers(%d))`

// BenchmarkReports measures each report over a year, the ledger in each format,
// and what a page of the panel asks for.
func BenchmarkReports(b *testing.B) {
	orders := benchOrders
	if text := os.Getenv("REPORT_ORDERS"); text != "" {
		var err error
		if orders, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	e := testserver.SharedClickHouse(b)
	database := e.NewDatabase(b)
	a, err := archive.Open(archive.Settings{URL: e.URL, Database: database})
	noError(b, err)
	defer a.Close()
	_, err = a.Migrate(b.Context())
	noError(b, err)
	e.Exec(b, fmt.Sprintf(yearOf, database, orders, orders))
	year := Params{From: dayOf(2026, 1, 1), To: dayOf(2026, 12, 31)}
	november := Params{From: dayOf(2026, 11, 1), To: dayOf(2026, 11, 30)}
	november.Account, err = delivery.ParseAccountID(strings.TrimSpace(e.Exec(b, "SELECT account_id FROM "+database+".orders LIMIT 1")))
	noError(b, err)
	run := func(name string, r *Report, p Params, f Format) {
		b.Run(name, func(b *testing.B) {
			var rows int64
			for b.Loop() {
				s, err := r.Run(b.Context(), a, p, NewSink(f, io.Discard), nil)
				noError(b, err)
				rows += s.Rows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	for _, r := range All() {
		run(r.Name+"/year", r, year, CSV)
		run(r.Name+"/account-month", r, november, CSV)
	}
	for _, f := range Formats() {
		run("ledger-as/"+string(f), ledger, year, f)
	}
	for _, r := range paged() {
		b.Run("outline/"+r.Name, func(b *testing.B) {
			for b.Loop() {
				_, err := r.Outline(b.Context(), a, year)
				noError(b, err)
			}
		})
		o, err := r.Outline(b.Context(), a, year)
		noError(b, err)
		for name, skip := range map[string]int64{"first": 0, "last": max(0, o.Rows-200)} {
			b.Run("page/"+r.Name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					_, err := o.Page(b.Context(), a, skip, 200)
					noError(b, err)
				}
			})
		}
	}
}

// BenchmarkSinks measures the formats alone.
func BenchmarkSinks(b *testing.B) {
	cells := make([]Cell, len(ledger.Columns))
	for i, c := range ledger.Columns {
		cells[i] = Cell{Text: "Çiğköfteci Ömer " + c.Key, Number: 1_795_000_000_123, Given: true}
		if c.Kind == Money {
			cells[i].Number = 24990
		}
	}
	for _, f := range Formats() {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			s := NewSink(f, io.Discard)
			noError(b, s.Begin(ledger, Params{}))
			rows := 0
			for b.Loop() {
				noError(b, s.Row(cells))
				if rows++; f == XLSX && rows%1_000_000 == 0 { // the file would grow without end
					s.Abort()
					s = NewSink(f, io.Discard)
					noError(b, s.Begin(ledger, Params{}))
				}
			}
			s.Abort()
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
