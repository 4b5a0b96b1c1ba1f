package main

import (
	"context"
	"fmt"
	"strings"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// measureClosing closes the year month by month, as two people do with the command, asks for what then answers from
// frozen rows, and verifies all of it. It is the last part: reports before it are of open months.
func (b *bench) measureClosing(ctx context.Context) {
	e := b.openYear(ctx)
	for month := 1; month <= 12; month++ {
		m := fmt.Sprintf("%s-%02d", yearFirst[:4], month)
		rows := e.askNumbers(ctx, "SELECT count() FROM delivery.orders FINAL WHERE toYYYYMM(business_day) = "+strings.ReplaceAll(m, "-", ""))[0]
		e.month(ctx, "closing.hold", "hold", m, "--user", e.Demo.Panel.User, "--note", "bench")
		took := e.month(ctx, "closing.close", "close", m, "--user", stack.SecondUser)
		if month == 12 {
			b.note("closing.close", "%s orders in the last", harness.Grouped(rows))
		}
		b.progress("closed %s, %s orders, in %.1f s", m, harness.Grouped(rows), took)
	}
	e.month(ctx, "closing.verify", "verify")
	year := scope{key: "closed_year", from: yearFirst, to: yearLast}
	for _, name := range []string{"control-totals", "fleet-statement", "expected-collections"} {
		b.repeat("closing.year."+name, short(b, 5, 2), func() { e.fetch(ctx, name, year) })
	}
	b.repeat("closing.year.sums", short(b, 5, 2), func() {
		e.ask(ctx, fmt.Sprintf(`SELECT fleet_id, sum(delivered), sum(cash_expected), sum(card_expected), sum(prepaid_amount) FROM delivery.booked_days
			WHERE day BETWEEN '%s' AND '%s' GROUP BY fleet_id FORMAT Null`, yearFirst, yearLast))
	})
}

// month runs a command of `reporting month` and notes its seconds and its peak memory.
func (e *reportingEnv) month(ctx context.Context, key string, args ...string) (seconds float64) {
	took, peak := runWatched(ctx, e.Month(ctx, args...))
	e.bench.add(key, took.Seconds())
	e.bench.add("closing.memory", megabytes(peak))
	return took.Seconds()
}
