// This file compares webhooks beside something with the same without it, in turns, and leaves out what other programs
// on the machine disturbed.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/loadtest/harness"
)

// Other programs on the machine delay everything at once. A tenth of a second of that is more than the hundredth part of a
// round, and so decides its 99th percentile. So events that were issued while other programs were busy are left out, on
// both sides of a comparison. The choice depends on the processor time of the other programs and on when the event was
// issued, never on how long the event took.
const (
	noiseSpan = 100 * time.Millisecond // how long each measurement of other programs takes
	noisy     = 0.3                    // processors that other programs may use in a span

	// An event is left out when a noisy span ends less than noiseAfter before it
	// was issued, or begins less than noiseBefore after.
	noiseAfter  = 200 * time.Millisecond
	noiseBefore = 100 * time.Millisecond

	// mostLeftOut is the share of its events that a calm turn may lose.
	mostLeftOut = 0.5
)

// A noise holds the ends of the spans in which other programs were busy.
type noise []time.Time

// disturbs reports whether other programs were busy around the time at which an event was issued.
func (n noise) disturbs(issued time.Time) bool {
	return slices.ContainsFunc(n, func(end time.Time) bool {
		from := end.Add(-noiseSpan - noiseBefore)
		to := end.Add(noiseAfter)
		return issued.After(from) && issued.Before(to)
	})
}

// watchOthers measures, until ctx ends, how much processor time all but the given processes use. It returns the spans in
// which that was too much. The end of ctx is no error.
func watchOthers(ctx context.Context, measured ...harness.Process) (busy noise, err error) {
	for ctx.Err() == nil {
		span, err := harness.During(func() error { _ = harness.Sleep(ctx, noiseSpan); return nil }, measured...)
		if err != nil {
			return nil, err
		}
		if ctx.Err() == nil && span.Others() > noisy { // a span that is cut short says nothing
			busy = append(busy, time.Now())
		}
	}

	return busy, nil
}

// A turn is one half of a comparison, measured once.
type turn struct {
	waits   []float64 // milliseconds that the events took from the report to the receipt
	leftOut float64   // the share of the events that was left out, 0 to 1
}

// newTurn returns the turn of the received events without the disturbed ones. When less than a tenth would remain, it
// keeps all events and says that all were disturbed. It fails if nothing was received.
func newTurn(receipts []event, n noise) (t turn, err error) {
	var all []float64
	for _, e := range receipts {
		took := milliseconds(e.receipts[0].Sub(e.issued))
		all = append(all, took)
		if !n.disturbs(e.issued) {
			t.waits = append(t.waits, took)
		}
	}

	if len(all) == 0 {
		return t, errors.New("nothing was received")
	}

	t.leftOut = 1 - float64(len(t.waits))/float64(len(all))
	if len(t.waits) < len(all)/10 {
		t.waits, t.leftOut = all, 1
	}

	return t, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (t turn) p50() float64 { return harness.Quantile(t.waits, 0.5) }
func (t turn) p99() float64 { return harness.Quantile(t.waits, 0.99) }

// String returns the turn's percentiles and the share of its events that was left out.
func (t turn) String() string {
	return fmt.Sprintf("p50 %s, p99 %s ms (others were busy for %.0f %%)", number(t.p50()), number(t.p99()), 100*t.leftOut)
}

// A round is the result of measuring a comparison once.
type round struct {
	figures map[string]float64 // by key
	bases   map[string]float64 // of those figures that have a baseline

	disturbed float64 // by other programs
	turns     [2]turn // of a comparison: with, and without
}

// calmest measures rounds until enough of them were calm, which is disturbed by at most as much as said, or until one
// spare round is used up. It notes and returns the calm ones; if there are none, as many as were asked for, the least
// disturbed.
func (b *bench) calmest(calm float64, measure func(n int) round) []round {
	most := b.rounds + short(b, 1, 0)
	var all []round
	calmOnes := 0
	for calmOnes < b.rounds && len(all) < most {
		r := measure(len(all))
		all = append(all, r)
		if r.disturbed <= calm {
			calmOnes++
		}
	}

	slices.SortStableFunc(all, func(p, q round) int { return cmp.Compare(p.disturbed, q.disturbed) })
	chosen := all[:b.rounds]
	if calmOnes > 0 {
		chosen = all[:calmOnes]
	}

	for _, r := range chosen {
		for key, value := range r.figures {
			base, isCompared := r.bases[key]
			if isCompared {
				b.addBeside(key, value, base)
			} else {
				b.add(key, value)
			}
		}
	}

	return chosen
}

// compare measures both halves of a comparison one after the other, so that a slow minute of the machine falls on both. The
// half that comes first changes with every round.
func (b *bench) compare(measurement string, measure func(n int, with bool) turn) {
	rounds := b.calmest(mostLeftOut, func(n int) round {
		var with, without turn
		if n%2 == 0 {
			with = measure(n, true)
		}

		without = measure(n, false)
		if n%2 == 1 {
			with = measure(n, true)
		}

		b.progress("%s %d: with %s; without %s", measurement, n+1, with, without)

		disturbed := max(with.leftOut, without.leftOut)
		return round{
			figures: map[string]float64{
				measurement + ".p99":      with.p99(),
				measurement + ".p50":      with.p50(),
				measurement + ".left_out": 100 * disturbed,
			},
			bases: map[string]float64{
				measurement + ".p99": without.p99(),
				measurement + ".p50": without.p50(),
			},
			disturbed: disturbed,
			turns:     [2]turn{with, without},
		}
	})

	var with, without turn // of all rounds
	for _, r := range rounds {
		with.waits = append(with.waits, r.turns[0].waits...)
		without.waits = append(without.waits, r.turns[1].waits...)
	}

	b.addBeside(measurement+".p99_pooled", with.p99(), without.p99())
}
