package validate

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

// source draws the numbers of an env: rapid's, or always the same.
type source interface{ intn(n int, what string) int }

// fixed makes an env in which nothing is left to chance.
type fixed struct{}

func (fixed) intn(int, string) int { return 0 }

// env is a service as it should be, one thing after the other, with its
// clients and receivers: nothing that it shows may be a violation.
type env struct {
	draw  source
	now   time.Time
	log   []Operation
	facts Facts
	keys  map[name]*memory // idempotency keys
	count map[name][]time.Time
	polls map[string]time.Time
	fixed map[string]bool // orders whose pickup was reported
}

type memory struct{ body, order, answer string }

var begin = time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)

func newEnv(draw source, accounts ...Account) *env {
	return &env{draw: draw, now: begin, keys: make(map[name]*memory), count: make(map[name][]time.Time),
		polls: make(map[string]time.Time), fixed: make(map[string]bool), facts: Facts{Accounts: accounts}}
}

var tight = delivery.Limits{
	Orders:      delivery.EndpointLimit{Sustained: delivery.Window{Count: 12, Seconds: 60}, Burst: delivery.Window{Count: 5, Seconds: 10}},
	Cancel:      delivery.EndpointLimit{Sustained: delivery.Window{Count: 600, Seconds: 60}},
	OrderStatus: delivery.EndpointLimit{Sustained: delivery.Window{Count: 3000, Seconds: 60}},
}

func accountNamed(n int, disturbed bool) Account {
	return Account{ID: delivery.AccountID{15: byte(n)}.String(), Limits: tight, Disturbed: disturbed}
}

// pass lets time go by: up to the given time, drawn.
func (e *env) pass(most time.Duration) {
	e.now = e.now.Add(time.Millisecond + time.Duration(e.draw.intn(int(most/time.Millisecond), "pass"))*time.Millisecond)
}

// saw logs an operation that took effect now, as its client saw it.
func (e *env) saw(op Operation) {
	op.Start = e.now.Add(-time.Duration(1+e.draw.intn(400, "before")) * time.Millisecond)
	op.End = e.now.Add(time.Duration(1+e.draw.intn(400, "after")) * time.Millisecond)
	e.log = append(e.log, op)
}

// lost logs one whose client saw nothing.
func (e *env) lost(op Operation) {
	op.Status, op.Code, op.Replayed, op.State, op.Steps, op.Answer = 0, "", false, "", nil, ""
	if op.Kind == Create {
		op.Order = ""
	}

	if e.draw.intn(2, "503") == 1 {
		op.Status, op.Code = 503, string(delivery.CodeServiceUnavailable)
	}

	e.saw(op)
}

// admit counts a request.
func (e *env) admit(account, kind string, limit delivery.EndpointLimit) bool {
	endpoint := name{account, kind}
	for _, window := range []delivery.Window{limit.Sustained, limit.Burst} {
		since := e.now.Add(-time.Duration(window.Seconds) * time.Second)
		n := 0
		for _, at := range e.count[endpoint] {
			if at.After(since) {
				n++
			}
		}

		if window.Count > 0 && n >= window.Count {
			return false
		}
	}

	e.count[endpoint] = append(e.count[endpoint], e.now)

	return true
}

// create is POST /orders; what its client would see.
func (e *env) create(account, key, external, body string) Operation {
	op := Operation{Kind: Create, Account: account, Key: key, External: external, Body: body, Content: external + body, Invalid: body == "bad"}
	refuse := func(status int, code delivery.Code) Operation {
		op.Status, op.Code = status, string(code)
		return op
	}
	if !e.admit(account, "create", tight.Orders) {
		return refuse(429, delivery.CodeRateLimited)
	}

	if earlier := e.keys[name{account, key}]; earlier != nil && key != "" {
		if earlier.body != body+external {
			return refuse(409, delivery.CodeDuplicateOrder)
		}
		op.Status, op.Replayed, op.Order, op.Answer, op.State = 201, true, earlier.order, earlier.answer, "Searching"
		return op
	}

	if op.Invalid {
		return refuse(422, delivery.CodeInvalidPhone)
	}
	if e.find(account, external) != nil {
		return refuse(409, delivery.CodeDuplicateOrder)
	}

	id, _ := delivery.ParseAccountID(account)
	order := delivery.MakeOrderID(0, delivery.DayOf(e.now), delivery.OrderDigest(id, external)).String()
	e.facts.Orders = append(e.facts.Orders, Order{ID: order, Account: account, External: external, Status: "Searching",
		Version: delivery.FirstVersion(e.now), Created: e.now, Content: external + body})
	op.Status, op.Order, op.Answer, op.State = 201, order, "answer "+order, "Searching"
	if key != "" {
		e.keys[name{account, key}] = &memory{body + external, order, op.Answer}
	}

	return op
}

func (e *env) find(account, external string) *Order {
	i := slices.IndexFunc(e.facts.Orders, func(o Order) bool { return o.Account == account && o.External == external })
	if i < 0 {
		return nil
	}
	return &e.facts.Orders[i]
}

func (e *env) order(id string) *Order {
	i := slices.IndexFunc(e.facts.Orders, func(o Order) bool { return o.ID == id })
	if i < 0 {
		return nil
	}
	return &e.facts.Orders[i]
}

// move appends steps to an order.
func (e *env) move(id string, failure delivery.FailureReason, steps ...delivery.Status) {
	o := e.order(id)
	for _, status := range steps {
		change := Change{Status: status.String(), Version: delivery.NextVersion(o.Version, e.now, 0), At: e.now}
		if status == delivery.Failed {
			change.Failure = string(failure)
		}
		o.Changes = append(o.Changes, change)
		o.Status, o.Version = change.Status, change.Version
	}
}

func (e *env) status(o *Order) delivery.Status {
	status, _ := delivery.ParseStatus(o.Status)
	return status
}

// cancel is POST /orders/{id}/cancel.
func (e *env) cancel(account, id string) Operation {
	op := Operation{Kind: Cancel, Account: account, Order: id}
	o := e.order(id)
	switch {
	case o == nil || o.Account != account:
		op.Status, op.Code = 404, string(delivery.CodeOrderNotFound)
	case e.status(o) == delivery.Cancelled:
		op.Status, op.State = 200, "Cancelled"
	case !e.status(o).Cancellable() || e.fixed[id]:
		op.Status, op.Code = 409, string(delivery.CodeOrderNotCancellable)
	default:
		e.move(id, "", delivery.Cancelled)
		op.Status, op.State = 200, "Cancelled"
	}

	return op
}

// read is GET /orders/{id}.
func (e *env) read(account, id string) Operation {
	op := Operation{Kind: Read, Account: account, Order: id}
	o := e.order(id)
	switch {
	case o == nil || o.Account != account:
		op.Status, op.Code = 404, string(delivery.CodeOrderNotFound)
	case !e.polls[id].IsZero() && e.now.Sub(e.polls[id]) < delivery.PollInterval:
		op.Status, op.Code = 429, string(delivery.CodeRateLimited)
	default:
		e.polls[id] = e.now
		op.Status, op.State, op.Steps = 200, o.Status, o.path()
	}

	return op
}

// courier moves an order on by one step, or ends it.
func (e *env) courier(o *Order) {
	from := e.status(o)
	switch {
	case from.Terminal():
	case e.draw.intn(6, "fails") == 1:
		e.move(o.ID, delivery.OtherFailure, delivery.Failed)
	case from == delivery.PickingUp && !e.fixed[o.ID] && e.draw.intn(2, "reports") == 1:
		e.fixed[o.ID] = true // the report waits in the stream
	default:
		e.move(o.ID, "", from+1)
	}
}

// settle delivers what is to be delivered and writes the archive.
func (e *env) settle() {
	f := &e.facts
	f.At = e.now.Add(time.Minute)
	for i := range f.Orders {
		o := &f.Orders[i]
		o.Row = make([]string, len(orderColumns))
		copy(o.Row, []string{o.ID, o.Account, o.External, o.Status, fmt.Sprint(o.Version), millis(o.Created)})
		f.Archive.Orders = append(f.Archive.Orders, slices.Clone(o.Row))
		f.Archive.Steps = append(f.Archive.Steps, o.stepRows()...)
		for sequence := range uint32(1 + len(o.Changes)) {
			f.Published = append(f.Published, Subject(o.ID, sequence+1))
		}

		e.deliver(o)
	}
}

// deliver sends an order's events; first attempts at a disturbed receiver may fail.
func (e *env) deliver(o *Order) {
	f := &e.facts
	disturbed := f.Accounts[slices.IndexFunc(f.Accounts, func(a Account) bool { return a.ID == o.Account })].Disturbed
	id, _ := delivery.ParseOrderID(o.ID)
	const took = 5 * time.Millisecond
	after := time.Time{}
	for _, change := range o.Changes {
		event := delivery.EventID(id, change.Version)
		attempt := Attempt{Account: o.Account, EventID: event, State: "delivered", Attempt: 1}
		began := change.At.Add(time.Duration(10+e.draw.intn(20, "way")) * time.Millisecond)
		if began.Before(after) {
			began = after
		}

		arrival := Arrival{Account: o.Account, EventID: event, Event: "delivery.status_changed", Order: o.ID, External: o.External,
			Status: change.Status, Failure: change.Failure, Attempt: 1, Occurred: change.At, Answered: 204, Body: "body of " + event}
		switch {
		case disturbed && e.draw.intn(2, "fails first") == 1:
			failed := attempt
			failed.State, failed.At = "retrying", began
			f.Archive.Attempts = append(f.Archive.Attempts, failed)
			after = began.Add(took)
			began = began.Add(10 * time.Second)
			attempt.Attempt, arrival.Attempt = 2, 2
		default:
			after = began.Add(took)
		}

		attempt.At, attempt.Recorded = began, began.Add(took)
		arrival.Began, arrival.Ended = began.Add(time.Millisecond), began.Add(3*time.Millisecond)
		f.Arrivals = append(f.Arrivals, arrival)
		f.Archive.Attempts = append(f.Archive.Attempts, attempt)
	}
}

// day is a fixed env with an order that was delivered, one that was cancelled,
// one that failed and one that is still looked for, of each kind of account.
func day() *env {
	e := newEnv(fixed{}, accountNamed(1, false), accountNamed(2, true))
	for _, a := range e.facts.Accounts {
		for n, name := range []string{"delivered", "cancelled", "failed", "searching"} {
			e.now = e.now.Add(time.Duration(n) * 4 * time.Second)
			op := e.create(a.ID, "key "+name, name, "b"+name)
			e.saw(op)
			e.now = e.now.Add(time.Second)
			e.saw(e.create(a.ID, "key "+name, name, "b"+name))
			e.saw(e.create(a.ID, "key "+name, name, "other"))
			e.live(a.ID, op.Order, name)
		}

		e.now = e.now.Add(time.Minute)
	}

	e.settle()

	return e
}

func (e *env) live(account, id, name string) {
	steps := map[string][]delivery.Status{
		"delivered": {delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered},
		"cancelled": {delivery.Assigned},
		"failed":    {delivery.Assigned, delivery.PickingUp, delivery.Failed},
	}[name]

	for _, step := range steps {
		e.now = e.now.Add(11 * time.Second)
		e.move(id, delivery.CourierIncident, step)
		e.now = e.now.Add(time.Second)
		e.saw(e.read(account, id))
	}

	e.now = e.now.Add(time.Second)
	if name == "cancelled" || name == "delivered" {
		e.saw(e.cancel(account, id))
	}

	if name == "cancelled" {
		e.now = e.now.Add(time.Second)
		e.saw(e.cancel(account, id))
	}
}

func (e *env) check() (Report, []Violation) { return Check(e.log, &e.facts) }

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
