// This file measures how fast an exporter brings orders from Redis into ClickHouse.

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	exportAccounts = 50
	// changesPerOrder is its creation and the five statuses that follow.
	changesPerOrder = 6
	exportedEvents  = `reporting_export_rows_total{table="order_events"}`
)

func exportFigures() []*figure {
	return []*figure{
		// The exporter also reads the entries and the orders from Redis, and acknowledges what is stored.
		{
			Key: "export.rows", What: "rows exported, orders and events", Unit: "/s",
			Baseline: "the insert of as many rows", Limit: ratioAtLeast(0.05),
		},
		{Key: "export.orders", What: "  orders finished, each with six events", Unit: "/s"},
		{Key: "export.rows_per_order", What: "  rows of orders that were sent", Unit: "/order"},
		{Key: "export.exporter_us", What: "  CPU of the exporter per row", Unit: "us"},
		{Key: "export.engine_us", What: "  CPU of the engine per row", Unit: "us"},
		{Key: "export.redis_us", What: "  CPU of Redis per row", Unit: "us"},
		{Key: "export.pieces", What: "  batches in flight at once, from reading their orders to the acknowledgement"},
		{Key: "export.busy", What: "  processors busy", Unit: "cores"},
		{Key: "export.others", What: "    with other programs", Unit: "cores"},
		{Key: "export.wrong", What: "  counts and sums in ClickHouse that are not what was made", Limit: atMost(0)},
		{Key: "export.left", What: "  entries left", Limit: atMost(0)},
	}
}

// measureExport fills Redis while no exporter runs, then lets an exporter work it off, into a new database each time.
// Redis is filled without waiting for the disk, and synced as in production while it is measured.
func (b *bench) measureExport(ctx context.Context) {
	e := b.newReportingEnv(ctx, "export", map[string]string{"roles": "[export]", "pprof": strconv.FormatBool(b.profile != "")})
	defer e.Stop()
	got(e.Redis.Command(ctx, "CONFIG", "SET", "appendfsync", "no"))
	o := openBook(ctx, e.Stack)
	defer func() { _ = o.Close() }() // the ledger is dropped
	began := time.Now()
	o.fill(ctx, b.orders)
	b.progress("export: filled Redis with %s orders in %.0f s", harness.Grouped(b.orders), time.Since(began).Seconds())
	got(e.Redis.Command(ctx, "CONFIG", "SET", "appendfsync", "always"))
	for n := range b.rounds {
		e.export(ctx, o, n)
	}
}

// fill makes the orders and takes them to their end, a few thousand at a time, so that the events of an order lie as
// near each other in the streams as in a busy hour. Each order has two commits, of two and of three changes.
func (b *book) fill(ctx context.Context, count int) {
	const some = 4096
	began := time.Now().Add(-2 * time.Hour)
	vendors := make([]*vendor, exportAccounts)
	for i := range vendors {
		vendors[i] = &vendor{account: delivery.NewAccountID()}
		b.addAccount(ctx, vendors[i].account, began)
	}

	for first := 0; first < count; first += some {
		at := began.Add(time.Duration(first) * time.Millisecond / 2)
		b.makeEvents(ctx, vendors, min(some, count-first), at, delivery.PickingUp, delivery.Delivered)
	}
}

// forgetExporters removes the exporters' group from the streams: without it an exporter begins at the oldest entry.
// Other keys, which end in any bytes, may look like a stream's.
const forgetExporters = `for _, kind in ipairs({'e', 'v'}) do
	for _, key in ipairs(redis.call('KEYS', '*}' .. kind)) do
		if redis.call('TYPE', key).ok == 'stream' then redis.call('XGROUP', 'DESTROY', key, 'export') end
	end
end
return redis.status_reply('OK')`

// export is one round: a new exporter exports everything into a new database. It
// is measured from its readiness until everything was stored and acknowledged.
func (e *reportingEnv) export(ctx context.Context, o *book, n int) {
	got(e.Redis.Command(ctx, "EVAL", forgetExporters, "0"))
	p, b, database := e.Reporting, e.bench, fmt.Sprintf("round%d", n+1)
	p.Use(b.file("bin"), b.dir, "CLICKHOUSE_DATABASE="+database)
	defer p.Stop()
	must(p.Start(ctx))
	profiled := b.startProfile(ctx, p, n)
	used := got(harness.During(func() error { return awaitExported(ctx, p, o, float64(b.orders*changesPerOrder)) },
		harness.Process{Name: "exporter", PID: p.PID()}, harness.Process{Name: "engine", PID: e.ClickHouse.PID()},
		harness.Process{Name: "redis", PID: e.Redis.PID()}, harness.Self("bench")))
	must(errors.Join(profiled(), p.Check()))
	m := got(readMetrics(ctx, p))
	p.Stop()

	// An order whose events are stored apart is sent again.
	orders, events := m[`reporting_export_rows_total{table="orders"}`], m[exportedEvents]
	rate, bare := (orders+events)/used["seconds"], e.insertRate(ctx, database)
	b.progress("export %d: %s rows/s, an insert %s rows/s", n+1, number(rate), number(bare))
	b.addBeside("export.rows", rate, bare)
	b.add("export.orders", float64(b.orders)/used["seconds"])
	b.add("export.rows_per_order", orders/float64(b.orders))
	for _, process := range []string{"exporter", "engine", "redis"} {
		b.add("export."+process+"_us", 1e6*used[process]/(orders+events))
	}

	b.add("export.pieces", m["reporting_export_turn_seconds_sum"]/used["seconds"])
	b.add("export.busy", used["busy"]/used["seconds"])
	b.add("export.others", used.Others())
	b.add("export.left", float64(got(o.Streams.Lag(ctx, ledger.RoleExport)).Entries))
	e.verifyExport(ctx, database)
}

// insertRate returns how many rows a second the engine inserts of those that were exported.
func (e *reportingEnv) insertRate(ctx context.Context, database string) float64 {
	orders, ordersTook := e.insertCopy(ctx, database+".orders", "")
	events, eventsTook := e.insertCopy(ctx, database+".order_events", "")
	return (orders + events) / (ordersTook + eventsTook)
}

// awaitExported returns when the exporter has stored so many events and acknowledged everything. It fails when none is
// stored for a minute.
func awaitExported(ctx context.Context, p *stack.Program, o *book, wanted float64) error {
	stored, moved := 0.0, time.Now()
	return harness.Await(ctx, "everything is exported", time.Hour, 50*time.Millisecond, func() (bool, error) {
		m, err := readMetrics(ctx, p)
		if err != nil {
			return false, errors.Join(err, p.Check())
		}

		if m[exportedEvents] > stored {
			stored, moved = m[exportedEvents], time.Now()
		}

		if time.Since(moved) > time.Minute {
			return false, fmt.Errorf("%s of %s events are exported, and it does not go on; see %s", number(stored), number(wanted), p.Log)
		}
		if stored < wanted {
			return false, nil
		}

		lag, err := o.Streams.Lag(ctx, ledger.RoleExport)

		return lag.Entries == 0, err
	})
}

// verifyExport compares what ClickHouse has with what was made, and drops it.
func (e *reportingEnv) verifyExport(ctx context.Context, database string) {
	found := e.askNumbers(ctx, fmt.Sprintf(`SELECT
		(SELECT countIf(status = 'Delivered') FROM %[1]s.orders FINAL),
		(SELECT toInt64(sum(expected_collection) * 100) FROM %[1]s.orders FINAL),
		(SELECT count() FROM %[1]s.order_events FINAL),
		(SELECT uniqExact(order_id, status) FROM %[1]s.order_events)`, database))

	orders, kurus := e.bench.orders, int64(0)
	for n := range orders {
		kurus += amountOf(n).Minor
	}

	changes := int64(orders * changesPerOrder)
	e.bench.add("export.wrong", differences(found, []int64{int64(orders), kurus, changes, changes}))
	e.ask(ctx, "DROP DATABASE "+database+" SYNC")
	e.ask(ctx, "DROP DATABASE "+database+"_finance SYNC")
}

// readMetrics returns a program's metrics by their names with labels.
func readMetrics(ctx context.Context, p *stack.Program) (map[string]float64, error) {
	page, err := harness.Fetch(ctx, http.MethodGet, p.OpsURL()+"/metrics", "")
	return harness.Numbers(string(page), " "), err
}
