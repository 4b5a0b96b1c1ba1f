// This file measures how long it takes to close months, and what closed months then answer.

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

func closingFigures() []*figure {
	const emptyReport = "an empty report on the command line"
	return []*figure{
		// Closing reads a month's orders, compares them with what was reconciled, signs and freezes them. Of few orders
		// the program's start is the larger part.
		{
			Key: "closing.close", What: "a month is closed", Unit: "s",
			Baseline: "the insert of as many rows", Limit: ratioAtMost(20),
		},
		{Key: "closing.hold", What: "  and held before, with its checklist", Unit: "s", Baseline: "the insert of as many rows"},
		{Key: "closing.verify", What: "the closed year is verified", Unit: "s"},
		// The program starts, connects and asks, which is all that an empty report does. A person also signs in, which
		// takes a password's hash, and what is booked is signed and frozen.
		{
			Key: "closing.nightly", What: "the nightly look at closed months, when nothing has changed", Unit: "s",
			Baseline: emptyReport, Limit: ratioAtMost(4),
		},
		{Key: "closing.nightly.first", What: "  after the year was closed", Unit: "s"},
		{
			Key: "closing.book", What: "one order is booked by a person", Unit: "s",
			Baseline: emptyReport, Limit: ratioAtMost(10),
		},
		{Key: "closing.memory", What: "peak memory of each of these commands, and of the panel", Unit: "MB", Limit: atMost(mostMemory)},
		// What is frozen is read as it is, where the bare query reckons from the orders, as for open months.
		{
			Key: "closing.year.control-totals", What: "control-totals, the closed year of all", Unit: "ms",
			Baseline: "its bare query, of the orders", Limit: ratioAtMost(0.5),
		},
		{
			Key: "closing.year.sums", What: "sums of the closed year, by fleet", Unit: "ms",
			Baseline: "the same of the orders", Limit: ratioAtMost(0.5),
		},
		{Key: "closing.year.fleet-statement", What: "fleet-statement, the closed year of all", Unit: "ms", Baseline: "its bare query"},
		{
			Key: "closing.year.expected-collections", What: "expected-collections, the closed year of all", Unit: "ms",
			Baseline: "its bare query",
		},
	}
}

// measureClosing closes the year month by month, books corrections, verifies all of it, and asks for reports of closed
// months.
func (b *bench) measureClosing(ctx context.Context) {
	e := b.openYear(ctx)
	e.Reporting.Stop()
	must(e.Reporting.Start(ctx)) // so that its peak memory is that of this measurement
	stop := harness.Watch(ctx, time.Minute, harness.Process{Name: "reporting", PID: e.Reporting.PID()})
	defer stop()

	e.closeYear(ctx)
	e.correctYear(ctx)
	watched := stop()
	if len(watched) == 0 {
		must(errors.New("reporting was never seen"))
	}

	b.add("closing.memory", megabytes(watched[0].Peak))

	b.add("closing.verify", e.month(ctx, "verify"))
	e.askClosedYear(ctx)
}

func (e *reportingEnv) closeYear(ctx context.Context) {
	const months = 12
	for month := 1; month <= months; month++ {
		name := fmt.Sprintf("%s-%02d", yearFirst[:4], month)
		rows, inserted := e.insertCopy(ctx, "delivery.orders", "FINAL WHERE toYYYYMM(business_day) = "+strings.ReplaceAll(name, "-", ""))
		held := e.month(ctx, "hold", name, "--user", e.Demo.Panel.User, "--note", "bench")
		closed := e.month(ctx, "close", name, "--user", stack.SecondUser)

		e.bench.addBeside("closing.hold", held, inserted)
		e.bench.addBeside("closing.close", closed, inserted)
		if month == months {
			e.bench.note("closing.close", "%s orders in the last", harness.Grouped(int64(rows)))
		}

		e.bench.progress("closed %s, %s orders, in %.1f s; inserted in %.1f s", name, harness.Grouped(int64(rows)), closed, inserted)
	}
}

// askClosedYear asks for reports of what is closed.
func (e *reportingEnv) askClosedYear(ctx context.Context) {
	times := short(e.bench, 5, 2)
	year := scope{key: "closed_year", from: yearFirst, to: yearLast}
	for _, name := range []string{"control-totals", "fleet-statement", "expected-collections"} {
		e.bench.repeat("closing.year."+name, times, func() { e.fetch(ctx, name, year) }, func() { e.askBare(ctx, name, year) })
	}

	frozen := fmt.Sprintf(`SELECT fleet_id, sum(delivered), sum(cash_expected), sum(card_expected), sum(prepaid_amount) FROM delivery_finance.booked_days
		WHERE day BETWEEN '%s' AND '%s' GROUP BY fleet_id FORMAT Null`, yearFirst, yearLast)
	orders := fmt.Sprintf(`SELECT fleet_id, countIf(status = 'Delivered'), sumIf(collection_amount, status = 'Delivered' AND payment_type = 'Cash'),
		sumIf(collection_amount, status = 'Delivered' AND payment_type = 'Card'), sumIf(order_amount, status = 'Delivered' AND payment_type = 'Prepaid')
		FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s' GROUP BY fleet_id FORMAT Null`, yearFirst, yearLast)
	e.bench.repeat("closing.year.sums", times, func() { e.ask(ctx, frozen) }, func() { e.ask(ctx, orders) })
}

// correctYear looks at closed months as every night, when nothing has changed, and books single orders.
func (e *reportingEnv) correctYear(ctx context.Context) {
	times := short(e.bench, 5, 2)
	e.bench.add("closing.nightly.first", e.month(ctx, "correct")) // also what was stored shortly before the year was closed
	for range times {
		looked := e.month(ctx, "correct")
		e.bench.addBeside("closing.nightly", looked, e.emptyReport(ctx))
	}

	const changed = `SELECT * REPLACE (version + 1 AS version, ifNull(collection_amount, 0) + 1 AS collection_amount) FROM delivery.orders FINAL WHERE order_id = '%s'`
	orders := e.ask(ctx, fmt.Sprintf(`SELECT order_id FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s' ORDER BY order_id LIMIT %d`,
		monthFirst, monthLast, times))
	for _, order := range strings.Fields(orders) {
		e.ask(ctx, "INSERT INTO delivery.orders "+fmt.Sprintf(changed, order))
		booked := e.month(ctx, "correct", "--order", order, "--user", stack.SecondUser, "--note", "bench")
		e.bench.addBeside("closing.book", booked, e.emptyReport(ctx))
	}
}

// emptyReport writes a report without rows on the command line and returns its seconds: what it takes the program to
// start, to connect and to ask.
func (e *reportingEnv) emptyReport(ctx context.Context) (seconds float64) {
	const dayBefore = "2024-12-31" // the year
	cmd := e.reportCommand(ctx, "exceptions", scope{from: dayBefore, to: dayBefore}, filepath.Join(e.dir, "empty.csv"))
	cmd.Env = append(cmd.Env, e.Reporting.Env...) // the keys of the books, because months are closed
	took, _ := runWatched(ctx, cmd)
	return took.Seconds()
}

// month runs a command of reporting month, notes its peak memory and returns its seconds.
func (e *reportingEnv) month(ctx context.Context, args ...string) (seconds float64) {
	took, peak := runWatched(ctx, e.Month(ctx, args...))
	e.bench.add("closing.memory", megabytes(peak))
	return took.Seconds()
}
