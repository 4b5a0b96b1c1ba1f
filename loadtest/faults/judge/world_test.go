package judge

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// source draws the numbers of a world: rapid's, or always the same.
type source interface{ intn(n int, what string) int }

// fixed makes a world in which nothing is left to chance.
type fixed struct{}

func (fixed) intn(int, string) int { return 0 }

// world is a service as it should be, one thing after the other, with its
// clients and receivers: what it tells of itself must never be a violation.
type world struct {
	draw  source
	now   time.Time
	log   []history.Op
	facts Facts
	keys  map[named]*memory // idempotency keys
	count map[named][]time.Time
	polls map[string]time.Time
	fixed map[string]bool // orders whose pickup was reported
}

type memory struct{ body, order, answer string }

var begin = time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)

func newWorld(draw source, accounts ...Account) *world {
	return &world{draw: draw, now: begin, keys: make(map[named]*memory), count: make(map[named][]time.Time),
		polls: make(map[string]time.Time), fixed: make(map[string]bool), facts: Facts{Accounts: accounts, Archive: new(Archive)}}
}

var tight = delivery.Limits{
	Orders:      delivery.EndpointLimit{Sustained: delivery.Window{Count: 12, Seconds: 60}, Burst: delivery.Window{Count: 5, Seconds: 10}},
	Cancel:      delivery.EndpointLimit{Sustained: delivery.Window{Count: 600, Seconds: 60}},
	OrderStatus: delivery.EndpointLimit{Sustained: delivery.Window{Count: 3000, Seconds: 60}},
}

func accountNamed(n int, health Health) Account {
	return Account{ID: delivery.AccountID{15: byte(n)}.String(), Limits: tight, Receiver: health}
}

// pass lets time go by: up to the given time, drawn.
func (w *world) pass(most time.Duration) {
	w.now = w.now.Add(time.Millisecond + time.Duration(w.draw.intn(int(most/time.Millisecond), "pass"))*time.Millisecond)
}

// saw logs an operation that took effect now, as its client saw it.
func (w *world) saw(op history.Op) {
	op.Start = w.now.Add(-time.Duration(1+w.draw.intn(400, "before")) * time.Millisecond)
	op.End = w.now.Add(time.Duration(1+w.draw.intn(400, "after")) * time.Millisecond)
	w.log = append(w.log, op)
}

// lost logs one whose client saw nothing.
func (w *world) lost(op history.Op) {
	op.Status, op.Code, op.Replayed, op.State, op.Steps, op.Answer = 0, "", false, "", nil, ""
	if op.Kind == history.Create {
		op.Order = ""
	}
	if w.draw.intn(2, "503") == 1 {
		op.Status, op.Code = 503, string(delivery.CodeServiceUnavailable)
	}
	w.saw(op)
}

// admit counts a request.
func (w *world) admit(account, kind string, limit delivery.EndpointLimit) bool {
	name := named{account, kind}
	for _, window := range []delivery.Window{limit.Sustained, limit.Burst} {
		since := w.now.Add(-time.Duration(window.Seconds) * time.Second)
		n := 0
		for _, at := range w.count[name] {
			if at.After(since) {
				n++
			}
		}
		if window.Count > 0 && n >= window.Count {
			return false
		}
	}
	w.count[name] = append(w.count[name], w.now)
	return true
}

// create is POST /orders; what its client would see.
func (w *world) create(account, key, external, body string) history.Op {
	op := history.Op{Kind: history.Create, Account: account, Key: key, External: external, Body: body, Content: external + body, Invalid: body == "bad"}
	refuse := func(status int, code delivery.Code) history.Op {
		op.Status, op.Code = status, string(code)
		return op
	}
	if !w.admit(account, "create", tight.Orders) {
		return refuse(429, delivery.CodeRateLimited)
	}
	if earlier := w.keys[named{account, key}]; earlier != nil && key != "" {
		if earlier.body != body+external {
			return refuse(409, delivery.CodeDuplicateOrder)
		}
		op.Status, op.Replayed, op.Order, op.Answer, op.State = 201, true, earlier.order, earlier.answer, "Searching"
		return op
	}
	if op.Invalid {
		return refuse(422, delivery.CodeInvalidPhone)
	}
	if w.find(account, external) != nil {
		return refuse(409, delivery.CodeDuplicateOrder)
	}
	id, _ := delivery.ParseAccountID(account)
	order := delivery.MakeOrderID(0, delivery.DayOf(w.now), delivery.OrderDigest(id, external)).String()
	w.facts.Orders = append(w.facts.Orders, Order{ID: order, Account: account, External: external, Status: "Searching",
		Version: 1<<32 | 1, Created: w.now, Print: "print " + external, Content: external + body})
	op.Status, op.Order, op.Answer, op.State = 201, order, "answer "+order, "Searching"
	if key != "" {
		w.keys[named{account, key}] = &memory{body + external, order, op.Answer}
	}
	return op
}

func (w *world) find(account, external string) *Order {
	i := slices.IndexFunc(w.facts.Orders, func(o Order) bool { return o.Account == account && o.External == external })
	if i < 0 {
		return nil
	}
	return &w.facts.Orders[i]
}

func (w *world) order(id string) *Order {
	i := slices.IndexFunc(w.facts.Orders, func(o Order) bool { return o.ID == id })
	if i < 0 {
		return nil
	}
	return &w.facts.Orders[i]
}

// move appends steps to an order.
func (w *world) move(id string, failure delivery.FailureReason, steps ...delivery.Status) {
	o := w.order(id)
	for _, status := range steps {
		change := Change{Status: status.String(), Version: 1<<32 | uint64(2+len(o.Changes)), At: w.now}
		if status == delivery.Failed {
			change.Failure = string(failure)
		}
		o.Changes = append(o.Changes, change)
		o.Status, o.Version, o.Failure = change.Status, change.Version, change.Failure
	}
}

func (w *world) status(o *Order) delivery.Status {
	status, _ := delivery.ParseStatus(o.Status)
	return status
}

// cancel is POST /orders/{id}/cancel.
func (w *world) cancel(account, id string) history.Op {
	op := history.Op{Kind: history.Cancel, Account: account, Order: id}
	o := w.order(id)
	switch {
	case o == nil || o.Account != account:
		op.Status, op.Code = 404, string(delivery.CodeOrderNotFound)
	case w.status(o) == delivery.Cancelled:
		op.Status, op.State = 200, "Cancelled"
	case !w.status(o).Cancellable() || w.fixed[id]:
		op.Status, op.Code = 409, string(delivery.CodeOrderNotCancellable)
	default:
		w.move(id, "", delivery.Cancelled)
		op.Status, op.State = 200, "Cancelled"
	}
	return op
}

// read is GET /orders/{id}.
func (w *world) read(account, id string) history.Op {
	op := history.Op{Kind: history.Read, Account: account, Order: id}
	o := w.order(id)
	switch {
	case o == nil || o.Account != account:
		op.Status, op.Code = 404, string(delivery.CodeOrderNotFound)
	case !w.polls[id].IsZero() && w.now.Sub(w.polls[id]) < delivery.PollInterval:
		op.Status, op.Code = 429, string(delivery.CodeRateLimited)
	default:
		w.polls[id] = w.now
		op.Status, op.State, op.Steps = 200, o.Status, o.path()
	}
	return op
}

// courier moves an order on by one step, or ends it.
func (w *world) courier(o *Order) {
	from := w.status(o)
	switch {
	case from.Terminal():
	case w.draw.intn(6, "fails") == 1:
		w.move(o.ID, delivery.OtherFailure, delivery.Failed)
	case from == delivery.PickingUp && !w.fixed[o.ID] && w.draw.intn(2, "reports") == 1:
		w.fixed[o.ID] = true // the report waits in the stream
	default:
		w.move(o.ID, "", from+1)
	}
}

// settle delivers what is to be delivered and writes the archive.
func (w *world) settle() {
	f := &w.facts
	f.At = w.now.Add(time.Minute)
	for i := range f.Orders {
		o := &f.Orders[i]
		row := *o
		row.Changes, row.Content = nil, ""
		f.Archive.Orders = append(f.Archive.Orders, row)
		w.step(o, 1, Change{Status: "Searching", Version: 1<<32 | 1, At: o.Created})
		for n, change := range o.Changes {
			w.step(o, uint32(n+2), change)
		}
		w.deliver(o)
	}
}

func (w *world) step(o *Order, sequence uint32, change Change) {
	f := &w.facts
	f.Published = append(f.Published, Published{o.ID, change.Version})
	f.Archive.Events = append(f.Archive.Events, ArchivedEvent{Order: o.ID, Account: o.Account, Sequence: sequence,
		Version: change.Version, Status: change.Status, At: change.At, Failure: change.Failure})
}

func (w *world) remains(account string) *Remains {
	i := slices.IndexFunc(w.facts.Remains, func(r Remains) bool { return r.Account == account })
	if i < 0 {
		w.facts.Remains = append(w.facts.Remains, Remains{Account: account, Scheduled: true})
		i = len(w.facts.Remains) - 1
	}
	return &w.facts.Remains[i]
}

// deliver sends an order's events as the health of its receiver has it.
func (w *world) deliver(o *Order) {
	f := &w.facts
	health := f.Accounts[slices.IndexFunc(f.Accounts, func(a Account) bool { return a.ID == o.Account })].Receiver
	id, _ := delivery.ParseOrderID(o.ID)
	after := time.Time{}
	for n, change := range o.Changes {
		event := delivery.EventID(id, change.Version)
		attempt := Attempt{Account: o.Account, EventID: event, State: "delivered", Attempt: 1, Took: 5 * time.Millisecond}
		began := change.At.Add(time.Duration(10+w.draw.intn(20, "way")) * time.Millisecond)
		if began.Before(after) {
			began = after
		}
		arrival := Arrival{Account: o.Account, EventID: event, Event: "delivery.status_changed", Order: o.ID, External: o.External,
			Status: change.Status, Failure: change.Failure, Attempt: 1, Occurred: change.At, Answered: 204, Body: "body of " + event}
		switch {
		case health == Absent:
			attempt.State, attempt.At = "notSent", began
			f.Archive.Attempts = append(f.Archive.Attempts, attempt)
			continue
		case health == Dead && w.draw.intn(2, "dead") == 0:
			if w.draw.intn(2, "tried") == 0 { // and so nothing behind it is
				w.remains(o.Account).Queued = append(w.remains(o.Account).Queued, Subject(o.ID, uint32(n+2)))
				return
			}
			w.remains(o.Account).Waiting = append(w.remains(o.Account).Waiting, Subject(o.ID, uint32(n+2)))
			attempt.State = "retrying"
			attempt.At, after = began, began.Add(attempt.Took)
			f.Archive.Attempts = append(f.Archive.Attempts, attempt)
			continue
		case health == Disturbed && w.draw.intn(2, "fails first") == 1:
			failed := attempt
			failed.State, failed.At = "retrying", began
			f.Archive.Attempts = append(f.Archive.Attempts, failed)
			after = began.Add(failed.Took)
			began = began.Add(10 * time.Second)
			attempt.Attempt, arrival.Attempt = 2, 2
		default:
			after = began.Add(attempt.Took)
		}
		attempt.At, attempt.Recorded = began, began.Add(attempt.Took)
		arrival.Began, arrival.Ended = began.Add(time.Millisecond), began.Add(3*time.Millisecond)
		f.Arrivals = append(f.Arrivals, arrival)
		f.Archive.Attempts = append(f.Archive.Attempts, attempt)
	}
}

// day is a fixed world with an order that was delivered, one that was cancelled,
// one that failed and one that is still looked for, of each kind of account.
func day() *world {
	w := newWorld(fixed{}, accountNamed(1, Healthy), accountNamed(2, Disturbed), accountNamed(3, Absent))
	for _, a := range w.facts.Accounts {
		for n, name := range []string{"delivered", "cancelled", "failed", "searching"} {
			w.now = w.now.Add(time.Duration(n) * 4 * time.Second)
			op := w.create(a.ID, "key "+name, name, "b"+name)
			w.saw(op)
			w.now = w.now.Add(time.Second)
			w.saw(w.create(a.ID, "key "+name, name, "b"+name))
			w.saw(w.create(a.ID, "key "+name, name, "other"))
			w.live(a.ID, op.Order, name)
		}
		w.now = w.now.Add(time.Minute)
	}
	w.settle()
	return w
}

func (w *world) live(account, id, name string) {
	steps := map[string][]delivery.Status{
		"delivered": {delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered},
		"cancelled": {delivery.Assigned},
		"failed":    {delivery.Assigned, delivery.PickingUp, delivery.Failed},
	}[name]
	for _, step := range steps {
		w.now = w.now.Add(11 * time.Second)
		w.move(id, delivery.CourierIncident, step)
		w.now = w.now.Add(time.Second)
		w.saw(w.read(account, id))
	}
	w.now = w.now.Add(time.Second)
	if name == "cancelled" || name == "delivered" {
		w.saw(w.cancel(account, id))
	}
	if name == "cancelled" {
		w.now = w.now.Add(time.Second)
		w.saw(w.cancel(account, id))
	}
}

func (w *world) check() (Report, []Violation) { return Check(w.log, &w.facts) }

func invariants(violations []Violation) []Invariant {
	var names []Invariant
	for _, v := range violations {
		if !slices.Contains(names, v.Invariant) {
			names = append(names, v.Invariant)
		}
	}
	return names
}

func listed(violations []Violation) string {
	text := ""
	for _, v := range violations {
		text += fmt.Sprintf("\n  %s", v)
	}
	return text
}
