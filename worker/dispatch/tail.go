package dispatch

// spillAfter is how long an event may stay out of the schedule without having ended, in ms.
const spillAfter = 1000

// A tail has the entries of the stream e after the webhook position.
//
// An entry is settled when each of its events has ended or stands in a schedule, as was confirmed. The position is
// the last entry that is settled together with all before it: a new owner reads on from there, and needs nothing
// else of what this one had in memory. Its zero value is empty.
type tail struct {
	entries fifo[*entry]
	// scheduled counts the first entries, of which nothing is left to be scheduled: each event has ended, is in a schedule
	// or will be with the next step, or has no receiver and ends as not sent.
	scheduled int

	// position is the id of the entry up to which all are settled; empty: none of this owner's yet.
	position string
	// count is how many entries the stream has had up to there; less than 0: not known.
	count int64
}

// An entry is one of the stream e, with its events that are webhooks.
type entry struct {
	id    string
	count int64 // entries of the stream up to it; less than 0: not known
	// mayBeScheduled: an earlier owner may have scheduled its events. One that is in the schedule keeps its place
	// there.
	mayBeScheduled bool
	events         []*event

	queuedAt int64 // ms
	open     int   // events that are not settled
}

// push takes the next entry of the stream.
func (t *tail) push(e *entry) {
	t.entries.push(e)
	t.advance()
}

// settle takes note that one of an entry's events has ended or is in a schedule, as was confirmed. Then advance.
func (t *tail) settle(e *entry) { e.open-- }

// advance moves the position behind all entries that are settled.
func (t *tail) advance() {
	for t.entries.len() > 0 && t.entries.at(0).open == 0 {
		first := t.entries.pop()
		t.position, t.count = first.id, first.count
		t.scheduled = max(t.scheduled-1, 0)
	}
}

// overdue returns the first entry that must be scheduled now, because it has waited for spillAfter; nil for none.
// The caller schedules its events, and asks again.
func (t *tail) overdue(now int64) *entry {
	if t.overdueAt() > now {
		return nil
	}
	e := t.entries.at(t.scheduled)
	t.scheduled++
	return e
}

// overdueAt returns when overdue will have an entry, in ms; never if there is none.
func (t *tail) overdueAt() int64 {
	if t.scheduled == t.entries.len() {
		return never
	}
	return t.entries.at(t.scheduled).queuedAt + spillAfter
}

// drawBack corrects times of a clock that was ahead.
func (t *tail) drawBack(now int64) {
	for i := range t.entries.len() {
		e := t.entries.at(i)
		e.queuedAt = min(e.queuedAt, now)
	}
}
