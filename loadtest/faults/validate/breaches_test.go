package validate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// breach changes a day on which everything was right. caught is what must be
// found, among whatever else; "": nothing at all may be.
type breach struct {
	name   string
	caught Invariant
	change func(e *env)
}

func checkAll(t *testing.T, breaches []breach) {
	t.Helper()
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()

			e := day()
			b.change(e)
			_, violations := e.check()
			found := invariants(violations)
			if b.caught == "" && len(found) > 0 {
				t.Errorf("a correct system was blamed:%s", listed(violations))
			}
			if b.caught != "" && !slices.Contains(found, b.caught) {
				t.Errorf("%s was not found, but %v", b.caught, found)
			}
		})
	}
}

var (
	well = accountNamed(1, false).ID
	sick = accountNamed(2, true).ID
)

// op finds the nth operation of a kind on an order of the first account.
func (e *env) op(kind Kind, external string, n int) *Operation {
	id := e.find(well, external).ID
	for i := range e.log {
		op := &e.log[i]
		if op.Account == well && op.Kind == kind && (op.External == external || op.Order == id) {
			n--
			if n < 0 {
				return op
			}
		}
	}

	return nil
}

func (e *env) arrival(external string, sequence int) *Arrival {
	o := e.find(well, external)
	i := slices.IndexFunc(e.facts.Arrivals, func(a Arrival) bool {
		return a.Order == o.ID && a.Status == o.Changes[sequence-2].Status
	})
	return &e.facts.Arrivals[i]
}

func (e *env) attempt(account, external string, sequence int) *Attempt {
	o := e.find(account, external)
	id, _ := delivery.ParseOrderID(o.ID)
	i := slices.IndexFunc(e.facts.Archive.Attempts, func(a Attempt) bool { return a.EventID == delivery.EventID(id, o.Changes[sequence-2].Version) })
	return &e.facts.Archive.Attempts[i]
}

func without[T any](list []T, match func(T) bool) []T { return slices.DeleteFunc(list, match) }

// forget takes an order out of Redis, its stream included.
func (e *env) forget(id string) {
	e.facts.Orders = without(e.facts.Orders, func(o Order) bool { return o.ID == id })
	e.facts.Published = without(e.facts.Published, func(at string) bool { return strings.HasPrefix(at, id) })
}

// erase takes it out of everything.
func (e *env) erase(id string) {
	e.forget(id)
	a := &e.facts.Archive
	of := func(row []string) bool { return row[0] == id }
	a.Orders, a.Steps = without(a.Orders, of), without(a.Steps, of)
	e.facts.Arrivals = without(e.facts.Arrivals, func(a Arrival) bool { return a.Order == id })
}

// unasked takes out of the log what the first account did to an order.
func (e *env) unasked(external string) {
	id := e.find(well, external).ID
	e.log = without(e.log, func(op Operation) bool { return op.Account == well && (op.External == external || op.Order == id) })
}

func unknown(op *Operation) {
	op.Status, op.Code, op.Order, op.Answer, op.State, op.Replayed, op.Steps = 0, "", "", "", "", false, nil
}

func TestCheck_Orders(t *testing.T) {
	t.Parallel()

	// resent logs the first create of an order once more, refused as a duplicate.
	resent := func(after time.Duration) func(e *env) {
		return func(e *env) {
			op := *e.op(Create, "searching", 0)
			unknown(&op)
			op.Start, op.End = op.Start.Add(after), op.End.Add(after)
			op.Status, op.Code = 409, string(delivery.CodeDuplicateOrder)
			e.log = append(e.log, op)
		}
	}

	checkAll(t, []breach{
		{"a key that is not remembered after a day", "", resent(25 * time.Hour)},
		{"a key that is not remembered within a day", NotLinearizable, resent(23 * time.Hour)},
		{"an acknowledged order is nowhere", LostOrder, func(e *env) { e.erase(e.find(well, "searching").ID) }},
		{"an acknowledged order is in ClickHouse only", LostOrder, func(e *env) { e.forget(e.find(well, "searching").ID) }},
		{"all answers of an order were lost, and it is nowhere", "", func(e *env) {
			id := e.find(well, "searching").ID
			e.unasked("searching")
			e.erase(id)
			e.lost(Operation{Kind: Create, Account: well, Key: "k", External: "searching", Body: "b"})
		}},
		{"all answers of an order were lost, and it is there", "", func(e *env) {
			id := e.find(well, "searching").ID
			e.log = without(e.log, func(op Operation) bool { return op.Account == well && op.External == "searching" && op.Status == 409 })
			for i := range e.log {
				if e.log[i].Order == id {
					unknown(&e.log[i])
				}
			}
		}},
		{"only the first answer was lost", "", func(e *env) { unknown(e.op(Create, "searching", 0)) }},
		{"an order without a request", UnknownOrder, func(e *env) { e.unasked("searching") }},
		{"an order whose only request was refused", UnknownOrder, func(e *env) {
			e.unasked("searching")
			e.saw(Operation{Kind: Create, Account: well, Key: "k", External: "searching", Body: "b", Status: 429, Code: "RATE_LIMITED"})
		}},
		{"an order whose only unknown request was invalid", UnknownOrder, func(e *env) {
			e.unasked("searching")
			e.saw(Operation{Kind: Create, Account: well, Key: "k", External: "searching", Body: "b", Invalid: true})
		}},
		{"an order in ClickHouse without a request", ClickHouseDiffers, func(e *env) {
			id := e.find(well, "searching").ID
			e.unasked("searching")
			e.forget(id)
		}},
		{"an order holds what another request said", OrderDiffers, func(e *env) { e.find(well, "searching").Content = "another's" }},
		{"an external id was accepted twice", DuplicateOrder, func(e *env) {
			second := *e.op(Create, "searching", 0)
			second.Key, second.Order = "another", e.find(well, "failed").ID
			e.log = append(e.log, second)
		}},
		{"an external id was accepted under two keys", DuplicateOrder, func(e *env) {
			second := *e.op(Create, "searching", 0)
			second.Key = "another"
			e.log = append(e.log, second)
		}},
		{"Redis has two orders of an external id", DuplicateOrder, func(e *env) {
			second := *e.find(well, "searching")
			second.ID = delivery.MakeOrderID(0, 1, [delivery.OrderDigestSize]byte{9}).String()
			e.facts.Orders = append(e.facts.Orders, second)
		}},
		{"an order is answered for two external ids", DuplicateOrder, func(e *env) {
			second := *e.op(Create, "searching", 0)
			second.Key, second.External = "another", "another"
			e.log = append(e.log, second)
		}},
		{"a key made two orders", KeyTwoOutcomes, func(e *env) {
			e.op(Create, "searching", 1).Order = e.find(well, "failed").ID
		}},
		{"a key was accepted twice", KeyTwoOutcomes, func(e *env) { e.op(Create, "searching", 1).Replayed = false }},
		{"a key succeeded with two bodies", KeyTwoOutcomes, func(e *env) { e.op(Create, "searching", 1).Body = "other" }},
		{"a replay has other bytes", ReplayDiffers, func(e *env) { e.op(Create, "searching", 1).Answer = "other" }},
		{"a 500", ServerError, func(e *env) {
			e.saw(Operation{Kind: Read, Account: well, Order: e.find(well, "failed").ID, Status: 500, Code: "INTERNAL_ERROR"})
		}},
		{"a 503", "", func(e *env) {
			e.saw(Operation{Kind: Read, Account: well, Order: e.find(well, "failed").ID, Status: 503, Code: "SERVICE_UNAVAILABLE"})
		}},
		{"what Redis alone shows", Unreadable, func(e *env) { e.facts.found(Unreadable, "o", "short") }},
		{"what other accounts do is not checked", "", func(e *env) {
			e.facts.Orders = append(e.facts.Orders, Order{ID: "o", Account: "somebody", External: "e", Status: "Searching", Version: 1})
			e.facts.Published = append(e.facts.Published, Subject("o", 1))
			e.saw(Operation{Kind: Create, Account: "somebody", External: "e", Status: 500})
		}},
	})
}

func TestCheck_Moves(t *testing.T) {
	t.Parallel()

	checkAll(t, []breach{
		{"a step is left out", IllegalMove, func(e *env) {
			o := e.find(well, "delivered")
			o.Changes = slices.Delete(o.Changes, 1, 2)
		}},
		{"nothing follows the end", IllegalMove, func(e *env) { e.move(e.find(well, "failed").ID, "", delivery.Cancelled) }},
		{"a cancellation after the pickup", IllegalMove, func(e *env) {
			o := e.find(well, "delivered")
			o.Changes = o.Changes[:4]
			o.Status, o.Version, o.Changes[3].Status = "Cancelled", o.Changes[3].Version, "Cancelled"
			asked := e.op(Cancel, "delivered", 0)
			asked.Status, asked.Code, asked.State = 200, "", "Cancelled"
		}},
		{"a reason that this state does not have", IllegalMove, func(e *env) { e.find(well, "failed").Changes[2].Failure = "CustomerRefused" }},
		{"time runs back", IllegalMove, func(e *env) {
			e.find(well, "failed").Changes[1].At = e.find(well, "failed").Created.Add(-time.Second)
		}},
		{"it was cancelled without a request", IllegalMove, func(e *env) {
			id := e.find(well, "cancelled").ID
			e.log = without(e.log, func(op Operation) bool { return op.Kind == Cancel && op.Order == id })
		}},
		{"it was cancelled by a request whose answer was lost", "", func(e *env) {
			id := e.find(well, "cancelled").ID
			again := e.op(Cancel, "cancelled", 1).Start
			e.log = without(e.log, func(op Operation) bool { return op.Kind == Cancel && op.Order == id && op.Start.Equal(again) })
			lost := e.op(Cancel, "cancelled", 0)
			unknown(lost)
			lost.Order = id
		}},
		{"its status is not that of its last step", IllegalMove, func(e *env) { e.find(well, "failed").Status = "Assigned" }},
		{"its version is not that of its last step", VersionGap, func(e *env) { e.find(well, "failed").Version++ }},
		{"a version is left out", VersionGap, func(e *env) { e.find(well, "failed").Changes[1].Version += 5 }},
		{"an order that no courier ends", NotEnded, func(e *env) { e.facts.Accounts[0].Couriers = true }},
		{"a cancellation that a client was answered is gone", StateLost, func(e *env) {
			e.op(Cancel, "delivered", 0).Status, e.op(Cancel, "delivered", 0).Code = 200, ""
		}},
		{"a client was refused a cancellation that is there", StateLost, func(e *env) {
			e.op(Cancel, "cancelled", 0).Status, e.op(Cancel, "cancelled", 0).Code = 409, "ORDER_NOT_CANCELLABLE"
		}},
		{"a client was shown a state that it never had", StateLost, func(e *env) { e.op(Read, "failed", 1).State = "Delivered" }},
		{"a client was shown steps that it never took", StateLost, func(e *env) { e.op(Read, "failed", 2).Steps[1] = "PickedUp" }},
		{"a client was shown steps that end elsewhere", StateLost, func(e *env) { e.op(Read, "failed", 2).State = "Assigned" }},
		{"a client was shown an earlier state later", StateBackwards, func(e *env) {
			later := e.op(Read, "delivered", 3)
			later.State, later.Steps = "PickingUp", later.Steps[:3]
		}},
		{"a client was shown a later state by a request that overlapped", "", func(e *env) {
			first, second := e.op(Read, "delivered", 2), e.op(Read, "delivered", 3)
			first.State, second.State = second.State, first.State
			first.Steps, second.Steps = second.Steps, first.Steps
			first.End = second.Start.Add(time.Millisecond)
		}},
	})
}

func TestCheck_WhatIsLeft(t *testing.T) {
	t.Parallel()

	waits := func(r Remains) func(e *env) {
		return func(e *env) { e.facts.Remains = append(e.facts.Remains, r) }
	}
	checkAll(t, []breach{
		{"an event waits for a receiver that is well", ScheduleLeft, waits(Remains{Account: well, Waiting: []string{"n"}})},
		{"an event waits for one that was not", "", waits(Remains{Account: sick, Waiting: []string{"n"}, Counts: 1})},
		{"counts of what does not wait", ScheduleLeft, waits(Remains{Account: sick, Counts: 1})},
	})
}

func TestCheck_Windows(t *testing.T) {
	t.Parallel()

	// n operations of the first account, a millisecond apart, after a quiet hour.
	ask := func(n int, op Operation) func(e *env) {
		return func(e *env) {
			e.now = e.now.Add(time.Hour)
			op.Account = well
			for range n {
				e.now = e.now.Add(time.Millisecond)
				e.saw(op)
			}
		}
	}

	create := Operation{Kind: Create, External: "new", Body: "b", Invalid: true, Status: 422, Code: "INVALID_PHONE"}
	with := func(op Operation, status int, code delivery.Code) Operation {
		op.Status, op.Code, op.Invalid = status, string(code), op.Invalid && status == 422
		return op
	}

	replay := Operation{Kind: Create, Key: "key searching", External: "searching", Body: "bsearching", Status: 201, Replayed: true}
	cancel := Operation{Kind: Cancel, Order: "o", Status: 404, Code: string(delivery.CodeOrderNotFound)}
	read := Operation{Kind: Read, Order: "o", Status: 404, Code: string(delivery.CodeOrderNotFound)}
	checkAll(t, []breach{
		{"as many refused creations as may be", "", ask(tight.Orders.Burst.Count, create)},
		{"one more", OverLimit, ask(tight.Orders.Burst.Count+1, create)},
		{"one more, of a fleet that takes none", OverLimit, ask(tight.Orders.Burst.Count+1, with(create, 423, delivery.CodeFleetSuspended))},
		{"one more, without couriers", OverLimit, ask(tight.Orders.Burst.Count+1, with(create, 503, delivery.CodeFleetUnavailable))},
		{"one more, replays", OverLimit, ask(tight.Orders.Burst.Count+1, replay)},
		{"as many cancellations as may be", "", ask(tight.Cancel.Sustained.Count, cancel)},
		{"one more cancellation", OverLimit, ask(tight.Cancel.Sustained.Count+1, cancel)},
		{"one more read", OverLimit, ask(tight.OrderStatus.Sustained.Count+1, read)},
		{"what was limited does not count", "", ask(4000, with(read, 429, delivery.CodeRateLimited))},
		{"what has no answer may not have counted", "", ask(4000, with(read, 0, ""))},
		{"nor what was answered 503", "", ask(4000, with(read, 503, delivery.CodeServiceUnavailable))},
		{"an order was read twice within 10 s", OverLimit, func(e *env) {
			again := *e.op(Read, "failed", 2)
			again.Start, again.End = again.Start.Add(5*time.Second), again.End.Add(5*time.Second)
			e.log = append(e.log, again)
		}},
	})
}

func TestCheck_BlamesNoDayThatWasRight(t *testing.T) {
	t.Parallel()

	e := day()
	report, violations := e.check()
	if len(violations) > 0 || report.Undecided > 0 {
		t.Errorf("%+v, violations:%s", report, listed(violations))
	}
	if report.Orders != 8 || report.Replays != 8 || report.Webhooks == 0 || report.Histories != 8 || report.Windows == 0 {
		t.Errorf("looked at too little: %+v", report)
	}
}
