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

// sendLoad sends a load and returns its answers: harness.OpenLoop or harness.ClosedLoop.
type sendLoad func(context.Context, harness.Load) (*harness.Answers, error)

// bareWrites is the baseline of whatever the programs make durable. It sends a load to a server of this process that
// does nothing but add the body of each request to a stream in Redis, and answers 201 when Redis has it on its disk:
// the least that an answer over HTTP can wait for. It sets the load's Addrs and Want, and deletes the stream at the end.
// It panics with a failure at the first error.
func bareWrites(ctx context.Context, server *stack.Redis, load harness.Load, send sendLoad) *harness.Answers {
	const stream = "bench:bare"
	client := connect(server, load.Connections)
	defer func() { _ = client.Close() }() // every write has been answered by then

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

// connect returns a client of a server with a pool of the given number of connections. The caller closes it.
func connect(server *stack.Redis, connections int) *redis.Client {
	unused := got(server.Client())
	defer func() { _ = unused.Close() }() // only its options are used, so it has not connected

	options := *unused.Options()
	options.PoolSize = connections

	return redis.NewClient(&options)
}
