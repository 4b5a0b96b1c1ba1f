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

// The year's orders are made in ClickHouse by ClickHouse, in the order of time:
// their number decides everything about them. A tenth of those that were carried
// is there twice, in an earlier version, too.
//
//go:embed year.sql
var yearSQL string

var yearTemplate = template.Must(template.New("year").Parse(yearSQL))

const (
	yearFirst  = "2026-01-01"
	yearLast   = "2026-12-31"
	monthFirst = "2026-06-01"
	monthLast  = "2026-06-30"
)

// year is an environment whose database holds a year of orders, and a panel that
// serves reports of it.
type year struct {
	*reportingEnv
	panel          *stack.Program
	origin         string // of the panel
	token          string // bearer
	account, fleet string // one of each
}

// openYear makes the year for the first part that needs it.
func (b *bench) openYear(ctx context.Context) (*year, error) {
	if b.year != nil {
		return b.year, nil
	}
	e, err := b.newReportingEnv(ctx, "year")
	if err != nil {
		return nil, err
	}
	b.year = &year{reportingEnv: e} // which the end of the run stops
	if err := b.year.fill(ctx); err != nil {
		return nil, err
	}
	return b.year, b.year.startPanel(ctx)
}

func (y *year) stop() {
	if y.panel != nil {
		y.panel.Stop()
	}
	y.reportingEnv.stop()
}

// fill makes the tables and the orders. Merges of parts are switched off, so that
// every run finds the same: some parts in each month, and FINAL at work.
func (y *year) fill(ctx context.Context) error {
	if _, _, err := y.command(ctx, "migrate", "--config", y.config); err != nil {
		return err
	}
	if _, err := y.ask(ctx, "ALTER TABLE delivery.orders MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1"); err != nil {
		return err
	}
	const atOnce = 250_000 // orders made with one statement
	orders := y.bench.history
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
			if _, err := y.ask(ctx, statement.String()); err != nil {
				return err
			}
		}
		if (from/atOnce)%5 == 4 {
			y.bench.progress("year: %s of %s orders", harness.Grouped(int64(from+count)), harness.Grouped(int64(orders)))
		}
	}
	if _, err := y.ask(ctx, `INSERT INTO delivery.late_deliveries SELECT account_id, business_day, order_id, addMinutes(ended_at, 20)
		FROM delivery.orders FINAL WHERE failure_reason = 'TimedOut' AND cityHash64(order_id) % 20 = 0`); err != nil {
		return err
	}
	found, err := y.askNumbers(ctx, 2, "SELECT sum(rows), count() FROM system.parts WHERE database = 'delivery' AND table = 'orders' AND active")
	if err != nil {
		return err
	}
	y.bench.progress("year: %s orders in %s rows and %d parts, made in %.0f s", harness.Grouped(int64(orders)), harness.Grouped(found[0]), found[1], time.Since(began).Seconds())
	// The account and the fleet with the most orders in the month.
	for name, into := range map[string]*string{"account_id": &y.account, "fleet_id": &y.fleet} {
		if *into, err = y.ask(ctx, fmt.Sprintf(`SELECT %s FROM delivery.orders WHERE business_day BETWEEN '%s' AND '%s'
			GROUP BY 1 ORDER BY count() DESC, 1 LIMIT 1`, name, monthFirst, monthLast)); err != nil {
			return err
		}
	}
	return nil
}

// startPanel makes a token and starts the panel. The panel alone is ready without
// ClickHouse; the exporter, which has nothing to do here, is not.
func (y *year) startPanel(ctx context.Context) error {
	line, said, err := y.command(ctx, "token", "bench", "--roles", "finance")
	if err != nil {
		return err
	}
	said = strings.TrimSpace(said)
	y.token = said[strings.LastIndexByte(said, '\n')+1:]
	addr, err := stack.FreeAddr()
	if err != nil {
		return err
	}
	ops, err := stack.FreeAddr()
	if err != nil {
		return err
	}
	y.origin = "http://" + addr
	y.panel = y.program("serve", "/readyz", ops, []string{"PANEL_ADDR=" + addr, "REPORTING_OPS_ADDR=" + ops, "REPORT_TOKENS=" + strings.TrimSpace(line)},
		"serve", "--roles", "panel,export", "--config", y.config)
	return y.panel.Start(ctx)
}

// scope says which orders a report is asked for.
type scope struct {
	key, title     string
	from, to       string
	account, fleet string
}

// open asks the panel for a report, as it comes: not compressed.
func (y *year) open(ctx context.Context, file string, s scope) (*http.Response, error) {
	query := url.Values{"from": {s.from}, "to": {s.to}}
	if s.account != "" {
		query.Set("account", s.account)
	}
	if s.fleet != "" {
		query.Set("fleet", s.fleet)
	}
	header := http.Header{"Authorization": {"Bearer " + y.token}, "Accept-Encoding": {"identity"}}
	resp, err := request(ctx, http.MethodGet, y.origin+"/reports/"+file+"?"+query.Encode(), "", header)
	if err != nil {
		return nil, errors.Join(err, y.panel.Check(), fmt.Errorf("see %s", y.panel.Log))
	}
	return resp, nil
}
