package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/harness"
)

// vendorCount is how many endpoints the even traffic goes to, four in each
// partition.
const vendorCount = 64

// measureThroughput fills the streams while no worker runs, then starts one and
// watches it work them off. The first tenth of the receipts, while connections
// are opened, is not counted; the last one is.
func (b *bench) measureThroughput(ctx context.Context) (sheet []harness.Figure, err error) {
	events := 60_000
	if b.quick {
		events = 5_000
	}
	var edits []edit
	if b.profile != "" {
		edits = []edit{{"pprof", "true"}}
	}
	r, err := b.newRig(ctx, "throughput", edits...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if _, err := r.addVendors(ctx, vendorCount, answers); err != nil {
		return nil, err
	}
	rounds, err := calmest(b, func(round int) (saturation, error) {
		s, err := b.saturate(ctx, r, events, b.profile != "" && round == b.rounds-1)
		b.progress("throughput %d: %s", round+1, &s)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	column := func(of func(*saturation) float64) (sheet []float64) {
		for i := range rounds {
			sheet = append(sheet, of(&rounds[i]))
		}
		return sheet
	}
	sum := sumOf(r.vendors)
	return []harness.Figure{
		{Key: "throughput", Title: "webhooks per second at saturation", Unit: "/s", Rounds: column((*saturation).rate), Limit: harness.AtLeast(5000)},
		{Key: "throughput.worker_us", Title: "  CPU of the worker per webhook", Unit: "us",
			Rounds: column(func(s *saturation) float64 { return s.each(s.used.worker) })},
		{Key: "throughput.receiver_us", Title: "  CPU of the endpoints per webhook", Unit: "us",
			Rounds: column(func(s *saturation) float64 { return s.each(s.used.receiver) })},
		{Key: "throughput.redis_us", Title: "  CPU of Redis per webhook", Unit: "us",
			Rounds: column(func(s *saturation) float64 { return s.each(s.used.redis) })},
		{Key: "throughput.busy", Title: "  processors busy", Unit: "cores",
			Rounds: column(func(s *saturation) float64 { return s.used.busy / s.seconds })},
		{Key: "throughput.others", Title: "  of these, other programs", Unit: "cores", Rounds: column((*saturation).others)},
		lost("throughput", sum), duplicates("throughput", sum), invalid("throughput", sum),
	}, nil
}

// saturation is one round.
type saturation struct {
	webhooks, seconds float64
	used              usage
}

func (s *saturation) rate() float64   { return s.webhooks / s.seconds }
func (s *saturation) others() float64 { return s.used.others() / s.seconds }

// A round is calm while others take less than a quarter of a processor.
func (s *saturation) disturbance() float64 { return s.others() }
func (s *saturation) calm() bool           { return s.others() <= 0.25 }

// each is microseconds per webhook.
func (s *saturation) each(seconds float64) float64 { return seconds / s.webhooks * 1e6 }

func (s *saturation) String() string {
	return fmt.Sprintf("%s webhooks/s; CPU of each: worker %s us, endpoint %s us, Redis %s us; %s cores busy, others took %s", harness.Number(s.rate()),
		harness.Number(s.each(s.used.worker)), harness.Number(s.each(s.used.receiver)), harness.Number(s.each(s.used.redis)),
		harness.Number(s.used.busy/s.seconds), harness.Number(s.others()))
}

// saturate is one round: fill, start, watch, stop.
func (b *bench) saturate(ctx context.Context, r *rig, events int, profile bool) (s saturation, err error) {
	at := time.Now()
	orders, err := r.createOrders(ctx, r.vendors, events/eventsPerOrder, at)
	if err != nil {
		return s, err
	}
	before := r.counter.received.Load()
	if err := r.commitAll(ctx, orders, delivery.Delivered, at); err != nil {
		return s, err
	}
	if err := settleRedis(ctx, r.redis.Addr); err != nil {
		return s, err
	}
	if err := r.worker.Start(ctx); err != nil {
		return s, err
	}
	warm := int64(events / 10)
	if err := r.awaitReceived(ctx, before+warm, time.Minute); err != nil {
		return s, err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- b.profileWorker(ctx, r.worker, profile) }()
	began := time.Now()
	used, err := takeUsage(r.worker.PID(), r.redis.PID())
	if err != nil {
		return s, err
	}
	if err := r.awaitReceived(ctx, before+int64(events), time.Minute); err != nil {
		return s, err
	}
	s.seconds, s.webhooks = time.Since(began).Seconds(), float64(int64(events)-warm)
	after, err := takeUsage(r.worker.PID(), r.redis.PID())
	if err != nil {
		return s, err
	}
	s.used = after.since(used)
	return s, errors.Join(<-profiled, r.worker.Stop())
}

// awaitReceived waits until so many distinct events have been received in all.
func (r *rig) awaitReceived(ctx context.Context, n int64, patience time.Duration) error {
	reached := r.counter.await(n)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-reached:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("%d of %d events received after %s", r.counter.received.Load(), n, patience)
		case <-look.C:
			if err := r.worker.Check(); err != nil {
				return err
			}
		}
	}
}
