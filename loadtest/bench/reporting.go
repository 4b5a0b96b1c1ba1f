package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/template"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// reportingEnv is a system whose gateway, worker and reporting are stopped, with an empty Redis. What reporting is
// asked, it is asked as people do, over HTTP and on the command line; what is right is asked of ClickHouse.
type reportingEnv struct {
	*stack.Stack
	bench          *bench
	dir            string
	account, fleet string // of the year: one of each, with many orders
}

// newReportingEnv starts it in a folder of its own; reporting will start with the shipped settings but those given.
func (b *bench) newReportingEnv(ctx context.Context, name string, settings map[string]string) (*reportingEnv, error) {
	s, err := stack.Start(ctx, stack.Options{DataDir: b.file(name), BinDir: b.file("bin"), Reporting: true})
	if err != nil {
		return nil, err
	}
	s.Gateway.Stop()
	s.Worker.Stop()
	s.Reporting.Stop()
	e := &reportingEnv{Stack: s, bench: b, dir: b.file(name)}
	_, flushed := s.Redis.Command(ctx, "FLUSHALL")
	_, written := harness.WriteConfig(e.dir, "reporting", settings)
	if err := errors.Join(flushed, written); err != nil {
		s.Stop()
		return nil, err
	}
	s.Reporting.Use(b.file("bin"), e.dir)
	return e, nil
}

func (e *reportingEnv) ask(ctx context.Context, statement string) (string, error) {
	return harness.Query(ctx, e.ClickHouseURL(), statement)
}

// askNumbers is ask for one row of n whole numbers.
func (e *reportingEnv) askNumbers(ctx context.Context, n int, statement string) ([]int64, error) {
	answer, err := e.ask(ctx, statement)
	if err != nil {
		return nil, err
	}
	numbers, targets := make([]int64, n), make([]any, n)
	for i := range numbers {
		targets[i] = &numbers[i]
	}
	if _, err := fmt.Sscan(answer, targets...); err != nil {
		return nil, fmt.Errorf("the engine answers %q to %.60q: %d numbers are wanted", answer, statement, n)
	}
	return numbers, nil
}

func differences(got, want []int64) (n int64) {
	for i := range want {
		if got[i] != want[i] {
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

var yearTemplate = template.Must(template.New("year").Parse(yearSQL))

const (
	yearFirst  = "2025-01-01"
	yearLast   = "2025-12-31"
	monthFirst = "2025-06-01"
	monthLast  = "2025-06-30"
)

// openYear is an environment whose database holds a year of orders, and in which reporting serves reports of it.
func (b *bench) openYear(ctx context.Context) (e *reportingEnv, err error) {
	if b.year != nil {
		return b.year, nil
	}
	// Of the panel alone, readiness would not mean that it has found ClickHouse.
	if e, err = b.newReportingEnv(ctx, "year", map[string]string{"roles": "[panel, export]"}); err != nil {
		return nil, err
	}
	b.year = e // which the end of the run stops
	if err := e.Reporting.Start(ctx); err != nil {
		return nil, err
	}
	return e, e.fill(ctx)
}

// fill makes the orders. Merges of parts are switched off, so that every run finds
// the same: some parts in each month, and FINAL at work.
func (e *reportingEnv) fill(ctx context.Context) error {
	if _, err := e.ask(ctx, "ALTER TABLE delivery.orders MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1"); err != nil {
		return err
	}
	const atOnce = 250_000 // orders made with one statement
	orders := e.bench.history
	began := time.Now()
	for from := 0; from < orders; from += atOnce {
		count := min(atOnce, orders-from)
		for _, earlier := range []bool{true, false} {
			var statement strings.Builder
			if err := yearTemplate.Execute(&statement, map[string]any{
				"Orders": orders, "Days": 365, "First": yearFirst, "From": from, "Count": count, "Earlier": earlier,
				"Accounts": 500, "Stores": 4, "Fleets": 20,
			}); err != nil {
				return err
			}
			if _, err := e.ask(ctx, statement.String()); err != nil {
				return err
			}
		}
		if (from/atOnce)%5 == 4 {
			e.bench.progress("year: %s of %s orders", harness.Grouped(from+count), harness.Grouped(orders))
		}
	}
	if _, err := e.ask(ctx, `INSERT INTO delivery.late_deliveries SELECT account_id, business_day, order_id, addMinutes(ended_at, 20)
		FROM delivery.orders FINAL WHERE failure_reason = 'TimedOut' AND cityHash64(order_id) % 20 = 0`); err != nil {
		return err
	}
	found, err := e.askNumbers(ctx, 2, "SELECT sum(rows), count() FROM system.parts WHERE database = 'delivery' AND table = 'orders' AND active")
	if err != nil {
		return err
	}
	e.bench.progress("year: %s orders in %s rows and %d parts, made in %.0f s", harness.Grouped(orders), harness.Grouped(found[0]), found[1], time.Since(began).Seconds())
	// The account and the fleet with the most orders in the month.
	for name, into := range map[string]*string{"account_id": &e.account, "fleet_id": &e.fleet} {
		if *into, err = e.ask(ctx, fmt.Sprintf(`SELECT %s FROM delivery.orders WHERE business_day BETWEEN '%s' AND '%s'
			GROUP BY 1 ORDER BY count() DESC, 1 LIMIT 1`, name, monthFirst, monthLast)); err != nil {
			return err
		}
	}
	return nil
}

// scope is which orders a report is asked for; empty: of all accounts or fleets.
type scope struct{ key, from, to, account, fleet string }

// open asks reporting for a report, as it comes: not compressed.
func (e *reportingEnv) open(ctx context.Context, file string, s scope) (*http.Response, error) {
	query := url.Values{"from": {s.from}, "to": {s.to}}
	if s.account != "" {
		query.Set("account", s.account)
	}
	if s.fleet != "" {
		query.Set("fleet", s.fleet)
	}
	header := http.Header{"Authorization": {"Bearer " + e.Demo.ReportsToken}, "Accept-Encoding": {"identity"}}
	resp, err := harness.Request(ctx, http.MethodGet, e.Demo.PanelURL+"/reports/"+file+"?"+query.Encode(), "", header)
	if err != nil {
		return nil, errors.Join(err, e.Reporting.Check(), fmt.Errorf("see %s", e.Reporting.Log))
	}
	return resp, nil
}
