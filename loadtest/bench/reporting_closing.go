package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// measureClosing closes the year month by month, books corrections, verifies all of it, and asks for reports of closed
// months. It has to be the last part: the parts before it measure open months.
func (b *bench) measureClosing(ctx context.Context) {
	e := b.openYear(ctx)
	e.Reporting.Stop()
	must(e.Reporting.Start(ctx)) // so that its peak memory is that of this part
	stop := harness.Watch(ctx, time.Minute, harness.Process{Name: "reporting", PID: e.Reporting.PID()})
	defer stop()

	e.closeYear(ctx)
	e.correctYear(ctx)
	watched := stop()
	if len(watched) == 0 {
		must(errors.New("reporting was never seen"))
	}
	b.add("closing.memory", megabytes(watched[0].Peak))

	e.month(ctx, "closing.verify", "verify")
	e.askClosedYear(ctx)
}

func (e *reportingEnv) closeYear(ctx context.Context) {
	for month := 1; month <= 12; month++ {
		m := fmt.Sprintf("%s-%02d", yearFirst[:4], month)
		rows := e.askNumbers(ctx, "SELECT count() FROM delivery.orders FINAL WHERE toYYYYMM(business_day) = "+strings.ReplaceAll(m, "-", ""))[0]
		e.month(ctx, "closing.hold", "hold", m, "--user", e.Demo.Panel.User, "--note", "bench")
		took := e.month(ctx, "closing.close", "close", m, "--user", stack.SecondUser)
		if month == 12 {
			e.bench.note("closing.close", "%s orders in the last", harness.Grouped(rows))
		}
		e.bench.progress("closed %s, %s orders, in %.1f s", m, harness.Grouped(rows), took)
	}
}

// askClosedYear asks for reports of what is closed.
func (e *reportingEnv) askClosedYear(ctx context.Context) {
	year := scope{key: "closed_year", from: yearFirst, to: yearLast}
	for _, name := range []string{"control-totals", "fleet-statement", "expected-collections"} {
		e.bench.repeat("closing.year."+name, short(e.bench, 5, 2), func() { e.fetch(ctx, name, year) })
	}
	e.bench.repeat("closing.year.sums", short(e.bench, 5, 2), func() {
		e.ask(ctx, fmt.Sprintf(`SELECT fleet_id, sum(delivered), sum(cash_expected), sum(card_expected), sum(prepaid_amount) FROM delivery_finance.booked_days
			WHERE day BETWEEN '%s' AND '%s' GROUP BY fleet_id FORMAT Null`, yearFirst, yearLast))
	})
}

// correctYear looks at closed months as every night, when nothing has changed, and books single orders.
func (e *reportingEnv) correctYear(ctx context.Context) {
	e.month(ctx, "closing.nightly.first", "correct") // also what was stored shortly before the year was closed
	for range short(e.bench, 5, 2) {
		e.month(ctx, "closing.nightly", "correct")
	}

	const changed = `SELECT * REPLACE (version + 1 AS version, ifNull(collection_amount, 0) + 1 AS collection_amount) FROM delivery.orders FINAL WHERE order_id = '%s'`
	orders := e.ask(ctx, fmt.Sprintf(`SELECT order_id FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s' ORDER BY order_id LIMIT %d`,
		monthFirst, monthLast, short(e.bench, 5, 2)))
	for _, order := range strings.Fields(orders) {
		e.ask(ctx, "INSERT INTO delivery.orders "+fmt.Sprintf(changed, order))
		e.month(ctx, "closing.book", "correct", "--order", order, "--user", stack.SecondUser, "--note", "bench")
	}
}

// month runs a command of `reporting month` and notes its seconds and its peak memory.
func (e *reportingEnv) month(ctx context.Context, key string, args ...string) (seconds float64) {
	took, peak := runWatched(ctx, e.Month(ctx, args...))
	e.bench.add(key, took.Seconds())
	e.bench.add("closing.memory", megabytes(peak))
	return took.Seconds()
}
