package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// measureClosing closes the year month by month, as two people do with the command, asks for what then answers from
// frozen rows, and verifies all of it. It is the last part: reports before it are of open months.
func (b *bench) measureClosing(ctx context.Context) error {
	e, err := b.openYear(ctx)
	if err != nil {
		return err
	}
	for month := 1; month <= 12; month++ {
		m := fmt.Sprintf("%s-%02d", yearFirst[:4], month)
		rows, err := e.askNumbers(ctx, 1, fmt.Sprintf("SELECT count() FROM delivery.orders FINAL WHERE toYYYYMM(business_day) = %s", strings.ReplaceAll(m, "-", "")))
		if err != nil {
			return err
		}
		if _, err := e.month(ctx, "closing.hold", "hold", m, "--user", e.Demo.Panel.User, "--note", "bench"); err != nil {
			return err
		}
		took, err := e.month(ctx, "closing.close", "close", m, "--user", stack.SecondUser)
		if err != nil {
			return err
		}
		if month == 12 {
			b.note("closing.close", "%s orders in the last", harness.Grouped(rows[0]))
		}
		b.progress("closed %s, %s orders, in %.1f s", m, harness.Grouped(rows[0]), took)
	}
	if _, err := e.month(ctx, "closing.verify", "verify"); err != nil {
		return err
	}
	year := scope{key: "closed_year", from: yearFirst, to: yearLast}
	for _, name := range []string{"control-totals", "fleet-statement", "expected-collections"} {
		if err := e.repeat("closing.year."+name, short(b, 5, 2), func() (time.Duration, error) {
			f, err := e.fetch(ctx, name, year)
			return f.took, err
		}); err != nil {
			return err
		}
	}
	sums := fmt.Sprintf(`SELECT fleet_id, sum(delivered), sum(cash_expected), sum(card_expected), sum(prepaid_amount) FROM delivery.booked_days
		WHERE day BETWEEN '%s' AND '%s' GROUP BY fleet_id FORMAT Null`, yearFirst, yearLast)
	return e.repeat("closing.year.sums", short(b, 5, 2), func() (time.Duration, error) {
		began := time.Now()
		_, err := e.ask(ctx, sums)
		return time.Since(began), err
	})
}

// month runs a command of `reporting month` and notes its seconds and its peak memory.
func (e *reportingEnv) month(ctx context.Context, key string, args ...string) (seconds float64, err error) {
	cmd := e.Month(ctx, args...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	stop := harness.Watch(ctx, 10*time.Millisecond, harness.Process{Name: "month", PID: cmd.Process.Pid})
	err = cmd.Wait()
	watched := stop()
	if err != nil || len(watched) == 0 {
		return 0, fmt.Errorf("reporting month %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	seconds = time.Since(began).Seconds()
	e.bench.add(key, seconds)
	e.bench.add("closing.memory", megabytes(watched[0].Peak))
	return seconds, nil
}
