// Suite webhooks: how fast, how fairly and how surely webhooks are delivered.

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/webhook"
	"vendorapi/loadtest/harness"
)

// Suite webhooks measures the delivery of webhooks: the real worker with its shipped settings, a real Redis that
// syncs every write, and endpoints of this process that verify every signature. Each event is expected before what
// makes it is written, and what arrives is held against that.
func webhooksSuite() suite {
	return suite{
		name:  "webhooks",
		takes: "9 minutes",
		about: `  How fast, how fairly and how surely webhooks are delivered. Their rate against that
  of ready-made requests to the same kind of endpoints; their latency against a
  server that adds each request to the same Redis; healthy endpoints beside slow,
  refusing and silent ones, and beside 100,000 waiting events, against the same
  endpoints alone; and that nothing is lost, with the worker killed twenty times.
  Comparisons take turns. Events during which other programs on the machine were busy
  are left out; when that is more than half of a round, one more round is measured.`,
		timeout:    20 * time.Minute,
		fullRounds: 3,
		programs:   []string{"gateway", "worker"},
		measurements: []measurement{
			{name: "throughput", measure: (*bench).measureThroughput, figures: throughputFigures()},
			{name: "latency", measure: (*bench).measureLatency, figures: latencyFigures()},
			{name: "isolation", measure: (*bench).measureIsolation, figures: isolationFigures()},
			{name: "backlog", measure: (*bench).measureBacklog, figures: backlogFigures()},
			{name: "kill", measure: (*bench).measureKills, figures: killFigures()},
		},
	}
}

// lossFigures are those of what every measurement of webhooks holds against what it expected. The limit of what is
// received again is of all events.
func lossFigures(measurement string, again *limit) []*figure {
	return []*figure{
		{Key: measurement + ".lost", What: "  lost", Limit: atMost(0)},
		{Key: measurement + ".duplicates", What: "  received again", Baseline: "events", Limit: again},
		{Key: measurement + ".invalid", What: "  not verified, or of no event", Limit: atMost(0)},
	}
}

// addLosses notes the losses of a measurement.
func (b *bench) addLosses(measurement string, c counts) {
	b.add(measurement+".lost", float64(c.Expected-c.Received-c.Expired))
	b.addBeside(measurement+".duplicates", float64(c.Duplicates), float64(c.Expected))
	b.add(measurement+".invalid", float64(c.Invalid))
}

func throughputFigures() []*figure {
	return append([]*figure{
		// Measured 23,100 webhooks a second, with 53 us of the worker's CPU and 21 of the endpoints' for each.
		{
			Key: "throughput", What: "webhooks at saturation", Unit: "/s",
			Baseline: "ready-made requests to such endpoints", Limit: ratioAtLeast(0.15),
		},
		{Key: "throughput.worker_us", What: "  CPU of the worker for each", Unit: "us"},
		{Key: "throughput.receiver_us", What: "  CPU of the endpoints for each", Unit: "us"},
		{Key: "throughput.redis_us", What: "  CPU of Redis for each", Unit: "us"},
		{Key: "throughput.busy", What: "  processors busy", Unit: "cores"},
		{Key: "throughput.others", What: "  of these, other programs", Unit: "cores"},
	}, lossFigures("throughput", shareAtMost(0.01))...)
}

// measureThroughput fills the streams while no worker runs, then starts one and watches it work them off.
func (b *bench) measureThroughput(ctx context.Context) {
	settings := map[string]string{"pprof": strconv.FormatBool(b.profile != "")}
	b.withWebhooks(ctx, "throughput", settings, func(ctx context.Context, e *webhookEnv) {
		const calm = 0.25 // of a processor for other programs
		b.calmest(calm, func(n int) round { return e.saturate(ctx, short(b, 60_000, 5_000), n) })
		b.addLosses("throughput", sumOf(e.healthy...))
	})
}

// saturate measures one round: it fills the streams, starts the worker, watches it, and stops it. The first tenth of the
// receipts is not counted, because connections are opened then.
func (e *webhookEnv) saturate(ctx context.Context, events, n int) round {
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
	bare := e.bench.bareRate(ctx)

	webhooks := float64(int64(events) - warm)
	rate, others := webhooks/used["seconds"], used.Others()
	e.bench.progress("throughput %d: %s webhooks/s, %s ready-made requests/s; others took %s cores",
		n+1, number(rate), number(bare), number(others))

	r := round{
		figures: map[string]float64{
			"throughput":        rate,
			"throughput.busy":   used["busy"] / used["seconds"],
			"throughput.others": others,
		},
		bases:     map[string]float64{"throughput": bare},
		disturbed: others,
	}

	for _, p := range e.processes() {
		r.figures["throughput."+p.Name+"_us"] = 1e6 * used[p.Name] / webhooks
	}

	return r
}

// bareRate returns how many ready-made requests a second as many endpoints take from as many connections as a worker
// has to them. They verify each as they do a webhook.
func (b *bench) bareRate(ctx context.Context) float64 {
	const perEndpoint = 4
	secret := "whsec_" + base64.StdEncoding.EncodeToString(sealKey)
	var addrs []string
	for range endpoints {
		e := newEndpoint(stack.FreeAddr(), answers, new(atomic.Int64))
		e.secret = secret
		must(e.listen())
		defer e.close()
		addrs = append(addrs, e.addr)
	}

	// A test is verified like any other webhook, and counted as no event. It is as long as one.
	const id = "evt_0123456789"
	body := `{"eventId":"` + id + `","event":"webhook.test","data":"` + strings.Repeat("x", 500) + `"}`
	const form = "POST /hook HTTP/1.1\r\n" +
		"Host: localhost\r\n" +
		"Content-Type: application/json\r\n" +
		"X-Service-Event: webhook.test\r\n" +
		"Webhook-Id: %s\r\n" +
		"X-Service-Signature: %s\r\n" +
		"Content-Length: %d\r\n" +
		"\r\n%s"
	request := fmt.Appendf(nil, form, id, webhook.Sign(secret, []byte(body)), len(body), body)

	taken := got(harness.ClosedLoop(ctx, harness.Load{
		Addrs:       addrs,
		Connections: perEndpoint * endpoints,
		Duration:    short(b, 3*time.Second, 300*time.Millisecond),
		Want:        204,
		Request:     func(dst []byte, _ int) []byte { return append(dst, request...) },
	}))

	return taken.PerSecond()
}

func latencyFigures() []*figure {
	const bareWrite = "one bare XADD over HTTP each"
	return append([]*figure{
		// A report is synced to the disk once, its decision once more, and then the webhook is sent.
		{
			Key: "latency.p50", What: "report to receipt at 200/s, p50", Unit: "ms",
			Baseline: bareWrite, Limit: ratioAtMost(10),
		},
		{Key: "latency.p99", What: "  p99", Unit: "ms", Baseline: bareWrite},
		{Key: "latency.left_out", What: "  events left out because others were busy", Unit: "%"},
	}, lossFigures("latency", shareAtMost(0.01))...)
}

// measureLatency measures how long an event takes from the courier's report that makes it to its receipt, at a rate far
// below saturation.
func (b *bench) measureLatency(ctx context.Context) {
	b.withWebhooks(ctx, "latency", nil, func(ctx context.Context, e *webhookEnv) {
		must(e.Worker.Start(ctx))
		b.calmest(mostLeftOut, func(n int) round {
			length := short(b, 10*time.Second, 2*time.Second)
			t := e.measureWaits(ctx, length, nil)
			written := e.bareWaits(ctx, length)
			b.progress("latency %d: %s; one bare XADD over HTTP p50 %s ms", n+1, t, number(quantile(written.Latency, 50)))
			return round{
				figures: map[string]float64{
					"latency.p50":      t.p50(),
					"latency.p99":      t.p99(),
					"latency.left_out": 100 * t.leftOut,
				},
				bases: map[string]float64{
					"latency.p50": quantile(written.Latency, 50),
					"latency.p99": quantile(written.Latency, 99),
				},
				disturbed: t.leftOut,
			}
		})

		b.addLosses("latency", sumOf(e.healthy...))
	})
}

// bareWaits sends bare writes at the rate of the events.
func (e *webhookEnv) bareWaits(ctx context.Context, length time.Duration) *harness.Answers {
	return bareWrites(ctx, e.Redis, harness.Load{
		Connections: connections,
		Rate:        steadyRate,
		Duration:    length,
		Request: func(dst []byte, n int) []byte {
			return fmt.Appendf(dst, orderRequest, "none", n, orderBodyLength)
		},
	}, harness.OpenLoop)
}

// besideFigures returns the figures of healthy endpoints beside something that may not slow them down.
func besideFigures(measurement, what string) []*figure {
	const alone = "without"
	return []*figure{
		{Key: measurement + ".p99", What: what + ", p99", Unit: "ms", Baseline: alone, Limit: ratioAtMost(1.5)},
		{Key: measurement + ".p99_pooled", What: "  the same of all rounds' events together", Unit: "ms", Baseline: alone},
		{Key: measurement + ".p50", What: "  p50", Unit: "ms", Baseline: alone},
		{Key: measurement + ".left_out", What: "  events left out because others were busy", Unit: "%"},
	}
}

func isolationFigures() []*figure {
	figures := besideFigures("isolation", "healthy beside slow, refusing and silent endpoints")
	return append(figures, lossFigures("isolation", shareAtMost(0.01))...)
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

func killFigures() []*figure {
	// In a short run there are few events for each kill and, on a busy machine, many in flight at each.
	return append([]*figure{
		{Key: "kill.kills", What: "kill -9 of the worker at 500 events/s", Unit: "times"},
	}, lossFigures("kill", ratioAtMost(0.01))...)
}

// measureKills ends the worker as a crash would, again and again while traffic flows, and starts it again. What it had
// sent and not recorded its successor sends again: that is what duplicates come from, and what the end waits for.
func (b *bench) measureKills(ctx context.Context) {
	const killRate = 500 // events per second
	kills := short(b, 20, 3)
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
	epochs := e.awaitOwned(ctx, make([]uint64, partitionCount))
	for range times {
		life := shortestLife + time.Duration(random.Int64N(int64(longestLife-shortestLife)))
		must(harness.Sleep(ctx, life))
		must(e.Worker.Check())
		e.Worker.Kill()
		must(e.Worker.Start(ctx))
		epochs = e.awaitOwned(ctx, epochs)
	}
}

// awaitOwned waits until every partition has an owner of an epoch later than before, and returns the epochs.
func (e *webhookEnv) awaitOwned(ctx context.Context, before []uint64) []uint64 {
	now := make([]uint64, partitionCount)
	must(harness.Await(ctx, "every partition has a new owner", time.Minute, 50*time.Millisecond, func() (bool, error) {
		stored, err := e.Ownership.Tokens(ctx)
		if err != nil {
			return false, err
		}

		for p := range partitionCount {
			token, err := stored[p].Token()
			isNew := token.Owner != "" && token.Epoch > before[p]
			if err != nil || !isNew {
				return false, err
			}
			now[p] = token.Epoch
		}

		return true, nil
	}))

	return now
}
