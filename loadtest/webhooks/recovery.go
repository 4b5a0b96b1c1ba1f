package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/loadtest/harness"
)

// drainPatience bounds how long a backlog may take from the moment in which its
// endpoint listens again: until the worker notices, and until it is drained.
const drainPatience = 3 * time.Minute

// heal lets the dead endpoint listen and watches its backlog drain, with the
// healthy traffic beside it.
func (l *backlog) heal(ctx context.Context) ([]harness.Figure, error) {
	r := l.waiting
	// The aged events' deadline has passed before anything can be sent.
	if err := sleep(ctx, time.Until(l.deadline.Add(time.Second))); err != nil {
		return nil, err
	}
	if err := r.worker.Start(ctx); err != nil {
		return nil, err
	}
	healthy := l.healthy[r]
	source, err := r.newSource(ctx, healthy, int(drainPatience.Seconds()*steadyRate))
	if err != nil {
		return nil, err
	}
	if err := l.dead.bind(); err != nil {
		return nil, err
	}
	l.dead.accept()
	began := time.Now()
	stop, flowed := make(chan struct{}), make(chan error, 1)
	go func() { flowed <- r.evenly(source, steadyRate).run(ctx, drainPatience, stop) }()
	curve, err := l.watch(ctx, began)
	close(stop)
	if err = errors.Join(err, <-flowed); err != nil {
		return nil, err
	}
	if err := r.awaitAll(ctx, healthy, patience); err != nil {
		return nil, err
	}
	t, err := newTurn(waitsOf(healthy, began, time.Now()), nil)
	if err != nil {
		return nil, err
	}
	return l.drained(ctx, curve, harness.Quantile(t.waits, 0.99))
}

// point is how many events had been received at a time after the recovery.
type point struct {
	seconds  float64
	received int
}

// watch looks at the tally until the backlog has come, or drainPatience is over.
func (l *backlog) watch(ctx context.Context, began time.Time) (curve []point, err error) {
	const look = 100 * time.Millisecond
	for {
		c := l.dead.sum()
		at := time.Since(began)
		curve = append(curve, point{at.Seconds(), c.Received})
		if c.Received >= l.events-l.aged || at > drainPatience {
			return curve, nil
		}
		if err := l.waiting.worker.Check(); err != nil {
			return nil, err
		}
		if err := sleep(ctx, look); err != nil {
			return nil, err
		}
	}
}

// after is when so many events had been received; the end if they never were.
func after(curve []point, received int) float64 {
	for _, p := range curve {
		if p.received >= received {
			return p.seconds
		}
	}
	return curve[len(curve)-1].seconds
}

// rates writes the curve as events per second over eight equal spans of the
// time from the first receipt to the last.
func rates(curve []point) string {
	first, last := after(curve, 1), curve[len(curve)-1]
	var spans []string
	begin := point{seconds: first}
	for i := 1; i <= 8; i++ {
		until := first + (last.seconds-first)*float64(i)/8
		end := begin
		for _, p := range curve {
			if p.seconds <= until {
				end = p
			}
		}
		if end.seconds > begin.seconds {
			spans = append(spans, fmt.Sprintf("%.1f s: %s/s", end.seconds, harness.Number(float64(end.received-begin.received)/(end.seconds-begin.seconds))))
			begin = end
		}
	}
	return strings.Join(spans, ", ")
}

// drained is what the recovery comes to.
func (l *backlog) drained(ctx context.Context, curve []point, p99 float64) ([]harness.Figure, error) {
	l.dead.expire(time.Now())
	l.lively.expire(time.Now())
	sum := l.dead.sum()
	l.progress("backlog: drained; rates after the recovery: %s", rates(curve))
	endpoint, err := l.waiting.awaitEmpty(ctx, l.dead)
	if err != nil {
		return nil, err
	}
	end := curve[len(curve)-1].seconds
	all := sumOf(l.waiting.vendors)
	all.add(sumOf(l.settled.vendors))
	one := func(v float64) []float64 { return []float64{v} }
	return []harness.Figure{
		{Key: "backlog.noticed", Title: "recovery: first event received after", Unit: "s", Rounds: one(after(curve, 1))},
		{Key: "backlog.half", Title: "  half of the backlog received after", Unit: "s", Rounds: one(after(curve, (l.events-l.aged)/2))},
		{Key: "backlog.drained", Title: "  all of it after", Unit: "s", Rounds: one(end), Limit: harness.Always(harness.AtMost(drainPatience.Seconds()))},
		{Key: "backlog.drain_rate", Title: "  per second, from the first to the last", Unit: "/s", Rounds: one(float64(sum.Received) / (end - after(curve, 1)))},
		{Key: "backlog.drain_p99", Title: "  healthy endpoints' p99 meanwhile", Unit: "ms", Rounds: one(p99)},
		{Key: "backlog.left", Title: "  left in the queue", Rounds: one(float64(endpoint.Backlog)), Limit: harness.Always(harness.AtMost(0))},
		{Key: "backlog.late", Title: fmt.Sprintf("  sent past the deadline, of %d events that had reached it", l.aged), Rounds: one(float64(all.Late)), Limit: harness.Always(harness.AtMost(0))},
		{Key: "backlog.unrecorded", Title: "  of those, not recorded as undelivered", Rounds: one(float64(int64(sum.Expired) - endpoint.Undelivered)), Limit: harness.Always(harness.AtMost(0))},
		lost("backlog", all), duplicates("backlog", all), invalid("backlog", all),
	}, nil
}

// awaitEmpty gives the worker a moment to record what has just been received,
// and to give up what cannot be sent any more, and answers what the ledger says
// of the endpoint.
func (r *rig) awaitEmpty(ctx context.Context, v *vendor) (*ledger.WebhookEndpoint, error) {
	over := time.Now().Add(10 * time.Second)
	for {
		stats, err := r.ledger.Monitor.Stats(ctx)
		if err != nil {
			return nil, err
		}
		e, err := r.ledger.Webhooks.Endpoint(ctx, v.account)
		if err != nil {
			return nil, err
		}
		if e.Backlog+stats.Unread[ledger.RoleWebhook]+stats.Pending[ledger.RoleWebhook] == 0 || time.Now().After(over) {
			return e, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
