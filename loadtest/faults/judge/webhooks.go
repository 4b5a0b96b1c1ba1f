package judge

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

// retryWindow is how long after an event it may be sent (spec, "Limits");
// sendSlack is for the way of the request and for clocks.
const (
	retryWindow = 24 * time.Hour
	sendSlack   = 30 * time.Second
)

// checkArrivals: every webhook is genuine, tells what happened to an order of
// that account, says the same each time, and comes in time.
func (c *courtCase) checkArrivals() {
	bodies := make(map[string]string)
	for i := range c.facts.Arrivals {
		a := &c.facts.Arrivals[i]
		if c.accounts[a.Account] == nil {
			continue
		}
		if a.Invalid != "" {
			if a.Invalid != brokeOff {
				c.violated(EventWrong, "a webhook was refused by its receiver: "+a.Invalid, a.EventID)
			}
			continue
		}
		if first, seen := bodies[a.EventID]; seen && first != a.Body {
			c.violated(EventWrong, "two attempts of one event had different bodies", a.EventID)
		}
		bodies[a.EventID] = a.Body
		if a.Began.Sub(a.Occurred) > retryWindow+sendSlack {
			c.violated(EventLate, fmt.Sprintf("it was sent %s after it happened", a.Began.Sub(a.Occurred)), a.EventID)
		}
		if a.Event == string(delivery.StatusChanged) {
			if wrong := c.wrong(a); wrong != "" {
				c.violated(EventWrong, wrong, a.EventID, a.Order)
			}
		}
	}
}

// wrong is what an order's webhook says that is not so.
func (c *courtCase) wrong(a *Arrival) string {
	id, version, err := delivery.ParseEventID(a.EventID)
	if err != nil {
		return err.Error()
	}
	o := c.orders[id.String()]
	sequence := delivery.Sequence(version)
	switch {
	case a.Order != id.String():
		return "the event id names another order"
	case o == nil:
		return "it tells of an order that is not there"
	case o.Account != a.Account:
		return "it was sent to another account"
	case sequence < 2 || o.statusAt(sequence) == "":
		return fmt.Sprintf("it tells of version %d, and the order has %d", sequence, 1+len(o.Changes))
	case o.External != a.External:
		return fmt.Sprintf("it names external id %q, the order has %q", a.External, o.External)
	}
	change := o.Changes[sequence-2]
	switch {
	case change.Version != version:
		return "it is of another epoch"
	case change.Status != a.Status || change.Failure != a.Failure:
		return fmt.Sprintf("it says %s %s, version %d is %s %s", a.Status, a.Failure, sequence, change.Status, change.Failure)
	case !change.At.Equal(a.Occurred):
		return fmt.Sprintf("it says %s, it happened at %s", a.Occurred.Format(time.RFC3339Nano), change.At.Format(time.RFC3339Nano))
	}
	return ""
}

func (a *Arrival) accepted() bool { return a.Answered >= 200 && a.Answered < 300 }

// checkDelivered: every version of every order has reached its receiver, or
// still waits for one that is not well, or was given up or had nowhere to go and
// is recorded so.
func (c *courtCase) checkDelivered() {
	c.eachOrder(func(o *Order) {
		health := c.accounts[o.Account].Receiver
		held := c.held(o)
		for i := range o.Changes {
			at := Subject(o.ID, uint32(i)+2)
			came := slices.ContainsFunc(c.arrivals[at], (*Arrival).accepted)
			switch {
			case came:
			case health == Absent:
				if c.facts.Archive != nil && !c.recorded(at, "notSent") {
					c.violated(EventLost, "it had nowhere to go, and that is not recorded", at)
				}
			case health != Healthy && (c.recorded(at, "undelivered") || held[i]):
			default:
				c.violated(EventLost, fmt.Sprintf("the change to %s never reached its receiver, which is %s, and does not wait", o.Changes[i].Status, health), at)
			}
		}
	})
}

func (c *courtCase) recorded(at, state string) bool {
	return slices.ContainsFunc(c.attempts[at], func(a *Attempt) bool { return a.State == state })
}

// held tells which changes of an order still wait: themselves, or because one
// before them has never been attempted.
func (c *courtCase) held(o *Order) []bool {
	held := make([]bool, len(o.Changes))
	w := c.remains[o.Account]
	if w == nil || !w.Scheduled {
		return held
	}
	behind := false
	for i := range held {
		at := Subject(o.ID, uint32(i)+2)
		first := slices.Contains(w.Queued, at) || slices.Contains(w.Leased, at)
		behind = behind || first
		held[i] = behind || slices.Contains(w.Waiting, at)
	}
	return held
}

// checkSequence: for one order no event is sent before the first attempt of the
// one before it has ended. An attempt that nobody recorded and no receiver saw
// cannot have ended; of one whose sender left nobody can say when it did.
func (c *courtCase) checkSequence() {
	c.eachOrder(func(o *Order) {
		for i := 1; i < len(o.Changes); i++ {
			before, at := Subject(o.ID, uint32(i)+1), Subject(o.ID, uint32(i)+2)
			if len(c.arrivals[at]) == 0 {
				continue
			}
			if began := c.arrivals[at][0].Began; !c.attempted(o, before, began) {
				c.violated(EventUnordered, fmt.Sprintf("%s was sent before the first attempt of %s had ended", o.Changes[i].Status, o.Changes[i-1].Status), at)
			}
		}
	})
}

// attempted reports whether an attempt of an event can have ended by then.
func (c *courtCase) attempted(o *Order, at string, by time.Time) bool {
	for _, a := range c.arrivals[at] {
		if !a.Ended.After(by) || a.Answered == 0 && !a.Began.After(by) {
			return true
		}
	}
	if c.accounts[o.Account].Receiver == Healthy {
		return false
	}
	if c.facts.Archive == nil {
		return true // who knows what failed on the way
	}
	return slices.ContainsFunc(c.attempts[at], func(a *Attempt) bool { return !a.At.After(by) && a.State != "delivered" })
}

// healthyBound is how long a healthy receiver may wait for the slowest of a
// hundred changes while only receivers are in trouble. Undisturbed it is some
// 20 ms; the bound is for a machine that does much else.
const healthyBound = 3 * time.Second

// checkLatency: receivers that are well do not wait because of others.
func (c *courtCase) checkLatency() {
	var waits []time.Duration
	c.eachOrder(func(o *Order) {
		if c.accounts[o.Account].Receiver != Healthy {
			return
		}
		for i, change := range o.Changes {
			if arrivals := c.arrivals[Subject(o.ID, uint32(i)+2)]; len(arrivals) > 0 {
				waits = append(waits, arrivals[0].Began.Sub(change.At))
			}
		}
	})
	if len(waits) == 0 {
		return
	}
	slices.Sort(waits)
	c.report.HealthyP99 = waits[(len(waits)-1)*99/100]
	if c.facts.Calm && c.report.HealthyP99 > healthyBound {
		c.violated(HealthySlow, fmt.Sprintf("one change in a hundred took %s or more to its healthy receiver", c.report.HealthyP99.Round(time.Millisecond)))
	}
}
