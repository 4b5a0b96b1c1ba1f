package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// measurePrograms measures the programs as they run in production: a gateway, a worker and a Redis that syncs every
// write, over TCP, the load in this process. In every round: how long an answer takes at a fixed rate, how many
// orders are created when that is all that happens, and how many are delivered, every webhook verified.
func (b *bench) measurePrograms(ctx context.Context) error {
	return b.withSystem(ctx, "programs", nil, func(ctx context.Context, s *system) error {
		for round := range b.rounds {
			if err := b.measureAnswers(ctx, s); err != nil {
				return fmt.Errorf("open loop: %w", err)
			}
			created, err := b.measureCreation(ctx, s)
			if err != nil {
				return fmt.Errorf("creation: %w", err)
			}
			delivered, webhooks, err := b.measureDelivery(ctx, s)
			if err != nil {
				return fmt.Errorf("delivery: %w", err)
			}
			b.add("delivered_per_created", delivered, created)
			b.progress("round %d of %d  %s orders/s created, %s delivered, %d webhooks verified", round+1, b.rounds,
				harness.Number(created), harness.Number(delivered), webhooks)
		}
		return nil
	})
}

// measureAnswers measures the answers to orders at a fixed rate, those to an unknown path (what HTTP, the machine and
// the generator cost) and those of a server that only writes the body to the same Redis (what the disk costs, too).
func (b *bench) measureAnswers(ctx context.Context, s *system) error {
	const rate = 2000 // per second
	load := harness.Load{Addrs: s.addrs[:1], Connections: connections, Rate: rate, Duration: b.lasting(5*time.Second, time.Second)}
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
	milliseconds := func(a *harness.Answers, q float64) float64 { return float64(a.Latency.ValueAtQuantile(q)) / 1000 }
	for key, q := range map[string]float64{"wait_p50": 50, "wait_p99": 99, "wait_p999": 99.9} {
		wait, write, base := milliseconds(orders, q), milliseconds(bare, q), milliseconds(idle, q)
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := fasthttp.Server{NoDefaultServerHeader: true, Handler: func(c *fasthttp.RequestCtx) {
		c.SetStatusCode(fasthttp.StatusCreated)
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"e", c.PostBody()}}).Err(); err != nil {
			c.Error(err.Error(), fasthttp.StatusInternalServerError)
		}
	}}
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(listener) })
	load.Addrs = []string{listener.Addr().String()}
	answers, err := harness.OpenLoop(ctx, load)
	return answers, errors.Join(err, server.Shutdown(), serving.Wait(), client.Del(ctx, stream).Err())
}

// measureCreation creates as many orders as the programs take and returns how many a second.
func (b *bench) measureCreation(ctx context.Context, s *system) (perSecond float64, err error) {
	err = b.account(ctx, s, costCreated, func() (float64, error) {
		r, err := s.create(ctx, s.addrs[:1], b.lasting(3*time.Second, time.Second))
		if err != nil {
			return 0, err
		}
		perSecond = r.PerSecond()
		orders := float64(r.Answered)
		b.addCost(costCreated+"http_in_bytes", float64(r.Sent)/orders)
		b.addCost(costCreated+"http_out_bytes", float64(r.Received)/orders)
		return orders, nil
	})
	return perSecond, err
}

const (
	// undelivered bounds the orders that are created and not delivered, so that
	// creation runs no faster than delivery.
	undelivered = 1000
	// deliveryTimeout is how long the last orders may take once no more are created.
	deliveryTimeout = 30 * time.Second
	// eventsPerOrder is one, and so one webhook, for every status after Searching.
	eventsPerOrder = 5
)

// courierRun is one measurement of whole orders: created by their vendors,
// carried out by the fleet step by step, reported by webhooks.
type courierRun struct {
	s        *system
	create   func(dst []byte, n int) []byte
	open     chan struct{} // a token for each order created and not delivered
	created  atomic.Int64
	webhooks atomic.Int64 // distinct ones
	done     atomic.Int64 // Delivered among them
	last     atomic.Int64 // when the last of those came, Unix nanoseconds
}

// measureDelivery returns how many orders a second went the whole way, from the
// first order's creation to the last one's webhook for Delivered.
func (b *bench) measureDelivery(ctx context.Context, s *system) (perSecond float64, webhooks int64, err error) {
	d := &courierRun{s: s, create: s.newOrders(), open: make(chan struct{}, undelivered)}
	err = b.account(ctx, s, costDelivered, func() (float64, error) {
		began, bytesBefore := time.Now(), s.webhookBytes.Load()
		if err := d.run(ctx, began.Add(b.lasting(4*time.Second, time.Second))); err != nil {
			return 0, err
		}
		orders := float64(d.done.Load())
		perSecond = orders / time.Unix(0, d.last.Load()).Sub(began).Seconds()
		b.addCost(costDelivered+"webhooks", float64(d.webhooks.Load())/orders)
		b.addCost(costDelivered+"webhook_bytes", float64(s.webhookBytes.Load()-bytesBefore)/orders)
		return orders, nil
	})
	return perSecond, d.webhooks.Load(), err
}

// run creates orders until then, and returns when all are delivered and exactly one event has come for every change.
func (d *courierRun) run(ctx context.Context, until time.Time) error {
	seen := d.seen
	d.s.seen.Store(&seen)
	defer d.s.seen.Store(nil)
	group, working := errgroup.WithContext(ctx)
	for range connections / 2 { // each goroutine has two
		group.Go(func() error { return d.carry(working, until) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := harness.Await(ctx, "every order delivered", deliveryTimeout, 5*time.Millisecond, func() (bool, error) {
		return d.done.Load() == d.created.Load(), nil
	}); err != nil {
		return fmt.Errorf("%d of %d orders: %w", d.done.Load(), d.created.Load(), err)
	}
	if want := d.created.Load() * eventsPerOrder; d.webhooks.Load() != want || want == 0 {
		return fmt.Errorf("%d distinct webhooks for %d orders, want %d each", d.webhooks.Load(), d.created.Load(), eventsPerOrder)
	}
	return d.s.checkReceivers()
}

func (d *courierRun) seen(e receiver.Event) {
	if e.Order.OrderID == "" {
		return // a store's
	}
	d.webhooks.Add(1)
	if e.Order.Status == "Delivered" {
		d.last.Store(time.Now().UnixNano())
		d.done.Add(1)
		<-d.open
	}
}

// carry creates one order after the other until the time is over, and for each reports what a courier would.
func (d *courierRun) carry(ctx context.Context, until time.Time) error {
	deadline := until.Add(deliveryTimeout)
	vendor, err := harness.Dial(ctx, d.s.addrs[0], deadline)
	if err != nil {
		return err
	}
	defer vendor.Close()
	fleet, err := harness.Dial(ctx, hostOf(d.s.Demo.OpsURL), deadline)
	if err != nil {
		return err
	}
	defer fleet.Close()
	var request []byte
	for time.Now().Before(until) {
		select {
		case d.open <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(until)):
			return nil
		}
		request = d.create(request[:0], int(d.created.Add(1)-1))
		created, err := exchange(vendor, request, 201)
		if err != nil {
			return err
		}
		_, rest, _ := bytes.Cut(created, []byte(`"orderId":"`))
		order, _, found := bytes.Cut(rest, []byte(`"`))
		if !found {
			return fmt.Errorf("no orderId in %.300s", created)
		}
		for _, r := range fleetReports {
			request = fmt.Appendf(request[:0], "POST /api/fleet/v1/jobs/%s/%s HTTP/1.1\r\nHost: fleet.example.com\r\nAuthorization: Bearer %s\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", order, r.path, d.s.Fleet.Bearer, len(r.body), r.body)
			if _, err := exchange(fleet, request, r.want); err != nil {
				return fmt.Errorf("report %s of order %s: %w", r.body, order, err)
			}
		}
	}
	return nil
}

func exchange(c *harness.Conn, request []byte, want int) ([]byte, error) {
	a, err := c.Exchange(request)
	if err == nil && a.Status != want {
		err = fmt.Errorf("answered %d instead of %d: %.300s", a.Status, want, a.Body)
	}
	return a.Body, err
}

var fleetReports = []struct {
	path, body string
	want       int
}{
	{"accept", `{"courier":{"name":"Mehmet Yılmaz","phone":"05301234567","vehicleType":"Motorcycle"}}`, 200},
	{"status", `{"status":"PickingUp"}`, 202},
	{"status", `{"status":"PickedUp"}`, 202},
	{"status", `{"status":"Delivering","location":{"latitude":40.987,"longitude":29.027}}`, 202},
	{"status", `{"status":"Delivered"}`, 202},
}
