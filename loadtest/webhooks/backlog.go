package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/loadtest/harness"
)

// agedShare is which part of the waiting events happened almost a day ago, so
// that their deadline passes while they wait: those must not be sent.
const agedShare = 100

// backlog is the case of one endpoint that is dead while 100,000 events wait
// for it. Everything is there twice, from one filling: in one ledger the
// endpoint refuses connections, in its copy the same endpoint takes everything.
// The two take turns under the same healthy traffic; while one is measured, the
// other's worker does not run.
type backlog struct {
	*bench
	events, aged int
	forgetting   time.Duration // from the beginning of the filling to the aged events' deadline
	deadline     time.Time     // of the aged events

	waiting, settled *rig
	dead, lively     *vendor // the same account in the one and the other
	healthy          map[*rig][]*vendor

	perWaiting, perRetry, perSettled float64 // bytes per event
}

func (b *bench) measureBacklog(ctx context.Context) (sheet []harness.Figure, err error) {
	l := &backlog{bench: b, events: 100_000, healthy: make(map[*rig][]*vendor)}
	forgetting := 75 * time.Second
	if b.quick {
		l.events, forgetting = 500, 4*time.Second
	}
	l.aged, l.forgetting = l.events/agedShare, forgetting
	defer func() {
		for _, r := range []*rig{l.waiting, l.settled} {
			if r != nil {
				err = errors.Join(err, r.stop())
			}
		}
	}()
	for _, step := range []func(context.Context) error{l.retry, l.fill, l.twin, l.settle, l.wait} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	pairs, err := l.compareHealthy(ctx)
	if err != nil {
		return nil, err
	}
	drain, err := l.heal(ctx)
	if err != nil {
		return nil, err
	}
	sheet = compare("backlog", fmt.Sprintf("healthy beside %s waiting events", harness.Number(float64(l.events))), pairs)
	if !b.quick {
		sheet = append(sheet,
			harness.Figure{Key: "backlog.bytes", Title: "Redis memory per waiting event beyond the event", Unit: "B", Rounds: []float64{l.perWaiting}, Limit: harness.AtMost(300)},
			harness.Figure{Key: "backlog.retry_bytes", Title: "  when it has been tried and waits for its next attempt", Unit: "B", Rounds: []float64{l.perRetry}, Limit: harness.AtMost(300)},
			harness.Figure{Key: "backlog.settled_bytes", Title: "  what a settled one leaves, for comparison", Unit: "B", Rounds: []float64{l.perSettled}})
	}
	return append(sheet, drain...), nil
}

// fill makes the events while no worker runs, one for each order: the dearest
// way to wait, because of several events of one order only the first is queued.
func (l *backlog) fill(ctx context.Context) (err error) {
	began := time.Now()
	l.deadline = began.Add(l.forgetting)
	if l.waiting, err = l.newRig(ctx, "backlog"); err != nil {
		return err
	}
	r := l.waiting
	if l.healthy[r], err = r.addVendors(ctx, vendorCount, answers); err != nil {
		return err
	}
	dead, err := r.addVendors(ctx, 1, refuses)
	if err != nil {
		return err
	}
	l.dead = dead[0]
	for _, lot := range []struct {
		events int
		at     time.Time
	}{{l.aged, l.deadline.Add(-deliveryWindow)}, {l.events - l.aged, began}} {
		orders, err := r.createOrders(ctx, dead, lot.events, lot.at)
		if err != nil {
			return err
		}
		if err := r.commitAll(ctx, orders, delivery.Assigned, lot.at); err != nil {
			return err
		}
	}
	l.progress("backlog: %s events made in %.1f s", harness.Number(float64(l.events)), time.Since(began).Seconds())
	return nil
}

// twin starts a second Redis on a copy of the first one's files, with the same
// vendors at addresses of their own.
func (l *backlog) twin(ctx context.Context) (err error) {
	r := l.waiting
	if err := settleRedis(ctx, r.redis.Addr); err != nil {
		return err
	}
	if err := r.ledger.Close(); err != nil {
		return err
	}
	r.ledger = nil
	r.redis.Stop()
	name := r.name + "-settled"
	if err := os.CopyFS(filepath.Join(l.dir, name), os.DirFS(r.dir)); err != nil {
		return fmt.Errorf("copy the ledger: %w", err)
	}
	if err := r.redis.Start(ctx); err != nil {
		return err
	}
	if err := r.openLedger(ctx, l.key); err != nil {
		return err
	}
	if l.settled, err = l.openRig(ctx, name); err != nil {
		return err
	}
	l.settled.fleet, l.settled.orders = r.fleet, r.orders
	for _, v := range r.vendors {
		twin := &vendor{endpoint: newEndpoint("127.0.0.1:0", answers, l.settled.counter), account: v.account, store: v.store}
		twin.secret, twin.tally = v.secret, v.twin()
		l.settled.vendors = append(l.settled.vendors, twin)
		if err := l.settled.openWebhook(ctx, twin); err != nil {
			return err
		}
		if v == l.dead {
			l.lively = twin
		} else {
			l.healthy[l.settled] = append(l.healthy[l.settled], twin)
		}
	}
	return nil
}

// memory is what Redis holds, in bytes: everything it has allocated but what
// its clients and its unwritten file take just now. The worker does not run
// when it is asked.
func memory(ctx context.Context, r *rig) (float64, error) {
	if err := settleRedis(ctx, r.redis.Addr); err != nil {
		return 0, err
	}
	info, err := redisInfo(ctx, r.redis.Addr)
	return info["used_memory"] - info["mem_clients_normal"] - info["mem_aof_buffer"], err
}

// grow is by how many bytes per event Redis grows while work goes on with the
// worker. What is compared is the same Redis with the same orders and the same
// streams, once before any worker has seen an event, and once after: what has
// come in between is the queueing. The endpoint's record of attempts, up to
// 256 kB once, is part of it.
func (r *rig) grow(ctx context.Context, events int, work func() error) (bytesPerEvent float64, err error) {
	before, err := memory(ctx, r)
	if err != nil {
		return 0, err
	}
	if err := r.worker.Start(ctx); err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	if err := r.worker.Stop(); err != nil {
		return 0, err
	}
	after, err := memory(ctx, r)
	return (after - before) / float64(events), err
}

// bytes ends a line of progress; a few hundred events tell nothing of one.
func (l *backlog) bytes(each float64) string {
	if l.quick {
		return ""
	}
	return fmt.Sprintf("; %s B each", harness.Number(each))
}

const (
	// queuePatience bounds how long the worker may take to queue the backlog
	// and to find out that its endpoint is dead.
	queuePatience = 40 * time.Second
	// settlePatience bounds how long it may take to deliver it to one that
	// answers.
	settlePatience = 2 * time.Minute
)

// wait lets the worker queue the events and try their endpoint, until it no
// longer does anything with them but wait.
func (l *backlog) wait(ctx context.Context) (err error) {
	began := time.Now()
	var endpoint *ledger.WebhookEndpoint
	l.perWaiting, err = l.waiting.grow(ctx, l.events, func() error {
		over := began.Add(queuePatience)
		quiet, tried := 0, int64(0)
		for quiet < 4 && time.Now().Before(over) {
			if err := sleep(ctx, 250*time.Millisecond); err != nil {
				return err
			}
			stats, err := l.waiting.ledger.Monitor.Stats(ctx)
			if err != nil {
				return err
			}
			if endpoint, err = l.waiting.ledger.Webhooks.Endpoint(ctx, l.dead.account); err != nil {
				return err
			}
			unqueued := stats.Unread[ledger.RoleWebhook] + stats.Pending[ledger.RoleWebhook]
			if quiet++; unqueued > 0 || endpoint.Retried-tried > int64(l.events)/1000 {
				quiet = 0
			}
			tried = endpoint.Retried
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.progress("backlog: %s events wait after %.1f s, %d aged ones are given up%s", harness.Number(float64(endpoint.Backlog)),
		time.Since(began).Seconds(), endpoint.Undelivered, l.bytes(l.perWaiting))
	if waiting := endpoint.Backlog + endpoint.Undelivered; waiting < int64(l.events) {
		return fmt.Errorf("only %d of %d events wait", waiting, l.events)
	}
	return nil
}

// retry measures what an event takes that has been tried and waits for its next
// attempt: more than one that has never been tried, because the ledger must
// know when that is, and how many there were. An endpoint that fails each event
// and a breaker that never opens bring all of them there.
func (l *backlog) retry(ctx context.Context) (err error) {
	if l.quick {
		return nil
	}
	const events = 9_000
	r, err := l.newRig(ctx, "backlog-retries", edit{"breaker_failures", "10000"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	vendors, err := r.addVendors(ctx, 1, fails)
	if err != nil {
		return err
	}
	now := time.Now()
	orders, err := r.createOrders(ctx, vendors, events, now)
	if err != nil {
		return err
	}
	if err := r.commitAll(ctx, orders, delivery.Assigned, now); err != nil {
		return err
	}
	l.perRetry, err = r.grow(ctx, events, func() error {
		for over := time.Now().Add(queuePatience); time.Now().Before(over); {
			e, err := r.ledger.Webhooks.Endpoint(ctx, vendors[0].account)
			if err != nil {
				return err
			}
			if e.Retried >= events {
				return nil
			}
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		return errors.New("not every event was tried in time")
	})
	l.progress("backlog: %s events have been tried and wait%s", harness.Number(events), l.bytes(l.perRetry))
	return err
}

// settle lets the copy's worker deliver all of them.
func (l *backlog) settle(ctx context.Context) (err error) {
	began := time.Now()
	l.perSettled, err = l.settled.grow(ctx, l.events, func() error {
		if err := l.settled.awaitReceived(ctx, int64(l.events-l.aged), settlePatience); err != nil {
			return err
		}
		_, err := l.settled.awaitEmpty(ctx, l.lively)
		return err
	})
	l.progress("backlog: the same events to an endpoint that answers: delivered in %.1f s%s", time.Since(began).Seconds(), l.bytes(l.perSettled))
	return err
}

// compareHealthy measures the healthy traffic with and without the backlog.
func (l *backlog) compareHealthy(ctx context.Context) ([]pair, error) {
	return l.takeTurns("backlog", func(_ int, with bool) (t turn, err error) {
		r := l.settled
		if with {
			r = l.waiting
		}
		if err := r.worker.Start(ctx); err != nil {
			return t, err
		}
		t, err = l.measureWaits(ctx, r, l.healthy[r], l.lasting(10*time.Second), func(s *source) *traffic { return r.evenly(s, steadyRate) })
		return t, errors.Join(err, r.worker.Stop())
	})
}
