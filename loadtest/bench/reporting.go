// Suite reporting: the way of history into ClickHouse, reports, files and books.

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// Suite reporting measures the way of history: from Redis to ClickHouse, from there into reports and files, and into
// the books of closed months. Redis, the embedded ClickHouse and the program reporting, with its shipped settings, are
// processes of their own.
func reportingSuite() suite {
	return suite{
		name:  "reporting",
		takes: "14 minutes, 1 GB of memory, 4 GB of disk",
		about: `  How fast history gets to ClickHouse, against the insert of as many rows; how long
  finance waits for reports over a year of orders, against the bare query in
  ClickHouse; what a download of the year takes in memory, and that every file has
  the rows and sums of ClickHouse; how long closing a month takes, against the insert
  of as many rows, and what then answers from frozen rows.`,
		timeout:    40 * time.Minute,
		fullRounds: 3,
		programs:   []string{"gateway", "worker", "reporting", "devclickhouse"},
		measurements: []measurement{
			{name: "export", measure: (*bench).measureExport, figures: exportFigures()},
			{name: "reports", measure: (*bench).measureReports, figures: reportFigures()},
			{name: "download", measure: (*bench).measureDownloads, figures: downloadFigures()},
			// The last: those before measure open months.
			{name: "closing", measure: (*bench).measureClosing, figures: closingFigures()},
		},
	}
}

// mostMemory is what is accepted of every process of reporting, however long what it writes is.
const mostMemory = 200 // MB

// A reportingEnv is a system whose gateway, worker and reporting are stopped. What reporting is asked, it is asked as
// people do, over HTTP and on the command line; what is right is asked of ClickHouse.
type reportingEnv struct {
	*stack.Stack
	bench          *bench
	dir            string
	account, fleet string // of the year: one of each, with many orders
}

// newReportingEnv starts it in a folder of its own; reporting will start with the shipped settings but those given.
func (b *bench) newReportingEnv(ctx context.Context, name string, settings map[string]string) *reportingEnv {
	got(harness.WriteConfig(b.dir, "reporting", settings))
	e := &reportingEnv{bench: b, dir: b.file(name)}
	e.Stack = got(stack.Start(ctx, stack.Options{DataDir: e.dir, BinDir: b.file("bin"), Reporting: true}))
	e.Gateway.Stop()
	e.Worker.Stop()
	e.Reporting.Stop()
	e.Reporting.Use(b.file("bin"), b.dir)

	return e
}

// ask returns what ClickHouse answers to a statement.
func (e *reportingEnv) ask(ctx context.Context, statement string) string {
	return got(harness.Query(ctx, e.ClickHouseURL(), statement))
}

// askNumbers asks for one row of whole numbers.
func (e *reportingEnv) askNumbers(ctx context.Context, statement string) []int64 {
	var numbers []int64
	for _, field := range strings.Fields(e.ask(ctx, statement)) {
		numbers = append(numbers, got(strconv.ParseInt(field, 10, 64)))
	}
	return numbers
}

// differences returns how many of the numbers are not those that are wanted.
func differences(found, want []int64) float64 {
	n := 0.0
	for i := range want {
		if i >= len(found) || found[i] != want[i] {
			n++
		}
	}
	return n
}

// The year's orders are made in ClickHouse by ClickHouse, in the order of time: their number decides everything about
// them. A tenth of those that were carried is there twice, in an earlier version, too.
//
//go:embed year.sql
var yearSQL string

const (
	yearFirst  = "2025-01-01"
	yearLast   = "2025-12-31"
	monthFirst = "2025-06-01"
	monthLast  = "2025-06-30"
)

// openYear returns an environment whose database holds a year of orders, and in which reporting serves reports of it.
// The first call makes it; the end of the run stops it.
func (b *bench) openYear(ctx context.Context) *reportingEnv {
	if b.year != nil {
		return b.year
	}

	// Of the panel alone, readiness would not mean that it has found ClickHouse.
	b.year = b.newReportingEnv(ctx, "year", map[string]string{"roles": "[panel, export]"})

	// The year's accounts are in ClickHouse only. If Redis had any account, reporting would refuse reports without rows as
	// those of unknown accounts.
	got(b.year.Redis.Command(ctx, "FLUSHALL"))
	b.year.ask(ctx, "TRUNCATE TABLE delivery.identity") // it is that of the ledger that has gone
	must(b.year.Reporting.Start(ctx))
	b.year.fill(ctx)

	return b.year
}

// fill makes the orders. Merges of parts are switched off, so that every run finds
// the same: some parts in each month, and FINAL at work.
func (e *reportingEnv) fill(ctx context.Context) {
	e.ask(ctx, "ALTER TABLE delivery.orders MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1")
	const atOnce = 250_000 // orders made with one statement
	orders := e.bench.history

	began := time.Now()
	for from := 0; from < orders; from += atOnce {
		count := min(atOnce, orders-from)
		for _, earlier := range []bool{true, false} {
			values := map[string]any{"orders": orders, "first": yearFirst, "from": from, "count": count, "earlier": earlier}
			e.ask(ctx, os.Expand(yearSQL, func(name string) string { return fmt.Sprint(values[name]) }))
		}

		isFifth := (from/atOnce)%5 == 4
		if isFifth {
			e.bench.progress("year: %s of %s orders", harness.Grouped(from+count), harness.Grouped(orders))
		}
	}

	e.ask(ctx, `INSERT INTO delivery.late_deliveries (account_id, business_day, order_id, reported_at, stored_at)
		SELECT account_id, business_day, order_id, addMinutes(ended_at, 20), addMinutes(ended_at, 21)
		FROM delivery.orders FINAL WHERE failure_reason = 'TimedOut' AND cityHash64(order_id) % 20 = 0
		SETTINGS insert_allow_materialized_columns = 1`)

	found := e.askNumbers(ctx, "SELECT sum(rows), count() FROM system.parts WHERE database = 'delivery' AND table = 'orders' AND active")
	e.bench.progress("year: %s orders in %s rows and %d parts, made in %.0f s",
		harness.Grouped(orders), harness.Grouped(found[0]), found[1], time.Since(began).Seconds())

	// The account and the fleet with the most orders in the month.
	for name, into := range map[string]*string{"account_id": &e.account, "fleet_id": &e.fleet} {
		*into = e.ask(ctx, fmt.Sprintf(`SELECT %s FROM delivery.orders WHERE business_day BETWEEN '%s' AND '%s'
			GROUP BY 1 ORDER BY count() DESC, 1 LIMIT 1`, name, monthFirst, monthLast))
	}
}

// scope is which orders a report is asked for; empty: of all accounts or fleets.
type scope struct {
	key      string // of figures
	from, to string // days

	account, fleet string
}

// copyDatabase holds copies of orders: the insert of as many rows is what exports and closings are compared with.
const copyDatabase = "bench"

// insertCopy inserts rows of a table into an empty one of the same form, and returns how many and in how many seconds.
// The table is such as "delivery.orders"; rows are such as "FINAL WHERE …", "" for all.
func (e *reportingEnv) insertCopy(ctx context.Context, table, rows string) (count, seconds float64) {
	e.ask(ctx, "CREATE DATABASE IF NOT EXISTS "+copyDatabase)
	_, name, _ := strings.Cut(table, ".")
	copied := copyDatabase + "." + name
	e.ask(ctx, fmt.Sprintf("CREATE TABLE %s AS %s", copied, table))

	began := time.Now()
	e.ask(ctx, fmt.Sprintf("INSERT INTO %s SELECT * FROM %s %s", copied, table, rows))
	seconds = time.Since(began).Seconds()

	count = float64(e.askNumbers(ctx, "SELECT count() FROM "+copied)[0])
	e.ask(ctx, fmt.Sprintf("DROP TABLE %s SYNC", copied))

	return count, seconds
}

// open asks reporting for a report, which comes without compression.
func (e *reportingEnv) open(ctx context.Context, file string, s scope) *http.Response {
	query := url.Values{"from": {s.from}, "to": {s.to}, "account": {s.account}, "fleet": {s.fleet}}
	header := http.Header{"Authorization": {"Bearer " + e.Demo.ReportsToken}, "Accept-Encoding": {"identity"}}
	resp, err := harness.Request(ctx, http.MethodGet, e.Demo.PanelURL+"/reports/"+file+"?"+query.Encode(), "", header)
	if err != nil {
		must(errors.Join(err, e.Reporting.Check(), fmt.Errorf("see %s", e.Reporting.Log)))
	}
	return resp
}

func megabytes(bytes uint64) float64 {
	return float64(bytes) / 1e6
}
