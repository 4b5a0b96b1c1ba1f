package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	// endpoints is how many the even traffic goes to, four in each partition.
	endpoints = 64
	// steadyRate is the traffic beside which latency is measured, in events per second.
	steadyRate = 200
)

// webhookEnv is what one measurement stands on: a system whose gateway is stopped, and whose worker is yet to start, with
// its shipped settings; vendors with their endpoints.
type webhookEnv struct {
	*harness.System
	*book
	bench    *bench
	vendors  []*vendor    // all of them
	healthy  []*vendor    // those that the even traffic goes to
	received atomic.Int64 // distinct events, of all vendors
}

// withWebhooks starts Redis, adds the healthy vendors, and stops everything when
// do is done. The worker will start with other values for some settings.
func (b *bench) withWebhooks(ctx context.Context, name string, settings map[string]string, do func(context.Context, *webhookEnv)) {
	options := stack.Options{Env: append([]string{"LOG_LEVEL=error"}, sealKeyEnv...)}
	b.withSystem(ctx, name, options, func(ctx context.Context, s *harness.System) {
		s.Gateway.Stop()
		s.Worker.Stop()
		e := &webhookEnv{System: s, bench: b, book: openBook(ctx, s.Stack)}
		defer func() {
			s.Worker.Kill()
			for _, v := range e.vendors {
				v.close()
			}
			_ = e.Close() // the ledger is dropped
		}()
		got(harness.WriteConfig(b.file(name), "worker", settings))
		s.Worker.Use(b.file("bin"), b.file(name))
		for range endpoints {
			e.healthy = append(e.healthy, e.addVendor(ctx, answers))
		}
		do(ctx, e)
	})
}

// processes are what is measured; the endpoints run in this one.
func (e *webhookEnv) processes() []harness.Process {
	return []harness.Process{{Name: "worker", PID: e.Worker.PID()}, {Name: "redis", PID: e.Redis.PID()}, harness.Self("receiver")}
}

// addVendor registers a vendor with an endpoint. They are spread evenly over the partitions.
func (e *webhookEnv) addVendor(ctx context.Context, how behaviour) *vendor {
	v := &vendor{endpoint: newEndpoint(stack.FreeAddr(), how, &e.received), account: accountIn(len(e.vendors) % partitions)}
	e.vendors = append(e.vendors, v)
	e.addAccount(ctx, v.account, time.Now())
	_, secret, err := e.Webhooks.SetURL(ctx, v.account, "http://"+v.addr+"/hook")
	must(err)
	v.secret = secret
	if how != refuses {
		must(v.listen())
	}
	return v
}

// accountIn draws an account of the given partition. How the ledger spreads
// accounts is part of the stored layout; every order is checked against it.
func accountIn(partition int) delivery.AccountID {
	for {
		id := delivery.NewAccountID()
		h := fnv.New64a()
		h.Write(id[:])
		if int(h.Sum64()%partitions) == partition {
			return id
		}
	}
}

// settleRedis waits until Redis does not rewrite its file, so that a measurement pays for its own work only.
func (e *webhookEnv) settleRedis(ctx context.Context) {
	must(harness.Await(ctx, "redis rewrites its file", time.Minute, 50*time.Millisecond, func() (bool, error) {
		info, err := harness.RedisInfo(ctx, e.Redis)
		return info["aof_rewrite_in_progress"] == 0 && info["aof_rewrite_scheduled"] == 0, err
	}))
}

// awaitFor waits for what a figure shows when it does not come in time.
func awaitFor(ctx context.Context, what string, timeout, every time.Duration, done func() (bool, error)) {
	if err := harness.Await(ctx, what, timeout, every, done); !errors.Is(err, harness.ErrTimeout) {
		must(err)
	}
}

func (e *webhookEnv) awaitReceived(ctx context.Context, n int64, timeout time.Duration) error {
	err := harness.Await(ctx, "events received", timeout, time.Millisecond, func() (bool, error) { return e.received.Load() >= n, nil })
	if err != nil {
		return fmt.Errorf("%d of %d: %w", e.received.Load(), n, err)
	}
	return nil
}

// awaitAll waits until the healthy vendors have received everything. When nothing is wrong, that takes less than half a
// minute: what is missing then is lost, and the figures will show it.
func (e *webhookEnv) awaitAll(ctx context.Context) {
	awaitFor(ctx, "all received", 30*time.Second, 50*time.Millisecond, func() (bool, error) {
		c := sumOf(e.healthy...)
		return c.Received == c.Expected, nil
	})
}

// ordersFor creates the orders for so many events a second, in turn for vendors.
func (e *webhookEnv) ordersFor(ctx context.Context, vendors []*vendor, rate int, length time.Duration) []*order {
	orders := e.createOrders(ctx, vendors, int(length.Seconds()*float64(rate))/eventsPerOrder, time.Now())
	e.settleRedis(ctx)
	return orders
}

// flow reports the orders' statuses, so many a second, in an open loop: by the timetable of journeys, whatever the
// worker makes of it. It ends with the orders or with ctx, and returns when the last report is stored.
func (e *webhookEnv) flow(ctx context.Context, orders []*order, rate int) error {
	group, working := errgroup.WithContext(context.WithoutCancel(ctx))
	t := timetable{start: time.Now().Add(-spacing), rate: float64(rate) / eventsPerOrder, orders: len(orders), every: 1}
	t.run(ctx, func(n, step int) {
		if o := orders[n]; o != nil && step > 0 {
			group.Go(func() error { return e.report(working, o) })
		}
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("traffic: %w", err)
	}
	return nil
}

// beside does something while events for the healthy vendors flow, and ends the traffic with it.
func (e *webhookEnv) beside(ctx context.Context, rate int, longest time.Duration, do func()) {
	orders := e.ordersFor(ctx, e.healthy, rate, longest)
	flowing, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return e.flow(flowing, orders, rate) })
	err := caught(do)
	stop()
	must(errors.Join(err, group.Wait()))
}

// warmUp is how long traffic runs before it is measured: connections are opened, scripts loaded, and orders of every
// step in progress.
func (b *bench) warmUp() time.Duration { return short(b, deliveryWarmUp, 500*time.Millisecond) }

// measureWaits runs traffic at steadyRate and returns how long each event for the healthy vendors took after the
// warm-up. Of ten orders, some may be others' or nobody's. All have been received, or are lost, when it returns.
func (e *webhookEnv) measureWaits(ctx context.Context, length time.Duration, others map[int]*vendor) turn {
	vendors := slices.Repeat(e.healthy, 10)
	for i := range vendors {
		if other, ok := others[i%10]; ok {
			vendors[i] = other
		}
	}
	orders := e.ordersFor(ctx, vendors, steadyRate, e.bench.warmUp()+length)
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	var busy noise
	var group errgroup.Group
	group.Go(func() (err error) {
		busy, err = e.watchOthers(watching)
		return err
	})
	err := e.flow(ctx, orders, steadyRate)
	stop()
	must(errors.Join(err, group.Wait(), context.Cause(ctx)))
	e.awaitAll(ctx)
	return got(newTurn(receiptsOf(began.Add(e.bench.warmUp()), e.healthy...), busy))
}

// Other programs on the machine delay everything at once, and a tenth of a second of that is more than the hundredth
// part of a round that its 99th percentile stands for. So events that were issued while others were busy are left
// out, on both sides of a comparison, by what the others took and when the event was issued; never by how long it
// took.
const (
	noiseSpan = 100 * time.Millisecond // how often the others are measured
	noisy     = 0.3                    // processors that they may take in a span
	// An event is left out when a noisy span ends less than noiseAfter before it
	// was issued, or begins less than noiseBefore after.
	noiseAfter  = 200 * time.Millisecond
	noiseBefore = 100 * time.Millisecond
	// mostLeftOut is the share of its events that a calm turn may lose.
	mostLeftOut = 0.5
)

// noise is when others were busy: the ends of the noisy spans.
type noise []time.Time

// watchOthers measures the others until ctx ends, and returns when they were busy.
func (e *webhookEnv) watchOthers(ctx context.Context) (busy noise, err error) {
	for ctx.Err() == nil {
		span, err := harness.During(func() error { _ = harness.Sleep(ctx, noiseSpan); return nil }, e.processes()...)
		if err != nil {
			return nil, err
		}
		if ctx.Err() == nil && span.Others() > noisy { // a span that is cut short says nothing
			busy = append(busy, time.Now())
		}
	}
	return busy, nil
}

// turn is one half of a comparison, measured once: what the events took from the
// report to the receipt, in milliseconds, and the share that was left out.
type turn struct {
	waits   []float64
	leftOut float64
}

// newTurn leaves out what others disturbed; all of it counts when almost nothing else would be left.
func newTurn(receipts []event, n noise) (t turn, err error) {
	var all []float64
	for _, e := range receipts {
		took := milliseconds(e.receipts[0].Sub(e.issued))
		all = append(all, took)
		disturbed := slices.ContainsFunc(n, func(end time.Time) bool {
			return e.issued.After(end.Add(-noiseSpan-noiseBefore)) && e.issued.Before(end.Add(noiseAfter))
		})
		if !disturbed {
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

func (t turn) String() string {
	return fmt.Sprintf("p50 %s, p99 %s ms (others were busy for %.0f %%)", number(t.p50()), number(t.p99()), 100*t.leftOut)
}

// A round is what one of several found.
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

// compare measures both halves of a comparison in turn, so that a slow minute of
// the machine falls on both; which is first changes with every round.
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
				measurement + ".p99": with.p99(), measurement + ".p50": with.p50(), measurement + ".left_out": 100 * disturbed,
			},
			bases:     map[string]float64{measurement + ".p99": without.p99(), measurement + ".p50": without.p50()},
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
