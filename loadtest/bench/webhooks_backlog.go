package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/loadtest/harness"
)

// backlog is the case of one endpoint that is dead while 100,000 events wait for
// it. There are two ledgers with the same orders: in one the endpoint refuses
// connections, in the other it takes everything. The two take turns under the same
// healthy traffic; while one is measured, the other's worker does not run.
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

func (b *bench) measureBacklog(ctx context.Context) (sheet []harness.Figure, err error) {
	l := &backlog{bench: b, events: 100_000}
	if b.quick {
		l.events = 500
	}
	l.aged = l.events / 100
	defer func() {
		for _, e := range []*webhookEnv{l.waiting, l.settled} {
			if e != nil {
				err = errors.Join(err, e.stop())
			}
		}
	}()
	var bytes []float64 // per event
	for _, step := range []func(context.Context) (float64, error){l.wait, l.settle, l.retry} {
		perEvent, err := step(ctx)
		if err != nil {
			return nil, err
		}
		bytes = append(bytes, perEvent)
	}
	pairs, err := b.takeTurns("backlog", func(_ int, with bool) (t turn, err error) {
		e := l.settled
		if with {
			e = l.waiting
		}
		if err := e.worker.Start(ctx); err != nil {
			return t, err
		}
		defer e.worker.Stop()
		return e.measureWaits(ctx, b.lasting(10*time.Second, 2*time.Second), evenly)
	})
	if err != nil {
		return nil, err
	}
	drained, err := l.drain(ctx)
	if err != nil {
		return nil, err
	}
	sheet = compare("backlog", fmt.Sprintf("healthy beside %s waiting events", harness.Grouped(int64(l.events))), pairs)
	if !b.quick { // the memory of a few hundred events says nothing of one
		sheet = append(sheet,
			one("backlog.bytes", "Redis memory per waiting event beyond the event", "B", bytes[0], harness.AtMost(300)),
			one("backlog.retry_bytes", "  when it has been tried and waits for its next attempt", "B", bytes[2], harness.AtMost(300)),
			one("backlog.settled_bytes", "  what a settled one leaves, for comparison", "B", bytes[1], nil))
	}
	return append(sheet, drained...), nil
}

// fill makes the events in a new ledger while no worker runs. Each has an order of
// its own, which is the dearest way to wait: of several events of one order only
// the first is queued.
func (l *backlog) fill(ctx context.Context, name string, how behaviour, aged time.Time) (*webhookEnv, *vendor, error) {
	began := time.Now()
	e, err := l.newWebhookEnv(ctx, name, nil)
	if err != nil {
		return nil, nil, err
	}
	added, err := e.addVendors(ctx, 1, how)
	if err == nil {
		err = e.makeEvents(ctx, added, l.aged, aged)
	}
	if err == nil {
		err = e.makeEvents(ctx, added, l.events-l.aged, began)
	}
	if err != nil {
		return nil, nil, errors.Join(err, e.stop())
	}
	l.progress("%s: %s events made in %.1f s", name, harness.Grouped(int64(l.events)), time.Since(began).Seconds())
	return e, added[0], nil
}

func (e *webhookEnv) makeEvents(ctx context.Context, vendors []*vendor, n int, at time.Time) error {
	orders, err := e.createOrders(ctx, vendors, n, at, nil)
	if err != nil {
		return err
	}
	return e.advanceAll(ctx, orders, delivery.Assigned, at)
}

// wait lets the worker queue the events of the dead endpoint and try it, until it
// no longer does anything with them but wait, or 40 s are over.
func (l *backlog) wait(ctx context.Context) (bytesPerEvent float64, err error) {
	l.deadline = time.Now().Add(l.lasting(75*time.Second, 4*time.Second))
	if l.waiting, l.dead, err = l.fill(ctx, "backlog", refuses, l.deadline.Add(-deliveryWindow)); err != nil {
		return 0, err
	}
	began := time.Now()
	var endpoint *ledger.WebhookEndpoint
	bytesPerEvent, err = l.waiting.grow(ctx, l.events, func() error {
		quiet, tried := 0, int64(0)
		return orTimeout(await(ctx, "all events wait", 40*time.Second, 250*time.Millisecond, func() (is bool, err error) {
			var unqueued int64
			if endpoint, unqueued, err = l.waiting.queue(ctx, l.dead); err != nil {
				return false, err
			}
			if quiet++; unqueued > 0 || endpoint.Retried-tried > int64(l.events)/1000 {
				quiet = 0
			}
			tried = endpoint.Retried
			return quiet >= 4, nil
		})) // the comparison shows whether the worker is still busy with them
	})
	if err != nil {
		return 0, err
	}
	l.progress("backlog: %s events wait after %.1f s, %d aged ones are given up", harness.Grouped(endpoint.Backlog),
		time.Since(began).Seconds(), endpoint.Undelivered)
	if waiting := endpoint.Backlog + endpoint.Undelivered; waiting < int64(l.events) {
		return 0, fmt.Errorf("only %d of %d events wait", waiting, l.events)
	}
	return bytesPerEvent, nil
}

// settle lets the other ledger's worker deliver all of them.
func (l *backlog) settle(ctx context.Context) (bytesPerEvent float64, err error) {
	if l.settled, l.lively, err = l.fill(ctx, "backlog-settled", answers, time.Now().Add(-deliveryWindow+time.Minute)); err != nil {
		return 0, err
	}
	began := time.Now()
	bytesPerEvent, err = l.settled.grow(ctx, l.events, func() error {
		if err := l.settled.awaitReceived(ctx, int64(l.events-l.aged), 2*time.Minute); err != nil {
			return err
		}
		_, err := l.settled.awaitEmpty(ctx, l.lively)
		return err
	})
	l.progress("backlog: the same events to an endpoint that answers: delivered in %.1f s", time.Since(began).Seconds())
	return bytesPerEvent, err
}

// retry measures what an event takes that has been tried and waits for its next
// attempt: more than one that has never been tried, because the ledger must know
// when that is, and how many there were. An endpoint that fails each event and a
// circuit breaker that never opens bring all of them there.
func (l *backlog) retry(ctx context.Context) (bytesPerEvent float64, err error) {
	if l.quick {
		return 0, nil
	}
	const events = 9_000
	e, err := l.newWebhookEnv(ctx, "backlog-retries", map[string]string{"breaker_failures": "10000"})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	vendors, err := e.addVendors(ctx, 1, fails)
	if err != nil {
		return 0, err
	}
	if err := e.makeEvents(ctx, vendors, events, time.Now()); err != nil {
		return 0, err
	}
	bytesPerEvent, err = e.grow(ctx, events, func() error {
		return await(ctx, "every event is tried", 40*time.Second, 20*time.Millisecond, func() (bool, error) {
			endpoint, err := e.Webhooks.Endpoint(ctx, vendors[0].account)
			return err == nil && endpoint.Retried >= events, err
		})
	})
	l.progress("backlog: %s events have been tried and wait", harness.Grouped(events))
	return bytesPerEvent, err
}

// grow is by how many bytes per event Redis grows while work goes on with the
// worker. The orders and the streams are there before; what comes in between is
// the queueing, and the endpoint's record of attempts, up to 256 kB once.
func (e *webhookEnv) grow(ctx context.Context, events int, work func() error) (bytesPerEvent float64, err error) {
	before, err := e.memory(ctx)
	if err != nil {
		return 0, err
	}
	if err := e.worker.Start(ctx); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	e.worker.Stop()
	after, err := e.memory(ctx)
	return (after - before) / float64(events), err
}

// memory is what Redis holds, in bytes: everything it has allocated but what its
// clients and its unwritten file take just now.
func (e *webhookEnv) memory(ctx context.Context) (float64, error) {
	if err := e.settleRedis(ctx); err != nil {
		return 0, err
	}
	info, err := harness.RedisInfo(ctx, e.redis)
	return info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"], err
}

// queue is what the ledger says of an endpoint, and how many events it has not
// queued yet.
func (e *webhookEnv) queue(ctx context.Context, v *vendor) (endpoint *ledger.WebhookEndpoint, unqueued int64, err error) {
	stats, err := e.Monitor.Stats(ctx)
	if err != nil {
		return nil, 0, err
	}
	endpoint, err = e.Webhooks.Endpoint(ctx, v.account)
	return endpoint, stats.Unread[ledger.RoleWebhook] + stats.Pending[ledger.RoleWebhook], err
}

// awaitEmpty gives the worker 10 s to record what has just been received, and to
// give up what cannot be sent any more. The figures say what is left after that.
func (e *webhookEnv) awaitEmpty(ctx context.Context, v *vendor) (endpoint *ledger.WebhookEndpoint, err error) {
	err = await(ctx, "an empty queue", 10*time.Second, 20*time.Millisecond, func() (is bool, err error) {
		var unqueued int64
		endpoint, unqueued, err = e.queue(ctx, v)
		return err == nil && endpoint.Backlog+unqueued == 0, err
	})
	return endpoint, orTimeout(err)
}

// drain lets the dead endpoint listen and watches its backlog drain, with the
// healthy traffic beside it.
func (l *backlog) drain(ctx context.Context) ([]harness.Figure, error) {
	e, wanted := l.waiting, l.events-l.aged
	// The aged events' deadline has passed before anything can be sent.
	if err := sleep(ctx, time.Until(l.deadline.Add(time.Second))); err != nil {
		return nil, err
	}
	if err := e.worker.Start(ctx); err != nil {
		return nil, err
	}
	source, err := e.newSource(ctx, e.healthy, drainTimeout.Seconds()*steadyRate)
	if err != nil {
		return nil, err
	}
	if err := l.dead.listen(); err != nil {
		return nil, err
	}
	began := time.Now()
	err = e.beside(ctx, evenly(source), steadyRate, drainTimeout, func() error {
		return orTimeout(await(ctx, "the backlog drains", drainTimeout, 100*time.Millisecond, func() (bool, error) {
			return l.dead.sum().Received >= wanted, e.worker.Check()
		}))
	})
	if err != nil {
		return nil, err
	}
	watched := time.Since(began)
	if err := e.awaitAll(ctx, receiveTimeout); err != nil {
		return nil, err
	}
	beside, err := newTurn(receiptsOf(e.healthy, began), nil)
	if err != nil {
		return nil, err
	}
	l.dead.expire(time.Now())
	l.lively.expire(time.Now())
	endpoint, err := e.awaitEmpty(ctx, l.dead)
	if err != nil {
		return nil, err
	}
	var came []float64 // seconds after the recovery
	for _, event := range l.dead.receipts(time.Time{}) {
		came = append(came, event.received.Sub(began).Seconds())
	}
	slices.Sort(came)
	after := func(n int) float64 { // the whole time if so many never came
		if len(came) < n {
			return watched.Seconds()
		}
		return came[n-1]
	}
	all := sumOf(append(slices.Clone(e.vendors), l.settled.vendors...))
	return append([]harness.Figure{
		one("backlog.noticed", "recovery: first event received after", "s", after(1), nil),
		one("backlog.half", "  half of the backlog received after", "s", after(wanted/2), nil),
		one("backlog.drained", "  all of it after", "s", after(wanted), harness.Always(harness.AtMost(drainTimeout.Seconds()))),
		one("backlog.drain_rate", "  per second, from the first to the last", "/s", float64(len(came))/(after(wanted)-after(1)), nil),
		one("backlog.drain_p99", "  healthy endpoints' p99 meanwhile", "ms", beside.p99(), nil),
		one("backlog.left", "  left in the queue", "", float64(endpoint.Backlog), none()),
		one("backlog.late", fmt.Sprintf("  sent past the deadline, of %d events that had reached it", l.aged), "", float64(all.Late), none()),
		one("backlog.unrecorded", "  of those, not recorded as undelivered", "", float64(int64(l.dead.sum().Expired)-endpoint.Undelivered), none()),
	}, losses("backlog", all)...), nil
}
