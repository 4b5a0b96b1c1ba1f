package validate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

const (
	retryWindow = 24 * time.Hour   // after an event (spec, "Limits")
	sendSlack   = 30 * time.Second // for the request's way and for clocks
	recordSlack = 5 * time.Millisecond
	// healthyBound is what the slowest of a hundred changes may take while only receivers are disturbed: idle, some 20 ms.
	healthyBound = 3 * time.Second
)

// checkArrivals checks the requests that receivers got: each is signed and in time, says what its order has, and has the
// same body in every attempt.
func (c *check) checkArrivals() {
	bodies := make(map[string]string)
	for _, a := range c.facts.Arrivals {
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
		if late := a.Began.Sub(c.windowBegin(&a)); late > retryWindow+sendSlack {
			c.about(a.EventID, EventLate, "it was sent %s after it happened, or was asked for again", late)
		}

		if a.Event == string(delivery.StatusChanged) {
			c.checkArrival(&a)
		}
	}
}

// mayBeReplayed reports whether the change came for the first time after a request that may have asked for it again; such
// an event may arrive before those that precede it.
func (c *check) mayBeReplayed(subject string) bool {
	arrivals := c.arrivals[subject]
	return len(arrivals) > 0 && c.windowBegin(arrivals[0]).After(arrivals[0].Occurred)
}

// windowBegin returns when the 24 hours began in which the event may be sent: when it happened or, if later, when it may
// have been asked for again for the last time before this attempt.
//
// A replay goes by when an event was written. That is some time after it happened, if the workers were late, but before
// its first arrival.
func (c *check) windowBegin(a *Arrival) time.Time {
	begins := a.Occurred
	for _, r := range c.facts.Replays {
		mayBeOfEvent := r.Account == a.Account && !c.firstArrivals[a.EventID].Before(r.Since)
		if mayBeOfEvent && r.Asked.After(begins) && r.Asked.Before(a.Began) {
			begins = r.Asked
		}
	}
	return begins
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
		got := Change{Status: a.Status, Version: version, At: a.Occurred.UTC(), Failure: a.Failure}
		want := o.Changes[sequence-2]
		want.At = want.At.UTC()
		if got != want {
			wrong("it has %+v, and the order %+v", got, want)
		}
	}
}

// checkDelivered checks that every change reached its receiver. Only the webhook of a disturbed receiver may wait instead, or
// be recorded as undelivered. It also checks that no change was sent before the first attempt of the change before it had
// ended, unless a replay may have asked for one of the two.
func (c *check) checkDelivered() {
	for _, o := range c.own {
		disturbed := c.accounts[o.Account].Disturbed
		for i, change := range o.Changes {
			if change.Silent {
				continue
			}

			at := o.subject(i)
			hasArrived := slices.ContainsFunc(c.arrivals[at], (*Arrival).accepted)
			isUndelivered := slices.ContainsFunc(c.attempts[at], func(a *Attempt) bool { return a.State == "undelivered" })
			isExcused := disturbed && (c.waits(o, i) || isUndelivered)
			if !hasArrived && !isExcused {
				c.about(at, EventLost, "the change to %s never reached its receiver (disturbed: %t) and does not wait",
					change.Status, disturbed)
			}

			before := o.toldBefore(i)
			arrivals := c.arrivals[at]
			mustFollow := before >= 0 && len(arrivals) > 0 && !c.mayBeReplayed(at) && !c.mayBeReplayed(o.subject(before))
			if mustFollow && !c.attempted(o, o.subject(before), arrivals[0].Began) {
				c.about(at, EventUnordered, "%s was sent before the first attempt of %s had ended",
					change.Status, o.Changes[before].Status)
			}
		}
	}
}

// waits reports whether the webhook of a change waits.
func (c *check) waits(o *Order, i int) bool {
	return slices.Contains(c.remains[o.Account].Waiting, o.subject(i))
}

// attempted reports whether an attempt to send the event named at can have ended by a time. If the sender went away before
// the answer, the end is unknown, and the attempt can have ended as soon as it had begun.
func (c *check) attempted(o *Order, at string, by time.Time) bool {
	canHaveEnded := func(a *Arrival) bool {
		return !a.Ended.After(by) || a.Answered == 0 && !a.Began.After(by)
	}
	if slices.ContainsFunc(c.arrivals[at], canHaveEnded) {
		return true
	}
	if !c.accounts[o.Account].Disturbed {
		return false
	}
	return slices.ContainsFunc(c.attempts[at], func(a *Attempt) bool { return !a.At.After(by) && a.State != "delivered" })
}

// checkLatency checks that healthy receivers do not wait because of disturbed ones: the 99th percentile of the time from a
// change to its first arrival is at most healthyBound. It checks nothing unless the facts are Calm.
func (c *check) checkLatency() {
	var waits []time.Duration
	for _, o := range c.own {
		for i, change := range o.Changes {
			if arrivals := c.arrivals[o.subject(i)]; len(arrivals) > 0 && !c.accounts[o.Account].Disturbed {
				waits = append(waits, arrivals[0].Began.Sub(change.At))
			}
		}
	}

	if len(waits) == 0 || !c.facts.Calm {
		return
	}

	slices.Sort(waits)
	if p99 := waits[(len(waits)-1)*99/100]; p99 > healthyBound {
		c.violated(HealthySlow, nil, "one change in a hundred took %s or more to its healthy receiver", p99.Round(time.Millisecond))
	}
}

// checkRemains checks that events wait for disturbed receivers only, and that no counts of attempts are kept without them.
func (c *check) checkRemains() {
	for _, a := range c.facts.Accounts {
		w := c.remains[a.ID]
		if len(w.Waiting) > 0 && !a.Disturbed {
			c.about(a.ID, ScheduleLeft, "%d events wait for another attempt, such as %s", len(w.Waiting), w.Waiting[0])
		}
		if len(w.Waiting) == 0 && w.Counts > 0 {
			c.about(a.ID, ScheduleLeft, "%d counts of attempts are kept for events that do not wait", w.Counts)
		}
	}
}

// checkPublished checks that the stream of events has every version of every order exactly once, and nothing else.
func (c *check) checkPublished() {
	counts := make(map[string]int)
	for _, at := range c.facts.Published {
		counts[at]++
	}

	for _, o := range c.own {
		for sequence := range uint32(1 + len(o.Changes)) {
			at := Subject(o.ID, sequence+1)
			count := counts[at]
			if count == 0 {
				c.about(at, EventLost, "the stream of events does not have it")
			}
			if count > 1 {
				c.about(at, EventTwice, "the stream of events has it %d times", count)
			}
			delete(counts, at)
		}
	}

	for at := range counts {
		id, _, _ := strings.Cut(at, "/")
		if o := c.orders[id]; o == nil {
			c.about(at, UnknownOrder, "the stream of events names an order that is not there")
		} else if c.accounts[o.Account] != nil {
			c.about(at, VersionGap, "the stream of events names a version that the order does not have")
		}
	}
}

// checkArchive checks that ClickHouse has exactly the orders and steps that Redis has.
func (c *check) checkArchive() {
	orders, steps := c.byOrder(c.facts.Archive.Orders), c.byOrder(c.facts.Archive.Steps)
	for _, o := range c.own {
		c.compare(o.ID, orderColumns, [][]string{o.Row}, orders[o.ID])
		c.compare(o.ID, stepColumns, o.stepRows(), steps[o.ID])
		delete(orders, o.ID)
		delete(steps, o.ID)
	}

	for _, id := range slices.Sorted(maps.Keys(orders)) {
		c.about(id, ClickHouseDiffers, "ClickHouse has the order with external id %q, Redis does not", orders[id][0][2])
		delete(steps, id)
	}

	for id := range steps {
		c.about(id, ClickHouseDiffers, "ClickHouse has steps of an order that Redis does not have")
	}
}

// byOrder groups rows by order. The first two columns of a row are its order and its account. Rows that are not of the
// checked accounts are left out.
func (c *check) byOrder(rows [][]string) map[string][][]string {
	groups := make(map[string][][]string)
	for _, row := range rows {
		if o := c.orders[row[0]]; c.accounts[row[1]] != nil || o != nil && c.accounts[o.Account] != nil {
			groups[row[0]] = append(groups[row[0]], row)
		}
	}
	return groups
}

// compare reports each value of an order's rows in which Redis and ClickHouse differ. If they have different numbers of
// rows, it reports only that.
func (c *check) compare(id string, columns []column, redis, clickHouse [][]string) {
	if len(redis) != len(clickHouse) {
		c.about(id, ClickHouseDiffers, "Redis has %d rows of it (%s), ClickHouse %d",
			len(redis), columns[len(columns)-1].name, len(clickHouse))
		return
	}

	for i := range redis {
		for n, column := range columns {
			if redis[i][n] != clickHouse[i][n] {
				c.about(id, ClickHouseDiffers, "in row %d the %s is %q in Redis and %q in ClickHouse",
					i+1, column.name, redis[i][n], clickHouse[i][n])
			}
		}
	}
}

// checkAttempts checks the recorded attempts: no event that did not arrive is recorded as delivered, no event has two final
// outcomes, and no attempt is recorded for the future.
func (c *check) checkAttempts() {
	for _, o := range c.own {
		for i := range o.Changes {
			c.checkAttemptsOf(o, i)
		}
	}

	for _, row := range c.facts.Archive.Attempts {
		if c.accounts[row.Account] != nil && row.At.After(c.facts.At.Add(sendSlack)) {
			c.about(row.EventID, EventWrong, "an attempt is recorded for the future")
		}
	}
}

func (c *check) checkAttemptsOf(o *Order, i int) {
	at := o.subject(i)
	failed, final, numbers := 0, 0, make(map[int]bool)
	settledByReplay := false
	for _, row := range c.attempts[at] {
		if row.Account != o.Account {
			c.about(at, ClickHouseDiffers, "an attempt is recorded for another account")
		}

		if row.Replay {
			settledByReplay = settledByReplay || row.State != "retrying"
			continue
		}

		if row.State == "retrying" {
			failed++
		} else {
			final++
		}

		if row.wasSent() && !row.Probe && row.Attempt > 0 {
			if numbers[row.Attempt] {
				c.about(at, EventTwice, "attempt %d is recorded twice", row.Attempt)
			}
			numbers[row.Attempt] = true
		}

		// When the worker sent is unknown: it may have been stopped between any two steps.
		acceptedByThen := func(a *Arrival) bool { return a.accepted() && a.Began.Before(row.Recorded.Add(recordSlack)) }
		if row.State == "delivered" && !slices.ContainsFunc(c.arrivals[at], acceptedByThen) {
			c.about(at, EventLost, "it is recorded as delivered, and until then its receiver had not accepted it")
		}
	}

	if final > 1 {
		c.about(at, EventTwice, "%d final outcomes are recorded", final)
	}

	// An event that waits when it is asked for again is sent once, as a replay. An acceptance that no replay's row follows
	// soon must have a row of its own. A row "retrying" can be that one: the receiver took the event, and the worker did
	// not see the answer.
	accepted := 0
	for _, a := range c.arrivals[at] {
		if a.accepted() && !c.replayRecordedSoonAfter(a, at) {
			accepted++
		}
	}

	wasOnlyReplayed := settledByReplay && accepted <= failed
	if final == 0 && !wasOnlyReplayed && !o.Changes[i].Silent && !c.waits(o, i) {
		c.about(at, ClickHouseDiffers, "no outcome of its webhook is recorded")
	}
}

// defaultUnrecordedWithin is Facts.UnrecordedWithin unless the facts say otherwise.
const defaultUnrecordedWithin = time.Minute

// replayRecordedSoonAfter reports whether a replay is recorded soon after an arrival: it may be its own record, or that of a
// worker which did not know of the arrival.
func (c *check) replayRecordedSoonAfter(a *Arrival, at string) bool {
	within := c.facts.UnrecordedWithin
	if within == 0 {
		within = defaultUnrecordedWithin
	}
	return slices.ContainsFunc(c.attempts[at], func(row *Attempt) bool {
		return row.Replay && !row.Recorded.Before(a.Began) && row.Recorded.Before(a.Ended.Add(within))
	})
}
