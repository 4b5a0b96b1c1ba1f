package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"vendorapi/loadtest/harness"
)

const (
	killRate = 500 // events per second
	kills    = 20
	// The worker lives this long between its start and its next kill.
	shortestLife = 500 * time.Millisecond
	longestLife  = 3 * time.Second
)

// measureKills ends the worker as a crash would, again and again while traffic
// flows, and starts it again under the same name. What it had leased and not
// recorded is sent again once the lease has run out; that is what duplicates
// come from, and what the end waits for.
func (b *bench) measureKills(ctx context.Context) (sheet []harness.Figure, err error) {
	times, edits, lease := kills, []edit(nil), 30*time.Second
	if b.quick {
		// Shorter leases, or half a minute would pass before the last event.
		times, lease = 3, 4*time.Second
		edits = []edit{{"timeout", "2s"}, {"lease", "4s"}}
	}
	r, err := b.newRig(ctx, "kill", edits...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	vendors, err := r.addVendors(ctx, vendorCount, answers)
	if err != nil {
		return nil, err
	}
	most := time.Duration(times+1) * (longestLife + time.Second)
	source, err := r.newSource(ctx, vendors, int(most.Seconds()*killRate))
	if err != nil {
		return nil, err
	}
	if err := settleRedis(ctx, r.redis.Addr); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.killBesideTraffic(ctx, r, r.evenly(source, killRate), times, most); err != nil {
		return nil, err
	}
	ended := time.Now()
	if err := r.awaitAll(ctx, vendors, lease+patience); err != nil {
		return nil, err
	}
	settled := time.Since(ended)
	// Duplicates of events that a killed worker had sent come when its leases
	// have run out.
	if err := sleep(ctx, time.Until(ended.Add(lease+3*time.Second))); err != nil {
		return nil, err
	}
	sum := sumOf(vendors)
	b.progress("kill: %d kills in %.0f s, %d events, all received %.1f s after the last, %d duplicates", times, ended.Sub(began).Seconds(),
		sum.Expected, settled.Seconds(), sum.Duplicates)
	again := duplicates("kill", sum)
	if b.quick {
		// Few events for each kill, and on a busy machine many under way at each.
		again.Limit = harness.Always(harness.AtMost(20))
	}
	head := harness.Figure{Key: "kill.kills", Title: "kill -9 of the worker at 500 events/s", Unit: "times", Rounds: []float64{float64(times)}}
	return []harness.Figure{head, lost("kill", sum), again, invalid("kill", sum)}, nil
}

// killBesideTraffic returns when the last kill's worker has started again and
// the traffic has ended.
func (b *bench) killBesideTraffic(ctx context.Context, r *rig, t *traffic, times int, most time.Duration) (err error) {
	if err := r.worker.Start(ctx); err != nil {
		return err
	}
	stop, flowed := make(chan struct{}), make(chan error, 1)
	go func() { flowed <- t.run(ctx, most, stop) }()
	defer func() {
		close(stop)
		err = errors.Join(err, <-flowed)
	}()
	random := rand.New(rand.NewPCG(b.seed, 1))
	for range times {
		if err := sleep(ctx, shortestLife+time.Duration(random.Int64N(int64(longestLife-shortestLife)))); err != nil {
			return err
		}
		if err := r.worker.Check(); err != nil {
			return err
		}
		r.worker.Kill()
		if err := r.worker.Start(ctx); err != nil {
			return err
		}
	}
	return sleep(ctx, shortestLife)
}

// sleep returns early, with the reason, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
