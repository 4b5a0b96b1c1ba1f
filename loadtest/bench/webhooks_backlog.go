package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/loadtest/harness"
)

func backlogFigures() []*figure {
	return slices.Concat(besideFigures("backlog", "healthy beside waiting events"), []*figure{
		{Key: "backlog.bytes", What: "Redis memory per waiting event beyond the event", Unit: "B", Limit: atMost(300)},
		{Key: "backlog.retry_bytes", What: "  when it has been tried and waits for its next attempt", Unit: "B", Limit: atMost(300)},
		{Key: "backlog.settled_bytes", What: "  what a settled one leaves, for comparison", Unit: "B"},
		// How long the worker waits between two probes of a dead endpoint is a setting, 30 s. That all of it drains in the
		// end is what "left" and "lost" hold.
		{Key: "backlog.noticed", What: "recovery: first event received after", Unit: "s"},
		{Key: "backlog.half", What: "  half of the backlog received after", Unit: "s"},
		{Key: "backlog.drained", What: "  all of it after", Unit: "s"},
		{Key: "backlog.drain_rate", What: "  per second, from the first to the last", Unit: "/s"},
		{Key: "backlog.drain_p99", What: "  healthy endpoints' p99 in that time", Unit: "ms"},
		{Key: "backlog.left", What: "  left in the queue", Limit: atMost(0)},
		{Key: "backlog.late", What: "  sent past the deadline, of events that had reached it", Limit: atMost(0)},
		{Key: "backlog.unrecorded", What: "  of those, not recorded as undelivered", Limit: atMost(0)},
	}, lossFigures("backlog", shareAtMost(0.01)))
}

// backlog is the case of one endpoint that is dead while 100,000 events wait for it. There are two ledgers with the
// same orders: in one the endpoint refuses connections, in the other it takes everything. The two take turns under
// the same healthy traffic; while one is measured, the other's worker does not run.
type backlog struct {
	*bench
	events int
	// aged events, every hundredth, happened almost a day ago, so that their
	// deadline passes while they wait: those must not be sent.
	aged     int
	deadline time.Time // of the aged events in waiting

	waiting, settled *webhookEnv
	dead, lively     *vendor // the endpoint in the one and in the other
}

// drainTimeout bounds how long a backlog may take from the moment in which its
// endpoint listens again: until the worker notices, and until it is drained.
const drainTimeout = 3 * time.Minute

func (b *bench) measureBacklog(ctx context.Context) {
	l := &backlog{bench: b, events: short(b, 100_000, 500)}
	l.aged = l.events / 100
	b.withWebhooks(ctx, "backlog", nil, func(ctx context.Context, waiting *webhookEnv) {
		b.withWebhooks(ctx, "backlog-settled", nil, func(ctx context.Context, settled *webhookEnv) {
			l.waiting, l.settled = waiting, settled
			l.wait(ctx)
			l.settle(ctx)
			if !b.short { // the memory of a few hundred events says nothing of one
				l.retry(ctx)
			}
			l.measureBeside(ctx)
			l.drain(ctx)
		})
	})
}

// fill makes the events for a new vendor while no worker runs, each of an order of its own. The aged orders have
// ended: the worker would end others itself, with an event that no endpoint expects.
func (l *backlog) fill(ctx context.Context, e *webhookEnv, how behaviour, aged time.Time) *vendor {
	began := time.Now()
	v := e.addVendor(ctx, how)
	e.makeEvents(ctx, []*vendor{v}, l.aged, aged, delivery.Failed)
	e.makeEvents(ctx, []*vendor{v}, l.events-l.aged, began, delivery.Assigned)
	l.progress("backlog: %s events made in %.1f s", harness.Grouped(l.events), time.Since(began).Seconds())
	return v
}

// wait lets the worker queue the events of the dead endpoint and try it, until it
// no longer does anything with them but wait, or 40 s are over.
func (l *backlog) wait(ctx context.Context) {
	l.deadline = time.Now().Add(short(l.bench, 75*time.Second, 4*time.Second))
	l.dead = l.fill(ctx, l.waiting, refuses, l.deadline.Add(-deliveryWindow))
	var endpoint *ledger.WebhookEndpoint
	l.waiting.grow(ctx, "backlog.bytes", l.events, func() {
		quiet, tried := 0, int64(0)
		awaitFor(ctx, "all events wait", 40*time.Second, 250*time.Millisecond, func() (is bool, err error) {
			var unqueued int64
			if endpoint, unqueued, err = l.waiting.queue(ctx, l.dead); err != nil {
				return false, err
			}
			if quiet++; unqueued > 0 || endpoint.Retried-tried > int64(l.events)/1000 {
				quiet = 0
			}
			tried = endpoint.Retried
			// What was given up in the last second is neither in the schedule nor in the endpoint's figures.
			return quiet >= 4 && endpoint.Backlog+endpoint.Undelivered >= int64(l.events), nil
		}) // the comparison shows whether the worker is still busy with them
	})
	l.progress("backlog: %s events wait, %d aged ones are given up", harness.Grouped(endpoint.Backlog), endpoint.Undelivered)
	if waiting := endpoint.Backlog + endpoint.Undelivered; waiting < int64(l.events) {
		must(fmt.Errorf("only %d of %d events wait", waiting, l.events))
	}
}

func (l *backlog) settle(ctx context.Context) {
	l.lively = l.fill(ctx, l.settled, answers, time.Now().Add(-deliveryWindow+time.Minute))
	l.settled.grow(ctx, "backlog.settled_bytes", l.events, func() {
		must(l.settled.awaitReceived(ctx, int64(l.events-l.aged), 2*time.Minute))
		l.settled.awaitEmpty(ctx, l.lively)
	})
}

// retry measures what an event takes that has been tried and waits for its next attempt: more than one that has never
// been tried, because the ledger must know when that is, and how many there were. An endpoint that fails each event
// and a circuit breaker that never opens bring all of them there.
func (l *backlog) retry(ctx context.Context) {
	const events = 9_000
	l.withWebhooks(ctx, "backlog-retries", map[string]string{"breaker_failures": "10000"}, func(ctx context.Context, e *webhookEnv) {
		v := e.addVendor(ctx, fails)
		e.makeEvents(ctx, []*vendor{v}, events, time.Now(), delivery.Assigned)
		e.grow(ctx, "backlog.retry_bytes", events, func() {
			must(harness.Await(ctx, "every event is tried", 40*time.Second, 20*time.Millisecond, func() (bool, error) {
				endpoint, err := e.Webhooks.Endpoint(ctx, v.account)
				return err == nil && endpoint.Retried >= events, err
			}))
		})
	})
}

func (l *backlog) measureBeside(ctx context.Context) {
	l.note("backlog.p99", "%s wait", harness.Grouped(l.events))
	l.compare("backlog", func(_ int, with bool) turn {
		e := l.settled
		if with {
			e = l.waiting
		}
		must(e.Worker.Start(ctx))
		defer e.Worker.Stop()
		return e.measureWaits(ctx, short(l.bench, 10*time.Second, 2*time.Second), nil)
	})
}

// grow notes by how many bytes per event Redis grows while work goes on with the worker. The orders and the streams
// are there before; what comes in between is the queueing, and the endpoint's record of attempts, up to 256 kB once.
func (e *webhookEnv) grow(ctx context.Context, key string, events int, work func()) {
	before := e.memory(ctx)
	must(e.Worker.Start(ctx))
	work()
	e.Worker.Stop()
	after := e.memory(ctx)
	if !e.bench.short {
		e.bench.add(key, (after-before)/float64(events))
	}
}

// memory is what Redis holds, in bytes: everything it has allocated but what its
// clients and its unwritten file take just now.
func (e *webhookEnv) memory(ctx context.Context) float64 {
	e.settleRedis(ctx)
	info := got(harness.RedisInfo(ctx, e.Redis))
	return info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"]
}

// queue is what the ledger has of an endpoint, and how many events it has not queued yet.
func (e *webhookEnv) queue(ctx context.Context, v *vendor) (endpoint *ledger.WebhookEndpoint, unqueued int64, err error) {
	stats, err := e.Monitor.Stats(ctx)
	if err != nil {
		return nil, 0, err
	}
	endpoint, err = e.Webhooks.Endpoint(ctx, v.account)
	return endpoint, stats.Unread[ledger.RoleWebhook] + stats.Pending[ledger.RoleWebhook], err
}

// awaitEmpty gives the worker 10 s to record what has just been received, and to
// give up what cannot be sent any more. The figures show what is left after that.
func (e *webhookEnv) awaitEmpty(ctx context.Context, v *vendor) (endpoint *ledger.WebhookEndpoint) {
	awaitFor(ctx, "an empty queue", 10*time.Second, 20*time.Millisecond, func() (is bool, err error) {
		var unqueued int64
		endpoint, unqueued, err = e.queue(ctx, v)
		return err == nil && endpoint.Backlog+unqueued == 0, err
	})
	return endpoint
}

// drain lets the dead endpoint listen and watches its backlog drain, with the healthy traffic beside it.
func (l *backlog) drain(ctx context.Context) {
	e, wanted := l.waiting, l.events-l.aged
	// The aged events' deadline has passed before anything can be sent.
	must(harness.Sleep(ctx, time.Until(l.deadline.Add(time.Second))))
	must(e.Worker.Start(ctx))
	var began time.Time
	e.beside(ctx, steadyRate, drainTimeout, func() {
		must(l.dead.listen())
		began = time.Now()
		awaitFor(ctx, "the backlog drains", drainTimeout, 100*time.Millisecond, func() (bool, error) {
			return sumOf(l.dead).Received >= wanted, nil
		})
	})
	watched := time.Since(began)
	e.awaitAll(ctx)
	beside := got(newTurn(receiptsOf(began, e.healthy...), nil))
	endpoint := e.awaitEmpty(ctx, l.dead)
	var came []float64 // seconds after the recovery
	for _, event := range receiptsOf(time.Time{}, l.dead) {
		came = append(came, event.receipts[0].Sub(began).Seconds())
	}
	slices.Sort(came)
	after := func(n int) float64 { // the whole time if so many never came
		if len(came) < n {
			return watched.Seconds()
		}
		return came[n-1]
	}
	all := sumOf(slices.Concat(e.vendors, l.settled.vendors)...)
	l.add("backlog.noticed", after(1))
	l.add("backlog.half", after(wanted/2))
	l.add("backlog.drained", after(wanted))
	l.add("backlog.drain_rate", float64(len(came))/(after(wanted)-after(1)))
	l.add("backlog.drain_p99", beside.p99())
	l.add("backlog.left", float64(endpoint.Backlog))
	l.add("backlog.late", float64(all.Late))
	l.note("backlog.late", "%d had reached it", l.aged)
	l.add("backlog.unrecorded", float64(int64(sumOf(l.dead).Expired)-endpoint.Undelivered))
	l.addLosses("backlog", all)
}
