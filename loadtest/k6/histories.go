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

// mostRead bounds the orders of an account whose history is read back. An account may read 3,000 a minute. The orders
// in between are compared with how they had to end.
const mostRead = 2500

// readsAtOnce is how many histories are read at once.
const readsAtOnce = 8

// histories returns the orders that have webhooks: those that did not stay where they began. At most mostRead of them
// are read, evenly spread; of the others the history is what the receiver says, if it ends as it had to.
func (a *account) histories(ctx context.Context, orders []results.Order, received *receiver.Receiver) ([]receiver.History, error) {
	var histories []receiver.History
	for _, o := range orders {
		if o.End != "Searching" {
			histories = append(histories, receiver.History{OrderID: o.ID, End: o.End, Failure: o.Failure})
		}
	}

	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readsAtOnce)
	every := (len(histories) + mostRead - 1) / mostRead
	for i := range histories {
		isRead := received == nil || i%every == 0
		if isRead {
			reading.Go(func() error { return a.read(ctx, &histories[i]) })
		} else {
			assume(&histories[i], received)
		}
	}
	return histories, reading.Wait()
}

// read reads an order. The script may have read it just now, so it is read again after the wait that a 429 names. An
// order that cannot be read did not end as it had to.
func (a *account) read(ctx context.Context, h *receiver.History) error {
	answer, err := a.api.Do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
	for tries := 1; err == nil && answer.Code == "RATE_LIMITED" && tries < 8; tries++ {
		if err := harness.Sleep(ctx, answer.RetryAfter()); err != nil {
			return err
		}
		answer, err = a.api.Do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
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
	if h.Failure == "" {
		h.Failure = h.FailureReason // the script has planned none
	}
	return nil
}

// delivered is the way of an order that nothing skips.
var delivered = []string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}

// assume fills in the history of an order that is not read: the whole way if it had to be delivered, and what the
// receiver got otherwise.
func assume(h *receiver.History, received *receiver.Receiver) {
	statuses := []string{"Searching"}
	for _, entry := range received.Timeline(h.OrderID) {
		statuses = append(statuses, entry.Status)
	}
	h.Status = statuses[len(statuses)-1]
	if h.End == "Delivered" {
		statuses = delivered
	}
	for _, status := range statuses {
		h.Events = append(h.Events, struct {
			Status string
			At     time.Time
		}{Status: status})
	}
}
