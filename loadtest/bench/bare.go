// This file is the baseline of what the programs make durable: bare writes to the same Redis.

package main

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// bareWrites is the baseline of what the programs make durable. It sends a load to a server of this process that
// does nothing but add the body of each request to a stream in Redis, and answers 201 when Redis has it on its disk:
// the least that an answer over HTTP can wait for. The load's Addrs and Want are set here; send is harness.OpenLoop
// or harness.ClosedLoop.
func bareWrites(ctx context.Context, server *stack.Redis, load harness.Load, send func(context.Context, harness.Load) (*harness.Answers, error)) *harness.Answers {
	const stream = "bench:bare"
	client := connect(server, load.Connections)
	defer func() { _ = client.Close() }() // all of its writes are answered

	listener := got(net.Listen("tcp", "127.0.0.1:0"))
	stop := serveHTTP(listener, func(c *fasthttp.RequestCtx) {
		c.SetStatusCode(fasthttp.StatusCreated)
		err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"e", c.PostBody()}}).Err()
		if err != nil {
			c.Error(err.Error(), fasthttp.StatusInternalServerError)
		}
	})
	defer stop()

	load.Addrs = []string{listener.Addr().String()}
	load.Want = fasthttp.StatusCreated
	answers := got(send(ctx, load))
	must(client.Del(ctx, stream).Err())

	return answers
}

// connect opens so many connections to a server.
func connect(server *stack.Redis, connections int) *redis.Client {
	unused := got(server.Client())
	defer func() { _ = unused.Close() }() // it has not connected
	options := *unused.Options()
	options.PoolSize = connections
	return redis.NewClient(&options)
}
