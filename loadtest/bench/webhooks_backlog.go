// This file measures healthy endpoints beside 100,000 events that wait for a dead one, what these take in memory, and
// how they are delivered in the end.

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/webhooks"
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
		{Key: "backlog.probe_due", What: "  the next probe was due after", Unit: "s"},
		{Key: "backlog.half", What: "  half of the backlog received after", Unit: "s"},
		{Key: "backlog.drained", What: "  all of it after", Unit: "s"},
		{Key: "backlog.drain_rate", What: "  per second, from the first to the last", Unit: "/s"},
		{Key: "backlog.drain_p99", What: "  healthy endpoints' p99 in that time", Unit: "ms"},
		{Key: "backlog.left", What: "  left in the queue", Limit: atMost(0)},
		{Key: "backlog.late", What: "  sent past the deadline, of events that had reached it", Limit: atMost(0)},
		{Key: "backlog.unrecorded", What: "  of those, not recorded as undelivered", Limit: atMost(0)},
	}, lossFigures("backlog", shareAtMost(0.01)))
}

// A backlog is the case of one endpoint that is dead while 100,000 events wait for it. There are two ledgers with the
// same orders: in one the endpoint refuses connections, in the other it takes everything. The two take turns under
// the same healthy traffic; while one is measured, the other's worker does not run.
type backlog struct {
	*bench
	events int

	// aged counts those of the events, every hundredth, that happened almost a day ago, so that their deadline passes
	// while they wait: they must not be sent.
	aged     int
	deadline time.Time // of the aged events in waiting

	waiting, settled *webhookEnv
	dead, lively     *vendor // the endpoint in the one and in the other
}

// drainTimeout bounds how long a backlog may take from the moment in which its
// endpoint listens again: until the worker notices, and until it is drained.
const drainTimeout = 3 * time.Minute

func (b *bench) measureBacklog(ctx context.Context) {
	events := short(b, 100_000, 500)
	l := &backlog{bench: b, events: events, aged: events / 100}
	b.withWebhooks(ctx, "backlog", nil, func(ctx context.Context, waiting *webhookEnv) {
		b.withWebhooks(ctx, "backlog-settled", nil, func(ctx context.Context, settled *webhookEnv) {
			l.waiting, l.settled = waiting, settled
			l.letWait(ctx)
			l.letSettle(ctx)
			if !b.short { // the memory of a few hundred events says nothing of one
				l.measureRetries(ctx)
			}

			l.measureBeside(ctx)
			l.drain(ctx)
		})
	})
}

// fill makes the events for a new vendor while no worker runs, each of an order of its own. The aged orders have
// ended: the worker would end others itself, with an event that no endpoint expects.
func (b *backlog) fill(ctx context.Context, e *webhookEnv, how behaviour, aged time.Time) *vendor {
	began := time.Now()
	v := e.addVendor(ctx, how)
	e.makeEvents(ctx, []*vendor{v}, b.aged, aged, delivery.Failed)
	e.makeEvents(ctx, []*vendor{v}, b.events-b.aged, began, delivery.Assigned)
	b.progress("backlog: %s events made in %.1f s", harness.Grouped(b.events), time.Since(began).Seconds())

	return v
}

// letWait lets the worker queue the events of the dead endpoint and try it, until it
// no longer does anything with them but wait, or 40 s are over. The comparison shows whether it
// is still busy with them then.
func (b *backlog) letWait(ctx context.Context) {
	b.deadline = time.Now().Add(short(b.bench, 75*time.Second, 4*time.Second))
	b.dead = b.fill(ctx, b.waiting, refuses, b.deadline.Add(-deliveryWindow))

	var endpoint *webhooks.WebhookEndpoint
	b.waiting.grow(ctx, "backlog.bytes", b.events, func() {
		quietLooks, retried := 0, int64(0)
		awaitFor(ctx, "all events wait", 40*time.Second, 250*time.Millisecond, func() (bool, error) {
			now, unqueued, err := b.waiting.queue(ctx, b.dead)
			if err != nil {
				return false, err
			}

			endpoint = now

			isQuiet := unqueued == 0 && endpoint.Retried-retried <= int64(b.events)/1000
			if isQuiet {
				quietLooks++
			} else {
				quietLooks = 0
			}

			retried = endpoint.Retried
			// What was given up in the last second is neither in the schedule nor in the endpoint's figures.
			return quietLooks >= 4 && endpoint.Backlog+endpoint.Undelivered >= int64(b.events), nil
		})
	})

	b.progress("backlog: %s events wait, %d aged ones are given up", harness.Grouped(endpoint.Backlog), endpoint.Undelivered)
	waiting := endpoint.Backlog + endpoint.Undelivered
	if waiting < int64(b.events) {
		must(fmt.Errorf("only %d of %d events wait", waiting, b.events))
	}
}

// letSettle lets the worker deliver the same events in the other ledger.
func (b *backlog) letSettle(ctx context.Context) {
	b.lively = b.fill(ctx, b.settled, answers, time.Now().Add(-deliveryWindow+time.Minute))
	b.settled.grow(ctx, "backlog.settled_bytes", b.events, func() {
		must(b.settled.awaitReceived(ctx, int64(b.events-b.aged), 2*time.Minute))
		b.settled.awaitEmpty(ctx, b.lively)
	})
}

// measureRetries measures what an event takes that has been tried and waits for its next attempt: more than one that
// has never been tried, because the ledger must know when that is, and how many there were. An endpoint that fails each
// event and a circuit breaker that never opens bring all of them there.
func (b *backlog) measureRetries(ctx context.Context) {
	const events = 9_000
	b.withWebhooks(ctx, "backlog-retries", map[string]string{"breaker_failures": "10000"}, func(ctx context.Context, e *webhookEnv) {
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

// measureBeside compares the healthy endpoints in the two ledgers.
func (b *backlog) measureBeside(ctx context.Context) {
	b.note("backlog.p99", "%s wait", harness.Grouped(b.events))
	b.compare("backlog", func(_ int, with bool) turn {
		e := b.settled
		if with {
			e = b.waiting
		}
		must(e.Worker.Start(ctx))
		defer e.Worker.Stop()
		return e.measureWaits(ctx, short(b.bench, 10*time.Second, 2*time.Second), nil)
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

// memory returns what Redis holds, in bytes: everything it has allocated but what its
// clients and its unwritten file take just now.
func (e *webhookEnv) memory(ctx context.Context) float64 {
	e.settleRedis(ctx)
	info := got(harness.RedisInfo(ctx, e.Redis))
	return info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"]
}

// queue returns what the ledger has of an endpoint, and how many events it has not queued yet.
func (e *webhookEnv) queue(ctx context.Context, v *vendor) (endpoint *webhooks.WebhookEndpoint, unqueued int64, err error) {
	stats, err := e.Monitor.Stats(ctx)
	if err != nil {
		return nil, 0, err
	}
	endpoint, err = e.Webhooks.Endpoint(ctx, v.account)
	return endpoint, stats.Unread[ledger.RoleWebhook] + stats.Pending[ledger.RoleWebhook], err
}

// awaitEmpty gives the worker 10 s to record what has just been received, and to
// give up what cannot be sent any more. The figures show what is left after that.
func (e *webhookEnv) awaitEmpty(ctx context.Context, v *vendor) *webhooks.WebhookEndpoint {
	var endpoint *webhooks.WebhookEndpoint
	awaitFor(ctx, "an empty queue", 10*time.Second, 20*time.Millisecond, func() (bool, error) {
		now, unqueued, err := e.queue(ctx, v)
		if err != nil {
			return false, err
		}
		endpoint = now
		return endpoint.Backlog+unqueued == 0, nil
	})

	return endpoint
}

// drain lets the dead endpoint listen and watches its backlog drain, with the healthy traffic beside it.
func (b *backlog) drain(ctx context.Context) {
	e, wanted := b.waiting, b.events-b.aged
	// The aged events' deadline has passed before anything can be sent.
	must(harness.Sleep(ctx, time.Until(b.deadline.Add(time.Second))))
	must(e.Worker.Start(ctx))

	var began, probeDue time.Time
	e.beside(ctx, steadyRate, drainTimeout, func() {
		must(b.dead.listen())
		began = time.Now()
		endpoint, _, err := e.queue(ctx, b.dead)
		must(err)
		probeDue = endpoint.HeldUntil
		awaitFor(ctx, "the backlog drains", drainTimeout, 100*time.Millisecond, func() (bool, error) {
			return sumOf(b.dead).Received >= wanted, nil
		})
	})

	watched := time.Since(began)
	e.awaitAll(ctx)
	healthy := got(newTurn(receiptsOf(began, e.healthy...), nil))
	endpoint := e.awaitEmpty(ctx, b.dead)

	received := secondsAfter(began, receiptsOf(time.Time{}, b.dead))
	after := func(n int) float64 { // the whole time if so many were never received
		if len(received) < n {
			return watched.Seconds()
		}
		return received[n-1]
	}

	b.add("backlog.noticed", after(1))
	b.add("backlog.probe_due", probeDue.Sub(began).Seconds())
	b.add("backlog.half", after(wanted/2))
	b.add("backlog.drained", after(wanted))
	b.add("backlog.drain_rate", float64(len(received))/(after(wanted)-after(1)))
	b.add("backlog.drain_p99", healthy.p99())

	all := sumOf(slices.Concat(e.vendors, b.settled.vendors)...)
	b.add("backlog.left", float64(endpoint.Backlog))
	b.add("backlog.late", float64(all.Late))
	b.note("backlog.late", "%d had reached it", b.aged)
	b.add("backlog.unrecorded", float64(int64(sumOf(b.dead).Expired)-endpoint.Undelivered))
	b.addLosses("backlog", all)
}

// secondsAfter returns when events were received, in seconds from a moment on, the earliest first.
func secondsAfter(moment time.Time, events []event) []float64 {
	var seconds []float64
	for _, e := range events {
		seconds = append(seconds, e.receipts[0].Sub(moment).Seconds())
	}
	slices.Sort(seconds)
	return seconds
}
