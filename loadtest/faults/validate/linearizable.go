package validate

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"vendorapi/internal/delivery"
)

// oneSearch and allSearches bound how long the search for a linearization may take: of one history, and of all together.
var (
	oneSearch   = 2 * time.Second
	allSearches = 30 * time.Second
)

// history is a set of operations of one account that share external ids and idempotency keys only among themselves.
// Refusals by a limit change nothing, so an account's operations are linearizable exactly if each history is.
type history struct {
	ops       []*Operation
	externals []string
	keys      []string
	bodies    []string
}

// checkLinearizable checks that each history is linearizable: there is an order of its operations, each placed between its
// start and its end, in which every answer is right, and which ends with a read of each order as Redis has it. An operation
// with an unknown outcome may take effect at any time after its start, or never. A history that is too large, or whose
// search takes too long, counts as undecided.
func (c *check) checkLinearizable() {
	deadline := time.Now().Add(allSearches)
	for _, h := range c.histories() {
		c.report.Histories++
		timeout := min(oneSearch, time.Until(deadline))
		const maxDistinct = 254 // ids and bodies that the state can distinguish
		isTooLarge := len(h.externals) > maxDistinct || len(h.bodies) > maxDistinct
		if timeout <= 0 || isTooLarge {
			c.report.Undecided++
			continue
		}

		switch porcupine.CheckOperationsTimeout(h.model(), c.steps(h), timeout) {
		case porcupine.Illegal:
			text := "no order of these operations explains their answers and what Redis has in the end:"
			for _, op := range h.ops[:min(12, len(h.ops))] {
				text += fmt.Sprintf("\n    %+v", *op)
			}
			c.violated(NotLinearizable, h.externals, "%s", text)
		case porcupine.Unknown:
			c.report.Undecided++
		case porcupine.Ok:
		}
	}
}

// histories divides the operations into histories. It leaves out operations on orders that no creation explains; the other
// checks report these.
func (c *check) histories() []*history {
	groups := make(map[name]*history) // by external id or key, which share one if a creation has both
	for _, op := range c.ops {
		if op.Kind != Create {
			continue
		}

		external, key := name{op.Account, "external " + op.External}, name{op.Account, "key " + op.Key}
		if groups[external] == nil {
			groups[external] = new(history)
		}

		// The key and the external id are of one creation, so the histories that have them become one.
		from, to := groups[key], groups[external]
		if from != nil && from != to {
			for n, h := range groups {
				if h == from {
					groups[n] = to
				}
			}
		}

		if op.Key != "" {
			groups[key] = groups[external]
		}
	}

	var histories []*history
	for _, op := range c.ops {
		external := c.externalOf(op)
		h := groups[name{op.Account, "external " + external}]
		if h == nil {
			continue
		}

		if len(h.ops) == 0 {
			histories = append(histories, h)
		}

		h.ops = append(h.ops, op)
		number(&h.externals, external)
		if op.Kind == Create {
			number(&h.bodies, op.Body)
			if op.Key != "" {
				number(&h.keys, op.Key)
			}
		}
	}

	return histories
}

// keyLifetime is how long an idempotency key is remembered after its success (decisions, "Limits and idempotency").
const keyLifetime = 24 * time.Hour

// hasForgotten reports whether the service need not remember a creation's key any more. Such a creation is checked like one
// without a key.
func (h *history) hasForgotten(create *Operation) bool {
	return slices.ContainsFunc(h.ops, func(op *Operation) bool {
		isOfKey := op.Kind == Create && op.Key == create.Key
		return isOfKey && op.OK() && create.Start.After(op.End.Add(keyLifetime))
	})
}

// number returns the index of a text in a list. It appends the text if the list does not have it.
func number(list *[]string, text string) int {
	index := slices.Index(*list, text)
	if index < 0 {
		index = len(*list)
		*list = append(*list, text)
	}

	return index
}

// externalOf returns the external id of an operation's order; "" if it is unknown.
func (c *check) externalOf(op *Operation) string {
	if op.Kind == Create {
		return op.External
	}

	for _, made := range c.made[op.Order] {
		if made.Account == op.Account {
			return made.External
		}
	}

	if o := c.orders[op.Order]; o != nil && o.Account == op.Account {
		return o.External
	}

	return ""
}

// steps returns the operations of a history in the form that porcupine takes, and after them a read of each order as Redis
// has it. It leaves out reads whose answer is unknown.
func (c *check) steps(h *history) (steps []porcupine.Operation) {
	begin := h.ops[0].Start
	add := func(s step, start, end time.Duration) {
		s.shown, _ = delivery.ParseStatus(s.State) // none is 0
		steps = append(steps, porcupine.Operation{ClientId: len(steps), Input: s, Call: int64(start), Return: int64(end)})
	}

	lastOp := slices.MaxFunc(h.ops, func(a, b *Operation) int { return a.End.Compare(b.End) })
	last := lastOp.End.Sub(begin)

	for _, op := range h.ops {
		if op.Unknown() && op.Kind == Read {
			continue
		}

		s := step{Operation: op, external: number(&h.externals, c.externalOf(op)), key: -1}
		if op.Kind == Create {
			s.body = byte(1 + number(&h.bodies, op.Body))
			if !h.hasForgotten(op) {
				s.key = slices.Index(h.keys, op.Key)
			}
		}

		end := op.End.Sub(begin)
		if op.Unknown() {
			end = last + 4 // it may be placed after the final reads, as if it had never happened
		}

		add(s, op.Start.Sub(begin), end)
	}

	for i, external := range h.externals {
		final := &Operation{Kind: Read, Status: 404, Code: string(delivery.CodeOrderNotFound)}
		if o := c.external[name{h.ops[0].Account, external}]; o != nil {
			final = &Operation{Kind: Read, Status: 200, State: o.Status}
		}
		add(step{Operation: final, external: i, key: -1}, last+1, last+2)
	}

	return steps
}

// The sequential model of the orders of a history. Its state is a text, one byte for each external id, then one for each key:
//
//	order  0 not there, else the status that the order has reached at least;
//	       the high bit: it can never be cancelled any more
//	key    0 free, else the number of the body, from 1
//
// A courier moves orders at any time, so whatever can follow a status may be seen next.

// uncancellable is the bit of an order that can never be cancelled any more: a cancellation was refused after the pickup had
// been reported.
const uncancellable = 0x80

// A step is an operation as the model sees it. Texts are replaced by their numbers in the history.
type step struct {
	*Operation

	external int             // number of the external id
	key      int             // number of the key; -1: none
	body     byte            // number of the body, from 1
	shown    delivery.Status // the order's status in the answer; 0: none
}

// has reports whether the answer has an error code.
func (s *step) has(code delivery.Code) bool { return s.Code == string(code) }

// beforeAnything are the statuses of requests that were refused before the ledger was asked: they had no token or no quota,
// or could not be read.
var beforeAnything = []int{400, 401, 403, 405, 408, 411, 413, 415, 429, 431}

// newRefused are the codes with which a creation may be refused whatever the state of its order and key.
var newRefused = []delivery.Code{
	delivery.CodeStoreNotConfigured,
	delivery.CodeFleetSuspended,
	delivery.CodeDropoffOutOfCoverage,
	delivery.CodeFleetUnavailable,
}

// model returns the sequential model of the history's orders, as described above.
func (h *history) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return string(make([]byte, len(h.externals)+len(h.keys))) },
		Step: func(state, input, _ any) (bool, any) {
			s, q := state.(string), input.(step)
			switch {
			case !q.Unknown() && slices.Contains(beforeAnything, q.Status):
				return true, s
			case q.Kind == Create:
				return q.create(s, len(h.externals)+q.key)
			case q.Kind == Cancel:
				return q.cancel(s)
			}

			return q.read(s)
		},
	}
}

// create reports whether a creation with this answer is possible in a state, and returns the state after it. at is the
// index of the key's byte in the state.
func (s *step) create(state string, at int) (bool, string) {
	unknown := s.Unknown()
	switch {
	case s.key >= 0 && state[at] != 0:
		if state[at] != s.body {
			return unknown || s.has(delivery.CodeDuplicateOrder), state
		}

		// The replay is of the key's order, whatever the body names.
		return unknown || s.OK() && s.Replayed, state
	case s.Invalid:
		return unknown || s.Status == 422, state
	case !unknown && slices.ContainsFunc(newRefused, s.has):
		return true, state
	case state[s.external] != 0:
		return unknown || s.has(delivery.CodeDuplicateOrder), state
	case !unknown && (!s.OK() || s.Replayed):
		return false, state
	}

	state = with(state, s.external, byte(delivery.Searching))
	if s.key >= 0 {
		state = with(state, at, s.body)
	}

	return true, state
}

// cancel reports whether a cancellation with this answer is possible in a state, and returns the state after it.
func (s *step) cancel(state string) (bool, string) {
	order := state[s.external]
	floor := delivery.Status(order &^ uncancellable)
	isCancellable := floor == delivery.Cancelled || floor.Cancellable() && order&uncancellable == 0
	cancelled := with(state, s.external, byte(delivery.Cancelled))
	switch {
	case s.Unknown() && !isCancellable:
		return true, state
	case s.Unknown():
		return true, cancelled
	case s.OK():
		return isCancellable, cancelled
	case s.has(delivery.CodeOrderNotFound):
		return order == 0, state
	}

	tooLate := s.has(delivery.CodeOrderNotCancellable) && order != 0 && floor != delivery.Cancelled

	return tooLate, with(state, s.external, order|uncancellable)
}

// read reports whether a read with this answer is possible in a state, and returns the state after it.
func (s *step) read(state string) (bool, string) {
	order := state[s.external]
	switch {
	case s.has(delivery.CodeOrderNotFound):
		return order == 0, state
	case !s.OK() || order == 0:
		return false, state
	case s.shown == 0:
		return true, state
	}

	return reachable(order, s.shown), with(state, s.external, byte(s.shown)|order&uncancellable)
}

// reachable reports whether an order may be in a status. order is its byte in the state, which has the status that it has
// reached at least.
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

// with returns the state with another byte at an index.
func with(state string, at int, value byte) string {
	return state[:at] + string([]byte{value}) + state[at+1:]
}
