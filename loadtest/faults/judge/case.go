package judge

import (
	"cmp"
	"fmt"
	"slices"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// named is an order by the vendor's name, or an idempotency key.
type named struct{ account, name string }

// courtCase is one round under judgement: what is known, put in order once.
type courtCase struct {
	ops        []history.Op // of the accounts in scope, by start
	facts      *Facts
	report     Report
	violations []Violation

	accounts map[string]*Account
	orders   map[string]*Order // Redis, by id
	external map[named]*Order  // Redis
	creates  map[named][]*history.Op
	made     map[string][]*history.Op // creates that were answered with success, by order id
	arrivals map[string][]*Arrival    // genuine ones that tell of an order, by Subject
	attempts map[string][]*Attempt    // as recorded, by Subject
	remains  map[string]*Remains      // by account
}

func newCase(ops []history.Op, f *Facts) *courtCase {
	c := &courtCase{facts: f,
		accounts: make(map[string]*Account), orders: make(map[string]*Order), external: make(map[named]*Order),
		creates: make(map[named][]*history.Op), made: make(map[string][]*history.Op),
		arrivals: make(map[string][]*Arrival), attempts: make(map[string][]*Attempt), remains: make(map[string]*Remains)}
	for i := range f.Accounts {
		c.accounts[f.Accounts[i].ID] = &f.Accounts[i]
	}
	for _, op := range ops {
		if c.accounts[op.Account] != nil {
			c.ops = append(c.ops, op)
		}
	}
	slices.SortStableFunc(c.ops, func(a, b history.Op) int { return a.Start.Compare(b.Start) })
	c.indexOps()
	c.indexFacts()
	return c
}

func (c *courtCase) indexOps() {
	for i := range c.ops {
		op := &c.ops[i]
		if op.Kind != history.Create {
			continue
		}
		name := named{op.Account, op.External}
		c.creates[name] = append(c.creates[name], op)
		if op.OK() {
			c.made[op.Order] = append(c.made[op.Order], op)
		}
	}
}

func (c *courtCase) indexFacts() {
	f := c.facts
	for i := range f.Orders {
		o := &f.Orders[i]
		if c.accounts[o.Account] == nil {
			continue
		}
		if other := c.external[named{o.Account, o.External}]; other != nil && other.ID != o.ID {
			c.violated(DuplicateOrder, fmt.Sprintf("Redis has two orders for external id %q", o.External), other.ID, o.ID)
		}
		c.orders[o.ID], c.external[named{o.Account, o.External}] = o, o
	}
	for i := range f.Arrivals {
		a := &f.Arrivals[i]
		if id, version, err := delivery.ParseEventID(a.EventID); err == nil && a.Invalid == "" {
			at := Subject(id.String(), delivery.Sequence(version))
			c.arrivals[at] = append(c.arrivals[at], a)
		}
	}
	for _, list := range c.arrivals {
		slices.SortStableFunc(list, func(a, b *Arrival) int { return a.Began.Compare(b.Began) })
	}
	for i := range f.Remains {
		c.remains[f.Remains[i].Account] = &f.Remains[i]
	}
	if f.Archive == nil {
		return
	}
	for i := range f.Archive.Attempts {
		a := &f.Archive.Attempts[i]
		if id, version, err := delivery.ParseEventID(a.EventID); err == nil {
			at := Subject(id.String(), delivery.Sequence(version))
			c.attempts[at] = append(c.attempts[at], a)
		}
	}
}

func (c *courtCase) violated(i Invariant, says string, subjects ...string) {
	c.violations = append(c.violations, Violation{Invariant: i, Subjects: subjects, Says: says})
}

// eachOrder goes through the orders of Redis in a fixed order.
func (c *courtCase) eachOrder(do func(o *Order)) {
	for i := range c.facts.Orders {
		if o := &c.facts.Orders[i]; c.orders[o.ID] == o {
			do(o)
		}
	}
}

// statusAt is the status that a sequence of the order stands for; "" for one
// that it has not reached.
func (o *Order) statusAt(sequence uint32) string {
	switch {
	case sequence == 1:
		return delivery.Searching.String()
	case sequence < 1 || int(sequence)-2 >= len(o.Changes):
		return ""
	}
	return o.Changes[sequence-2].Status
}

// path is every status of the order, creation first.
func (o *Order) path() []string {
	path := []string{delivery.Searching.String()}
	for _, change := range o.Changes {
		path = append(path, change.Status)
	}
	return path
}

func (c *courtCase) checkCounts() {
	r := &c.report
	r.Operations = len(c.ops)
	for i := range c.ops {
		op := &c.ops[i]
		switch {
		case op.Unknown():
			r.Unknown++
		case !op.OK():
			r.Refusals++
		}
		if op.Replayed {
			r.Replays++
		}
		if op.Status == 429 {
			r.Limited++
		}
		if op.Status == 500 {
			c.violated(ServerError, fmt.Sprintf("a %s was answered 500 %s", op.Kind, op.Code), op.Account, cmp.Or(op.Order, op.External))
		}
	}
	c.eachOrder(func(o *Order) {
		r.Orders++
		r.States += 1 + len(o.Changes)
	})
	r.Webhooks = len(c.facts.Arrivals)
	if a := c.facts.Archive; a != nil {
		r.Rows = len(a.Orders) + len(a.Events) + len(a.Attempts)
	}
}
