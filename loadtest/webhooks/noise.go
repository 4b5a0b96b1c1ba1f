package main

import (
	"context"
	"sync"
	"time"
)

// Other programs on the machine delay everything at once, and a tenth of a
// second of that is more than the hundredth part of a round that its 99th
// percentile stands for. So events that were issued while others were busy are
// left out, on both sides of a comparison, by what the others took and when the
// event was issued; never by how long it took.
const (
	// noiseSpan is how often it is looked what others take.
	noiseSpan = 100 * time.Millisecond
	// noisy is how much of the machine, in processors, others may take in a
	// span.
	noisy = 0.3
	// An event is left out when a noisy span ends less than noiseAfter before it
	// was issued, or begins less than noiseBefore after.
	noiseAfter  = 200 * time.Millisecond
	noiseBefore = 100 * time.Millisecond
)

// span is a time during which others were busy.
type span struct{ from, to moment }

// noise is when others were busy.
type noise []span

// around reports whether others were busy about a moment.
func (n noise) around(at moment) bool {
	for _, s := range n {
		if at >= s.from-noiseBefore && at <= s.to+noiseAfter {
			return true
		}
	}
	return false
}

// listen watches the others until stop is called, which answers what was heard.
func (r *rig) listen(ctx context.Context) (stop func() (noise, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		heard    noise
		failure  error
		watching sync.WaitGroup
	)
	watching.Go(func() {
		tick := time.NewTicker(noiseSpan)
		defer tick.Stop()
		at := time.Now()
		before, err := takeUsage(r.worker.PID(), r.redis.PID())
		for failure = err; failure == nil; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			var used usage
			if used, failure = takeUsage(r.worker.PID(), r.redis.PID()); failure == nil {
				if used.since(before).others() > noisy*now.Sub(at).Seconds() {
					heard = append(heard, span{momentOf(at), momentOf(now)})
				}
				at, before = now, used
			}
		}
	})
	return func() (noise, error) {
		cancel()
		watching.Wait()
		return heard, failure
	}
}
