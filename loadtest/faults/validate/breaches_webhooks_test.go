package validate

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// again adds an arrival that differs from one of the order "failed".
func again(sequence int, change func(*Arrival)) func(e *env) {
	return func(e *env) {
		a := *e.arrival("failed", sequence)
		change(&a)
		e.facts.Arrivals = append(e.facts.Arrivals, a)
	}
}

// goneAttempt takes the record of what became of the webhook of the last change of
// the order "failed".
func goneAttempt(account string) func(e *env) {
	return func(e *env) {
		gone := *e.attempt(account, "failed", 4)
		e.facts.Archive.Attempts = without(e.facts.Archive.Attempts, func(a Attempt) bool { return a == gone })
	}
}

// attemptAgain adds such a record.
func attemptAgain(change func(*Attempt)) func(e *env) {
	return func(e *env) {
		a := *e.attempt(well, "failed", 4)
		change(&a)
		e.facts.Archive.Attempts = append(e.facts.Archive.Attempts, a)
	}
}

// withoutWebhook takes the webhook of the second change of the order "failed", and its record.
func withoutWebhook(e *env) {
	arrived, attempted := *e.arrival("failed", 3), *e.attempt(well, "failed", 3)
	e.facts.Arrivals = without(e.facts.Arrivals, func(a Arrival) bool { return a.EventID == arrived.EventID })
	e.facts.Archive.Attempts = without(e.facts.Archive.Attempts, func(a Attempt) bool { return a == attempted })
}

func TestCheck_Webhooks(t *testing.T) {
	t.Parallel()

	// The first attempt of a change fails, another arrives 20 s later.
	retried := func(fails func(e *env, first *Arrival)) func(e *env) {
		return func(e *env) {
			second := *e.arrival("failed", 3)
			second.Began, second.Ended = second.Began.Add(20*time.Second), second.Ended.Add(20*time.Second)
			fails(e, e.arrival("failed", 3))
			e.facts.Arrivals = append(e.facts.Arrivals, second)
			e.attempt(well, "failed", 3).Recorded = second.Ended
		}
	}

	// askedAgain adds a request, a day after the change, for all events from since after the change on (negative: before it).
	askedAgain := func(e *env, since time.Duration) {
		occurred := e.arrival("failed", 4).Occurred
		e.facts.Replays = []ReplayRequest{{Account: well, Since: occurred.Add(since), Asked: occurred.Add(24 * time.Hour)}}
	}

	checkAll(t, []breach{
		{"a version never arrived", EventLost, func(e *env) {
			o := e.find(well, "failed").ID
			e.facts.Arrivals = without(e.facts.Arrivals, func(a Arrival) bool { return a.Order == o && a.Status == "Failed" })
		}},
		{"one in between never arrived", EventLost, withoutWebhook},
		{"one of which no webhook tells did not arrive", "", func(e *env) {
			e.find(well, "failed").Changes[1].Silent = true
			withoutWebhook(e)
		}},
		{"a version arrived and was refused", EventLost, func(e *env) { e.arrival("failed", 4).Answered = 500 }},
		{"it was refused by a receiver that is well, and given up", EventLost, func(e *env) {
			e.arrival("failed", 4).Answered = 500
			e.attempt(well, "failed", 4).State = "undelivered"
		}},
		{"it arrived twice", "", again(4, func(a *Arrival) { a.Began, a.Ended, a.Attempt = a.Began.Add(time.Minute), a.Ended.Add(time.Minute), 2 })},
		{"it arrived twice with different bodies", EventWrong, again(4, func(a *Arrival) { a.Body = "other" })},
		{"it has another status", EventWrong, func(e *env) { e.arrival("failed", 3).Status = "PickedUp" }},
		{"it has another reason", EventWrong, func(e *env) { e.arrival("failed", 4).Failure = "Other" }},
		{"it has another order", EventWrong, func(e *env) { e.arrival("failed", 3).Order = e.find(well, "delivered").ID }},
		{"it has another external id", EventWrong, func(e *env) { e.arrival("failed", 3).External = "delivered" }},
		{"it has another time", EventWrong, func(e *env) {
			a := e.arrival("failed", 3)
			a.Occurred = a.Occurred.Add(-time.Millisecond)
		}},
		{"it went to another account", EventWrong, func(e *env) { e.arrival("failed", 3).Account = sick }},
		{"it is about a version that is not there", EventWrong, again(4, func(a *Arrival) {
			id, _ := delivery.ParseOrderID(a.Order)
			a.EventID = delivery.EventID(id, 1<<32|5)
		})},
		{"it has another version of that step", EventWrong, func(e *env) {
			a := e.arrival("failed", 4)
			id, _ := delivery.ParseOrderID(a.Order)
			a.EventID = delivery.EventID(id, 2<<32|4)
		}},
		{"it is about the creation", EventWrong, again(2, func(a *Arrival) {
			id, _ := delivery.ParseOrderID(a.Order)
			a.EventID, a.Status = delivery.EventID(id, delivery.FirstVersion(a.Occurred)), "Searching"
		})},
		{"it could not be verified", EventWrong, again(4, func(a *Arrival) { a.Invalid = "signature does not match" })},
		{"its sender was killed in the middle", "", again(4, func(a *Arrival) { a.Invalid = brokeOff })},
		{"another event than a status", "", func(e *env) {
			e.facts.Arrivals = append(e.facts.Arrivals, Arrival{Account: well, EventID: "evt_x", Event: "store.activated", Answered: 204})
		}},
		{"it was sent after 24 h", EventLate, again(4, func(a *Arrival) { a.Began = a.Occurred.Add(retryWindow + time.Minute) })},
		{"it was sent within 24 h after it was asked for again", "", func(e *env) {
			askedAgain(e, -time.Minute)
			again(4, func(a *Arrival) { a.Began = a.Occurred.Add(47 * time.Hour) })(e)
		}},
		{"it was sent after 24 h, and others of its account were asked for again", EventLate, func(e *env) {
			askedAgain(e, time.Minute)
			again(4, func(a *Arrival) { a.Began = a.Occurred.Add(47 * time.Hour) })(e)
		}},
		{"it was written an hour late, and sent within 24 h after all was asked for again that was written since", "", func(e *env) {
			askedAgain(e, 30*time.Minute)
			first := e.arrival("failed", 4)
			first.Began, first.Ended = first.Began.Add(time.Hour), first.Ended.Add(time.Hour)
			e.attempt(well, "failed", 4).Recorded = first.Ended
			again(4, func(a *Arrival) { a.Began = a.Occurred.Add(47 * time.Hour) })(e)
		}},
		{"it was sent 24 h after it was asked for again", EventLate, func(e *env) {
			askedAgain(e, -time.Minute)
			again(4, func(a *Arrival) { a.Began = a.Occurred.Add(48*time.Hour + time.Minute) })(e)
		}},
		{"it was sent just before", "", again(4, func(a *Arrival) {
			a.Began = a.Occurred.Add(retryWindow - time.Minute)
			a.Ended = a.Began
		})},
		{"the next one came first", EventUnordered, func(e *env) {
			e.arrival("failed", 4).Began = e.arrival("failed", 3).Began.Add(-time.Millisecond)
		}},
		{"the next one was asked for again, and came during the first attempt", "", func(e *env) {
			next := e.arrival("failed", 4)
			e.facts.Replays = []ReplayRequest{{Account: well, Since: next.Occurred, Asked: next.Began.Add(-time.Microsecond)}}
			e.arrival("failed", 3).Ended = next.Began.Add(time.Millisecond)
		}},
		{"the one before was asked for again, and came after the next one, which was not", "", func(e *env) {
			first := e.arrival("failed", 3)
			e.facts.Replays = []ReplayRequest{{Account: well, Since: first.Occurred, Asked: first.Occurred.Add(time.Microsecond)}}
			e.arrival("failed", 4).Began = first.Began.Add(-time.Millisecond)
		}},
		{"the next one came during the first attempt", EventUnordered, func(e *env) {
			e.arrival("failed", 3).Ended = e.arrival("failed", 4).Began.Add(time.Millisecond)
		}},
		{"the next one came after the first attempt, which failed", "", retried(func(_ *env, first *Arrival) { first.Answered = 500 })},
		{"the next one came after the sender of the first had gone", "", retried(func(e *env, first *Arrival) {
			first.Answered, first.Ended = 0, e.arrival("failed", 4).Began.Add(time.Second)
		})},
		{"healthy ones waited while others were dead", HealthySlow, func(e *env) {
			e.facts.Calm = true
			for i := range e.facts.Arrivals {
				e.facts.Arrivals[i].Began = e.facts.Arrivals[i].Began.Add(5 * time.Second)
				e.facts.Arrivals[i].Ended = e.facts.Arrivals[i].Ended.Add(5 * time.Second)
			}

			for i := range e.facts.Archive.Attempts {
				e.facts.Archive.Attempts[i].Recorded = e.facts.Archive.Attempts[i].Recorded.Add(5 * time.Second)
			}
		}},
		{"healthy ones did not wait", "", func(e *env) { e.facts.Calm = true }},
		{"a version was published twice", EventTwice, func(e *env) { e.facts.Published = append(e.facts.Published, e.facts.Published[0]) }},
		{"a version was not published", EventLost, func(e *env) { e.facts.Published = e.facts.Published[1:] }},
		{"nothing was published", EventLost, func(e *env) { e.facts.Published = nil }},
		{"a version was published that is not there", VersionGap, func(e *env) {
			e.facts.Published = append(e.facts.Published, Subject(e.find(well, "failed").ID, 9))
		}},
		{"an order was published that is not there", UnknownOrder, func(e *env) { e.facts.Published = append(e.facts.Published, Subject("o", 1)) }},
	})
}

func TestCheck_DisturbedReceivers(t *testing.T) {
	t.Parallel()

	// The first account's receiver is down when the order "failed" fails.
	down := func(change func(e *env, at string)) func(e *env) {
		return func(e *env) {
			e.facts.Accounts[0].Disturbed = true
			at := Subject(e.find(well, "failed").ID, 4)
			gone := *e.arrival("failed", 4)
			e.facts.Arrivals = without(e.facts.Arrivals, func(a Arrival) bool { return a.EventID == gone.EventID })
			e.attempt(well, "failed", 4).State = "retrying"
			change(e, at)
		}
	}

	checkAll(t, []breach{
		{"what did not arrive waits", "", down(func(e *env, at string) {
			e.facts.Remains = []Remains{{Account: well, Waiting: []string{at}, Counts: 1}}
		})},
		{"what did not arrive was given up and is recorded so", "", down(func(e *env, _ string) {
			e.attempt(well, "failed", 4).State = "undelivered"
		})},
		{"what did not arrive is nowhere", EventLost, down(func(*env, string) {})},
		{"an earlier one waits in place of what did not arrive", EventLost, down(func(e *env, _ string) {
			e.facts.Remains = []Remains{{Account: well, Waiting: []string{Subject(e.find(well, "failed").ID, 3)}, Counts: 1}}
		})},
	})
}

func TestCheck_ClickHouse(t *testing.T) {
	t.Parallel()

	row := func(e *env) []string {
		id := e.find(well, "failed").ID
		return e.facts.Archive.Orders[slices.IndexFunc(e.facts.Archive.Orders, func(row []string) bool { return row[0] == id })]
	}

	step := func(e *env, sequence int) []string {
		id := e.find(well, "failed").ID
		return e.facts.Archive.Steps[slices.IndexFunc(e.facts.Archive.Steps, func(row []string) bool { return row[0] == id })+sequence-1]
	}

	drop := func(e *env, sequence int) {
		gone := step(e, sequence)
		e.facts.Archive.Steps = without(e.facts.Archive.Steps, func(row []string) bool { return slices.Equal(row, gone) })
	}

	// other changes a column.
	other := func(row []string, column string) {
		columns := orderColumns
		if len(row) == len(stepColumns) {
			columns = stepColumns
		}

		for i, c := range columns {
			if c.name == column {
				row[i] += "!"
			}
		}
	}

	// replayed lets an event arrive again after a time, and only that is recorded.
	replayed := func(after time.Duration) func(e *env) {
		return func(e *env) {
			again(4, func(a *Arrival) { a.Began, a.Ended, a.Attempt = a.Began.Add(after), a.Ended.Add(after), 2 })(e)
			record := e.attempt(well, "failed", 4)
			record.Replay, record.Recorded = true, record.Recorded.Add(after)
		}
	}

	checkAll(t, []breach{
		{"an order is missing", ClickHouseDiffers, func(e *env) { e.facts.Archive.Orders = e.facts.Archive.Orders[1:] }},
		{"an order has two rows", ClickHouseDiffers, func(e *env) { e.facts.Archive.Orders = append(e.facts.Archive.Orders, row(e)) }},
		{"an order is older", ClickHouseDiffers, func(e *env) { other(row(e), "version") }},
		{"an order has another status", ClickHouseDiffers, func(e *env) { other(row(e), "status") }},
		{"an order has another reason", ClickHouseDiffers, func(e *env) { other(row(e), "failure reason") }},
		{"an order has other amounts", ClickHouseDiffers, func(e *env) { other(row(e), "order amount") }},
		{"an order has another time", ClickHouseDiffers, func(e *env) { other(row(e), "creation") }},
		{"an order has another account", ClickHouseDiffers, func(e *env) { row(e)[1] = sick }},
		{"a step is missing", ClickHouseDiffers, func(e *env) { drop(e, 3) }},
		{"the last step is missing", ClickHouseDiffers, func(e *env) { drop(e, 4) }},
		{"a step is there twice", ClickHouseDiffers, func(e *env) { e.facts.Archive.Steps = append(e.facts.Archive.Steps, step(e, 3)) }},
		{"a step has another status", ClickHouseDiffers, func(e *env) { other(step(e, 3), "status") }},
		{"a step has another time", ClickHouseDiffers, func(e *env) { other(step(e, 3), "time") }},
		{"a step has another version", ClickHouseDiffers, func(e *env) { other(step(e, 1), "version") }},
		{"a step of an order that is not there", ClickHouseDiffers, func(e *env) {
			foreign := slices.Clone(step(e, 3))
			foreign[0] = "o"
			e.facts.Archive.Steps = append(e.facts.Archive.Steps, foreign)
		}},
		{"no outcome of a webhook is recorded", ClickHouseDiffers, goneAttempt(well)},
		{"it was asked for again while it waited, and is recorded as that", "", func(e *env) { e.attempt(well, "failed", 4).Replay = true }},
		{"it was asked for again after its sender was stopped", "", replayed(30 * time.Second)},
		{"it was asked for again after it was settled, of which there is no record", ClickHouseDiffers, replayed(2 * time.Minute)},
		{"it was asked for again after its sender was stopped, where all takes longer", "", func(e *env) {
			e.facts.UnrecordedWithin = time.Hour
			replayed(2 * time.Minute)(e)
		}},
		{"it was asked for again, and is not recorded as settled", ClickHouseDiffers, func(e *env) {
			attempted := e.attempt(well, "failed", 4)
			attempted.Replay, attempted.State = true, "retrying"
		}},
		{"a webhook was settled twice", EventTwice, attemptAgain(func(a *Attempt) { a.Attempt = 2 })},
		{"an attempt was recorded twice", EventTwice, attemptAgain(func(a *Attempt) { a.State = "retrying" })},
		{"it was given up at its deadline after an attempt that failed", "", func(e *env) {
			attempted := e.attempt(sick, "failed", 4)
			attempted.State = "retrying"
			givenUp := *attempted
			givenUp.State, givenUp.Error = "undelivered", "deadline: the event is older than 24 h"
			e.facts.Archive.Attempts = append(e.facts.Archive.Attempts, givenUp)
		}},
		{"a webhook was sent again for an operator", "", attemptAgain(func(a *Attempt) { a.Replay = true })},
		{"it is recorded as delivered before it was sent", EventLost, func(e *env) {
			e.attempt(well, "failed", 4).Recorded = e.arrival("failed", 4).Began.Add(-time.Second)
		}},
		{"it is recorded for another account", ClickHouseDiffers, func(e *env) { e.attempt(well, "failed", 4).Account = sick }},
		{"it is recorded for the future", EventWrong, func(e *env) { e.attempt(well, "failed", 4).At = e.facts.At.Add(time.Hour) }},
	})
}
