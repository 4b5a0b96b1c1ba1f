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
func (b *bench) measureThroughput(ctx context.Context) error {
	return b.withWebhooks(ctx, "throughput", map[string]string{"pprof": strconv.FormatBool(b.profile != "")}, func(e *webhookEnv) error {
		const calm = 0.25 // of a processor for other programs
		if _, err := b.calmest(calm, func(n int) (round, error) { return e.saturate(ctx, short(b, 60_000, 5_000), n) }); err != nil {
			return err
		}
		b.addLosses("throughput", sumOf(e.healthy))
		return nil
	})
}

// saturate is one round: fill, start, watch, stop. The first tenth of the
// receipts, while connections are opened, is not counted; the last one is.
func (e *webhookEnv) saturate(ctx context.Context, events, n int) (r round, err error) {
	before := e.received.Load()
	if err := e.makeEvents(ctx, e.healthy, events/eventsPerOrder, delivery.Delivered, time.Now()); err != nil {
		return r, err
	}
	if err := e.settleRedis(ctx); err != nil {
		return r, err
	}
	if err := e.worker.Start(ctx); err != nil {
		return r, err
	}
	warm := int64(events / 10)
	if err := e.awaitReceived(ctx, before+warm, time.Minute); err != nil {
		return r, err
	}
	profiled := e.bench.startProfile(ctx, e.worker, n)
	used, err := harness.During(func() error { return e.awaitReceived(ctx, before+int64(events), time.Minute) }, e.processes()...)
	if err = errors.Join(err, profiled()); err != nil {
		return r, err
	}
	e.worker.Stop()
	webhooks := float64(int64(events) - warm)
	r.disturbed = used.Others()
	r.figures = map[string]float64{"throughput": webhooks / used["seconds"], "throughput.busy": used["busy"] / used["seconds"], "throughput.others": used.Others()}
	for _, p := range e.processes() {
		r.figures["throughput."+p.Name+"_us"] = 1e6 * used[p.Name] / webhooks
	}
	e.bench.progress("throughput %d: %s webhooks/s; others took %s cores", n+1, harness.Number(webhooks/used["seconds"]), harness.Number(used.Others()))
	return r, nil
}

// measureLatency is what an event takes from the courier's report that makes it to its receipt, at a rate far below
// saturation.
func (b *bench) measureLatency(ctx context.Context) error {
	return b.withWebhooks(ctx, "latency", nil, func(e *webhookEnv) error {
		if err := e.worker.Start(ctx); err != nil {
			return err
		}
		_, err := b.calmest(mostLeftOut, func(n int) (round, error) {
			t, err := e.measureWaits(ctx, short(b, 10*time.Second, 2*time.Second), nil)
			b.progress("latency %d: %s", n+1, t)
			figures := map[string]float64{"latency.p50": t.p50(), "latency.p99": t.p99(), "latency.left_out": 100 * t.leftOut}
			return round{figures: figures, disturbed: t.leftOut}, err
		})
		b.addLosses("latency", sumOf(e.healthy))
		return err
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
func (b *bench) measureIsolation(ctx context.Context) error {
	var sum counts
	err := b.compare("isolation", func(n int, bad bool) (t turn, err error) {
		err = b.withWebhooks(ctx, fmt.Sprintf("isolation-%d-%v", n, bad), nil, func(e *webhookEnv) (err error) {
			t, err = e.isolate(ctx, bad)
			sum.add(sumOf(e.healthy))
			return err
		})
		return t, err
	})
	b.addLosses("isolation", sum)
	return err
}

func (e *webhookEnv) isolate(ctx context.Context, bad bool) (t turn, err error) {
	length := short(e.bench, 16*time.Second, 2*time.Second)
	others := map[int]*source{}
	for _, bads := range troubled {
		var from *source // nil without the bad ones
		if bad {
			vendors, err := e.addVendors(ctx, 1, bads.how)
			if err != nil {
				return t, err
			}
			if from, err = e.newSource(ctx, vendors, (e.bench.warmUp()+length).Seconds()*steadyRate/4); err != nil {
				return t, err
			}
		}
		for _, slot := range bads.slots {
			others[slot] = from
		}
	}
	if err := e.worker.Start(ctx); err != nil {
		return t, err
	}
	return e.measureWaits(ctx, length, others)
}

// measureKills ends the worker as a crash would, again and again while traffic flows, and starts it again. What it had
// sent and not recorded its successor sends again: that is what duplicates come from, and what the end waits for.
func (b *bench) measureKills(ctx context.Context) error {
	const killRate = 500 // events per second
	kills := 20
	if b.quick { // few events for each kill, and on a busy machine many in flight at each
		kills = 3
		*b.figure("kill.duplicates").Limit.AtMost = 20
	}
	return b.withWebhooks(ctx, "kill", nil, func(e *webhookEnv) error {
		longest := time.Duration(kills+1) * (longestLife + longestTakeover)
		source, err := e.newSource(ctx, e.healthy, longest.Seconds()*killRate)
		if err != nil {
			return err
		}
		if err := e.settleRedis(ctx); err != nil {
			return err
		}
		if err := e.worker.Start(ctx); err != nil {
			return err
		}
		if err := e.beside(ctx, source, killRate, longest, func() error { return e.killWorker(ctx, kills) }); err != nil {
			return err
		}
		ended := time.Now()
		if err := e.awaitAll(ctx); err != nil {
			return err
		}
		b.progress("kill: %d kills, all received %.1f s after the last event", kills, time.Since(ended).Seconds())
		// Duplicates of what the last worker had sent come when its successor owns its partitions.
		if err := harness.Sleep(ctx, time.Until(ended.Add(longestTakeover))); err != nil {
			return err
		}
		b.add("kill.kills", float64(kills))
		b.addLosses("kill", sumOf(e.healthy))
		return nil
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
func (e *webhookEnv) killWorker(ctx context.Context, times int) error {
	random := rand.New(rand.NewPCG(e.bench.seed, 1))
	var epochs []uint64
	for range times {
		if err := e.awaitOwned(ctx, &epochs); err != nil {
			return err
		}
		if err := harness.Sleep(ctx, shortestLife+time.Duration(random.Int64N(int64(longestLife-shortestLife)))); err != nil {
			return err
		}
		if err := e.worker.Check(); err != nil {
			return err
		}
		e.worker.Kill()
		if err := e.worker.Start(ctx); err != nil {
			return err
		}
	}
	return e.awaitOwned(ctx, &epochs)
}

// awaitOwned waits until every partition has an owner of a later epoch, and notes the epochs.
func (e *webhookEnv) awaitOwned(ctx context.Context, epochs *[]uint64) error {
	return harness.Await(ctx, "every partition has a new owner", time.Minute, 50*time.Millisecond, func() (bool, error) {
		stored, err := e.Ownership.Tokens(ctx)
		now := make([]uint64, len(stored))
		for p := range stored {
			token, unreadable := stored[p].Token()
			if now[p], err = token.Epoch, errors.Join(err, unreadable); token.Owner == "" || *epochs != nil && now[p] <= (*epochs)[p] {
				return false, err
			}
		}
		*epochs = now
		return err == nil, err
	})
}

func (b *bench) addLosses(part string, c counts) {
	b.add(part+".lost", float64(c.Expected-c.Received-c.Expired))
	b.note(part+".lost", "of %s events", harness.Grouped(c.Expected))
	b.add(part+".duplicates", 100*float64(c.Duplicates)/float64(max(1, c.Expected)))
	b.note(part+".duplicates", "%s times", harness.Grouped(c.Duplicates))
	b.add(part+".invalid", float64(c.Invalid))
}
