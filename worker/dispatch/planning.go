package dispatch

import (
	"slices"

	"vendorapi/internal/ledger/partitions"
)

// endpointPlan is what the next step writes of one endpoint.
type endpointPlan struct {
	endpoint *endpoint
	changes
	breaker *partitions.Breaker // nil: as it is stored
	tally   *partitions.Tally   // nil: as it is stored
	waiting int                 // with tally: events in memory only
}

// begin prepares the next step: what has waited for long is to be scheduled, and the next page of what has no
// receiver ends. It returns those, which the caller has to record as not sent. It may be repeated before commit.
func (s *scheduler) begin(now int64) (refused []*event) {
	now = s.clock(now)
	for entry := s.tail.overdue(now); entry != nil; entry = s.tail.overdue(now) {
		for _, ev := range entry.events {
			s.addToSchedule(ev)
		}
	}

	for s.planned < unsentPage && s.unsent.len() > 0 {
		s.planned++
		ev := s.unsent.pop()
		e := ev.endpoint
		e.tally.Turn(now)
		e.tally.NotSent++
		e.hasCounted = true
		s.end(ev)
		refused = append(refused, ev)
	}

	return refused
}

// plan returns what is to be written. It changes nothing, and is valid until something else does.
func (s *scheduler) plan() []endpointPlan {
	var plans []endpointPlan
	for _, e := range s.changed {
		p, hasSome := e.plan(s.now)
		if hasSome {
			plans = append(plans, p)
		}
	}
	return plans
}

func (e *endpoint) plan(now int64) (p endpointPlan, hasSome bool) {
	p = endpointPlan{endpoint: e, changes: e.changes}
	isSaveDue := now >= e.savedAt+saveEvery

	b := e.pace.breaker.stored(now)
	if b != e.storedBreaker && (isSaveDue || b.turned(e.storedBreaker)) {
		p.breaker = (*partitions.Breaker)(&b)
	}

	if isSaveDue && (e.hasCounted || e.waiting > 0) {
		tally := e.tally
		p.tally = &tally
		p.waiting, _ = e.inMemoryOnly()
	}

	return p, !p.changes.isEmpty() || p.breaker != nil || p.tally != nil
}

// commit takes note that all of the plan, of which nothing has changed since, was written.
func (s *scheduler) commit(plans []endpointPlan) {
	for i := range plans {
		s.written(&plans[i])
	}

	for _, entry := range s.settling {
		s.tail.settle(entry)
	}

	clear(s.settling)
	s.settling = s.settling[:0]
	s.tail.advance()

	for _, ev := range s.unconfirmed {
		e := ev.endpoint
		if e.schedule.reading != nil {
			e.schedule.confirmed = append(e.schedule.confirmed, ev)
			continue
		}
		s.confirm(ev)
		s.look(e, s.now)
	}

	clear(s.unconfirmed)
	s.unconfirmed = s.unconfirmed[:0]

	s.planned, s.isOverdue = 0, false
	s.changed = slices.DeleteFunc(s.changed, func(e *endpoint) bool {
		e.isChanged = e.hasFigures(s.now)
		s.look(e, s.now)
		return !e.isChanged
	})
}

func (s *scheduler) written(p *endpointPlan) {
	e := p.endpoint
	e.changes = changes{}
	if p.breaker != nil {
		e.storedBreaker = breaker(*p.breaker)
	}

	if p.tally != nil {
		e.hasCounted, e.savedAt, e.waiting = false, s.now, p.waiting
	}
}

// hasConfirmationPending reports whether something waits for a step to be confirmed, even if that has nothing to
// write.
func (s *scheduler) hasConfirmationPending() bool { return len(s.settling)+len(s.unconfirmed) > 0 }
