package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// desk is an owner with a few endpoints, whose writes always succeed.
type desk struct {
	*testing.T
	s       *scheduler
	now     int64
	entries int
	plans   map[string]endpointPlan // of the last commit, by account
	refused map[string][]*event     // by it, as not sent, by account
}

func newDesk(t *testing.T, endpoints ...partitions.Facts) *desk {
	t.Parallel()
	d := &desk{T: t, s: newTestScheduler(limits{inFlight: 32, failures: 3, memory: 512}), now: moment}
	for i, f := range endpoints {
		d.s.learn(accountOf(i), &f, d.now)
	}
	return d
}

// healthy is an endpoint that takes whatever comes.
var healthy = partitions.Facts{Receiver: partitions.Receiver{URL: "https://vendor.test/", Version: 1}, Moved: 1}

func limited(limits partitions.EndpointLimits) partitions.Facts {
	f := healthy
	f.Limits = limits
	return f
}

// add adds one entry: an order's version is named by order and sequence, a notice otherwise.
func (d *desk) add(account int, names ...string) []*event {
	d.Helper()
	items := make([]*event, len(names))
	for i, name := range names {
		items[i] = &event{account: accountOf(account), key: keyOf(name), delivery: &partitions.Delivery{}}
	}

	d.entries++
	d.publish(&entry{id: fmt.Sprint(d.entries), events: items})
	return items
}

func (d *desk) publish(e *entry) {
	d.s.acceptEntry(e, d.now)
	d.s.follow(e, d.now)
}

func keyOf(name string) string {
	var order, sequence int
	if n, _ := fmt.Sscanf(name, "%d.%d", &order, &sequence); n == 2 {
		return versionKey(order, sequence)
	}
	return "\x02" + name
}

func (d *desk) next(free int) []*event {
	return d.s.next(nil, places{free: free, forFailing: free}, d.now)
}

// sent demands what is handed out now.
func (d *desk) sent(want ...string) []*event {
	d.Helper()
	items := d.next(1024)
	var got, wanted []string
	for _, it := range items {
		got = append(got, it.key)
	}

	for _, name := range want {
		wanted = append(wanted, keyOf(name))
	}

	if !slices.Equal(got, wanted) {
		d.Fatalf("handed out %q, want %q", got, wanted)
	}

	return items
}

func (d *desk) done(r result, items ...*event) {
	for _, it := range items {
		d.s.finish(it, r, d.now)
	}
}

func (d *desk) commit() {
	d.plans, d.refused = map[string]endpointPlan{}, map[string][]*event{}
	for _, it := range d.s.begin(d.now) {
		d.refused[it.account.String()] = append(d.refused[it.account.String()], it)
	}

	plans := d.s.plan()
	for _, p := range plans {
		d.plans[p.endpoint.account.String()] = p
	}

	d.s.commit(plans)
}

// plan is what the last commit has written of an account's endpoint, notSent what it has recorded as not sent.
func (d *desk) plan(account int) endpointPlan { return d.plans[accountOf(account).String()] }
func (d *desk) notSent(account int) []*event  { return d.refused[accountOf(account).String()] }

// writes are what is written to the schedule, in this order.
func (p endpointPlan) writes() (all []string) {
	list := func(kind string, events []partitions.Scheduled) {
		for _, w := range events {
			all = append(all, fmt.Sprintf("%s %s +%d %d", kind, strings.TrimLeft(w.Key, "\x02"), max(w.Due-moment, 0), w.Attempts))
		}
	}

	list("add", p.added)
	list("move", p.moved)
	list("put", p.rescheduled)
	for _, event := range p.ended {
		all = append(all, "remove "+strings.TrimLeft(event.Key, "\x02"))
	}

	return all
}

func (d *desk) wrote(account int, want ...string) {
	d.Helper()
	if got := d.plan(account).writes(); !slices.Equal(got, want) {
		d.Fatalf("wrote %q, want %q", got, want)
	}
}

// learn tells what is stored of an endpoint now.
func (d *desk) learn(account int, f partitions.Facts) { d.s.learn(accountOf(account), &f, d.now) }

// noted: somebody else has put something into the schedule.
func (d *desk) noted(account int) {
	e := d.endpoint(account)
	d.learn(account, partitions.Facts{Receiver: e.receiver, Moved: e.moved, Limits: e.pace.ownLimits, Muted: e.muted, Scheduled: true})
}

func (d *desk) at(position int) {
	d.Helper()
	want := ""
	if position > 0 {
		want = fmt.Sprint(position)
	}

	if got := d.s.tail.position; got != want {
		d.Fatalf("position %q, want %q", got, want)
	}
}

func (d *desk) endpoint(account int) *endpoint { return d.s.endpoints[accountOf(account)] }

func (d *desk) load(account int, items ...*event) *scheduleRead {
	d.Helper()
	loads := d.s.reads(d.now)
	if len(loads) != 1 || loads[0].Account != accountOf(account) {
		d.Fatalf("loads %+v", loads)
	}

	for _, it := range items {
		it.account = accountOf(account)
		if it.delivery == nil {
			it.delivery = &partitions.Delivery{}
		}
	}

	d.s.loaded(accountOf(account), items, d.now)

	return loads[0]
}

// wakeAt is when there is something to do, a read included.
func (d *desk) wakeAt() int64 {
	if d.s.wantsRead(d.now) {
		return d.now
	}
	return d.s.wakeAt(d.now)
}

func (d *desk) must(ok bool, format string, values ...any) {
	d.Helper()
	if !ok {
		d.Fatalf(format, values...)
	}
}

//rule:webhooks/for-one-order-the-next
func TestScheduler_OrderPerOrder(t *testing.T) {
	for name, end := range map[string]result{
		"delivered": {ending: delivered}, "failed": {ending: retry, at: moment + 10_000}, "given up": {ending: undelivered},
		"late": {ending: expired}, "put off": {ending: deferred, at: moment + 5000}, "not sent": {ending: notSent},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, healthy)
			d.add(0, "1.2", "1.3", "2.2", "1.4")
			first := d.sent("1.2", "2.2")
			d.done(end, first[0])
			d.done(end, d.sent("1.3")...)
			d.sent("1.4")
		})
	}
}

func TestScheduler_LaterVersionGoesWhenOneThatWaitsEnds(t *testing.T) {
	d := newDesk(t, healthy)
	items := d.add(0, "1.2", "1.3", "1.4")
	d.done(result{ending: expired}, items[1]) // the middle one, while it waits
	d.done(result{ending: delivered}, d.sent("1.2")...)
	d.sent("1.4")
}

// Whoever asks for a later version that waits brings it forward; those before it keep their order.
func TestScheduler_EarlierVersionsKeepTheirOrderBehindOneAskedFor(t *testing.T) {
	for name, first := range map[string]string{"the later one ends first": "1.4", "the earlier one ends first": "1.2"} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, healthy)
			d.noted(0)
			var items []*event
			for _, name := range []string{"1.4", "1.2", "1.3"} {
				items = append(items, &event{key: keyOf(name), dueAt: d.now})
			}

			d.load(0, items...)
			d.sent("1.4", "1.2")
			if first == "1.2" {
				slices.Reverse(items[:2])
			}

			d.done(result{ending: delivered}, items[:2]...)
			d.sent("1.3")
			d.done(result{ending: delivered}, items[2])
			d.commit()
			d.must(len(d.endpoint(0).queue.newest) == 0 && !d.endpoint(0).waits(), "something waits")
		})
	}
}

func TestScheduler_PositionAwaitsTheCommit(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0)
	d.at(1)
	d.add(0, "a", "b")
	d.add(0, "c")
	sent := d.sent("a", "b", "c")
	d.done(result{ending: delivered}, sent[0], sent[2])
	d.commit()
	d.at(1)
	d.done(result{ending: retry, at: d.now + 10_000}, sent[1])
	d.at(1)
	d.s.begin(d.now)
	d.s.plan()
	d.at(1) // that plan is discarded
	d.commit()
	d.at(3)
}

func TestScheduler_SchedulesWhatHasNotEndedInASecond(t *testing.T) {
	d := newDesk(t, healthy, limited(partitions.EndpointLimits{InFlight: 1}))
	flying := d.add(0, "a")
	waiting := d.add(1, "b", "1.2", "1.3")
	d.sent("a", "b")
	d.now += 999
	d.commit()
	d.at(0)
	d.must(d.wakeAt() == moment+1000, "woken at +%d", d.wakeAt()-moment)

	d.now++
	d.commit()

	d.wrote(0, "add a +0 0")
	d.must(len(d.plan(1).writes()) == 3, "wrote %+v", d.plan(1).writes())
	d.at(2)
	d.done(result{ending: delivered}, flying...)
	d.commit()
	d.wrote(0, "remove a")
	// It stays in memory.
	d.done(result{ending: delivered}, waiting[0])
	d.sent("1.2")
}

func TestScheduler_FallsBehindAndCatchesUp(t *testing.T) {
	d := newDesk(t, limited(partitions.EndpointLimits{InFlight: 1}))
	d.s.limits.memory = 4
	d.add(0, "1.2", "2.2", "3.2", "4.2")

	d.add(0, "1.3", "a")
	d.commit()
	d.must(len(d.plan(0).writes()) == 6 && d.endpoint(0).inMemory == 4, "wrote %+v", d.plan(0).writes())

	d.at(2) // all of them are in the schedule
	d.add(0, "b")
	for _, name := range []string{"1.2", "2.2"} {
		d.done(result{ending: delivered}, d.sent(name)...)
	}

	d.commit()

	l := d.load(0, &event{key: keyOf("3.2"), dueAt: moment}, &event{key: keyOf("4.2"), dueAt: moment},
		&event{key: keyOf("1.3"), dueAt: moment}, &event{key: keyOf("a"), dueAt: moment})
	d.must(l.From == 0 && l.Until == moment && l.Limit == 4, "load %+v", l)

	d.add(0, "c")
	for _, name := range []string{"3.2", "4.2"} {
		d.done(result{ending: delivered}, d.sent(name)...)
	}

	d.commit()

	d.load(0, &event{key: keyOf("1.3"), dueAt: moment}, &event{key: keyOf("a"), dueAt: moment}, &event{key: keyOf("b"), dueAt: moment}, &event{key: keyOf("c"), dueAt: moment})
	for _, name := range []string{"1.3", "a"} {
		d.done(result{ending: delivered}, d.sent(name)...)
	}

	d.commit()

	d.load(0, &event{key: keyOf("b"), dueAt: moment}, &event{key: keyOf("c"), dueAt: moment})
	d.must(!d.endpoint(0).schedule.holdsEarlier, "still behind")

	d.add(0, "d")
	for _, name := range []string{"b", "c", "d"} {
		d.done(result{ending: delivered}, d.sent(name)...)
	}
}

func TestScheduler_SharesBetweenEndpoints(t *testing.T) {
	d := newDesk(t, healthy, healthy, limited(partitions.EndpointLimits{InFlight: 1}), healthy)
	for i := range 50 {
		d.add(0, fmt.Sprint("x", i))
	}

	d.add(1, "y0", "y1")
	d.add(2, "z0", "z1")
	d.sent("x0", "y0", "z0", "x1", "y1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
		"x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "x31")
	d.must(d.wakeAt() == moment+1000, "woken at +%d", d.wakeAt()-moment)
	d.add(3, "w0", "w1", "w2")
	items := d.next(32) // two are the share of one endpoint
	d.must(len(items) == 2, "handed out %d", len(items))
	d.must(len(d.next(0)) == 0 && len(d.next(48)) == 1, "the share does not grow")
}

func TestScheduler_DeadEndpointsDelayNobody(t *testing.T) {
	const dead = 40
	facts := make([]partitions.Facts, dead+1)
	for i := range facts {
		facts[i] = healthy
	}

	d := newDesk(t, facts...)
	for round := range 400 {
		for i := range dead {
			d.add(i, fmt.Sprintf("%d.%d", i, round+2))
		}

		for _, it := range d.next(512) {
			d.done(result{ending: retry, at: d.now + 10_000}, it)
		}

		d.add(dead, fmt.Sprint("n", round))
		items := d.next(512)
		d.must(slices.ContainsFunc(items, func(it *event) bool { return it.account == accountOf(dead) }), "round %d: a healthy endpoint waits", round)
		for _, it := range items {
			if it.account == accountOf(dead) {
				d.done(result{ending: delivered}, it)
			} else {
				d.done(result{ending: retry, at: d.now + 10_000}, it)
			}
		}

		d.commit()
		d.now += 100
	}

	d.must(d.s.tail.entries.len() <= 11*(dead+1), "%d entries wait for the position", d.s.tail.entries.len())
}

// While a breaker is open, memory has the next probe and nothing else of the endpoint.
func TestScheduler_ProbesOneByOne(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b", "c", "d", "e")
	sent := d.sent("a", "b", "c", "d", "e")
	d.add(0, "f", "g")
	d.done(result{ending: retry, at: d.now + 500}, sent...)
	e := d.endpoint(0)
	d.must(e.pace.breaker.Open && e.pace.breaker.Hold == d.now+1000 && e.pace.breaker.Failures == 5, "breaker %+v", e.pace.breaker)
	d.must(e.inMemory == 0 && e.bytes == 0, "%d events in memory", e.inMemory)
	d.commit()
	d.must(breaker(*d.plan(0).breaker) == e.pace.breaker && d.plan(0).state == partitions.EndpointFailing, "plan %+v", d.plan(0))
	d.must(len(d.plan(0).rescheduled) == 5 && len(e.events) == 0, "wrote %+v", d.plan(0).writes())
	d.must(len(d.s.reads(d.now)) == 0, "the schedule is read while nothing can be sent")
	d.sent()
	d.must(d.wakeAt() == d.now+1000, "woken at +%d", d.wakeAt()-d.now)

	d.now += 1000
	r := d.load(0, &event{key: keyOf("f"), dueAt: moment}, &event{key: keyOf("g"), dueAt: moment})
	d.must(r.Limit == 2, "%d events are read for a probe", r.Limit)
	probe := d.sent("f")
	d.add(0, "h")
	d.sent() // one at a time
	d.must(e.inMemory == 1, "%d events in memory", e.inMemory)
	d.done(result{ending: retry, at: d.now + 80_000_000}, probe...)
	d.commit()
	d.wrote(0, "add h +1000 0", "put f +80001000 1")

	d.now += 2000
	d.load(0, &event{key: keyOf("g"), dueAt: moment}, &event{key: keyOf("a"), dueAt: moment + 500, attempts: 1})
	probe = d.sent("g")
	d.must(!probe[0].isProbe, "a due event is a probe ahead of its time")
	d.done(result{ending: delivered}, probe...)
	d.must(e.pace.breaker == breaker{Rate: 10, Forward: d.now, Since: moment} && e.state == partitions.EndpointHealthy, "breaker %+v", e.pace.breaker)
}

// While a receiver has asked for a pause, its events wait in the schedule.
func TestScheduler_HoldsNothingInMemoryDuringAPause(t *testing.T) {
	d := newDesk(t, limited(partitions.EndpointLimits{InFlight: 1}))
	d.add(0, "a", "b", "c")
	d.done(result{ending: retry, at: d.now + 60_000, pause: 60_000}, d.sent("a")...)
	d.add(0, "d")
	d.commit()
	d.must(d.endpoint(0).inMemory == 0 && len(d.plan(0).added) == 3, "%d events in memory, wrote %+v", d.endpoint(0).inMemory, d.plan(0).writes())
	d.must(d.wakeAt() == d.now+60_000, "woken at +%d", d.wakeAt()-d.now)

	d.now += 60_000
	d.load(0, &event{key: keyOf("b"), dueAt: moment}, &event{key: keyOf("c"), dueAt: moment})
	d.sent("b")
}

func TestScheduler_ProbeAheadOfItsTimeThenPings(t *testing.T) {
	d := newDesk(t, healthy)
	d.s.limits.failures = 1
	d.add(0, "a")
	due := d.now + 10_800_000
	d.done(result{ending: retry, at: due}, d.sent("a")...)
	d.commit()
	d.wrote(0, "put a +10800000 1")

	d.now += 1000
	early := &event{key: keyOf("a"), dueAt: due, attempts: 1}
	d.load(0, early)

	probe := d.sent("a")
	d.must(probe[0] == early && early.isProbe, "probe %+v", probe[0])
	d.done(result{ending: retry}, probe...)
	d.commit()
	d.wrote(0) // it keeps its time
	e := d.endpoint(0)
	d.must(e.pace.breaker.Probes == 1 && e.pace.breaker.Hold == d.now+2000 && e.tally.Failed == 2 && e.tally.Retried == 1 && e.tally.Undelivered == 0, "%+v", *e)

	d.now = due
	d.load(0, &event{key: keyOf("a"), dueAt: due, attempts: 1})
	last := d.sent("a")
	d.must(!last[0].isProbe, "the attempt is a probe")
	d.done(result{ending: undelivered}, last...)
	d.commit()
	d.wrote(0, "remove a")
	d.must(e.state == partitions.EndpointUnreachable, "state %s", e.state)

	d.now = e.pace.breaker.Hold
	ping := d.next(10)
	d.must(len(ping) == 1 && ping[0].isPing && ping[0].dueAt == d.now, "pings %+v", ping)
	d.done(result{ending: retry, at: 1}, ping...)
	d.must(e.tally.Failed == 2 && e.tally.Retried == 1, "%+v", e.tally)

	d.now = e.pace.breaker.Hold
	d.done(result{ending: delivered, proven: true}, d.next(10)...)
	d.commit()
	x := d.plan(0)
	d.must(*x.breaker == partitions.Breaker{} && x.proven == 1 && x.state == partitions.EndpointHealthy, "effect %+v", x)
	d.must(e.tally.Delivered == 0 && e.tally.OK == 1, "%+v", e.tally)
}

// An event that comes while the next probe waits goes to the schedule.
func TestScheduler_EventBehindAProbe(t *testing.T) {
	f := healthy
	f.Breaker, f.Scheduled = partitions.Breaker{Open: true, Since: moment, Hold: moment}, true
	d := newDesk(t, f)
	d.load(0, &event{key: keyOf("a"), dueAt: moment + 5_000_000, attempts: 3})
	d.must(d.endpoint(0).early != nil, "nothing was loaded")
	d.add(0, "b")

	d.done(result{ending: delivered}, d.sent("a")...)
	d.commit()

	d.wrote(0, "add b +0 0", "remove a")
	d.load(0) // nothing is to be brought forward
	d.load(0, &event{key: keyOf("b"), dueAt: moment})
	d.sent("b")
}

func TestScheduler_PingsEndAfterThreeDays(t *testing.T) {
	f := healthy
	f.Breaker = partitions.Breaker{Open: true, Since: moment - pingFor + 1000, Hold: moment + 999}
	d := newDesk(t, f)
	d.must(d.wakeAt() == moment+999, "woken at +%d", d.wakeAt()-moment)
	d.now += 1000
	d.sent()
	d.must(d.wakeAt() == never, "woken at +%d", d.wakeAt()-d.now)
	d.add(0, "a", "b") // the next event is the probe
	d.done(result{ending: delivered}, d.sent("a")...)
	d.must(!d.endpoint(0).pace.breaker.Open, "not healed")
}

// A lone event's attempts come at exactly their times, whatever probes there are in between.
func TestScheduler_LoneEventKeepsItsSchedule(t *testing.T) {
	d := newDesk(t, healthy)
	d.s.limits.failures = 1
	d.add(0, "a")
	item, probes := d.sent("a")[0], 0

	for attempt, gap := range []int64{10_137, 30_137, 60_137, 600_137, 3_600_137} {
		due := d.now + gap
		d.done(result{ending: retry, at: due}, item)
		d.commit()

		for item = nil; item == nil; {
			at := d.wakeAt()
			d.must(at > d.now && at <= due, "attempt %d is due at +%d, woken at +%d", attempt+2, due-d.now, at-d.now)
			d.now = at

			for range d.s.reads(d.now) {
				again := &event{account: accountOf(0), key: keyOf("a"), delivery: &partitions.Delivery{}, dueAt: due, attempts: attempt + 1}
				d.s.loaded(accountOf(0), []*event{again}, d.now)
			}

			for _, it := range d.next(10) {
				if it.isProbe {
					probes++
					d.done(result{ending: undelivered}, it)
				} else {
					item = it
				}
			}

			d.commit()
		}

		d.must(d.now == due && item.attempts == attempt+1, "attempt %d is %+v at +%d", attempt+2, item, d.now-due)
	}

	d.must(probes > 100, "%d probes in 72 minutes", probes)
}

// What was never sent says nothing of the receiver, and uses up no probe.
func TestScheduler_CountsWhatAnEndingSays(t *testing.T) {
	const ping, probe = 1, 2
	failing, up := partitions.EndpointFailing, partitions.EndpointHealthy
	for name, c := range map[string]struct {
		kind     int
		ending   ending
		gone     bool
		tally    partitions.Tally
		state    partitions.EndpointState
		failures uint16
	}{
		"delivered":             {0, delivered, false, partitions.Tally{OK: 1, Delivered: 1}, up, 0},
		"failed":                {0, retry, false, partitions.Tally{Failed: 1, Retried: 1}, failing, 3},
		"given up":              {0, undelivered, false, partitions.Tally{Failed: 1, Undelivered: 1}, partitions.EndpointUnreachable, 3},
		"gone":                  {0, retry, true, partitions.Tally{Failed: 1, Retried: 1}, partitions.EndpointGone, 3},
		"too late":              {0, expired, false, partitions.Tally{Undelivered: 1}, partitions.EndpointUnreachable, 2},
		"put off":               {0, deferred, false, partitions.Tally{}, failing, 2},
		"not sent":              {0, notSent, false, partitions.Tally{NotSent: 1}, failing, 2},
		"a ping, accepted":      {ping, delivered, false, partitions.Tally{OK: 1}, up, 0},
		"a ping, failed":        {ping, retry, false, partitions.Tally{Failed: 1}, failing, 3},
		"a probe, accepted":     {probe, delivered, false, partitions.Tally{OK: 1, Delivered: 1}, up, 0},
		"a probe, failed":       {probe, retry, false, partitions.Tally{Failed: 1}, failing, 3},
		"a probe, that is late": {probe, expired, false, partitions.Tally{Undelivered: 1}, partitions.EndpointUnreachable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy
			f.State, f.Breaker = failing, partitions.Breaker{Failures: 2, Open: c.kind != 0, Since: moment}
			f.Scheduled = c.kind == probe
			d := newDesk(t, f)
			d.s.limits.failures = 10

			switch c.kind {
			case probe:
				d.load(0, &event{key: keyOf("a"), dueAt: moment + 5_000_000, attempts: 1})
			case ping:
			default:
				d.add(0, "a")
			}

			items := d.next(10)
			d.must(len(items) == 1 && items[0].isPing == (c.kind == ping) && items[0].isProbe == (c.kind == probe), "handed out %+v", items)

			before := d.endpoint(0).pace.breaker
			d.done(result{ending: c.ending, at: d.now + 1000, isGone: c.gone}, items...)

			e := d.endpoint(0)
			tally := e.tally
			tally.Hour = 0
			d.must(tally == c.tally && e.state == c.state && e.pace.breaker.Failures == c.failures, "%+v", *e)
			if c.failures == 2 {
				d.must(e.pace.breaker == before, "the breaker was %+v, is %+v", before, e.pace.breaker)
			}
		})
	}
}

func TestScheduler_TheSlowerPaceCounts(t *testing.T) {
	for _, c := range []struct {
		rate float64
		pace int
		want float64
	}{{0, 0, 0}, {0, 7, 7}, {100, 0, 100}, {100, 7, 7}, {3.9, 7, 3.9}, {1, 5000, 1}} {
		p := pace{ownLimits: partitions.EndpointLimits{PerSecond: c.pace}, breaker: breaker{Rate: c.rate}}
		if got := p.rate(); got != c.want {
			t.Errorf("rate %v, setting %d: %v, want %v", c.rate, c.pace, got, c.want)
		}
	}
}

func TestScheduler_ForwardsWhatWasPostponed(t *testing.T) {
	f := healthy
	f.Breaker, f.Scheduled = partitions.Breaker{Open: true, Since: moment}, true
	d := newDesk(t, f)
	d.load(0, &event{key: keyOf("a"), dueAt: moment + 5_000_000, attempts: 3})
	d.done(result{ending: delivered}, d.sent("a")...)
	d.commit()
	items := make([]*event, movePage)
	for i := range items {
		items[i] = &event{key: keyOf(fmt.Sprint("b", i)), dueAt: moment + 6_000_000, attempts: 2}
	}

	l := d.load(0, items...)
	d.must(l.From == moment+1 && l.Until == never && l.Limit == movePage, "load %+v", l)
	d.commit()
	w := d.plan(0).moved
	d.must(len(w) == movePage && w[0] == partitions.Scheduled{Key: keyOf("b0"), Due: moment, Attempts: 2}, "wrote %d: %+v", len(w), w[0])
	l = d.load(0, &event{key: keyOf("c"), dueAt: moment + 7_000_000, attempts: 5})
	d.must(l.From == moment+6_000_000, "load %+v", l)
	d.must(d.endpoint(0).pace.breaker.Forward == 0, "it goes on")
	d.commit()
	d.load(0, items[:3]...)
	d.sent("b0", "b1") // at the pace of the recovery
}

func TestScheduler_ResultsOfAnOlderReceiverSayNothing(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b", "c", "d")
	sent := d.sent("a", "b", "c", "d")
	f := healthy
	f.Version = 2 // a rotation
	d.learn(0, f)
	d.done(result{ending: retry, at: d.now + 80_000}, sent[0])
	f.Version, f.Moved = 3, 3
	d.learn(0, f)
	d.done(result{ending: retry, at: d.now + 80_000, isGone: true}, sent[1])
	d.done(result{ending: undelivered}, sent[2])
	d.done(result{ending: delivered}, sent[3])
	e := d.endpoint(0)
	d.must(e.state == partitions.EndpointHealthy && e.pace.breaker.Failures == 0 && e.tally.Failed == 3, "%+v", *e)
	d.commit()
	d.wrote(0, "put a +80000 1", "put b +0 1") // b goes to the new address now
}

//rule:webhooks/a-changed-url-takes-the
func TestScheduler_NewURLTakesTheBacklogSlowly(t *testing.T) {
	d := newDesk(t, healthy)
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	d.add(0, names...)
	d.done(result{ending: retry, at: d.now + 80_000_000, pause: 60_000}, d.next(48)...)
	e := d.endpoint(0)
	d.must(e.pace.breaker.Open, "breaker %+v", e.pace.breaker)
	f := healthy
	f.Version, f.Moved = 2, 2
	d.learn(0, f)
	d.must(e.pace.breaker == breaker{Rate: 10, Forward: d.now}, "breaker %+v", e.pace.breaker)
	d.commit() // all of them are in the schedule
	d.must(len(e.events) == 0 && len(d.plan(0).rescheduled) == 3, "wrote %+v", d.plan(0).writes())

	moved := d.load(0, &event{key: keyOf("a"), dueAt: moment + 80_000_000, attempts: 1})
	d.must(moved.purpose == toBringForward, "what was postponed is not brought forward")
	d.commit()
	d.load(0, &event{key: keyOf("d"), dueAt: moment}, &event{key: keyOf("e"), dueAt: moment}, &event{key: keyOf("f"), dueAt: moment})
	d.sent("d", "e")
	d.must(d.wakeAt() == d.now+100, "woken at +%d", d.wakeAt()-d.now)
	d.now += 100
	d.sent("f")
}

func TestScheduler_AskedToProbe(t *testing.T) {
	f := healthy
	f.Breaker = partitions.Breaker{Open: true, Since: moment, Hold: moment + 30_000, Probes: 9, Failures: 12}
	d := newDesk(t, f)
	d.sent()
	f.ProbeRequest = 1
	d.learn(0, f)
	d.must(len(d.next(10)) == 1, "no probe")
}

func TestScheduler_DeletedEndpointSendsNothing(t *testing.T) {
	d := newDesk(t, limited(partitions.EndpointLimits{InFlight: 1}))
	d.add(0, "1.2", "1.3", "a", "b")
	flying := d.sent("1.2")
	d.learn(0, partitions.Facts{Receiver: partitions.Receiver{Version: 2}, Moved: 2})
	d.add(0, "c")
	d.must(d.endpoint(0).waits(), "nothing waits")
	d.commit()
	d.must(len(d.notSent(0)) == 4 && d.endpoint(0).tally.NotSent == 4, "not sent %+v", d.notSent(0))
	d.done(result{ending: retry, at: d.now + 10_000}, flying...)
	d.commit()
	d.wrote(0, "put \x0100000000000001\x00\x00\x00\x02 +0 1")
	d.load(0, &event{key: keyOf("1.2"), dueAt: d.now, attempts: 1}, &event{key: keyOf("late"), dueAt: d.now + 80_000_000, attempts: 2})
	d.commit()
	d.must(len(d.notSent(0)) == 2 && len(d.plan(0).writes()) == 2, "effect %+v", d.plan(0))
	d.must(!d.endpoint(0).waits(), "something waits")
	d.at(2)
}

// A replay puts an event into the schedule that is refused and was never there. Its end takes it out again, and it is
// recorded as not sent once.
func TestScheduler_ReplayOfWhatIsRefused(t *testing.T) {
	d := newDesk(t, partitions.Facts{Receiver: partitions.Receiver{Version: 1}, Moved: 1})
	d.add(0, "a")
	d.noted(0)
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, replayedAt: d.now})
	d.commit()
	d.must(len(d.notSent(0)) == 1, "%d events are recorded as not sent", len(d.notSent(0)))
	d.wrote(0, "remove a")
}

// A replay that is asked for once there is a URL again is sent there, though the event is still refused for the former one.
func TestScheduler_ReplayOfWhatIsRefusedForAFormerURL(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a")
	none, again := healthy, healthy
	none.URL, none.Version, none.Moved, none.Deleted = "", 2, 2, 2
	again.Version, again.Moved, again.Deleted = 3, 3, 2
	d.learn(0, none)
	d.learn(0, again)
	d.noted(0)
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, replayedAt: d.now})
	d.commit()
	d.must(len(d.notSent(0)) == 1, "%d events are recorded as not sent", len(d.notSent(0)))
	d.wrote(0)

	d.commit()
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, replayedAt: d.now})
	d.sent("a")
}

// A URL is registered and deleted again while an event is refused, which is recorded as not sent once.
func TestScheduler_DeletedTwiceWhileRefused(t *testing.T) {
	d := newDesk(t, partitions.Facts{Receiver: partitions.Receiver{Version: 1}, Moved: 1})
	d.noted(0)
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, attempts: 1})
	d.learn(0, partitions.Facts{Receiver: partitions.Receiver{Version: 3}, Moved: 3, Deleted: 3})
	d.commit()
	d.must(len(d.notSent(0)) == 1, "%d events are recorded as not sent", len(d.notSent(0)))
	d.wrote(0, "remove a")

	d.commit()
	d.must(len(d.notSent(0)) == 0, "it is recorded as not sent once more")
}

// What an operator has turned off ends without an attempt and without a record, wherever it waits; other
// events of the order go on.
func TestScheduler_EndsWhatIsMuted(t *testing.T) {
	muting := healthy
	muting.Muted = []delivery.EventType{delivery.ETAChanged}
	of := func(name string, kind delivery.EventType) *event {
		return &event{account: accountOf(0), key: keyOf(name), delivery: &partitions.Delivery{Type: kind}}
	}
	add := func(d *desk, items ...*event) {
		d.entries++
		d.publish(&entry{id: fmt.Sprint(d.entries), events: items})
	}

	d := newDesk(t, muting)
	add(d, of("1.2", delivery.StatusChanged), of("1.3", delivery.ETAChanged), of("1.4", delivery.CourierChanged))
	d.done(result{ending: delivered}, d.sent("1.2")...)
	d.done(result{ending: delivered}, d.sent("1.4")...)
	d.commit()
	d.at(1)

	// It is turned off while events wait.
	d.learn(0, healthy)
	slow := limited(partitions.EndpointLimits{InFlight: 1})
	d.learn(0, slow)
	add(d, of("2.2", delivery.StatusChanged), of("2.3", delivery.ETAChanged), of("2.4", delivery.StatusChanged))
	flying := d.sent("2.2")
	d.learn(0, muting)
	d.done(result{ending: delivered}, flying...)
	d.done(result{ending: delivered}, d.sent("2.4")...)
	d.commit()
	d.at(2)

	// It is in the schedule.
	d.noted(0)
	late := of("3.3", delivery.ETAChanged)
	late.dueAt, late.attempts = d.now, 2
	other := of("3.4", delivery.CourierChanged)
	other.dueAt, other.attempts = d.now, 1
	d.load(0, late, other)
	d.done(result{ending: delivered}, d.sent("3.4")...)
	d.commit()
	effect := d.plan(0)
	d.must(slices.Contains(effect.ended, partitions.Unscheduled{Key: keyOf("3.3")}) && len(d.notSent(0)) == 0, "effect %+v", effect)
	d.must(!d.endpoint(0).waits(), "something waits")
}

func TestScheduler_NotSentInPages(t *testing.T) {
	d := newDesk(t)
	for i := range 1200 {
		d.add(0, fmt.Sprint("n", i))
	}

	if need := d.s.takeUnknown(); len(need) != 1 || need[0] != accountOf(0) || d.s.takeUnknown() != nil {
		t.Fatalf("needs %v", need)
	}

	d.sent()
	d.learn(0, partitions.Facts{})
	total := 0
	for range 2 {
		d.commit()
		total += len(d.notSent(0))
	}

	d.must(total == 512, "%d not sent", total) // the others are in the schedule
	d.must(len(d.s.reads(d.now)) == 1, "the schedule is not read")
}

// Redis was not there for a moment, and comes back before this owner has lost its partition.
func TestScheduler_AsksAgainForWhatCouldNotBeLoaded(t *testing.T) {
	facts := healthy
	facts.Scheduled = true
	d := newDesk(t, facts)
	d.must(len(d.s.reads(d.now)) == 1, "the schedule is not read")

	d.s.notLoaded(accountOf(0), d.now, readAgainAfter)

	d.must(len(d.s.reads(d.now)) == 0, "the schedule is read again at once")
	d.must(d.wakeAt() == d.now+250, "it is read again in %d ms", d.wakeAt()-d.now)
	d.now += 250
	d.load(0, &event{key: keyOf("a"), dueAt: d.now})
	d.sent("a")
}

func TestScheduler_EventWaitsOnce(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a")
	d.add(0, "a")
	sent := d.sent("a")
	d.commit()
	d.at(0)
	d.done(result{ending: delivered}, sent...)
	d.commit()
	d.at(2)
	// Now a replay is an event of its own, by way of the schedule.
	d.noted(0)
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, replayedAt: d.now})
	d.done(result{ending: delivered}, d.sent("a")...)
	d.commit()
	d.wrote(0, "remove a")
}

// A replay asks for what waits in memory only, which is sent once, and for what is being sent, which is sent again.
func TestScheduler_ReplayOfWhatWaitsAndOfWhatIsBeingSent(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b")
	sent := d.next(1)
	d.noted(0)
	replayed := d.now
	d.load(0, &event{key: keyOf("a"), dueAt: replayed, replayedAt: replayed}, &event{key: keyOf("b"), dueAt: replayed, replayedAt: replayed})
	d.done(result{ending: delivered}, append(sent, d.sent("b")...)...)
	d.commit()
	d.wrote(0, "remove b")

	d.load(0, &event{key: keyOf("a"), dueAt: replayed, replayedAt: replayed})
	d.done(result{ending: delivered}, d.sent("a")...)
	d.commit()
	d.wrote(0, "remove a")
	d.must(d.endpoint(0).isEmpty() && d.s.tail.count == 0, "something waits")
}

// A replay asks for an event of the schedule whose send has ended, which is not written yet.
func TestScheduler_ReplayOfWhatHasJustEnded(t *testing.T) {
	d := newDesk(t, healthy)
	d.noted(0)
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, attempts: 2})
	d.done(result{ending: delivered}, d.sent("a")...)
	d.noted(0)
	asked := &event{key: keyOf("a"), dueAt: d.now, attempts: 2, askedAt: d.now}
	d.load(0, asked)
	d.commit()
	removed := d.plan(0).ended
	d.must(slices.Equal(removed, []partitions.Unscheduled{{Key: keyOf("a")}}), "removed %+v", removed) // which leaves it there

	again := *asked
	again.state, again.endpoint = unloaded, nil
	d.load(0, &again)
	d.done(result{ending: delivered}, d.sent("a")...)
	d.commit()
	removed = d.plan(0).ended
	d.must(slices.Equal(removed, []partitions.Unscheduled{{Key: keyOf("a"), AskedAt: d.now}}), "removed %+v", removed)
	d.must(d.endpoint(0).isEmpty(), "something waits")
}

// Something is put into the schedule while it is being read: what was read may not have it.
func TestScheduler_ReadsAgainWhatChangedWhileItWasRead(t *testing.T) {
	d := newDesk(t, healthy)
	d.noted(0)
	d.must(len(d.s.reads(d.now)) == 1, "the schedule is not read")
	d.noted(0)
	d.s.loaded(accountOf(0), nil, d.now)
	d.load(0, &event{key: keyOf("a"), dueAt: d.now, replayedAt: d.now})
	d.sent("a")
}

func TestScheduler_PaceHolds(t *testing.T) {
	d := newDesk(t, limited(partitions.EndpointLimits{PerSecond: 50}))
	for i := range 400 {
		d.add(0, fmt.Sprint("n", i))
	}

	var sent []int64
	for len(sent) < 300 {
		for _, it := range d.next(1000) {
			sent = append(sent, d.now)
			d.done(result{ending: delivered}, it)
		}
		d.commit()
		d.must(d.wakeAt() > d.now, "woken at once")
		d.now = d.wakeAt()
	}

	for first := range sent {
		for last := first; last < len(sent); last++ {
			d.must(float64(last-first+1) <= 10+50*float64(sent[last]-sent[first])/1000, "%d events in %d ms", last-first+1, sent[last]-sent[first])
		}
	}

	d.must(sent[299]-moment <= 5900, "300 events took %d ms", sent[299]-moment)
}

func TestScheduler_TallyIsWrittenOnceASecond(t *testing.T) {
	d := newDesk(t, healthy)
	written := 0
	for i := range 100 {
		d.add(0, fmt.Sprint("n", i))
		d.done(result{ending: delivered}, d.next(10)...)
		d.commit()
		if d.plan(0).tally != nil {
			written++
		}
		d.now += 50
	}

	d.must(written == 5, "written %d times in 5 s", written)
	d.now = d.wakeAt()
	d.commit()
	d.must(d.plan(0).tally.Delivered == 100 && d.plan(0).tally.OK == 100, "tally %+v", d.plan(0).tally)
}

// What is in memory only is told as long as there is some, so that nothing counts twice.
func TestScheduler_TellsWhatIsInMemoryOnly(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b", "c")
	sent := d.sent("a", "b", "c")
	d.done(result{ending: delivered}, sent[0])
	d.commit()
	d.must(d.plan(0).tally != nil && d.plan(0).waiting == 2, "%+v", d.plan(0))
	d.now += 1000
	d.commit()
	d.wrote(0, "add b +0 0", "add c +0 0")
	d.must(d.plan(0).tally != nil && d.plan(0).waiting == 0, "%+v", d.plan(0))
	d.now += 1000
	d.commit()
	d.must(len(d.plans) == 0, "%+v", d.plans)
}

func TestScheduler_CorrectsWhatADeadOwnerHasTold(t *testing.T) {
	f := healthy
	f.Waiting = 7
	d := newDesk(t, f)
	d.commit()
	d.must(d.plan(0).tally != nil && d.plan(0).waiting == 0, "%+v", d.plan(0))
}

func TestScheduler_StateGetsWorseOnlyByMore(t *testing.T) {
	for _, c := range []struct{ was, now, want partitions.EndpointState }{
		{"", partitions.EndpointFailing, partitions.EndpointFailing},
		{partitions.EndpointHealthy, partitions.EndpointFailing, partitions.EndpointFailing},
		{partitions.EndpointGone, partitions.EndpointFailing, partitions.EndpointGone},
		{partitions.EndpointUnreachable, partitions.EndpointFailing, partitions.EndpointUnreachable},
		{partitions.EndpointFailing, partitions.EndpointGone, partitions.EndpointGone},
		{partitions.EndpointGone, partitions.EndpointUnreachable, partitions.EndpointUnreachable},
		{partitions.EndpointUnreachable, partitions.EndpointHealthy, partitions.EndpointHealthy},
	} {
		e := endpoint{state: c.was}
		e.note(c.now, 1)
		if e.state != c.want {
			t.Errorf("%s after %s: %s", c.now, c.was, e.state)
		}
	}
}

func TestScheduler_ClockSetBack(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b")
	d.done(result{ending: retry, at: d.now + 600_000, pause: 60_000}, d.next(20)[0])
	d.sent()
	d.now -= 1000 // a small step
	d.must(d.wakeAt() >= moment, "the clock went back")
	d.now = moment - 3_600_000
	d.s.wakeAt(d.now)
	e := d.endpoint(0)
	d.must(e.pace.breaker.Hold == d.now+60_000, "held until +%d", e.pace.breaker.Hold-d.now)
	d.commit()
	d.must(d.plan(0).rescheduled[0].Due == moment-3_600_000+600_000, "wrote %+v", d.plan(0).writes())
	d.must(d.wakeAt() == d.now, "the schedule is not read")
	l := d.load(0)
	d.must(l.From == d.now+1 && l.Until == moment, "load %+v", l)
}

// The URL is deleted, and another one is registered at once: what waited in memory must not go to it.
func TestScheduler_NothingGoesFromADeletedURLToTheNext(t *testing.T) {
	d := newDesk(t, limited(partitions.EndpointLimits{InFlight: 1}))
	d.add(0, "a", "b", "c")
	flying := d.sent("a")

	next := healthy
	next.Receiver, next.Moved, next.Deleted = partitions.Receiver{URL: "https://other.test/", Version: 3}, 3, 2
	d.learn(0, next)

	d.sent()
	d.commit()
	d.must(len(d.notSent(0)) == 2, "%d events are recorded as not sent", len(d.notSent(0)))
	d.add(0, "d")
	d.done(result{ending: retry, at: d.now + 10_000}, flying...)
	d.sent("d")
	d.commit()
	d.must(len(d.notSent(0)) == 1 && len(d.plan(0).rescheduled) == 0, "what was in flight goes to the next URL: %+v", d.plan(0).writes())
}

// What was on its way to the schedule when the URL was deleted must not go to the next one either.
func TestScheduler_NothingArrivesForTheNextURL(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a")
	d.done(result{ending: retry, at: d.now + 10_000}, d.sent("a")...)

	next := healthy
	next.Receiver, next.Moved, next.Deleted = partitions.Receiver{URL: "https://other.test/", Version: 3}, 3, 2
	d.learn(0, next)
	d.commit()
	d.wrote(0, "put a +10000 1")
	d.commit()

	d.wrote(0, "remove a")
	d.must(len(d.notSent(0)) == 1, "%d events are recorded as not sent", len(d.notSent(0)))
}

// Who asks for a test, or sets the same URL again, says that the receiver is repaired.
func TestScheduler_ARequestToProbeLiftsAPause(t *testing.T) {
	d := newDesk(t, limited(partitions.EndpointLimits{InFlight: 1}))
	d.add(0, "a", "b")
	d.done(result{ending: retry, at: d.now + 3_600_000, pause: 3_600_000}, d.sent("a")...)
	d.sent()
	d.commit()
	d.must(d.wakeAt() == d.now+3_600_000, "woken at +%d", d.wakeAt()-d.now)

	asked := healthy
	asked.ProbeRequest = 1
	d.learn(0, asked)

	d.load(0, &event{key: keyOf("b"), dueAt: moment})
	d.sent("b")
}

func BenchmarkScheduler(b *testing.B) {
	const endpoints, batch = 64, 64
	s := newTestScheduler(limits{inFlight: 32, failures: 5, memory: 512})
	for i := range endpoints {
		s.learn(accountOf(i), &healthy, moment)
	}

	items := make([]event, batch)
	entries := make([]entry, batch)
	var out []*event

	b.ReportAllocs()
	now := int64(moment)
	for n := 0; n < b.N; n += batch {
		for i := range batch {
			if n%(16*batch) == 0 {
				items[i].key = versionKey(n%1000+i, 2)
			}
			items[i] = event{account: accountOf(i), key: items[i].key}
			entries[i].id, entries[i].events = "1-1", append(entries[i].events[:0], &items[i])
			s.acceptEntry(&entries[i], now)
			s.follow(&entries[i], now)
		}

		s.reads(now)
		out = s.next(out[:0], places{free: 1024, forFailing: 512}, now)
		if len(out) != batch {
			b.Fatalf("handed out %d", len(out))
		}

		for _, it := range out {
			s.finish(it, result{ending: delivered}, now)
		}

		s.begin(now)
		s.commit(s.plan())
		now += 5
	}
}
