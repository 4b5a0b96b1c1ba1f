package main

import (
	"context"
	"fmt"
	"strconv"

	"vendorapi/loadtest/harness"
)

// withoutClickHouse kills ClickHouse for some tries of the exporter: nothing but the export may wait.
func (s *ownSystem) withoutClickHouse(ctx context.Context) {
	with := s.before(ctx)
	s.ClickHouse.Kill()
	watched := watch(ctx, harness.Process{Name: "reporting", PID: s.Reporting.PID()})
	without, reads := s.phase(ctx, 3*s.form.phase, with.orders)
	cores := watched()["reporting"].Cores

	s.checkServed(without, s.form.share, "orders without ClickHouse")
	s.checkServed(reads, s.form.share, "reads without ClickHouse")
	s.figure("an accepted order took, p99", "%s with, %s without",
		milliseconds(p99(with.accepted)), milliseconds(p99(without.accepted)))
	s.check(expectation{
		what:  "CPU of the exporter, which waits",
		want:  "at most half a core",
		got:   fmt.Sprintf("%.2f cores", cores),
		holds: cores <= 0.5,
	})

	s.require(s.ClickHouse.Start(ctx))
	const deliveredOrders = "SELECT count() FROM delivery.orders FINAL WHERE status = 'Delivered'"
	want := strconv.Itoa(len(with.orders) + len(without.orders))
	s.checkBecomes(ctx, condition{
		what:   "the export has all orders, with their end",
		within: s.form.timeout,
		holds: func() (bool, string) {
			exported, err := harness.Query(ctx, s.Demo.ClickHouseURL+"/", deliveredOrders)
			if err != nil {
				return false, err.Error()
			}
			return exported == want, exported + " of " + want
		},
	})

	s.checkKept(ctx, with.orders, without.orders)
}
