package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	// exportAccounts is how many vendors the exported orders belong to.
	exportAccounts = 50
	// changesPerOrder is its creation and the five statuses that follow.
	changesPerOrder = 6
)

// exportedOrders are those that every round exports.
type exportedOrders struct {
	*book
	count int
}

// amountOf is what order n costs.
func amountOf(n int) delivery.Money {
	return delivery.Money{Minor: 8000 + int64(n)*7919%142_000, Set: true}
}

// exported is what one round has shown.
type exported struct {
	used          harness.Usage // from readiness until everything was stored and acknowledged
	orders        float64       // rows sent: an order whose events are stored apart is sent again
	events        float64
	turns         float64 // seconds that all batches took together: reading orders, storing, acknowledging
	wrong, lagged int64
}

func (e exported) rate() float64 { return (e.orders + e.events) / e.used.Seconds }
func (e exported) micros(process string) float64 {
	return 1e6 * e.used.CPU[process] / (e.orders + e.events)
}

// measureExport fills Redis while nobody exports, then lets an exporter work it
// off, into a new database each time. Redis is filled without waiting for the
// disk, and synced as in production while it is measured.
func (b *bench) measureExport(ctx context.Context) (_ []harness.Figure, err error) {
	e, err := b.newReportingEnv(ctx, "export", "--appendfsync", "no")
	if err != nil {
		return nil, err
	}
	defer e.stop()
	o := &exportedOrders{count: b.orders}
	if o.book, err = openBook(ctx, e.redis.URL); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	began := time.Now()
	if err := o.fill(ctx); err != nil {
		return nil, err
	}
	b.progress("export: filled Redis with %s orders in %.0f s", harness.Grouped(int64(o.count)), time.Since(began).Seconds())
	if _, err := e.redis.Command(ctx, "CONFIG", "SET", "appendfsync", "always"); err != nil {
		return nil, err
	}
	rounds := make([]exported, b.rounds)
	for i := range rounds {
		if rounds[i], err = e.export(ctx, o, i); err != nil {
			return nil, err
		}
		b.progress("export %d: %s rows/s", i+1, harness.Number(rounds[i].rate()))
	}
	figure := func(key, title, unit string, of func(exported) float64) harness.Figure {
		return harness.Figure{Key: "export." + key, Title: title, Unit: unit, Rounds: column(rounds, of)}
	}
	none := func(key, title string, of func(exported) float64) harness.Figure {
		f := figure(key, title, "", of)
		f.Rounds, f.Limit = []float64{slices.Max(f.Rounds)}, harness.Always(harness.AtMost(0))
		return f
	}
	sheet := []harness.Figure{
		figure("rows", "rows exported per second, orders and events", "/s", exported.rate),
		figure("orders", "  orders finished per second, each with six events", "/s", func(e exported) float64 { return float64(o.count) / e.used.Seconds }),
		figure("rows_per_order", "  rows of orders that were sent, for each order", "", func(e exported) float64 { return e.orders / float64(o.count) }),
		figure("exporter_us", "  CPU of the exporter per row", "us", func(e exported) float64 { return e.micros("exporter") }),
		figure("engine_us", "  CPU of the engine per row", "us", func(e exported) float64 { return e.micros("engine") }),
		figure("redis_us", "  CPU of Redis per row", "us", func(e exported) float64 { return e.micros("redis") }),
		figure("pieces", "  batches in flight at once, from reading their orders to the acknowledgement", "", func(e exported) float64 { return e.turns / e.used.Seconds }),
		figure("busy", "  processors busy", "cores", func(e exported) float64 { return e.used.Busy / e.used.Seconds }),
		figure("others", "    with other programs", "cores", func(e exported) float64 { return e.used.Others() }),
		none("wrong", "  counts and sums in ClickHouse that are not what was made", func(e exported) float64 { return float64(e.wrong) }),
		none("left", "  entries left", func(e exported) float64 { return float64(e.lagged) }),
	}
	sheet[0].Limit = harness.AtLeast(50_000)
	return sheet, nil
}

// fill makes the orders and takes them to their end, a few thousand at a time, so
// that the events of an order lie as near each other in the streams as in a busy
// hour. Each order has two commits, of two and of three changes.
func (o *exportedOrders) fill(ctx context.Context) error {
	const some = 250
	began := time.Now().Add(-2 * time.Hour)
	vendors := make([]*vendor, exportAccounts)
	for i := range vendors {
		vendors[i] = &vendor{account: delivery.NewAccountID()}
		if err := o.addAccount(ctx, vendors[i].account, began); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for first := 0; first < o.count; first += some {
		group.Go(func() error {
			at := began.Add(time.Duration(first) * time.Millisecond / 2)
			orders, err := o.createOrders(ctx, vendors, min(some, o.count-first), at, amountOf)
			if err != nil {
				return err
			}
			for _, to := range []delivery.Status{delivery.PickingUp, delivery.Delivered} {
				at = at.Add(10 * time.Minute)
				if err := o.advance(ctx, to, at, orders...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// forgetExporters removes the exporters' group from the streams: without it an
// exporter begins at the oldest entry. Other keys, which end in any bytes, may
// look like a stream's.
const forgetExporters = `for _, kind in ipairs({'e', 'v'}) do
	for _, key in ipairs(redis.call('KEYS', '*}' .. kind)) do
		if redis.call('TYPE', key).ok == 'stream' then redis.call('XGROUP', 'DESTROY', key, 'export') end
	end
end
return redis.status_reply('OK')`

// export lets a new exporter export everything into a new database.
func (e *reportingEnv) export(ctx context.Context, o *exportedOrders, round int) (x exported, err error) {
	database := fmt.Sprintf("round%d", round+1)
	addr, err := stack.FreeAddr()
	if err != nil {
		return x, err
	}
	config, err := writeConfig(e.dir, "reporting", e.bench.profileSettings())
	if err != nil {
		return x, err
	}
	if _, err := e.redis.Command(ctx, "EVAL", forgetExporters, "0"); err != nil {
		return x, err
	}
	p := e.program("export", "/readyz", addr, []string{"CLICKHOUSE_DATABASE=" + database, "REPORTING_OPS_ADDR=" + addr}, "export", "--config", config)
	defer p.Stop()
	if err := p.Start(ctx); err != nil {
		return x, err
	}
	processes := []harness.Process{{Name: "exporter", PID: p.PID()}, {Name: "engine", PID: e.engine.PID()}, {Name: "redis", PID: e.redis.PID()}, harness.Self("bench")}
	profiled := e.bench.startProfile(ctx, p, round)
	x.used, err = harness.During(func() error { return awaitExported(ctx, p, float64(o.count*changesPerOrder)) }, processes...)
	if err = errors.Join(err, profiled(), p.Check()); err != nil {
		return x, err
	}
	m, err := readMetrics(ctx, p)
	if err != nil {
		return x, err
	}
	x.orders, x.events = m[`reporting_export_rows_total{table="orders"}`], m[`reporting_export_rows_total{table="order_events"}`]
	x.turns = m["reporting_export_turn_seconds_sum"]
	p.Stop()
	return x, x.verify(ctx, e, o, database)
}

// awaitExported returns when the exporter has stored and acknowledged that many
// entries. It fails when none is stored for a minute.
func awaitExported(ctx context.Context, p *stack.Program, wanted float64) error {
	stored, moved := 0.0, time.Now()
	return await(ctx, "everything is exported", time.Hour, 50*time.Millisecond, func() (bool, error) {
		m, err := readMetrics(ctx, p)
		if err != nil {
			return false, errors.Join(err, p.Check())
		}
		if now := m["reporting_export_entries_total"]; now > stored {
			stored, moved = now, time.Now()
		}
		if time.Since(moved) > time.Minute {
			return false, fmt.Errorf("%s of %s entries are exported, and it does not go on; see %s", harness.Number(stored), harness.Number(wanted), p.Log)
		}
		return stored >= wanted, nil
	})
}

// verify compares what ClickHouse has with what was made, and drops it.
func (x *exported) verify(ctx context.Context, e *reportingEnv, o *exportedOrders, database string) error {
	lag, err := o.Streams.Lag(ctx, ledger.RoleExport)
	if err != nil {
		return err
	}
	x.lagged = lag.Entries
	found, err := e.askNumbers(ctx, 4, fmt.Sprintf(`SELECT
		(SELECT countIf(status = 'Delivered') FROM %[1]s.orders FINAL),
		(SELECT toInt64(sum(expected_collection) * 100) FROM %[1]s.orders FINAL),
		(SELECT count() FROM %[1]s.order_events FINAL),
		(SELECT uniqExact(order_id, status) FROM %[1]s.order_events)`, database))
	if err != nil {
		return err
	}
	made, changes, kurus := int64(o.count), int64(o.count*changesPerOrder), int64(0)
	for n := range o.count {
		kurus += amountOf(n).Minor
	}
	x.wrong = differences(found, []int64{made, kurus, changes, changes})
	_, err = e.ask(ctx, "DROP DATABASE "+database+" SYNC")
	return err
}

// readMetrics reads a program's counters and gauges, by name and labels.
func readMetrics(ctx context.Context, p *stack.Program) (map[string]float64, error) {
	var page bytes.Buffer
	if err := get(ctx, p.OpsURL()+"/metrics", &page); err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	for line := range strings.Lines(page.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			metrics[name] = v
		}
	}
	return metrics, nil
}
