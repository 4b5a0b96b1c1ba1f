package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
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

// webhookEnv is what one measurement stands on: a Redis with production's durability, a ledger in it, vendors with
// their endpoints, and a worker with its shipped settings.
type webhookEnv struct {
	*book
	bench    *bench
	redis    *stack.Redis
	vendors  []*vendor // all of them
	healthy  []*vendor // those that the even traffic goes to
	worker   *stack.Program
	received atomic.Int64 // distinct events, of all vendors
}

// withWebhooks starts Redis, adds the healthy vendors, and stops everything when
// do is done. The worker is yet to start, with other values for some settings.
func (b *bench) withWebhooks(ctx context.Context, name string, settings map[string]string, do func(*webhookEnv) error) (err error) {
	dir := b.file(name)
	e := &webhookEnv{bench: b}
	if e.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(dir, "redis")}); err != nil {
		return err
	}
	defer e.redis.Stop()
	if e.book, err = openBook(ctx, e.redis.URL); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	config, err := harness.WriteConfig(dir, "worker", settings)
	if err != nil {
		return err
	}
	addr := stack.FreeAddr()
	e.worker = &stack.Program{
		Name: "worker", Path: b.file("bin", "worker"), Args: []string{"-config", config},
		Env: []string{"ENVIRONMENT=sandbox", "COURIER=manual", "WEBHOOK_LOCAL_RECEIVERS=auto", "LOG_LEVEL=error",
			"PARTITIONS=" + fmt.Sprint(partitions), "REDIS_URL=" + e.redis.URL, "WORKER_OPS_ADDR=" + addr, "WORKER_INSTANCE=bench",
			"WEBHOOK_KEYS=" + sealKeyID + ":" + base64.StdEncoding.EncodeToString(sealKey), "WEBHOOK_KEYS_FILE="},
		Log: filepath.Join(dir, "worker.log"), Ready: "http://" + addr + "/readyz",
	}
	defer func() {
		e.worker.Kill()
		for _, v := range e.vendors {
			v.close()
		}
	}()
	if e.healthy, err = e.addVendors(ctx, endpoints, answers); err != nil {
		return err
	}
	return do(e)
}

// processes are what is measured; the endpoints run in this one.
func (e *webhookEnv) processes() []harness.Process {
	return []harness.Process{{Name: "worker", PID: e.worker.PID()}, {Name: "redis", PID: e.redis.PID()}, harness.Self("receiver")}
}

// addVendors registers n vendors whose endpoints behave alike, spread evenly over the partitions.
func (e *webhookEnv) addVendors(ctx context.Context, n int, how behaviour) (added []*vendor, err error) {
	for range n {
		v := &vendor{endpoint: newEndpoint(stack.FreeAddr(), how, &e.received), account: accountIn(len(e.vendors) % partitions)}
		e.vendors, added = append(e.vendors, v), append(added, v)
		if err := e.addAccount(ctx, v.account, time.Now()); err != nil {
			return nil, err
		}
		_, secret, err := e.Webhooks.SetURL(ctx, v.account, "http://"+v.addr+"/hook")
		if err != nil {
			return nil, err
		}
		v.secret = []byte(secret)
		if how == refuses {
			continue
		}
		if err := v.listen(); err != nil {
			return nil, err
		}
	}
	return added, nil
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

// makeEvents creates n orders and takes them up to a status, many in one round trip, while no worker runs.
func (e *webhookEnv) makeEvents(ctx context.Context, vendors []*vendor, n int, to delivery.Status, at time.Time) error {
	orders, err := e.createOrders(ctx, vendors, n, at, nil)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for some := range slices.Chunk(orders, 250) {
		group.Go(func() error { return e.advance(ctx, to, at, some...) })
	}
	return group.Wait()
}

// settleRedis waits until Redis does not rewrite its file, so that a measurement pays for its own work only.
func (e *webhookEnv) settleRedis(ctx context.Context) error {
	return harness.Await(ctx, "redis rewrites its file", time.Minute, 50*time.Millisecond, func() (bool, error) {
		info, err := harness.RedisInfo(ctx, e.redis)
		return info["aof_rewrite_in_progress"] == 0 && info["aof_rewrite_scheduled"] == 0, err
	})
}

func (e *webhookEnv) awaitReceived(ctx context.Context, n int64, timeout time.Duration) error {
	err := harness.Await(ctx, "events received", timeout, time.Millisecond, func() (bool, error) {
		return e.received.Load() >= n, e.worker.Check()
	})
	if err != nil {
		return fmt.Errorf("%d of %d: %w", e.received.Load(), n, err)
	}
	return nil
}

// awaitAll waits until the healthy vendors have received everything. When nothing is wrong, that takes less than half a
// minute: what is lacking then is lost, and the figures will show it.
func (e *webhookEnv) awaitAll(ctx context.Context) error {
	return orTimeout(harness.Await(ctx, "all received", 30*time.Second, 10*time.Millisecond, func() (bool, error) {
		c := sumOf(e.healthy)
		return c.Received == c.Expected, e.worker.Check()
	}))
}

// source is where the events for some vendors come from: their orders, moved along from Assigned to Delivered.
type source struct {
	orders []*order
	next   int
}

// abreast is how many orders of a source are on their way at once, one after the other by one status: at 200 events a
// second an order moves about every third of a second.
const abreast = 64

// newSource creates the orders for so many events, in turn for the vendors.
func (e *webhookEnv) newSource(ctx context.Context, vendors []*vendor, events float64) (*source, error) {
	blocks := int(events)/(abreast*eventsPerOrder) + 1
	orders, err := e.createOrders(ctx, vendors, blocks*abreast, time.Now(), nil)
	return &source{orders: orders}, err
}

func (s *source) step() *order {
	block, within := s.next/(abreast*eventsPerOrder), s.next%(abreast*eventsPerOrder)
	s.next++
	return s.orders[block*abreast+within%abreast]
}

// flow reports what makes events in an open loop: slot after slot at a fixed rate, whatever the worker makes of it. The
// pattern of sources is repeated; a nil slot passes without an event. It ends after its length or with ctx, and returns
// when the last report is stored.
func (e *webhookEnv) flow(ctx context.Context, pattern []*source, rate int, length time.Duration) error {
	group, working := errgroup.WithContext(context.WithoutCancel(ctx))
	began := time.Now()
	for i := range int(length.Seconds() * float64(rate)) {
		if !harness.SleepUntil(ctx, began.Add(time.Duration(i)*time.Second/time.Duration(rate))) || working.Err() != nil {
			break
		}
		if source := pattern[i%len(pattern)]; source != nil {
			o := source.step()
			group.Go(func() error { return e.report(working, o) })
		}
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("traffic: %w", err)
	}
	return nil
}

// beside does something while events flow from a source, and ends the traffic with it.
func (e *webhookEnv) beside(ctx context.Context, s *source, rate int, longest time.Duration, do func() error) error {
	flowing, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return e.flow(flowing, []*source{s}, rate, longest) })
	err := do()
	stop()
	return errors.Join(err, group.Wait())
}

// warmUp is how long traffic runs before it is measured: connections are opened and scripts loaded.
func (b *bench) warmUp() time.Duration { return short(b, 2*time.Second, 500*time.Millisecond) }

// measureWaits runs traffic at steadyRate and returns how long each event for the healthy vendors took after the
// warm-up. Of ten slots, some may belong to others. All have been received, or are lost, when it returns.
func (e *webhookEnv) measureWaits(ctx context.Context, length time.Duration, others map[int]*source) (t turn, err error) {
	length += e.bench.warmUp()
	healthy, err := e.newSource(ctx, e.healthy, length.Seconds()*steadyRate)
	if err != nil {
		return t, err
	}
	pattern := slices.Repeat([]*source{healthy}, 10)
	for slot, other := range others {
		pattern[slot] = other
	}
	if err := e.settleRedis(ctx); err != nil {
		return t, err
	}
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	var busy noise
	var group errgroup.Group
	group.Go(func() (err error) {
		busy, err = e.watchOthers(watching)
		return err
	})
	err = e.flow(ctx, pattern, steadyRate, length)
	stop()
	if err = errors.Join(err, group.Wait(), context.Cause(ctx)); err != nil {
		return t, err
	}
	if err := e.awaitAll(ctx); err != nil {
		return t, err
	}
	return newTurn(receiptsOf(e.healthy, began.Add(e.bench.warmUp())), busy)
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
		took := milliseconds(e.received.Sub(e.issued))
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
	return fmt.Sprintf("p50 %s, p99 %s ms (others were busy for %.0f %%)", harness.Number(t.p50()), harness.Number(t.p99()), 100*t.leftOut)
}

type round struct {
	figures   map[string]float64 // by key
	disturbed float64            // by other programs
	turns     map[bool]turn      // of a comparison, with and without
}

// calmest measures rounds until enough of them were calm, which is disturbed by at most as much as said, or until one
// spare round is used up. It notes and returns the calm ones; if there are none, as many as were asked for, the least
// disturbed.
func (b *bench) calmest(calm float64, measure func(n int) (round, error)) ([]round, error) {
	most := b.rounds + short(b, 1, 0)
	var all []round
	calmOnes := 0
	for calmOnes < b.rounds && len(all) < most {
		r, err := measure(len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
		if r.disturbed <= calm {
			calmOnes++
		}
	}
	slices.SortStableFunc(all, func(p, q round) int { return cmp.Compare(p.disturbed, q.disturbed) })
	chosen := all[:cmp.Or(calmOnes, b.rounds)]
	for _, r := range chosen {
		for key, v := range r.figures {
			b.add(key, v)
		}
	}
	return chosen, nil
}

// compare measures both halves of a comparison in turn, so that a slow minute of
// the machine falls on both; which is first changes with every round.
func (b *bench) compare(part string, measure func(n int, with bool) (turn, error)) error {
	rounds, err := b.calmest(mostLeftOut, func(n int) (r round, err error) {
		r.turns = map[bool]turn{}
		for _, with := range []bool{n%2 == 0, n%2 == 1} {
			if r.turns[with], err = measure(n, with); err != nil {
				return r, err
			}
		}
		with, without := r.turns[true], r.turns[false]
		b.progress("%s %d: with %s; without %s", part, n+1, with, without)
		r.disturbed = max(with.leftOut, without.leftOut)
		r.figures = map[string]float64{
			part + ".p99_ratio": with.p99() / without.p99(), part + ".left_out": 100 * r.disturbed,
			part + ".p50": with.p50(), part + ".p50_without": without.p50(),
			part + ".p99": with.p99(), part + ".p99_without": without.p99(),
		}
		return r, nil
	})
	if err != nil {
		return err
	}
	var with, without turn // of all rounds
	for _, r := range rounds {
		with.waits, without.waits = append(with.waits, r.turns[true].waits...), append(without.waits, r.turns[false].waits...)
	}
	b.add(part+".p99_ratio_pooled", with.p99()/without.p99())
	return nil
}
