package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// readers is how many histories are read at once.
const readers = 8

// settleTime is how long after a script's end its orders may take to end and
// their webhooks to arrive. A delivery lasts some seconds, and a webhook that
// was lost on the way is sent again after ten.
const settleTime = time.Minute

// webhooks is what a script's receivers got, compared with its orders.
type webhooks struct {
	orders     int // accepted
	histories  int // read back and compared, status by status
	stores     int // registered
	expected   int // events: store.activated, and every status after Searching
	received   int // distinct events
	duplicates int // the same event once more, as at-least-once delivery may
	delays     []float64
	problems   []string

	mu sync.Mutex
}

// checkWebhooks waits until every order of the script has come to its end, and
// compares what the receivers got with what the service says.
func checkWebhooks(ctx context.Context, accounts []*account, all *samples) (*webhooks, error) {
	w := &webhooks{orders: len(all.orders)}
	deadline := time.Now().Add(settleTime)
	orders := map[string][]order{}
	for _, o := range all.orders {
		orders[o.account] = append(orders[o.account], o)
	}
	for _, a := range accounts {
		if err := a.settle(ctx, deadline, orders[a.label], all.stores[a.label]); err != nil {
			return nil, err
		}
	}
	reading, readCtx := errgroup.WithContext(ctx)
	reading.SetLimit(readers)
	for _, a := range accounts {
		for _, o := range orders[a.label] {
			if o.end == "Searching" {
				continue // where it began: there is no webhook of it
			}
			reading.Go(func() error {
				history, err := a.history(readCtx, o.id)
				if err != nil {
					return fmt.Errorf("read order %s: %w", o.id, err)
				}
				w.compare(o, history, a.receiver.Timeline(o.id))
				return nil
			})
		}
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	for _, a := range accounts {
		w.count(a, orders[a.label], all.stores[a.label])
	}
	if w.received != w.expected {
		w.problem("%d events received, %d expected", w.received, w.expected)
	}
	return w, ctx.Err()
}

// settle waits until the deadline for the last webhook of every order of an account,
// and for its stores'. The comparison finds what is missing.
func (a *account) settle(ctx context.Context, deadline time.Time, orders []order, stores int) error {
	ended := func(o order) bool {
		line := a.receiver.Timeline(o.id)
		if len(line) == 0 {
			return o.end == "Searching"
		}
		return line[len(line)-1].Status == o.end
	}
	for time.Now().Before(deadline) {
		for len(orders) > 0 && ended(orders[0]) {
			orders = orders[1:]
		}
		if len(orders) == 0 && a.receiver.Counts().Events["store.activated"] >= stores {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// history is an order's statuses. The script may have read it just now, so it is
// read again after the wait that a 429 names.
func (a *account) history(ctx context.Context, id string) (statuses []string, err error) {
	answer, err := a.Do(ctx, http.MethodGet, "/orders/"+id, nil)
	for tries := 0; err == nil && answer.Code == "RATE_LIMITED" && tries < 2; tries++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(answer.RetryAfter()):
		}
		answer, err = a.Do(ctx, http.MethodGet, "/orders/"+id, nil)
	}
	if err != nil {
		return nil, err
	}
	var order struct{ Events []struct{ Status string } }
	err = answer.Into(&order)
	for _, e := range order.Events {
		statuses = append(statuses, e.Status)
	}
	return statuses, err
}

// compare compares one order: the service's history, the webhooks and the script's
// intention.
func (w *webhooks) compare(o order, history []string, line []receiver.Entry) {
	received := []string{"Searching"} // in the answer to the creation
	for _, e := range line {
		received = append(received, e.Status)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.histories++
	w.expected += max(0, len(history)-1)
	if !slices.Equal(received, history) {
		w.problem("order %s: the webhooks say %v, the service %v", o.id, received, history)
	}
	if len(history) == 0 || history[len(history)-1] != o.end {
		w.problem("order %s: it ended %v and should have ended %s", o.id, history, o.end)
	}
}

// count sums up what one receiver got, and notes what it should not have got.
func (w *webhooks) count(a *account, orders []order, stores int) {
	c := a.receiver.Counts()
	w.stores += stores
	w.expected += stores
	w.received += c.Distinct
	w.duplicates += c.Duplicates
	if c.Changed > 0 {
		w.problem("account %s: %d events came again with other bytes", a.label, c.Changed)
	}
	if got := c.Events["store.activated"]; got != stores {
		w.problem("account %s: %d store.activated for %d stores", a.label, got, stores)
	}
	for what, counts := range map[string]map[string]int{"not accepted": c.Invalid, "of an unknown type": c.Unknown} {
		for reason, n := range counts {
			w.problem("account %s: %d webhooks %s: %s", a.label, n, what, reason)
		}
	}
	known := map[string]bool{}
	for _, o := range orders {
		known[o.id] = true
	}
	for _, id := range a.receiver.Orders() {
		if !known[id] {
			w.problem("account %s: webhooks of an order that was never accepted: %s", a.label, id)
		}
		for _, e := range a.receiver.Timeline(id) {
			w.delays = append(w.delays, float64(e.ArrivedAt.Sub(e.OccurredAt))/float64(time.Millisecond))
		}
	}
}

// delay is a quantile of the milliseconds from an event's occurrence to its arrival.
func (w *webhooks) delay(q float64) float64 {
	if len(w.delays) == 0 {
		return 0
	}
	return harness.Quantile(w.delays, q)
}

func (w *webhooks) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// firstProblems are as many as anybody reads, in a steady order.
func (w *webhooks) firstProblems() []string {
	slices.SortFunc(w.problems, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	if more := len(w.problems) - 20; more > 0 {
		return append(slices.Clone(w.problems[:20]), fmt.Sprintf("… and %d more", more))
	}
	return w.problems
}
