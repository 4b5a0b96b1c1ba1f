package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
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
	shortDelivery    = 300 * time.Millisecond // how long orders are created in a short run
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
	gateway := got(harness.DialAll(working, connections, []string{s.addr}, end))
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
	return fmt.Sprintf("%s orders/s: report to webhook p50 %s, p99 %s ms", number(j.rate/float64(j.every)),
		number(quantile(j.told, 50)), number(quantile(j.told, 99)))
}

func deliveryFigures() []*figure {
	const (
		bareSteps = "one bare XADD for each of its steps"
		creation  = "its creation alone"
	)
	return []*figure{
		// An order on its whole way is six requests and five webhooks. Measured 0.05 to 0.07 on a quiet machine; below 0.02
		// something on the way of a report or a webhook has become slower.
		{
			Key: "delivered_knee", What: "orders delivered, the highest rate that lasts", Unit: "orders/s",
			Baseline: "created, nothing else going on", Limit: ratioAtLeast(0.02),
		},
		{Key: "delivered_minute", What: "orders delivered for a minute, at 0.9 of it, at most 1000/s", Unit: "orders/s"},
		// What a report waits for before its webhook goes out: its own answer, the owner's batch, the step's commit. The
		// owner's pauses do not become shorter on a faster machine, so the ratios are large; what doubled them would show.
		{
			Key: "told_p50", What: "  report to verified webhook, p50", Unit: "ms",
			Baseline: bareSteps, Limit: ratioAtMost(100),
		},
		{
			Key: "told_p99", What: "  report to verified webhook, p99", Unit: "ms",
			Baseline: bareSteps, Limit: ratioAtMost(100),
		},
		{Key: "told_p999", What: "  report to verified webhook, p99.9", Unit: "ms", Baseline: bareSteps},
		{
			Key: "delivered_redis", What: "Redis CPU per delivered order at that rate", Unit: "redis-us/order",
			Baseline: bareSteps, Limit: ratioAtMost(6),
		},
		// Measured 1,385 to 1,521 us at 1,000 orders/s; at 100, where few writes share a turn, four times that.
		{
			Key: "delivered_cpu", What: "CPU of Redis, gateway and worker per delivered order", Unit: "us/order",
			Baseline: creation, Limit: ratioAtMost(60),
		},
		{Key: "delivered_gateway", What: "  gateway", Unit: "us/order", Baseline: creation},
		{Key: "delivered_worker", What: "  worker", Unit: "us/order", Baseline: creation},
		{Key: "delivered_generator", What: "  and the load, webhooks' verification included", Unit: "us/order"},
		{
			Key: "delivered_file", What: "append-only file per delivered order", Unit: "B/order",
			Baseline: bareSteps, Limit: ratioAtMost(3),
		},
		{Key: "delivered_commands", What: "commands per delivered order", Unit: "/order", Baseline: bareSteps},
		{Key: "delivered_calls", What: "  and calls of scripts", Unit: "/order"},
		{Key: "delivered_flushes", What: "  flushes of the disk", Unit: "/order"},
		{Key: "delivered_redis_in", What: "  to Redis", Unit: "B/order"},
		{Key: "delivered_redis_out", What: "  from Redis", Unit: "B/order"},
		{Key: "delivered_webhooks", What: "  its five webhooks, heads and bodies", Unit: "B/order"},
		{
			Key: "wait_p99_delivering", What: "answer to an order at 2000/s, p99, up to 500/s of them being delivered", Unit: "ms",
			Baseline: "one bare XADD each at the same rate",
		},
		{
			Key: "created", What: "orders created, nothing else going on", Unit: "orders/s",
			Baseline: "one bare XADD each", Limit: ratioAtLeast(0.25),
		},
		{Key: "created_redis", What: "  Redis CPU", Unit: "us/order"},
		{Key: "created_gateway", What: "  gateway", Unit: "us/order"},
		{Key: "created_worker", What: "  worker", Unit: "us/order"},
		{Key: "created_file", What: "  append-only file", Unit: "B/order"},
		{Key: "created_request", What: "  request", Unit: "B/order"},
		{Key: "created_answer", What: "  answer", Unit: "B/order"},
	}
}

// measureDelivery measures whole orders: the highest rate that lasts, how long webhooks take, what an order costs,
// and how long creations wait while others are delivered.
func (b *bench) measureDelivery(ctx context.Context) {
	b.withVendors(ctx, "delivery", stack.Options{}, func(ctx context.Context, s *system) {
		// When Redis rewrites its file is chance, and what was appended to it is not known then.
		got(s.Redis.Command(ctx, "CONFIG", "SET", "auto-aof-rewrite-percentage", "0"))

		knee := 40.0 // of a short run
		if !b.short {
			knee = b.findKnee(ctx, s)
			b.addBeside("delivered_knee", knee, s.create(ctx, creationLength).PerSecond())
			s.settle(ctx)
		}
		rate := min(1000, 0.9*knee)
		b.measureMinute(ctx, s, rate)
		for range b.rounds {
			b.measureCosts(ctx, s, rate)
		}
		// Fewer rounds, because they are longer.
		for range min(b.rounds, 3) {
			b.measureBeside(ctx, s, min(500, knee/2))
		}
	})
}

// creationLength is how long orders are created, and nothing else goes on.
const creationLength = 3 * time.Second

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

		isBracketed := lasts > 0 && beyond > 0
		if isBracketed {
			rate = math.Sqrt(lasts * beyond)
		}
		if isBracketed && beyond/lasts < fine || rate > most {
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

// measureMinute measures how long webhooks take, from the reports, at a rate that lasts; and how long bare writes take
// at the rate of the orders' steps.
func (b *bench) measureMinute(ctx context.Context, s *system, rate float64) {
	j := s.carry(ctx, rate, 1, short(b, deliveryWarmUp, 0), short(b, time.Minute, shortDelivery))
	s.settle(ctx)
	written := b.bareSteps(ctx, s, rate)

	// From the instant at which the first order was to be delivered.
	b.add("delivered_minute", float64(j.whole())/j.last.Sub(j.at(0, eventsPerOrder)).Seconds())
	b.addBeside("told_p50", quantile(j.told, 50), quantile(written.Latency, 50))
	b.addBeside("told_p99", quantile(j.told, 99), quantile(written.Latency, 99))
	b.addBeside("told_p999", quantile(j.told, 99.9), quantile(written.Latency, 99.9))
	b.progress("a minute: %s", j)
}

// bareSteps sends one bare write for each step of so many orders a second.
func (b *bench) bareSteps(ctx context.Context, s *system, rate float64) *harness.Answers {
	return bareWrites(ctx, s.Redis, harness.Load{
		Connections: connections,
		Rate:        rate * float64(len(statuses)),
		Duration:    short(b, costLength, shortDelivery),
		Request:     s.newOrders(),
	}, harness.OpenLoop)
}

// costLength is how long a round lasts in which it is measured what an order costs.
const costLength = 6 * time.Second

// measureCosts measures what a whole order costs, and, before or after it, what bare writes for each of its steps
// cost, and what its creation alone costs when nothing else goes on.
func (b *bench) measureCosts(ctx context.Context, s *system, rate float64) {
	var whole, written, created harness.Usage
	measures := []func(){
		func() { whole = b.costOfWhole(ctx, s, rate) },
		func() {
			written = s.perOrder(ctx, func() (orders int) { return b.bareSteps(ctx, s, rate).Answered / len(statuses) })
		},
		func() { created = b.costOfCreation(ctx, s) },
	}
	isTurned := len(b.figure("delivered_redis").Values)%2 == 1
	if isTurned {
		slices.Reverse(measures)
	}
	for _, measure := range measures {
		measure()
	}

	cpu := func(u harness.Usage) float64 { return u["redis_us"] + u["gateway_us"] + u["worker_us"] }
	b.addBeside("delivered_redis", whole["redis_us"], written["redis_us"])
	b.addBeside("delivered_file", whole["aof_bytes"], written["aof_bytes"])
	b.addBeside("delivered_commands", whole["commands"], written["commands"])
	b.addBeside("delivered_cpu", cpu(whole), cpu(created))
	b.addBeside("delivered_gateway", whole["gateway_us"], created["gateway_us"])
	b.addBeside("delivered_worker", whole["worker_us"], created["worker_us"])
	b.add("delivered_generator", whole["generator_us"])
	b.add("delivered_calls", whole["calls"])
	b.add("delivered_flushes", whole["disk_flushes"])
	b.add("delivered_redis_in", whole["redis_net_in_bytes"])
	b.add("delivered_redis_out", whole["redis_net_out_bytes"])
	b.progress("at %s orders/s an order takes %s us of Redis, bare writes for its steps %s us, its creation alone %s us",
		number(rate), number(whole["redis_us"]), number(written["redis_us"]), number(created["redis_us"]))
}

// costOfWhole measures what an order costs on its whole way, creation and webhooks included.
func (b *bench) costOfWhole(ctx context.Context, s *system, rate float64) harness.Usage {
	return s.perOrder(ctx, func() (orders int) {
		before := s.webhookBytes.Load()
		j := s.carry(ctx, rate, 1, 0, short(b, costLength, shortDelivery))
		b.add("delivered_webhooks", float64(s.webhookBytes.Load()-before)/float64(j.orders))
		return j.orders
	})
}

// costOfCreation creates as many orders as the programs take, and then as many bare writes as Redis takes.
func (b *bench) costOfCreation(ctx context.Context, s *system) harness.Usage {
	length := short(b, creationLength, shortDelivery)
	var created *harness.Answers
	used := s.perOrder(ctx, func() (orders int) {
		created = s.create(ctx, length)
		return created.Answered
	})
	written := bareWrites(ctx, s.Redis, harness.Load{Connections: connections, Duration: length, Request: s.newOrders()}, harness.ClosedLoop)

	b.addBeside("created", created.PerSecond(), written.PerSecond())
	b.add("created_redis", used["redis_us"])
	b.add("created_gateway", used["gateway_us"])
	b.add("created_worker", used["worker_us"])
	b.add("created_file", used["aof_bytes"])
	b.add("created_request", float64(created.Sent)/float64(created.Answered))
	b.add("created_answer", float64(created.Received)/float64(created.Answered))
	return used
}

// measureBeside measures the answers to 2,000 creations a second of which some go the whole way.
func (b *bench) measureBeside(ctx context.Context, s *system, delivered float64) {
	rate := float64(short(b, 2000, 100))
	length := short(b, 6*time.Second, shortDelivery)
	j := s.carry(ctx, rate, int(math.Ceil(rate/delivered)), short(b, deliveryWarmUp, 0), length)
	s.settle(ctx)
	written := bareWrites(ctx, s.Redis, harness.Load{Connections: connections, Rate: rate, Duration: length, Request: s.newOrders()}, harness.OpenLoop)

	wait := quantile(j.created, 99)
	b.addBeside("wait_p99_delivering", wait, quantile(written.Latency, 99))
	b.progress("p99 of the answers to %s orders/s %s ms; of these delivered: %s", number(rate), number(wait), j)
}
