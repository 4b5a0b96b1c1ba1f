package dispatch

import (
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

const (
	// movePage is how many events one read of the schedule moves to another time.
	movePage = 500
	// reloadWait is how long to wait before a schedule is read again for whose events there was no memory, in ms.
	reloadWait = 250
)

// A schedule is what the owner knows of an endpoint's schedule in Redis. It need not know what stands there: only
// when the first event is due that memory has not, and whether a new event has to go there, too.
//
// What is written goes with the owner's next step, and a read of the schedule runs beside the owner's turns. So
// events may be on their way in either direction:
//
//	memory ── arriving ──> Redis      until the step is confirmed
//	memory <── reading ─── Redis      one read at a time
type schedule struct {
	// nextDue is when the first event is due that is not in memory, in ms; never for none. Too early costs a read;
	// it must not be too late.
	nextDue int64
	// holdsEarlier is set while events may be in the schedule only that were never attempted. New ones go to its
	// end then, so that no version of an order overtakes an earlier one.
	holdsEarlier bool

	// arriving counts events that leave memory for the schedule, until that is confirmed; arrivingUnattempted those
	// of them that were never attempted.
	arriving            int
	arrivingUnattempted int

	// reading is the read in progress; nil for none.
	reading *scheduleRead
	// isReadStale: something was put into the schedule since the read began, which may not show it.
	isReadStale bool
	// confirmed are events that the read in progress may show, though they have ended or arrived since it began.
	confirmed []*event
	// notBefore is when the schedule may be read again, in ms.
	notBefore int64

	// What is due after moveTo and until moveUntil may have been planned by a clock that was ahead. It becomes due
	// at moveTo, page by page. moveUntil is 0 if nothing has to be moved.
	moveTo, moveUntil int64
}

// scheduleRead is a part of an endpoint's schedule that is being read.
type scheduleRead struct {
	partitions.ScheduleQuery
	purpose readPurpose
	// mayProbe: the first event after Until may be sent at once.
	mayProbe bool
	// moveTo is when what is found becomes due, in ms, if it is not loaded.
	moveTo int64
}

// readPurpose is what a part of a schedule is read for.
type readPurpose byte

const (
	// toLoad: what is due is taken into memory.
	toLoad readPurpose = iota
	// toBringForward: what is due later becomes due now, because the receiver answers again.
	toBringForward
	// toMoveBack: what was planned by a clock that was ahead becomes due at the time of the right one.
	toMoveBack
)

// isEmpty reports whether nothing waits that is not in memory.
func (s *schedule) isEmpty() bool { return s.nextDue == never }

// mayBeDueAt takes note that an event stands in the schedule that is not in memory.
func (s *schedule) mayBeDueAt(due int64) { s.nextDue = min(s.nextDue, due) }

// changedByOthers takes note that somebody else may have put an event there.
func (s *schedule) changedByOthers() {
	s.mayBeDueAt(0)
	s.isReadStale = s.reading != nil
}

// arrive begins the way of an event from memory.
func (s *schedule) arrive(ev *event) {
	s.mayBeDueAt(ev.dueAt)
	s.arriving++
	if ev.isUnattempted {
		s.arrivingUnattempted++
	}
}

// arrived ends it.
func (s *schedule) arrived(ev *event) {
	s.mayBeDueAt(ev.dueAt)
	s.arriving--
	if ev.isUnattempted {
		s.arrivingUnattempted--
	}
}

// readBegins takes note of a read in progress.
func (s *schedule) readBegins(r *scheduleRead) {
	s.reading, s.isReadStale = r, false
}

// readFails ends a read that brought nothing. The next one may begin at again, in ms.
func (s *schedule) readFails(again int64) {
	s.reading, s.notBefore = nil, again
}

// moveBack lets what is due from now on be moved to now: it was planned by a clock that was ahead until then.
func (s *schedule) moveBack(now, until int64) {
	if s.moveUntil == 0 || now < s.moveTo {
		s.moveTo = now
	}
	s.moveUntil = until
	s.mayBeDueAt(until)
}

// A loadResult says what a read has left for the next one.
type loadResult struct {
	// isComplete: nothing more is due than was found.
	isComplete bool
	// next is when the first event is due after those that were due, in ms; never for none.
	next int64
	// hadNoMemory: the memory budget stopped it.
	hadNoMemory bool
}

// finishLoad ends a read that brought events into memory.
func (s *schedule) finishLoad(r loadResult, now int64) {
	s.reading = nil
	s.nextDue = r.next
	switch {
	case !r.isComplete || s.isReadStale:
		s.nextDue = 0
	case s.arrivingUnattempted == 0 && s.moveUntil == 0:
		s.holdsEarlier = false
	}

	if r.hadNoMemory {
		s.notBefore = now + reloadWait
	}
}

// scheduled makes what is to be written of an event that leaves memory, or is about to be in both.
func scheduled(ev *event, due int64, attempts int) partitions.Scheduled {
	return partitions.Scheduled{Key: ev.key, Due: due, Attempts: attempts, ReplayedAt: ev.replayedAt}
}

// fromSchedule makes an event of what a schedule has.
func fromSchedule(account delivery.AccountID, found *partitions.Scheduled) *event {
	return &event{
		account:     account,
		key:         found.Key,
		delivery:    found.Delivery,
		dueAt:       found.Due,
		attempts:    found.Attempts,
		replayedAt:  found.ReplayedAt,
		askedAt:     found.AskedAt,
		isScheduled: true,
	}
}
