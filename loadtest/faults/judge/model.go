package judge

import (
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// The sequential model of a few orders that share external ids or idempotency
// keys. Its state is a text, one byte for each external id, then three for each
// key:
//
//	order  0 not there, else the status that the order has reached at least;
//	       the high bit: it can never be cancelled any more
//	key    0 free, else 1; the number of the body; the number of the external id
//
// A courier moves orders when nobody looks, so a status is where the order is at
// least: whatever can follow it may be seen next.

// uncancellable marks an order whose pickup was reported: a cancellation was
// refused, so none can succeed any more.
const uncancellable = 0x80

// request is an operation as the model takes it.
type request struct {
	kind     history.Kind
	external int // number of the external id
	key      int // number of the key; -1: none
	body     byte
	invalid  bool
	unknown  bool
}

// answer is what the client saw.
type answer struct {
	status   int
	code     delivery.Code
	replayed bool
	state    delivery.Status // 0: none shown
}

// nothingDone reports an answer that says that the request was turned away
// before anything was looked at: no token, no quota, no account.
func (a *answer) nothingDone() bool {
	switch a.status {
	case 400, 401, 403, 405, 408, 411, 413, 415, 429, 431:
		return true
	}
	return false
}

// model says how many external ids a state has.
type model struct{ externals int }

func (m model) initial(keys int) string { return string(make([]byte, m.externals+3*keys)) }

// step judges one operation on a state; the state after it when it is possible.
func (m model) step(state string, q request, a answer) (bool, string) {
	if !q.unknown && a.nothingDone() {
		return true, state
	}
	switch q.kind {
	case history.Create:
		return m.create(state, q, a)
	case history.Cancel:
		return m.cancel(state, q, a)
	default:
		return m.read(state, q, a)
	}
}

func (m model) create(state string, q request, a answer) (bool, string) {
	at := m.externals + 3*q.key
	switch {
	case q.key >= 0 && state[at] != 0:
		if state[at+1] != q.body {
			return q.unknown || a.code == delivery.CodeDuplicateOrder, state
		}
		// The replay tells of the order that the key made, whatever the body names.
		return q.unknown || a.ok() && a.replayed, state
	case q.invalid:
		return q.unknown || a.status == 422, state
	case !q.unknown && slices.Contains(newRefused, a.code):
		return true, state
	case state[q.external] != 0:
		return q.unknown || a.code == delivery.CodeDuplicateOrder, state
	case !q.unknown && (!a.ok() || a.replayed):
		return false, state
	}
	after := []byte(state)
	after[q.external] = byte(delivery.Searching)
	if q.key >= 0 {
		after[at], after[at+1], after[at+2] = 1, q.body, byte(q.external)
	}
	return true, string(after)
}

func (a *answer) ok() bool { return a.status >= 200 && a.status < 300 }

// newRefused is what a store or a fleet may answer to any new order.
var newRefused = []delivery.Code{
	delivery.CodeStoreNotConfigured, delivery.CodeFleetSuspended, delivery.CodeDropoffOutOfCoverage, delivery.CodeFleetUnavailable,
}

func (m model) cancel(state string, q request, a answer) (bool, string) {
	order := state[q.external]
	floor, fixed := delivery.Status(order&^uncancellable), order&uncancellable != 0
	can := floor == delivery.Cancelled || floor.Cancellable() && !fixed
	switch {
	case q.unknown:
		if !can {
			return true, state
		}
		return true, with(state, q.external, byte(delivery.Cancelled))
	case a.ok():
		return can, with(state, q.external, byte(delivery.Cancelled))
	case a.code == delivery.CodeOrderNotFound:
		return order == 0, state
	case a.code == delivery.CodeOrderNotCancellable:
		return order != 0 && floor != delivery.Cancelled, with(state, q.external, order|uncancellable)
	}
	return false, state
}

func (m model) read(state string, q request, a answer) (bool, string) {
	order := state[q.external]
	switch {
	case q.unknown:
		return true, state
	case a.code == delivery.CodeOrderNotFound:
		return order == 0, state
	case !a.ok() || order == 0:
		return false, state
	case a.state == 0: // nobody looked
		return true, state
	case !reachable(order, a.state):
		return false, state
	}
	return true, with(state, q.external, byte(a.state)|order&uncancellable)
}

// reachable tells whether an order may be in a status, by where it was at least.
func reachable(order byte, to delivery.Status) bool {
	floor := delivery.Status(order &^ uncancellable)
	switch {
	case floor == to:
		return true
	case floor.Terminal():
		return false
	case to == delivery.Cancelled:
		return floor.Cancellable() && order&uncancellable == 0
	}
	return to > floor
}

func with(state string, at int, value byte) string {
	after := []byte(state)
	after[at] = value
	return string(after)
}
