// Command screenshots is `make demo PICTURES=yes`: it plays a day against a system of its own that has what a real one has
// (several vendors and fleets, failing and unreachable receivers, refusals, couriers on their way), takes PANEL.md's
// pictures with a Chromium, and measures every page of the panel: its bytes over the wire and its time to answer.
// Days before today are today's orders again at earlier times.
//
// It exits 0 when every picture was taken, the browser's console shows no fault, and no page is too large.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/day"
	"vendorapi/loadtest/harness"
	"vendorapi/reporting/closing"
)

// courierStep makes a delivery take half a minute: the courier's moves then have different times.
const courierStep = 6 * time.Second

const usage = `Usage: make demo PICTURES=yes [ARGS='flags']

Plays a day against a whole system of its own and takes PANEL.md's pictures of
the panel and the tracking page with a Chromium. Exits 0 only when every page is
small enough and no browser complained.
`

func main() {
	dir := flag.String("out", filepath.Join("reporting", "screenshots"), "folder for the pictures")
	minutes := flag.Float64("minutes", 3, "length of the day that is played")
	keep := flag.Bool("keep", false, "keep the folder with data and logs")
	harness.Main("screenshots", usage, func(ctx context.Context) error {
		out := os.Stdout
		o := stack.Options{CourierStep: courierStep, Reporting: true, Out: out}
		return harness.WithSystem(ctx, out, *keep, o, func(ctx context.Context, s *harness.System) error {
			e := &env{System: s, out: out}
			if err := e.play(ctx, time.Duration(*minutes*float64(time.Minute))); err != nil {
				return err
			}
			return e.show(ctx, *dir)
		})
	})
}

// env is a running system with its plan.
type env struct {
	*harness.System
	out    io.Writer
	plan   plan
	names  map[string]string // what stands for $name in the plan's paths
	locate func() error      // reports where the courier of the tracked order is
}

//go:embed plan.json
var planJSON []byte

type plan struct {
	Changes   map[string]any // of the demo's account and fleet, by path in the admin API
	Fleets    []any          // bodies of the admin API
	Vendors   []*vendor
	Customers []string
	Troubles  map[int]map[string]any // what is changed in which of 17 orders
	Pictures  map[string]string      // paths by the names of files
	Pages     []string               // that are measured: all kinds, one of each
}

// path replaces the names in one of the plan's paths.
func (e *env) path(text string) string {
	return os.Expand(text, func(name string) string { return e.names[name] })
}

// play makes the day: the demo's vendor plays one that balances (package day), the
// others send what their branches sell, and things go wrong as they do.
func (e *env) play(ctx context.Context, length time.Duration) error {
	if err := json.Unmarshal(planJSON, &e.plan); err != nil {
		return fmt.Errorf("plan.json: %w", err)
	}
	if err := e.open(ctx); err != nil {
		return fmt.Errorf("open the vendors: %w", err)
	}
	const orders = 300
	d, err := day.New(day.Options{
		Demo: e.Demo, Orders: orders, Prefix: "AS-", Rate: min(11, orders*1.05/length.Seconds()), Settle: 3 * time.Minute,
	})
	if err != nil {
		return err
	}
	e.Hooks.Handle("/", d)
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		summary, err := d.Play(within)
		if err == nil && len(summary.Problems) > 0 {
			err = fmt.Errorf("the day does not balance: %q", summary.Problems)
		}
		return err
	})
	for i, v := range e.plan.Vendors {
		group.Go(func() error { return v.sell(within, i, length) })
	}
	e.log("playing the day, %v", length)
	if err := group.Wait(); err != nil {
		return err
	}
	e.log("leaving some orders on their way")
	if err := e.leaveOpen(ctx); err != nil {
		return err
	}
	if err := e.awaitExport(ctx); err != nil {
		return err
	}
	for i, share := range shares {
		if err := e.fillDay(ctx, i+1, share); err != nil {
			return err
		}
	}
	if err := e.closeMonth(ctx); err != nil {
		return fmt.Errorf("close a month: %w", err)
	}
	return e.locate()
}

func (e *env) log(format string, args ...any) { fmt.Fprintf(e.out, format+"\n", args...) }

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// await polls done for at most three minutes.
func await(ctx context.Context, what string, done func() (bool, error)) error {
	return harness.Await(ctx, what, 3*time.Minute, 300*time.Millisecond, done)
}

//go:embed earlier.sql
var earlierSQL string

var earlier = template.Must(template.New("earlier").Parse(earlierSQL))

// shares are how busy the days before today were, yesterday first, in percent of
// today: quiet ones in the middle of a week, full ones at its end.
var shares = []int{82, 61, 55, 58, 66, 91, 97, 78, 60, 52, 57, 63, 88}

func (e *env) fillDay(ctx context.Context, back, share int) error {
	var statement strings.Builder
	if err := earlier.Execute(&statement, map[string]int{"Back": back, "Share": share}); err != nil {
		return err
	}
	if _, err := e.ask(ctx, statement.String()); err != nil {
		return fmt.Errorf("%d days ago: %w", back, err)
	}
	return nil
}

// closeMonth closes the latest month that can be, of which there are two days, and books a late delivery of it.
func (e *env) closeMonth(ctx context.Context) error {
	month := closing.MonthOf(closing.MonthOf(time.Now().Add(-closing.Grace)).AddDate(0, 0, -1))
	e.names["month"] = month.String()
	for _, day := range []int{10, 11} {
		back := int(time.Since(month.AddDate(0, 0, day-1)) / (24 * time.Hour))
		if err := e.fillDay(ctx, back, 100); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{"hold", month.String(), "--user", e.Demo.Panel.User, "--note", "exceptions discussed with the fleets"},
		{"close", month.String(), "--user", stack.SecondUser},
	} {
		if err := e.runMonth(ctx, command...); err != nil {
			return err
		}
	}
	return e.correctMonth(ctx, month)
}

// correctMonth books a late delivery of a closed month.
func (e *env) correctMonth(ctx context.Context, month closing.Month) error {
	late, err := e.ask(ctx, `SELECT order_id FROM delivery.orders FINAL WHERE failure_reason != '' AND collection_amount > 0
		AND toStartOfMonth(business_day) = '`+month.Format(time.DateOnly)+`' ORDER BY order_id LIMIT 1`)
	if err != nil {
		return err
	}
	order := strings.TrimSpace(late)
	_, err = e.ask(ctx, `INSERT INTO delivery.late_deliveries (account_id, business_day, order_id, reported_at)
		SELECT account_id, business_day, order_id, addMinutes(ended_at, 25) FROM delivery.orders FINAL WHERE order_id = '`+order+"'")
	if err != nil {
		return err
	}
	return e.runMonth(ctx, "correct", "--order", order, "--user", stack.SecondUser, "--note", "the courier has the cash")
}

// runMonth runs a command of reporting month.
func (e *env) runMonth(ctx context.Context, command ...string) error {
	out, err := e.Month(ctx, command...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return nil
}

// awaitExport waits until ClickHouse has stood still for three seconds.
func (e *env) awaitExport(ctx context.Context) error {
	var before string
	var since time.Time
	return await(ctx, "the export to end", func() (bool, error) {
		now, err := e.ask(ctx, "SELECT count(), sum(version) FROM delivery.orders FINAL")
		if now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) >= 3*time.Second, err
	})
}

// ask sends one statement to ClickHouse.
func (e *env) ask(ctx context.Context, statement string) (string, error) {
	return harness.Query(ctx, e.ClickHouseURL(), statement)
}
