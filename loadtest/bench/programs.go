package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"vendorapi/loadtest/harness"
)

// measurePrograms measures the programs as they run in production: a gateway, a worker and a Redis that syncs every
// write, over TCP, the load in this process.
func (b *bench) measurePrograms(ctx context.Context) error {
	return b.withSystem(ctx, "programs", nil, func(ctx context.Context, s *system) error {
		for range b.rounds {
			if err := b.measureAnswers(ctx, s); err != nil {
				return fmt.Errorf("open loop: %w", err)
			}
		}
		return nil
	})
}

// measureAnswers measures the answers to orders at a fixed rate, those to an unknown path (what HTTP, the machine and
// the generator cost) and those of a server that only writes the body to the same Redis (what the disk costs, too).
func (b *bench) measureAnswers(ctx context.Context, s *system) error {
	const rate = 2000 // per second
	load := harness.Load{Addrs: s.addrs[:1], Connections: connections, Rate: rate, Duration: short(b, 5*time.Second, time.Second)}
	load.Want, load.Request = 404, func(dst []byte, _ int) []byte {
		return append(dst, "GET /nothing HTTP/1.1\r\nHost: api.example.com\r\n\r\n"...)
	}
	idle, err := harness.OpenLoop(ctx, load)
	if err != nil {
		return fmt.Errorf("unknown path: %w", err)
	}
	load.Want, load.Request = 201, s.newOrders()
	orders, err := harness.OpenLoop(ctx, load)
	if err != nil {
		return err
	}
	bare, err := s.bareWrites(ctx, load)
	if err != nil {
		return fmt.Errorf("bare writes: %w", err)
	}
	for key, q := range map[string]float64{"wait_p50": 50, "wait_p99": 99, "wait_p999": 99.9} {
		wait, write, base := quantile(orders.Latency, q), quantile(bare.Latency, q), quantile(idle.Latency, q)
		b.add(key, wait, base)
		b.add(key+"_xadd", wait, write)
		b.progress("%s at %d orders/s in an open loop: %s ms, of one bare XADD each %s ms, of an unknown path %s ms", key, rate,
			harness.Number(wait), harness.Number(write), harness.Number(base))
	}
	return s.settle(ctx)
}

// bareWrites sends a load to a server of this process that answers 201 when Redis has the body in a stream.
func (s *system) bareWrites(ctx context.Context, load harness.Load) (*harness.Answers, error) {
	const stream = "bench:bare"
	one, err := s.Redis.Client()
	if err != nil {
		return nil, err
	}
	options := one.Options()
	options.PoolSize = load.Connections
	client := redis.NewClient(options)
	defer func() { _ = errors.Join(one.Close(), client.Close()) }()
	addr, stop, err := serveHTTP("127.0.0.1:0", func(c *fasthttp.RequestCtx) {
		c.SetStatusCode(fasthttp.StatusCreated)
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"e", c.PostBody()}}).Err(); err != nil {
			c.Error(err.Error(), fasthttp.StatusInternalServerError)
		}
	})
	if err != nil {
		return nil, err
	}
	load.Addrs = []string{addr}
	answers, err := harness.OpenLoop(ctx, load)
	return answers, errors.Join(err, stop(), client.Del(ctx, stream).Err())
}
