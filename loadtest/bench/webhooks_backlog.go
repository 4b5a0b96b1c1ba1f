package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// backlog is the case of one endpoint that is dead while 100,000 events wait for
// it. Everything is there twice, from one filling: in one ledger the endpoint
// refuses connections, in its copy the same endpoint takes everything. The two
// take turns under the same healthy traffic; while one is measured, the other's
// worker does not run.
type backlog struct {
	*bench
	events int
	// aged events, every hundredth, happened almost a day ago, so that their
	// deadline passes while they wait: those must not be sent.
	aged     int
	deadline time.Time // of the aged events

	waiting, settled *webhookEnv
	dead, lively     *vendor // the same account in the one and the other

	perWaiting, perRetry, perSettled float64 // bytes per event
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
	for _, step := range []func(context.Context) error{l.retry, l.fill, l.copy, l.settle, l.wait} {
		if err := step(ctx); err != nil {
			return nil, err
		}
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
			harness.Figure{Key: "backlog.bytes", Title: "Redis memory per waiting event beyond the event", Unit: "B", Rounds: []float64{l.perWaiting}, Limit: harness.AtMost(300)},
			harness.Figure{Key: "backlog.retry_bytes", Title: "  when it has been tried and waits for its next attempt", Unit: "B", Rounds: []float64{l.perRetry}, Limit: harness.AtMost(300)},
			harness.Figure{Key: "backlog.settled_bytes", Title: "  what a settled one leaves, for comparison", Unit: "B", Rounds: []float64{l.perSettled}})
	}
	return append(sheet, drained...), nil
}

// retry measures what an event takes that has been tried and waits for its next
// attempt: more than one that has never been tried, because the ledger must know
// when that is, and how many there were. An endpoint that fails each event and a
// circuit breaker that never opens bring all of them there.
func (l *backlog) retry(ctx context.Context) (err error) {
	if l.quick {
		return nil
	}
	const events = 9_000
	e, err := l.newWebhookEnv(ctx, "backlog-retries", map[string]string{"breaker_failures": "10000"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	vendors, err := e.addVendors(ctx, 1, fails)
	if err != nil {
		return err
	}
	if err := e.makeEvents(ctx, vendors, events, time.Now()); err != nil {
		return err
	}
	l.perRetry, err = e.grow(ctx, events, func() error {
		return await(ctx, "every event is tried", 40*time.Second, 20*time.Millisecond, func() (bool, error) {
			endpoint, err := e.ledger.Webhooks.Endpoint(ctx, vendors[0].account)
			return err == nil && endpoint.Retried >= events, err
		})
	})
	l.progress("backlog: %s events have been tried and wait", harness.Grouped(events))
	return err
}

// makeEvents makes one event for each of n orders: the dearest way to wait,
// because of several events of one order only the first is queued.
func (e *webhookEnv) makeEvents(ctx context.Context, vendors []*vendor, n int, at time.Time) error {
	orders, err := e.createOrders(ctx, vendors, n, at)
	if err != nil {
		return err
	}
	return e.advanceAll(ctx, orders, delivery.Assigned, at)
}

// grow is by how many bytes per event Redis grows while work goes on with the
// worker. The same Redis with the same orders and the same streams is compared,
// once before any worker has seen an event, and once after: what has come in
// between is the queueing. The endpoint's record of attempts, up to 256 kB once,
// is part of it.
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

// fill makes the events while no worker runs.
func (l *backlog) fill(ctx context.Context) (err error) {
	began := time.Now()
	l.deadline = began.Add(l.lasting(75*time.Second, 4*time.Second))
	e, err := l.newWebhookEnv(ctx, "backlog", nil)
	if err != nil {
		return err
	}
	l.waiting = e
	dead, err := e.addVendors(ctx, 1, refuses)
	if err != nil {
		return err
	}
	l.dead = dead[0]
	if err := e.makeEvents(ctx, dead, l.aged, l.deadline.Add(-deliveryWindow)); err != nil {
		return err
	}
	if err := e.makeEvents(ctx, dead, l.events-l.aged, began); err != nil {
		return err
	}
	l.progress("backlog: %s events made in %.1f s", harness.Grouped(int64(l.events)), time.Since(began).Seconds())
	return nil
}

// copy starts a second Redis on a copy of the first one's files, with the same
// vendors at addresses of their own.
func (l *backlog) copy(ctx context.Context) (err error) {
	e := l.waiting
	if err := e.settleRedis(ctx); err != nil {
		return err
	}
	err = e.ledger.Close()
	e.ledger = nil
	if err != nil {
		return err
	}
	e.redis.Stop()
	twin := &webhookEnv{bench: l.bench, dir: e.dir + "-settled", key: e.key, fleet: e.fleet, orders: e.orders}
	l.settled = twin
	if err := os.CopyFS(filepath.Join(twin.dir, "redis"), os.DirFS(filepath.Join(e.dir, "redis"))); err != nil {
		return fmt.Errorf("copy the ledger: %w", err)
	}
	if err := e.redis.Start(ctx); err != nil {
		return err
	}
	if e.ledger, err = openLedger(ctx, e.redis.URL, e.key); err != nil {
		return err
	}
	if err := twin.open(ctx, nil); err != nil {
		return err
	}
	for _, v := range e.vendors {
		other := &vendor{endpoint: newEndpoint(answers, &twin.received), account: v.account}
		other.secret = v.secret
		other.expectAs(v.endpoint)
		if other.addr, err = stack.FreeAddr(); err != nil {
			return err
		}
		twin.vendors = append(twin.vendors, other)
		if err := twin.openWebhook(ctx, other); err != nil {
			return err
		}
		if v == l.dead {
			l.lively = other
		} else {
			twin.healthy = append(twin.healthy, other)
		}
	}
	return nil
}

// settle lets the copy's worker deliver all of them.
func (l *backlog) settle(ctx context.Context) (err error) {
	began := time.Now()
	l.perSettled, err = l.settled.grow(ctx, l.events, func() error {
		if err := l.settled.awaitReceived(ctx, int64(l.events-l.aged), 2*time.Minute); err != nil {
			return err
		}
		_, err := l.settled.awaitEmpty(ctx, l.lively)
		return err
	})
	l.progress("backlog: the same events to an endpoint that answers: delivered in %.1f s", time.Since(began).Seconds())
	return err
}

// wait lets the worker queue the events and try their endpoint, until it no
// longer does anything with them but wait, or 40 s are over.
func (l *backlog) wait(ctx context.Context) (err error) {
	began := time.Now()
	var endpoint *ledger.WebhookEndpoint
	l.perWaiting, err = l.waiting.grow(ctx, l.events, func() error {
		quiet, tried := 0, int64(0)
		err := await(ctx, "all events wait", 40*time.Second, 250*time.Millisecond, func() (is bool, err error) {
			var unqueued int64
			if endpoint, unqueued, err = l.waiting.queue(ctx, l.dead); err != nil {
				return false, err
			}
			if quiet++; unqueued > 0 || endpoint.Retried-tried > int64(l.events)/1000 {
				quiet = 0
			}
			tried = endpoint.Retried
			return quiet >= 4, nil
		})
		if errors.Is(err, errTimeout) {
			return nil // the comparison shows whether the worker is busy with them
		}
		return err
	})
	if err != nil {
		return err
	}
	l.progress("backlog: %s events wait after %.1f s, %d aged ones are given up", harness.Grouped(endpoint.Backlog),
		time.Since(began).Seconds(), endpoint.Undelivered)
	if waiting := endpoint.Backlog + endpoint.Undelivered; waiting < int64(l.events) {
		return fmt.Errorf("only %d of %d events wait", waiting, l.events)
	}
	return nil
}

// queue is what the ledger says of an endpoint, and how many events it has not
// queued yet.
func (e *webhookEnv) queue(ctx context.Context, v *vendor) (endpoint *ledger.WebhookEndpoint, unqueued int64, err error) {
	stats, err := e.ledger.Monitor.Stats(ctx)
	if err != nil {
		return nil, 0, err
	}
	endpoint, err = e.ledger.Webhooks.Endpoint(ctx, v.account)
	return endpoint, stats.Unread[ledger.RoleWebhook] + stats.Pending[ledger.RoleWebhook], err
}

// awaitEmpty gives the worker a moment to record what has just been received, and
// to give up what cannot be sent any more.
func (e *webhookEnv) awaitEmpty(ctx context.Context, v *vendor) (endpoint *ledger.WebhookEndpoint, err error) {
	err = await(ctx, "an empty queue", 10*time.Second, 20*time.Millisecond, func() (is bool, err error) {
		var unqueued int64
		endpoint, unqueued, err = e.queue(ctx, v)
		return err == nil && endpoint.Backlog+unqueued == 0, err
	})
	if errors.Is(err, errTimeout) {
		err = nil // the figures will say what is left
	}
	return endpoint, err
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
		return await(ctx, "the backlog drains", drainTimeout, 100*time.Millisecond, func() (bool, error) {
			return l.dead.sum().Received >= wanted, e.worker.Check()
		})
	})
	if err != nil && !errors.Is(err, errTimeout) {
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
	one := func(v float64) []float64 { return []float64{v} }
	none := func() *harness.Limit { return harness.Always(harness.AtMost(0)) }
	return append([]harness.Figure{
		{Key: "backlog.noticed", Title: "recovery: first event received after", Unit: "s", Rounds: one(after(1))},
		{Key: "backlog.half", Title: "  half of the backlog received after", Unit: "s", Rounds: one(after(wanted / 2))},
		{Key: "backlog.drained", Title: "  all of it after", Unit: "s", Rounds: one(after(wanted)), Limit: harness.Always(harness.AtMost(drainTimeout.Seconds()))},
		{Key: "backlog.drain_rate", Title: "  per second, from the first to the last", Unit: "/s", Rounds: one(float64(len(came)) / (after(wanted) - after(1)))},
		{Key: "backlog.drain_p99", Title: "  healthy endpoints' p99 meanwhile", Unit: "ms", Rounds: one(beside.p99())},
		{Key: "backlog.left", Title: "  left in the queue", Rounds: one(float64(endpoint.Backlog)), Limit: none()},
		{Key: "backlog.late", Title: fmt.Sprintf("  sent past the deadline, of %d events that had reached it", l.aged), Rounds: one(float64(all.Late)), Limit: none()},
		{Key: "backlog.unrecorded", Title: "  of those, not recorded as undelivered", Rounds: one(float64(int64(l.dead.sum().Expired) - endpoint.Undelivered)), Limit: none()},
	}, losses("backlog", all)...), nil
}
