package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// desk is an owner with a few endpoints, whose writes always succeed.
type desk struct {
	*testing.T
	s       *Scheduler
	now     int64
	entries int
	effects map[string]Effect // of the last commit, by account
}

func newDesk(t *testing.T, endpoints ...ledger.Facts) *desk {
	t.Parallel()
	d := &desk{T: t, s: NewScheduler(Limits{InFlight: 32, Failures: 3, Memory: 512}), now: moment}
	for i, f := range endpoints {
		d.s.Learn(accountOf(i), &f, d.now)
	}
	return d
}

// healthy is an endpoint that takes whatever comes.
var healthy = ledger.Facts{Receiver: ledger.Receiver{URL: "https://vendor.test/", Version: 1}, Moved: 1}

func limited(limits ledger.EndpointLimits) ledger.Facts {
	f := healthy
	f.Limits = limits
	return f
}

// add adds one entry: an order's version is named by order and sequence, a notice otherwise.
func (d *desk) add(account int, names ...string) []*Item {
	d.Helper()
	items := make([]*Item, len(names))
	for i, name := range names {
		items[i] = &Item{Account: accountOf(account), Key: keyOf(name)}
	}
	d.entries++
	d.s.Add(&Entry{ID: fmt.Sprint(d.entries), Items: items}, d.now)
	return items
}

func keyOf(name string) string {
	var order, sequence int
	if n, _ := fmt.Sscanf(name, "%d.%d", &order, &sequence); n == 2 {
		return versionKey(order, sequence)
	}
	return "\x02" + name
}

func (d *desk) next(free int) []*Item { return d.s.Next(nil, free, d.now) }

// sent demands what is handed out now.
func (d *desk) sent(want ...string) []*Item {
	d.Helper()
	items := d.next(1024)
	var got, wanted []string
	for _, it := range items {
		got = append(got, it.Key)
	}
	for _, name := range want {
		wanted = append(wanted, keyOf(name))
	}
	if !slices.Equal(got, wanted) {
		d.Fatalf("handed out %q, want %q", got, wanted)
	}
	return items
}

func (d *desk) done(r Result, items ...*Item) {
	for _, it := range items {
		d.s.Done(it, r, d.now)
	}
}

func (d *desk) commit() {
	d.effects = map[string]Effect{}
	for _, x := range d.s.Effects(d.now) {
		d.effects[x.Account.String()] = x
	}
	d.s.Committed()
}

func (d *desk) effect(account int) Effect { return d.effects[accountOf(account).String()] }

// writes are what is written to the schedule, in this order.
func (x Effect) writes() (all []string) {
	list := func(kind string, events []ledger.Scheduled) {
		for _, w := range events {
			all = append(all, fmt.Sprintf("%s %s +%d %d", kind, strings.TrimLeft(w.Key, "\x02"), max(w.Due-moment, 0), w.Attempts))
		}
	}
	list("spill", x.Spill)
	list("put", x.Put)
	for _, event := range x.Remove {
		all = append(all, "remove "+strings.TrimLeft(event.Key, "\x02"))
	}
	return all
}

func (d *desk) wrote(account int, want ...string) {
	d.Helper()
	if got := d.effect(account).writes(); !slices.Equal(got, want) {
		d.Fatalf("wrote %q, want %q", got, want)
	}
}

// learn tells what is stored of an endpoint now.
func (d *desk) learn(account int, f ledger.Facts) { d.s.Learn(accountOf(account), &f, d.now) }

// noted: somebody else has put something into the schedule.
func (d *desk) noted(account int) {
	f := d.endpoint(account).Facts
	f.Scheduled = true
	d.learn(account, f)
}

func (d *desk) at(position int) {
	d.Helper()
	want := ""
	if position > 0 {
		want = fmt.Sprint(position)
	}
	if got := d.s.position; got != want {
		d.Fatalf("position %q, want %q", got, want)
	}
}

func (d *desk) endpoint(account int) *endpoint { return d.s.endpoints[accountOf(account)] }

func (d *desk) load(account int, items ...*Item) ledger.ScheduleQuery {
	d.Helper()
	loads := d.s.Loads(d.now)
	if len(loads) != 1 || loads[0].Account != accountOf(account) {
		d.Fatalf("loads %+v", loads)
	}
	for _, it := range items {
		it.Account = accountOf(account)
	}
	d.s.Loaded(accountOf(account), items, d.now)
	return loads[0]
}

func (d *desk) must(ok bool, format string, values ...any) {
	d.Helper()
	if !ok {
		d.Fatalf(format, values...)
	}
}

//rule:webhooks/for-one-order-the-next
func TestScheduler_OrderPerOrder(t *testing.T) {
	for name, end := range map[string]Result{
		"delivered": {Ending: Delivered}, "failed": {Ending: Retry, At: moment + 10_000}, "given up": {Ending: Undelivered},
		"late": {Ending: Expired}, "put off": {Ending: Deferred, At: moment + 5000}, "not sent": {Ending: NotSent},
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
	d.done(Result{Ending: Expired}, items[1]) // the middle one, while it waits
	d.done(Result{Ending: Delivered}, d.sent("1.2")...)
	d.sent("1.4")
}

// Whoever asks for a later version that waits brings it forward; those before it keep their order.
func TestScheduler_EarlierVersionsKeepTheirOrderBehindOneAskedFor(t *testing.T) {
	for name, first := range map[string]string{"the later one ends first": "1.4", "the earlier one ends first": "1.2"} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, healthy)
			d.noted(0)
			var items []*Item
			for _, name := range []string{"1.4", "1.2", "1.3"} {
				items = append(items, &Item{Key: keyOf(name), Due: d.now})
			}
			d.load(0, items...)
			d.sent("1.4", "1.2")
			if first == "1.2" {
				slices.Reverse(items[:2])
			}
			d.done(Result{Ending: Delivered}, items[:2]...)
			d.sent("1.3")
			d.done(Result{Ending: Delivered}, items[2])
			d.commit()
			d.must(len(d.endpoint(0).tails) == 0 && !d.endpoint(0).waits(), "something waits")
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
	d.done(Result{Ending: Delivered}, sent[0], sent[2])
	d.commit()
	d.at(1)
	d.done(Result{Ending: Retry, At: d.now + 10_000}, sent[1])
	d.at(1)
	d.s.Effects(d.now)
	d.at(1)
	d.must(d.s.Effects(d.now) == nil, "a second batch before the first is confirmed")
	d.s.Committed()
	d.at(3)
}

func TestScheduler_SpillsWhatIsNotSettledInTime(t *testing.T) {
	held := healthy
	held.Breaker = ledger.Breaker{Open: true, Hold: moment + 60_000, Since: moment}
	d := newDesk(t, healthy, held)
	flying := d.add(0, "a")
	d.sent("a")
	d.add(1, "b", "1.2", "1.3")
	d.now += 999
	d.commit()
	d.at(0)
	d.must(d.s.Wake(d.now) == moment+1000, "woken at +%d", d.s.Wake(d.now)-moment)
	d.now++
	d.commit()
	d.wrote(0, "spill a +0 0")
	d.must(len(d.effect(1).writes()) == 3, "wrote %+v", d.effect(1).writes())
	d.at(2)
	d.done(Result{Ending: Delivered}, flying...)
	d.commit()
	d.wrote(0, "remove a")
	// It stays in memory.
	d.now += 60_000
	d.sent("b")
}

func TestScheduler_FallsBehindAndCatchesUp(t *testing.T) {
	d := newDesk(t, limited(ledger.EndpointLimits{InFlight: 1}))
	d.s.limits.Memory = 4
	d.add(0, "1.2", "2.2", "3.2", "4.2")
	d.add(0, "1.3", "a")
	d.commit()
	d.must(len(d.effect(0).writes()) == 6 && d.endpoint(0).held == 4, "wrote %+v", d.effect(0).writes())
	d.at(2) // all of them are in the schedule
	d.add(0, "b")
	for _, name := range []string{"1.2", "2.2"} {
		d.done(Result{Ending: Delivered}, d.sent(name)...)
	}
	d.commit()
	l := d.load(0, &Item{Key: keyOf("3.2"), Due: moment}, &Item{Key: keyOf("4.2"), Due: moment},
		&Item{Key: keyOf("1.3"), Due: moment}, &Item{Key: keyOf("a"), Due: moment})
	d.must(l.From == 0 && l.Until == moment && l.Limit == 4, "load %+v", l)
	d.add(0, "c")
	for _, name := range []string{"3.2", "4.2"} {
		d.done(Result{Ending: Delivered}, d.sent(name)...)
	}
	d.commit()
	d.load(0, &Item{Key: keyOf("1.3"), Due: moment}, &Item{Key: keyOf("a"), Due: moment}, &Item{Key: keyOf("b"), Due: moment}, &Item{Key: keyOf("c"), Due: moment})
	for _, name := range []string{"1.3", "a"} {
		d.done(Result{Ending: Delivered}, d.sent(name)...)
	}
	d.commit()
	d.load(0, &Item{Key: keyOf("b"), Due: moment}, &Item{Key: keyOf("c"), Due: moment})
	d.must(!d.endpoint(0).behind, "still behind")
	d.add(0, "d")
	for _, name := range []string{"b", "c", "d"} {
		d.done(Result{Ending: Delivered}, d.sent(name)...)
	}
}

func TestScheduler_SharesBetweenEndpoints(t *testing.T) {
	d := newDesk(t, healthy, healthy, limited(ledger.EndpointLimits{InFlight: 1}), healthy)
	for i := range 50 {
		d.add(0, fmt.Sprint("x", i))
	}
	d.add(1, "y0", "y1")
	d.add(2, "z0", "z1")
	d.sent("x0", "y0", "z0", "x1", "y1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
		"x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "x31")
	d.must(d.s.Wake(d.now) == moment+1000, "woken at +%d", d.s.Wake(d.now)-moment)
	d.add(3, "w0", "w1", "w2")
	items := d.next(32) // two are the share of one endpoint
	d.must(len(items) == 2, "handed out %d", len(items))
	d.must(len(d.next(0)) == 0 && len(d.next(48)) == 1, "the share does not grow")
}

func TestScheduler_DeadEndpointsDelayNobody(t *testing.T) {
	const dead = 40
	facts := make([]ledger.Facts, dead+1)
	for i := range facts {
		facts[i] = healthy
	}
	d := newDesk(t, facts...)
	for round := range 400 {
		for i := range dead {
			d.add(i, fmt.Sprintf("%d.%d", i, round+2))
		}
		for _, it := range d.next(512) {
			d.done(Result{Ending: Retry, At: d.now + 10_000}, it)
		}
		d.add(dead, fmt.Sprint("n", round))
		items := d.next(512)
		d.must(slices.ContainsFunc(items, func(it *Item) bool { return it.Account == accountOf(dead) }), "round %d: a healthy endpoint waits", round)
		for _, it := range items {
			if it.Account == accountOf(dead) {
				d.done(Result{Ending: Delivered}, it)
			} else {
				d.done(Result{Ending: Retry, At: d.now + 10_000}, it)
			}
		}
		d.commit()
		d.now += 100
	}
	d.must(d.s.entries.len() <= 11*(dead+1), "%d entries wait for the position", d.s.entries.len())
}

func TestScheduler_ProbesByTurns(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b", "c", "d", "e")
	sent := d.sent("a", "b", "c", "d", "e")
	d.add(0, "f", "g")
	d.done(Result{Ending: Retry, At: d.now + 500}, sent...)
	e := d.endpoint(0)
	d.must(e.Breaker.Open && e.Breaker.Hold == d.now+1000 && e.Breaker.Failures == 5, "breaker %+v", e.Breaker)
	d.commit()
	d.must(*d.effect(0).Breaker == e.Breaker && d.effect(0).State == ledger.EndpointFailing, "effect %+v", d.effect(0))
	d.must(len(d.s.Loads(d.now)) == 0, "the schedule is read while nothing can be sent")
	d.sent()
	d.must(d.s.Wake(d.now) == d.now+1000, "woken at +%d", d.s.Wake(d.now)-d.now)
	d.now += 1000
	d.load(0, &Item{Key: keyOf("a"), Due: moment + 500, Attempts: 1}, &Item{Key: keyOf("b"), Due: moment + 500, Attempts: 1})
	probe := d.sent("f")
	d.sent() // one at a time
	d.done(Result{Ending: Retry, At: d.now + 80_000_000}, probe...)
	d.now += 2000
	probe = d.sent("a")
	d.must(probe[0].Attempts == 1 && !probe[0].Probe, "probe %+v", probe[0])
	d.done(Result{Ending: Delivered}, probe...)
	d.must(e.Breaker == ledger.Breaker{Rate: 10, Forward: d.now, Since: moment} && e.State == ledger.EndpointHealthy, "breaker %+v", e.Breaker)
}

func TestScheduler_ProbeAheadOfItsTimeThenPings(t *testing.T) {
	d := newDesk(t, healthy)
	d.s.limits.Failures = 1
	d.add(0, "a")
	due := d.now + 10_800_000
	d.done(Result{Ending: Retry, At: due}, d.sent("a")...)
	d.commit()
	d.wrote(0, "put a +10800000 1")
	d.now += 1000
	early := &Item{Key: keyOf("a"), Due: due, Attempts: 1}
	d.load(0, early)
	probe := d.sent("a")
	d.must(probe[0] == early && early.Probe, "probe %+v", probe[0])
	d.done(Result{Ending: Undelivered}, probe...)
	d.commit()
	d.wrote(0) // it keeps its time
	e := d.endpoint(0)
	d.must(e.Breaker.Probes == 1 && e.Breaker.Hold == d.now+2000 && e.Tally.Failed == 2 && e.Tally.Retried == 1 && e.Tally.Undelivered == 0, "%+v", e.Facts)
	d.now = due
	d.load(0, &Item{Key: keyOf("a"), Due: due, Attempts: 1})
	last := d.sent("a")
	d.must(!last[0].Probe, "the attempt is a probe")
	d.done(Result{Ending: Undelivered}, last...)
	d.commit()
	d.wrote(0, "remove a")
	d.must(e.State == ledger.EndpointUnreachable, "state %s", e.State)
	d.now = e.Breaker.Hold
	ping := d.next(10)
	d.must(len(ping) == 1 && ping[0].Ping && ping[0].Due == d.now, "pings %+v", ping)
	d.done(Result{Ending: Retry, At: 1}, ping...)
	d.must(e.Tally.Failed == 2 && e.Tally.Retried == 1, "%+v", e.Tally)
	d.now = e.Breaker.Hold
	d.done(Result{Ending: Delivered, Proven: true}, d.next(10)...)
	d.commit()
	x := d.effect(0)
	d.must(*x.Breaker == ledger.Breaker{} && x.Proven == 1 && x.Version == 2 && x.State == ledger.EndpointHealthy, "effect %+v", x)
	d.must(e.Tally.Delivered == 0 && e.Tally.OK == 1, "%+v", e.Tally)
}

// A new event takes the place of one that was loaded ahead of its time, and closes the breaker.
func TestScheduler_ProbeThatWasNotNeeded(t *testing.T) {
	f := healthy
	f.Breaker, f.Scheduled = ledger.Breaker{Open: true, Since: moment}, true
	d := newDesk(t, f)
	d.load(0, &Item{Key: keyOf("a"), Due: moment + 5_000_000, Attempts: 3})
	d.must(d.endpoint(0).early != nil, "nothing was loaded")
	d.add(0, "b")
	d.done(Result{Ending: Delivered}, d.sent("b")...)
	d.load(0, &Item{Key: keyOf("a"), Due: moment + 5_000_000, Attempts: 3})
	d.commit()
	d.wrote(0, "put a +0 3")
	d.load(0, &Item{Key: keyOf("a"), Due: moment, Attempts: 3})
	d.sent("a")
}

func TestScheduler_PingsEndAfterThreeDays(t *testing.T) {
	f := healthy
	f.Breaker = ledger.Breaker{Open: true, Since: moment - pingFor + 1000, Hold: moment + 999}
	d := newDesk(t, f)
	d.must(d.s.Wake(d.now) == moment+999, "woken at +%d", d.s.Wake(d.now)-moment)
	d.now += 1000
	d.sent()
	d.must(d.s.Wake(d.now) == never, "woken at +%d", d.s.Wake(d.now)-d.now)
	d.add(0, "a", "b") // the next event is the probe
	d.done(Result{Ending: Delivered}, d.sent("a")...)
	d.must(!d.endpoint(0).Breaker.Open, "not healed")
}

// A lone event's attempts come at exactly their times, whatever probes there are in between.
func TestScheduler_LoneEventKeepsItsSchedule(t *testing.T) {
	d := newDesk(t, healthy)
	d.s.limits.Failures = 1
	d.add(0, "a")
	item, probes := d.sent("a")[0], 0
	for attempt, gap := range []int64{10_137, 30_137, 60_137, 600_137, 3_600_137} {
		due := d.now + gap
		d.done(Result{Ending: Retry, At: due}, item)
		d.commit()
		for item = nil; item == nil; {
			at := d.s.Wake(d.now)
			d.must(at > d.now && at <= due, "attempt %d is due at +%d, woken at +%d", attempt+2, due-d.now, at-d.now)
			d.now = at
			for range d.s.Loads(d.now) {
				d.s.Loaded(accountOf(0), []*Item{{Account: accountOf(0), Key: keyOf("a"), Due: due, Attempts: attempt + 1}}, d.now)
			}
			for _, it := range d.next(10) {
				if it.Probe {
					probes++
					d.done(Result{Ending: Undelivered}, it)
				} else {
					item = it
				}
			}
			d.commit()
		}
		d.must(d.now == due && item.Attempts == attempt+1, "attempt %d is %+v at +%d", attempt+2, item, d.now-due)
	}
	d.must(probes > 100, "%d probes in 72 minutes", probes)
}

// What was never sent says nothing of the receiver, and uses up no probe.
func TestScheduler_CountsWhatAnEndingSays(t *testing.T) {
	const ping, probe = 1, 2
	failing, up := ledger.EndpointFailing, ledger.EndpointHealthy
	for name, c := range map[string]struct {
		kind     int
		ending   Ending
		gone     bool
		tally    ledger.Tally
		state    ledger.EndpointState
		failures uint16
	}{
		"delivered":             {0, Delivered, false, ledger.Tally{OK: 1, Delivered: 1}, up, 0},
		"failed":                {0, Retry, false, ledger.Tally{Failed: 1, Retried: 1}, failing, 3},
		"given up":              {0, Undelivered, false, ledger.Tally{Failed: 1, Undelivered: 1}, ledger.EndpointUnreachable, 3},
		"gone":                  {0, Retry, true, ledger.Tally{Failed: 1, Retried: 1}, ledger.EndpointGone, 3},
		"too late":              {0, Expired, false, ledger.Tally{Undelivered: 1}, ledger.EndpointUnreachable, 2},
		"put off":               {0, Deferred, false, ledger.Tally{}, failing, 2},
		"not sent":              {0, NotSent, false, ledger.Tally{NotSent: 1}, failing, 2},
		"a ping, accepted":      {ping, Delivered, false, ledger.Tally{OK: 1}, up, 0},
		"a ping, failed":        {ping, Retry, false, ledger.Tally{Failed: 1}, failing, 3},
		"a probe, accepted":     {probe, Delivered, false, ledger.Tally{OK: 1, Delivered: 1}, up, 0},
		"a probe, failed":       {probe, Undelivered, false, ledger.Tally{Failed: 1}, failing, 3},
		"a probe, that is late": {probe, Expired, false, ledger.Tally{Undelivered: 1}, ledger.EndpointUnreachable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy
			f.State, f.Breaker = failing, ledger.Breaker{Failures: 2, Open: c.kind != 0, Since: moment}
			f.Scheduled = c.kind == probe
			d := newDesk(t, f)
			d.s.limits.Failures = 10
			switch c.kind {
			case probe:
				d.load(0, &Item{Key: keyOf("a"), Due: moment + 5_000_000, Attempts: 1})
			case ping:
			default:
				d.add(0, "a")
			}
			items := d.next(10)
			d.must(len(items) == 1 && items[0].Ping == (c.kind == ping) && items[0].Probe == (c.kind == probe), "handed out %+v", items)
			before := d.endpoint(0).Breaker
			d.done(Result{Ending: c.ending, At: d.now + 1000, Gone: c.gone}, items...)
			e := d.endpoint(0)
			tally := e.Tally
			tally.Hour = 0
			d.must(tally == c.tally && e.State == c.state && e.Breaker.Failures == c.failures, "%+v", e.Facts)
			if c.failures == 2 {
				d.must(e.Breaker == before, "the breaker was %+v, is %+v", before, e.Breaker)
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
		e := endpoint{Facts: ledger.Facts{Limits: ledger.EndpointLimits{PerSecond: c.pace}, Breaker: ledger.Breaker{Rate: c.rate}}}
		if got := e.rate(); got != c.want {
			t.Errorf("rate %v, setting %d: %v, want %v", c.rate, c.pace, got, c.want)
		}
	}
}

func TestScheduler_ForwardsWhatWasPostponed(t *testing.T) {
	f := healthy
	f.Breaker, f.Scheduled = ledger.Breaker{Open: true, Since: moment}, true
	d := newDesk(t, f)
	d.load(0, &Item{Key: keyOf("a"), Due: moment + 5_000_000, Attempts: 3})
	d.done(Result{Ending: Delivered}, d.sent("a")...)
	d.commit()
	items := make([]*Item, loadPage)
	for i := range items {
		items[i] = &Item{Key: keyOf(fmt.Sprint("b", i)), Due: moment + 6_000_000, Attempts: 2}
	}
	l := d.load(0, items...)
	d.must(l.From == moment+1 && l.Until == never && l.Limit == loadPage, "load %+v", l)
	d.commit()
	w := d.effect(0).Put
	d.must(len(w) == loadPage && w[0] == ledger.Scheduled{Key: keyOf("b0"), Due: moment, Attempts: 2}, "wrote %d: %+v", len(w), w[0])
	l = d.load(0, &Item{Key: keyOf("c"), Due: moment + 7_000_000, Attempts: 5})
	d.must(l.From == moment+6_000_000, "load %+v", l)
	d.must(d.endpoint(0).Breaker.Forward == 0, "it goes on")
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
	d.done(Result{Ending: Retry, At: d.now + 80_000}, sent[0])
	f.Version, f.Moved = 3, 3
	d.learn(0, f)
	d.done(Result{Ending: Retry, At: d.now + 80_000, Gone: true}, sent[1])
	d.done(Result{Ending: Undelivered}, sent[2])
	d.done(Result{Ending: Delivered}, sent[3])
	e := d.endpoint(0)
	d.must(e.State == ledger.EndpointHealthy && e.Breaker.Failures == 0 && e.Tally.Failed == 3, "%+v", e.Facts)
	d.commit()
	d.wrote(0, "put a +80000 1", "put b +0 1") // b goes to the new address now
}

//rule:webhooks/a-changed-url-takes-the
func TestScheduler_NewURLTakesTheBacklogSlowly(t *testing.T) {
	d := newDesk(t, healthy)
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	d.add(0, names...)
	d.done(Result{Ending: Retry, At: d.now + 80_000_000, Pause: 60_000}, d.next(48)...)
	e := d.endpoint(0)
	d.must(e.Breaker.Open, "breaker %+v", e.Breaker)
	f := healthy
	f.Version, f.Moved = 2, 2
	d.learn(0, f)
	d.must(e.Breaker == ledger.Breaker{Rate: 10, Forward: d.now}, "breaker %+v", e.Breaker)
	d.sent("d", "e")
	d.must(d.s.Wake(d.now) == d.now, "the schedule is not read") // what was postponed is brought forward
	d.load(0)
	d.commit()
	d.must(d.s.Wake(d.now) == d.now+100, "woken at +%d", d.s.Wake(d.now)-d.now)
	d.now += 100
	d.sent("f")
}

func TestScheduler_AskedToProbe(t *testing.T) {
	f := healthy
	f.Breaker = ledger.Breaker{Open: true, Since: moment, Hold: moment + 30_000, Probes: 9, Failures: 12}
	d := newDesk(t, f)
	d.sent()
	f.ProbeRequest = 1
	d.learn(0, f)
	d.must(len(d.next(10)) == 1, "no probe")
}

func TestScheduler_DeletedEndpointSendsNothing(t *testing.T) {
	d := newDesk(t, limited(ledger.EndpointLimits{InFlight: 1}))
	d.add(0, "1.2", "1.3", "a", "b")
	flying := d.sent("1.2")
	d.learn(0, ledger.Facts{Receiver: ledger.Receiver{Version: 2}, Moved: 2})
	d.add(0, "c")
	d.must(d.endpoint(0).waits(), "nothing waits")
	d.commit()
	d.must(len(d.effect(0).NotSent) == 4 && d.endpoint(0).Tally.NotSent == 4, "not sent %+v", d.effect(0).NotSent)
	d.done(Result{Ending: Retry, At: d.now + 10_000}, flying...)
	d.commit()
	d.wrote(0, "put \x0100000000000001\x00\x00\x00\x02 +0 1")
	d.load(0, &Item{Key: keyOf("1.2"), Due: d.now, Attempts: 1}, &Item{Key: keyOf("late"), Due: d.now + 80_000_000, Attempts: 2})
	d.commit()
	d.must(len(d.effect(0).NotSent) == 2 && len(d.effect(0).writes()) == 2, "effect %+v", d.effect(0))
	d.must(!d.endpoint(0).waits(), "something waits")
	d.at(2)
}

// What an operator has turned off ends without an attempt and without a record, wherever it waits; other
// events of the order go on.
func TestScheduler_EndsWhatIsMuted(t *testing.T) {
	muting := healthy
	muting.Muted = []delivery.EventType{delivery.ETAChanged}
	of := func(name string, event delivery.EventType) *Item {
		return &Item{Account: accountOf(0), Key: keyOf(name), Delivery: &ledger.Delivery{Type: event}}
	}
	add := func(d *desk, items ...*Item) {
		d.entries++
		d.s.Add(&Entry{ID: fmt.Sprint(d.entries), Items: items}, d.now)
	}

	d := newDesk(t, muting)
	add(d, of("1.2", delivery.StatusChanged), of("1.3", delivery.ETAChanged), of("1.4", delivery.CourierChanged))
	d.done(Result{Ending: Delivered}, d.sent("1.2")...)
	d.done(Result{Ending: Delivered}, d.sent("1.4")...)
	d.commit()
	d.at(1)

	// It is turned off while events wait.
	d.learn(0, healthy)
	slow := limited(ledger.EndpointLimits{InFlight: 1})
	d.learn(0, slow)
	add(d, of("2.2", delivery.StatusChanged), of("2.3", delivery.ETAChanged), of("2.4", delivery.StatusChanged))
	flying := d.sent("2.2")
	d.learn(0, muting)
	d.done(Result{Ending: Delivered}, flying...)
	d.done(Result{Ending: Delivered}, d.sent("2.4")...)
	d.commit()
	d.at(2)

	// It is in the schedule.
	d.noted(0)
	late := of("3.3", delivery.ETAChanged)
	late.Due, late.Attempts = d.now, 2
	other := of("3.4", delivery.CourierChanged)
	other.Due, other.Attempts = d.now, 1
	d.load(0, late, other)
	d.done(Result{Ending: Delivered}, d.sent("3.4")...)
	d.commit()
	effect := d.effect(0)
	d.must(slices.Contains(effect.Remove, ledger.Unscheduled{Key: keyOf("3.3")}) && len(effect.NotSent) == 0, "effect %+v", effect)
	d.must(!d.endpoint(0).waits(), "something waits")
}

func TestScheduler_NotSentInPages(t *testing.T) {
	d := newDesk(t)
	for i := range 1200 {
		d.add(0, fmt.Sprint("n", i))
	}
	if need := d.s.Need(); len(need) != 1 || need[0] != accountOf(0) || d.s.Need() != nil {
		t.Fatalf("needs %v", need)
	}
	d.sent()
	d.learn(0, ledger.Facts{})
	total := 0
	for range 2 {
		d.commit()
		total += len(d.effect(0).NotSent)
	}
	d.must(total == 512, "%d not sent", total) // the others are in the schedule
	d.must(len(d.s.Loads(d.now)) == 1, "the schedule is not read")
}

// Redis was not there for a moment, and comes back before this owner has lost its partition.
func TestScheduler_AsksAgainForWhatCouldNotBeLoaded(t *testing.T) {
	facts := healthy
	facts.Scheduled = true
	d := newDesk(t, facts)
	d.must(len(d.s.Loads(d.now)) == 1, "the schedule is not read")

	d.s.NotLoaded(accountOf(0), d.now)

	d.must(len(d.s.Loads(d.now)) == 0, "the schedule is read again at once")
	d.must(d.s.Wake(d.now) == d.now+250, "it is read again in %d ms", d.s.Wake(d.now)-d.now)
	d.now += 250
	d.load(0, &Item{Key: keyOf("a"), Due: d.now})
	d.sent("a")
}

func TestScheduler_EventWaitsOnce(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a")
	d.add(0, "a")
	sent := d.sent("a")
	d.commit()
	d.at(0)
	d.done(Result{Ending: Delivered}, sent...)
	d.commit()
	d.at(2)
	// Now a replay is an event of its own, by way of the schedule.
	d.noted(0)
	d.load(0, &Item{Key: keyOf("a"), Due: d.now, ReplayedAt: d.now})
	d.done(Result{Ending: Delivered}, d.sent("a")...)
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
	d.load(0, &Item{Key: keyOf("a"), Due: replayed, ReplayedAt: replayed}, &Item{Key: keyOf("b"), Due: replayed, ReplayedAt: replayed})
	d.done(Result{Ending: Delivered}, append(sent, d.sent("b")...)...)
	d.commit()
	d.wrote(0, "remove b")

	d.load(0, &Item{Key: keyOf("a"), Due: replayed, ReplayedAt: replayed})
	d.done(Result{Ending: Delivered}, d.sent("a")...)
	d.commit()
	d.wrote(0, "remove a")
	d.must(d.endpoint(0).empty() && d.s.read == 0, "something waits")
}

// A replay asks for an event of the schedule whose send has ended, which is not written yet.
func TestScheduler_ReplayOfWhatHasJustEnded(t *testing.T) {
	d := newDesk(t, healthy)
	d.noted(0)
	d.load(0, &Item{Key: keyOf("a"), Due: d.now, Attempts: 2})
	d.done(Result{Ending: Delivered}, d.sent("a")...)
	d.noted(0)
	asked := &Item{Key: keyOf("a"), Due: d.now, Attempts: 2, AskedAt: d.now}
	d.load(0, asked)
	d.commit()
	removed := d.effect(0).Remove
	d.must(slices.Equal(removed, []ledger.Unscheduled{{Key: keyOf("a")}}), "removed %+v", removed) // which leaves it there

	again := *asked
	again.state, again.endpoint = absent, nil
	d.load(0, &again)
	d.done(Result{Ending: Delivered}, d.sent("a")...)
	d.commit()
	removed = d.effect(0).Remove
	d.must(slices.Equal(removed, []ledger.Unscheduled{{Key: keyOf("a"), AskedAt: d.now}}), "removed %+v", removed)
	d.must(d.endpoint(0).empty(), "something waits")
}

// Something is put into the schedule while it is being read: what was read may not have it.
func TestScheduler_ReadsAgainWhatChangedWhileItWasRead(t *testing.T) {
	d := newDesk(t, healthy)
	d.noted(0)
	d.must(len(d.s.Loads(d.now)) == 1, "the schedule is not read")
	d.noted(0)
	d.s.Loaded(accountOf(0), nil, d.now)
	d.load(0, &Item{Key: keyOf("a"), Due: d.now, ReplayedAt: d.now})
	d.sent("a")
}

func TestScheduler_PaceHolds(t *testing.T) {
	d := newDesk(t, limited(ledger.EndpointLimits{PerSecond: 50}))
	for i := range 400 {
		d.add(0, fmt.Sprint("n", i))
	}
	var sent []int64
	for len(sent) < 300 {
		for _, it := range d.next(1000) {
			sent = append(sent, d.now)
			d.done(Result{Ending: Delivered}, it)
		}
		d.commit()
		d.must(d.s.Wake(d.now) > d.now, "woken at once")
		d.now = d.s.Wake(d.now)
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
		d.done(Result{Ending: Delivered}, d.next(10)...)
		d.commit()
		if d.effect(0).Tally != nil {
			written++
		}
		d.now += 50
	}
	d.must(written == 5, "written %d times in 5 s", written)
	d.now = d.s.Wake(d.now)
	d.commit()
	d.must(d.effect(0).Tally.Delivered == 100 && d.effect(0).Tally.OK == 100, "tally %+v", d.effect(0).Tally)
}

// What is in memory only is told as long as there is some, so that nothing counts twice.
func TestScheduler_TellsWhatIsInMemoryOnly(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b", "c")
	sent := d.sent("a", "b", "c")
	d.done(Result{Ending: Delivered}, sent[0])
	d.commit()
	d.must(d.effect(0).Tally != nil && d.effect(0).Waiting == 2, "%+v", d.effect(0))
	d.now += 1000
	d.commit()
	d.wrote(0, "spill b +0 0", "spill c +0 0")
	d.must(d.effect(0).Tally != nil && d.effect(0).Waiting == 0, "%+v", d.effect(0))
	d.now += 1000
	d.commit()
	d.must(len(d.effects) == 0, "%+v", d.effects)
}

func TestScheduler_CorrectsWhatADeadOwnerHasTold(t *testing.T) {
	f := healthy
	f.Waiting = 7
	d := newDesk(t, f)
	d.commit()
	d.must(d.effect(0).Tally != nil && d.effect(0).Waiting == 0, "%+v", d.effect(0))
}

func TestScheduler_StateGetsWorseOnlyByMore(t *testing.T) {
	for _, c := range []struct{ was, now, want ledger.EndpointState }{
		{"", ledger.EndpointFailing, ledger.EndpointFailing},
		{ledger.EndpointHealthy, ledger.EndpointFailing, ledger.EndpointFailing},
		{ledger.EndpointGone, ledger.EndpointFailing, ledger.EndpointGone},
		{ledger.EndpointUnreachable, ledger.EndpointFailing, ledger.EndpointUnreachable},
		{ledger.EndpointFailing, ledger.EndpointGone, ledger.EndpointGone},
		{ledger.EndpointGone, ledger.EndpointUnreachable, ledger.EndpointUnreachable},
		{ledger.EndpointUnreachable, ledger.EndpointHealthy, ledger.EndpointHealthy},
	} {
		e := endpoint{Facts: ledger.Facts{State: c.was}}
		if e.note(c.now, 1); e.State != c.want {
			t.Errorf("%s after %s: %s", c.now, c.was, e.State)
		}
	}
}

func TestScheduler_ClockSetBack(t *testing.T) {
	d := newDesk(t, healthy)
	d.add(0, "a", "b")
	d.done(Result{Ending: Retry, At: d.now + 600_000, Pause: 60_000}, d.next(20)[0])
	d.sent()
	d.now -= 1000 // a small step
	d.must(d.s.Wake(d.now) >= moment, "the clock went back")
	d.now = moment - 3_600_000
	d.must(d.s.Wake(d.now) == d.now, "the schedule is not read")
	e := d.endpoint(0)
	d.must(e.Breaker.Hold == d.now+60_000, "held until +%d", e.Breaker.Hold-d.now)
	l := d.load(0)
	d.must(l.From == d.now+1 && l.Until == moment, "load %+v", l)
	d.now += 1000
	d.commit()
	d.must(d.effect(0).Put[0].Due == moment-3_600_000+600_000, "wrote %+v", d.effect(0).writes())
}

func BenchmarkScheduler(b *testing.B) {
	const endpoints, batch = 64, 64
	s := NewScheduler(Limits{InFlight: 32, Failures: 5, Memory: 512})
	for i := range endpoints {
		s.Learn(accountOf(i), &healthy, moment)
	}
	items := make([]Item, batch)
	entries := make([]Entry, batch)
	var out []*Item
	b.ReportAllocs()
	now := int64(moment)
	for n := 0; n < b.N; n += batch {
		for i := range batch {
			if n%(16*batch) == 0 {
				items[i].Key = versionKey(n%1000+i, 2)
			}
			items[i] = Item{Account: accountOf(i), Key: items[i].Key}
			entries[i].ID, entries[i].Items = "1-1", append(entries[i].Items[:0], &items[i])
			s.Add(&entries[i], now)
		}
		s.Loads(now)
		out = s.Next(out[:0], 1024, now)
		if len(out) != batch {
			b.Fatalf("handed out %d", len(out))
		}
		for _, it := range out {
			s.Done(it, Result{Ending: Delivered}, now)
		}
		s.Effects(now)
		s.Committed()
		now += 5
	}
}
