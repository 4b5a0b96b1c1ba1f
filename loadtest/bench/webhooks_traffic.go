package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
)

// eventsPerOrder is one for every status after Searching.
const eventsPerOrder = 5

// source is where the events for some vendors come from: their orders, moved
// along from Assigned to Delivered.
type source struct {
	orders []*order
	next   int
}

// abreast is how many orders of a source are on their way at once, one after the
// other by one status: at 200 events a second an order moves about every third
// of a second.
const abreast = 64

// newSource creates the orders for so many events, in turn for the vendors.
func (e *webhookEnv) newSource(ctx context.Context, vendors []*vendor, events float64) (*source, error) {
	blocks := int(events)/(abreast*eventsPerOrder) + 1
	orders, err := e.createOrders(ctx, vendors, blocks*abreast, time.Now(), nil)
	return &source{orders: orders}, err
}

// step is the next order to move by one status.
func (s *source) step() *order {
	block, within := s.next/(abreast*eventsPerOrder), s.next%(abreast*eventsPerOrder)
	s.next++
	return s.orders[block*abreast+within%abreast]
}

// evenly is the pattern of traffic from one source.
func evenly(s *source) []*source { return []*source{s} }

// flow commits events in an open loop: slot after slot at a fixed rate, whatever
// the worker makes of it. The pattern of sources is repeated; a nil slot passes
// without an event. It ends after its length or with ctx, and returns when the
// last commit is done.
func (e *webhookEnv) flow(ctx context.Context, pattern []*source, rate int, length time.Duration) error {
	group, working := errgroup.WithContext(context.WithoutCancel(ctx))
	began := time.Now()
	for i := range int(length.Seconds() * float64(rate)) {
		select {
		case <-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
		case <-working.Done():
		case <-ctx.Done():
		}
		if working.Err() != nil || ctx.Err() != nil {
			break
		}
		source := pattern[i%len(pattern)]
		if source == nil {
			continue
		}
		o := source.step()
		group.Go(func() error {
			o.moving.Lock() // until its last commit is done
			defer o.moving.Unlock()
			return e.advance(working, o.state.Status+1, time.Now(), o)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("traffic: %w", err)
	}
	return nil
}

// beside does something while traffic flows, and ends the traffic with it.
func (e *webhookEnv) beside(ctx context.Context, pattern []*source, rate int, longest time.Duration, do func() error) error {
	flowing, stop := context.WithCancel(ctx)
	defer stop()
	flowed := make(chan error, 1)
	go func() { flowed <- e.flow(flowing, pattern, rate, longest) }()
	err := do()
	stop()
	return errors.Join(err, <-flowed)
}

// warmUp is how long traffic runs before it is measured: connections are opened
// and scripts loaded.
func (b *bench) warmUp() time.Duration { return b.lasting(2*time.Second, 500*time.Millisecond) }

// measureWaits runs traffic whose events for the healthy vendors come from one
// source, and returns how long each took after the warm-up. All have been
// received, or are lost, when it returns.
func (e *webhookEnv) measureWaits(ctx context.Context, length time.Duration, pattern func(*source) []*source) (t turn, err error) {
	length += e.bench.warmUp()
	source, err := e.newSource(ctx, e.healthy, length.Seconds()*steadyRate)
	if err != nil {
		return t, err
	}
	if err := e.settleRedis(ctx); err != nil {
		return t, err
	}
	began := time.Now()
	stop := e.watchOthers(ctx)
	err = e.flow(ctx, pattern(source), steadyRate, length)
	busy, failure := stop()
	if err = errors.Join(err, failure, context.Cause(ctx)); err != nil {
		return t, err
	}
	if err := e.awaitAll(ctx, receiveTimeout); err != nil {
		return t, err
	}
	return newTurn(receiptsOf(e.healthy, began.Add(e.bench.warmUp())), busy)
}

// Other programs on the machine delay everything at once, and a tenth of a second
// of that is more than the hundredth part of a round that its 99th percentile
// stands for. So events that were issued while others were busy are left out, on
// both sides of a comparison, by what the others took and when the event was
// issued; never by how long it took.
const (
	noiseSpan = 100 * time.Millisecond // how often the others are measured
	noisy     = 0.3                    // processors that they may take in a span
	// An event is left out when a noisy span ends less than noiseAfter before it
	// was issued, or begins less than noiseBefore after.
	noiseAfter  = 200 * time.Millisecond
	noiseBefore = 100 * time.Millisecond
	// mostLeftOut is the share of its events that a calm turn may lose.
	mostLeftOut  = 0.5
	leftOutTitle = "  events left out because others were busy"
)

// noise is when others were busy: the ends of the noisy spans.
type noise []time.Time

func (n noise) around(at time.Time) bool {
	return slices.ContainsFunc(n, func(end time.Time) bool {
		return at.After(end.Add(-noiseSpan-noiseBefore)) && at.Before(end.Add(noiseAfter))
	})
}

// watchOthers measures the others until stop is called, which returns when they
// were busy.
func (e *webhookEnv) watchOthers(ctx context.Context) (stop func() (noise, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		busy     noise
		failure  error
		watching sync.WaitGroup
	)
	watching.Go(func() {
		before, err := harness.Measure(e.processes()...)
		for failure = err; failure == nil && sleep(ctx, noiseSpan) == nil; {
			var now harness.Usage
			if now, failure = harness.Measure(e.processes()...); now.Since(before).Others() > noisy {
				busy = append(busy, time.Now())
			}
			before = now
		}
	})
	return func() (noise, error) {
		cancel()
		watching.Wait()
		return busy, failure
	}
}

// turn is one half of a comparison, measured once: what the events took from
// commit to receipt, in milliseconds, and the share that was left out.
type turn struct {
	waits   []float64
	leftOut float64
}

// newTurn leaves out what others disturbed; all of it counts when almost nothing
// else would be left.
func newTurn(receipts []event, n noise) (t turn, err error) {
	var all []float64
	for _, e := range receipts {
		took := milliseconds(e.received.Sub(e.issued))
		all = append(all, took)
		if !n.around(e.issued) {
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

func (t turn) p50() float64 { return harness.Quantile(t.waits, 0.50) }
func (t turn) p99() float64 { return harness.Quantile(t.waits, 0.99) }

func (t turn) String() string {
	text := fmt.Sprintf("p50 %s ms, p99 %s ms", harness.Number(t.p50()), harness.Number(t.p99()))
	if t.leftOut > 0 {
		text += fmt.Sprintf(" (others were busy for %.0f %%)", 100*t.leftOut)
	}
	return text
}

// calmest measures rounds until enough of them were calm, which is disturbed by
// at most as much as said, or until one spare round is used up. It returns the
// calm ones; if there are none, as many as were asked for, the least disturbed.
func calmest[R any](b *bench, calm float64, measure func(round int) (r R, disturbed float64, err error)) ([]R, error) {
	type measured struct {
		round     R
		disturbed float64
	}
	most := b.rounds + 1
	if b.quick {
		most = b.rounds
	}
	var all []measured
	calmOnes := 0
	for calmOnes < b.rounds && len(all) < most {
		r, disturbed, err := measure(len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, measured{r, disturbed})
		if disturbed <= calm {
			calmOnes++
		}
	}
	slices.SortStableFunc(all, func(p, q measured) int { return cmp.Compare(p.disturbed, q.disturbed) })
	if calmOnes == 0 {
		calmOnes = b.rounds
	}
	var rounds []R
	for _, m := range all[:calmOnes] {
		rounds = append(rounds, m.round)
	}
	return rounds, nil
}

// pair is both halves of a comparison, measured one after the other.
type pair struct{ with, without turn }

func (p pair) leftOut() float64 { return max(p.with.leftOut, p.without.leftOut) }

// takeTurns measures both halves in turn, so that a slow minute of the machine
// falls on both; which is first changes with every round.
func (b *bench) takeTurns(part string, measure func(round int, with bool) (turn, error)) ([]pair, error) {
	return calmest(b, mostLeftOut, func(round int) (p pair, _ float64, err error) {
		for _, with := range []bool{round%2 == 0, round%2 == 1} {
			half := &p.without
			if with {
				half = &p.with
			}
			if *half, err = measure(round, with); err != nil {
				return p, 0, err
			}
		}
		b.progress("%s %d: with %s; without %s", part, round+1, p.with, p.without)
		return p, p.leftOut(), nil
	})
}

// compare has the figures of both halves, and judges the ratio of their p99s.
func compare(part, what string, pairs []pair) []harness.Figure {
	var with, without turn // of all rounds
	for _, p := range pairs {
		with.waits, without.waits = append(with.waits, p.with.waits...), append(without.waits, p.without.waits...)
	}
	figure := func(key, title, unit string, of func(pair) float64) harness.Figure {
		return harness.Figure{Key: part + "." + key, Title: title, Unit: unit, Rounds: column(pairs, of)}
	}
	sheet := []harness.Figure{
		figure("p99_ratio", what+": p99, times that without", "", func(p pair) float64 { return p.with.p99() / p.without.p99() }),
		{Key: part + ".p99_ratio_pooled", Title: "  the same of all rounds' events together", Rounds: []float64{with.p99() / without.p99()}},
		figure("p50", "  p50", "ms", func(p pair) float64 { return p.with.p50() }),
		figure("p50_without", "  p50 without", "ms", func(p pair) float64 { return p.without.p50() }),
		figure("p99", "  p99", "ms", func(p pair) float64 { return p.with.p99() }),
		figure("p99_without", "  p99 without", "ms", func(p pair) float64 { return p.without.p99() }),
		figure("left_out", leftOutTitle, "%", func(p pair) float64 { return 100 * p.leftOut() }),
	}
	sheet[0].Limit = harness.AtMost(1.5)
	return sheet
}
