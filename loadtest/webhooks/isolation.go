package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vendorapi/loadtest/harness"
)

// troubled is the isolation case: of ten events two go to an endpoint that takes
// 4 s, one to an endpoint that refuses connections, and one to an endpoint that
// takes them and never answers.
var troubled = [10]manner{answers, slow, answers, refuses, answers, answers, slow, answers, silent, answers}

// measureIsolation compares healthy endpoints beside bad ones with the same
// endpoints and the same traffic to them alone, each turn in a Redis of its own,
// so that no round inherits what another left waiting.
func (b *bench) measureIsolation(ctx context.Context) ([]harness.Figure, error) {
	var sum counts
	pairs, err := b.takeTurns("isolation", func(round int, bad bool) (turn, error) {
		t, received, err := b.isolate(ctx, fmt.Sprintf("isolation-%d-%v", round, bad), bad)
		sum.add(received)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	return append(compare("isolation", "healthy beside slow, refusing and silent endpoints", pairs),
		lost("isolation", sum), duplicates("isolation", sum), invalid("isolation", sum)), nil
}

// isolate is one turn: the waits of the healthy endpoints, and what they come
// to.
func (b *bench) isolate(ctx context.Context, name string, bad bool) (t turn, sum counts, err error) {
	r, err := b.newRig(ctx, name)
	if err != nil {
		return t, sum, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	healthy, err := r.addVendors(ctx, vendorCount, answers)
	if err != nil {
		return t, sum, err
	}
	length := b.lasting(16 * time.Second)
	sources := make(map[manner]*source)
	for _, m := range []manner{slow, refuses, silent} {
		if !bad {
			break
		}
		vendors, err := r.addVendors(ctx, 1, m)
		if err != nil {
			return t, sum, err
		}
		if sources[m], err = r.newSource(ctx, vendors, int((b.warmUp()+length).Seconds()*steadyRate/4)); err != nil {
			return t, sum, err
		}
	}
	if err := r.worker.Start(ctx); err != nil {
		return t, sum, err
	}
	t, err = b.measureWaits(ctx, r, healthy, length, func(s *source) *traffic {
		sources[answers] = s
		beside := &traffic{rig: r, rate: steadyRate}
		for _, m := range troubled {
			beside.pattern = append(beside.pattern, sources[m]) // nil without the bad ones
		}
		return beside
	})
	return t, sumOf(healthy), err
}
