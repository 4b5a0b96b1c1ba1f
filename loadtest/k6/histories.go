package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

// mostRead bounds the orders of an account whose histories are read. The contract allows 3,000 reads a minute.
const mostRead = 2500

// readsAtOnce is how many histories are read at once.
const readsAtOnce = 8

// withWebhooks returns the histories, still empty, of the orders that have webhooks: those that do not have to stay in
// Searching.
func withWebhooks(orders []results.Order) []receiver.History {
	var histories []receiver.History
	for _, o := range orders {
		if o.End != "Searching" {
			histories = append(histories, receiver.History{OrderID: o.ID, End: o.End})
		}
	}
	return histories
}

// distanceOfRead returns the distance between two of so many orders that are read, so that at most mostRead are.
func distanceOfRead(orders int) int { return max(1, (orders+mostRead-1)/mostRead) }

// histories returns the histories of the orders that have webhooks. At most mostRead of them are read, evenly spread, and
// the others are assumed from what the receiver got. The error is that of a ctx that has ended; the histories are then
// not to be used.
func (a *account) histories(ctx context.Context, orders []results.Order, received *receiver.Receiver) ([]receiver.History, error) {
	histories := withWebhooks(orders)
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readsAtOnce)
	distance := distanceOfRead(len(histories))
	for i := range histories {
		isRead := i%distance == 0
		if isRead {
			reading.Go(func() error { return a.read(ctx, &histories[i]) })
		} else {
			assume(&histories[i], received)
		}
	}

	return histories, reading.Wait()
}

// mostTries is how often an order is asked for that is refused with 429.
const mostTries = 8

// read reads the history of an order. The script may have read it just now, so it is asked for again after the wait that
// a 429 names. An order that cannot be read gets a status that says so, which is never the one that it had to end in. The
// error is that of a ctx that has ended.
func (a *account) read(ctx context.Context, h *receiver.History) error {
	answer, err := a.do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
	for tries := 1; err == nil && answer.Code == "RATE_LIMITED" && tries < mostTries; tries++ {
		if err := harness.Sleep(ctx, answer.RetryAfter()); err != nil {
			return err
		}
		answer, err = a.do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
	}

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	if err == nil {
		err = answer.Into(h)
	}

	if err != nil {
		h.Status = fmt.Sprintf("nobody knows how (%v)", err)
		return nil
	}

	h.Failure = h.FailureReason // the scripts intend no reason, so any is right

	return nil
}

// wholeWay are the statuses of an order that is delivered.
var wholeWay = []string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}

// assume fills in the history of an order that is not read. Its status is the last one that the receiver got. Its events
// are those of the whole way if it had to be delivered, and otherwise those that the receiver got.
func assume(h *receiver.History, received *receiver.Receiver) {
	statuses := []string{"Searching"}
	for _, entry := range received.Timeline(h.OrderID) {
		statuses = append(statuses, entry.Status)
	}

	h.Status = statuses[len(statuses)-1]

	if h.End == "Delivered" {
		statuses = wholeWay
	}

	for _, status := range statuses {
		h.Events = append(h.Events, struct {
			Status string
			At     time.Time
		}{Status: status})
	}
}
