// This file starts the programs with vendors, and tells what an order has used of each.

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs/blockdevice"
	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	// vendorCount is how many accounts the orders come from, in turn: enough that
	// every partition gets its share.
	vendorCount = 48
	// connections is how many requests can be in flight at once, as in the in-process measurements.
	connections = 64
)

// A system is the programs, with vendors who order and receivers of their webhooks in this process.
type system struct {
	*harness.System
	addr    string // host:port of the gateway's Vendor API
	vendors []*stack.Vendor
	batches atomic.Int64 // series of orders so far

	// Webhooks: fail ends the use of the system, seen is called with every webhook of an order, and
	// webhookBytes counts the heads and bodies of all.
	fail         context.CancelCauseFunc
	seen         atomic.Pointer[func(body []byte, at time.Time) error]
	webhookBytes atomic.Int64
}

// withSystem starts the programs, calls use, and stops them. The context of use ends when a program dies. No sandbox courier
// runs: orders move only by requests to the fleet API. It panics with a failure at the first error.
func (b *bench) withSystem(ctx context.Context, name string, options stack.Options, use func(context.Context, *harness.System)) {
	options.DataDir, options.BinDir, options.Courier = b.file(name), b.file("bin"), "manual"
	must(harness.WithSystem(ctx, b.out, false, options, func(ctx context.Context, s *harness.System) error {
		return caught(func() { use(ctx, s) })
	}))
}

// withVendors is withSystem with the vendors' stores opened and a server for their webhooks in this process. The context of
// use also ends when a webhook arrives that no receiver should ever see.
func (b *bench) withVendors(ctx context.Context, name string, options stack.Options, use func(context.Context, *system)) {
	options.Out = b.out
	b.withSystem(ctx, name, options, func(ctx context.Context, started *harness.System) {
		s := &system{System: started, addr: hostOf(started.Demo.BaseURL)}
		ctx, s.fail = context.WithCancelCause(ctx)
		defer s.fail(nil)
		limit := map[string]int{"requestsPerSecond": delivery.MaxFleetRequests} // nothing here reaches it
		must(s.Admin.Call(ctx, http.MethodPatch, "/fleets/"+s.FleetID, limit, nil))

		hooks := got(net.Listen("tcp", "127.0.0.1:0"))
		defer hooks.Close() // the server has closed it unless it never began
		s.vendors = got(s.OpenVendors(ctx, vendorCount, func(i int) stack.VendorOptions {
			return stack.VendorOptions{
				Name:       fmt.Sprintf("Vendor %d", i),
				Limits:     stack.Unlimited,
				WebhookURL: fmt.Sprintf("http://%s/%d", hooks.Addr(), i),
			}
		}))

		// Webhooks that came before have waited in the listener's queue, until the secrets are stored in s.vendors.
		stop := serveHTTP(hooks, s.receive)
		defer stop()

		err := caught(func() { use(ctx, s) })
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}

		must(err)
	})
}

// serveHTTP serves a listener until stop is called. The server is fasthttp's and sends no header that it need not, because it
// shares the processors with what is measured: with net/http a webhook took 1.7 times the CPU.
func serveHTTP(listener net.Listener, handler fasthttp.RequestHandler) (stop func()) {
	server := &fasthttp.Server{
		Handler:               handler,
		NoDefaultServerHeader: true,
		NoDefaultDate:         true,
		NoDefaultContentType:  true,
		MaxRequestBodySize:    64 << 10, // far above what is sent
	}

	go func() { _ = server.Serve(listener) }() // ends with stop
	return func() { _ = server.Shutdown() }    // nothing of it is needed any more
}

// receive answers a vendor's webhook with 204. A webhook that cannot be verified, or that s.seen refuses, ends the run.
func (s *system) receive(c *fasthttp.RequestCtx) {
	at := time.Now()
	c.SetStatusCode(fasthttp.StatusNoContent)
	header, body := &c.Request.Header, c.PostBody()
	s.webhookBytes.Add(int64(len("POST  HTTP/1.1\r\n") + len(c.RequestURI()) + len(header.RawHeaders()) + len(body)))
	i, err := strconv.Atoi(string(c.Path()[1:]))
	isVerified := err == nil && i < len(s.vendors) &&
		signed(s.vendors[i].WebhookSecret, body, header.Peek("webhook-id"), header.Peek("X-Service-Signature"))
	if !isVerified {
		s.fail(fmt.Errorf("a webhook at %s cannot be verified: %.500s", c.Path(), body))
		return
	}

	isOfOrder := string(header.Peek("X-Service-Event")) == string(delivery.StatusChanged)
	seen := s.seen.Load()
	if isOfOrder && seen != nil {
		err := (*seen)(body, at)
		if err != nil {
			s.fail(err)
		}
	}
}

// hostOf returns the host:port of an origin.
func hostOf(origin string) string {
	return strings.TrimPrefix(origin, "http://")
}

// orderBody is an order as a point-of-sale sends it, with every field that one has, about 450 bytes. Its external id
// is its idempotency key, too, as the spec suggests.
const (
	orderKey  = "POS-%016[2]d"
	orderBody = `{"externalStoreId":"branch-1","externalOrderId":"` + orderKey + `","orderedAt":"2026-11-21T12:30:00+03:00",` +
		`"recipient":{"name":"Ayşe Yılmaz","phone":"05321234567"},` +
		`"dropoff":{"text":"Caferağa Mah. Moda Cad. No:12 D:5","latitude":40.98713,"longitude":29.02761,"buildingNo":"12","doorNo":"5","floor":"2"},` +
		`"packageNote":"Kapıya bırakın","orderAmount":349.90,"payment":{"type":"Card","collectionAmount":349.90}}`
	orderRequest = "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\nAccept: application/json\r\n" +
		"Authorization: Bearer %[1]s\r\nContent-Type: application/json\r\nX-Idempotency-Key: " + orderKey + "\r\nContent-Length: %[3]d\r\n\r\n" + orderBody

	orderBodyLength = len(orderBody) - len(orderKey) + len("POS-0123456789abcdef")
	ordersPerBatch  = 1_000_000_000_000
)

// newOrders returns a series of requests for new orders, the vendors taking turns. No two series share an id.
func (s *system) newOrders() func(dst []byte, n int) []byte {
	first := s.batches.Add(1) * ordersPerBatch
	return func(dst []byte, n int) []byte {
		return fmt.Appendf(dst, orderRequest, s.vendors[n%len(s.vendors)].Bearer, first+int64(n), orderBodyLength)
	}
}

// create creates as many orders as the gateway accepts, for a while.
func (s *system) create(ctx context.Context, length time.Duration) *harness.Answers {
	load := harness.Load{Addrs: []string{s.addr}, Connections: connections, Duration: length, Want: 201, Request: s.newOrders()}
	return got(harness.ClosedLoop(ctx, load))
}

// settle waits until the worker is idle, so that no measurement pays for the one before.
func (s *system) settle(ctx context.Context) {
	const quiet = 0.1 // of a core
	must(harness.Await(ctx, "an idle worker", time.Minute, 0, func() (bool, error) {
		used, err := harness.During(func() error { return harness.Sleep(ctx, 250*time.Millisecond) },
			harness.Process{Name: "worker", PID: s.Worker.PID()})
		return used["worker"] <= quiet*used["seconds"], err
	}))
}

// redisUsage returns what a server has used so far: CPU, traffic, file, calls of scripts, and all other commands,
// those within scripts included.
func redisUsage(ctx context.Context, server *stack.Redis) harness.Usage {
	info := got(harness.RedisInfo(ctx, server))
	u := harness.Usage{
		// The main thread alone is what one partition can have of a machine.
		"redis_us":            1e6 * (info["used_cpu_sys_main_thread"] + info["used_cpu_user_main_thread"]),
		"redis_net_in_bytes":  info["total_net_input_bytes"],
		"redis_net_out_bytes": info["total_net_output_bytes"],
		"aof_bytes":           info["aof_current_size"],
	}

	stats := got(server.Command(ctx, "INFO", "commandstats")) // cmdstat_fcall:calls=7,usec=…
	for name, calls := range harness.Numbers(strings.ReplaceAll(stats, ",", "\n"), ":calls=") {
		isScript := strings.HasPrefix(name, "cmdstat_fcall") || strings.HasPrefix(name, "cmdstat_eval")
		if isScript {
			u["calls"] += calls
		} else {
			u["commands"] += calls
		}
	}

	return u
}

// usage returns what has been used so far: redisUsage, the CPU of the processes, and the flushes of all disks.
func (s *system) usage(ctx context.Context) harness.Usage {
	u := redisUsage(ctx, s.Redis)
	processes := []harness.Process{
		{Name: "gateway", PID: s.Gateway.PID()},
		{Name: "worker", PID: s.Worker.PID()},
		harness.Self("generator"),
	}

	for name, seconds := range got(harness.Measure(processes...)) {
		u[name+"_us"] = 1e6 * seconds
	}

	// An fsync is a flush. 0 on kernels that do not count them.
	for _, disk := range got(got(blockdevice.NewDefaultFS()).ProcDiskstats()) {
		u["disk_flushes"] += float64(disk.FlushRequestsCompleted)
	}

	return u
}

// perOrder runs a measurement of orders and returns what one of them has used. What the worker still has to do for
// them is waited for and counted.
func (s *system) perOrder(ctx context.Context, measure func() (orders int)) harness.Usage {
	before := s.usage(ctx)
	orders := measure()
	s.settle(ctx)
	used := s.usage(ctx).Since(before)
	for name := range used {
		used[name] /= float64(orders)
	}
	return used
}
