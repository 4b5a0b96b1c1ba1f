package ledger

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

// queueState is one endpoint's queue as it stands in Redis.
type queueState struct {
	waiting       []string
	retries       map[string]int64  // when, ms
	leases        map[string]int64  // until, us: the token
	counts        map[string]string // attempts made
	url           string
	gate          *gateState
	inFlight      int // own limit; 0: none
	paced         bool
	look          int64 // place in the schedule, ms; 0: none
	ended         [4]int64
	logged, bytes int // of the attempt log: as counted, and as it is
}

// places is how often an item stands in the queue.
func (q *queueState) places(item string) (n int) {
	for _, one := range q.waiting {
		if one == item {
			n++
		}
	}
	if _, there := q.retries[item]; there {
		n++
	}
	if _, there := q.leases[item]; there {
		n++
	}
	return n
}

func scores(zs []redis.Z) map[string]int64 {
	all := make(map[string]int64, len(zs))
	for _, z := range zs {
		all[z.Member.(string)] = int64(z.Score)
	}
	return all
}

// observe reads everything that the invariants speak of, in one round trip, and the
// outcomes since the last time.
func (p *play) observe() {
	r := p.partitions[0]
	pipe := p.rdb.Pipeline()
	type reads struct {
		q, g *redis.StringSliceCmd
		d, k *redis.ZSliceCmd
		c, w *redis.MapStringStringCmd
	}
	all := make([]reads, len(p.vendors))
	for i, s := range p.vendors {
		all[i] = reads{
			q: pipe.LRange(p.ctx, s.key(kindQueue), 0, -1), g: pipe.LRange(p.ctx, s.key(kindAttemptLog), 0, -1),
			d: pipe.ZRangeWithScores(p.ctx, s.key(kindRetries), 0, -1), k: pipe.ZRangeWithScores(p.ctx, s.key(kindLeases), 0, -1),
			c: pipe.HGetAll(p.ctx, s.key(kindAttempts)), w: pipe.HGetAll(p.ctx, s.key(kindEndpoint)),
		}
	}
	schedule := pipe.ZRangeWithScores(p.ctx, r.key(kindSchedule), 0, -1)
	outcomes := pipe.XRange(p.ctx, r.key(kindOutcomes), "("+p.lastOutcome, "+")
	tries := pipe.XRange(p.ctx, r.key(kindTries), "("+p.lastTry, "+")
	get(pipe.Exec(p.ctx))(p)
	looks := scores(schedule.Val())
	p.before, p.now = p.now, make(map[delivery.AccountID]*queueState)
	for i, s := range p.vendors {
		q := &queueState{waiting: all[i].q.Val(), retries: scores(all[i].d.Val()), leases: scores(all[i].k.Val()), counts: all[i].c.Val(),
			look: looks[string(s.account[:])]}
		for _, line := range all[i].g.Val() {
			q.bytes += len(line)
		}
		p.readHash(q, all[i].w.Val())
		p.now[s.account] = q
	}
	for _, entry := range outcomes.Val() {
		p.lastOutcome = entry.ID
		account := delivery.AccountID([]byte(text(entry.Values["a"])))
		records := get(r.decodeOutcomes(entry.Values))(p)
		for _, a := range records {
			p.finals[final{a.EventID, a.Replay}]++
			p.sums[account][outcomeNumber(a.State)]++
		}
	}
	for _, entry := range tries.Val() {
		p.lastTry = entry.ID
		records := get(r.decodeOutcomes(entry.Values))(p)
		for _, a := range records {
			require(p, a.State == outcomeRetrying && a.Answer == "", "among the tries: %+v", a)
			if !a.Probe {
				p.sums[delivery.AccountID([]byte(text(entry.Values["a"])))][outcomeNumber(a.State)]++
			}
		}
	}
}

func (p *play) readHash(q *queueState, values map[string]string) {
	q.url, q.paced = values["url"], values["pace"] != ""
	q.inFlight = int(number(values["in_flight"]))
	if g := values["gate"]; g != "" {
		q.gate = parseGate(g)
	}
	f := fields{rest: values["tally"]}
	f.take(20)
	q.logged = int(f.uint32())
	for i := range q.ended {
		q.ended[i] = int64(f.uint64())
	}
}

// holds are the ends of what keeps a queue back, in ms.
func (q *queueState) hold() int64 {
	if q.gate == nil {
		return 0
	}
	return q.gate.hold
}

func (q *queueState) open() bool { return q.gate != nil && q.gate.open == 1 }

// check is what must be true after every step.
func (p *play) check(rt *rapid.T) {
	p.T = rt
	p.observe()
	p.checkGiven()
	for _, s := range p.vendors {
		q := p.now[s.account]
		p.checkCounts(s, q)
		p.checkSchedule(s, q)
		require(p, q.logged == q.bytes, "log of %d bytes, counted %d", q.bytes, q.logged)
		sums := p.sums[s.account]
		require(p, q.ended[0] == sums[outcomeNumber(outcomeDelivered)] && q.ended[1] == sums[outcomeNumber(outcomeRetrying)] && q.ended[2] == sums[outcomeNumber(outcomeUndelivered)] && q.ended[3] == sums[outcomeNumber(outcomeNotSent)],
			"figures %v, outcomes %v", q.ended, sums)
	}
	p.checkEvents()
}

// checkCounts: attempts are counted as they were recorded, for what is still to
// be tried and for nothing else.
func (p *play) checkCounts(s *env, q *queueState) {
	for item, count := range q.counts {
		require(p, q.places(item) == 1 && count == strconv.Itoa(p.tries[string(s.account[:])+item]),
			"%d places, %s attempts counted of %d: %q", q.places(item), count, p.tries[string(s.account[:])+item], item)
	}
	for item := range q.retries {
		if tries := p.tries[string(s.account[:])+item]; tries > 0 && q.counts[item] == "" {
			p.Fatalf("%d attempts are not counted: %q", tries, item)
		}
	}
}

func (p *play) checkSchedule(s *env, q *queueState) {
	now := s.ms.Load()
	if len(q.waiting)+len(q.retries)+len(q.leases) == 0 {
		return
	}
	require(p, q.look != 0, "not in the schedule: %+v", q)
	lost := int64(1) << 62 // the end of the first lease, rounded up
	for _, until := range q.leases {
		lost = min(lost, (until/1000+5000)/5000*5000)
	}
	next := int64(1) << 62
	if len(q.waiting) > 0 {
		next = now
	}
	for _, at := range q.retries {
		next = min(next, max(at, now))
	}
	latest := max(next, q.hold(), now)
	limit := p.inFlight
	if q.inFlight > 0 {
		limit = q.inFlight
	}
	switch {
	case q.open() && len(q.leases) > 0:
		latest = max(q.hold(), lost) // the probe is awaited
	case q.open() && next < 1<<62:
		latest = max(q.hold(), now)
	case len(q.leases) >= limit:
		latest = lost // full: a result makes room
	case next < 1<<62:
		latest += 100 // the process that looked last was busy
	}
	latest = max(min(latest, max(lost, q.hold())), now)
	if q.paced || q.gate != nil && q.gate.rate > 0 {
		latest += 1100 // the rate limiter's wait, at the least rate
	}
	require(p, q.look <= latest,
		"looked at in %d ms, which must be at most %d: gate %+v, %d waiting, retries %v, leases %v, limit %d", q.look-now, latest-now, q.gate, len(q.waiting), q.retries, q.leases, limit)
}

// checkEvents: every event that was queued is in exactly one place or has one
// outcome; a version may also wait behind an earlier one of its order.
func (p *play) checkEvents() {
	for id, s := range p.notices {
		if n := p.now[s.account].places("\x02"+id) + p.finals[final{id, false}]; n != 1 {
			p.Fatalf("event %s: %d places and %d outcomes", id, p.now[s.account].places("\x02"+id), p.finals[final{id, false}])
		}
	}
	for _, o := range p.orders {
		first := 0 // version that has not had its first attempt
		for sequence := 2; sequence <= o.versions; sequence++ {
			item := o.item(sequence)
			places, finals := p.now[o.vendor.account].places(item), p.finals[final{o.eventID(sequence), false}]
			if finals > 0 {
				p.ended[item] = true
			}
			switch {
			case places+finals > 1:
				p.Fatalf("order %s, version %d: %d places and %d outcomes", o.id, sequence, places, finals)
			case places+finals == 0 && sequence <= o.queued && first == 0:
				p.Fatalf("order %s, version %d is lost", o.id, sequence)
			case places == 1 && !p.ended[item] && first != 0:
				p.Fatalf("order %s: version %d is queued before the first attempt of version %d", o.id, sequence, first)
			}
			if places == 1 && !p.ended[item] {
				first = sequence
			}
		}
	}
	waiting := make(map[string]int) // replays of each event
	for item, id := range p.replays {
		account := delivery.AccountID([]byte(item[:16]))
		n := p.now[account].places(item[16:])
		require(p, n <= 1, "a replay of %s is in %d places", id, n)
		waiting[id] += n
	}
	for id, n := range waiting {
		require(p, n <= 1, "%d replays of %s wait", n, id)
	}
	for id, s := range p.notices {
		require(p, waiting[id] == 0 || p.now[s.account].places("\x02"+id) == 0, "event %s and a replay of it wait", id)
	}
	for id, cycles := range p.cycles {
		require(p, waiting[id]+p.finals[final{id, true}] == cycles, "%d replays of %s: %d wait, %d outcomes", cycles, id, waiting[id], p.finals[final{id, true}])
	}
}

func (p *play) checkGiven() {
	require(p, len(p.given) <= p.grant.Limit, "%d events for a grant of %d", len(p.given), p.grant.Limit)
	for _, d := range p.given {
		q, s := p.now[d.Account], p.vendorOf(d.Account)
		limit := p.grant.InFlight
		if q.inFlight > 0 {
			limit = q.inFlight
		}
		switch {
		case len(q.leases) > min(limit, p.grant.Share):
			p.Fatalf("%d in flight, at most %d or %d", len(q.leases), limit, p.grant.Share)
		case q.hold() > s.ms.Load():
			p.Fatalf("handed out while the endpoint is held for %d ms", q.hold()-s.ms.Load())
		case q.open() && (!p.leasing || len(q.leases) != 1):
			p.Fatalf("%d in flight while the breaker is open, leasing %v", len(q.leases), p.leasing)
		case d.Receiver.URL != s.url || d.Receiver.Secret != s.secret:
			p.Fatalf("leased for %s, registered is %s", d.Receiver.URL, s.url)
		case fmt.Sprint(q.leases[d.item]) != d.token:
			p.Fatalf("token %s, leased until %d", d.token, q.leases[d.item])
		case d.Attempt != p.tries[string(d.Account[:])+d.item]+1:
			p.Fatalf("attempt %d after %d", d.Attempt, p.tries[string(d.Account[:])+d.item])
		case d.Probe && p.before[d.Account].retries[d.item] != d.due.UnixMilli():
			p.Fatalf("probe due at %s", d.due)
		}
		if d.item[0] == eventOrder && d.Attempt == 1 {
			o := p.orderOf(d.Order.ID)
			before := int(delivery.Sequence(d.Version)) - 1
			require(p, before <= 1 || p.ended[o.item(before)] || p.finals[final{o.eventID(before), false}] != 0,
				"order %s: version %d goes before the first attempt of the one before it has ended", d.Order.ID, d.Version)
		}
	}
	p.out = append(p.out, p.given...)
	p.given, p.leasing = nil, false
}

// String is the state of every queue, for who must find out what went wrong.
func (p *play) String() string {
	var b strings.Builder
	for _, s := range p.vendors {
		q := p.now[s.account]
		fmt.Fprintf(&b, "\n%s at %d: gate %+v, look %d, own limit %d, paced %v, waiting %q, retries %v, leases %v, attempts %v",
			s.account, s.ms.Load(), q.gate, q.look, q.inFlight, q.paced, q.waiting, q.retries, q.leases, q.counts)
	}
	return b.String()
}

// final is how an outcome is distinguished in the stream.
type final struct {
	id     string
	replay bool
}

// playedOrder is an order of the play.
type playedOrder struct {
	id       delivery.OrderID
	vendor   *env
	versions int // sequences that it has
	queued   int // the last that was read from the stream
}

func (o *playedOrder) item(sequence int) string {
	return string(binary.BigEndian.AppendUint32(append([]byte{eventOrder}, orderMember(o.id)...), uint32(sequence)))
}

func (o *playedOrder) eventID(sequence int) string {
	return delivery.EventID(o.id, 1<<32|uint64(sequence))
}
