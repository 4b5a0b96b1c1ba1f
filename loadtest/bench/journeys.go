// This file is a load of orders on their whole way: created by vendors, accepted and reported step by step by their
// fleet, announced in webhooks. Every step is due at an instant that nothing which happens can move.

package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
)

const (
	spacing          = 300 * time.Millisecond // between two steps of an order
	eventsPerOrder   = 5                      // one, and so one webhook, for every status after Searching
	fleetConnections = 60                     // fewer than the 64 requests of one fleet that a gateway takes at once
	deliveryTimeout  = time.Minute            // for the last orders, once no more are created
	shortDelivery    = 300 * time.Millisecond // how long orders are created in a short run
	carryDelay       = 100 * time.Millisecond // until the first order is due
	deliveryWarmUp   = 2 * time.Second        // until orders of every step are in progress, and not in the histograms
)

// statuses are those of an order: step n of it, the creation being 0, leads to the status n.
var statuses = [1 + eventsPerOrder]string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}

// requests are those of the steps; the creation's is an order.
var requests = [len(statuses)]struct {
	path, body string
	want       int // the status of its answer
}{
	{"", "", 201},
	{"accept", `{"courier":{"name":"Mehmet Yılmaz","phone":"05301234567","vehicleType":"Motorcycle"}}`, 200},
	{"status", `{"status":"PickingUp"}`, 202},
	{"status", `{"status":"PickedUp"}`, 202},
	{"status", `{"status":"Delivering","location":{"latitude":40.987,"longitude":29.027}}`, 202},
	{"status", `{"status":"Delivered"}`, 202},
}

// A timetable says when the steps of orders are due.
type timetable struct {
	start  time.Time
	rate   float64 // orders created per second
	orders int     // in all
	every  int     // one of so many orders goes the whole way, the others are created only
}

// at returns the instant of a step. Each order is at its own place, by the golden ratio, within its 1/rate: at equal
// distances the steps of different orders would coincide at some rates and not at others.
func (t *timetable) at(order, step int) time.Time {
	_, place := math.Modf(float64(order) * math.Phi)
	created := time.Duration((float64(order) + place) / t.rate * float64(time.Second))
	return t.start.Add(created + time.Duration(step)*spacing)
}

// whole returns how many orders go the whole way.
func (t *timetable) whole() int {
	return (t.orders + t.every - 1) / t.every
}

// run calls due at the instant of every step, until ctx ends.
func (t *timetable) run(ctx context.Context, due func(order, step int)) {
	var next [len(statuses)]int // the next order of each step
	for {
		soonest, soonestAt := -1, time.Time{}
		for step, order := range next {
			if order >= t.orders {
				continue
			}
			at := t.at(order, step)
			if soonest < 0 || at.Before(soonestAt) {
				soonest, soonestAt = step, at
			}
		}

		if soonest < 0 || !harness.SleepUntil(ctx, soonestAt) {
			return
		}

		due(next[soonest], soonest)
		runtime.Gosched() // see harness.Load
		if soonest == 0 {
			next[0]++
		} else {
			next[soonest] += t.every
		}
	}
}

// journeys is an open loop of orders from the vendor to the last webhook. A step is sent at its instant, or as soon as
// the order's step before is answered, if that is later; waits count from the instant.
type journeys struct {
	timetable
	measured time.Time // what is due before is warm-up

	mu     sync.Mutex // guards the rest
	states []journey  // by order

	created   *hdrhistogram.Histogram // answers to creations, microseconds
	announced *hdrhistogram.Histogram // from the instant of a report to its webhook, microseconds

	delivered   int       // orders whose last webhook has come
	lastWebhook time.Time // when the last one came
	growing     bool      // at the end more orders were in progress than at the beginning
}

// A journey is the way of one order so far.
type journey struct {
	id        string
	announced int           // the status of the last webhook
	answered  chan struct{} // closed when the last step that was due is answered; only journeys.run uses it
}

// carry creates rate orders a second for a time after the warm-up and takes one of every so many the whole way. It
// returns when every webhook of these has come, verified, once and in its order; anything else is an error.
func (s *system) carry(ctx context.Context, rate float64, every int, warmUp, length time.Duration) *journeys {
	const longest = 3 * time.Minute // no wait is longer, see deliveryTimeout
	start := time.Now().Add(carryDelay)
	orders := int(rate * (warmUp + length).Seconds())
	j := &journeys{
		timetable: timetable{start: start, rate: rate, orders: orders, every: every},
		measured:  start.Add(warmUp),
		states:    make([]journey, orders),
		created:   hdrhistogram.New(1, longest.Microseconds(), 3),
		announced: hdrhistogram.New(1, longest.Microseconds(), 3),
	}

	seen := j.seen
	s.seen.Store(&seen) // until the next ones: a webhook too many is an error then, too

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, working := errgroup.WithContext(ctx)
	end := j.at(j.orders, eventsPerOrder).Add(deliveryTimeout)
	gateway := got(harness.DialAll(working, connections, []string{s.addr}, end))
	fleet := got(harness.DialAll(working, fleetConnections, []string{hostOf(s.Demo.OpsURL)}, end))
	newOrder := s.newOrders()

	group.Go(func() error {
		j.watch(working)
		return nil
	})

	j.run(working, func(order, step int) {
		before, answered := j.states[order].answered, make(chan struct{})
		j.states[order].answered = answered
		group.Go(func() error {
			defer close(answered)
			if step == 0 {
				return j.send(gateway, order, step, newOrder(nil, order))
			}
			<-before
			return j.send(fleet, order, step, s.stepRequest(j.states[order].id, step))
		})
	})

	err := group.Wait()
	if err == nil {
		err = harness.Await(ctx, "every order delivered", deliveryTimeout, 5*time.Millisecond, func() (bool, error) {
			return j.inProgress() == 0, context.Cause(ctx)
		})
	}

	if err != nil {
		must(fmt.Errorf("%d of %d orders on their way: %w", j.inProgress(), j.whole(), err))
	}

	return j
}

// stepRequest returns the fleet's request for a step of an order.
func (s *system) stepRequest(orderID string, step int) []byte {
	r := requests[step]
	return fmt.Appendf(nil, "POST /api/fleet/v1/jobs/%s/%s HTTP/1.1\r\nHost: fleet.example.com\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		orderID, r.path, s.Fleet.Bearer, len(r.body), r.body)
}

// send sends a step as soon as a connection is free, and takes its answer.
func (j *journeys) send(conns harness.Conns, order, step int, request []byte) error {
	conn := <-conns
	defer func() { conns <- conn }()
	answer, err := conn.Exchange(request)
	at := time.Now()
	if err != nil {
		return err
	}
	if want := requests[step].want; answer.Status != want {
		return fmt.Errorf("%s of order %d: answered %d instead of %d: %.300s", statuses[step], order, answer.Status, want, answer.Body)
	}

	isCreation := step == 0
	if isCreation {
		id, _ := textOf(answer.Body, `"orderId":"`)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.states[order].id = string(id)
		j.record(j.created, j.at(order, step), at)
	}

	return nil
}

// inProgress returns how many of the orders that go the whole way are not delivered yet.
func (j *journeys) inProgress() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.whole() - j.delivered
}

// seen takes a verified webhook of an order: it must be that of the order's next status.
func (j *journeys) seen(body []byte, at time.Time) error {
	id, rest := textOf(body, `"orderId":"`)
	external, rest := textOf(rest, `"externalOrderId":"`)
	status, _ := textOf(rest, `"status":"`)
	n, err := strconv.Atoi(string(bytes.TrimPrefix(external, []byte("POS-"))))
	order := n % ordersPerBatch

	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil || order >= len(j.states) || j.states[order].id != string(id) {
		return fmt.Errorf("a webhook of no order: %s", body)
	}

	state := &j.states[order]
	isComplete := state.announced == eventsPerOrder
	if isComplete || string(status) != statuses[state.announced+1] {
		return fmt.Errorf("a webhook for %s after that for %s: %s", status, statuses[state.announced], body)
	}

	state.announced++
	if state.announced == eventsPerOrder {
		j.delivered++
	}

	j.lastWebhook = at
	j.record(j.announced, j.at(order, state.announced), at)

	return nil
}

// textOf returns the text in JSON behind a key, up to the next quotation mark, and what follows.
func textOf(body []byte, key string) (text, rest []byte) {
	_, rest, _ = bytes.Cut(body, []byte(key))
	text, rest, _ = bytes.Cut(rest, []byte(`"`))
	return text, rest
}

// record notes a wait, unless it belongs to the warm-up. The lock is held.
func (j *journeys) record(h *hdrhistogram.Histogram, due, at time.Time) {
	if due.Before(j.measured) {
		return
	}
	wait := min(at.Sub(due).Microseconds(), h.HighestTrackableValue())
	_ = h.RecordValue(wait) // within its range, so it cannot fail
}

// watch compares how many orders are in progress at the beginning and at the end of what is measured: by Little's law
// as many as are created in the time that one takes. Of several looks the fewest count, so that a moment's stall is no
// growth.
func (j *journeys) watch(ctx context.Context) {
	const (
		looks = 20
		apart = 50 * time.Millisecond
		fair  = 80 * time.Millisecond // by which the mean order may take longer at the end
	)

	fewest := [2]int{j.orders, j.orders}
	for i, from := range []time.Time{j.measured, j.at(j.orders, 0).Add(-looks * apart)} {
		for look := range looks {
			if !harness.SleepUntil(ctx, from.Add(time.Duration(look)*apart)) {
				return
			}
			created := int(time.Since(j.start).Seconds()*j.rate) / j.every
			delivered := j.whole() - j.inProgress()
			fewest[i] = min(fewest[i], created-delivered)
		}
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	accepted := 1 + j.rate/float64(j.every)*fair.Seconds()
	j.growing = float64(fewest[1]-fewest[0]) > accepted
}

// String is the rate of whole orders and how long their webhooks took.
func (j *journeys) String() string {
	return fmt.Sprintf("%s orders/s: report to webhook p50 %s, p99 %s ms", number(j.rate/float64(j.every)),
		number(quantile(j.announced, 50)), number(quantile(j.announced, 99)))
}

// quantile returns milliseconds from a histogram of microseconds; q goes from 0 to 100.
func quantile(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtQuantile(q)) / 1000
}
