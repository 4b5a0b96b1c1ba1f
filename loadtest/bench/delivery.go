package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	spacing          = 300 * time.Millisecond // between two steps of an order
	eventsPerOrder   = 5                      // one, and so one webhook, for every status after Searching
	fleetConnections = 60                     // fewer than the 64 requests of one fleet that a gateway takes at once
	deliveryTimeout  = time.Minute            // for the last orders, once no more are created
	deliveryQuick    = 300 * time.Millisecond // how long orders are created in a quick run
	carryDelay       = 100 * time.Millisecond // until the first order is due
	deliveryWarmUp   = 2 * time.Second        // until orders of every step are in progress, and not in the histograms
)

// statuses of an order; step n of it, the creation being 0, leads to the status n.
var statuses = [1 + eventsPerOrder]string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}

// requests of the steps; the creation's is an order.
var requests = [len(statuses)]struct {
	path, body string
	want       int
}{
	{"", "", 201},
	{"accept", `{"courier":{"name":"Mehmet Yılmaz","phone":"05301234567","vehicleType":"Motorcycle"}}`, 200},
	{"status", `{"status":"PickingUp"}`, 202},
	{"status", `{"status":"PickedUp"}`, 202},
	{"status", `{"status":"Delivering","location":{"latitude":40.987,"longitude":29.027}}`, 202},
	{"status", `{"status":"Delivered"}`, 202},
}

// timetable is when the steps of orders are due; nothing that happens changes it.
type timetable struct {
	start  time.Time
	rate   float64 // orders created per second
	orders int     // in all
	every  int     // one of so many orders goes the whole way, the others are created only
}

// at is the instant of a step. Each order is at its own place, by the golden ratio, within its 1/rate: at equal
// distances the steps of different orders would coincide at some rates and not at others.
func (t *timetable) at(order, step int) time.Time {
	_, place := math.Modf(float64(order) * math.Phi)
	return t.start.Add(time.Duration((float64(order)+place)/t.rate*float64(time.Second)) + time.Duration(step)*spacing)
}

func (t *timetable) whole() int { return (t.orders + t.every - 1) / t.every }

// run calls due at the instant of every step, until ctx ends.
func (t *timetable) run(ctx context.Context, due func(order, step int)) {
	var next [len(statuses)]int // the next order of each step
	for {
		soonest, at := -1, time.Time{}
		for step, order := range next {
			if a := t.at(order, step); order < t.orders && (soonest < 0 || a.Before(at)) {
				soonest, at = step, a
			}
		}
		if soonest < 0 || !harness.SleepUntil(ctx, at) {
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

	mu        sync.Mutex              // of the rest
	states    []journey               // by order
	created   *hdrhistogram.Histogram // answers to creations, microseconds
	told      *hdrhistogram.Histogram // from the instant of a report to its webhook, microseconds
	delivered int
	last      time.Time // of the webhooks
	growing   bool      // ever more orders were in progress
}

type journey struct {
	id       string
	told     int           // the status of the last webhook
	answered chan struct{} // closed when the last step that was due is answered; only journeys.run uses it
}

// carry creates rate orders a second for a time after the warm-up and takes one of every so many the whole way. It
// returns when every webhook of these has come, verified, once and in its order; anything else is an error.
func (s *system) carry(ctx context.Context, rate float64, every int, warmUp, length time.Duration) *journeys {
	const longest = 3 * time.Minute // no wait is longer, see deliveryTimeout
	start, orders := time.Now().Add(carryDelay), int(rate*(warmUp+length).Seconds())
	j := &journeys{timetable: timetable{start: start, rate: rate, orders: orders, every: every},
		measured: start.Add(warmUp), states: make([]journey, orders),
		created: hdrhistogram.New(1, longest.Microseconds(), 3), told: hdrhistogram.New(1, longest.Microseconds(), 3)}
	seen := j.seen
	s.seen.Store(&seen) // until the next ones: a webhook too many is an error then, too

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, working := errgroup.WithContext(ctx)
	end := j.at(j.orders, eventsPerOrder).Add(deliveryTimeout)
	gateway := got(harness.DialAll(working, connections, s.addrs[:1], end))
	fleet := got(harness.DialAll(working, fleetConnections, []string{hostOf(s.Demo.OpsURL)}, end))
	newOrder := s.newOrders()
	group.Go(func() error { j.watch(working); return nil })
	j.run(working, func(order, step int) {
		before, answered := j.states[order].answered, make(chan struct{})
		j.states[order].answered = answered
		group.Go(func() error {
			defer close(answered)
			if step == 0 {
				return j.send(gateway, order, step, newOrder(nil, order))
			}
			<-before
			r := requests[step]
			return j.send(fleet, order, step, fmt.Appendf(nil, "POST /api/fleet/v1/jobs/%s/%s HTTP/1.1\r\nHost: fleet.example.com\r\n"+
				"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				j.states[order].id, r.path, s.Fleet.Bearer, len(r.body), r.body))
		})
	})
	err := group.Wait()
	if err == nil {
		err = harness.Await(ctx, "every order delivered", deliveryTimeout, 5*time.Millisecond, func() (bool, error) {
			return j.left() == 0, context.Cause(ctx)
		})
	}
	if err != nil {
		must(fmt.Errorf("%d of %d orders on their way: %w", j.left(), j.whole(), err))
	}
	return j
}

// send sends a step as soon as a connection is free, and takes its answer.
func (j *journeys) send(conns harness.Conns, order, step int, request []byte) error {
	conn := <-conns
	defer func() { conns <- conn }()
	a, err := conn.Exchange(request)
	at := time.Now()
	if err != nil {
		return err
	}
	if want := requests[step].want; a.Status != want {
		return fmt.Errorf("%s of order %d: answered %d instead of %d: %.300s", statuses[step], order, a.Status, want, a.Body)
	}
	if step == 0 {
		id, _ := textOf(a.Body, `"orderId":"`)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.states[order].id = string(id)
		j.record(j.created, j.at(order, step), at)
	}
	return nil
}

func (j *journeys) left() int {
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
	j.mu.Lock()
	defer j.mu.Unlock()
	if n %= ordersPerBatch; err != nil || n >= len(j.states) || j.states[n].id != string(id) {
		return fmt.Errorf("a webhook of no order: %s", body)
	}
	state := &j.states[n]
	if state.told == eventsPerOrder || string(status) != statuses[state.told+1] {
		return fmt.Errorf("a webhook for %s after that for %s: %s", status, statuses[state.told], body)
	}
	if state.told++; state.told == eventsPerOrder {
		j.delivered++
	}
	j.last = at
	j.record(j.told, j.at(n, state.told), at)
	return nil
}

// textOf is the text in JSON behind a key, up to the next quotation mark, and what follows.
func textOf(body []byte, key string) (text, rest []byte) {
	_, rest, _ = bytes.Cut(body, []byte(key))
	text, rest, _ = bytes.Cut(rest, []byte(`"`))
	return text, rest
}

// record is called with the lock held.
func (j *journeys) record(h *hdrhistogram.Histogram, due, at time.Time) {
	if !due.Before(j.measured) {
		_ = h.RecordValue(min(at.Sub(due).Microseconds(), h.HighestTrackableValue()))
	}
}

// watch compares how many orders are in progress at the beginning and at the end of what is measured: by Little's law
// as many as are created in the time that one takes. Of several looks the fewest count, so that a moment's stall is no
// growth.
func (j *journeys) watch(ctx context.Context) {
	const (
		looks, apart = 20, 50 * time.Millisecond
		fair         = 80 * time.Millisecond // by which the mean order may take longer at the end
	)
	fewest := [2]int{j.orders, j.orders}
	for i, from := range []time.Time{j.measured, j.at(j.orders, 0).Add(-looks * apart)} {
		for look := range looks {
			if !harness.SleepUntil(ctx, from.Add(time.Duration(look)*apart)) {
				return
			}
			created := int(time.Since(j.start).Seconds()*j.rate) / j.every
			fewest[i] = min(fewest[i], created-(j.whole()-j.left()))
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.growing = float64(fewest[1]-fewest[0]) > 1+j.rate/float64(j.every)*fair.Seconds()
}

// quantile is in milliseconds; q from 0 to 100.
func quantile(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtQuantile(q)) / 1000
}

func (j *journeys) String() string {
	return fmt.Sprintf("%s orders/s: report to webhook p50 %s, p99 %s ms", harness.Number(j.rate/float64(j.every)),
		harness.Number(quantile(j.told, 50)), harness.Number(quantile(j.told, 99)))
}

// measureDelivery measures whole orders: the highest rate that lasts, how long webhooks take, what an order costs beside
// the writes alone that it needs, and how long creations wait meanwhile.
func (b *bench) measureDelivery(ctx context.Context) {
	b.withVendors(ctx, "delivery", stack.Options{}, nil, func(ctx context.Context, s *system) {
		// When Redis rewrites its file is chance, and what was appended to it is not known then.
		got(s.Redis.Command(ctx, "CONFIG", "SET", "auto-aof-rewrite-percentage", "0"))
		knee := 40.0 // of a quick run
		if !b.quick {
			knee = b.findKnee(ctx, s)
			b.add("delivered_knee", knee)
		}
		rate := min(1000, 0.9*knee)
		b.measureMinute(ctx, s, rate)
		// Fewer rounds than of the other parts, because they are longer.
		for round := range min(b.rounds, 5) {
			b.measureOrders(ctx, s, round, rate)
		}
		for range min(b.rounds, 3) {
			b.measureBeside(ctx, s, min(500, knee/2))
			b.measureCreation(ctx, s)
		}
	})
}

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
		if lasts > 0 && beyond > 0 {
			rate = math.Sqrt(lasts * beyond)
		}
		if beyond/lasts < fine && beyond > 0 || rate > most {
			return lasts
		}
		if rate < 10 {
			must(errors.New("not even 10 orders/s last"))
		}
	}
}

// tryRate tries a rate that does not last once more, unless half of the webhooks were late: a stall of the machine is
// not the service's.
func (b *bench) tryRate(ctx context.Context, s *system, rate float64) (lasts bool) {
	stall := true
	for try := 0; try < 2 && !lasts && stall; try++ {
		j := s.carry(ctx, rate, 1, deliveryWarmUp, 5*time.Second)
		s.settle(ctx)
		lasts, stall = !j.growing && quantile(j.told, 99) < 1000, quantile(j.told, 50) < 500
		b.progress("knee: %s, lasts: %v", j, lasts)
	}
	return lasts
}

// measureMinute measures how long webhooks take, from the reports, at a rate that lasts.
func (b *bench) measureMinute(ctx context.Context, s *system, rate float64) {
	j := s.carry(ctx, rate, 1, short(b, deliveryWarmUp, 0), short(b, time.Minute, deliveryQuick))
	// From the instant at which the first order was to be delivered.
	b.add("delivered_minute", float64(j.whole())/j.last.Sub(j.at(0, eventsPerOrder)).Seconds())
	for key, q := range map[string]float64{"told_p50": 50, "told_p99": 99, "told_p999": 99.9} {
		b.add(key, quantile(j.told, q))
	}
	b.progress("a minute: %s", j)
	s.settle(ctx)
}

// measureOrders measures what a whole order costs, in turns with the writes alone.
func (b *bench) measureOrders(ctx context.Context, s *system, round int, rate float64) {
	length := short(b, 6*time.Second, deliveryQuick)
	var used, native harness.Usage
	for _, own := range []bool{round%2 == 0, round%2 != 0} {
		if !own {
			native = b.nativeOpenLoop(ctx, rate, length)
			continue
		}
		used = b.account(ctx, s, costDelivered, func() int {
			before := s.webhookBytes.Load()
			j := s.carry(ctx, rate, 1, 0, length)
			b.addCost(costDelivered+"webhooks", eventsPerOrder)
			b.addCost(costDelivered+"webhook_bytes", float64(s.webhookBytes.Load()-before)/float64(j.orders))
			return j.orders
		})
	}
	b.add("delivered_redis", used["redis_us"], native["redis_us"])
	b.add("delivered_file", used["aof_bytes"], native["aof_bytes"])
	b.add("delivered_commands", used["commands"], native["commands"])
	b.add("delivered_calls", used["calls"])
	b.add("delivered_cpu", used["redis_us"]+used["gateway_us"]+used["worker_us"])
	b.add("delivered_gateway", used["gateway_us"])
	b.add("delivered_worker", used["worker_us"])
	b.add("delivered_generator", used["generator_us"])
	b.progress("round %d  at %s orders/s an order takes %s us of Redis, its writes alone %s us", round+1, harness.Number(rate),
		harness.Number(used["redis_us"]), harness.Number(native["redis_us"]))
}

// measureBeside measures the answers to 2,000 creations a second of which some go the whole way.
func (b *bench) measureBeside(ctx context.Context, s *system, delivered float64) {
	rate := float64(short(b, 2000, 100))
	j := s.carry(ctx, rate, int(math.Ceil(rate/delivered)), short(b, deliveryWarmUp, 0), short(b, 6*time.Second, deliveryQuick))
	wait := quantile(j.created, 99)
	b.add("wait_p99_delivering", wait)
	b.progress("p99 of the answers to %s orders/s %s ms; of these delivered: %s", harness.Number(rate), harness.Number(wait), j)
	s.settle(ctx)
}

// measureCreation creates as many orders as the programs take when nothing else goes on.
func (b *bench) measureCreation(ctx context.Context, s *system) {
	b.account(ctx, s, costCreated, func() int {
		r := s.create(ctx, s.addrs[:1], short(b, 3*time.Second, deliveryQuick))
		b.add("created", r.PerSecond())
		b.addCost(costCreated+"http_in_bytes", float64(r.Sent)/float64(r.Answered))
		b.addCost(costCreated+"http_out_bytes", float64(r.Received)/float64(r.Answered))
		return r.Answered
	})
}
