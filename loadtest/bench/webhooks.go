package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/harness"
)

var webhooks = suite{
	name: "bench-webhooks",
	manual: `Usage: go run ./loadtest/bench webhooks [flags]

Measures the delivery of webhooks with a real Redis, the real worker and
verifying endpoints on this machine, and prints one table; about eight minutes.
Ends with status 1 when a figure is beyond what is accepted. The parts:

  throughput  webhooks per second when the streams are full, and what they cost
  latency     from the commit of a change to its receipt, at 200 events a second
  isolation   healthy endpoints beside slow, refusing and silent ones
  backlog     healthy endpoints beside 100,000 events that wait for a dead one,
              the memory these take, and how they are delivered in the end
  kill        nothing is lost when the worker is killed twenty times

Comparisons take turns. Events during which other programs on the machine were
busy are left out; when that is more than half of a round, one more round is
measured. On a machine that is busy throughout, the comparisons say little, and
the table says so.

Flags:
`,
	timeout:  15 * time.Minute,
	programs: []string{"worker"},
	rounds:   3,
	parts: []part{
		{name: "throughput", run: (*bench).measureThroughput},
		{name: "latency", run: (*bench).measureLatency},
		{name: "isolation", run: (*bench).measureIsolation},
		{name: "backlog", run: (*bench).measureBacklog, beside: true},
		{name: "kill", run: (*bench).measureKills},
	},
	flags: func(b *bench, set *flag.FlagSet) {
		b.onlyFlag(set)
		set.StringVar(&b.profile, "profile", "", "write a CPU profile of the worker during the last round of throughput to this file")
		set.Uint64Var(&b.seed, "seed", 0, "decides when the worker is killed; 0: another one every time, which the table names")
	},
	check: func(b *bench) error {
		if b.seed == 0 {
			b.seed = freshSeed()
		}
		return nil
	},
}

const (
	// endpoints is how many the even traffic goes to, four in each partition.
	endpoints = 64
	// steadyRate is the traffic beside which latency is measured, in events per
	// second.
	steadyRate = 200
	// receiveTimeout is how long the last events may take when nothing is wrong.
	receiveTimeout = 30 * time.Second
)

// saturation is one round of throughput.
type saturation struct {
	webhooks float64
	used     harness.Usage
}

func (s saturation) rate() float64                 { return s.webhooks / s.used.Seconds }
func (s saturation) micros(process string) float64 { return 1e6 * s.used.CPU[process] / s.webhooks }

// measureThroughput fills the streams while no worker runs, then starts one and
// watches it work them off. The first tenth of the receipts, while connections
// are opened, is not counted; the last one is.
func (b *bench) measureThroughput(ctx context.Context) (sheet []harness.Figure, err error) {
	events := 60_000
	if b.quick {
		events = 5_000
	}
	e, err := b.newWebhookEnv(ctx, "throughput", b.profileSettings())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	const calm = 0.25 // of a processor for other programs
	rounds, err := calmest(b, calm, func(round int) (saturation, float64, error) {
		s, err := e.saturate(ctx, events, round)
		if err == nil {
			b.progress("throughput %d: %s webhooks/s; CPU of each: worker %s us, endpoint %s us, Redis %s us; others took %s cores", round+1,
				harness.Number(s.rate()), harness.Number(s.micros("worker")), harness.Number(s.micros("endpoints")),
				harness.Number(s.micros("redis")), harness.Number(s.used.Others()))
		}
		return s, s.used.Others(), err
	})
	if err != nil {
		return nil, err
	}
	cpu := func(process string) []float64 {
		return column(rounds, func(s saturation) float64 { return s.micros(process) })
	}
	return append([]harness.Figure{
		{Key: "throughput", Title: "webhooks per second at saturation", Unit: "/s", Rounds: column(rounds, saturation.rate), Limit: harness.AtLeast(5000)},
		{Key: "throughput.worker_us", Title: "  CPU of the worker per webhook", Unit: "us", Rounds: cpu("worker")},
		{Key: "throughput.receiver_us", Title: "  CPU of the endpoints per webhook", Unit: "us", Rounds: cpu("endpoints")},
		{Key: "throughput.redis_us", Title: "  CPU of Redis per webhook", Unit: "us", Rounds: cpu("redis")},
		{Key: "throughput.busy", Title: "  processors busy", Unit: "cores", Rounds: column(rounds, func(s saturation) float64 { return s.used.Busy / s.used.Seconds })},
		{Key: "throughput.others", Title: "  of these, other programs", Unit: "cores", Rounds: column(rounds, func(s saturation) float64 { return s.used.Others() })},
	}, losses("throughput", sumOf(e.healthy))...), nil
}

// saturate is one round: fill, start, watch, stop.
func (e *webhookEnv) saturate(ctx context.Context, events, round int) (s saturation, err error) {
	at := time.Now()
	orders, err := e.createOrders(ctx, e.healthy, events/eventsPerOrder, at, nil)
	if err != nil {
		return s, err
	}
	before := e.received.Load()
	if err := e.advanceAll(ctx, orders, delivery.Delivered, at); err != nil {
		return s, err
	}
	if err := e.settleRedis(ctx); err != nil {
		return s, err
	}
	if err := e.worker.Start(ctx); err != nil {
		return s, err
	}
	warm := int64(events / 10)
	if err := e.awaitReceived(ctx, before+warm, time.Minute); err != nil {
		return s, err
	}
	profiled := e.bench.startProfile(ctx, e.worker, round)
	s.webhooks = float64(int64(events) - warm)
	s.used, err = harness.During(func() error { return e.awaitReceived(ctx, before+int64(events), time.Minute) }, e.processes()...)
	err = errors.Join(err, profiled())
	e.worker.Stop()
	return s, err
}

// measureLatency is what an event takes from the commit that makes it to its
// receipt, at a rate far below saturation.
func (b *bench) measureLatency(ctx context.Context) (sheet []harness.Figure, err error) {
	e, err := b.newWebhookEnv(ctx, "latency", nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := e.worker.Start(ctx); err != nil {
		return nil, err
	}
	turns, err := calmest(b, mostLeftOut, func(round int) (turn, float64, error) {
		t, err := e.measureWaits(ctx, b.lasting(10*time.Second, 2*time.Second), evenly)
		if err == nil {
			b.progress("latency %d: %s", round+1, t)
		}
		return t, t.leftOut, err
	})
	if err != nil {
		return nil, err
	}
	return append([]harness.Figure{
		{Key: "latency.p50", Title: "commit to receipt at 200/s, p50", Unit: "ms", Rounds: column(turns, turn.p50), Limit: harness.AtMost(10)},
		{Key: "latency.p99", Title: "  p99", Unit: "ms", Rounds: column(turns, turn.p99)},
		{Key: "latency.left_out", Title: leftOutTitle, Unit: "%", Rounds: column(turns, func(t turn) float64 { return 100 * t.leftOut })},
	}, losses("latency", sumOf(e.healthy))...), nil
}

// troubled is the isolation case: of ten events two go to an endpoint that takes
// 4 s, one to an endpoint that refuses connections, and one to an endpoint that
// takes them and never answers.
var troubled = [10]behaviour{answers, slow, answers, refuses, answers, answers, slow, answers, silent, answers}

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
	return append(compare("isolation", "healthy beside slow, refusing and silent endpoints", pairs), losses("isolation", sum)...), nil
}

// isolate is one turn: the waits of the healthy endpoints, and their counts.
func (b *bench) isolate(ctx context.Context, name string, bad bool) (t turn, sum counts, err error) {
	e, err := b.newWebhookEnv(ctx, name, nil)
	if err != nil {
		return t, sum, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	length := b.lasting(16*time.Second, 2*time.Second)
	sources := map[behaviour]*source{}
	for _, how := range []behaviour{slow, refuses, silent} {
		if !bad {
			break
		}
		vendors, err := e.addVendors(ctx, 1, how)
		if err != nil {
			return t, sum, err
		}
		if sources[how], err = e.newSource(ctx, vendors, (b.warmUp()+length).Seconds()*steadyRate/4); err != nil {
			return t, sum, err
		}
	}
	if err := e.worker.Start(ctx); err != nil {
		return t, sum, err
	}
	t, err = e.measureWaits(ctx, length, func(s *source) (pattern []*source) {
		sources[answers] = s
		for _, how := range troubled {
			pattern = append(pattern, sources[how]) // nil without the bad ones
		}
		return pattern
	})
	return t, sumOf(e.healthy), err
}

// measureKills ends the worker as a crash would, again and again while traffic
// flows, and starts it again under the same name. What it had leased and not
// recorded is sent again once the lease has run out: that is what duplicates
// come from, and what the end waits for.
func (b *bench) measureKills(ctx context.Context) (sheet []harness.Figure, err error) {
	const killRate = 500 // events per second
	kills, lease, mostAgain := 20, 30*time.Second, 1.0
	var settings map[string]string
	if b.quick {
		// Shorter leases, or half a minute would pass before the last event; few
		// events for each kill, and on a busy machine many in flight at each.
		kills, lease, mostAgain = 3, 4*time.Second, 20
		settings = map[string]string{"timeout": "2s", "lease": "4s"}
	}
	e, err := b.newWebhookEnv(ctx, "kill", settings)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	longest := time.Duration(kills+1) * (longestLife + time.Second)
	source, err := e.newSource(ctx, e.healthy, longest.Seconds()*killRate)
	if err != nil {
		return nil, err
	}
	if err := e.settleRedis(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := e.worker.Start(ctx); err != nil {
		return nil, err
	}
	if err := e.beside(ctx, evenly(source), killRate, longest, func() error { return e.killWorker(ctx, kills) }); err != nil {
		return nil, err
	}
	ended := time.Now()
	if err := e.awaitAll(ctx, lease+receiveTimeout); err != nil {
		return nil, err
	}
	settled := time.Since(ended)
	// Duplicates of events that a killed worker had sent come when its leases
	// have run out.
	if err := sleep(ctx, time.Until(ended.Add(lease+3*time.Second))); err != nil {
		return nil, err
	}
	sum := sumOf(e.healthy)
	b.progress("kill: %d kills in %.0f s, %d events, all received %.1f s after the last, %d duplicates", kills, ended.Sub(began).Seconds(),
		sum.Expected, settled.Seconds(), sum.Duplicates)
	sheet = append([]harness.Figure{one("kill.kills", "kill -9 of the worker at 500 events/s", "times", float64(kills), nil)}, losses("kill", sum)...)
	sheet[2].Limit = harness.Always(harness.AtMost(mostAgain))
	return sheet, nil
}

// The worker lives this long between its start and its next kill.
const (
	shortestLife = 500 * time.Millisecond
	longestLife  = 3 * time.Second
)

// killWorker returns when the last kill's worker has started again.
func (e *webhookEnv) killWorker(ctx context.Context, times int) error {
	random := rand.New(rand.NewPCG(e.bench.seed, 1))
	for range times {
		if err := sleep(ctx, shortestLife+time.Duration(random.Int64N(int64(longestLife-shortestLife)))); err != nil {
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
	return sleep(ctx, shortestLife)
}

// losses are every part's figures of its receipts: lost, received again,
// invalid, in this order.
func losses(part string, c counts) []harness.Figure {
	again := 0.0
	if c.Expected > 0 {
		again = 100 * float64(c.Duplicates) / float64(c.Expected)
	}
	return []harness.Figure{
		one(part+".lost", fmt.Sprintf("  lost, of %s events", harness.Grouped(int64(c.Expected))), "", float64(c.Expected-c.Received-c.Expired), none()),
		one(part+".duplicates", fmt.Sprintf("  received again: %d, of all events", c.Duplicates), "%", again, harness.Always(harness.AtMost(1))),
		one(part+".invalid", "  not verified, or of no event", "", float64(c.Invalid), none()),
	}
}
