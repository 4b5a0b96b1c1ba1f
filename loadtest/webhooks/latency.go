package main

import (
	"context"
	"errors"
	"time"

	"vendorapi/loadtest/harness"
)

const (
	// steadyRate is the traffic beside which latency is measured, in events per
	// second.
	steadyRate = 200
	// warmUp is how long traffic runs before it is measured: connections are
	// opened and scripts loaded.
	warmUp = 2 * time.Second
	// patience is how long the last events may take when nothing is wrong.
	patience = 30 * time.Second
)

// lasting is d in a whole run and two seconds in a quick one.
func (b *bench) lasting(d time.Duration) time.Duration {
	if b.quick {
		return min(d, 2*time.Second)
	}
	return d
}

func (b *bench) warmUp() time.Duration {
	if b.quick {
		return warmUp / 4
	}
	return warmUp
}

// measureLatency is what an event takes from the commit that makes it to its
// receipt, at a rate far below saturation.
func (b *bench) measureLatency(ctx context.Context) (sheet []harness.Figure, err error) {
	r, err := b.newRig(ctx, "latency")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	vendors, err := r.addVendors(ctx, vendorCount, answers)
	if err != nil {
		return nil, err
	}
	if err := r.worker.Start(ctx); err != nil {
		return nil, err
	}
	turns, err := calmest(b, func(round int) (turn, error) {
		t, err := b.measureWaits(ctx, r, vendors, b.lasting(10*time.Second), func(s *source) *traffic { return r.evenly(s, steadyRate) })
		b.progress("latency %d: %s", round+1, &t)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	var p50, p99, leftOut []float64
	for i := range turns {
		p50, p99 = append(p50, harness.Quantile(turns[i].waits, 0.50)), append(p99, harness.Quantile(turns[i].waits, 0.99))
		leftOut = append(leftOut, 100*turns[i].leftOut)
	}
	sum := sumOf(vendors)
	return []harness.Figure{
		{Key: "latency.p50", Title: "commit to receipt at 200/s, p50", Unit: "ms", Rounds: p50, Limit: harness.AtMost(10)},
		{Key: "latency.p99", Title: "  p99", Unit: "ms", Rounds: p99},
		{Key: "latency.left_out", Title: "  events left out because others were busy", Unit: "%", Rounds: leftOut},
		lost("latency", sum), duplicates("latency", sum), invalid("latency", sum),
	}, nil
}

// measureWaits runs traffic whose events for the vendors come from one source,
// and answers how long each took after the warm-up. All have been received, or
// are lost, when it returns.
func (b *bench) measureWaits(ctx context.Context, r *rig, vendors []*vendor, length time.Duration, beside func(*source) *traffic) (t turn, err error) {
	warm := b.warmUp()
	source, err := r.newSource(ctx, vendors, int((warm+length).Seconds()*steadyRate))
	if err != nil {
		return t, err
	}
	if err := settleRedis(ctx, r.redis.Addr); err != nil {
		return t, err
	}
	began := time.Now()
	heard := r.listen(ctx)
	err = beside(source).run(ctx, warm+length, nil)
	noise, failure := heard()
	if err = errors.Join(err, failure); err != nil {
		return t, err
	}
	if err := r.awaitAll(ctx, vendors, patience); err != nil {
		return t, err
	}
	return newTurn(waitsOf(vendors, began.Add(warm), time.Now()), noise)
}
