// Suite receivers: what thousands of dead receivers cost the healthy vendors, and the workers.

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
)

// Suite receivers plays an evening on which the receivers of thousands of accounts are dead, and everything else goes
// on: two workers as docker-compose.yml limits them, 200 orders a second of healthy vendors through the gateway and the
// reports of their fleet, a worker that is killed, workers that are restarted one after the other.
func receiversSuite() suite {
	return suite{
		name:  "receivers",
		takes: "10 minutes",
		about: `  What thousands of dead receivers cost: 2,000 accounts with 600 waiting events each,
  and 10,000 with as many in all; half of the receivers are silent, the others refuse
  connections or answer 500. Two workers with GOMEMLIMIT=450MiB, 200 healthy orders a
  second on their whole way: how long their webhooks take against the same orders
  without the dead, the workers' memory, partitions that change hands, kill -9 of a
  worker, a rolling restart, and that nothing is lost. Then 2,000 receivers that fall
  silent at once. It needs about 3 GB for Redis and its file.`,
		timeout:    30 * time.Minute,
		fullRounds: 1,
		programs:   []string{"gateway", "worker"},
		measurements: []measurement{
			{name: "many", measure: (*bench).measureMany, figures: manyFigures()},
			{name: "more", measure: (*bench).measureMore, figures: moreFigures()},
			{name: "silence", measure: (*bench).measureSilence, figures: silenceFigures()},
		},
	}
}

// inFullRunsAtMost accepts a figure up to the bound in every round of a full run: a time, or what follows from one.
func inFullRunsAtMost(bound float64) *limit {
	return &limit{AtMost: &bound}
}

// mostResident is the resident memory in MiB that a worker may have, of the 512 MB of its container.
const mostResident = 400

// amongFigures are those of healthy vendors among dead receivers.
func amongFigures(measurement, who string) []*figure {
	const alone = "without"
	const handover = 5 // seconds; a worker that is dead is noticed after 3
	return slices.Concat([]*figure{
		{Key: measurement + ".seeded", What: who + ": their events put into Redis in", Unit: "s"},
		{Key: measurement + ".started", What: "  workers started: events flow in every partition after", Unit: "s"},
		{Key: measurement + ".p99", What: "  healthy vendors, report to webhook, p99", Unit: "ms", Baseline: alone, Limit: ratioAtMost(1.5)},
		{Key: measurement + ".p50", What: "  p50", Unit: "ms", Baseline: alone},
		{Key: measurement + ".left_out", What: "  events left out because others were busy", Unit: "%"},
		{Key: measurement + ".cpu", What: "  processors that the workers take", Unit: "cores", Baseline: alone},
		{Key: measurement + ".changed", What: "  partitions that change hands in that time", Limit: inFullRunsAtMost(0)},
		{Key: measurement + ".killed", What: "  kill -9 of a worker: longest gap of a partition", Unit: "s", Limit: inFullRunsAtMost(handover)},
		{Key: measurement + ".rolled", What: "  it starts again, then both restart: longest gap", Unit: "s", Limit: inFullRunsAtMost(handover)},
		{Key: measurement + ".memory", What: "  a worker's resident memory at most", Unit: "MiB", Baseline: alone, Limit: atMost(mostResident)},
		{Key: measurement + ".resident", What: "  in the end, the larger one", Unit: "MiB"},
		{Key: measurement + ".redis", What: "  Redis's memory", Unit: "MiB", Baseline: alone},
	}, lossFigures(measurement, ratioAtMost(0.01))) // in a short run there are few events for each kill
}

func manyFigures() []*figure {
	return amongFigures("many", "2,000 accounts with dead receivers")
}

func moreFigures() []*figure {
	return append(amongFigures("more", "10,000 accounts with dead receivers"), &figure{
		// What is waiting is in Redis: memory may not grow with the accounts.
		Key: "more.grown", What: "  a worker's resident memory at most", Unit: "MiB", Baseline: "2,000 accounts", Limit: ratioAtMost(1.25),
	})
}

func (b *bench) measureMany(ctx context.Context) {
	for range b.rounds {
		b.crowdMemory = append(b.crowdMemory, b.measureAmong(ctx, "many", short(b, 2_000, 200), short(b, 600, 50)))
	}
}

func (b *bench) measureMore(ctx context.Context) {
	isAlone := len(b.crowdMemory) == 0
	if isAlone {
		must(errors.New("it is compared with many: measure both"))
	}
	for round := range b.rounds {
		// As many events in all, which is what fits a run of ten minutes.
		memory := b.measureAmong(ctx, "more", short(b, 10_000, 1_000), short(b, 120, 10))
		b.addBeside("more.grown", memory, b.crowdMemory[round])
	}
}

// measureAmong measures healthy vendors alone, and then among so many accounts whose receivers are dead. It returns
// the most resident memory that a worker had, in MiB.
func (b *bench) measureAmong(ctx context.Context, measurement string, accounts, events int) float64 {
	add := func(figure string, value float64) { b.add(measurement+figure, value) }
	beside := func(figure string, value, base float64) { b.addBeside(measurement+figure, value, base) }

	var peak float64
	b.withTwoWorkers(ctx, measurement, func(ctx context.Context, e *receiversEnv) {
		t := e.startTraffic(ctx, healthyRate, time.Minute)
		without := e.steady(ctx, t, short(b, 20*time.Second, 2*time.Second))
		t.end(ctx)
		memory := e.redisMemory(ctx)
		for i := range e.workers {
			e.stop(i)
		}
		peakWithout := float64(e.peak) / mebibyte
		b.progress("%s: without dead receivers: %s", measurement, without.turn)

		began := time.Now()
		m := e.book.addMortals(ctx, accounts, true)
		defer m.stop()
		e.book.letWait(ctx, m, events)
		add(".seeded", time.Since(began).Seconds())
		beside(".redis", e.redisMemory(ctx), memory)
		b.note(measurement+".seeded", "%s events each", harness.Grouped(events))

		t = e.startTraffic(ctx, healthyRate, 8*time.Minute)
		e.pause(ctx, b.warmUp())
		began = time.Now()
		e.startBoth(ctx)
		add(".started", t.awaitFlow(ctx, began).Seconds())
		e.awaitSpread(ctx)

		among := e.steady(ctx, t, short(b, 40*time.Second, 3*time.Second))
		b.progress("%s: among them: %s", measurement, among.turn)
		beside(".p99", among.turn.p99(), without.turn.p99())
		beside(".p50", among.turn.p50(), without.turn.p50())
		add(".left_out", 100*max(among.turn.leftOut, without.turn.leftOut))
		beside(".cpu", among.cores, without.cores)
		add(".changed", float64(among.changed))

		add(".killed", e.killOne(ctx, t).Seconds())
		add(".rolled", e.roll(ctx, t).Seconds())

		t.end(ctx)
		for i := range e.workers {
			e.stop(i)
		}
		peak = float64(e.peak) / mebibyte
		beside(".memory", peak, peakWithout)
		add(".resident", float64(slices.Max(e.resident[:]))/mebibyte)
		b.addLosses(measurement, t.counts())
	})
	return peak
}

// pause lets time pass.
func (e *receiversEnv) pause(ctx context.Context, length time.Duration) {
	must(harness.Sleep(ctx, length))
}

// redisMemory returns what Redis holds, in MiB.
func (e *receiversEnv) redisMemory(ctx context.Context) float64 {
	return got(harness.RedisInfo(ctx, e.Redis))["used_memory"] / mebibyte
}

// A steadyState is what is measured while traffic flows and no worker is stopped or started.
type steadyState struct {
	turn    turn
	cores   float64 // that both workers keep busy
	changed uint64  // partitions that have another owner than before, each time counted
}

// steady measures the traffic for some time, after a warm-up.
func (e *receiversEnv) steady(ctx context.Context, t *traffic, length time.Duration) steadyState {
	e.pause(ctx, 2*e.bench.warmUp())
	return e.measure(ctx, t, length)
}

// measure measures the traffic from now on.
func (e *receiversEnv) measure(ctx context.Context, t *traffic, length time.Duration) steadyState {
	before := e.epochs(ctx)
	from := time.Now()

	watching, stop := context.WithCancel(ctx)
	var busy noise
	var group errgroup.Group
	group.Go(func() (err error) {
		busy, err = watchOthers(watching, e.processes()...)
		return err
	})
	used, err := harness.During(func() error { return harness.Sleep(ctx, length) }, e.processes()...)
	stop()
	must(errors.Join(err, group.Wait()))

	measured := span{from, time.Now()}
	changed := e.epochs(ctx) - before
	e.pause(ctx, deliveryWarmUp) // the last of them arrive
	return steadyState{
		turn:    got(newTurn(t.receipts(measured), busy)),
		cores:   used["workers"] / used["seconds"],
		changed: changed,
	}
}

// killOne ends a worker as a crash would, and returns the longest gap until the other one owns everything and the
// events flow.
func (e *receiversEnv) killOne(ctx context.Context, t *traffic) time.Duration {
	from := time.Now()
	e.kill(1)
	e.awaitOwners(ctx, 1)
	t.awaitFlow(ctx, time.Now())
	e.pause(ctx, short(e.bench, 10*time.Second, time.Second))
	gap := t.longestGap(span{from, time.Now()})
	e.bench.progress("killed: longest gap %.1f s", gap.Seconds())
	return gap
}

// roll starts the killed worker again, and restarts both, one after the other, as a release does. It returns the
// longest gap.
func (e *receiversEnv) roll(ctx context.Context, t *traffic) time.Duration {
	from := time.Now()
	calm := short(e.bench, 5*time.Second, time.Second)
	rejoin := func(worker int) {
		must(e.start(ctx, worker))
		e.awaitSpread(ctx)
		t.awaitFlow(ctx, time.Now())
		e.pause(ctx, calm)
	}

	rejoin(1)
	for worker := range e.workers {
		e.stop(worker)
		rejoin(worker)
	}
	gap := t.longestGap(span{from, time.Now()})
	e.bench.progress("rolled: longest gap %.1f s", gap.Seconds())
	return gap
}

func silenceFigures() []*figure {
	const before = "before"
	return slices.Concat([]*figure{
		// How fast breakers open decides how long the pool of sends is full. There is no limit yet.
		{Key: "silence.p99", What: "2,000 receivers fall silent: healthy vendors' p99 in the next minute", Unit: "ms", Baseline: before},
		{Key: "silence.p50", What: "  p50", Unit: "ms", Baseline: before},
		{Key: "silence.left_out", What: "  events left out because others were busy", Unit: "%"},
		{Key: "silence.gap", What: "  longest gap of a partition", Unit: "s"},
		{Key: "silence.cpu", What: "  processors that the workers take", Unit: "cores", Baseline: before},
		{Key: "silence.changed", What: "  partitions that change hands in that time"},
		{Key: "silence.memory", What: "  a worker's resident memory at most", Unit: "MiB", Baseline: before, Limit: atMost(mostResident)},
	}, lossFigures("silence", ratioAtMost(0.01)))
}

// measureSilence measures healthy vendors while the receivers of others fall silent, all at once and with closed
// breakers. As many events a second go to these as would fill the workers' places twice over.
func (b *bench) measureSilence(ctx context.Context) {
	const rate = 500 // events a second for those that fall silent
	accounts := short(b, 2_000, 200)
	alive, silence := short(b, 20*time.Second, 2*time.Second), short(b, time.Minute, 3*time.Second)
	for range b.rounds {
		b.withTwoWorkers(ctx, "silence", func(ctx context.Context, e *receiversEnv) {
			m := e.book.addMortals(ctx, accounts, false)
			defer m.stop()
			longest := alive + silence + short(b, 30*time.Second, 10*time.Second)
			orders := e.book.createOrders(ctx, m.vendors, int(longest.Seconds())*rate/eventsPerOrder, time.Now())

			flowing, cancel := context.WithCancel(ctx)
			defer cancel()
			var group errgroup.Group
			group.Go(func() error { return e.book.flow(flowing, orders, rate) })
			t := e.startTraffic(ctx, healthyRate, longest+time.Minute)
			before := e.steady(ctx, t, alive)
			memoryBefore := float64(e.memorySoFar(ctx)) / mebibyte
			b.progress("silence: before: %s", before.turn)

			m.dead.Store(true)
			from := time.Now()
			after := e.measure(ctx, t, silence)
			b.progress("silence: after: %s", after.turn)
			gap := t.longestGap(span{from, from.Add(silence)})
			cancel()
			must(group.Wait())
			t.end(ctx)
			for i := range e.workers {
				e.stop(i)
			}

			b.addBeside("silence.p99", after.turn.p99(), before.turn.p99())
			b.addBeside("silence.p50", after.turn.p50(), before.turn.p50())
			b.add("silence.left_out", 100*max(after.turn.leftOut, before.turn.leftOut))
			b.add("silence.gap", gap.Seconds())
			b.addBeside("silence.cpu", after.cores, before.cores)
			b.add("silence.changed", float64(after.changed))
			b.addBeside("silence.memory", float64(e.peak)/mebibyte, memoryBefore)
			b.addLosses("silence", t.counts())
		})
	}
}
