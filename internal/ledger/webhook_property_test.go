package ledger

import (
	"context"
	goflag "flag"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// play drives the queues of three endpoints of one partition at random, and
// knows what must have become of every event.
type play struct {
	*rapid.T // the step's
	*Ledger
	ctx    context.Context
	shops  []*env
	reader *feedReader

	now, before map[delivery.AccountID]*queueState // after this step and the one before
	lastOutcome string
	lastTry     string
	finals      map[final]int
	sums        map[delivery.AccountID]*[len(lineOutcomes)]int64

	orders  []*playedOrder
	notices map[string]*env   // by event id, those that have been read from the stream
	unread  map[string]*env   // those that have not
	entries []Entry           // of the last read
	replays map[string]string // account and item, and the event it is of
	cycles  map[string]int    // replays of each event
	tries   map[string]int    // attempts that were recorded, by account and item
	ended   map[string]bool   // items of which a first attempt has ended

	out      []*Delivery // handed out and not given back
	given    []*Delivery // handed out in this step
	grant    Grant       // of this step
	leasing  bool        // this step is a Lease
	inFlight int         // the workers' default
}

const playBreaker = 3

// TestQueues_KeepEveryEvent: whatever happens in whatever order, no event is
// lost, none is in two places, and all of it drains in the end.
func TestQueues_KeepEveryEvent(t *testing.T) {
	rapidChecks(t, 8, 100)
	_, own := ownServer(t) // its clock moves by weeks
	ms := new(atomic.Int64)
	l := openTest(t, own, func(c *Config) {
		c.Partitions = 1
		c.Now = func() time.Time { return time.UnixMilli(ms.Load()).UTC() }
	})
	fleet := newFleet(t, l)
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlay(t, rt, l, fleet, ms)
		rt.Repeat(map[string]func(*rapid.T){
			"": p.check, "orders": p.step(p.moveOrders), "orders move": p.step(p.moveOrders), "notices": p.step(p.publishNotices),
			"read": p.step(p.readStream), "read on": p.step(p.readStream), "read again": p.step(p.readAgain), "lease": p.step(p.leaseSome), "record": p.step(p.recordSome),
			"work": p.step(p.work), "work on": p.step(p.work), "work more": p.step(p.work), "wait": p.step(p.wait),
			"mood": p.step(p.changeMood), "receiver": p.step(p.changeReceiver), "replay": p.step(p.replaySome), "die": p.step(p.workerDies),
		})
		p.T = rt
		p.drain()
	})
}

// rapidChecks sets how many plays of how many steps there are: so many in the gate,
// ten times as many in the long run. Who asks for a number gets that.
func rapidChecks(t *testing.T, checks, steps int) {
	t.Helper()
	if testserver.Long {
		checks *= 10
	}
	for name, value := range map[string]int{"rapid.checks": checks, "rapid.steps": steps} {
		f := goflag.Lookup(name)
		if f.Value.String() == f.DefValue {
			must(t, f.Value.Set(strconv.Itoa(value)))
			t.Cleanup(func() { must(t, f.Value.Set(f.DefValue)) })
		}
	}
}

func newPlay(t *testing.T, rt *rapid.T, l *Ledger, fleet *delivery.Fleet, ms *atomic.Int64) *play {
	t.Helper()
	old := get(l.rdb.Keys(t.Context(), l.rooms[0].prefix+"*").Result())(t)
	must(t, l.rdb.Del(t.Context(), append(old, "test:clock")...).Err())
	p := &play{T: rt, Ledger: l, ctx: t.Context(), lastOutcome: "0", lastTry: "0", inFlight: 4,
		finals: make(map[final]int), sums: make(map[delivery.AccountID]*[len(lineOutcomes)]int64), notices: make(map[string]*env), unread: make(map[string]*env),
		replays: make(map[string]string), cycles: make(map[string]int), tries: make(map[string]int), ended: make(map[string]bool)}
	ms.Store(time.Now().UnixMilli())
	l.setClock(t, ms.Load()*1000)
	p.reader = newFeedReader(l, &Feed{Role: RoleWebhook, Consumer: "c", Batch: 1000, Log: func(string, ...any) {}}, l.rooms)
	must(t, p.reader.makeGroups(t.Context()))
	must(t, newFeedReader(l, &Feed{Role: RoleExport, Consumer: "x"}, l.rooms).makeGroups(t.Context()))
	for range 3 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet, ms: ms, breaker: playBreaker}
		newStore(t, l, s.account, fleet)
		p.shops = append(p.shops, s)
		p.sums[s.account] = new([len(lineOutcomes)]int64)
		s.mood = p.pick("mood", moods)
		p.setURL(s)
	}
	return p
}

func (p *play) must(err error) {
	require(p, err == nil, "%v", err)
}

func (p *play) step(action func()) func(*rapid.T) {
	return func(rt *rapid.T) {
		p.T = rt
		action()
	}
}

// pick chooses a number below n, each as often as the others.
func (p *play) pick(label string, n int) int {
	choices := make([]int, n)
	for i := range choices {
		choices[i] = i
	}
	return rapid.SampledFrom(choices).Draw(p.T, label)
}

func (p *play) anyShop() *env { return rapid.SampledFrom(p.shops).Draw(p.T, "shop") }

func (p *play) shopOf(account delivery.AccountID) *env {
	return p.shops[slices.IndexFunc(p.shops, func(s *env) bool { return s.account == account })]
}

func (p *play) orderOf(id delivery.OrderID) *playedOrder {
	return p.orders[slices.IndexFunc(p.orders, func(o *playedOrder) bool { return o.id == id })]
}

// pass moves both clocks, and lets the rate limiter's go on as well.
func (p *play) pass(d time.Duration) {
	now := p.shops[0].ms.Add(d.Milliseconds())
	p.must(p.rdb.Set(p.ctx, "test:clock", now*1000, 0).Err())
	for _, s := range p.shops {
		p.must(p.rdb.Del(p.ctx, "rate:"+p.rooms[0].prefix+"pace:"+s.account.String()).Err())
	}
}

// drain: every receiver accepts from now on, and nothing stays.
func (p *play) drain() {
	for _, s := range p.shops {
		p.setURL(s)
		p.must(p.SetWebhookLimits(p.ctx, s.account, EndpointLimits{}))
	}
	p.check(p.T)
	for round := 0; ; round++ {
		require(p, round != 1000, "it does not end:%s", p)
		p.read(1000, noGrant)
		p.check(p.T)
		p.grant = Grant{Limit: 64, Share: 32, InFlight: p.inFlight, Lease: lease, Holder: "worker-1"}
		ds, next := get2(p.Lease(p.ctx, 0, p.grant))(p)
		p.given, p.leasing = ds, true
		p.check(p.T)
		if len(ds) == 0 && next.IsZero() {
			break
		}
		p.acceptAll()
		p.pass(max(next.Sub(time.UnixMilli(p.shops[0].ms.Load())), 20*time.Millisecond))
	}
	p.checkDrained()
}

func (p *play) acceptAll() {
	now := time.UnixMilli(p.shops[0].ms.Load())
	for len(p.out) > 0 {
		results := make([]Result, len(p.out))
		for i, d := range p.out {
			results[i] = Result{d, Outcome{At: now, OK: true, Status: 200}}
		}
		p.out = nil
		p.record(results, p.grant)
		p.check(p.T)
	}
}

func (p *play) checkDrained() {
	for _, s := range p.shops {
		for _, kind := range []byte{kindQueue, kindRetries, kindLeases, kindAttempts} {
			require(p, p.rdb.Exists(p.ctx, s.key(kind)).Val() == 0, "key %c is still there", kind)
		}
	}
	for id := range p.notices {
		require(p, p.finals[final{id, false}] == 1, "event %s has %d outcomes", id, p.finals[final{id, false}])
	}
	for _, o := range p.orders {
		for sequence := 2; sequence <= o.versions; sequence++ {
			n := p.finals[final{o.eventID(sequence), false}]
			require(p, n == 1, "order %s, version %d has %d outcomes", o.id, sequence, n)
		}
	}
	for id, cycles := range p.cycles {
		require(p, p.finals[final{id, true}] == cycles, "%d replays of %s have %d outcomes", cycles, id, p.finals[final{id, true}])
	}
}
