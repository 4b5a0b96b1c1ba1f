package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// mostNumbers is how many external ids and bodies the model can tell apart.
const mostNumbers = 255

// How long the search for a linearization may take: of one history, and of all.
// Tests wait for as long as it takes.
var (
	oneSearch   = 2 * time.Second
	allSearches = 30 * time.Second
)

// island is a set of operations of one account that have nothing to do with any
// other: they share external ids and idempotency keys only among themselves.
// Orders of different ids touch nothing in common but the account's limits, and a
// refusal by a limit changes nothing, so an account's history is linearizable
// exactly if each of its islands is.
type island struct {
	externals map[string]int
	keys      map[string]int
	bodies    map[string]byte
	ops       []*history.Op
	names     []string // of externals
}

// checkLinearizable: for each account there is an order of all operations, each
// between its start and its end, in which every answer is right. The last
// operation is a reading of what Redis has in the end. What is unknown may take
// effect at any time after its start, or never.
func (c *courtCase) checkLinearizable() {
	deadline := time.Now().Add(allSearches)
	for _, one := range c.islands() {
		c.report.Histories++
		left := min(oneSearch, time.Until(deadline))
		if left <= 0 || len(one.names) > mostNumbers || len(one.bodies) > mostNumbers {
			c.report.Undecided++
			continue
		}
		m := model{externals: len(one.names)}
		switch porcupine.CheckOperationsTimeout(m.porcupine(len(one.keys)), c.operations(one), left) {
		case porcupine.Illegal:
			c.violated(NotLinearizable, fmt.Sprintf("no order of these %d operations explains their answers and what Redis has in the end: %s",
				len(one.ops), c.story(one)), one.names...)
		case porcupine.Unknown:
			c.report.Undecided++
		case porcupine.Ok:
		}
	}
}

func (m model) porcupine(keys int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return m.initial(keys) },
		Step: func(state, input, output any) (bool, any) {
			return m.step(state.(string), input.(request), output.(answer))
		},
		Equal: func(a, b any) bool { return a.(string) == b.(string) },
	}
}

// islands parts the operations. Those on orders that no creation explains are
// left to the other checks, but for those that were told that there is none.
func (c *courtCase) islands() []*island {
	roots := make(map[string]string)
	var root func(string) string
	root = func(name string) string {
		if up, ok := roots[name]; ok && up != name {
			roots[name] = root(up)
			return roots[name]
		}
		roots[name] = name
		return name
	}
	for i := range c.ops {
		if op := &c.ops[i]; op.Kind == history.Create {
			external := op.Account + " e " + op.External
			if root(external); op.Key != "" {
				roots[root(op.Account+" k "+op.Key)] = root(external)
			}
		}
	}
	found := make(map[string]*island)
	for i := range c.ops {
		op := &c.ops[i]
		external, ok := c.externalOf(op)
		if !ok {
			continue
		}
		if _, known := roots[op.Account+" e "+external]; !known {
			continue
		}
		name := root(op.Account + " e " + external)
		if found[name] == nil {
			found[name] = &island{externals: make(map[string]int), keys: make(map[string]int), bodies: make(map[string]byte)}
		}
		found[name].add(op, external)
	}
	islands := make([]*island, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		islands = append(islands, found[name])
	}
	return islands
}

// externalOf is the external id that an operation is about.
func (c *courtCase) externalOf(op *history.Op) (string, bool) {
	if op.Kind == history.Create {
		return op.External, true
	}
	for _, made := range c.made[op.Order] {
		if made.Account == op.Account {
			return made.External, true
		}
	}
	if o := c.orders[op.Order]; o != nil && o.Account == op.Account {
		return o.External, true
	}
	return "", false
}

func (l *island) add(op *history.Op, external string) {
	l.ops = append(l.ops, op)
	if _, known := l.externals[external]; !known {
		l.externals[external] = len(l.names)
		l.names = append(l.names, external)
	}
	if op.Kind != history.Create {
		return
	}
	if _, known := l.keys[op.Key]; !known && op.Key != "" {
		l.keys[op.Key] = len(l.keys)
	}
	if _, known := l.bodies[op.Body]; !known {
		l.bodies[op.Body] = byte(len(l.bodies))
	}
}

// operations are an island's as porcupine takes them, and a last reading of each
// order.
func (c *courtCase) operations(l *island) []porcupine.Operation {
	begin := l.ops[0].Start
	last := time.Duration(0)
	for _, op := range l.ops {
		last = max(last, op.End.Sub(begin))
	}
	// Unknown ones may come after the last reading: then they never happened.
	never := last + 4
	operations := make([]porcupine.Operation, 0, len(l.ops)+len(l.names))
	for i, op := range l.ops {
		if op.Unknown() && op.Kind == history.Read {
			continue
		}
		external, _ := c.externalOf(op)
		q := request{kind: op.Kind, external: l.externals[external], key: -1, body: l.bodies[op.Body], invalid: op.Invalid, unknown: op.Unknown()}
		if key, ok := l.keys[op.Key]; ok && op.Kind == history.Create {
			q.key = key
		}
		state, _ := delivery.ParseStatus(op.State) // none is 0
		ended := op.End.Sub(begin)
		if q.unknown {
			ended = never
		}
		operations = append(operations, porcupine.Operation{ClientId: i, Input: q, Call: int64(op.Start.Sub(begin)),
			Output: answer{op.Status, delivery.Code(op.Code), op.Replayed, state}, Return: int64(ended)})
	}
	for i, name := range l.names {
		seen := answer{status: 404, code: delivery.CodeOrderNotFound}
		if o := c.external[named{l.ops[0].Account, name}]; o != nil {
			state, _ := delivery.ParseStatus(o.Status)
			seen = answer{status: 200, state: state}
		}
		operations = append(operations, porcupine.Operation{ClientId: len(l.ops) + i, Input: request{kind: history.Read, external: i, key: -1},
			Call: int64(last) + 1, Output: seen, Return: int64(last) + 2})
	}
	return operations
}

// storyLength bounds what is told of a history that nothing explains.
const storyLength = 12

// story tells an island's operations by their start.
func (c *courtCase) story(l *island) string {
	text := ""
	for i, op := range l.ops {
		if i == storyLength {
			return text + "…"
		}
		what := fmt.Sprintf("%d %s", op.Status, cmp.Or(op.Code, op.State))
		switch {
		case op.Unknown():
			what = "unknown"
		case op.Replayed:
			what += " replayed"
		}
		text += fmt.Sprintf("[%d-%d ms client %d %s key %q body %.4s: %s] ", op.Start.Sub(l.ops[0].Start).Milliseconds(),
			op.End.Sub(l.ops[0].Start).Milliseconds(), op.Client, op.Kind, op.Key, op.Body, what)
	}
	for _, name := range l.names {
		state := "nothing"
		if o := c.external[named{l.ops[0].Account, name}]; o != nil {
			state = o.Status
		}
		text += fmt.Sprintf("in the end %q is %s; ", name, state)
	}
	return text
}
