package dispatch

import (
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

const (
	// poolShare: one endpoint may take the free places divided by it. With T places and n slow endpoints about
	// T/(1+n/poolShare) stay free (dynamic thresholds, Choudhury and Hahne, 1998).
	poolShare = 16

	// unsentPage is how many events one step records as not sent.
	unsentPage = 500
	// loadedAtOnce is how many events of the schedules one read asks for, if it is about several endpoints.
	loadedAtOnce = 512
	// clockSlack is by how much the clock may go back without a correction, in ms.
	clockSlack = 1000
)

// A scheduler decides which event of a partition is sent when. It has no goroutine, no clock and no Redis of its
// own: its caller reads the stream and the schedules for it, sends, and writes what it wants written.
//
//	the stream e ──> acceptEntry, follow ─┐                       ┌─> next ──> sends ──> finish or putBack
//	schedules <── reads, loaded ──────────┤ endpoints, each with  ├─> begin, plan ──> a step ──> commit
//	endpoints ──> learn ──────────────────┘ queue, schedule, pace └─> wakeAt
//
// begin, plan and commit are its parts of what Webhooks, Turn and Plan do by these names.
//
// Times are in ms since 1970 and come from the caller: the earlier of its own clock and Redis's.
//
// An event stays in its schedule until its end is written, and one that is not there is after the webhook position.
// So a crash can repeat an attempt and lose none: whoever takes over begins with a new scheduler.
type scheduler struct {
	limits limits
	memory *memory

	// now is the latest time that the caller has given. wrongUntil is the latest one of a clock that was ahead and
	// has been set back: what is due until then may have been planned by it.
	now, wrongUntil int64

	endpoints map[delivery.AccountID]*endpoint
	unknown   []delivery.AccountID // endpoints that must be read, each once
	tail      tail

	// Endpoints in lists; each is in a list once.
	ready   fifo[*endpoint] // may send now
	waiting []*endpoint     // may send, once there are more places
	wanted  fifo[*endpoint] // want a read of their schedules
	changed []*endpoint     // have something to be written
	alarms  alarms

	// isOffered is set once next was offered all free places, until an endpoint becomes ready or a send ends. To ask it again
	// is of no use before.
	isOffered bool
	// isOverdue is set if the figures of an endpoint must be written.
	isOverdue bool

	// unsent are to be recorded as not sent, page by page. planned counts those of the present page.
	unsent  fifo[*event]
	planned int

	// What the next commit confirms.
	settling    []*entry // each once for every event that has ended, or is scheduled
	unconfirmed []*event // those that are arriving or have ended
}

// limits are for all endpoints.
type limits struct {
	inFlight int // sends to an endpoint that has no limit of its own
	failures int // in a row, which open a breaker
	memory   int // events of one endpoint in memory; beyond it the newest are in its schedule only
}

// ending is what became of an event that next has handed out, or that waited.
type ending byte

// The endings. With retry and deferred the event goes again at result.at.
const (
	delivered   ending = iota + 1
	retry              // the attempt failed; finish makes missed of it for a probe or ping
	undelivered        // the last attempt failed, never a probe or ping
	expired            // not sent, its deadline has passed
	deferred           // not sent, no attempt; but the order's next version may go
	notSent            // not sent, for ever
	missed             // a probe or ping failed, which is no attempt of an event
)

// wasSent reports whether the receiver got a request.
func (e ending) wasSent() bool { return e <= undelivered || e == missed }

// result is how an attempt has ended.
type result struct {
	ending ending
	at     int64 // ms
	pause  int64 // ms that the receiver asks to be left alone, at least 1 if it was busy; 0: it does not
	isGone bool  // it answered 410
	proven bool  // it accepted a test event
}

func newScheduler(l limits, m *memory) *scheduler {
	return &scheduler{limits: l, memory: m, endpoints: make(map[delivery.AccountID]*endpoint)}
}

// acceptEntry takes the events of an entry of the stream. Those that the owner has published come before the entry is read
// back.
func (s *scheduler) acceptEntry(entry *entry, now int64) {
	now = s.clock(now)
	entry.queuedAt, entry.open = now, len(entry.events)
	for _, ev := range entry.events {
		ev.entry = entry
		s.accept(ev, entry.mayBeScheduled, now)
	}
}

// follow takes the place in the stream of an entry that was accepted: the next one that was read.
func (s *scheduler) follow(entry *entry, now int64) {
	s.clock(now)
	s.tail.push(entry)
}

// accept lets a new event wait, in memory if it can.
func (s *scheduler) accept(ev *event, mayBeScheduled bool, now int64) {
	e := s.endpoints[ev.account]
	if e == nil {
		e = s.create(ev.account)
		s.unknown = append(s.unknown, ev.account)
	}

	ev.endpoint = e

	waitsAlready := e.events[ev.key] != nil
	isMuted := e.isKnown && e.mutes(ev)
	followsOthers := e.schedule.holdsEarlier || mayBeScheduled && !e.schedule.isEmpty()
	switch {
	case waitsAlready, isMuted:
		s.settle(ev)
	case followsOthers || !s.hasRoom(e, ev, now):
		s.followSchedule(e)
		s.unload(ev)
	case e.isKnown && e.receiver.URL == "":
		s.refuse(ev)
	default:
		s.queue(ev)
	}

	s.look(e, now)
}

func (s *scheduler) create(account delivery.AccountID) *endpoint {
	e := newEndpoint(account)
	s.endpoints[account] = e
	return e
}

// hasRoom reports whether memory has room for an event.
func (s *scheduler) hasRoom(e *endpoint, ev *event, now int64) bool {
	hasNoReceiver := e.isKnown && e.receiver.URL == ""
	if hasNoReceiver {
		return e.inMemory < s.limits.memory // it is recorded as not sent with one of the next steps
	}
	useful := e.pace.useful(now, s.limits.memory)
	return e.inMemory < useful && s.memory.fits(ev.size(), e.bytes)
}

// takeUnknown returns the endpoints that must be read, each once.
func (s *scheduler) takeUnknown() []delivery.AccountID {
	unknown := s.unknown
	s.unknown = nil
	return unknown
}

// learn takes what is stored of an endpoint: all of one that was unknown, else its settings, while its breaker, state
// and figures are the owner's. It reports false if what was read is older than what was read before, and must
// be read again.
func (s *scheduler) learn(account delivery.AccountID, f *partitions.Facts, now int64) bool {
	now = s.clock(now)
	e := s.endpoints[account]
	if e == nil {
		e = s.create(account)
	}

	switch {
	case !e.isKnown:
		s.meet(e, f, now)
	case f.Version < e.receiver.Version:
		return false
	default:
		s.change(e, f, now)
	}

	if f.ProbeRequest != 0 {
		e.pace.breaker.lift(now) // who asks says that the receiver is repaired
	}

	s.look(e, now)

	return true
}

// meet takes all that is stored of an endpoint that was unknown.
func (s *scheduler) meet(e *endpoint, f *partitions.Facts, now int64) {
	e.isKnown = true
	e.receiver, e.moved, e.deleted, e.muted = f.Receiver, f.Moved, f.Deleted, f.Muted
	e.state, e.since, e.tally, e.waiting = f.State, f.StateSince, f.Tally, f.Waiting
	e.pace.ownLimits, e.pace.breaker, e.storedBreaker = f.Limits, breaker(f.Breaker), breaker(f.Breaker)
	s.endMuted(e)
	if e.waiting > 0 {
		s.markChanged(e)
	}

	b := &e.pace.breaker
	b.drawBack(now, 0)
	if b.Hold > now+longPause { // only a wrong clock can have set it
		b.Hold = now
	}

	switch {
	case f.Scheduled:
		if now < s.wrongUntil {
			e.schedule.moveBack(now, s.wrongUntil)
		}

		// What was queued until now goes behind what is in the schedule.
		e.schedule.holdsEarlier, e.schedule.nextDue = true, 0
		s.unloadQueued(e)
	case e.schedule.isEmpty():
		b.Forward = 0
	}

	s.keepWhatIsUseful(e, now)
	if e.receiver.URL == "" {
		s.refuseQueued(e)
	}
}

// change takes the settings of an endpoint that is known.
func (s *scheduler) change(e *endpoint, f *partitions.Facts, now int64) {
	hasMoved := e.moved != f.Moved
	if f.Deleted > e.deleted {
		s.refuseAllOfDeletedURL(e)
	}

	e.receiver, e.moved, e.deleted, e.muted, e.pace.ownLimits = f.Receiver, f.Moved, f.Deleted, f.Muted, f.Limits
	s.endMuted(e)

	if hasMoved {
		e.pace.breaker = breaker{}
		e.turn(partitions.EndpointHealthy, now)
		hasBacklog := e.inMemory > e.pace.inFlight || !e.schedule.isEmpty()
		switch {
		case e.receiver.URL == "":
			s.refuseQueued(e)
		case hasBacklog:
			s.startSlowly(e, now)
		}
	}

	if f.Scheduled {
		e.schedule.changedByOthers()
	}

	s.markChanged(e)
}

// startSlowly begins the recovery of an endpoint that answers again, or has another URL.
func (s *scheduler) startSlowly(e *endpoint, now int64) {
	if e.early != nil {
		s.unloadAsItWas(e.early) // it is brought forward like the others
	}

	e.pace.breaker.startSlowly(now)
	nothingToBringForward := e.schedule.isEmpty() && e.schedule.arriving == 0
	if nothingToBringForward {
		e.pace.breaker.Forward = 0
	}
}

// keepWhatIsUseful unloads what an endpoint cannot be sent soon, because its breaker is open or it is on hold.
func (s *scheduler) keepWhatIsUseful(e *endpoint, now int64) {
	state := e.pace.breaker.state(now)
	if state == breakerOpen || state == breakerOnHold {
		s.unloadQueued(e)
	}
}

// The transitions of an event, between the states of docs/webhook-states.md. A new event is unloaded, and so is one that
// a read has found in the schedule, until it is taken.
//
//	               before                        after
//	queue          unloaded                      queued
//	take, putBack  queued, in flight             in flight, queued
//	addToSchedule  queued, in flight             the same; it stands in the schedule, too
//	unload         unloaded, queued              arriving, for the time and with the attempts that it has
//	reschedule     in flight                     arriving, for another time
//	moveOne        unloaded                      arriving, for another time; loading.go
//	unloadAsItWas  queued, in flight             unloaded, without being written: it stands in the schedule
//	refuse         unloaded, queued, in flight   refused; begin ends it with one of the next steps
//	end            all but arriving              ended; or unloaded, if no read can show it
//	confirm        arriving                      unloaded; or refused, if its URL was deleted
//	confirm        ended                         unloaded
//
// What was queued or in flight goes another way after remove. Those that wait for confirm are in unconfirmed.

// queue takes an event into memory, to be sent.
func (s *scheduler) queue(ev *event) {
	s.keep(ev)
	ev.endpoint.queue.add(ev)
}

// keep takes an event into memory.
func (s *scheduler) keep(ev *event) {
	e := ev.endpoint
	e.know(ev)
	ev.state = queued
	e.inMemory++

	ev.bytes = ev.size()
	e.bytes += ev.bytes
	s.memory.take(ev.bytes)
}

// remove takes an event out of the queue, or out of flight.
func (s *scheduler) remove(ev *event) {
	ev.endpoint.remove(ev)
	s.memory.give(ev.bytes)
	ev.bytes = 0
}

// addToSchedule lets an event that stays in memory stand in the schedule, too, so that the webhook position may pass it.
func (s *scheduler) addToSchedule(ev *event) {
	isPassed := ev.entry == nil
	if isPassed || ev.state == refused {
		return
	}

	e := ev.endpoint
	ev.isScheduled = true
	e.changes.added = append(e.changes.added, scheduled(ev, ev.entry.queuedAt, 0))
	s.markChanged(e)
	s.settle(ev)
}

// followSchedule makes all new events of an endpoint go to its schedule. It must not hold a version without those
// before it that are in memory, so they are scheduled, too.
func (s *scheduler) followSchedule(e *endpoint) {
	if e.schedule.holdsEarlier {
		return
	}
	e.schedule.holdsEarlier = true
	for _, ev := range e.events {
		s.addToSchedule(ev)
	}
}

// unload lets memory forget an event, which waits in the schedule. One that is there already keeps its place.
func (s *scheduler) unload(ev *event) {
	due := ev.dueAt
	if ev.entry != nil {
		due = ev.entry.queuedAt
	}

	if !ev.isScheduled {
		s.addToSchedule(ev)
	}

	s.arrive(ev, due, ev.attempts)
}

// unloadQueued unloads all that waits in memory for a place.
func (s *scheduler) unloadQueued(e *endpoint) {
	waiting := e.inMemory > 0 && e.hasQueued()
	if !waiting {
		return
	}

	s.followSchedule(e)
	for _, ev := range e.events {
		if ev.state == queued {
			s.remove(ev)
			s.unload(ev)
		}
	}
}

// reschedule unloads an event that is due again at a time, after so many attempts.
func (s *scheduler) reschedule(ev *event, due int64, attempts int) {
	e := ev.endpoint
	e.changes.rescheduled = append(e.changes.rescheduled, scheduled(ev, due, attempts))
	s.markChanged(e)
	s.arrive(ev, due, attempts)
}

// arrive begins the way of an event to the schedule, where it is due at a time, after so many attempts.
func (s *scheduler) arrive(ev *event, due int64, attempts int) {
	ev.dueAt = due
	ev.isUnattempted = attempts == 0
	ev.endpoint.schedule.arrive(ev)
	s.settle(ev)
	s.awaitConfirmation(ev, arriving)
}

// end ends an event for ever.
func (s *scheduler) end(ev *event) {
	e := ev.endpoint
	s.settle(ev)
	if ev.isScheduled {
		removed := partitions.Unscheduled{Key: ev.key, ReplayedAt: ev.replayedAt, AskedAt: ev.askedAt}
		e.changes.ended = append(e.changes.ended, removed)
		s.markChanged(e)
	}

	aReadMayShowIt := ev.isScheduled || ev.state == refused || e.schedule.reading != nil
	if aReadMayShowIt {
		s.awaitConfirmation(ev, ended)
		return
	}

	ev.state = unloaded
	e.forget(ev)
	s.readAgain(ev)
}

// refuse lets an event be recorded as not sent.
func (s *scheduler) refuse(ev *event) {
	ev.state = refused
	ev.endpoint.know(ev)
	s.unsent.push(ev)
	s.markChanged(ev.endpoint)
}

func (s *scheduler) refuseQueued(e *endpoint) {
	for _, ev := range e.events {
		if ev.state == queued {
			s.remove(ev)
			s.refuse(ev)
		}
	}
}

// refuseAllOfDeletedURL lets all that waits be recorded as not sent, also if another URL is registered since. What is in
// flight is refused when it comes back.
func (s *scheduler) refuseAllOfDeletedURL(e *endpoint) {
	s.refuseQueued(e)
	for _, ev := range e.events {
		if ev.state == arriving && ev.delivery != nil {
			ev.isOfDeletedURL = true
		}
	}
}

// endMuted ends what waits in memory and is muted. What is in the schedule ends when it is loaded.
func (s *scheduler) endMuted(e *endpoint) {
	for _, ev := range e.events {
		if ev.state == queued && e.mutes(ev) {
			s.remove(ev)
			s.end(ev)
		}
	}
}

// unloadAsItWas lets memory forget an event that is in the schedule, where it stays as it is.
func (s *scheduler) unloadAsItWas(ev *event) {
	if ev.state == queued {
		s.remove(ev)
	}

	e := ev.endpoint
	ev.state = unloaded
	e.forget(ev)
	e.schedule.mayBeDueAt(ev.dueAt)
	s.readAgain(ev)
}

// awaitConfirmation keeps an event known until what is written of it is confirmed.
func (s *scheduler) awaitConfirmation(ev *event, state eventState) {
	ev.state = state
	ev.endpoint.know(ev)
	s.unconfirmed = append(s.unconfirmed, ev)
}

// confirm ends what awaitConfirmation has begun.
func (s *scheduler) confirm(ev *event) {
	e := ev.endpoint
	if ev.state == arriving {
		e.schedule.arrived(ev)
	}

	if ev.isOfDeletedURL {
		ev.isOfDeletedURL, ev.isScheduled = false, true
		s.refuse(ev)
		return
	}

	if e.events[ev.key] == ev {
		e.forget(ev)
	}

	ev.delivery = nil
	ev.state = unloaded
	s.readAgain(ev)
}

// readAgain lets the schedule be read for an event that memory forgets, if a replay has asked for it since its last
// send began: it stands there, due.
func (s *scheduler) readAgain(ev *event) {
	if ev.isReplayedSince {
		ev.endpoint.schedule.nextDue = 0
	}
}

// settle lets the webhook position pass an event, once the next step is confirmed.
func (s *scheduler) settle(ev *event) {
	if ev.entry != nil {
		s.settling = append(s.settling, ev.entry)
		ev.entry = nil
	}
}

// giveUp lets the next step schedule everything that has not ended, and write all figures.
func (s *scheduler) giveUp(now int64) {
	s.clock(now)
	for _, e := range s.endpoints {
		for _, ev := range e.events {
			s.addToSchedule(ev)
		}
		e.savedAt = 0
		if e.hasFigures(s.now) {
			s.markChanged(e)
		}
	}
}

// close gives back the memory of all events.
func (s *scheduler) close() {
	for _, e := range s.endpoints {
		s.memory.give(e.bytes)
		e.bytes = 0
	}
}

func (s *scheduler) markChanged(e *endpoint) {
	if !e.isChanged {
		e.isChanged = true
		s.changed = append(s.changed, e)
	}
}

// look puts an endpoint where it is found in time: among those that are ready, those that want a read, and in the
// alarms.
func (s *scheduler) look(e *endpoint, now int64) {
	sendAt, readAt := e.sendAt(now, s.limits.inFlight), e.readAt(now, s.limits.memory)
	next := int64(never)

	switch {
	case e.isReady:
	case sendAt <= now:
		e.isReady, s.isOffered = true, false
		s.ready.push(e)
	default:
		next = sendAt
	}

	switch {
	case readAt > now:
		next = min(next, readAt)
	case !e.isWanted:
		e.isWanted = true
		s.wanted.push(e)
	}

	saveAt := e.savedAt + saveEvery
	switch {
	case e.isChanged && saveAt > now:
		next = min(next, saveAt)
	case e.isChanged && e.hasFigures(now):
		s.isOverdue = true
	}

	s.alarms.set(e, next)
}

// sweep looks at the endpoints whose alarm has come.
func (s *scheduler) sweep(now int64) {
	for {
		e, at := s.alarms.first()
		if at > now {
			return
		}
		s.look(e, now)
	}
}

// wantsRead reports whether a part of a schedule is to be read now.
func (s *scheduler) wantsRead(now int64) bool {
	s.sweep(s.clock(now))
	return s.wanted.len() > 0
}

// wakeAt returns when the scheduler may have something to send or to write if nothing happens: now, if an endpoint is
// ready that next was not offered places for; never, if there is nothing.
func (s *scheduler) wakeAt(now int64) int64 {
	now = s.clock(now)
	s.sweep(now)
	mustWrite := s.unsent.len() > 0 || s.isOverdue
	if !s.isOffered && s.canSend() || mustWrite {
		return now
	}

	_, at := s.alarms.first()
	return max(min(at, s.tail.overdueAt()), now)
}

// canSend reports whether something may be sent once there is a place.
func (s *scheduler) canSend() bool { return s.ready.len()+len(s.waiting) > 0 }

// clock returns the time to work with. It stands while the caller's is a little behind. When the clock was set back,
// what was planned by the one that was ahead is drawn back by as much.
func (s *scheduler) clock(now int64) int64 {
	if now >= s.now-clockSlack {
		s.now = max(s.now, now)
		return s.now
	}

	ahead := s.now - now
	s.wrongUntil, s.now = max(s.wrongUntil, s.now), now
	s.tail.drawBack(now)
	for _, ev := range s.unconfirmed {
		if ev.state == arriving {
			ev.dueAt = drawnBack(ev.dueAt, now, ahead)
		}
	}

	for _, e := range s.endpoints {
		s.drawBack(e, now, ahead)
		s.look(e, now)
	}

	return now
}

func (s *scheduler) drawBack(e *endpoint, now, ahead int64) {
	for _, list := range [][]partitions.Scheduled{e.changes.added, e.changes.moved, e.changes.rescheduled} {
		for i := range list {
			list[i].Due = drawnBack(list[i].Due, now, ahead)
		}
	}

	e.pace.breaker.drawBack(now, ahead)
	e.pace.bucket.at = min(e.pace.bucket.at, now)
	e.savedAt = min(e.savedAt, now)
	e.schedule.notBefore = min(e.schedule.notBefore, now)
	if !e.isEmpty() {
		s.followSchedule(e)
		e.schedule.moveBack(now, s.wrongUntil)
	}
}
