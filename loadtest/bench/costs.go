package main

import (
	"context"
	"maps"
	"math"
	"slices"
)

// costs are what one order costs each resource, round by round, by names such
// as "created.gateway_us". They are measured beside the ratios and are what
// loadtest/README.md sizes a deployment with.
type costs map[string][]float64

// The two ways of an order that are accounted for.
const (
	costCreated   = "created"   // created and read by the worker, no more
	costDelivered = "delivered" // the whole way, creation and webhooks included
)

// account runs a measurement of orders and divides what was used by their
// number. What the worker still has to do for them is waited for and counted.
func (s *system) account(ctx context.Context, way string, c costs, measure func() (orders float64, err error)) error {
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	orders, err := measure()
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return err
	}
	c.note(way, after.since(before), orders)
	return nil
}

func (s *system) usage(ctx context.Context) (usage, error) {
	return takeUsage(ctx, s.redises, s.gateways, s.Worker)
}

// note adds one round. A file that was rewritten meanwhile tells nothing of
// what was appended to it.
func (c costs) note(way string, u usage, orders float64) {
	if orders == 0 {
		return
	}
	for name, total := range map[string]float64{
		"redis_us":            u.redis * 1e6,
		"gateway_us":          u.gateway * 1e6,
		"worker_us":           u.worker * 1e6,
		"generator_us":        u.generator * 1e6,
		"redis_memory_bytes":  u.redisMemory,
		"redis_net_in_bytes":  u.redisIn,
		"redis_net_out_bytes": u.redisOut,
		"disk_flushes":        u.flushes,
	} {
		c.add(way+"."+name, total/orders)
	}
	if u.aofBase == 0 {
		c.add(way+".aof_bytes", u.aof/orders)
	}
}

func (c costs) add(name string, figure float64) { c[name] = append(c[name], figure) }

// spreads are the costs' medians with their spread; nothing is left of a cost
// that was not measured.
func (c costs) spreads() map[string]*spread {
	m := map[string]*spread{}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if s := spreadOf(c[name]); s != nil && !math.IsNaN(s.Median) {
			m[name] = s
		}
	}
	return m
}
