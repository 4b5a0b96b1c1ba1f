package main

import (
	"context"
	"fmt"

	"vendorapi/loadtest/harness"
)

// trial is one sub-benchmark and how many operations a whole run gives it:
// about a second and a half of a two-core machine.
type trial struct {
	name string
	n    int
}

// trials of one test binary, interleaved.
type trials struct {
	benchmark string // such as "BenchmarkServe"
	unit      string // shown while it runs
	list      []trial
}

// results are a trial's figures, round by round.
type results map[string][]measures

// interleave runs every trial once in every round. The order turns from round
// to round, so that none always runs behind the same other.
func (b *bench) interleave(ctx context.Context, t *testBinary, ts trials) (results, error) {
	found := results{}
	for round := range b.rounds {
		for i := range ts.list {
			one := ts.list[(i+round)%len(ts.list)]
			n := one.n
			if b.quick {
				n = max(n/10, 1000)
			}
			name := ts.benchmark + "/" + one.name
			counted, err := t.run(ctx, name, n)
			if err != nil {
				return nil, err
			}
			shown, err := counted.need(ts.unit)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			b.progress(round, "%-31s %9s %s", name, harness.Number(shown), ts.unit)
			found[one.name] = append(found[one.name], counted)
		}
	}
	return found, nil
}

// of are one trial's figures of a unit; a round that lacks it is an error.
func (r results) of(name, unit string) ([]float64, error) {
	var list []float64
	for _, f := range r[name] {
		v, err := f.need(unit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, v)
	}
	return list, nil
}

// better is the trial whose median of a unit is greater.
func (r results) better(unit, one, other string) (string, error) {
	first, err := r.of(one, unit)
	if err != nil {
		return "", err
	}
	second, err := r.of(other, unit)
	if err != nil {
		return "", err
	}
	if harness.Median(second) > harness.Median(first) {
		return other, nil
	}
	return one, nil
}

// lineOf compares one unit of two trials; base "": no baseline.
func (r results) lineOf(key, title, name, unit, base, baseline string) (line, error) {
	l := line{key: key, title: title, unit: unit, baseline: baseline}
	var err error
	if l.measured, err = r.of(name, unit); err != nil || base == "" {
		return l, err
	}
	l.base, err = r.of(base, unit)
	return l, err
}

// collect is the lines, or the first error of those who made them.
type collect struct {
	lines []line
	err   error
}

func (c *collect) add(l line, err error) {
	if c.err == nil {
		c.err = err
	}
	c.lines = append(c.lines, l)
}

const (
	perSecond = "orders/s"
	redisCost = "redis-us/order"
)

// measureGateway compares the whole gateway, in one process with 64 vendors'
// connections and over a Redis that syncs every write.
func (b *bench) measureGateway(ctx context.Context) ([]line, error) {
	t, err := b.compileTests(ctx, "./gateway")
	if err != nil {
		return nil, err
	}
	r, err := b.interleave(ctx, t, trials{"BenchmarkServe", perSecond, []trial{
		{"empty", 150_000}, {"xadd", 60_000}, {"xadd_pipelines", 60_000},
		{"plain", 12_000}, {"order", 30_000}, {"order_pipelines", 30_000},
	}})
	if err != nil {
		return nil, err
	}
	order, err := r.better(perSecond, "order", "order_pipelines")
	if err != nil {
		return nil, err
	}
	xadd, err := r.better(perSecond, "xadd", "xadd_pipelines")
	if err != nil {
		return nil, err
	}
	var c collect
	title := "accepted orders (" + way(order) + ")"
	c.add(r.lineOf("orders_per_xadd", title, order, perSecond, xadd, "one bare XADD each ("+way(xadd)+")"))
	c.add(r.lineOf("orders_per_empty", title, order, perSecond, "empty", "an empty handler"))
	c.add(r.lineOf("orders_per_plain", title, order, perSecond, "plain", "the plain way, five calls each"))
	c.add(r.lineOf("allocations", "allocations per accepted order", order, "allocs/op", xadd, "one bare XADD each"))
	c.add(r.lineOf("bytes", "bytes allocated per accepted order", order, "B/op", xadd, "one bare XADD each"))
	return c.lines, c.err
}

// way tells how a trial reaches Redis.
func way(name string) string {
	if name == "order_pipelines" || name == "xadd_pipelines" {
		return "AutoPipelines"
	}
	return "pool"
}

// measureJSON compares the readers of an order's body, by the time that they
// take to read one of each kind: a typical order, one with the required fields
// only, one with escaped Turkish letters and white space, one with long notes
// and fields that we do not know.
func (b *bench) measureJSON(ctx context.Context) ([]line, error) {
	t, err := b.compileTests(ctx, "./gateway")
	if err != nil {
		return nil, err
	}
	const ours, sonic, std, unit = "*/strictjson", "*/sonic", "*/encodingjson", "ns/op"
	r, err := b.interleave(ctx, t, trials{"BenchmarkDecode", unit, []trial{{ours, 50_000}, {sonic, 50_000}, {std, 50_000}}})
	if err != nil {
		return nil, err
	}
	for _, reader := range []string{sonic, std} {
		if r[reader][0][resultCount] != r[ours][0][resultCount] {
			return nil, fmt.Errorf("BenchmarkDecode: %s reads other bodies than %s", reader, ours)
		}
	}
	var c collect
	c.add(r.lineOf("strictjson_time", "reading each kind of order's JSON, strictjson", ours, unit, std, "encoding/json"))
	c.add(r.lineOf("sonic_time", "reading each kind of order's JSON, sonic", sonic, unit, std, "encoding/json"))
	return c.lines, c.err
}

// measureRedis compares what an order costs Redis's main thread, the one
// resource of a partition that cannot be added to.
func (b *bench) measureRedis(ctx context.Context) ([]line, error) {
	t, err := b.compileTests(ctx, "./internal/ledger")
	if err != nil {
		return nil, err
	}
	r, err := b.interleave(ctx, t, trials{"BenchmarkRedisCost", redisCost, []trial{
		{"order", 50_000}, {"native", 50_000}, {"own_writes", 50_000},
	}})
	if err != nil {
		return nil, err
	}
	var c collect
	const title = "Redis CPU per accepted order"
	c.add(r.lineOf("redis_per_native", title, "order", redisCost, "native", "SET, SET, HSET, XADD, pipelined"))
	c.add(r.lineOf("redis_per_own_writes", title, "order", redisCost, "own_writes", "its own writes alone"))
	return c.lines, c.err
}
