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

// receiversSuite plays an evening on which the receivers of thousands of accounts are dead, and everything else goes
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

// inFullRunsAtMost accepts a figure up to the bound in every round of a full run. It is for times, and for figures that
// follow from a time.
func inFullRunsAtMost(bound float64) *limit {
	return &limit{AtMost: &bound}
}

// mostResident is the resident memory in MiB that a worker may have, of the 512 MB of its container.
const mostResident = 400

// amongFigures returns the figures of healthy vendors among dead receivers. who describes the dead ones in the table.
func amongFigures(measurement, who string) []*figure {
	const alone = "without"
	const handover = 5 // seconds; a worker that is dead is noticed after 3
	return slices.Concat([]*figure{
		{Key: measurement + ".seeded", What: who + ": their events put into Redis in", Unit: "s"},
		{Key: measurement + ".started", What: "  workers started: events flow in every partition after", Unit: "s"},
		{
			Key: measurement + ".p99", What: "  healthy vendors, report to webhook, p99", Unit: "ms",
			Baseline: alone, Limit: ratioAtMost(1.5),
		},
		{Key: measurement + ".p50", What: "  p50", Unit: "ms", Baseline: alone},
		{Key: measurement + ".left_out", What: "  events left out because others were busy", Unit: "%"},
		{Key: measurement + ".cpu", What: "  processors that the workers take", Unit: "cores", Baseline: alone},
		{Key: measurement + ".changed", What: "  partitions that change hands in that time", Limit: inFullRunsAtMost(0)},
		{
			Key: measurement + ".killed", What: "  kill -9 of a worker: longest gap of a partition", Unit: "s",
			Baseline: alone, Limit: inFullRunsAtMost(handover),
		},
		{
			Key: measurement + ".rolled", What: "  it starts again, then both restart: longest gap", Unit: "s",
			Limit: inFullRunsAtMost(handover),
		},
		{
			Key: measurement + ".memory", What: "  a worker's resident memory at most", Unit: "MiB",
			Baseline: alone, Limit: atMost(mostResident),
		},
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

// measureMany measures the case of as many accounts as the service is meant for.
func (b *bench) measureMany(ctx context.Context) {
	for range b.rounds {
		b.crowdMemory = append(b.crowdMemory, b.measureAmong(ctx, "many", short(b, 2_000, 200), short(b, 600, 50)))
	}
}

// measureMore measures five times as many accounts, for which as many events wait in all: more would not fit a run of
// ten minutes.
func (b *bench) measureMore(ctx context.Context) {
	isAlone := len(b.crowdMemory) == 0
	if isAlone {
		must(errors.New("its memory is compared with that of many: measure both"))
	}

	for round := range b.rounds {
		memory := b.measureAmong(ctx, "more", short(b, 10_000, 1_000), short(b, 120, 10))
		b.addBeside("more.grown", memory, b.crowdMemory[round])
	}
}

// measureAmong measures healthy vendors alone, and then among so many accounts whose receivers are dead. It returns
// the most resident memory that a worker had among these, in MiB.
func (b *bench) measureAmong(ctx context.Context, measurement string, accounts, events int) (memory float64) {
	b.withTwoWorkers(ctx, measurement, func(ctx context.Context, e *receiversEnv) {
		aloneRedis := e.redisMemory(ctx)
		e.addBallast(ctx, accounts*events)
		t := e.startTraffic(ctx, healthyRate, 2*time.Minute)
		alone := e.steady(ctx, t, short(b, 20*time.Second, 2*time.Second))
		b.progress("%s: without dead receivers: %s", measurement, alone.turn)
		aloneGap := e.killOne(ctx, t)
		t.end(ctx)
		e.stop(0)
		aloneMemory := e.takePeak()
		e.dropBallast(ctx, accounts*events)

		// What waits is put into Redis while no worker runs.
		began := time.Now()
		dead := e.book.addReceivers(ctx, accounts, true)
		defer dead.stop()
		e.book.letWait(ctx, dead, events)
		seeded := time.Since(began)
		b.progress("%s: %s events wait, put there in %.0f s", measurement, harness.Grouped(accounts*events), seeded.Seconds())

		t = e.startTraffic(ctx, healthyRate, 10*time.Minute)
		redis := e.redisMemory(ctx)
		flows := e.startAmong(ctx, measurement, t)
		among := e.steady(ctx, t, short(b, 40*time.Second, 3*time.Second))
		b.progress("%s: among them: %s", measurement, among.turn)
		if flows {
			b.addBeside(measurement+".killed", e.killOne(ctx, t).Seconds(), aloneGap.Seconds())
			b.add(measurement+".rolled", e.roll(ctx, t).Seconds())
		}

		t.end(ctx)
		for i := range e.workers {
			e.stop(i)
		}

		memory = e.takePeak()

		b.add(measurement+".seeded", seeded.Seconds())
		b.note(measurement+".seeded", "%s accounts, %s events each", harness.Grouped(accounts), harness.Grouped(events))
		b.addSteady(measurement, among, alone)
		b.addBeside(measurement+".memory", memory, aloneMemory)
		b.add(measurement+".resident", float64(slices.Max(e.resident[:]))/mebibyte)
		b.addBeside(measurement+".redis", redis, aloneRedis)
		b.addLosses(measurement, t.counts())
	})

	return memory
}

// startAmong starts both workers in what has been put into Redis, and reports whether the healthy vendors' events flow
// then. When they do not, restarts would measure nothing.
func (e *receiversEnv) startAmong(ctx context.Context, measurement string, t *traffic) (flows bool) {
	e.pause(ctx, e.bench.warmUp())
	from := time.Now()
	e.startBoth(ctx)
	took, flows := t.awaitFlow(ctx, from)
	e.bench.add(measurement+".started", took.Seconds())
	if !flows {
		e.bench.note(measurement+".started", "not yet, so no worker was killed or restarted")
		e.bench.note(measurement+".lost", "not there a minute after the last report")
	}

	e.bench.progress("%s: %.1f s after the workers' start events of every partition flow: %v", measurement, took.Seconds(), flows)
	e.awaitSpread(ctx)

	return flows
}

// addSteady notes how healthy vendors' events fared beside something, and without it.
func (b *bench) addSteady(measurement string, with, without steadyState) {
	b.addBeside(measurement+".p99", with.turn.p99(), without.turn.p99())
	b.addBeside(measurement+".p50", with.turn.p50(), without.turn.p50())
	b.add(measurement+".left_out", 100*max(with.turn.leftOut, without.turn.leftOut))
	b.addBeside(measurement+".cpu", with.cores, without.cores)
	b.add(measurement+".changed", float64(with.changed))
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
	e.bench.progress("a worker killed: longest gap %.1f s", gap.Seconds())

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
	e.bench.progress("both restarted: longest gap %.1f s", gap.Seconds())

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
// breakers.
func (b *bench) measureSilence(ctx context.Context) {
	for range b.rounds {
		b.withTwoWorkers(ctx, "silence", b.measureFallingSilent)
	}
}

func (b *bench) measureFallingSilent(ctx context.Context, e *receiversEnv) {
	// Events a second for those that fall silent: within the ten seconds of an attempt more than twice as many as the
	// workers have places for sends.
	const rate = 500
	alive := short(b, 20*time.Second, 2*time.Second)
	silence := short(b, time.Minute, 3*time.Second)
	longest := alive + silence + short(b, 30*time.Second, 10*time.Second)

	dying := e.book.addReceivers(ctx, short(b, 2_000, 200), false)
	defer dying.stop()
	orders := e.book.createOrders(ctx, dying.vendors, int(longest.Seconds())*rate/eventsPerOrder, time.Now())
	flowing, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return e.book.flow(flowing, orders, rate) })

	t := e.startTraffic(ctx, healthyRate, longest+time.Minute)
	before := e.steady(ctx, t, alive)
	b.progress("silence: before: %s", before.turn)
	memoryBefore := e.memorySoFar(ctx)

	dying.dead.Store(true)
	from := time.Now()
	after := e.measure(ctx, t, silence)
	b.progress("silence: after: %s", after.turn)
	gap := t.longestGap(span{from, from.Add(silence)})
	stop()
	must(group.Wait())
	t.end(ctx)
	for i := range e.workers {
		e.stop(i)
	}

	b.addSteady("silence", after, before)
	b.add("silence.gap", gap.Seconds())
	b.addBeside("silence.memory", e.takePeak(), memoryBefore)
	b.addLosses("silence", t.counts())
}
