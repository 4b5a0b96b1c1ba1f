package validate

import (
	"maps"
	"slices"
	"strings"
)

// checkPublished: the stream of events has every version of every order exactly once, and nothing else.
func (c *check) checkPublished() {
	counts := make(map[string]int)
	for _, at := range c.facts.Published {
		counts[at]++
	}
	c.eachOrder(func(o *Order) {
		for sequence := range uint32(1 + len(o.Changes)) {
			at := Subject(o.ID, sequence+1)
			switch n := counts[at]; {
			case n == 0:
				c.about(at, EventLost, "the stream of events does not have it")
			case n > 1:
				c.about(at, EventTwice, "the stream of events has it %d times", n)
			}
			delete(counts, at)
		}
	})
	for at := range counts {
		id, _, _ := strings.Cut(at, "/")
		if o := c.orders[id]; o == nil {
			c.about(at, UnknownOrder, "the stream of events names an order that is not there")
		} else if c.accounts[o.Account] != nil {
			c.about(at, VersionGap, "the stream of events names a version that the order does not have")
		}
	}
}

// checkArchive: ClickHouse has exactly the orders and steps that Redis has.
func (c *check) checkArchive() {
	orders, steps := c.byOrder(c.facts.Archive.Orders), c.byOrder(c.facts.Archive.Steps)
	c.eachOrder(func(o *Order) {
		c.compare(o.ID, orderColumns, [][]string{o.Row}, orders[o.ID])
		c.compare(o.ID, stepColumns, o.stepRows(), steps[o.ID])
		delete(orders, o.ID)
		delete(steps, o.ID)
	})
	for _, id := range slices.Sorted(maps.Keys(orders)) {
		c.about(id, ClickHouseDiffers, "ClickHouse has the order with external id %q, Redis does not", orders[id][0][2])
		delete(steps, id)
	}
	for id := range steps {
		c.about(id, ClickHouseDiffers, "ClickHouse has steps of an order that Redis does not have")
	}
}

// byOrder groups rows of the accounts, whose first two columns are order and account.
func (c *check) byOrder(rows [][]string) map[string][][]string {
	groups := make(map[string][][]string)
	for _, row := range rows {
		if o := c.orders[row[0]]; c.accounts[row[1]] != nil || o != nil && c.accounts[o.Account] != nil {
			groups[row[0]] = append(groups[row[0]], row)
		}
	}
	return groups
}

func (c *check) compare(id string, columns []column, redis, clickHouse [][]string) {
	if len(redis) != len(clickHouse) {
		c.about(id, ClickHouseDiffers, "Redis has %d rows of it (%s), ClickHouse %d", len(redis), columns[len(columns)-1].name, len(clickHouse))
		return
	}
	for i := range redis {
		for n, column := range columns {
			if redis[i][n] != clickHouse[i][n] {
				c.about(id, ClickHouseDiffers, "in row %d the %s is %q in Redis and %q in ClickHouse", i+1, column.name, redis[i][n], clickHouse[i][n])
			}
		}
	}
}

// checkAttempts: nothing is recorded as delivered that did not arrive, and an event is settled once.
func (c *check) checkAttempts() {
	c.eachOrder(func(o *Order) {
		held := c.held(o)
		for i := range o.Changes {
			c.checkAttemptsOf(o, o.subject(i), held[i])
		}
	})
	for _, row := range c.facts.Archive.Attempts {
		if c.accounts[row.Account] != nil && row.At.After(c.facts.At.Add(sendSlack)) {
			c.about(row.EventID, EventWrong, "an attempt is recorded for the future")
		}
	}
}

func (c *check) checkAttemptsOf(o *Order, at string, held bool) {
	final := 0
	numbers := make(map[int]bool)
	for _, row := range c.attempts[at] {
		if row.Account != o.Account {
			c.about(at, ClickHouseDiffers, "an attempt is recorded for another account")
		}
		if row.Replay {
			continue
		}
		if row.State != "retrying" {
			final++
		}
		if !row.Probe && row.Attempt > 0 {
			if numbers[row.Attempt] {
				c.about(at, EventTwice, "attempt %d is recorded twice", row.Attempt)
			}
			numbers[row.Attempt] = true
		}
		// When the worker sent is unknown: it may have been stopped between any two steps.
		came := func(a *Arrival) bool { return a.accepted() && a.Began.Before(row.Recorded.Add(recordSlack)) }
		if row.State == "delivered" && !slices.ContainsFunc(c.arrivals[at], came) {
			c.about(at, EventLost, "it is recorded as delivered, and until then its receiver had not accepted it")
		}
	}
	if final > 1 {
		c.about(at, EventTwice, "%d final outcomes are recorded", final)
	}
	if final == 0 && !held {
		c.about(at, ClickHouseDiffers, "no outcome of its webhook is recorded")
	}
}
