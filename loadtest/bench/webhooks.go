package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/harness"
)

// measureThroughput fills the streams while no worker runs, then starts one and watches it work them off.
func (b *bench) measureThroughput(ctx context.Context) {
	b.withWebhooks(ctx, "throughput", map[string]string{"pprof": strconv.FormatBool(b.profile != "")}, func(ctx context.Context, e *webhookEnv) {
		const calm = 0.25 // of a processor for other programs
		b.calmest(calm, func(n int) round { return e.saturate(ctx, short(b, 60_000, 5_000), n) })
		b.addLosses("throughput", sumOf(e.healthy...))
	})
}

// saturate is one round: fill, start, watch, stop. The first tenth of the
// receipts, while connections are opened, is not counted; the last one is.
func (e *webhookEnv) saturate(ctx context.Context, events, n int) (r round) {
	before := e.received.Load()
	e.makeEvents(ctx, e.healthy, events/eventsPerOrder, time.Now(), delivery.Delivered)
	e.settleRedis(ctx)
	must(e.Worker.Start(ctx))
	warm := int64(events / 10)
	must(e.awaitReceived(ctx, before+warm, time.Minute))
	profiled := e.bench.startProfile(ctx, e.Worker, n)
	used := got(harness.During(func() error { return e.awaitReceived(ctx, before+int64(events), time.Minute) }, e.processes()...))
	must(profiled())
	e.Worker.Stop()
	webhooks := float64(int64(events) - warm)
	rate, others := webhooks/used["seconds"], used.Others()
	r = round{figures: map[string]float64{"throughput": rate, "throughput.busy": used["busy"] / used["seconds"], "throughput.others": others},
		disturbed: others}
	for _, p := range e.processes() {
		r.figures["throughput."+p.Name+"_us"] = 1e6 * used[p.Name] / webhooks
	}
	e.bench.progress("throughput %d: %s webhooks/s; others took %s cores", n+1, harness.Number(rate), harness.Number(others))
	return r
}

// measureLatency is what an event takes from the courier's report that makes it to its receipt, at a rate far below
// saturation.
func (b *bench) measureLatency(ctx context.Context) {
	b.withWebhooks(ctx, "latency", nil, func(ctx context.Context, e *webhookEnv) {
		must(e.Worker.Start(ctx))
		b.calmest(mostLeftOut, func(n int) round {
			t := e.measureWaits(ctx, short(b, 10*time.Second, 2*time.Second), nil)
			b.progress("latency %d: %s", n+1, t)
			return round{disturbed: t.leftOut,
				figures: map[string]float64{"latency.p50": t.p50(), "latency.p99": t.p99(), "latency.left_out": 100 * t.leftOut}}
		})
		b.addLosses("latency", sumOf(e.healthy...))
	})
}

// troubled is the isolation case: of ten events two go to an endpoint that takes 4 s, one to an endpoint that refuses
// connections, and one to an endpoint that takes them and never answers.
var troubled = []struct {
	how   behaviour
	slots []int // of measureWaits
}{{slow, []int{1, 6}}, {refuses, []int{3}}, {silent, []int{8}}}

// measureIsolation compares healthy endpoints beside bad ones with the same endpoints and the same traffic to them
// alone, each turn in a Redis of its own, so that no round inherits what another left waiting.
func (b *bench) measureIsolation(ctx context.Context) {
	var healthy []*vendor // of all turns
	b.compare("isolation", func(n int, bad bool) (t turn) {
		b.withWebhooks(ctx, fmt.Sprintf("isolation-%d-%v", n, bad), nil, func(ctx context.Context, e *webhookEnv) {
			healthy = append(healthy, e.healthy...)
			others := map[int]*vendor{}
			for _, bads := range troubled {
				var v *vendor // nil without the bad ones
				if bad {
					v = e.addVendor(ctx, bads.how)
				}
				for _, slot := range bads.slots {
					others[slot] = v
				}
			}
			must(e.Worker.Start(ctx))
			t = e.measureWaits(ctx, short(b, 16*time.Second, 2*time.Second), others)
		})
		return t
	})
	b.addLosses("isolation", sumOf(healthy...))
}

// measureKills ends the worker as a crash would, again and again while traffic flows, and starts it again. What it had
// sent and not recorded its successor sends again: that is what duplicates come from, and what the end waits for.
func (b *bench) measureKills(ctx context.Context) {
	const killRate = 500 // events per second
	kills := 20
	if b.quick { // few events for each kill, and on a busy machine many in flight at each
		kills = 3
		*b.figure("kill.duplicates").Limit.AtMost = 20
	}
	b.withWebhooks(ctx, "kill", nil, func(ctx context.Context, e *webhookEnv) {
		must(e.Worker.Start(ctx))
		e.beside(ctx, killRate, time.Duration(kills+1)*(longestLife+longestTakeover), func() { e.killWorker(ctx, kills) })
		ended := time.Now()
		e.awaitAll(ctx)
		b.progress("kill: %d kills, all received %.1f s after the last event", kills, time.Since(ended).Seconds())
		// Duplicates of what the last worker had sent come when its successor owns its partitions.
		must(harness.Sleep(ctx, time.Until(ended.Add(longestTakeover))))
		b.add("kill.kills", float64(kills))
		b.addLosses("kill", sumOf(e.healthy...))
	})
}

const (
	// The worker lives this long between the moment in which it owns all partitions and its next kill.
	shortestLife = 500 * time.Millisecond
	longestLife  = 3 * time.Second
	// longestTakeover is what passes until then, after a kill.
	longestTakeover = 6 * time.Second
)

// killWorker returns when the last kill's worker has started again.
func (e *webhookEnv) killWorker(ctx context.Context, times int) {
	random := rand.New(rand.NewPCG(e.bench.seed, 1))
	epochs := e.awaitOwned(ctx, make([]uint64, partitions))
	for range times {
		must(harness.Sleep(ctx, shortestLife+time.Duration(random.Int64N(int64(longestLife-shortestLife)))))
		must(e.Worker.Check())
		e.Worker.Kill()
		must(e.Worker.Start(ctx))
		epochs = e.awaitOwned(ctx, epochs)
	}
}

// awaitOwned waits until every partition has an owner of an epoch later than before, and returns the epochs.
func (e *webhookEnv) awaitOwned(ctx context.Context, before []uint64) []uint64 {
	now := make([]uint64, partitions)
	must(harness.Await(ctx, "every partition has a new owner", time.Minute, 50*time.Millisecond, func() (bool, error) {
		stored, err := e.Ownership.Tokens(ctx)
		for p := range partitions {
			token, unreadable := stored[p].Token()
			if now[p], err = token.Epoch, errors.Join(err, unreadable); token.Owner == "" || now[p] <= before[p] {
				return false, err
			}
		}
		return err == nil, err
	}))
	return now
}

func (b *bench) addLosses(part string, c counts) {
	b.add(part+".lost", float64(c.Expected-c.Received-c.Expired))
	b.note(part+".lost", "of %s events", harness.Grouped(c.Expected))
	b.add(part+".duplicates", 100*float64(c.Duplicates)/float64(max(1, c.Expected)))
	b.note(part+".duplicates", "%s times", harness.Grouped(c.Duplicates))
	b.add(part+".invalid", float64(c.Invalid))
}
