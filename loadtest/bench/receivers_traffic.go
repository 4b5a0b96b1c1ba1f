// This file is the healthy traffic of suite receivers: orders on their whole way, whose webhooks may come late, twice,
// or in another order, as they do while workers are killed.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/harness"
)

// Traffic is an open loop of orders of healthy vendors, through the gateway and the reports of their fleet. Unlike
// journeys it goes on whatever becomes of the webhooks, and notes when each has come.
type traffic struct {
	timetable
	system     *system
	batch      int64 // the series of its external ids, see newOrders
	partitions []int // of the vendors

	cancel  context.CancelFunc // no more steps are sent after it
	sending errgroup.Group

	mu         sync.Mutex // guards the rest
	orders     []carried
	duplicates int // webhooks of an event after its first
	strays     int // webhooks of no order of any traffic
}

// A carried order is the way of one order so far.
type carried struct {
	id       string
	answered chan struct{} // closed when the last step that was due is answered; only the timetable uses it

	reported int                           // the last status whose report was answered
	arrived  [1 + eventsPerOrder]time.Time // by status: when its first webhook came
}

// startTraffic begins to create so many orders a second, and to take each the whole way. Whoever starts it ends it,
// before the longest time is over. What cannot be sent ends the use of the system.
func (s *system) startTraffic(ctx context.Context, rate float64, longest time.Duration) *traffic {
	orders := int(rate * longest.Seconds())
	t := &traffic{
		timetable: timetable{start: time.Now().Add(carryDelay), rate: rate, orders: orders, every: 1},
		system:    s,
		orders:    make([]carried, orders),
	}

	for _, v := range s.vendors {
		id := got(delivery.ParseAccountID(v.AccountID))
		t.partitions = append(t.partitions, partitionOf(id))
	}

	newOrder := s.newOrders()
	t.batch = s.batches.Load()
	seen := t.seen
	s.seen.Store(&seen)

	// The connections outlive the last step that is due.
	end := t.at(orders, eventsPerOrder).Add(deliveryTimeout)
	gateway := got(harness.DialAll(ctx, connections, []string{s.addr}, end))
	fleet := got(harness.DialAll(ctx, fleetConnections, []string{hostOf(s.Demo.OpsURL)}, end))

	due, cancel := context.WithCancel(ctx)
	t.cancel = cancel
	t.sending.Go(func() error {
		t.run(due, func(order, step int) { t.step(gateway, fleet, newOrder, order, step) })
		return nil
	})

	return t
}

// step sends a step of an order once the step before is answered.
func (t *traffic) step(gateway, fleet harness.Conns, newOrder func([]byte, int) []byte, order, step int) {
	before, answered := t.orders[order].answered, make(chan struct{})
	t.orders[order].answered = answered
	t.sending.Go(func() error {
		defer close(answered)
		var err error
		if step == 0 {
			err = t.send(gateway, order, step, newOrder(nil, order))
		} else {
			<-before
			err = t.send(fleet, order, step, t.system.stepRequest(t.idOf(order), step))
		}

		if err != nil {
			t.system.fail(err)
		}

		return err
	})
}

func (t *traffic) idOf(order int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.orders[order].id
}

// send sends a step as soon as a connection is free, and takes its answer.
func (t *traffic) send(conns harness.Conns, order, step int, request []byte) error {
	conn := <-conns
	defer func() { conns <- conn }()
	answer, err := conn.Exchange(request)
	if err != nil {
		return err
	}

	want := requests[step].want
	if answer.Status != want {
		return fmt.Errorf("%s of order %d: answered %d instead of %d: %.300s", statuses[step], order, answer.Status, want, answer.Body)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if step == 0 {
		id, _ := textOf(answer.Body, `"orderId":"`)
		t.orders[order].id = string(id)
	}

	t.orders[order].reported = step

	return nil
}

// seen notes a verified webhook of an order.
func (t *traffic) seen(body []byte, at time.Time) error {
	external, rest := textOf(body, `"externalOrderId":"`)
	status, _ := textOf(rest, `"status":"`)
	n, err := strconv.ParseInt(string(bytes.TrimPrefix(external, []byte("POS-"))), 10, 64)
	reached := slices.Index(statuses[:], string(status))

	t.mu.Lock()
	defer t.mu.Unlock()
	isEarlier := err == nil && n/ordersPerBatch < t.batch
	if isEarlier {
		t.duplicates++ // everything of an earlier traffic has arrived before this one began
		return nil
	}

	order := n % ordersPerBatch
	if err != nil || reached < 1 || order >= int64(len(t.orders)) {
		t.strays++
		return nil
	}

	arrived := &t.orders[order].arrived[reached]
	if arrived.IsZero() {
		*arrived = at
	} else {
		t.duplicates++
	}

	return nil
}

// end sends no more steps, and waits until what was reported has arrived. When nothing is wrong, that takes less than
// a minute: what is missing then is lost, and the figures will show it.
func (t *traffic) end(ctx context.Context) {
	t.cancel()
	must(errors.Join(t.sending.Wait(), context.Cause(ctx)))
	awaitFor(ctx, "all received", time.Minute, 50*time.Millisecond, func() (bool, error) {
		c := t.counts()
		return c.Received == c.Expected, nil
	})
}

// counts are of all events so far.
func (t *traffic) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := counts{Duplicates: t.duplicates, Invalid: t.strays}
	for i := range t.orders {
		o := &t.orders[i]
		c.Expected += o.reported
		for status := 1; status <= o.reported; status++ {
			if !o.arrived[status].IsZero() {
				c.Received++
			}
		}
	}

	return c
}

// A span is a part of the time in which traffic flows.
type span struct{ from, to time.Time }

// holds reports whether a moment is within the span.
func (s span) holds(at time.Time) bool { return !at.Before(s.from) && at.Before(s.to) }

// receipts returns the events whose reports were due within a span. What they took counts from the instant at which the
// report was due. What has not arrived yet counts as if it did now, so that it is not left out.
func (t *traffic) receipts(within span) []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	var found []event
	for i := range t.orders {
		o := &t.orders[i]
		for status := 1; status <= o.reported; status++ {
			due, arrived := t.at(i, status), o.arrived[status]
			if arrived.IsZero() {
				arrived = now
			}
			if within.holds(due) {
				found = append(found, event{issued: due, receipts: []time.Time{arrived}})
			}
		}
	}

	return found
}

// arrivals returns when events have arrived within a span, for each partition with healthy vendors, in no order.
func (t *traffic) arrivals(within span) map[int][]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := make(map[int][]time.Time)
	for _, p := range t.partitions {
		found[p] = nil
	}

	for i := range t.orders {
		p := t.partitions[i%len(t.partitions)]
		for _, arrived := range t.orders[i].arrived {
			if within.holds(arrived) {
				found[p] = append(found[p], arrived)
			}
		}
	}

	return found
}

// longestGap returns the longest time within a span in which nothing arrived of one of the partitions.
func (t *traffic) longestGap(within span) time.Duration {
	longest := time.Duration(0)
	for _, arrived := range t.arrivals(within) {
		slices.SortFunc(arrived, time.Time.Compare)
		before := within.from
		for _, at := range append(arrived, within.to) {
			longest = max(longest, at.Sub(before))
			before = at
		}
	}

	return longest
}

// awaitFlow waits until something has arrived of every partition that arrived after a moment, and returns how long after
// it that is. flows is false when it has not happened within a minute.
func (t *traffic) awaitFlow(ctx context.Context, from time.Time) (took time.Duration, flows bool) {
	err := harness.Await(ctx, "events of every partition", time.Minute, 20*time.Millisecond, func() (bool, error) {
		for _, arrived := range t.arrivals(span{from, time.Now()}) {
			if len(arrived) == 0 {
				return false, nil
			}
		}
		return true, nil
	})

	if !errors.Is(err, harness.ErrTimeout) {
		must(err)
	}

	return time.Since(from), err == nil
}
