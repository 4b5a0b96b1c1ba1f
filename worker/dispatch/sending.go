package dispatch

import (
	"vendorapi/internal/ledger/partitions"
)

// places are how many more sends may begin, of the webhook.concurrency that a worker may have in flight.
type places struct {
	free int
	// forFailing is how many of them receivers may take that fail.
	forFailing int
}

// next appends the events that are to be sent now. It goes round the endpoints, one place at a time; the more places
// are taken, the fewer one endpoint may have. Receivers that fail share a part of the places, so that any number of
// them leaves the rest to the others.
func (s *scheduler) next(events []*event, p places, now int64) []*event {
	now = s.clock(now)
	s.sweep(now)
	for _, e := range s.waiting {
		s.ready.push(e)
	}

	clear(s.waiting)
	s.waiting = s.waiting[:0]

	share := max(p.free/poolShare, 1)
	for p.free > 0 && s.ready.len() > 0 {
		e := s.ready.pop()
		isFailing := e.pace.breaker.isFailing()
		hasItsShare := e.pace.inFlight >= share || isFailing && p.forFailing <= 0
		switch {
		case e.sendAt(now, s.limits.inFlight) > now:
			e.isReady = false
			s.look(e, now)
		case hasItsShare:
			s.waiting = append(s.waiting, e)
		default:
			events = append(events, e.take(now))
			p.free--
			if isFailing {
				p.forFailing--
			}
			s.ready.push(e)
		}
	}

	s.isOffered = true

	return events
}

// putBack takes back an event that next has handed out, and that was not sent: it is the first to go.
func (s *scheduler) putBack(ev *event, now int64) {
	now = s.clock(now)
	e := ev.endpoint
	if ev.state != inFlight {
		return
	}

	e.pace.sendEnds()
	s.isOffered = false
	switch {
	case ev.isPing:
	case ev.isProbe:
		ev.state = queued
		e.early = ev
		if !e.pace.breaker.Open {
			s.unloadAsItWas(ev)
		}
	default:
		ev.state = queued
		e.queue.putBack(ev)
	}

	s.keepWhatIsAllowed(e, ev, now)
	s.look(e, now)
}

// keepWhatIsAllowed applies to an event that was put back what happened to the endpoint while it was in flight.
func (s *scheduler) keepWhatIsAllowed(e *endpoint, ev *event, now int64) {
	if ev.state != queued {
		return
	}

	switch {
	case e.receiver.URL == "" || ev.version < e.deleted:
		s.remove(ev)
		s.refuse(ev)
	case e.mutes(ev):
		s.remove(ev)
		s.end(ev)
	default:
		s.keepWhatIsUseful(e, now)
	}
}

// finish takes what became of an event that was sent. One that waits may end, too.
func (s *scheduler) finish(ev *event, r result, now int64) {
	now = s.clock(now)
	e := ev.endpoint
	if ev.state != queued && ev.state != inFlight {
		return
	}

	if ev.state == queued {
		ev.version = e.receiver.Version
	}

	isBesidesSchedule := ev.isProbe || ev.isPing
	if isBesidesSchedule && r.ending == retry {
		r.ending, r.at = missed, ev.dueAt
	}

	if ev.version < e.moved {
		r.at = now // what failed at an address that has changed goes to the new one
	}

	s.remove(ev)
	s.isOffered = false
	goesAgain := r.ending == missed || r.ending == deferred || r.ending == retry
	switch {
	case ev.isPing:
	case goesAgain && ev.version < e.deleted: // another URL may be registered since, to which it must not go
		s.refuse(ev)
	case r.ending == missed && r.at == ev.dueAt:
		s.unloadAsItWas(ev)
	case r.ending == missed, r.ending == deferred:
		s.reschedule(ev, r.at, ev.attempts)
	case r.ending == retry:
		s.reschedule(ev, r.at, ev.attempts+1)
	default:
		s.end(ev)
	}

	s.assess(e, ev, &r, now)

	nothingWaits := e.inMemory == e.pace.inFlight && e.schedule.isEmpty() && e.schedule.arriving == 0
	if nothingWaits {
		e.pace.breaker.endRecovery()
	}

	s.markChanged(e)
	s.look(e, now)
}

// assess counts a result, and takes what it says of the receiver if that is still the same.
func (s *scheduler) assess(e *endpoint, ev *event, r *result, now int64) {
	count(&e.tally, ev, r, now)
	e.hasCounted = true

	state := stateAfter(r)
	if state == "" || ev.version != e.receiver.Version {
		return
	}

	e.note(state, now)

	switch {
	case r.ending == delivered:
		if e.pace.breaker.Open {
			s.startSlowly(e, now)
		} else {
			e.pace.breaker.succeed(now)
		}
		if r.proven {
			e.changes.proven = e.receiver.Version
		}
	case r.ending.wasSent():
		first := e.schedule.nextDue
		if e.queue.due.len() > 0 {
			first = 0
		}
		e.pace.breaker.fail(now, r.pause, s.limits.failures, first)
		s.keepWhatIsUseful(e, now)
	}
}

// count counts a result in a tally.
func count(t *partitions.Tally, ev *event, r *result, now int64) {
	t.Turn(now)
	switch {
	case r.ending == delivered:
		t.OK++
	case r.ending.wasSent():
		t.Failed++
	}

	switch {
	case ev.isPing || r.ending == missed || r.ending == deferred:
	case r.ending == delivered:
		t.Delivered++
	case r.ending == retry:
		t.Retried++
	case r.ending == notSent:
		t.NotSent++
	default:
		t.Undelivered++
	}
}

// stateAfter returns what a result says of the receiver; empty if nothing.
func stateAfter(r *result) partitions.EndpointState {
	switch {
	case r.ending == delivered:
		return partitions.EndpointHealthy
	case r.ending == deferred || r.ending == notSent:
		return ""
	case r.isGone:
		return partitions.EndpointGone
	case r.ending == undelivered || r.ending == expired:
		return partitions.EndpointUnreachable
	default:
		return partitions.EndpointFailing
	}
}
