package judge

import (
	"fmt"
	"maps"
	"slices"

	"vendorapi/loadtest/faults/history"
)

// checkAcknowledged: every order that a client was told of exists, once, and is
// what the client asked for.
func (c *courtCase) checkAcknowledged() {
	archived := make(map[string]bool)
	if c.facts.Archive != nil {
		for i := range c.facts.Archive.Orders {
			archived[c.facts.Archive.Orders[i].ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.made)) {
		first := c.made[id][0]
		o := c.orders[id]
		if o == nil {
			where := "and is nowhere"
			if archived[id] {
				where = "and is missing in Redis, though ClickHouse has it"
			}
			c.violated(LostOrder, fmt.Sprintf("external id %q was answered %d %s", first.External, first.Status, where), id)
		}
		for _, op := range c.made[id] {
			switch {
			case op.External != first.External || op.Account != first.Account:
				c.violated(DuplicateOrder, fmt.Sprintf("one order was answered for the external ids %q and %q", first.External, op.External), id)
			case o != nil && (o.External != op.External || o.Account != op.Account):
				c.violated(OrderDiffers, fmt.Sprintf("it was answered for external id %q and has %q", op.External, o.External), id)
			case o != nil && op.Content != "" && o.Content != "" && o.Content != op.Content:
				c.violated(OrderDiffers, fmt.Sprintf("the order with external id %q is not what its request said", op.External), id)
			}
		}
	}
	for name, ops := range c.creates {
		c.checkExternal(name, ops)
	}
}

// checkExternal: an external id is accepted once.
func (c *courtCase) checkExternal(name named, ops []*history.Op) {
	var first *history.Op
	fresh := 0
	for _, op := range ops {
		if !op.OK() {
			continue
		}
		if first == nil {
			first = op
		}
		if op.Order != first.Order {
			c.violated(DuplicateOrder, fmt.Sprintf("external id %q was answered with two orders", name.name), first.Order, op.Order)
		}
		if !op.Replayed {
			if fresh++; fresh == 2 {
				c.violated(DuplicateOrder, fmt.Sprintf("external id %q was accepted twice", name.name), op.Order)
			}
		}
	}
}

// checkKeys: an idempotency key has one success, whose bytes every replay
// repeats.
func (c *courtCase) checkKeys() {
	firsts := make(map[named]*history.Op)
	for i := range c.ops {
		op := &c.ops[i]
		if op.Kind != history.Create || !op.OK() {
			continue
		}
		if op.Key == "" {
			if op.Replayed {
				c.violated(KeyTwoOutcomes, "a creation without a key was answered as a replay", op.Account, op.Order)
			}
			continue
		}
		key := named{op.Account, op.Key}
		first := firsts[key]
		if first == nil {
			firsts[key] = op
			continue
		}
		switch {
		case op.Order != first.Order:
			c.violated(KeyTwoOutcomes, fmt.Sprintf("key %q was answered with two orders", op.Key), first.Order, op.Order)
		case op.Body != first.Body:
			c.violated(KeyTwoOutcomes, fmt.Sprintf("key %q succeeded with two different bodies", op.Key), op.Order)
		case !op.Replayed && !first.Replayed:
			c.violated(KeyTwoOutcomes, fmt.Sprintf("key %q was accepted twice", op.Key), op.Order)
		case op.Answer != first.Answer:
			c.violated(ReplayDiffers, fmt.Sprintf("key %q was answered with two different texts", op.Key), op.Order)
		}
	}
}

// checkStored: every order has a request that can have made it, one that
// succeeded or one whose client saw no answer.
func (c *courtCase) checkStored() {
	c.eachOrder(func(o *Order) {
		explained := slices.ContainsFunc(c.creates[named{o.Account, o.External}], func(op *history.Op) bool {
			return op.OK() && op.Order == o.ID || op.Unknown() && !op.Invalid
		})
		if !explained {
			c.violated(UnknownOrder, fmt.Sprintf("no request accounts for the order with external id %q", o.External), o.ID)
		}
	})
	for _, says := range c.facts.Unreadable {
		c.violated(Unreadable, says)
	}
}
