package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// rate is the fixed rate of the open loop, in orders per second.
const rate = 2000

// measurePrograms measures the programs as they run in production: a gateway, a
// worker and a Redis that syncs every write, over TCP, the load in this process.
// In every round: how long an answer takes at a fixed rate, how many orders are
// created when that is all that happens, and how many are delivered, every
// webhook verified.
func (b *bench) measurePrograms(ctx context.Context) ([]harness.Figure, error) {
	s, err := b.startSystem(ctx, "programs", "")
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	ctx, cancel := s.bound(ctx)
	defer cancel()
	sheet := []harness.Figure{
		{Key: "wait_p50"},
		{Key: "wait_p99", Limit: harness.Least(harness.AtMost(5)).Because("The goal of the project, in milliseconds at 2,000 orders per second, with gateway, worker, Redis and the load on two cores. The least of the rounds is judged, because other programs and their use of the disk only add to it: medians were 2.98 (2.33..5.50), and 6.7 beside other programs that synced. The line for an unknown path shows how much of it is the machine and the generator.")},
		{Key: "wait_p999"},
		{Key: "delivered_per_created", Title: "orders delivered, each of their 5 webhooks verified", Unit: perSecond, Baseline: "created, nothing else going on",
			Limit: harness.Ratio(harness.AtLeast(0.03)).Because("A delivered order is 11 requests, 6 events, 5 signed webhooks and their verification on the same cores, against one request. Measured 0.05 (0.03..0.06); below that, something on the way of an update or a webhook has become slower.")},
	}
	for i, q := range quantiles {
		f := &sheet[i]
		f.Title, f.Unit, f.Baseline = fmt.Sprintf("answer to an order at %d/s, p%v", rate, q), "ms", "an unknown path at the same rate"
	}
	for round := range b.rounds {
		if err := b.measureRound(ctx, s, round, sheet); err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
	return sheet, nil
}

// measureRound adds a round to each figure.
func (b *bench) measureRound(ctx context.Context, s *system, round int, sheet []harness.Figure) error {
	progress := func(format string, a ...any) {
		b.progress("round %d of %d  "+format, append([]any{round + 1, b.rounds}, a...)...)
	}
	nothing := []byte("GET /nothing HTTP/1.1\r\nHost: api.example.com\r\n\r\n") // what HTTP, the machine and the generator cost
	idle, err := b.openLoop(ctx, s, 404, func(dst []byte, _ int) []byte { return append(dst, nothing...) })
	if err != nil {
		return fmt.Errorf("open loop of nothing: %w", err)
	}
	waits, err := b.openLoop(ctx, s, 201, s.newOrders())
	if err != nil {
		return fmt.Errorf("open loop: %w", err)
	}
	for i := range quantiles {
		sheet[i].Rounds, sheet[i].Base = append(sheet[i].Rounds, waits[i]), append(sheet[i].Base, idle[i])
	}
	progress("%d orders/s in an open loop: p50, p99, p99.9 %s ms (for nothing: %s ms)", rate, numbers(waits), numbers(idle))
	if err := s.settle(ctx); err != nil {
		return err
	}
	created, err := b.measureCreation(ctx, s)
	if err != nil {
		return fmt.Errorf("creation: %w", err)
	}
	progress("%s orders/s created", harness.Number(created))
	delivered, webhooks, err := b.measureDelivery(ctx, s)
	if err != nil {
		return fmt.Errorf("delivery: %w", err)
	}
	progress("%s orders/s delivered, %d webhooks verified", harness.Number(delivered), webhooks)
	last := &sheet[len(sheet)-1]
	last.Rounds, last.Base = append(last.Rounds, delivered), append(last.Base, created)
	return nil
}

// quantiles of the open loop's waits, in percent.
var quantiles = []float64{50, 99, 99.9}

// openLoop is the quantiles of the waits at the fixed rate, in milliseconds.
func (b *bench) openLoop(ctx context.Context, s *system, want int, request func(dst []byte, n int) []byte) (waits []float64, err error) {
	r, err := harness.OpenLoop(ctx, harness.Load{
		Addrs: s.addrs[:1], Connections: connections, Rate: rate, Duration: b.lasting(5*time.Second, time.Second), Want: want, Request: request,
	})
	if err != nil {
		return nil, err
	}
	for _, q := range quantiles {
		waits = append(waits, float64(r.Latency.ValueAtQuantile(q))/1000)
	}
	return waits, nil
}

func numbers(list []float64) string {
	var texts []string
	for _, v := range list {
		texts = append(texts, harness.Number(v))
	}
	return strings.Join(texts, ", ")
}

// measureCreation creates as many orders as the programs take and returns how
// many a second.
func (b *bench) measureCreation(ctx context.Context, s *system) (perSecond float64, err error) {
	err = s.account(ctx, costCreated, b.costs, func() (float64, error) {
		r, err := s.create(ctx, s.addrs[:1], b.lasting(3*time.Second, time.Second))
		if err != nil {
			return 0, err
		}
		perSecond = r.PerSecond()
		orders := float64(r.Answered)
		b.costs.add(costCreated+"http_in_bytes", float64(r.Sent)/orders)
		b.costs.add(costCreated+"http_out_bytes", float64(r.Received)/orders)
		return orders, nil
	})
	return perSecond, err
}

// create keeps the connections busy with new orders; the gateways take turns.
func (s *system) create(ctx context.Context, addrs []string, length time.Duration) (*harness.Answers, error) {
	return harness.ClosedLoop(ctx, harness.Load{Addrs: addrs, Connections: connections, Duration: length, Want: 201, Request: s.newOrders()})
}

const (
	// undelivered bounds the orders that are created and not delivered, so that
	// creation runs no faster than delivery.
	undelivered = 1000
	// deliveryTimeout is how long the last orders may take once no more are
	// created.
	deliveryTimeout = 30 * time.Second
	// webhooksPerOrder is one for every status after Searching.
	webhooksPerOrder = 5
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
	err = s.account(ctx, costDelivered, b.costs, func() (float64, error) {
		began, bytesBefore := time.Now(), s.webhookBytes.Load()
		if err := d.run(ctx, began.Add(b.lasting(4*time.Second, time.Second))); err != nil {
			return 0, err
		}
		orders := float64(d.done.Load())
		perSecond = orders / time.Unix(0, d.last.Load()).Sub(began).Seconds()
		b.costs.add(costDelivered+"webhooks", float64(d.webhooks.Load())/orders)
		b.costs.add(costDelivered+"webhook_bytes", float64(s.webhookBytes.Load()-bytesBefore)/orders)
		return orders, nil
	})
	return perSecond, d.webhooks.Load(), err
}

// run creates orders until then, and returns when all are delivered and exactly
// one event has come for every change.
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
	if err := await(ctx, "every order delivered", deliveryTimeout, 5*time.Millisecond, func() (bool, error) {
		return d.done.Load() == d.created.Load(), nil
	}); err != nil {
		return fmt.Errorf("%d of %d orders: %w", d.done.Load(), d.created.Load(), err)
	}
	if want := d.created.Load() * webhooksPerOrder; d.webhooks.Load() != want || want == 0 {
		return fmt.Errorf("%d distinct webhooks for %d orders, want %d each", d.webhooks.Load(), d.created.Load(), webhooksPerOrder)
	}
	return d.s.checkReceivers()
}

// seen is called with every distinct event that a receiver has verified.
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

// carry creates one order after the other until the time is over, and for each
// reports what a courier would: it accepts, heads for the restaurant, collects,
// departs, hands over.
func (d *courierRun) carry(ctx context.Context, until time.Time) error {
	deadline := until.Add(deliveryTimeout)
	vendor, err := harness.Dial(ctx, d.s.addrs[0], deadline)
	if err != nil {
		return err
	}
	defer vendor.Close()
	fleet, err := harness.Dial(ctx, d.s.fleetAddr, deadline)
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
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", order, r.path, d.s.fleet.Bearer, len(r.body), r.body)
			if _, err := exchange(fleet, request, r.want); err != nil {
				return fmt.Errorf("report %s of order %s: %w", r.body, order, err)
			}
		}
	}
	return nil
}

func exchange(c *harness.Conn, request []byte, want int) ([]byte, error) {
	a, err := c.Exchange(request)
	if err != nil {
		return nil, err
	}
	if a.Status != want {
		return nil, fmt.Errorf("answered %d instead of %d: %.300s", a.Status, want, a.Body)
	}
	return a.Body, nil
}

// fleetReports are a fleet's calls for one order.
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
