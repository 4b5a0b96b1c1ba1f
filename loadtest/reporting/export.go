package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/program"
)

// exported is what one round has shown.
type exported struct {
	seconds       float64 // from readiness until everything was stored and acknowledged
	orders        float64 // rows sent: an order whose events are stored apart is sent again
	events        float64
	turns         float64 // seconds that all batches took together: reading orders, storing, acknowledging
	used          spent
	wrong, lagged int64
}

func (e *exported) rate() float64                { return (e.orders + e.events) / e.seconds }
func (e *exported) each(seconds float64) float64 { return 1e6 * seconds / (e.orders + e.events) }

// measureExport fills Redis while nobody exports, then lets an exporter work it
// off, into a new database each time. Redis is filled without waiting for the
// disk, and synced as in production while it is measured.
func (b *bench) measureExport(ctx context.Context) (_ []harness.Figure, err error) {
	r, err := b.newRig(ctx, "export", "--appendfsync", "no")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	t, err := newTraffic(ctx, r.redis.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.ledger.Close()) }()
	began := time.Now()
	kurus, err := t.fill(ctx, b.orders)
	if err != nil {
		return nil, err
	}
	b.progress("export: filled Redis with %s orders in %.0f s", harness.Grouped(int64(b.orders)), time.Since(began).Seconds())
	if err := r.tellRedis(ctx, "CONFIG", "SET", "appendfsync", "always"); err != nil {
		return nil, err
	}
	rounds := make([]exported, b.rounds)
	for i := range rounds {
		if rounds[i], err = b.exportOnce(ctx, r, t, i, kurus); err != nil {
			return nil, err
		}
		b.progress("export %d: %s rows/s", i+1, harness.Number(rounds[i].rate()))
	}
	return exportFigures(rounds, b.orders), nil
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

// exportOnce lets a new exporter export everything into a new database.
func (b *bench) exportOnce(ctx context.Context, r *rig, t *traffic, round int, kurus int64) (e exported, err error) {
	database := fmt.Sprintf("round%d", round+1)
	p, ops, err := b.exporter(r, database, b.profile != "" && round == b.rounds-1)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := r.tellRedis(ctx, "EVAL", forgetExporters, "0"); err != nil {
		return e, err
	}
	if err := p.Start(ctx); err != nil {
		return e, err
	}
	began := time.Now()
	before, err := takeUsage(p.PID(), r.engine.PID(), r.redis.PID())
	if err != nil {
		return e, err
	}
	profiled := b.profileExporter(ctx, ops, round)
	if err := awaitEntries(ctx, p, ops, b.orders*eventsPerOrder); err != nil {
		return e, err
	}
	e.seconds = time.Since(began).Seconds()
	after, err := takeUsage(p.PID(), r.engine.PID(), r.redis.PID())
	if err != nil {
		return e, errors.Join(err, p.Check())
	}
	e.used = after.since(&before)
	if err := e.read(ctx, ops); err != nil {
		return e, err
	}
	if err := <-profiled; err != nil {
		return e, err
	}
	if err := p.Stop(); err != nil {
		return e, err
	}
	return e, e.verify(ctx, r, t, database, b.orders, kurus)
}

// exporter is `reporting export` into a database that it makes itself.
func (b *bench) exporter(r *rig, database string, profiled bool) (p *program.Program, ops string, err error) {
	addr, err := stack.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	settings, err := config()
	if profiled {
		settings, err = r.profiledConfig()
	}
	if err != nil {
		return nil, "", err
	}
	p = r.program("export", []string{"CLICKHOUSE_DATABASE=" + database, "REPORTING_OPS_ADDR=" + addr}, "export", "--config", settings)
	ops = "http://" + addr
	p.Ready = ops + "/readyz"
	return p, ops, nil
}

// profileExporter writes two seconds of its CPU profile in the last round, if
// one is wanted.
func (b *bench) profileExporter(ctx context.Context, ops string, round int) <-chan error {
	done := make(chan error, 1)
	if b.profile == "" || round != b.rounds-1 {
		done <- nil
		return done
	}
	go func() {
		file, err := os.Create(b.profile)
		if err == nil {
			err = errors.Join(program.Get(ctx, ops+"/debug/pprof/profile?seconds=2", file), file.Close())
		}
		if err != nil {
			err = fmt.Errorf("-profile: %w", err)
		}
		done <- err
	}()
	return done
}

// exportPatience is how long no entry may be stored before the round fails.
const exportPatience = time.Minute

// awaitEntries returns when the exporter has stored and acknowledged that many.
func awaitEntries(ctx context.Context, p *program.Program, ops string, wanted int) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	stored, moved := 0.0, time.Now()
	for {
		m, err := readMetrics(ctx, ops)
		if err != nil {
			return errors.Join(err, p.Check())
		}
		now := m["reporting_export_entries_total"]
		switch {
		case now >= float64(wanted):
			return nil
		case now > stored:
			stored, moved = now, time.Now()
		case time.Since(moved) > exportPatience:
			return fmt.Errorf("%s of %s entries are exported, and it does not go on; the end of its log:\n%s",
				harness.Number(now), harness.Number(float64(wanted)), p.LastWords())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (e *exported) read(ctx context.Context, ops string) error {
	m, err := readMetrics(ctx, ops)
	if err != nil {
		return err
	}
	e.orders, e.events = m[`reporting_export_rows_total{table="orders"}`], m[`reporting_export_rows_total{table="order_events"}`]
	e.turns = m["reporting_export_turn_seconds_sum"]
	return nil
}

// verify compares what ClickHouse has with what was made, and drops it.
func (e *exported) verify(ctx context.Context, r *rig, t *traffic, database string, orders int, kurus int64) error {
	lag, err := t.ledger.Streams.Lag(ctx, ledger.RoleExport)
	if err != nil {
		return err
	}
	e.lagged = lag.Entries
	var rows, collected, events, steps int64
	if err := r.askNumbers(ctx, []*int64{&rows, &collected, &events, &steps}, fmt.Sprintf(`SELECT
		(SELECT countIf(status = 'Delivered') FROM %[1]s.orders FINAL),
		(SELECT toInt64(sum(expected_collection) * 100) FROM %[1]s.orders FINAL),
		(SELECT count() FROM %[1]s.order_events FINAL),
		(SELECT uniqExact(order_id, status) FROM %[1]s.order_events)`, database)); err != nil {
		return err
	}
	made, happened := int64(orders), int64(orders*eventsPerOrder)
	for _, pair := range [][2]int64{{rows, made}, {collected, kurus}, {events, happened}, {steps, happened}} {
		if pair[0] != pair[1] {
			e.wrong++
		}
	}
	_, err = r.ask(ctx, "DROP DATABASE "+database+" SYNC")
	return err
}

// readMetrics reads a program's counters and gauges, by name and labels.
func readMetrics(ctx context.Context, ops string) (map[string]float64, error) {
	var page bytes.Buffer
	if err := program.Get(ctx, ops+"/metrics", &page); err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	lines := bufio.NewScanner(&page)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); found && err == nil {
			metrics[name] = v
		}
	}
	return metrics, lines.Err()
}

func exportFigures(rounds []exported, orders int) []harness.Figure {
	column := func(of func(*exported) float64) (sheet []float64) {
		for i := range rounds {
			sheet = append(sheet, of(&rounds[i]))
		}
		return sheet
	}
	var wrong, lagged int64
	for i := range rounds {
		wrong, lagged = wrong+rounds[i].wrong, lagged+rounds[i].lagged
	}
	return []harness.Figure{
		{Key: "export.rows", Title: "rows exported per second, orders and events", Unit: "/s", Rounds: column((*exported).rate), Limit: harness.AtLeast(50_000)},
		{Key: "export.orders", Title: "  orders finished per second, each with six events", Unit: "/s",
			Rounds: column(func(e *exported) float64 { return float64(orders) / e.seconds })},
		{Key: "export.rows_per_order", Title: "  rows of orders that were sent, for each order",
			Rounds: column(func(e *exported) float64 { return e.orders / float64(orders) })},
		{Key: "export.exporter_us", Title: "  CPU of the exporter per row", Unit: "us", Rounds: column(func(e *exported) float64 { return e.each(e.used.reporting) })},
		{Key: "export.engine_us", Title: "  CPU of the engine per row", Unit: "us", Rounds: column(func(e *exported) float64 { return e.each(e.used.engine) })},
		{Key: "export.redis_us", Title: "  CPU of Redis per row", Unit: "us", Rounds: column(func(e *exported) float64 { return e.each(e.used.redis) })},
		{Key: "export.pieces", Title: "  batches under way at once, from reading their orders to the acknowledgement",
			Rounds: column(func(e *exported) float64 { return e.turns / e.seconds })},
		{Key: "export.busy", Title: "  processors busy", Unit: "cores", Rounds: column(func(e *exported) float64 { return e.used.busy / e.seconds })},
		{Key: "export.others", Title: "    with other programs", Unit: "cores", Rounds: column(func(e *exported) float64 { return e.used.others() })},
		{Key: "export.wrong", Title: "  counts and sums in ClickHouse that are not what was made", Rounds: []float64{float64(wrong)}, Limit: harness.Always(harness.AtMost(0))},
		{Key: "export.left", Title: "  entries left", Rounds: []float64{float64(lagged)}, Limit: harness.Always(harness.AtMost(0))},
	}
}
