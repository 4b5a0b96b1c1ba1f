package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vendorapi/loadtest/harness"
)

// rate is the fixed rate of the open loop, in orders per second.
const rate = 2000

// measurePrograms measures the programs as they run in production: a gateway, a
// worker and a Redis that syncs every write, over TCP, the load in this process.
// In every round: how long an answer takes at a fixed rate, how many orders are
// created when that is all that happens, and how many are delivered, every
// webhook verified.
func (b *bench) measurePrograms(ctx context.Context) ([]line, error) {
	s, err := b.startSystem(ctx, "programs", "")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var waits waits
	delivered := line{key: "delivered_per_created", title: "orders delivered, each of their 5 webhooks verified", unit: perSecond, baseline: "created, nothing else going on"}
	for round := range b.rounds {
		if err := b.measureWaits(ctx, s, round, &waits); err != nil {
			return nil, fmt.Errorf("open loop: %w", err)
		}
		c, err := b.measureCreation(ctx, s, round)
		if err != nil {
			return nil, fmt.Errorf("creation: %w", err)
		}
		d, err := b.measureDelivery(ctx, s, round)
		if err != nil {
			return nil, fmt.Errorf("delivery: %w", err)
		}
		delivered.base = append(delivered.base, c)
		delivered.measured = append(delivered.measured, d)
	}
	return append(waits.lines(), delivered), nil
}

// bound ends the context when one of the programs dies.
func (s *system) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if err := s.Wait(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// quantiles of the open loop's waits.
var quantiles = []struct {
	key, name string
	q         float64
}{{"p50", "p50", 50}, {"p99", "p99", 99}, {"p999", "p99.9", 99.9}}

// waits are milliseconds by quantile, round by round.
type waits struct {
	orders, nothing [][]float64 // by round, then as quantiles
}

func (w *waits) lines() []line {
	var lines []line
	for i, q := range quantiles {
		l := line{
			key: "wait_" + q.key, title: fmt.Sprintf("answer to an order at %d/s, %s", rate, q.name),
			unit: "ms", baseline: "an unknown path at the same rate",
		}
		for round := range w.orders {
			l.measured = append(l.measured, w.orders[round][i])
			l.base = append(l.base, w.nothing[round][i])
		}
		lines = append(lines, l)
	}
	return lines
}

// nothing is a request that no route takes: what HTTP, the machine and the
// generator itself cost.
var nothing = []byte("GET /nothing HTTP/1.1\r\nHost: api.example.com\r\n\r\n")

// measureWaits sends orders, and requests for nothing, at a fixed rate.
func (b *bench) measureWaits(ctx context.Context, s *system, round int, w *waits) error {
	o := harness.Load{
		Addrs: s.vendorAddrs[:1], Connections: connections, Rate: rate, Duration: b.lasting(5 * time.Second),
		Want: 404, Request: func(dst []byte, _ int) []byte { return append(dst, nothing...) },
	}
	idle, err := openLoop(ctx, o)
	if err != nil {
		return err
	}
	o.Want, o.Request, o.Duration = 201, s.orders.batch(), b.lasting(5*time.Second)
	orders, err := openLoop(ctx, o)
	if err != nil {
		return err
	}
	w.nothing, w.orders = append(w.nothing, idle), append(w.orders, orders)
	b.progress(round, "%d orders/s in an open loop: p50, p99, p99.9 %s ms (for nothing: %s ms)", rate, milliseconds(orders), milliseconds(idle))
	return s.settle(ctx)
}

func openLoop(ctx context.Context, o harness.Load) ([]float64, error) {
	r, err := harness.OpenLoop(ctx, o)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	var list []float64
	for _, q := range quantiles {
		list = append(list, float64(r.Latency.ValueAtQuantile(q.q))/1000)
	}
	return list, nil
}

func milliseconds(list []float64) string {
	text := ""
	for i, v := range list {
		if i > 0 {
			text += ", "
		}
		text += harness.Number(v)
	}
	return text
}

// measureCreation creates as many orders as the programs take and returns how
// many a second.
func (b *bench) measureCreation(ctx context.Context, s *system, round int) (perSecond float64, err error) {
	err = s.account(ctx, costCreated, b.costs, func() (float64, error) {
		r, err := s.create(ctx, s.vendorAddrs[:1], b.lasting(3*time.Second))
		if err != nil {
			return 0, err
		}
		perSecond = r.PerSecond()
		b.progress(round, "%s orders/s created", harness.Number(perSecond))
		orders := float64(r.Answered)
		b.costs.add(costCreated+".http_in_bytes", float64(r.Sent)/orders)
		b.costs.add(costCreated+".http_out_bytes", float64(r.Received)/orders)
		return orders, nil
	})
	return perSecond, err
}

// create keeps the connections busy with new orders; the gateways take turns.
func (s *system) create(ctx context.Context, addrs []string, length time.Duration) (*harness.Answers, error) {
	r, err := harness.ClosedLoop(ctx, harness.Load{
		Addrs: addrs, Connections: connections, Duration: length, Want: 201, Request: s.orders.batch(),
	})
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	return r, nil
}

// settlePatience bounds how long the worker may take to finish what a
// measurement left it.
const settlePatience = time.Minute

// settle waits until the worker is idle, so that no measurement pays for the
// one before.
func (s *system) settle(ctx context.Context) error {
	const (
		look  = 250 * time.Millisecond
		quiet = 0.1 // of a core
	)
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	before, err := processCPU(s.Worker)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the worker is still busy after %v: %w", settlePatience, context.Cause(ctx))
		case <-time.After(look):
		}
		now, err := processCPU(s.Worker)
		if err != nil {
			return err
		}
		if now-before <= quiet*look.Seconds() {
			return nil
		}
		before = now
	}
}
