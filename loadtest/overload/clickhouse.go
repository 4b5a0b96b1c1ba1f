package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack"
)

// awayClickHouse is the case clickhouse.
func (r *run) awayClickHouse(ctx context.Context) error {
	s, err := r.start(ctx, "clickhouse", stack.Options{Courier: "auto", CourierStep: 200 * time.Millisecond, Reporting: true}, r.form.wide, 0)
	if err != nil {
		return err
	}
	defer s.Stop()
	with, _ := r.during(ctx, s, nil)
	s.ClickHouse.Kill()
	w := watch{pids: map[string]func() int{"reporting": s.Reporting.PID}}
	w.begin(ctx, r.form.phase)
	without, reads := r.during(ctx, s, with.orders)
	for range 2 { // long enough for an exporter to try again and again
		more, _ := r.during(ctx, s, nil)
		without.orders = append(without.orders, more.orders...)
		without.arrived, without.unsent = without.arrived+more.arrived, without.unsent+more.unsent
	}
	traces := w.end()
	r.sheet.demand(without.served(int64(len(without.orders)), r.form.share), "orders without ClickHouse", "all accepted", "%d of %d%s", len(without.orders), without.sent(), without.oddity())
	r.sheet.demand(reads.served(reads.accepted.TotalCount(), r.form.share), "reads without ClickHouse", "all answered", "%d of %d%s", reads.accepted.TotalCount(), reads.sent(), reads.oddity())
	r.sheet.tell("an accepted order took, p99", "%s with, %s without", milliseconds(p99(with.accepted)), milliseconds(p99(without.accepted)))
	busy := traces["reporting"].cpu / traces["reporting"].seconds
	r.sheet.demand(busy <= 0.5, "CPU of the exporter, which waits", "at most half a core", "%.2f cores", busy)

	if err := s.ClickHouse.Start(ctx); err != nil {
		return fmt.Errorf("start ClickHouse again: %w", err)
	}
	orders := slices.Concat(with.orders, without.orders)
	took, held, err := s.awaitExport(ctx, len(orders), r.form.patience)
	if err != nil {
		return err
	}
	r.sheet.demand(took >= 0, "the export has caught up", "all orders, with their end, within "+r.form.patience.String(), "%d of %d after %s", held, len(orders), took.Round(time.Millisecond))
	s.proveKept(ctx, orders)
	return nil
}

// awaitExport waits until ClickHouse holds so many delivered orders; took is -1
// when it did not in time, and held is what it had.
func (s *system) awaitExport(ctx context.Context, orders int, patience time.Duration) (took time.Duration, held int, err error) {
	const statement = "SELECT count() FROM delivery.orders FINAL WHERE status = 'Delivered'"
	began := time.Now()
	for time.Since(began) < patience && ctx.Err() == nil {
		text, err := fetch(ctx, s.Demo.ClickHouseURL+"/?query="+url.QueryEscape(statement))
		if err != nil {
			return 0, 0, err
		}
		if _, err := fmt.Sscan(strings.TrimSpace(text), &held); err != nil {
			return 0, 0, fmt.Errorf("ClickHouse answers %q: %w", text, err)
		}
		if held >= orders {
			return time.Since(began), held, nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return -1, held, nil
}
