package receiver

import (
	"fmt"
	"slices"
	"time"
)

// History is an order as GET /orders/{orderId} answers, with how it was to end.
type History struct {
	OrderID, Status, FailureReason string
	Courier                        *struct{ Name string }
	Events                         []struct {
		Status string
		At     time.Time
	}

	End, Failure string `json:"-"` // the last status that was intended, and its reason
}

// Check is what one receiver got, compared with what the service answers.
type Check struct {
	Expected   int       // events: activated stores, and every status of an order after the first
	Received   int       // distinct ones of these
	Duplicates int       // arrived once more, as at-least-once delivery may
	Delays     []float64 // of the orders' events, milliseconds from occurrence to arrival
	Problems   Problems
}

// Problems are what is not as it should be, in words.
type Problems []string

// Add adds one, formatted as fmt.Sprintf does.
func (p *Problems) Add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// Check compares the webhooks of an account with its orders and its number of stores.
func (r *Receiver) Check(orders []History, stores int) *Check {
	counts := r.Counts()
	c := &Check{
		Expected: stores, Duplicates: counts.Duplicates,
		Received: counts.Events["store.activated"] + counts.Events["delivery.status_changed"],
	}

	known := map[string]bool{}
	for i := range orders {
		known[orders[i].OrderID] = true
		c.order(&orders[i], r.Timeline(orders[i].OrderID))
	}

	for _, id := range r.Orders() {
		if !known[id] {
			c.Problems.Add("webhooks of order %s, which has none to send", id)
		}
	}

	if c.Received != c.Expected {
		c.Problems.Add("%d webhooks received, %d expected", c.Received, c.Expected)
	}

	activated := counts.Events["store.activated"]
	if activated != stores {
		c.Problems.Add("%d store.activated for %d stores", activated, stores)
	}

	c.addWrong(&counts)

	return c
}

// CheckAmongOthers compares the webhooks of some orders of an account, and of some of its stores, with these. Webhooks of
// other orders and stores are no problem; others is how many there were.
func (r *Receiver) CheckAmongOthers(orders []History, stores int) (c *Check, others int) {
	counts := r.Counts()
	activated := counts.Events["store.activated"]
	c = &Check{Expected: stores, Received: min(stores, activated), Duplicates: counts.Duplicates}
	for i := range orders {
		line := r.Timeline(orders[i].OrderID)
		c.order(&orders[i], line)
		c.Received += len(line)
	}

	if c.Received != c.Expected {
		c.Problems.Add("%d webhooks received, %d expected", c.Received, c.Expected)
	}

	if activated < stores {
		c.Problems.Add("%d store.activated for %d stores", activated, stores)
	}

	c.addWrong(&counts)

	return c, activated + counts.Events["delivery.status_changed"] - c.Received
}

// addWrong adds the problems of what no receiver should get.
func (c *Check) addWrong(counts *Counts) {
	if counts.Changed > 0 {
		c.Problems.Add("%d webhooks came again with other bytes", counts.Changed)
	}

	for reason, n := range counts.Invalid {
		c.Problems.Add("%d webhooks not accepted: %s", n, reason)
	}

	for event, n := range counts.Unknown {
		c.Problems.Add("%d webhooks of the unknown type %s", n, event)
	}

	slices.Sort(c.Problems)
}

// order compares an order's history with its webhooks and with how it was to end.
func (c *Check) order(o *History, line []Entry) {
	history, received := []string{}, []string{"Searching"} // which the creation's answer reports
	for _, e := range o.Events {
		history = append(history, e.Status)
	}

	for _, e := range line {
		received = append(received, e.Status)
		c.Delays = append(c.Delays, float64(e.ArrivedAt.Sub(e.OccurredAt))/float64(time.Millisecond))
	}

	c.Expected += max(0, len(history)-1)
	if !slices.Equal(received, history) {
		c.Problems.Add("order %s: the webhooks say %v, the service %v", o.OrderID, received, history)
	}

	if o.Status != o.End || o.FailureReason != o.Failure {
		c.Problems.Add("order %s: ended %s %s and should have ended %s %s", o.OrderID, o.Status, o.FailureReason, o.End, o.Failure)
	}
}

// Last is the latest status of an order that a webhook brought; "Searching" before the first one.
func (r *Receiver) Last(orderID string) string {
	line := r.Timeline(orderID)
	if len(line) == 0 {
		return "Searching"
	}
	return line[len(line)-1].Status
}
