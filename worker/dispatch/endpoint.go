package dispatch

import (
	"math"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Item is an event of an endpoint. One key is in memory at most once.
type Item struct {
	Account    delivery.AccountID
	Key        string // as it stands in the schedule
	Due        int64  // in the schedule, ms; of a ping its time
	Delivery   *ledger.Delivery
	Attempts   int   // made before
	ReplayedAt int64 // as in ledger.Scheduled
	AskedAt    int64 // as in ledger.Scheduled
	// Set by Next.
	Version int64 // of the receiver to be used
	Probe   bool  // ahead of its time in the schedule, which a failure does not change
	Ping    bool  // a test event without a key, in no schedule

	endpoint      *endpoint
	entry         *Entry // nil: settled
	before, after *Item  // versions of its order that wait for their first attempt
	state         itemState
	stored        bool // it stands in the schedule
	bound         bool // to the order of its order's versions
	queued        bool // in fresh or due
	spilling      bool // leaves for the schedule without an attempt
	askedAgain    bool // a replay has asked for it since its last send began
}

// isReplay reports whether a replay has asked for the event, which is recorded of its sends.
func (it *Item) isReplay() bool { return it.ReplayedAt > 0 || it.AskedAt > 0 }

// isAskedAgain reports whether what was read of the schedule says that a replay has asked for the event
// since its last send began.
func (it *Item) isAskedAgain(read *Item) bool {
	hasBegun := it.state == flying || it.hasEnded()
	return hasBegun && (read.ReplayedAt != it.ReplayedAt || read.AskedAt != it.AskedAt)
}

// hasEnded reports whether the event has ended, which is not confirmed yet.
func (it *Item) hasEnded() bool { return it.state == leaving && it.Due == 0 }

type itemState byte

const (
	absent itemState = iota
	waiting
	flying
	leaving // until what is written about it is confirmed, and no load is in progress that may not show it
)

// orderKey is the part of a version's key that names its order.
const orderKey = 15

const never = math.MaxInt64

// endpoint is one account's receiver and what waits for it.
type endpoint struct {
	ledger.Facts // as they were read; the receiver, the limits and what the scheduler writes are kept up to date
	account      delivery.AccountID
	known        bool // Facts are
	items        map[string]*Item
	tails        map[string]*Item // of each order with versions in memory that were never attempted
	fresh        fifo[*Item]      // never attempted
	due          fifo[*Item]      // to be attempted again, and replays
	early        *Item            // the next probe, ahead of its time
	queued       int              // waiting in fresh and due
	held         int              // waiting and in flight
	flying       int              // in flight, with a ping

	behind  bool  // the schedule may hold events never attempted that are not in memory: others go there, too
	nextDue int64 // the schedule's first that is not in memory; early is harmless
	// isLoadStale reports that something was put into the schedule while it was being read.
	isLoadStale bool

	parking  int  // puts to the schedule that are not confirmed
	spilling int  // those of them that were never attempted
	load     load // in progress, if any
	loading  bool
	purge    []*Item // leaving, once the load has ended
	// reloadAt is the time, in ms, before which the schedule is not read, because a load has just failed.
	reloadAt int64
	// What is due after back and until ahead may have been planned by a clock that was ahead: it
	// becomes due at back. ahead 0: nothing.
	back, ahead int64

	pace bucket

	next                 Effect // to be written
	counted              bool
	saved                int64 // when the tally was last written
	stored               breaker
	writtenTally         ledger.Tally
	dirty, ready, wanted bool  // in the scheduler's list of that name
	look                 int64 // place in its timers
	slot                 int   // -1: none
}

// mutes reports whether the account's operator has turned off events of this type.
func (e *endpoint) mutes(it *Item) bool {
	return it.Delivery != nil && slices.Contains(e.Muted, it.Delivery.Type)
}

func (e *endpoint) breaker() *breaker { return (*breaker)(&e.Breaker) }

func (e *endpoint) rate() float64 {
	switch pace := float64(e.Limits.PerSecond); {
	case e.Breaker.Rate == 0:
		return pace
	case pace == 0:
		return e.Breaker.Rate
	default:
		return min(pace, e.Breaker.Rate)
	}
}

// sendAt is from when something may be sent if nothing happens.
func (e *endpoint) sendAt(now int64, limit int) int64 {
	if e.Limits.InFlight > 0 {
		limit = e.Limits.InFlight
	}
	b := &e.Breaker
	switch {
	case !e.known || e.URL == "" || e.flying >= limit || b.Open && e.flying > 0:
		return never
	case b.Open && (e.queued > 0 || e.early != nil || e.pings(max(now, b.Hold))):
		return b.Hold
	case b.Open || e.queued == 0:
		return never
	}
	return max(b.Hold, e.pace.next(now, e.rate()))
}

func (e *endpoint) empty() bool { return len(e.items) == 0 && e.nextDue == never }

// waits reports whether anything waits or is being sent.
func (e *endpoint) waits() bool { return !e.empty() || e.flying > 0 }

// backlog is how many events are in memory only, and whether others may be in the schedule.
func (e *endpoint) backlog() (memory int, scheduled bool) {
	scheduled = e.nextDue != never
	for _, it := range e.items {
		if it.stored {
			scheduled = true
		} else if it.state != leaving {
			memory++
		}
	}
	return memory, scheduled
}

// pings reports whether a test event is the next probe.
func (e *endpoint) pings(at int64) bool {
	return e.Breaker.Open && e.empty() && at < e.Breaker.Since+pingFor
}

// loadAt returns the time from which the schedule is to be read, in ms: loadDue, but not before reloadAt.
func (e *endpoint) loadAt(memory int) int64 {
	return max(e.loadDue(memory), e.reloadAt)
}

// loadDue returns the time from which the schedule would be read if no load had failed, in ms; never if nothing in it
// is needed.
func (e *endpoint) loadDue(memory int) int64 {
	switch {
	case !e.known || e.loading || e.nextDue == never:
		return never
	case e.ahead > 0 || e.Breaker.Forward > 0:
		return 0
	case e.URL == "":
		if len(e.items) < memory {
			return 0
		}
		return never
	case e.held > memory/2: // a load of a few would read as much
		return never
	case e.Breaker.Open && len(e.items) == 0 && e.flying == 0:
		return e.Breaker.Hold // the probe may come ahead of its time
	}
	return max(e.nextDue, e.Breaker.Hold)
}

// load is a part of the schedule that is being read.
type load struct {
	ledger.ScheduleQuery
	probe  bool  // the one after Until may be sent at once
	moveTo int64 // what is found becomes due then; 0: it is taken into memory
}

// request is the load that is wanted now.
func (e *endpoint) request(now int64, memory int) load {
	l := load{ScheduleQuery: ledger.ScheduleQuery{Account: e.account, Until: never, Limit: loadPage + len(e.items),
		Known: func(key string) bool { return e.items[key] != nil }}}
	switch {
	case e.ahead > 0:
		l.From, l.Until, l.moveTo = e.back+1, e.ahead, e.back
	case e.Breaker.Forward > 0:
		l.From, l.moveTo = max(e.Breaker.Forward, now+1), now
	case e.URL != "":
		l.Until, l.Limit, l.probe = now, memory-e.held+len(e.items), e.Breaker.Open
	}
	return l
}

// unsaved reports whether figures wait for their time to be written.
func (e *endpoint) unsaved(now int64) bool {
	return e.counted || e.Waiting > 0 || e.breaker().stored(now) != e.stored
}

// keep takes an event into memory, behind earlier versions of its order.
func (e *endpoint) keep(it *Item) {
	e.items[it.Key] = it
	e.held++
	it.state = waiting
	if it.Attempts > 0 || it.ReplayedAt > 0 {
		e.enqueue(&e.due, it)
		return
	}
	if it.Key[0] == itemOrder && len(it.Key) > orderKey {
		order := it.Key[:orderKey]
		before, after := e.tails[order], (*Item)(nil)
		for before != nil && before.Key > it.Key { // a later one was asked for again, which brought it forward
			before, after = before.before, before
		}
		it.bound, it.before, it.after = true, before, after
		if after == nil {
			e.tails[order] = it
		} else {
			after.before = it
		}
		if before != nil {
			before.after = it
			return
		}
	}
	e.enqueue(&e.fresh, it)
}

func (e *endpoint) enqueue(q *fifo[*Item], it *Item) {
	q.push(it)
	it.queued = true
	e.queued++
}

// release takes an event out of where it waits or out of flight, and lets the next of its order go.
func (e *endpoint) release(it *Item) {
	if it.state == flying {
		e.flying--
	}
	if it.queued {
		it.queued = false
		e.queued--
	}
	if e.queued == 0 {
		e.fresh.clear()
		e.due.clear()
	}
	if it.Ping {
		return
	}
	e.held--
	if e.early == it {
		e.early = nil
	}
	if !it.bound {
		return
	}
	it.bound = false
	before, after := it.before, it.after
	it.before, it.after = nil, nil
	if before != nil {
		before.after = after
	}
	switch order := it.Key[:orderKey]; {
	case after != nil:
		if after.before = before; before == nil && after.state == waiting && !after.queued {
			e.enqueue(&e.fresh, after)
		}
	case before != nil:
		e.tails[order] = before
	default:
		delete(e.tails, order)
	}
}

// pop takes the first that waits; nil: none.
func (e *endpoint) pop(q *fifo[*Item]) *Item {
	for q.len() > 0 {
		if it := q.pop(); it.queued {
			it.queued = false
			e.queued--
			return it
		}
	}
	return nil
}

// take takes the next event to be sent. A probe is by turns one never attempted and one that is due
// again, else the next to be due, else a test event.
func (e *endpoint) take(now int64) *Item {
	first, second := &e.due, &e.fresh
	if !e.Breaker.Open {
		if rate := e.rate(); rate > 0 {
			e.pace.take(now, rate)
		}
	} else if e.Breaker.Probes%2 == 0 {
		first, second = second, first
	}
	it := e.pop(first)
	if it == nil {
		it = e.pop(second)
	}
	if it == nil {
		it, e.early = e.early, nil
	}
	if it == nil {
		it = &Item{Account: e.account, Due: now, Ping: true, endpoint: e}
	}
	it.state, it.Version = flying, e.Version
	e.flying++
	return it
}

// note changes the state; failing is milder than unreachable and gone.
func (e *endpoint) note(state ledger.EndpointState, now int64) {
	worse := state != ledger.EndpointFailing || e.State == "" || e.State == ledger.EndpointHealthy
	if e.State != state && worse {
		e.turn(state, now)
	}
}

func (e *endpoint) turn(state ledger.EndpointState, now int64) {
	e.State, e.StateSince = state, now
	e.next.State, e.next.StateSince = state, now
}
