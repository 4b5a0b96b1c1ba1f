package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

const (
	// undelivered bounds the orders that are created and not delivered, so that
	// creation runs no faster than delivery.
	undelivered = 1000
	// deliveryPatience is how long the last orders may take once no more are
	// created.
	deliveryPatience = 30 * time.Second
	// webhooksPerOrder is one for every status after Searching.
	webhooksPerOrder = 5
)

// delivery is one measurement of whole orders: created by their vendors, carried
// out by the fleet step by step, told by webhooks.
type delivery struct {
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
func (b *bench) measureDelivery(ctx context.Context, s *system, round int) (perSecond float64, err error) {
	err = s.account(ctx, costDelivered, b.costs, func() (float64, error) {
		d := &delivery{s: s, create: s.orders.batch(), open: make(chan struct{}, undelivered)}
		began, bytesBefore := time.Now(), s.hooks.bytes.Load()
		if err := d.run(ctx, began.Add(b.lasting(4*time.Second))); err != nil {
			return 0, errors.Join(err, context.Cause(ctx))
		}
		perSecond = float64(d.done.Load()) / time.Unix(0, d.last.Load()).Sub(began).Seconds()
		b.progress(round, "%s orders/s delivered, %d webhooks verified", harness.Number(perSecond), d.webhooks.Load())
		orders := float64(d.done.Load())
		b.costs.add(costDelivered+".webhooks", float64(d.webhooks.Load())/orders)
		b.costs.add(costDelivered+".webhook_bytes", float64(s.hooks.bytes.Load()-bytesBefore)/orders)
		return orders, nil
	})
	return perSecond, err
}

// run creates orders until then, and returns when all are delivered.
func (d *delivery) run(ctx context.Context, until time.Time) error {
	watch := d.seen
	d.s.hooks.watch.Store(&watch)
	defer d.s.hooks.watch.Store(nil)
	group, working := errgroup.WithContext(ctx)
	for range connections / 2 { // each lane has two
		group.Go(func() error { return d.lane(working, until) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := d.awaitAll(ctx); err != nil {
		return err
	}
	return d.check()
}

// seen is told of every distinct event that a receiver has verified.
func (d *delivery) seen(e receiver.Event) {
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

// lane creates one order after the other until the time is over, and for each
// reports what a courier would: it accepts, heads for the restaurant, collects,
// departs, hands over.
func (d *delivery) lane(ctx context.Context, until time.Time) error {
	deadline := until.Add(deliveryPatience)
	vendor, err := harness.Dial(ctx, d.s.vendorAddrs[0], deadline)
	if err != nil {
		return err
	}
	defer vendor.Close()
	fleet, err := harness.Dial(ctx, d.s.privateAddr, deadline)
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
		order, err := orderID(created)
		if err != nil {
			return err
		}
		for _, r := range reports {
			if _, err := exchange(fleet, r.append(request[:0], order, d.s.fleetToken), r.want); err != nil {
				return fmt.Errorf("report %s of order %s: %w", r.path, order, err)
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

// orderID is the id in the answer to a creation.
func orderID(answer []byte) (string, error) {
	_, rest, found := bytes.Cut(answer, []byte(`"orderId":"`))
	id, _, ends := bytes.Cut(rest, []byte(`"`))
	if !found || !ends || len(id) == 0 {
		return "", fmt.Errorf("no orderId in %.300s", answer)
	}
	return string(id), nil
}

// fleetReport is a fleet's call for one order.
type fleetReport struct {
	path, body string
	want       int
}

var reports = []fleetReport{
	{"accept", `{"courier":{"name":"Mehmet Yılmaz","phone":"05301234567","vehicleType":"Motorcycle"}}`, 200},
	{"status", `{"status":"PickingUp"}`, 202},
	{"status", `{"status":"PickedUp"}`, 202},
	{"status", `{"status":"Delivering","location":{"latitude":40.987,"longitude":29.027}}`, 202},
	{"status", `{"status":"Delivered"}`, 202},
}

func (r fleetReport) append(dst []byte, order, token string) []byte {
	return fmt.Appendf(dst, "POST /api/fleet/v1/jobs/%s/%s HTTP/1.1\r\nHost: fleet.example.com\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", order, r.path, token, len(r.body), r.body)
}

// awaitAll waits until every order that was created is delivered.
func (d *delivery) awaitAll(ctx context.Context) error {
	patience := time.After(deliveryPatience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for d.done.Load() < d.created.Load() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience:
			return fmt.Errorf("%d of %d orders delivered %v after the last was created", d.done.Load(), d.created.Load(), deliveryPatience)
		case <-tick.C:
		}
	}
	return nil
}

// check refuses a measurement in which not exactly one event came for every
// change.
func (d *delivery) check() error {
	if want := d.created.Load() * webhooksPerOrder; d.webhooks.Load() != want || want == 0 {
		return fmt.Errorf("%d distinct webhooks for %d orders, want %d each", d.webhooks.Load(), d.created.Load(), webhooksPerOrder)
	}
	return d.s.hooks.check()
}
