package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// readers is how many histories are read at once.
const readers = 8

// settleTime is how long after a script's end its orders may take to end and their webhooks to arrive. A delivery
// lasts some seconds, and a webhook that was lost on the way is sent again after ten.
const settleTime = time.Minute

// webhooks is what a script's receivers got, compared with its orders.
type webhooks struct {
	receiver.Check
	Orders    int // accepted
	Histories int // read back and compared, status by status
	Stores    int // registered
}

// checkWebhooks waits until every order of the script has come to its end, and
// compares what the receivers got with what the service answers.
func checkWebhooks(ctx context.Context, accounts []*account, all *samples) (*webhooks, error) {
	w := &webhooks{}
	deadline := time.Now().Add(settleTime)
	for _, a := range accounts {
		a.settle(ctx, time.Until(deadline), all.orders[a.label], all.stores[a.label])
	}
	for _, a := range accounts {
		w.Orders += len(all.orders[a.label])
		histories, err := a.histories(ctx, all.orders[a.label])
		if err != nil {
			return nil, err
		}
		w.add(a, histories, all.stores[a.label])
	}
	return w, nil
}

func (w *webhooks) add(a *account, histories []receiver.History, stores int) {
	c := a.receiver.Check(histories, stores)
	w.Histories += len(histories)
	w.Stores += stores
	w.Expected += c.Expected
	w.Received += c.Received
	w.Duplicates += c.Duplicates
	w.Delays = append(w.Delays, c.Delays...)
	for _, problem := range c.Problems {
		w.Problems.Add("account %s: %s", a.label, problem)
	}
}

// settle waits for the last webhook of every order of an account, and for its stores'.
// The comparison finds what is missing.
func (a *account) settle(ctx context.Context, timeout time.Duration, orders []receiver.History, stores int) {
	_ = harness.Await(ctx, "webhooks", timeout, 20*time.Millisecond, func() (bool, error) {
		for len(orders) > 0 && a.receiver.Last(orders[0].OrderID) == orders[0].End {
			orders = orders[1:]
		}
		return len(orders) == 0 && a.receiver.Counts().Events["store.activated"] >= stores, nil
	})
}

// histories reads the orders that have webhooks: those that did not stay where they began.
func (a *account) histories(ctx context.Context, orders []receiver.History) ([]receiver.History, error) {
	read := slices.DeleteFunc(slices.Clone(orders), func(o receiver.History) bool { return o.End == "Searching" })
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i := range read {
		group.Go(func() error { return a.read(ctx, &read[i]) })
	}
	return read, group.Wait()
}

// read reads an order. The script may have read it just now, so it is read again after the wait that a 429 names.
func (a *account) read(ctx context.Context, h *receiver.History) error {
	answer, err := a.Do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
	for tries := 1; err == nil && answer.Code == "RATE_LIMITED" && tries < 3; tries++ {
		if err = harness.Sleep(ctx, answer.RetryAfter()); err == nil {
			answer, err = a.Do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
		}
	}
	if err == nil {
		err = answer.Into(h)
		h.Failure = h.FailureReason // the scripts plan none
	}
	if err != nil {
		return fmt.Errorf("read order %s: %w", h.OrderID, err)
	}
	return nil
}

// Delay is a quantile of the times from an event's occurrence to its arrival.
func (w *webhooks) Delay(q float64) string {
	if len(w.Delays) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", harness.Quantile(w.Delays, q))
}
