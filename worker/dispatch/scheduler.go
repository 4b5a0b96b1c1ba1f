package dispatch

import (
	"container/heap"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

const (
	// poolShare is which part of the free places one endpoint may take: with T places and n slow
	// endpoints about T/(1+n/poolShare) stay free (dynamic thresholds, Choudhury and Hahne, 1998).
	poolShare = 16

	loadPage   = 500    // events of one load that leave memory at once
	unsentPage = 500    // events that one batch records as not sent
	spillAfter = 1000   // ms until an event that is not settled goes to the schedule
	saveEvery  = 1000   // ms between two writes of a tally
	idleAfter  = 60_000 // ms until an endpoint without events is forgotten
	clockSlack = 1000   // ms by which the clock may go back without a correction

	itemOrder = 1 // first byte of the key of an order's version; its sequence is at the end
)

// Scheduler decides which event of a partition is sent when. It is memory only: the partition's
// owner, one goroutine, reads the stream and the schedules for it, sends, and writes what it hands
// out. Times are in ms since 1970 and come from the caller: the earlier of its own clock and
// Redis's. A turn of the owner:
//
//	for each entry of the stream: Add(entry)
//	for each of Need():           Learn(account, facts read)
//	for each of Loads():          Loaded(account, events read)
//	for each of Next():           send it elsewhere
//	for each result:              Done(item, result)
//	write Effects() with the outcomes of those results and Position(), all or nothing; Committed()
//	wait for an entry, a result or Wake()
//
// After a takeover the owner also calls Learn for every account with a schedule that is not empty
// or an open breaker, and adds what another owner may have read (Entry.Again) before it sends.
// When a write fails or its result is unknown, it starts with a new Scheduler: an event stays in
// its schedule until its end was written, and one that is not there is behind the position, so a
// crash can repeat an attempt and lose none.
type Scheduler struct {
	limits    Limits
	seen      int64 // the latest time
	ahead     int64 // what is due until then may have been planned by a clock that was ahead
	endpoints map[delivery.AccountID]*endpoint
	needs     []delivery.AccountID
	entries   fifo[*Entry] // after the position
	spilt     int          // of them: settled or in the schedule
	position  string
	read      int64 // entries up to it

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

// Load asks for a part of an endpoint's schedule: events due from From to Until, at most Limit of
// the first, and the first one after Until.
type Load struct {
	Account     delivery.AccountID
	From, Until int64
	Limit       int
	Probe       bool // the one after Until may be sent at once, so it needs its payload

	moveTo int64 // what is found becomes due then; 0: it is taken into memory
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

// WriteKind is how an event in a schedule is changed.
type WriteKind byte

// The kinds of writes.
const (
	Put   WriteKind = iota + 1 // due at Due, with so many attempts
	Spill                      // as Put, unless it is there
	Remove
)

// Write changes one event in a schedule.
type Write struct {
	Kind       WriteKind
	Key        string
	Due        int64 // ms
	Attempts   int   // made
	ReplayedAt int64 // ms; 0: no replay
}

// Effect is what is to be written of one endpoint. Writes are in order.
type Effect struct {
	Account    delivery.AccountID
	Writes     []Write
	NotSent    []*Item              // to be recorded as not sent: no URL is registered
	Breaker    *Breaker             // nil: as it was; the zero value: nothing is held back
	Tally      *Tally               // nil: as it was
	State      ledger.EndpointState // empty: as it was
	StateSince int64
	Proven     bool  // the newest secret is proven, which raised the version
	Version    int64 // of the receiver
	Waiting    int   // events in memory only
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
	e.active, it.endpoint = now, e
	switch {
	case e.items[it.Key] != nil:
		s.settle(it) // it waits already
	case e.behind || e.held >= s.limits.Memory || again && e.nextDue != never:
		s.fallBehind(e)
		s.park(it, Write{Kind: Spill, Due: now})
	case e.known && !e.Registered:
		s.refuse(it)
	default:
		e.keep(it)
	}
	s.look(e, now)
}

func (s *Scheduler) create(account delivery.AccountID) *endpoint {
	e := &endpoint{account: account, nextDue: never, slot: -1, items: make(map[string]*Item), tails: make(map[string]*Item)}
	s.endpoints[account] = e
	return e
}

// Need lists accounts whose facts are missing, each once.
func (s *Scheduler) Need() []delivery.AccountID {
	needs := s.needs
	s.needs = nil
	return needs
}

// Learn takes what is stored of an endpoint that was unknown.
func (s *Scheduler) Learn(account delivery.AccountID, f Facts, now int64) {
	now = s.clock(now)
	e := s.endpoints[account]
	if e == nil {
		e = s.create(account)
	}
	if e.known {
		return
	}
	e.known, e.Facts, e.stored, e.active = true, f, f.Breaker, now
	if e.waiting = f.InMemory; e.waiting > 0 {
		s.mark(e)
	}
	b := &e.Breaker
	if b.drawBack(now, 0); b.Hold > now+longPause {
		b.Hold = now
	}
	if f.Waiting {
		if now < s.ahead {
			e.back, e.ahead = now, s.ahead
		}
		// What came in the meantime goes behind what is in the schedule.
		e.behind, e.nextDue = true, 0
		for _, it := range e.items {
			if it.state == waiting {
				e.release(it)
				s.park(it, Write{Kind: Spill})
			}
		}
	} else if e.nextDue == never {
		b.Forward = 0
	}
	if !f.Registered {
		s.refuseAll(e)
	}
	s.look(e, now)
}

// Changed takes new settings of an endpoint; its breaker, state and figures are kept. moved: the
// URL was changed, set or deleted. probe: who asks says that the receiver is mended. What waits for
// a URL that was deleted is recorded as not sent; until then a new one must wait (Waits).
func (s *Scheduler) Changed(account delivery.AccountID, f Facts, moved, probe bool, now int64) {
	s.Learn(account, f, now)
	now = s.clock(now)
	e := s.endpoints[account]
	b := &e.Breaker
	e.Registered, e.Version, e.Moved, e.InFlight, e.Pace, e.active = f.Registered, f.Version, f.Moved, f.InFlight, f.Pace, now
	if moved {
		*b = Breaker{}
		e.State, e.StateSince, e.stateChanged = ledger.EndpointHealthy, now, true
		if !e.Registered {
			s.refuseAll(e)
		} else if e.held > e.flying || e.nextDue != never {
			s.startSlowly(e, now)
		}
	}
	if probe && b.Open {
		b.Hold = min(b.Hold, now)
	}
	s.mark(e)
	s.look(e, now)
}

func (s *Scheduler) startSlowly(e *endpoint, now int64) {
	if e.early != nil {
		s.forget(e.early) // it is brought forward like the others
	}
	if e.Breaker.startSlowly(now); e.nextDue == never && e.parking == 0 {
		e.Breaker.Forward = 0
	}
}

// Waits reports whether anything waits for the endpoint or is being sent.
func (s *Scheduler) Waits(account delivery.AccountID) bool {
	e := s.endpoints[account]
	return e != nil && (!e.empty() || e.flying > 0)
}

// Backlogs calls do for every endpoint for which something waits or is being sent.
func (s *Scheduler) Backlogs(do func(Backlog)) {
	for account, e := range s.endpoints {
		if !e.empty() || e.flying > 0 {
			b := Backlog{Account: account, State: e.State, Open: e.Breaker.Open, Scheduled: e.nextDue != never, Memory: e.unscheduled()}
			for _, it := range e.items {
				b.Scheduled = b.Scheduled || it.stored
			}
			do(b)
		}
	}
}

// Backlog is what waits for an endpoint, or is being sent.
type Backlog struct {
	Account   delivery.AccountID
	State     ledger.EndpointState
	Open      bool // its breaker
	Memory    int  // events that are not in its schedule
	Scheduled bool // others may be
}

// Known reports whether an event is in memory; one that is loaded then needs no payload.
func (s *Scheduler) Known(account delivery.AccountID, key string) bool {
	e := s.endpoints[account]
	return e != nil && e.items[key] != nil
}

// Loads lists the schedules to be read, each until it was given to Loaded.
func (s *Scheduler) Loads(now int64) []Load {
	now = s.clock(now)
	s.sweep(now)
	var loads []Load
	for _, e := range s.wanted {
		if e.wanted = false; e.loadAt(s.limits.Memory) <= now {
			e.load, e.loading = e.request(now, s.limits.Memory), true
			loads = append(loads, e.load)
		}
	}
	s.wanted = s.wanted[:0]
	return loads
}

// Loaded takes all that a load found, in the order of the schedule.
func (s *Scheduler) Loaded(account delivery.AccountID, items []*Item, now int64) {
	now = s.clock(now)
	e := s.endpoints[account]
	e.loading, e.active = false, now
	until := e.load.Until
	if e.Registered && e.load.moveTo == 0 {
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
			s.write(known, Write{Kind: Put, Due: e.load.moveTo, Attempts: it.Attempts})
		case known != nil && known.state == leaving && known.Due == 0 && !known.stored:
			n = e.load.Limit // somebody asks again for what has just ended
			break found
		case known != nil && !known.spilling:
			if !known.stored && known.state != leaving { // somebody asks again for what waits: once is enough
				known.stored, known.ReplayedAt = true, it.ReplayedAt
			}
		case e.load.moveTo > 0: // also what is written again: a spill does not change its time
			s.park(it, Write{Kind: Put, Due: e.load.moveTo, Attempts: it.Attempts})
		case known == nil && !e.Registered:
			s.refuse(it)
		case known == nil && e.held < s.limits.Memory:
			e.keep(it)
		default: // there is no room, or a later version would overtake this one
			n = e.load.Limit
			break found
		}
	}
	complete := n < e.load.Limit
	switch {
	case e.load.moveTo == 0:
		if !complete {
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
	if e.load.Probe && after != nil && e.Breaker.Open && len(e.items) == 0 {
		after.endpoint, after.stored, after.Probe, after.state = e, true, true, waiting
		e.items[after.Key], e.early = after, after
		e.held++
	}
	for _, it := range e.purge {
		s.drop(it)
	}
	e.purge = e.purge[:0]
	s.mark(e)
	s.look(e, now)
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
	e.active, s.served = now, false
	switch {
	case it.Ping:
	case r.Ending == missed && r.At == it.Due:
		s.forget(it)
	case r.Ending == missed || r.Ending == Deferred:
		s.park(it, Write{Kind: Put, Due: r.At, Attempts: it.Attempts})
	case r.Ending == Retry:
		s.park(it, Write{Kind: Put, Due: r.At, Attempts: it.Attempts + 1})
	default:
		s.end(it)
	}
	s.assess(e, it, &r, now)
	if e.held == e.flying && e.nextDue == never && e.parking == 0 {
		e.Breaker.endRecovery()
	}
	s.mark(e)
	s.look(e, now)
}

// assess counts a result, and what it says of the receiver if that is still the same.
func (s *Scheduler) assess(e *endpoint, it *Item, r *Result, now int64) {
	sent := r.Ending <= Undelivered || r.Ending == missed
	t := &e.Tally
	t.turn(now)
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
			e.Breaker.succeeded(now)
		}
		if r.Proven {
			e.proven = true
			e.Version++
		}
	case sent:
		first := e.nextDue
		if e.due.len() > 0 {
			first = 0
		}
		e.Breaker.failed(now, r.Pause, s.limits.Failures, first)
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
		e.notSent = append(e.notSent, it)
		e.Tally.turn(now)
		e.Tally.NotSent++
		e.counted = true
		s.end(it)
	}
	s.effects, s.overdue = s.effects[:0], false
	kept := s.dirty[:0]
	for _, e := range s.dirty {
		if effect, some := e.effect(now); some {
			s.effects = append(s.effects, effect)
		}
		if e.dirty = e.unsaved(now); e.dirty {
			kept = append(kept, e)
		}
		s.look(e, now)
	}
	clear(s.dirty[len(kept):])
	s.dirty = kept
	s.batch, s.written, s.out = batch{s.written.settled[:0], s.written.leaving[:0]}, s.batch, true
	return s.effects
}

func (e *endpoint) effect(now int64) (x Effect, some bool) {
	x = Effect{Account: e.account, Writes: e.writes, NotSent: e.notSent, Proven: e.proven, Version: e.Version}
	some = len(e.writes) > 0 || len(e.notSent) > 0 || e.proven
	e.writes, e.notSent, e.proven = nil, nil, false
	if e.stateChanged {
		x.State, x.StateSince, e.stateChanged, some = e.State, e.StateSince, false, true
	}
	save := now >= e.saved+saveEvery
	if b := e.Breaker.stored(now); b != e.stored && (save || b.turned(&e.stored)) {
		e.stored = b
		x.Breaker, some = &e.stored, true
	}
	if (e.counted || e.waiting > 0) && save {
		e.writtenTally, e.counted, e.saved, e.waiting = e.Tally, false, now, e.unscheduled()
		x.Tally, x.Waiting, some = &e.writtenTally, e.waiting, true
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

// Position is the last entry of which, and of all before, every event has ended or is in a
// schedule, as was confirmed; empty: none yet.
func (s *Scheduler) Position() string { return s.position }

// Read is the position as a number of entries; less than 0: not known.
func (s *Scheduler) Read() int64 { return s.read }

// Scheduled says that somebody else has put something into an endpoint's schedule.
func (s *Scheduler) Scheduled(account delivery.AccountID, now int64) {
	now = s.clock(now)
	if e := s.endpoints[account]; e != nil {
		e.nextDue = min(e.nextDue, now)
		s.look(e, now)
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
	s.write(it, Write{Kind: Spill, Due: it.entry.came})
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

func (s *Scheduler) write(it *Item, w Write) {
	w.Key, w.ReplayedAt = it.Key, it.ReplayedAt
	it.endpoint.writes = append(it.endpoint.writes, w)
	s.mark(it.endpoint)
}

// park moves an event from memory to the schedule.
func (s *Scheduler) park(it *Item, w Write) {
	e := it.endpoint
	if w.Kind == Spill && it.entry != nil {
		w.Due = it.entry.came
	}
	if w.Kind != Spill || !it.stored {
		s.write(it, w)
	}
	it.Due = max(w.Due, 1)
	e.nextDue = min(e.nextDue, it.Due)
	e.parking++
	if it.spilling = w.Attempts == 0; it.spilling {
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
		s.write(it, Write{Kind: Remove, Attempts: it.Attempts})
	}
	if it.stored || it.state == leaving || it.endpoint.loading {
		s.leave(it)
	} else {
		it.state = absent
		delete(it.endpoint.items, it.Key)
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
	it.Payload = nil
	if it.Due == 0 {
		return
	}
	e.parking--
	if it.spilling {
		e.spilling--
	}
	e.nextDue = min(e.nextDue, it.Due)
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
	if e.idle(now) {
		at = min(at, e.active+idleAfter)
	}
	s.timers.set(e, at)
}

// sweep looks at the endpoints whose time has come, and forgets the idle ones.
func (s *Scheduler) sweep(now int64) {
	for len(s.timers) > 0 && s.timers[0].look <= now {
		e := s.timers[0]
		if e.idle(now) && e.active+idleAfter <= now {
			s.timers.set(e, never)
			delete(s.endpoints, e.account)
			continue
		}
		s.look(e, now)
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
		for i := range e.writes {
			e.writes[i].Due = drawnBack(e.writes[i].Due, now, back)
		}
		e.Breaker.drawBack(now, back)
		e.active, e.saved, e.pace.at = min(e.active, now), min(e.saved, now), min(e.pace.at, now)
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
