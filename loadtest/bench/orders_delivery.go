// This file measures whole orders, from the vendor's request to the last webhook: the highest rate that lasts, how
// long webhooks take, and what one order costs. journeys.go is the load.

package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

func deliveryFigures() []*figure {
	const (
		bareSteps = "one bare XADD for each of its steps"
		creation  = "its creation alone"
	)

	return []*figure{
		// An order on its whole way is six requests and five webhooks. Measured 0.05 to 0.07 on a quiet machine; below 0.02
		// something on the way of a report or a webhook has become slower.
		{
			Key: "delivered_knee", What: "orders delivered, the highest rate that lasts", Unit: "orders/s",
			Baseline: "created, nothing else going on", Limit: ratioAtLeast(0.02),
		},
		{Key: "delivered_minute", What: "orders delivered for a minute, at 0.7 of it, at most 1000/s", Unit: "orders/s"},
		// What a report waits for before its webhook goes out: its own answer, the owner's batch, the step's commit. The
		// owner's pauses do not become shorter on a faster machine, so the ratios are large; what doubled them would show.
		{
			Key: "webhook_p50", What: "  report to verified webhook, p50", Unit: "ms",
			Baseline: bareSteps, Limit: ratioAtMost(100),
		},
		{
			Key: "webhook_p99", What: "  report to verified webhook, p99", Unit: "ms",
			Baseline: bareSteps, Limit: ratioAtMost(100),
		},
		{Key: "webhook_p999", What: "  report to verified webhook, p99.9", Unit: "ms", Baseline: bareSteps},
		// Measured 1.43 (1.38..1.48) at 526 orders/s, which was 0.9 of the highest rate. One more write for each step would
		// show. At a lower rate fewer writes share a turn, on both sides.
		{
			Key: "delivered_redis", What: "Redis CPU per delivered order at that rate", Unit: "redis-us/order",
			Baseline: bareSteps, Limit: ratioAtMost(3),
		},
		// Measured 12.1 (10.9..13.6) at 526 orders/s, 17 at 1,000; at 100, where few writes share a turn, an order takes
		// four times as much as at 1,000.
		{
			Key: "delivered_cpu", What: "CPU of Redis, gateway and worker per delivered order", Unit: "us/order",
			Baseline: creation, Limit: ratioAtMost(30),
		},
		{Key: "delivered_gateway", What: "  gateway", Unit: "us/order", Baseline: creation},
		{Key: "delivered_worker", What: "  worker", Unit: "us/order", Baseline: creation},
		{Key: "delivered_generator", What: "  and the load, webhooks' verification included", Unit: "us/order"},
		// Measured 1.78 (1.74..1.84).
		{
			Key: "delivered_file", What: "append-only file per delivered order", Unit: "B/order",
			Baseline: bareSteps, Limit: ratioAtMost(2.5),
		},
		{Key: "delivered_commands", What: "commands per delivered order", Unit: "/order", Baseline: bareSteps},
		{Key: "delivered_calls", What: "  and calls of scripts", Unit: "/order"},
		{Key: "delivered_flushes", What: "  flushes of the disk", Unit: "/order"},
		{Key: "delivered_redis_in", What: "  to Redis", Unit: "B/order"},
		{Key: "delivered_redis_out", What: "  from Redis", Unit: "B/order"},
		{Key: "delivered_webhooks", What: "  its five webhooks, heads and bodies", Unit: "B/order"},
		{
			Key: "wait_p99_delivering", What: "answer to an order at 2000/s, p99, up to 500/s of them being delivered", Unit: "ms",
			Baseline: "one bare XADD each at the same rate",
		},
		{
			Key: "created", What: "orders created, nothing else going on", Unit: "orders/s",
			Baseline: "one bare XADD each", Limit: ratioAtLeast(0.25),
		},
		{Key: "created_redis", What: "  Redis CPU", Unit: "us/order"},
		{Key: "created_gateway", What: "  gateway", Unit: "us/order"},
		{Key: "created_worker", What: "  worker", Unit: "us/order"},
		{Key: "created_file", What: "  append-only file", Unit: "B/order"},
		{Key: "created_request", What: "  request", Unit: "B/order"},
		{Key: "created_answer", What: "  answer", Unit: "B/order"},
	}
}

// measureDelivery measures whole orders: the highest rate that lasts, how long webhooks take, what an order costs,
// and how long creations wait while others are delivered.
func (b *bench) measureDelivery(ctx context.Context) {
	b.withVendors(ctx, "delivery", stack.Options{}, func(ctx context.Context, s *system) {
		// When Redis rewrites its file is chance, and what was appended to it is not known then.
		got(s.Redis.Command(ctx, "CONFIG", "SET", "auto-aof-rewrite-percentage", "0"))

		knee := 40.0 // of a short run
		if !b.short {
			knee = b.findKnee(ctx, s)
			b.addBeside("delivered_knee", knee, s.create(ctx, creationLength).PerSecond())
			s.settle(ctx)
		}

		// Closer to the knee the queues decide how long a webhook takes: a rate lasts until its p99 is a second.
		rate := min(1000, 0.7*knee)
		b.measureMinute(ctx, s, rate)
		for range b.rounds {
			b.measureCosts(ctx, s, rate)
		}

		// Fewer rounds, because they are longer.
		for range min(b.rounds, 3) {
			b.measureBeside(ctx, s, min(500, knee/2))
		}
	})
}

// creationLength is how long orders are created, and nothing else goes on.
const creationLength = 3 * time.Second

// findKnee returns the highest rate of orders per second that lasts, within 10 %: from the first one upwards, or
// downwards, until one rate lasts and the next does not, and then between those.
func (b *bench) findKnee(ctx context.Context, s *system) float64 {
	const (
		first, most  = 300, 1900 // beyond it the fleet would reach its limit, 10,000 requests a second
		coarse, fine = 1.4641, 1.11
	)

	lasts, beyond := 0.0, 0.0
	for rate := float64(first); ; {
		if b.tryRate(ctx, s, rate) {
			lasts, rate = rate, rate*coarse
		} else {
			beyond, rate = rate, rate/coarse
		}

		isBracketed := lasts > 0 && beyond > 0
		if isBracketed {
			rate = math.Sqrt(lasts * beyond)
		}

		if isBracketed && beyond/lasts < fine || rate > most {
			return lasts
		}

		if rate < 10 {
			must(errors.New("not even 10 orders/s last"))
		}
	}
}

// tryRate reports whether a rate lasts. One that does not is tried once more, unless half of the webhooks were late: a
// stall of the machine is not the service's.
func (b *bench) tryRate(ctx context.Context, s *system, rate float64) bool {
	for range 2 {
		j := s.carry(ctx, rate, 1, deliveryWarmUp, 5*time.Second)
		s.settle(ctx)
		lasts := !j.growing && quantile(j.announced, 99) < 1000
		b.progress("knee: %s, lasts: %v", j, lasts)
		if lasts {
			return true
		}

		isStall := quantile(j.announced, 50) < 500
		if !isStall {
			return false
		}
	}

	return false
}

// measureMinute measures how long webhooks take, from the reports, at a rate that lasts; and how long bare writes take
// at the rate of the orders' steps.
func (b *bench) measureMinute(ctx context.Context, s *system, rate float64) {
	j := s.carry(ctx, rate, 1, short(b, deliveryWarmUp, 0), short(b, time.Minute, shortDelivery))
	s.settle(ctx)
	written := b.bareSteps(ctx, s, rate)

	// From the instant at which the first order was to be delivered.
	b.add("delivered_minute", float64(j.whole())/j.lastWebhook.Sub(j.at(0, eventsPerOrder)).Seconds())
	b.addBeside("webhook_p50", quantile(j.announced, 50), quantile(written.Latency, 50))
	b.addBeside("webhook_p99", quantile(j.announced, 99), quantile(written.Latency, 99))
	b.addBeside("webhook_p999", quantile(j.announced, 99.9), quantile(written.Latency, 99.9))
	b.progress("a minute: %s", j)
}

// bareSteps sends one bare write for each step of so many orders a second.
func (b *bench) bareSteps(ctx context.Context, s *system, rate float64) *harness.Answers {
	return bareWrites(ctx, s.Redis, harness.Load{
		Connections: connections,
		Rate:        rate * float64(len(statuses)),
		Duration:    short(b, costLength, shortDelivery),
		Request:     s.newOrders(),
	}, harness.OpenLoop)
}

// costLength is how long a round lasts in which it is measured what an order costs.
const costLength = 6 * time.Second

// measureCosts measures what a whole order costs, and, before or after it, what bare writes for each of its steps
// cost, and what its creation alone costs when nothing else goes on.
func (b *bench) measureCosts(ctx context.Context, s *system, rate float64) {
	var whole, written, created harness.Usage
	measures := []func(){
		func() { whole = b.costOfWhole(ctx, s, rate) },
		func() {
			written = s.perOrder(ctx, func() (orders int) { return b.bareSteps(ctx, s, rate).Answered / len(statuses) })
		},
		func() { created = b.costOfCreation(ctx, s) },
	}

	isTurned := len(b.figure("delivered_redis").Values)%2 == 1
	if isTurned {
		slices.Reverse(measures)
	}

	for _, measure := range measures {
		measure()
	}

	cpu := func(u harness.Usage) float64 { return u["redis_us"] + u["gateway_us"] + u["worker_us"] }
	b.addBeside("delivered_redis", whole["redis_us"], written["redis_us"])
	b.addBeside("delivered_file", whole["aof_bytes"], written["aof_bytes"])
	b.addBeside("delivered_commands", whole["commands"], written["commands"])
	b.addBeside("delivered_cpu", cpu(whole), cpu(created))
	b.addBeside("delivered_gateway", whole["gateway_us"], created["gateway_us"])
	b.addBeside("delivered_worker", whole["worker_us"], created["worker_us"])
	b.add("delivered_generator", whole["generator_us"])
	b.add("delivered_calls", whole["calls"])
	b.add("delivered_flushes", whole["disk_flushes"])
	b.add("delivered_redis_in", whole["redis_net_in_bytes"])
	b.add("delivered_redis_out", whole["redis_net_out_bytes"])
	b.progress("at %s orders/s an order takes %s us of Redis, bare writes for its steps %s us, its creation alone %s us",
		number(rate), number(whole["redis_us"]), number(written["redis_us"]), number(created["redis_us"]))
}

// costOfWhole measures what an order costs on its whole way, creation and webhooks included.
func (b *bench) costOfWhole(ctx context.Context, s *system, rate float64) harness.Usage {
	return s.perOrder(ctx, func() (orders int) {
		before := s.webhookBytes.Load()
		j := s.carry(ctx, rate, 1, 0, short(b, costLength, shortDelivery))
		b.add("delivered_webhooks", float64(s.webhookBytes.Load()-before)/float64(j.orders))
		return j.orders
	})
}

// costOfCreation creates as many orders as the programs take, and then as many bare writes as Redis takes.
func (b *bench) costOfCreation(ctx context.Context, s *system) harness.Usage {
	length := short(b, creationLength, shortDelivery)
	var created *harness.Answers
	used := s.perOrder(ctx, func() (orders int) {
		created = s.create(ctx, length)
		return created.Answered
	})

	load := harness.Load{Connections: connections, Duration: length, Request: s.newOrders()}
	written := bareWrites(ctx, s.Redis, load, harness.ClosedLoop)

	b.addBeside("created", created.PerSecond(), written.PerSecond())
	b.add("created_redis", used["redis_us"])
	b.add("created_gateway", used["gateway_us"])
	b.add("created_worker", used["worker_us"])
	b.add("created_file", used["aof_bytes"])
	b.add("created_request", float64(created.Sent)/float64(created.Answered))
	b.add("created_answer", float64(created.Received)/float64(created.Answered))

	return used
}

// measureBeside measures the answers to 2,000 creations a second of which some go the whole way.
func (b *bench) measureBeside(ctx context.Context, s *system, delivered float64) {
	rate := float64(short(b, 2000, 100))
	length := short(b, 6*time.Second, shortDelivery)
	j := s.carry(ctx, rate, int(math.Ceil(rate/delivered)), short(b, deliveryWarmUp, 0), length)
	s.settle(ctx)

	load := harness.Load{Connections: connections, Rate: rate, Duration: length, Request: s.newOrders()}
	written := bareWrites(ctx, s.Redis, load, harness.OpenLoop)

	wait := quantile(j.created, 99)
	b.addBeside("wait_p99_delivering", wait, quantile(written.Latency, 99))
	b.progress("p99 of the answers to %s orders/s %s ms; of these delivered: %s", number(rate), number(wait), j)
}
