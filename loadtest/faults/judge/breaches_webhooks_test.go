package judge

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestCheck_Webhooks(t *testing.T) {
	t.Parallel()
	judgeAll(t, []breach{
		{"a version never arrived", EventLost, func(w *world) {
			o := w.find(well, "failed").ID
			w.facts.Arrivals = without(w.facts.Arrivals, func(a Arrival) bool { return a.Order == o && a.Status == "Failed" })
		}},
		{"a version arrived and was refused", EventLost, func(w *world) { w.arrival("failed", 4).Answered = 500 }},
		{"it arrived twice", "", func(w *world) {
			again := *w.arrival("failed", 4)
			again.Began, again.Ended, again.Attempt = again.Began.Add(time.Minute), again.Ended.Add(time.Minute), 2
			w.facts.Arrivals = append(w.facts.Arrivals, again)
		}},
		{"it arrived twice with different bodies", EventWrong, func(w *world) {
			again := *w.arrival("failed", 4)
			again.Body = "other"
			w.facts.Arrivals = append(w.facts.Arrivals, again)
		}},
		{"it tells of another status", EventWrong, func(w *world) { w.arrival("failed", 3).Status = "PickedUp" }},
		{"it tells of another reason", EventWrong, func(w *world) { w.arrival("failed", 4).Failure = "Other" }},
		{"it tells of another order", EventWrong, func(w *world) { w.arrival("failed", 3).Order = w.find(well, "delivered").ID }},
		{"it tells of another external id", EventWrong, func(w *world) { w.arrival("failed", 3).External = "delivered" }},
		{"it tells of another time", EventWrong, func(w *world) {
			a := w.arrival("failed", 3)
			a.Occurred = a.Occurred.Add(-time.Millisecond)
		}},
		{"it went to another account", EventWrong, func(w *world) { w.arrival("failed", 3).Account = sick }},
		{"it tells of a version that is not there", EventWrong, func(w *world) {
			a := *w.arrival("failed", 4)
			id, _ := delivery.ParseOrderID(a.Order)
			a.EventID = delivery.EventID(id, 1<<32|5)
			w.facts.Arrivals = append(w.facts.Arrivals, a)
		}},
		{"it tells of the creation", EventWrong, func(w *world) {
			a := *w.arrival("failed", 2)
			id, _ := delivery.ParseOrderID(a.Order)
			a.EventID, a.Status = delivery.EventID(id, 1<<32|1), "Searching"
			w.facts.Arrivals = append(w.facts.Arrivals, a)
		}},
		{"it could not be verified", EventWrong, func(w *world) {
			a := *w.arrival("failed", 4)
			a.Invalid = "signature does not match"
			w.facts.Arrivals = append(w.facts.Arrivals, a)
		}},
		{"its sender was killed in the middle", "", func(w *world) {
			a := *w.arrival("failed", 4)
			a.Invalid = brokeOff
			w.facts.Arrivals = append(w.facts.Arrivals, a)
		}},
		{"another event than a status", "", func(w *world) {
			w.facts.Arrivals = append(w.facts.Arrivals, Arrival{Account: well, EventID: "evt_x", Event: "store.activated", Answered: 204})
		}},
		{"it was sent after 24 h", EventLate, func(w *world) {
			a := *w.arrival("failed", 4)
			a.Began = a.Occurred.Add(retryWindow + time.Minute)
			w.facts.Arrivals = append(w.facts.Arrivals, a)
		}},
		{"it was sent just before", "", func(w *world) {
			a := *w.arrival("failed", 4)
			a.Began = a.Occurred.Add(retryWindow - time.Minute)
			a.Ended = a.Began
			w.facts.Arrivals = append(w.facts.Arrivals, a)
		}},
		{"the next one came first", EventUnordered, func(w *world) {
			w.arrival("failed", 4).Began = w.arrival("failed", 3).Began.Add(-time.Millisecond)
		}},
		{"the next one came during the first attempt", EventUnordered, func(w *world) {
			w.arrival("failed", 3).Ended = w.arrival("failed", 4).Began.Add(time.Millisecond)
		}},
		{"the next one came after the first attempt, which failed", "", func(w *world) {
			second := *w.arrival("failed", 3)
			second.Began, second.Ended = second.Began.Add(20*time.Second), second.Ended.Add(20*time.Second)
			w.arrival("failed", 3).Answered = 500
			w.facts.Arrivals = append(w.facts.Arrivals, second)
			w.attempt(well, "failed", 3).Recorded = second.Ended
		}},
		{"the next one came after the sender of the first had gone", "", func(w *world) {
			second := *w.arrival("failed", 3)
			second.Began, second.Ended = second.Began.Add(20*time.Second), second.Ended.Add(20*time.Second)
			first := w.arrival("failed", 3)
			first.Answered, first.Ended = 0, w.arrival("failed", 4).Began.Add(time.Second)
			w.facts.Arrivals = append(w.facts.Arrivals, second)
			w.attempt(well, "failed", 3).Recorded = second.Ended
		}},
		{"healthy ones waited while others were dead", HealthySlow, func(w *world) {
			w.facts.Calm = true
			for i := range w.facts.Arrivals {
				w.facts.Arrivals[i].Began = w.facts.Arrivals[i].Began.Add(5 * time.Second)
				w.facts.Arrivals[i].Ended = w.facts.Arrivals[i].Ended.Add(5 * time.Second)
			}
			for i := range w.facts.Archive.Attempts {
				w.facts.Archive.Attempts[i].Recorded = w.facts.Archive.Attempts[i].Recorded.Add(5 * time.Second)
			}
		}},
		{"healthy ones did not wait", "", func(w *world) { w.facts.Calm = true }},
		{"a version was published twice", EventTwice, func(w *world) { w.facts.Published = append(w.facts.Published, w.facts.Published[0]) }},
		{"a version was not published", EventLost, func(w *world) { w.facts.Published = w.facts.Published[1:] }},
		{"nothing was published", EventLost, func(w *world) { w.facts.Published = nil }},
		{"a version was published that is not there", VersionGap, func(w *world) {
			w.facts.Published = append(w.facts.Published, Published{w.find(well, "failed").ID, 9})
		}},
		{"an order was published that is not there", UnknownOrder, func(w *world) { w.facts.Published = append(w.facts.Published, Published{"o", 1}) }},
	})
}

func TestCheck_DeadReceivers(t *testing.T) {
	t.Parallel()
	// The first account's receiver dies before the order "failed" fails.
	dead := func(change func(w *world, at string)) func(w *world) {
		return func(w *world) {
			w.facts.Accounts[0].Receiver = Dead
			at := Subject(w.find(well, "failed").ID, 4)
			gone := *w.arrival("failed", 4)
			w.facts.Arrivals = without(w.facts.Arrivals, func(a Arrival) bool { return a.EventID == gone.EventID })
			w.attempt(well, "failed", 4).State = "retrying"
			change(w, at)
		}
	}
	judgeAll(t, []breach{
		{"what did not arrive waits", "", dead(func(w *world, at string) {
			w.facts.Remains = []Remains{{Account: well, Waiting: []string{at}, Counts: 1, Scheduled: true}}
		})},
		{"what did not arrive was given up and is recorded so", "", dead(func(w *world, _ string) {
			w.attempt(well, "failed", 4).State = "undelivered"
		})},
		{"what did not arrive is nowhere", EventLost, dead(func(*world, string) {})},
		{"what did not arrive waits where nobody looks", EventLost, dead(func(w *world, at string) {
			w.facts.Remains = []Remains{{Account: well, Waiting: []string{at}, Counts: 1}}
		})},
		{"what did not arrive waits behind one that was never attempted", "", dead(func(w *world, at string) {
			gone := *w.arrival("failed", 3)
			w.facts.Arrivals = without(w.facts.Arrivals, func(a Arrival) bool { return a.EventID == gone.EventID })
			w.facts.Archive.Attempts = without(w.facts.Archive.Attempts, func(a Attempt) bool {
				return a.EventID == gone.EventID || a.State == "retrying"
			})
			w.facts.Remains = []Remains{{Account: well, Queued: []string{Subject(w.find(well, "failed").ID, 3)}, Scheduled: true}}
		})},
		{"what did not arrive is not behind one that was attempted", EventLost, dead(func(w *world, _ string) {
			w.facts.Remains = []Remains{{Account: well, Waiting: []string{Subject(w.find(well, "failed").ID, 3)}, Counts: 1, Scheduled: true}}
		})},
	})
}

func TestCheck_ClickHouse(t *testing.T) {
	t.Parallel()
	row := func(w *world) *Order {
		id := w.find(well, "failed").ID
		i := slices.IndexFunc(w.facts.Archive.Orders, func(o Order) bool { return o.ID == id })
		return &w.facts.Archive.Orders[i]
	}
	step := func(w *world, sequence uint32) *ArchivedEvent {
		id := w.find(well, "failed").ID
		i := slices.IndexFunc(w.facts.Archive.Events, func(e ArchivedEvent) bool { return e.Order == id && e.Sequence == sequence })
		return &w.facts.Archive.Events[i]
	}
	drop := func(w *world, sequence uint32) {
		gone := *step(w, sequence)
		w.facts.Archive.Events = without(w.facts.Archive.Events, func(e ArchivedEvent) bool { return e == gone })
	}
	judgeAll(t, []breach{
		{"the round ran without it", "", func(w *world) { w.facts.Archive = nil }},
		{"an order is missing", ClickHouseDiffers, func(w *world) { w.facts.Archive.Orders = w.facts.Archive.Orders[1:] }},
		{"an order has two rows", ClickHouseDiffers, func(w *world) { w.facts.Archive.Orders = append(w.facts.Archive.Orders, *row(w)) }},
		{"an order is older", ClickHouseDiffers, func(w *world) { row(w).Version-- }},
		{"an order has another status", ClickHouseDiffers, func(w *world) { row(w).Status = "Assigned" }},
		{"an order has another reason", ClickHouseDiffers, func(w *world) { row(w).Failure = "Other" }},
		{"an order has other amounts", ClickHouseDiffers, func(w *world) { row(w).Print = "other" }},
		{"an order has another time", ClickHouseDiffers, func(w *world) { row(w).Created = row(w).Created.Add(time.Millisecond) }},
		{"an order has another account", ClickHouseDiffers, func(w *world) { row(w).Account = sick }},
		{"a step is missing", ClickHouseDiffers, func(w *world) { drop(w, 3) }},
		{"the last step is missing", ClickHouseDiffers, func(w *world) { drop(w, 4) }},
		{"a step is there twice", ClickHouseDiffers, func(w *world) { w.facts.Archive.Events = append(w.facts.Archive.Events, *step(w, 3)) }},
		{"a step has another status", ClickHouseDiffers, func(w *world) { step(w, 3).Status = "PickedUp" }},
		{"a step has another time", ClickHouseDiffers, func(w *world) { step(w, 3).At = step(w, 3).At.Add(time.Second) }},
		{"a step has another version", ClickHouseDiffers, func(w *world) { step(w, 1).Version = 1<<32 | 2 }},
		{"a step of an order that is not there", ClickHouseDiffers, func(w *world) {
			other := *step(w, 3)
			other.Order = "o"
			w.facts.Archive.Events = append(w.facts.Archive.Events, other)
		}},
		{"the creation was in an earlier epoch", "", func(w *world) { step(w, 1).Version = 1 }},
		{"no outcome of a webhook is recorded", ClickHouseDiffers, func(w *world) {
			gone := *w.attempt(well, "failed", 4)
			w.facts.Archive.Attempts = without(w.facts.Archive.Attempts, func(a Attempt) bool { return a == gone })
		}},
		{"nothing is recorded of what had nowhere to go", EventLost, func(w *world) {
			gone := *w.attempt(absent, "failed", 4)
			w.facts.Archive.Attempts = without(w.facts.Archive.Attempts, func(a Attempt) bool { return a == gone })
		}},
		{"a webhook was settled twice", EventTwice, func(w *world) {
			again := *w.attempt(well, "failed", 4)
			again.Attempt = 2
			w.facts.Archive.Attempts = append(w.facts.Archive.Attempts, again)
		}},
		{"an attempt was recorded twice", EventTwice, func(w *world) {
			again := *w.attempt(well, "failed", 4)
			again.State = "retrying"
			w.facts.Archive.Attempts = append(w.facts.Archive.Attempts, again)
		}},
		{"a webhook was sent again for an operator", "", func(w *world) {
			again := *w.attempt(well, "failed", 4)
			again.Replay = true
			w.facts.Archive.Attempts = append(w.facts.Archive.Attempts, again)
		}},
		{"it is recorded as delivered before it was sent", EventLost, func(w *world) {
			w.attempt(well, "failed", 4).Recorded = w.arrival("failed", 4).Began.Add(-time.Second)
		}},
		{"it is recorded for another account", ClickHouseDiffers, func(w *world) { w.attempt(well, "failed", 4).Account = sick }},
		{"it is recorded for the future", EventWrong, func(w *world) { w.attempt(well, "failed", 4).At = w.facts.At.Add(time.Hour) }},
	})
}
