package judge

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

// checkPublished: the stream of events has every version of every order exactly
// once, and nothing else.
func (c *courtCase) checkPublished() {
	counts := make(map[string]int)
	foreign := c.foreign()
	for _, p := range c.facts.Published {
		at := Subject(p.Order, delivery.Sequence(p.Version))
		counts[at]++
		o := c.orders[p.Order]
		switch {
		case o == nil && !foreign[p.Order]:
			c.violated(UnknownOrder, "the stream of events tells of an order that is not there", at)
		case o != nil && o.statusAt(delivery.Sequence(p.Version)) == "":
			c.violated(VersionGap, "the stream of events tells of a version that the order does not have", at)
		}
	}
	c.eachOrder(func(o *Order) {
		for i := 0; i <= len(o.Changes); i++ {
			at := Subject(o.ID, uint32(i)+1)
			switch n := counts[at]; {
			case n == 0:
				c.violated(EventLost, "the stream of events does not have it", at)
			case n > 1:
				c.violated(EventTwice, fmt.Sprintf("the stream of events has it %d times", n), at)
			}
		}
	})
}

// foreign are the orders of accounts that are not judged.
func (c *courtCase) foreign() map[string]bool {
	foreign := make(map[string]bool)
	for i := range c.facts.Orders {
		if o := &c.facts.Orders[i]; c.accounts[o.Account] == nil {
			foreign[o.ID] = true
		}
	}
	return foreign
}

// checkArchive: ClickHouse has every order and every step of it, as Redis has
// them, and no other.
func (c *courtCase) checkArchive() {
	a := c.facts.Archive
	if a == nil {
		return
	}
	archived := make(map[string]bool)
	for i := range a.Orders {
		row := &a.Orders[i]
		if c.accounts[row.Account] == nil {
			continue
		}
		o := c.orders[row.ID]
		switch {
		case archived[row.ID]:
			c.violated(ClickHouseDiffers, "it has two rows", row.ID)
		case o == nil:
			c.violated(ClickHouseDiffers, fmt.Sprintf("ClickHouse has the order with external id %q, Redis does not", row.External), row.ID)
		default:
			c.compareRow(o, row)
		}
		archived[row.ID] = true
	}
	steps := make(map[string][]*ArchivedEvent)
	for i := range a.Events {
		row := &a.Events[i]
		if c.accounts[row.Account] == nil {
			continue
		}
		steps[row.Order] = append(steps[row.Order], row)
		if c.orders[row.Order] == nil && !archived[row.Order] {
			c.violated(ClickHouseDiffers, "ClickHouse has a step of an order that Redis does not have", Subject(row.Order, row.Sequence))
		}
	}
	c.eachOrder(func(o *Order) {
		if !archived[o.ID] {
			c.violated(ClickHouseDiffers, "Redis has the order, ClickHouse does not", o.ID)
		}
		c.compareSteps(o, steps[o.ID])
	})
}

func (c *courtCase) compareRow(o, row *Order) {
	differs := func(what string, here, there any) {
		c.violated(ClickHouseDiffers, fmt.Sprintf("%s is %v in Redis and %v in ClickHouse", what, here, there), o.ID)
	}
	if o.Account != row.Account {
		differs("the account", o.Account, row.Account)
	}
	if o.External != row.External {
		differs("the external id", o.External, row.External)
	}
	if o.Version != row.Version {
		differs("the version", o.Version, row.Version)
	}
	if o.Status != row.Status || o.Failure != row.Failure {
		differs("the status", o.Status+" "+o.Failure, row.Status+" "+row.Failure)
	}
	if !o.Created.Equal(row.Created) {
		differs("the time of its creation", o.Created, row.Created)
	}
	if o.Print != row.Print {
		differs("its content", o.Print, row.Print)
	}
}

func (c *courtCase) compareSteps(o *Order, rows []*ArchivedEvent) {
	slices.SortFunc(rows, func(a, b *ArchivedEvent) int { return int(a.Sequence) - int(b.Sequence) })
	if len(rows) != 1+len(o.Changes) {
		c.violated(ClickHouseDiffers, fmt.Sprintf("Redis has %d steps of it, ClickHouse %d", 1+len(o.Changes), len(rows)), o.ID)
		return
	}
	for i, row := range rows {
		want := Change{Status: delivery.Searching.String(), At: o.Created, Version: row.Version}
		if i > 0 {
			want = o.Changes[i-1]
		}
		if int(row.Sequence) != i+1 || delivery.Sequence(row.Version) != row.Sequence || row.Version != want.Version ||
			row.Status != want.Status || row.Failure != want.Failure || !row.At.Equal(want.At) || row.Account != o.Account {
			c.violated(ClickHouseDiffers, fmt.Sprintf("step %d is %s %s of %s in Redis, and step %d, %s %s of %s in ClickHouse", i+1,
				want.Status, want.Failure, want.At.Format(time.RFC3339Nano), row.Sequence, row.Status, row.Failure, row.At.Format(time.RFC3339Nano)),
				Subject(o.ID, uint32(i)+1))
		}
	}
}

// checkAttempts: what the service recorded of an event's attempts is what its
// receiver saw: nothing is called delivered that did not arrive, and an event is
// settled once.
func (c *courtCase) checkAttempts() {
	a := c.facts.Archive
	if a == nil {
		return
	}
	c.eachOrder(func(o *Order) {
		for i := range o.Changes {
			c.checkAttemptsOf(o, Subject(o.ID, uint32(i)+2))
		}
	})
	for i := range a.Attempts {
		if row := &a.Attempts[i]; c.accounts[row.Account] != nil && row.At.After(c.facts.At.Add(sendSlack)) {
			c.violated(EventWrong, "an attempt is recorded for the future", row.EventID)
		}
	}
}

func (c *courtCase) checkAttemptsOf(o *Order, at string) {
	final := 0
	numbers := make(map[int]bool)
	for _, row := range c.attempts[at] {
		if row.Account != o.Account {
			c.violated(ClickHouseDiffers, "an attempt is recorded for another account", at)
		}
		if row.Replay {
			continue
		}
		if row.State != "retrying" {
			final++
		}
		if !row.Probe && row.Attempt > 0 {
			if numbers[row.Attempt] {
				c.violated(EventTwice, fmt.Sprintf("attempt %d is recorded twice", row.Attempt), at)
			}
			numbers[row.Attempt] = true
		}
		if row.State == "delivered" && !c.cameBy(at, row.Recorded) {
			c.violated(EventLost, "it is recorded as delivered, and until then its receiver had not accepted it", at)
		}
	}
	if final > 1 {
		c.violated(EventTwice, fmt.Sprintf("%d final outcomes are recorded", final), at)
	}
	waits := slices.ContainsFunc(c.heldSubjects(o), func(held string) bool { return held == at })
	if final == 0 && !waits {
		c.violated(ClickHouseDiffers, "no outcome of its webhook is recorded", at)
	}
}

// heldSubjects are the changes of an order whose webhooks still wait.
func (c *courtCase) heldSubjects(o *Order) (subjects []string) {
	for i, held := range c.held(o) {
		if held {
			subjects = append(subjects, Subject(o.ID, uint32(i)+2))
		}
	}
	return subjects
}

// recordSlack is for what a time loses when it is kept in milliseconds.
const recordSlack = 5 * time.Millisecond

// cameBy reports whether an event that its receiver accepted had come when it was
// recorded. By what the worker measured nobody can go: it may have been held up
// between any two of its steps.
func (c *courtCase) cameBy(at string, recorded time.Time) bool {
	return slices.ContainsFunc(c.arrivals[at], func(a *Arrival) bool {
		return a.accepted() && a.Began.Before(recorded.Add(recordSlack))
	})
}
