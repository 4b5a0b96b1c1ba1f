package dispatch

import (
	"container/heap"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

const (
	// poolShare is which part of the free places one endpoint may take: with T places and n slow
	// endpoints about T/(1+n/poolShare) stay free (dynamic thresholds, Choudhury and Hahne, 1998).
	poolShare = 16

	loadPage   = 500  // events of one load that leave memory at once
	unsentPage = 500  // events that one batch records as not sent
	spillAfter = 1000 // ms until an event that is not settled goes to the schedule
	saveEvery  = 1000 // ms between two writes of a tally
	clockSlack = 1000 // ms by which the clock may go back without a correction
	reloadWait = 250  // ms until a load that failed is asked for again

	itemOrder = 1 // first byte of the key of an order's version; its sequence is at the end
)

// Scheduler decides which event of a partition is sent when. It is memory only: the partition's
// owner, one goroutine, reads the stream and the schedules for it, sends, and writes what it hands
// out. Times are in ms since 1970 and come from the caller: the earlier of its own clock and
// Redis's. A turn of the owner:
//
//	for each entry of the stream: Add(entry)
//	for each of Need():           Learn(account, facts read); also for what has changed
//	for each of Loads():          Loaded(account, events read), or NotLoaded(account)
//	for each of Next():           send it elsewhere
//	for each result:              Done(item, result)
//	write Effects() with the outcomes of those results and position, all or nothing; Committed()
//	wait for an entry, a result or Wake()
//
// After a takeover the owner also calls Learn for every account with a schedule that is not empty
// or an open breaker, and adds what another owner may have read (Entry.Again) before it sends.
// When a write fails or its result is unknown, it starts with a new Scheduler: an event stays in
// its schedule until its end was written, and one that is not there is after the position, so a
// crash can repeat an attempt and lose none.
type Scheduler struct {
	limits    Limits
	seen      int64 // the latest time
	ahead     int64 // what is due until then may have been planned by a clock that was ahead
	endpoints map[delivery.AccountID]*endpoint
	needs     []delivery.AccountID
	entries   fifo[*Entry] // after the position
	spilt     int          // of them: settled or in the schedule
	// The last entry of which, and of all before, every event has ended or is in a schedule, as was
	// confirmed; empty: none yet. read: how many entries that are; less than 0: not known.
	position string
	read     int64

	ready   fifo[*endpoint] // may send now
	busy    []*endpoint     // have the share that one endpoint may have
	served  bool            // Next had no place for what is ready
	wanted  []*endpoint     // want a load
	dirty   []*endpoint     // have something to be written
	overdue bool            // the figures of one of them
	timers  timers
	unsent  fifo[*Item] // to be recorded as not sent
	batch   batch       // since the last Effects
	written batch       // handed out
	out     bool        // and not confirmed
	effects []Effect
}

// batch is what a confirmation of effects concerns.
type batch struct {
	settled []*Entry // once for each event
	leaving []*Item
}

// Limits are for all endpoints.
type Limits struct {
	InFlight int // sends to an endpoint that has no limit of its own
	Failures int // in a row, which open a breaker
	Memory   int // events of one endpoint in memory; beyond it the newest are in its schedule only
}

// Entry is one of the stream.
type Entry struct {
	ID    string
	Read  int64 // entries of the stream up to it; less than 0: not known
	Items []*Item
	Again bool // another owner may have read it: what is in the schedule keeps its place there

	came int64
	left int // events that are not settled
}

// Ending is what became of an event that was handed out, or that waited.
type Ending byte

// The endings. With Retry and Deferred it goes again at Result.At.
const (
	Delivered   Ending = iota + 1
	Retry              // the attempt failed; a probe or ping keeps to its schedule instead
	Undelivered        // the last attempt failed
	Expired            // not sent, its deadline has passed
	Deferred           // not sent, no attempt; but the order's next version may go
	NotSent            // not sent, for ever
	missed             // a probe or ping failed
)

// Result is of an attempt.
type Result struct {
	Ending Ending
	At     int64 // ms
	Pause  int64 // ms that the endpoint asks to be left alone, at least 1 if it was busy; 0: it does not
	Gone   bool  // it answered 410
	Proven bool  // it accepted a test event
}

// Effect is what is to be written of one endpoint.
type Effect struct {
	Account delivery.AccountID
	Spill   []ledger.Scheduled   // into its schedule, unless they are there
	Put     []ledger.Scheduled   // into it, after Spill
	Remove  []ledger.Unscheduled // from it, after Put
	NotSent []*Item              // to be recorded as not sent: no URL is registered
	ledger.EndpointChange
	Version int64 // of the receiver, which Proven has raised
}

// NewScheduler starts an owner's.
func NewScheduler(l Limits) *Scheduler {
	return &Scheduler{limits: l, endpoints: make(map[delivery.AccountID]*endpoint)}
}

// Add takes the next entry of the stream.
func (s *Scheduler) Add(entry *Entry, now int64) {
	s.Place(entry, now)
	s.Follow(entry, now)
}

// Follow takes an entry's place in the stream, which is known once it was read.
func (s *Scheduler) Follow(entry *Entry, now int64) {
	s.clock(now)
	s.entries.push(entry)
	s.advance()
}

// Place takes an entry that the owner has written itself, before it is read.
func (s *Scheduler) Place(entry *Entry, now int64) {
	now = s.clock(now)
	entry.came, entry.left = now, len(entry.Items)
	for _, it := range entry.Items {
		it.entry = entry
		s.place(it, entry.Again, now)
	}
}

func (s *Scheduler) place(it *Item, again bool, now int64) {
	e := s.endpoints[it.Account]
	if e == nil {
		e = s.create(it.Account)
		s.needs = append(s.needs, it.Account)
	}
	it.endpoint = e
	switch {
	case e.items[it.Key] != nil:
		s.settle(it) // it waits already
	case e.known && e.mutes(it):
		s.settle(it)
	case e.behind || e.held >= s.limits.Memory || again && e.nextDue != never:
		s.fallBehind(e)
		s.shelve(it)
	case e.known && e.URL == "":
		s.refuse(it)
	default:
		e.keep(it)
	}
	s.look(e, now)
}

func (s *Scheduler) create(account delivery.AccountID) *endpoint {
	e := &endpoint{account: account, next: Effect{Account: account}, nextDue: never, slot: -1, items: make(map[string]*Item), tails: make(map[string]*Item)}
	s.endpoints[account] = e
	return e
}

// Need lists accounts whose facts are missing, each once.
func (s *Scheduler) Need() []delivery.AccountID {
	needs := s.needs
	s.needs = nil
	return needs
}

// Learn takes what is stored of an endpoint: all of one that was unknown, else its settings, while its
// breaker, state and figures are kept. What waits for a URL that was deleted is recorded as not sent;
// until then a new one must wait.
func (s *Scheduler) Learn(account delivery.AccountID, f *ledger.Facts, now int64) {
	now = s.clock(now)
	e := s.endpoints[account]
	if e == nil {
		e = s.create(account)
	}
	if e.known {
		s.change(e, f, now)
	} else {
		s.begin(e, f, now)
	}
	if f.ProbeRequest != 0 && e.Breaker.Open { // who asks says that the receiver is repaired
		e.Breaker.Hold = min(e.Breaker.Hold, now)
	}
	s.look(e, now)
}

func (s *Scheduler) begin(e *endpoint, f *ledger.Facts, now int64) {
	e.known, e.Facts, e.stored = true, *f, breaker(f.Breaker)
	s.endMuted(e)
	if e.Waiting > 0 {
		s.mark(e)
	}
	b := e.breaker()
	if b.drawBack(now, 0); b.Hold > now+longPause {
		b.Hold = now
	}
	if f.Scheduled {
		if now < s.ahead {
			e.back, e.ahead = now, s.ahead
		}
		// What came in the meantime goes behind what is in the schedule.
		e.behind, e.nextDue = true, 0
		for _, it := range e.items {
			if it.state == waiting {
				e.release(it)
				s.shelve(it)
			}
		}
	} else if e.nextDue == never {
		b.Forward = 0
	}
	if e.URL == "" {
		s.refuseAll(e)
	}
}

func (s *Scheduler) change(e *endpoint, f *ledger.Facts, now int64) {
	moved := e.Moved != f.Moved
	e.Receiver, e.Moved, e.Limits, e.Muted = f.Receiver, f.Moved, f.Limits, f.Muted
	s.endMuted(e)
	if moved {
		e.Breaker = ledger.Breaker{}
		e.turn(ledger.EndpointHealthy, now)
		if e.URL == "" {
			s.refuseAll(e)
		} else if e.held > e.flying || e.nextDue != never {
			s.startSlowly(e, now)
		}
	}
	if f.Scheduled { // perhaps by somebody else
		e.nextDue = min(e.nextDue, now)
		e.isLoadStale = e.loading
	}
	s.mark(e)
}

func (s *Scheduler) startSlowly(e *endpoint, now int64) {
	if e.early != nil {
		s.forget(e.early) // it is brought forward like the others
	}
	if e.breaker().startSlowly(now); e.nextDue == never && e.parking == 0 {
		e.Breaker.Forward = 0
	}
}

// Loads lists the parts of schedules to be read. Of an account at most one part is being read: the next is listed only
// after Loaded or NotLoaded.
func (s *Scheduler) Loads(now int64) []ledger.ScheduleQuery {
	now = s.clock(now)
	s.sweep(now)
	var loads []ledger.ScheduleQuery
	for _, e := range s.wanted {
		if e.wanted = false; e.loadAt(s.limits.Memory) <= now {
			e.load, e.loading, e.isLoadStale = e.request(now, s.limits.Memory), true, false
			loads = append(loads, e.load.ScheduleQuery)
		}
	}
	s.wanted = s.wanted[:0]
	return loads
}

// Loaded takes all that a load found, in the order of the schedule.
func (s *Scheduler) Loaded(account delivery.AccountID, items []*Item, now int64) {
	now = s.clock(now)
	e := s.endpoints[account]
	e.loading, e.reloadAt = false, 0

	until := e.load.Until
	if e.URL != "" && e.load.moveTo == 0 {
		until = min(until, now) // it was not, perhaps, when the load was asked for
	}

	n, next := 0, int64(never) // due until then, and the first after it
	latest := int64(0)
	var after *Item
found:
	for _, it := range items {
		if it.Due > until {
			after, next = it, it.Due
			break
		}
		n++
		latest = it.Due
		it.endpoint, it.stored = e, true

		switch known := e.items[it.Key]; {
		case known != nil && known.state != leaving && e.load.moveTo > 0:
			s.write(&e.next.Put, known, e.load.moveTo, it.Attempts)
		case known != nil && known.isAskedAgain(it):
			known.askedAgain = true
		case known != nil && known.hasEnded() && !known.stored:
			n = e.load.Limit // it was not known to be scheduled: it is read again when its end is confirmed
			break found
		case known != nil && !known.spilling:
			// Perhaps a replay asks for what waits, or is about to be recorded as not sent: once is enough.
			known.stored, known.ReplayedAt, known.AskedAt = true, it.ReplayedAt, it.AskedAt
		case known == nil && e.mutes(it):
			s.end(it)
		case e.load.moveTo > 0: // also what is written again: a spill does not change its time
			s.park(it, e.load.moveTo, it.Attempts)
		case known == nil && e.URL == "":
			s.refuse(it)
		case known == nil && e.held < s.limits.Memory:
			e.keep(it)
		default: // there is no room, or a later version would overtake this one
			n = e.load.Limit
			break found
		}
	}

	// What the next load begins with.
	complete := n < e.load.Limit
	switch {
	case e.load.moveTo == 0:
		if !complete || e.isLoadStale {
			next = 0
		} else if e.spilling == 0 && e.ahead == 0 {
			e.behind = false
		}
		e.nextDue = next
	case e.load.Until < never:
		if complete && e.load.moveTo == e.back {
			e.ahead = 0
		}
	case complete:
		e.Breaker.Forward = 0
	case e.Breaker.Forward > 0:
		e.Breaker.Forward = latest
	}

	// The first that is not due: it ends if it is muted, and may be sent at once as a probe.
	if after != nil && e.items[after.Key] == nil && e.mutes(after) {
		after.endpoint, after.stored = e, true
		s.end(after)
	} else if e.load.probe && after != nil && e.Breaker.Open && len(e.items) == 0 {
		after.endpoint, after.stored, after.Probe, after.state = e, true, true, waiting
		e.items[after.Key], e.early = after, after
		e.held++
	}

	s.dropPurged(e)
	s.mark(e)
	s.look(e, now)
}

// NotLoaded takes note that what Loads has asked for could not be read. It is asked for again after a moment.
func (s *Scheduler) NotLoaded(account delivery.AccountID, now int64) {
	now = s.clock(now)
	e := s.endpoints[account]
	e.loading, e.reloadAt = false, now+reloadWait
	s.dropPurged(e)
	s.look(e, now)
}

// dropPurged forgets the events that were remembered only because a load was in progress.
func (s *Scheduler) dropPurged(e *endpoint) {
	for _, it := range e.purge {
		s.drop(it)
	}
	e.purge = e.purge[:0]
}

// Next appends what is to be sent now to items, at most free, which are all the free places. It
// goes round the endpoints; the more places are taken, the fewer one of them may have.
func (s *Scheduler) Next(items []*Item, free int, now int64) []*Item {
	now = s.clock(now)
	s.sweep(now)
	for _, e := range s.busy {
		s.ready.push(e)
	}
	s.busy = s.busy[:0]
	share := max(free/poolShare, 1)
	for free > 0 && s.ready.len() > 0 {
		switch e := s.ready.pop(); {
		case e.sendAt(now, s.limits.InFlight) > now:
			e.ready = false
			s.look(e, now)
		case e.flying >= share:
			s.busy = append(s.busy, e)
		default:
			items = append(items, e.take(now))
			free--
			s.ready.push(e)
		}
	}
	s.served = true
	return items
}

// Done takes what became of an event. One that waits may end, too, without having been sent.
func (s *Scheduler) Done(it *Item, r Result, now int64) {
	now = s.clock(now)
	e := it.endpoint
	if it.state != waiting && it.state != flying {
		return
	}
	if it.state == waiting {
		it.Version = e.Version
	}
	if (it.Probe || it.Ping) && (r.Ending == Retry || r.Ending == Undelivered) {
		r.Ending, r.At = missed, it.Due
	}
	if it.Version < e.Moved {
		r.At = now // what failed at an address that has changed goes to the new one
	}
	e.release(it)
	s.served = false
	switch {
	case it.Ping:
	case r.Ending == missed && r.At == it.Due:
		s.forget(it)
	case r.Ending == missed || r.Ending == Deferred:
		s.park(it, r.At, it.Attempts)
	case r.Ending == Retry:
		s.park(it, r.At, it.Attempts+1)
	default:
		s.end(it)
	}
	s.assess(e, it, &r, now)
	if e.held == e.flying && e.nextDue == never && e.parking == 0 {
		e.breaker().endRecovery()
	}
	s.mark(e)
	s.look(e, now)
}

// assess counts a result, and what it says of the receiver if that is still the same.
func (s *Scheduler) assess(e *endpoint, it *Item, r *Result, now int64) {
	sent := r.Ending <= Undelivered || r.Ending == missed
	t := &e.Tally
	t.Turn(now)
	e.counted = true

	switch {
	case r.Ending == Delivered:
		t.OK++
	case sent:
		t.Failed++
	}

	state := ledger.EndpointFailing
	switch {
	case r.Ending == Delivered:
		state = ledger.EndpointHealthy
	case r.Ending == Deferred || r.Ending == NotSent:
		state = ""
	case r.Gone:
		state = ledger.EndpointGone
	case r.Ending == Undelivered || r.Ending == Expired:
		state = ledger.EndpointUnreachable
	}

	switch {
	case it.Ping || r.Ending == missed || r.Ending == Deferred:
	case r.Ending == Delivered:
		t.Delivered++
	case r.Ending == Retry:
		t.Retried++
	case r.Ending == NotSent:
		t.NotSent++
	default:
		t.Undelivered++
	}

	if state == "" || it.Version != e.Version {
		return
	}
	e.note(state, now)

	switch {
	case r.Ending == Delivered:
		if e.Breaker.Open {
			s.startSlowly(e, now)
		} else {
			e.breaker().succeeded(now)
		}
		if r.Proven {
			e.next.Proven = e.Version
			e.Version++
		}
	case sent:
		first := e.nextDue
		if e.due.len() > 0 {
			first = 0
		}
		e.breaker().failed(now, r.Pause, s.limits.Failures, first)
	}
}

// Effects hands out what is to be written; nothing while Committed is awaited. It is valid until
// then.
func (s *Scheduler) Effects(now int64) []Effect {
	now = s.clock(now)
	if s.out {
		return nil
	}
	for ; s.spilt < s.entries.len() && s.entries.at(s.spilt).came+spillAfter <= now; s.spilt++ {
		for _, it := range s.entries.at(s.spilt).Items {
			s.spill(it)
		}
	}
	for n := 0; n < unsentPage && s.unsent.len() > 0; n++ {
		it := s.unsent.pop()
		e := it.endpoint
		e.next.NotSent = append(e.next.NotSent, it)
		e.Tally.Turn(now)
		e.Tally.NotSent++
		e.counted = true
		s.end(it)
	}
	s.effects, s.overdue = s.effects[:0], false
	s.dirty = slices.DeleteFunc(s.dirty, func(e *endpoint) bool {
		if effect, some := e.effect(now); some {
			s.effects = append(s.effects, effect)
		}
		e.dirty = e.unsaved(now)
		s.look(e, now)
		return !e.dirty
	})
	s.batch, s.written, s.out = batch{s.written.settled[:0], s.written.leaving[:0]}, s.batch, true
	return s.effects
}

func (e *endpoint) effect(now int64) (x Effect, some bool) {
	x, e.next = e.next, Effect{Account: e.account}
	x.Version = e.Version
	some = len(x.Spill)+len(x.Put)+len(x.Remove)+len(x.NotSent) > 0 || x.Proven != 0 || x.State != ""
	save := now >= e.saved+saveEvery
	if b := e.breaker().stored(now); b != e.stored && (save || b.turned(e.stored)) {
		e.stored = b
		x.Breaker, some = (*ledger.Breaker)(&e.stored), true
	}
	if (e.counted || e.Waiting > 0) && save {
		e.writtenTally, e.counted, e.saved = e.Tally, false, now
		e.Waiting, _ = e.backlog()
		x.Tally, x.Waiting, some = &e.writtenTally, e.Waiting, true
	}
	return x, some
}

// Committed confirms what Effects handed out. There is nothing for an attempt that failed: see
// Scheduler.
func (s *Scheduler) Committed() {
	for _, entry := range s.written.settled {
		entry.left--
	}
	s.advance()
	for _, it := range s.written.leaving {
		if e := it.endpoint; e.loading {
			e.purge = append(e.purge, it)
		} else {
			s.drop(it)
			s.look(e, s.seen)
		}
	}
	clear(s.written.settled)
	clear(s.written.leaving)
	s.out = false
}

func (s *Scheduler) advance() {
	for s.entries.len() > 0 && s.entries.at(0).left == 0 {
		entry := s.entries.pop()
		s.position, s.read = entry.ID, entry.Read
		s.spilt = max(s.spilt-1, 0)
	}
}

// Leave lets the next effects schedule everything that has not ended.
func (s *Scheduler) Leave(now int64) {
	s.clock(now)
	for _, e := range s.endpoints {
		for _, it := range e.items {
			s.spill(it)
		}
		if e.saved = 0; e.unsaved(s.seen) {
			s.mark(e)
		}
	}
}

// Wake is when the next turn may have something to do if nothing happens, if Next was offered all
// the free places.
func (s *Scheduler) Wake(now int64) int64 {
	now = s.clock(now)
	s.sweep(now)
	at := int64(never)
	if len(s.wanted) > 0 || !s.served && s.ready.len()+len(s.busy) > 0 || (s.unsent.len() > 0 || s.overdue) && !s.out {
		return now
	}
	if len(s.timers) > 0 {
		at = s.timers[0].look
	}
	if s.spilt < s.entries.len() && !s.out {
		at = min(at, s.entries.at(s.spilt).came+spillAfter)
	}
	return max(at, now)
}

// settle ends what the position waits for, with the next batch.
func (s *Scheduler) settle(it *Item) {
	if it.entry != nil {
		s.batch.settled = append(s.batch.settled, it.entry)
		it.entry = nil
	}
}

// spill writes an event to the schedule that stays in memory.
func (s *Scheduler) spill(it *Item) {
	if it.entry == nil || it.state == leaving {
		return
	}
	it.stored = true
	s.write(&it.endpoint.next.Spill, it, it.entry.came, 0)
	s.settle(it)
}

// fallBehind: the schedule shall not hold a version without those before it that are in memory.
func (s *Scheduler) fallBehind(e *endpoint) {
	if !e.behind {
		e.behind = true
		for _, it := range e.items {
			s.spill(it)
		}
	}
}

// write adds an event to one of its endpoint's lists of what is written to the schedule.
func (s *Scheduler) write(to *[]ledger.Scheduled, it *Item, due int64, attempts int) {
	*to = append(*to, ledger.Scheduled{Key: it.Key, Due: due, Attempts: attempts, ReplayedAt: it.ReplayedAt})
	s.mark(it.endpoint)
}

// park moves an event from memory to the schedule, where it is due then after so many attempts.
func (s *Scheduler) park(it *Item, due int64, attempts int) {
	s.write(&it.endpoint.next.Put, it, due, attempts)
	s.parked(it, due, attempts)
}

// shelve moves an event that was never attempted to the schedule. One that is there keeps its place.
func (s *Scheduler) shelve(it *Item) {
	due := int64(0)
	if it.entry != nil {
		due = it.entry.came
	}
	if !it.stored {
		s.spill(it)
	}
	s.parked(it, due, 0)
}

func (s *Scheduler) parked(it *Item, due int64, attempts int) {
	e := it.endpoint
	it.Due = max(due, 1)
	e.nextDue = min(e.nextDue, it.Due)
	e.parking++
	if it.spilling = attempts == 0; it.spilling {
		e.spilling++
	}
	s.settle(it)
	s.leave(it)
}

// end removes an event for ever.
func (s *Scheduler) end(it *Item) {
	s.settle(it)
	it.Due = 0
	if it.stored {
		removed := ledger.Unscheduled{Key: it.Key, ReplayedAt: it.ReplayedAt, AskedAt: it.AskedAt}
		it.endpoint.next.Remove = append(it.endpoint.next.Remove, removed)
		s.mark(it.endpoint)
	}
	if it.stored || it.state == leaving || it.endpoint.loading {
		s.leave(it)
	} else {
		it.state = absent
		delete(it.endpoint.items, it.Key)
		it.readAgain()
	}
}

// leave keeps an event known until what is written about it is confirmed: a load may not show it.
func (s *Scheduler) leave(it *Item) {
	it.state = leaving
	it.endpoint.items[it.Key] = it
	s.batch.leaving = append(s.batch.leaving, it)
}

func (s *Scheduler) drop(it *Item) {
	e := it.endpoint
	if e.items[it.Key] == it {
		delete(e.items, it.Key)
	}
	it.Delivery = nil
	if it.Due == 0 {
		it.readAgain()
		return
	}
	e.parking--
	if it.spilling {
		e.spilling--
	}
	e.nextDue = min(e.nextDue, it.Due)
}

// readAgain lets the schedule be read again for an event that has ended, if a replay has asked for it since its
// last send began. It stands there, due.
func (it *Item) readAgain() {
	if it.askedAgain {
		it.endpoint.nextDue = 0
	}
}

// forget leaves an event to the schedule, where it stands as it is.
func (s *Scheduler) forget(it *Item) {
	e := it.endpoint
	if it.state == waiting {
		e.release(it)
	}
	it.state = absent
	delete(e.items, it.Key)
	e.nextDue = min(e.nextDue, it.Due)
}

// refuse lets an event be recorded as not sent.
func (s *Scheduler) refuse(it *Item) {
	it.state = leaving
	it.endpoint.items[it.Key] = it
	s.unsent.push(it)
	s.mark(it.endpoint)
}

func (s *Scheduler) refuseAll(e *endpoint) {
	for _, it := range e.items {
		if it.state == waiting {
			e.release(it)
			s.refuse(it)
		}
	}
}

// endMuted ends what waits in memory and is muted. What is in the schedule ends when it is read.
func (s *Scheduler) endMuted(e *endpoint) {
	for _, it := range e.items {
		if it.state == waiting && e.mutes(it) {
			e.release(it)
			s.end(it)
		}
	}
}

func (s *Scheduler) mark(e *endpoint) {
	if !e.dirty {
		e.dirty = true
		s.dirty = append(s.dirty, e)
	}
}

// look puts an endpoint where it is found in time: among the ready, those that want a load, and in
// the timers.
func (s *Scheduler) look(e *endpoint, now int64) {
	send, load := e.sendAt(now, s.limits.InFlight), e.loadAt(s.limits.Memory)
	at := int64(never)
	switch {
	case e.ready:
	case send <= now:
		e.ready, s.served = true, false
		s.ready.push(e)
	default:
		at = send
	}
	switch {
	case load > now:
		at = min(at, load)
	case !e.wanted:
		e.wanted = true
		s.wanted = append(s.wanted, e)
	}
	if save := e.saved + saveEvery; e.dirty && save > now {
		at = min(at, save)
	} else if e.dirty && e.unsaved(now) {
		s.overdue = true
	}
	s.timers.set(e, at)
}

// sweep looks at the endpoints whose time has come.
func (s *Scheduler) sweep(now int64) {
	for len(s.timers) > 0 && s.timers[0].look <= now {
		s.look(s.timers[0], now)
	}
}

// clock is the time to work with, which stands while the caller's is a little behind, or behind
// while a batch is written. When the clock was set back, what was planned by the one that was ahead
// is drawn back by as much.
func (s *Scheduler) clock(now int64) int64 {
	if now >= s.seen-clockSlack || s.out {
		s.seen = max(s.seen, now)
		return s.seen
	}
	back := s.seen - now
	s.ahead, s.seen = max(s.ahead, s.seen), now
	for i := range s.entries.len() {
		entry := s.entries.at(i)
		entry.came = min(entry.came, now)
	}
	for _, it := range s.batch.leaving {
		it.Due = drawnBack(it.Due, now, back)
	}
	for _, e := range s.endpoints {
		for _, list := range [][]ledger.Scheduled{e.next.Spill, e.next.Put} {
			for i := range list {
				list[i].Due = drawnBack(list[i].Due, now, back)
			}
		}
		e.breaker().drawBack(now, back)
		e.saved, e.pace.at = min(e.saved, now), min(e.pace.at, now)
		e.reloadAt = min(e.reloadAt, now)
		if !e.empty() {
			s.fallBehind(e)
			if e.ahead == 0 || now < e.back {
				e.back = now
			}
			e.ahead, e.nextDue = s.ahead, min(e.nextDue, s.ahead)
		}
		s.look(e, now)
	}
	return now
}

// timers are endpoints by the time of their next look.
type timers []*endpoint

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].look < t[j].look }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].slot, t[j].slot = i, j }
func (t *timers) Push(e any) {
	e.(*endpoint).slot = len(*t)
	*t = append(*t, e.(*endpoint))
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = nil
	*t, e.slot = (*t)[:last], -1
	return e
}

func (t *timers) set(e *endpoint, at int64) {
	switch {
	case at == never && e.slot >= 0:
		heap.Remove(t, e.slot)
	case at == never || e.slot >= 0 && at == e.look:
	case e.slot >= 0:
		e.look = at
		heap.Fix(t, e.slot)
	default:
		e.look = at
		heap.Push(t, e)
	}
}
