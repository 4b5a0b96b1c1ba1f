package dispatch

import (
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// An event waits for one endpoint. An endpoint has each key in memory at most once.
type event struct {
	account  delivery.AccountID
	key      string               // its name in the schedule
	delivery *partitions.Delivery // nil for a test ping, and once the event has left memory

	// What the schedule says of it, as in partitions.Scheduled; zero for an event that has not been loaded from there, nor is
	// arriving there: such a one is due at once.
	dueAt      int64 // ms; of a test ping, when it was made
	attempts   int   // made before
	replayedAt int64 // ms
	askedAt    int64 // ms

	state eventState
	// isScheduled: the event is in memory, and stands in the schedule as well or will with the next step. It is not kept
	// while the event is arriving.
	isScheduled bool
	endpoint    *endpoint
	// entry is the stream's, while the webhook position has to wait for this event.
	entry *entry
	// bytes is what the event takes of the memory budget while it is queued or in flight.
	bytes int64

	// isProbe: the event is sent before its time, to see whether the receiver is back. A failure is no
	// attempt, and leaves its time as it is.
	isProbe bool
	// isPing: a test event without a key, which is in no schedule.
	isPing bool

	// Of its last send.
	version         int64 // of the receiver that it was sent to
	isOfFailing     bool  // it has one of the places of receivers that fail
	isReplayedSince bool  // a replay has asked for the event since that send began

	// isUnattempted: the event is arriving, and no attempt of it counts so far.
	isUnattempted bool
	// isOfDeletedURL: the event is arriving, and its URL was deleted. It is refused once it has arrived.
	isOfDeletedURL bool
	// inQueue is the queue's.
	inQueue inQueue
}

// eventState is where an event is, by the names of docs/webhook-states.md.
type eventState byte

const (
	// unloaded: memory does not have it.
	unloaded eventState = iota
	// queued: it waits in memory for a place.
	queued
	inFlight
	// arriving: its place in the schedule is to be written with the next step. Memory knows it until that is confirmed,
	// and until a read of the schedule that may not show it has ended.
	arriving
	// refused: it has no receiver, and ends as not sent with one of the next steps.
	refused
	// ended: its end is to be written with the next step. Memory knows it as long as one that is arriving.
	ended
)

// isInMemory reports whether the event counts as one that memory has: the others only wait for what is to be written
// of them.
func (s eventState) isInMemory() bool { return s == queued || s == inFlight }

// isReplay reports whether a replay has asked for the event, which is recorded of its sends.
func (ev *event) isReplay() bool { return ev.replayedAt > 0 || ev.askedAt > 0 }

// nextAttempt returns when the event is due again after an attempt that failed. Its URL may have changed during the
// attempt, so that it is due at once, or may have been deleted: then it is never, the zero time.
func (ev *event) nextAttempt() time.Time {
	if ev.state == refused {
		return time.Time{}
	}
	return time.UnixMilli(ev.dueAt)
}

// wasBegun reports whether the event is in flight, or has ended without a confirmation.
func (ev *event) wasBegun() bool { return ev.state == inFlight || ev.state == ended }

// differsInReplays reports whether the schedule, as it was read, says that a replay has asked for the event
// since it came to memory.
func (ev *event) differsInReplays(read *event) bool {
	return read.replayedAt != ev.replayedAt || read.askedAt != ev.askedAt
}

// versionAt is where the version begins in the key of an order's event; before it stands the order.
const versionAt = 15

// order returns the part of the key that names the event's order; false if it is a notice.
func (ev *event) order() (string, bool) {
	if len(ev.key) <= versionAt || ev.key[0] != keyOfOrder {
		return "", false
	}
	return ev.key[:versionAt], true
}

// keyOfOrder is the first byte of the key of an order's event.
const keyOfOrder = 1

// size returns about how many bytes of memory the event takes.
func (ev *event) size() int64 {
	if ev.delivery == nil {
		return eventOverhead
	}
	return eventOverhead + int64(ev.delivery.Bytes())
}

// eventOverhead is about what an event takes besides its delivery: itself, its key, and its places in maps and lists.
const eventOverhead = 400
