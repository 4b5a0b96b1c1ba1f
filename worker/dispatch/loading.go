package dispatch

import (
	"time"

	"vendorapi/internal/delivery"
)

const (
	// probesAhead is how many endpoints may wait for a place before no more probes are read for them, and probeWait how
	// long those wait that are left out, in ms. So memory has the probes that are next, not one for each of thousands
	// of dead receivers.
	probesAhead = 16
	probeWait   = 1000
)

// reads returns the parts of schedules that are to be read now, about loadedAtOnce events together. Of an endpoint
// one part is read at a time: the next one is returned only after loaded or notLoaded.
func (s *scheduler) reads(now int64) []*scheduleRead {
	now = s.clock(now)
	s.sweep(now)

	var reads []*scheduleRead
	for events := 0; s.wanted.len() > 0 && events < loadedAtOnce; {
		e := s.wanted.pop()
		e.isWanted = false
		isStillWanted := e.readAt(now, s.limits.memory) <= now
		if !isStillWanted {
			s.look(e, now)
			continue
		}

		r := e.nextRead(now, s.limits.memory, s.memory)
		wouldWait := r.mayProbe && s.ready.len()+len(s.waiting) >= probesAhead
		if wouldWait {
			e.schedule.notBefore = now + probeWait
			s.look(e, now)
			continue
		}

		e.schedule.readBegins(r)
		events += r.Limit
		reads = append(reads, r)
	}

	return reads
}

// notLoaded takes note that a part of a schedule could not be read. It is read again after a pause.
func (s *scheduler) notLoaded(account delivery.AccountID, now int64, pause time.Duration) {
	now = s.clock(now)
	e := s.endpoints[account]
	e.schedule.readFails(now + pause.Milliseconds())
	s.forgetConfirmed(e)
	s.look(e, now)
}

// loaded takes all that a read has found, in the order of the schedule.
func (s *scheduler) loaded(account delivery.AccountID, found []*event, now int64) {
	now = s.clock(now)
	e := s.endpoints[account]
	for _, ev := range found {
		ev.endpoint, ev.isScheduled = e, true
	}

	r := e.schedule.reading
	if r.purpose == toLoad {
		s.load(e, r, found, now)
	} else {
		s.move(e, r, found)
	}

	s.forgetConfirmed(e)
	s.markChanged(e)
	s.look(e, now)
}

// forgetConfirmed forgets the events that were remembered only because a read was in progress.
func (s *scheduler) forgetConfirmed(e *endpoint) {
	for _, ev := range e.schedule.confirmed {
		s.confirm(ev)
	}
	e.schedule.confirmed = nil
}

// takeDue hands what was found to take, one by one, until one is due later than until, or take returns false. It returns
// the events that are left, that one first, and whether the schedule has nothing more that is due until then.
func (r *scheduleRead) takeDue(found []*event, until int64, take func(*event) bool) (rest []*event, isComplete bool) {
	for i, ev := range found {
		if ev.dueAt > until {
			return found[i:], i < r.Limit
		}
		if !take(ev) {
			return found[i:], false
		}
	}
	return nil, len(found) < r.Limit
}

// load takes events into memory until one has to stay in the schedule, and all after it.
func (s *scheduler) load(e *endpoint, r *scheduleRead, found []*event, now int64) {
	until := r.Until
	if e.receiver.URL != "" {
		until = min(until, now) // there was none, perhaps, when the read began
	}

	rest, isComplete := r.takeDue(found, until, func(ev *event) bool { return s.loadOne(e, ev, now) })
	result := loadResult{isComplete: isComplete, next: never}
	var first *event // that is not due
	switch {
	case len(rest) == 0:
	case rest[0].dueAt > until:
		first, result.next = rest[0], rest[0].dueAt
	default:
		result.hadNoMemory = s.lacksMemory(e, rest[0], now)
	}

	e.schedule.finishLoad(result, now)

	if first != nil && e.events[first.key] == nil {
		s.loadFirst(e, r, first)
	}
}

// loadOne takes one event into memory; false: it has to stay in the schedule.
func (s *scheduler) loadOne(e *endpoint, ev *event, now int64) bool {
	known := e.events[ev.key]
	switch {
	case known != nil:
		return known.isReadAs(ev)
	case e.mutes(ev):
		s.end(ev)
	case ev.delivery == nil: // memory had it when the read began, so that its order was not read
		return false
	case e.receiver.URL == "":
		s.refuse(ev)
	case s.hasRoom(e, ev, now):
		s.queue(ev)
	default:
		return false
	}

	return true
}

// lacksMemory reports whether it was the memory budget that kept an event in the schedule.
func (s *scheduler) lacksMemory(e *endpoint, ev *event, now int64) bool {
	isUseful := e.inMemory < e.pace.useful(now, s.limits.memory)
	return isUseful && !s.memory.fits(ev.size(), e.bytes)
}

// isReadAs takes what the schedule says of an event that memory knows; false: it must be read again.
func (ev *event) isReadAs(read *event) bool {
	// A replay asks for more than what has begun, or what is refused because of a URL that has a successor.
	isSettledBefore := ev.wasBegun() || ev.state == refused && ev.endpoint.receiver.URL != ""
	switch {
	case isSettledBefore && ev.differsInReplays(read):
		ev.isReplayedSince = true
	case ev.state == ended && !ev.isScheduled:
		return false // its end removes nothing from the schedule, where it stands now
	case ev.state == arriving && ev.isUnattempted:
		return false // a later version would overtake it
	default:
		// A replay may have asked for what waits, or is about to be recorded as not sent: once is enough.
		ev.isScheduled = true
		ev.replayedAt, ev.askedAt = read.replayedAt, read.askedAt
		ev.dueAt = min(ev.dueAt, read.dueAt)
	}

	return true
}

// loadFirst takes the first event of the schedule that is not due. It ends if it is muted; and if nothing else can
// be the next probe, it is sent before its time.
func (s *scheduler) loadFirst(e *endpoint, r *scheduleRead, first *event) {
	canProbe := r.mayProbe && e.pace.breaker.Open && len(e.events) == 0 && first.delivery != nil
	switch {
	case e.mutes(first):
		s.end(first)
	case canProbe:
		first.isProbe = true
		s.keep(first)
		e.early = first
	}
}

// move lets what was found become due at another time.
func (s *scheduler) move(e *endpoint, r *scheduleRead, found []*event) {
	latest := int64(0)
	_, isComplete := r.takeDue(found, r.Until, func(ev *event) bool {
		latest = ev.dueAt
		return s.moveOne(e, ev, r.moveTo)
	})

	e.schedule.reading = nil
	b := &e.pace.breaker
	switch {
	case r.purpose == toMoveBack && isComplete && r.moveTo == e.schedule.moveTo:
		e.schedule.moveUntil = 0
		e.schedule.mayBeDueAt(0) // what was known of the schedule is of that clock, too
	case r.purpose == toMoveBack:
	case isComplete:
		b.Forward = 0
	case b.Forward > 0:
		b.Forward = latest
	}
}

// moveOne moves one event; false: it must be read again.
func (s *scheduler) moveOne(e *endpoint, ev *event, to int64) bool {
	known := e.events[ev.key]
	isInMemory := known != nil && known.state.isInMemory()
	// One that arrives without an attempt is perhaps only added once more, which does not change its time. Of the others
	// the new time, or the end, is written after what is moved.
	mayOnlyBeAdded := known != nil && known.state == arriving && known.isUnattempted
	if known != nil && !isInMemory && !mayOnlyBeAdded {
		return known.isReadAs(ev)
	}

	e.changes.moved = append(e.changes.moved, scheduled(ev, to, ev.attempts))
	if isInMemory {
		known.dueAt = to
		e.schedule.mayBeDueAt(to) // should memory forget it before that is written
		return true
	}

	s.arrive(ev, to, ev.attempts)

	return true
}
