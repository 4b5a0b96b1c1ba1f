package ledger

import (
	"context"
	goflag "flag"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func (p *play) wait() {
	p.pass(rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 31 * time.Second, lease,
		10 * time.Minute, 3 * time.Hour, 80 * time.Hour}).Draw(p.T, "wait"))
}

func (p *play) moveOrders() {
	var o *playedOrder
	if n := p.pick("order", 6); n < len(p.orders) {
		o = p.orders[n]
	} else {
		s := p.anyVendor()
		created, _ := get2(s.Orders.Create(p.ctx, s.creation(fmt.Sprint("X-", len(p.orders)), "")))(p)
		o = &playedOrder{id: created.Order.ID, vendor: s, versions: 1}
		p.orders = append(p.orders, o)
	}
	order := get(p.Orders.Get(p.ctx, o.id))(p)
	var changes []delivery.Change
	for range 1 + p.pick("moves", 3) {
		if next := delivery.Status(o.versions + 1); next <= delivery.Delivered {
			changes = append(changes, delivery.Change{Status: next, At: time.UnixMilli(o.vendor.ms.Load())})
			o.versions++
		}
	}
	if len(changes) == 0 {
		return
	}
	result := get(p.Lifecycle.Commit(p.ctx, []Commit{{Order: order, Changes: changes}}))(p)
	p.must(result[0])
}

func (p *play) publishNotices() {
	s := p.anyVendor()
	for range 1 + p.pick("notices", 8) {
		id, err := p.publish(p.ctx, &Notice{Account: s.account, Type: rapid.SampledFrom([]delivery.EventType{delivery.StoreActivated, delivery.WebhookTest}).Draw(p.T, "type"),
			OccurredAt: time.UnixMilli(s.ms.Load()), Data: []byte(`{}`)}, newNoticeID())
		p.must(err)
		p.unread[id] = s
	}
}

// anyGrant is what one of two workers can take on.
func (p *play) anyGrant(least int) Grant {
	p.grant = Grant{Limit: least + p.pick("limit", 10), Share: 1 + p.pick("share", 6), InFlight: p.inFlight, Lease: lease,
		Holder: rapid.SampledFrom([]string{"worker-1", "worker-2"}).Draw(p.T, "worker")}
	return p.grant
}

func (p *play) readStream() {
	p.read(int64(1+p.pick("entries", 20)), p.anyGrant(0))
}

func (p *play) read(count int64, g Grant) {
	key := p.partitions[0].key(kindEvents)
	found, err := p.rdb.XReadGroup(p.ctx, &redis.XReadGroupArgs{Group: string(RoleWebhook), Consumer: "c", Streams: []string{key, ">"},
		Count: count, Block: -1}).Result()
	if err == redis.Nil {
		return
	}
	p.must(err)
	p.entries = p.reader.parse(p.ctx, streamRef{p.partitions[0], key}, found[0].Messages)
	p.queue(g)
	for _, e := range p.entries {
		if e.Events[0].Notice != "" {
			if !p.replayWaits(e.Events[0].Notice) { // else it goes as that, once
				p.notices[e.Events[0].Notice] = p.unread[e.Events[0].Notice]
			}
			delete(p.unread, e.Events[0].Notice)
		} else {
			p.orderOf(e.Events[0].Order).queued = int(delivery.Sequence(e.Events[0].Version))
		}
	}
}

// replayWaits reports whether a replay of an event waited before this step.
func (p *play) replayWaits(id string) bool {
	for item, of := range p.replays {
		if of == id && p.now[delivery.AccountID([]byte(item[:16]))].places(item[16:]) > 0 {
			return true
		}
	}
	return false
}

func (p *play) readAgain() {
	if len(p.entries) > 0 {
		p.queue(p.anyGrant(0))
	}
}

func (p *play) queue(g Grant) {
	p.grant = g
	leased := get(p.Queue.Add(p.ctx, 0, p.entries, g))(p)
	p.given = leased.Deliveries
}

func (p *play) leaseSome() {
	ds, _ := get2(p.Queue.Lease(p.ctx, 0, p.anyGrant(1)))(p)
	p.given, p.leasing = ds, true
}

// recordSome records some of what was handed out, stale results too.
func (p *play) recordSome() {
	if len(p.out) == 0 {
		return
	}
	first := p.pick("first", len(p.out))
	n := min(1+p.pick("results", 5), len(p.out)-first)
	results := make([]Result, n)
	for i, d := range p.out[first : first+n] {
		results[i] = Result{d, p.anyOutcome(d)}
	}
	p.out = slices.Delete(p.out, first, first+n)
	p.record(results, p.anyGrant(0))
	if p.pick("reply lost", 10) == 0 {
		again := get(p.Queue.Record(p.ctx, results, noGrant, playBreaker))(p)
		require(p, !slices.Contains(again.OK, true), "recorded twice: %v", again.OK)
	}
}

func (p *play) record(results []Result, g Grant) {
	p.pass(time.Millisecond) // a send takes time; tokens distinguish milliseconds
	ours := make([]bool, len(results))
	for i := range results {
		d := results[i].Delivery
		ours[i] = fmt.Sprint(p.now[d.Account].leases[d.item]) == d.token
	}
	recorded := get(p.Queue.Record(p.ctx, results, g, playBreaker))(p)
	require(p, slices.Equal(recorded.OK, ours), "recorded %v, want %v", recorded.OK, ours)
	p.given = recorded.Deliveries
	for i := range results {
		d, o := results[i].Delivery, &results[i].Outcome
		if !ours[i] {
			continue
		}
		p.ended[d.item] = true
		if !o.OK && !o.Deferred && !o.Expired && !d.Probe && !d.Ping && !o.Retry.IsZero() {
			p.tries[string(d.Account[:])+d.item]++
		}
	}
}

// Moods of a receiver.
const (
	willing = iota
	failing
	busy
	mixed
	moods
)

func (p *play) changeMood() {
	s := p.anyVendor()
	s.mood = p.pick("mood", moods)
}

func (p *play) anyOutcome(d *Delivery) Outcome {
	now := time.UnixMilli(p.vendors[0].ms.Load())
	o := Outcome{At: now, Status: 500, Error: "status: 500", Answer: make([]byte, p.pick("answer", 300))}
	o.Retry = now.Add(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, 40 * time.Minute, 8 * time.Hour}).Draw(p.T, "gap"))
	mood := p.vendorOf(d.Account).mood
	if mood == mixed {
		mood = p.pick("mood", mixed)
	}
	switch special := p.pick("special", 20); {
	case d.Ping && special < 2: // it has no deadline to miss and no place in a schedule
	case special == 0:
		return Outcome{At: now, Expired: true, Error: "deadline: too late"}
	case special == 1:
		return Outcome{At: now, Deferred: true, Retry: now.Add(7 * time.Second)}
	case mood == willing:
		return Outcome{At: now, OK: true, Status: 200}
	case special == 2:
		o.Retry = time.Time{} // given up
	case special == 3:
		o.Gone = true
	}
	if mood == busy {
		o.Busy, o.Wait = true, rapid.SampledFrom([]time.Duration{0, time.Minute, 5 * time.Hour}).Draw(p.T, "retry after")
	}
	return o
}

// work is what a worker does all day: it leases and records, for some rounds.
func (p *play) work() {
	g := p.anyGrant(1)
	g.Limit = 10
	for range 1 + p.pick("rounds", 4) {
		p.grant = g
		ds, next := get2(p.Queue.Lease(p.ctx, 0, g))(p)
		p.given, p.leasing = ds, true
		p.check(p.T)
		for len(ds) > 0 {
			results := make([]Result, len(ds))
			for i, d := range ds {
				results[i] = Result{d, p.anyOutcome(d)}
			}
			p.out = slices.DeleteFunc(p.out, func(d *Delivery) bool { return slices.Contains(ds, d) })
			p.record(results, g)
			ds = p.given
			p.check(p.T)
		}
		now := time.UnixMilli(p.vendors[0].ms.Load())
		if soon := next.Sub(now); soon > 0 && soon < time.Minute {
			p.pass(soon)
		} else {
			p.pass(time.Second)
		}
	}
}

func (p *play) setURL(s *env) {
	e, _ := get2(p.Webhooks.SetURL(p.ctx, s.account, fmt.Sprintf("https://%s.example/%d", s.account, len(p.out)+p.pick("url", 2))))(p)
	s.url, s.secret = e.URL, e.Secret
}

func (p *play) changeReceiver() {
	s := p.anyVendor()
	switch p.pick("change", 6) {
	case 0, 1:
		p.setURL(s)
		return
	case 2:
		if s.url != "" {
			p.must(p.Webhooks.Delete(p.ctx, s.account))
		}
		s.url, s.secret = "", ""
	case 3:
		if s.url != "" {
			secret, err := p.Webhooks.RotateSecret(p.ctx, s.account, p.pick("revoke", 2) == 0)
			if delivery.CodeOf(err) != delivery.CodeTooManySecrets {
				p.must(err)
				s.secret = secret
			}
		}
	default:
		if s.url != "" {
			p.must(p.Webhooks.SetLimits(p.ctx, s.account, EndpointLimits{InFlight: p.pick("in flight", 5) - 1, PerSecond: rapid.SampledFrom([]int{-1, 0, 5, 1000}).Draw(p.T, "pace")}))
		}
	}
}

// replaySome queues events again; what has come into the queue is expected to
// end once more.
func (p *play) replaySome() {
	s := p.anyVendor()
	p.pass(time.Millisecond) // no two replays at one time
	since := time.UnixMilli(s.ms.Load()).Add(-24 * time.Hour)
	before := p.rdb.LLen(p.ctx, s.key(kindQueue)).Val()
	var n int
	var err error
	switch p.pick("replay", 3) {
	case 0:
		n, err = p.Webhooks.ReplaySince(p.ctx, s.account, since)
	case 1:
		n, err = p.Webhooks.ReplayOutcomes(p.ctx, s.account, rapid.SampledFrom([]string{"undelivered", "notSent"}).Draw(p.T, "state"), since)
	default:
		ids := p.idsOf(s)
		if len(ids) == 0 {
			return
		}
		n, err = p.Webhooks.ReplayEvents(p.ctx, s.account, []string{rapid.SampledFrom(ids).Draw(p.T, "event")})
	}
	if s.url == "" {
		refusal, ok := err.(*delivery.Error)
		require(p, ok && refusal.Code == delivery.CodeWebhookNotConfigured, "replayed %d without a URL: %v", n, err)
		return
	}
	p.must(err)
	queued := get(p.rdb.LRange(p.ctx, s.key(kindQueue), before, -1).Result())(p)
	require(p, len(queued) <= n, "%d queued of %d", len(queued), n)
	for _, item := range queued { // the others wait already
		id := item[9:]
		if item[0] == eventReplay {
			f := fields{rest: item[15:]}
			id = delivery.EventID(p.partitions[0].orderOfMember(item[1:15]), 1<<32|uint64(f.uint32()))
		}
		p.replays[string(s.account[:])+item] = id
		p.cycles[id]++
	}
	require(p, len(p.replays) == sum(p.cycles), "%d replays, %d different items", sum(p.cycles), len(p.replays))
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

func (p *play) idsOf(s *env) (ids []string) {
	for id, owner := range p.notices {
		if owner == s {
			ids = append(ids, id)
		}
	}
	for _, o := range p.orders {
		for sequence := 2; sequence <= o.versions && o.vendor == s; sequence++ {
			ids = append(ids, o.eventID(sequence))
		}
	}
	slices.Sort(ids)
	return ids
}

// workerDies: it starts again under its name and knows nothing of what it had.
func (p *play) workerDies() {
	holder := rapid.SampledFrom([]string{"worker-1", "worker-2"}).Draw(p.T, "worker")
	digits := fmt.Sprintf("%03d", holderDigits(holder))
	held := 0
	for _, q := range p.now {
		for _, token := range q.leases {
			if fmt.Sprintf("%03d", token%1000) == digits {
				held++
			}
		}
	}
	n := get(p.Queue.ReleaseLeases(p.ctx, holder))(p)
	require(p, n == held, "%d leases ended, %s held %d", n, holder, held)
	p.out = slices.DeleteFunc(p.out, func(d *Delivery) bool { return d.token[len(d.token)-3:] == digits })
}

// play drives the queues of three endpoints of one partition at random, and
// knows what must have become of every event.
type play struct {
	*rapid.T // the step's
	*Ledger
	ctx     context.Context
	vendors []*env
	reader  *feedReader

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
	rapidChecks(t, 15, 100)
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
	old := get(l.rdb.Keys(t.Context(), l.partitions[0].prefix+"*").Result())(t)
	must(t, l.rdb.Del(t.Context(), append(old, "test:clock")...).Err())
	p := &play{T: rt, Ledger: l, ctx: t.Context(), lastOutcome: "0", lastTry: "0", inFlight: 4,
		finals: make(map[final]int), sums: make(map[delivery.AccountID]*[len(lineOutcomes)]int64), notices: make(map[string]*env), unread: make(map[string]*env),
		replays: make(map[string]string), cycles: make(map[string]int), tries: make(map[string]int), ended: make(map[string]bool)}
	ms.Store(time.Now().UnixMilli())
	l.setClock(t, ms.Load()*1000)
	p.reader = newFeedReader(l.core, &Feed{Role: RoleWebhook, Consumer: "c", Batch: 1000, Log: func(string, ...any) {}}, l.partitions)
	must(t, p.reader.makeGroups(t.Context()))
	must(t, newFeedReader(l.core, &Feed{Role: RoleExport, Consumer: "x"}, l.partitions).makeGroups(t.Context()))
	for range 3 {
		s := &env{Ledger: l, account: newAccount(t, l, plenty()), fleet: fleet, ms: ms, breaker: playBreaker}
		newStore(t, l, s.account, fleet)
		p.vendors = append(p.vendors, s)
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

func (p *play) pick(label string, n int) int {
	choices := make([]int, n)
	for i := range choices {
		choices[i] = i
	}
	return rapid.SampledFrom(choices).Draw(p.T, label)
}

func (p *play) anyVendor() *env { return rapid.SampledFrom(p.vendors).Draw(p.T, "account") }

func (p *play) vendorOf(account delivery.AccountID) *env {
	return p.vendors[slices.IndexFunc(p.vendors, func(s *env) bool { return s.account == account })]
}

func (p *play) orderOf(id delivery.OrderID) *playedOrder {
	return p.orders[slices.IndexFunc(p.orders, func(o *playedOrder) bool { return o.id == id })]
}

// pass moves both clocks, and lets the rate limiter's go on as well.
func (p *play) pass(d time.Duration) {
	now := p.vendors[0].ms.Add(d.Milliseconds())
	p.must(p.rdb.Set(p.ctx, "test:clock", now*1000, 0).Err())
	for _, s := range p.vendors {
		p.must(p.rdb.Del(p.ctx, "rate:"+p.partitions[0].prefix+"pace:"+s.account.String()).Err())
	}
}

// drain: every receiver accepts from now on, and nothing stays.
func (p *play) drain() {
	for _, s := range p.vendors {
		p.setURL(s)
		p.must(p.Webhooks.SetLimits(p.ctx, s.account, EndpointLimits{}))
	}
	p.check(p.T)
	for round := 0; ; round++ {
		require(p, round != 1000, "it does not end:%s", p)
		p.read(1000, noGrant)
		p.check(p.T)
		p.grant = Grant{Limit: 64, Share: 32, InFlight: p.inFlight, Lease: lease, Holder: "worker-1"}
		ds, next := get2(p.Queue.Lease(p.ctx, 0, p.grant))(p)
		p.given, p.leasing = ds, true
		p.check(p.T)
		if len(ds) == 0 && next.IsZero() {
			break
		}
		p.acceptAll()
		p.pass(max(next.Sub(time.UnixMilli(p.vendors[0].ms.Load())), 20*time.Millisecond))
	}
	p.checkDrained()
}

func (p *play) acceptAll() {
	now := time.UnixMilli(p.vendors[0].ms.Load())
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
	for _, s := range p.vendors {
		for _, kind := range []byte{kindQueue, kindRetries, kindLeases, kindAttempts, kindWaiting} {
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
