package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/program"
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
	yearDays   = 365
	monthFirst = "2026-06-01"
	monthLast  = "2026-06-30"

	yearAccounts = 500
	yearStores   = 4 // of each account
	yearFleets   = 20
)

// ordersAtOnce is how many orders are made with one statement.
const ordersAtOnce = 250_000

// year is a rig whose database holds a year of orders, and a panel that serves
// reports of it.
type year struct {
	*rig
	panel          *program.Program
	origin, ops    string // of the panel
	token          string // bearer
	account, fleet string // one of each
	orders         int
}

// openYear makes the year for the first part that needs it.
func (b *bench) openYear(ctx context.Context) (_ *year, err error) {
	if b.year != nil {
		return b.year, nil
	}
	r, err := b.newRig(ctx, "year")
	if err != nil {
		return nil, err
	}
	y := &year{rig: r, orders: b.history}
	b.year = y // which stops it
	if err := y.fill(ctx); err != nil {
		return nil, err
	}
	return y, y.preparePanel(ctx)
}

func (y *year) stop() (err error) {
	if y.panel != nil {
		err = y.panel.Stop()
	}
	return errors.Join(err, y.rig.stop())
}

// fill makes the tables and the orders. Merges of parts are switched off, so
// that every run finds the same: some parts in each month, and FINAL at work.
func (y *year) fill(ctx context.Context) error {
	settings, err := config()
	if err != nil {
		return err
	}
	if _, _, err := y.command(ctx, "migrate", "--config", settings); err != nil {
		return err
	}
	if _, err := y.ask(ctx, "ALTER TABLE delivery.orders MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1"); err != nil {
		return err
	}
	began, said := time.Now(), time.Now()
	for from := 0; from < y.orders; from += ordersAtOnce {
		count := min(ordersAtOnce, y.orders-from)
		for _, earlier := range []bool{true, false} {
			if err := y.insert(ctx, from, count, earlier); err != nil {
				return err
			}
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			y.bench.progress("year: %s of %s orders", harness.Grouped(int64(from+count)), harness.Grouped(int64(y.orders)))
		}
	}
	if _, err := y.ask(ctx, `INSERT INTO delivery.late_deliveries SELECT account_id, business_day, order_id, addMinutes(ended_at, 20)
		FROM delivery.orders FINAL WHERE failure_reason = 'TimedOut' AND cityHash64(order_id) % 20 = 0`); err != nil {
		return err
	}
	var rows, parts int64
	if err := y.askNumbers(ctx, []*int64{&rows, &parts}, `SELECT sum(rows), count() FROM system.parts
		WHERE database = 'delivery' AND table = 'orders' AND active`); err != nil {
		return err
	}
	y.bench.progress("year: %s orders in %s rows and %d parts, made in %.0f s", harness.Grouped(int64(y.orders)), harness.Grouped(rows), parts, time.Since(began).Seconds())
	return y.choose(ctx)
}

func (y *year) insert(ctx context.Context, from, count int, earlier bool) error {
	var statement strings.Builder
	if err := yearTemplate.Execute(&statement, map[string]any{
		"Orders": y.orders, "Days": yearDays, "First": yearFirst, "From": from, "Count": count, "Earlier": earlier,
		"Accounts": yearAccounts, "Stores": yearStores, "Fleets": yearFleets,
	}); err != nil {
		return err
	}
	_, err := y.ask(ctx, statement.String())
	return err
}

// choose finds the account and the fleet with the most orders in the month.
func (y *year) choose(ctx context.Context) error {
	for column, into := range map[string]*string{"account_id": &y.account, "fleet_id": &y.fleet} {
		busiest, err := y.ask(ctx, fmt.Sprintf(`SELECT %s FROM delivery.orders WHERE business_day BETWEEN '%s' AND '%s'
			GROUP BY 1 ORDER BY count() DESC, 1 LIMIT 1`, column, monthFirst, monthLast))
		if err != nil {
			return err
		}
		*into = busiest
	}
	return nil
}

// preparePanel makes a token and starts the panel.
func (y *year) preparePanel(ctx context.Context) error {
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
	settings, err := config()
	if err != nil {
		return err
	}
	y.origin, y.ops = "http://"+addr, "http://"+ops
	y.panel = y.program("serve", []string{"PANEL_ADDR=" + addr, "REPORTING_OPS_ADDR=" + ops, "REPORT_TOKENS=" + strings.TrimSpace(line)},
		"serve", "--roles", "panel,export", "--config", settings)
	// The panel alone is ready without ClickHouse; the exporter, which has nothing
	// to do here, is not.
	y.panel.Ready = y.ops + "/readyz"
	return y.panel.Start(ctx)
}

// restart starts the engine anew and returns when the panel has found it again.
func (y *year) restart(ctx context.Context, cold bool) error {
	if err := y.rig.restart(ctx, cold); err != nil {
		return err
	}
	return y.panel.AwaitAnswer(ctx, y.ops+"/readyz")
}

// scope says which orders reports are asked for, and how long the answers may
// take.
type scope struct {
	key, title     string
	from, to       string
	account, fleet string
	judged         string         // the name of a report, or everyReport; empty: none
	accepted       *harness.Limit // of those that are judged, in milliseconds
}

const everyReport = "*"

func (s *scope) query() url.Values {
	v := url.Values{"from": {s.from}, "to": {s.to}}
	if s.account != "" {
		v.Set("account", s.account)
	}
	if s.fleet != "" {
		v.Set("fleet", s.fleet)
	}
	return v
}

// request is a download from the panel, as it comes: not compressed.
func (y *year) request(ctx context.Context, file string, s *scope) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, y.origin+"/reports/"+file+"?"+s.query().Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+y.token)
	req.Header.Set("Accept-Encoding", "identity")
	return req, nil
}

// open asks for a report and answers its body.
func (y *year) open(ctx context.Context, file string, s *scope) (*http.Response, error) {
	req, err := y.request(ctx, file, s)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, errors.Join(err, y.panel.Check())
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s answers %d; see %s", req.URL.Path, resp.StatusCode, filepath.Base(y.panel.Log))
	}
	return resp, nil
}
