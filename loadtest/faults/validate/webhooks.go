package validate

import (
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

const (
	retryWindow = 24 * time.Hour   // after an event (spec, "Limits")
	sendSlack   = 30 * time.Second // for the request's way and for clocks
	recordSlack = 5 * time.Millisecond
	// healthyBound is what the slowest of a hundred changes may take while only receivers are disturbed: some 20 ms on
	// an idle machine.
	healthyBound = 3 * time.Second
)

// checkArrivals: every webhook is signed, true, in time, and the same each time.
func (c *check) checkArrivals() {
	bodies := make(map[string]string)
	for i := range c.facts.Arrivals {
		a := &c.facts.Arrivals[i]
		if c.accounts[a.Account] == nil || a.Invalid == brokeOff {
			continue
		}
		if a.Invalid != "" {
			c.about(a.EventID, EventWrong, "a webhook was refused by its receiver: %s", a.Invalid)
			continue
		}
		if first, seen := bodies[a.EventID]; seen && first != a.Body {
			c.about(a.EventID, EventWrong, "two attempts of one event had different bodies")
		}
		bodies[a.EventID] = a.Body
		if late := a.Began.Sub(a.Occurred); late > retryWindow+sendSlack {
			c.about(a.EventID, EventLate, "it was sent %s after it happened", late)
		}
		if a.Event == string(delivery.StatusChanged) {
			c.checkArrival(a)
		}
	}
}

func (c *check) checkArrival(a *Arrival) {
	id, version, err := delivery.ParseEventID(a.EventID)
	o, sequence := c.orders[id.String()], int(delivery.Sequence(version))
	wrong := func(format string, args ...any) {
		c.violated(EventWrong, []string{a.EventID, a.Order}, format, args...)
	}
	switch {
	case err != nil:
		wrong("%v", err)
	case a.Order != id.String():
		wrong("the event id names another order")
	case o == nil:
		wrong("it is about an order that is not there")
	case o.Account != a.Account:
		wrong("it was sent to another account")
	case sequence < 2 || sequence > 1+len(o.Changes):
		wrong("it is about version %d, and the order has %d", sequence, 1+len(o.Changes))
	case o.External != a.External:
		wrong("it names external id %q, the order has %q", a.External, o.External)
	default:
		got, want := Change{a.Status, version, a.Occurred.UTC(), a.Failure}, o.Changes[sequence-2]
		if want.At = want.At.UTC(); got != want {
			wrong("it has %+v, and the order %+v", got, want)
		}
	}
}

// checkDelivered: every change reached its receiver, or that was disturbed and it waits or was given up on record; none
// was sent before the first attempt of the one before had ended.
func (c *check) checkDelivered() {
	c.eachOrder(func(o *Order) {
		disturbed, held := c.accounts[o.Account].Disturbed, c.held(o)
		for i, change := range o.Changes {
			at := o.subject(i)
			came := slices.ContainsFunc(c.arrivals[at], (*Arrival).accepted)
			givenUp := slices.ContainsFunc(c.attempts[at], func(a *Attempt) bool { return a.State == "undelivered" })
			if excused := disturbed && (held[i] || givenUp); !came && !excused {
				c.about(at, EventLost, "the change to %s never reached its receiver (disturbed: %t) and does not wait", change.Status, disturbed)
			}
			if arrivals := c.arrivals[at]; i > 0 && len(arrivals) > 0 && !c.attempted(o, o.subject(i-1), arrivals[0].Began) {
				c.about(at, EventUnordered, "%s was sent before the first attempt of %s had ended", change.Status, o.Changes[i-1].Status)
			}
		}
	})
}

// held: which changes of an order wait.
func (c *check) held(o *Order) []bool {
	held := make([]bool, len(o.Changes))
	w := c.remains[o.Account]
	if w == nil {
		return held
	}
	for i := range held {
		held[i] = slices.Contains(w.Waiting, o.subject(i))
	}
	return held
}

// attempted reports whether an attempt can have ended by then. When it ended is unknown if the sender left.
func (c *check) attempted(o *Order, at string, by time.Time) bool {
	if slices.ContainsFunc(c.arrivals[at], func(a *Arrival) bool { return !a.Ended.After(by) || a.Answered == 0 && !a.Began.After(by) }) {
		return true
	}
	if !c.accounts[o.Account].Disturbed {
		return false
	}
	return slices.ContainsFunc(c.attempts[at], func(a *Attempt) bool { return !a.At.After(by) && a.State != "delivered" })
}

// checkLatency: healthy receivers do not wait because of others.
func (c *check) checkLatency() {
	var waits []time.Duration
	c.eachOrder(func(o *Order) {
		for i, change := range o.Changes {
			if arrivals := c.arrivals[o.subject(i)]; len(arrivals) > 0 && !c.accounts[o.Account].Disturbed {
				waits = append(waits, arrivals[0].Began.Sub(change.At))
			}
		}
	})
	if len(waits) == 0 {
		return
	}
	slices.Sort(waits)
	p99 := waits[(len(waits)-1)*99/100]
	if c.report.HealthyP99 = p99; c.facts.Calm && p99 > healthyBound {
		c.violated(HealthySlow, nil, "one change in a hundred took %s or more to its healthy receiver", p99.Round(time.Millisecond))
	}
}

// checkRemains: what waits does so for a disturbed receiver.
func (c *check) checkRemains() {
	for i := range c.facts.Accounts {
		a := &c.facts.Accounts[i]
		w := c.remains[a.ID]
		if w == nil {
			continue
		}
		if len(w.Waiting) > 0 && !a.Disturbed {
			c.about(a.ID, ScheduleLeft, "%d events wait for another attempt, such as %s", len(w.Waiting), w.Waiting[0])
		}
		if len(w.Waiting) == 0 && w.Counts > 0 {
			c.about(a.ID, ScheduleLeft, "%d counts of attempts are kept for events that do not wait", w.Counts)
		}
	}
}
