package dispatch

import (
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

const (
	// memoryShare: one endpoint may take the free memory divided by it.
	memoryShare = 16
	// saveEvery is how long a tally may stay unwritten, in ms.
	saveEvery = 1000
)

// An endpoint is one account's, with what waits for it. Three parts have states of their own: the queue has what
// waits in memory, the schedule is what the owner knows of what waits in Redis, and the pace says when the receiver
// may get something.
type endpoint struct {
	account  delivery.AccountID
	queue    queue
	schedule schedule
	pace     pace

	// What is stored of the endpoint. Until isKnown it is not read yet, and nothing is sent.
	isKnown  bool
	receiver partitions.Receiver
	muted    []delivery.EventType // of which nothing is sent
	moved    int64                // the version with which the URL last changed
	deleted  int64                // the version with which a URL was last deleted; 0: none was
	state    partitions.EndpointState
	since    int64 // ms, of the state
	tally    partitions.Tally
	waiting  int // events in memory only, as they were last written

	// events are all in memory: those of every state but unloaded. mostEvents is how many there have been
	// at once since there was none.
	events     map[string]*event
	mostEvents int
	// inMemory counts those that are queued or in flight, bytes what they take of the memory budget.
	inMemory int
	bytes    int64
	// early is the next probe, if it is an event that is sent before its time.
	early *event

	// What the next step writes.
	changes changes
	// hasCounted is set while the tally has changed since it was written.
	hasCounted    bool
	savedAt       int64 // ms, when the tally was last written
	storedBreaker breaker

	// Where the scheduler finds the endpoint: in which of its lists, and when its alarm clock wants it.
	isReady, isWanted, isChanged bool
	alarm                        alarm

	// What its schedule had when it was last counted.
	backlog   partitions.Backlog
	countedAt time.Time
}

// changes are what is to be written of one endpoint with the next step.
type changes struct {
	added       []partitions.Scheduled   // to the schedule; one that is there stays as it is
	moved       []partitions.Scheduled   // there to another time, after the added ones
	rescheduled []partitions.Scheduled   // there after an attempt, after those
	ended       []partitions.Unscheduled // removed from it, after those

	state      partitions.EndpointState // empty: as it was
	stateSince int64
	// proven is the version of the receiver that accepted a test event signed with its newest secret; 0: none did.
	proven int64
}

func (c *changes) isEmpty() bool {
	return len(c.added)+len(c.moved)+len(c.rescheduled)+len(c.ended) == 0 && c.state == "" && c.proven == 0
}

func newEndpoint(account delivery.AccountID) *endpoint {
	return &endpoint{
		account:  account,
		schedule: schedule{nextDue: never},
		alarm:    alarm{index: notSet},
		events:   make(map[string]*event),
	}
}

// keptRoom is for how many events an endpoint keeps room that has none.
const keptRoom = 16

// know lets memory have an event until forget.
func (e *endpoint) know(ev *event) {
	e.events[ev.key] = ev
	e.mostEvents = max(e.mostEvents, len(e.events))
}

// forget ends what know has begun. A map and a list keep the room of the most events that they have held, which thousands
// of endpoints with dead receivers would fill; so that of many is given back once there is none.
func (e *endpoint) forget(ev *event) {
	delete(e.events, ev.key)
	if len(e.events) > 0 {
		return
	}

	if e.mostEvents > keptRoom {
		e.events, e.queue = make(map[string]*event), queue{}
	}

	e.mostEvents = 0
}

// mutes reports whether the account's operator has turned off events of this type.
func (e *endpoint) mutes(ev *event) bool {
	return ev.delivery != nil && slices.Contains(e.muted, ev.delivery.Type)
}

// isEmpty reports whether nothing waits, in memory or in the schedule.
func (e *endpoint) isEmpty() bool { return len(e.events) == 0 && e.schedule.isEmpty() }

// waits reports whether something waits or is in flight.
func (e *endpoint) waits() bool { return !e.isEmpty() || e.pace.inFlight > 0 }

// sendAt returns from when on something may be sent if nothing else happens, in ms; never if not.
func (e *endpoint) sendAt(now int64, usualLimit int) int64 {
	hasReceiver := e.isKnown && e.receiver.URL != ""
	if !hasReceiver {
		return never
	}

	at := e.pace.nextAt(now, usualLimit)
	canProbe := e.pace.breaker.Open && (e.early != nil || e.canPing(max(now, at)))
	if e.queue.free > 0 || canProbe {
		return at
	}

	return never
}

// canPing reports whether the next probe is a test ping: nothing waits, and the breaker has opened less than
// pingFor ago.
func (e *endpoint) canPing(at int64) bool {
	return e.pace.breaker.Open && e.isEmpty() && at < e.pace.breaker.Since+pingFor
}

// readAt returns from when on the schedule is to be read, in ms; never if nothing there is needed. most is how many
// events one endpoint may have in memory.
func (e *endpoint) readAt(now int64, most int) int64 {
	needsNothing := !e.isKnown || e.schedule.reading != nil || e.schedule.isEmpty()
	if needsNothing {
		return never
	}
	return max(e.neededAt(now, most), e.schedule.notBefore)
}

func (e *endpoint) neededAt(now int64, most int) int64 {
	b := &e.pace.breaker
	mustMove := e.schedule.moveUntil > 0 || b.Forward > 0
	isMoving := len(e.changes.moved) > 0
	switch {
	case isMoving:
		return never // what stands behind an event that is moved could be loaded before it
	case mustMove && e.schedule.arriving > 0:
		return never // what is moved while it arrives would change its place
	case mustMove:
		return 0
	case e.receiver.URL == "" && len(e.events) < most:
		return 0 // what is there is recorded as not sent
	case e.receiver.URL == "":
		return never
	case e.inMemory > e.pace.useful(max(now, b.Hold), most)/2: // a read for a few would cost as much
		return never
	case b.Open && len(e.events) == 0 && e.pace.inFlight == 0:
		return b.Hold // the probe may be an event before its time
	}

	return max(e.schedule.nextDue, b.Hold)
}

// nextRead makes the read of the schedule that is wanted now.
func (e *endpoint) nextRead(now int64, most int, m *memory) *scheduleRead {
	r := &scheduleRead{ScheduleQuery: partitions.ScheduleQuery{
		Account: e.account,
		Until:   never,
		Limit:   movePage + len(e.events),
		Known:   e.known(),
	}}

	b := &e.pace.breaker
	switch {
	case e.schedule.moveUntil > 0:
		r.purpose = toMoveBack
		r.From, r.Until, r.moveTo = e.schedule.moveTo+1, e.schedule.moveUntil, e.schedule.moveTo
	case b.Forward > 0:
		r.purpose = toBringForward
		r.From, r.moveTo = max(b.Forward, now+1), now
	case e.receiver.URL != "":
		room := max(min(e.pace.useful(now, most)-e.inMemory, m.eventsFor(e)), 1)
		r.Until, r.Limit, r.mayProbe = now, room+len(e.events), b.Open
		if b.Open {
			r.Limit++ // one more than is taken says whether the probe is all that is due
		}
	}

	if r.purpose != toLoad {
		r.Known = everything
	}

	return r
}

func everything(string) bool { return true }

// known returns a function that says which events were in memory when known was called. The read that uses it runs
// beside the owner's turns.
func (e *endpoint) known() func(key string) bool {
	keys := make(map[string]struct{}, len(e.events))
	for key := range e.events {
		keys[key] = struct{}{}
	}
	return func(key string) bool {
		_, isKnown := keys[key]
		return isKnown
	}
}

// take takes the next event out of the queue, to be sent. If none is queued, a probe is the event that was loaded
// before its time, or else a test ping.
func (e *endpoint) take(now int64) *event {
	ev := e.queue.next()
	if ev == nil {
		ev, e.early = e.early, nil
	}

	if ev == nil {
		ev = &event{account: e.account, dueAt: now, isPing: true, endpoint: e}
	}

	ev.state = inFlight
	ev.version = e.receiver.Version
	ev.isOfFailing = e.pace.breaker.isFailing()
	e.pace.sendBegins(now)

	return ev
}

// remove takes an event out of the queue or out of flight. It stays in memory until forget.
func (e *endpoint) remove(ev *event) {
	if ev.state == inFlight {
		e.pace.sendEnds()
	}

	if ev.isPing {
		return
	}

	e.queue.remove(ev)
	e.inMemory--
	e.bytes -= ev.bytes
	if e.early == ev {
		e.early = nil
	}
}

// hasQueued reports whether something waits in memory for a place.
func (e *endpoint) hasQueued() bool {
	for _, ev := range e.events {
		if ev.state == queued {
			return true
		}
	}
	return false
}

// inMemoryOnly counts the events that are not in the schedule, and reports whether others may be.
func (e *endpoint) inMemoryOnly() (events int, hasScheduled bool) {
	hasScheduled = !e.schedule.isEmpty()
	for _, ev := range e.events {
		switch {
		case ev.isScheduled:
			hasScheduled = true
		case ev.state.isInMemory():
			events++
		}
	}

	return events, hasScheduled
}

// note changes the state for people, if the new one is no milder: failing is milder than unreachable and gone.
func (e *endpoint) note(state partitions.EndpointState, now int64) {
	isWorse := state != partitions.EndpointFailing || e.state == "" || e.state == partitions.EndpointHealthy
	if e.state != state && isWorse {
		e.turn(state, now)
	}
}

// turn changes the state for people.
func (e *endpoint) turn(state partitions.EndpointState, now int64) {
	e.state, e.since = state, now
	e.changes.state, e.changes.stateSince = state, now
}

// hasFigures reports whether counts or the breaker's growth wait for their time to be written.
func (e *endpoint) hasFigures(now int64) bool {
	return e.hasCounted || e.waiting > 0 || e.pace.breaker.stored(now) != e.storedBreaker
}
