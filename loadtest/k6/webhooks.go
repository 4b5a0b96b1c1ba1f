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

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/k6/samples"
	"vendorapi/loadtest/receiver"
)

// readers is how many histories are read at once.
const readers = 8

// settleTime is how long after a script's end its orders may take to end and
// their webhooks to arrive. A delivery lasts some seconds, and a webhook that
// was lost on the way is sent again after ten.
const settleTime = time.Minute

// webhooks is what a script's receivers got, held against its orders.
type webhooks struct {
	Orders     int // accepted
	Histories  int // read back and compared, status by status
	Stores     int // registered
	Expected   int // events: store.activated, and every status after Searching
	Received   int // distinct events
	Duplicates int // the same event once more, as at-least-once delivery may
	P50, P99   time.Duration
	Problems   []string

	mu sync.Mutex
}

// checkWebhooks waits until every order of the script has come to its end, and
// compares what the receivers were told with what the service says.
func (h *house) checkWebhooks(ctx context.Context, accounts []*account, run *samples.Run) (*webhooks, error) {
	w := &webhooks{Orders: len(run.Orders)}
	orders := map[string][]samples.Order{}
	for _, o := range run.Orders {
		orders[o.Account] = append(orders[o.Account], o)
	}
	deadline := time.Now().Add(settleTime)
	for _, a := range accounts {
		if err := w.settle(ctx, deadline, a, orders[a.Label], run.Stores[a.Label]); err != nil {
			return nil, err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, a := range accounts {
		if err := h.compare(groupCtx, group, w, a, orders[a.Label]); err != nil {
			return nil, err
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var delays []time.Duration
	for _, a := range accounts {
		delays = append(delays, w.count(a, orders[a.Label], run.Stores[a.Label])...)
	}
	slices.Sort(delays)
	if n := len(delays); n > 0 {
		w.P50, w.P99 = delays[(n-1)/2], delays[(n-1)*99/100]
	}
	if w.Received != w.Expected {
		w.problem("%d events received, %d expected", w.Received, w.Expected)
	}
	return w, ctx.Err()
}

// settle waits for the last webhook of every order of one account, and for its
// stores'.
func (w *webhooks) settle(ctx context.Context, deadline time.Time, a *account, orders []samples.Order, stores int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; {
		for i < len(orders) && reached(a.receiver, orders[i]) {
			i++
		}
		if i == len(orders) && a.receiver.Counts().Events["store.activated"] >= stores {
			return nil
		}
		if time.Now().After(deadline) {
			return nil // the comparison tells what is missing
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// reached reports whether the webhooks have told the order's end.
func reached(r *receiver.Receiver, o samples.Order) bool {
	line := r.Timeline(o.ID)
	if len(line) == 0 {
		return o.End == "Searching" // which is where it began: no webhook tells it
	}
	return line[len(line)-1].Status == o.End
}

// compare reads every order's history and holds it against the webhooks. Orders
// that stay in Searching have no webhook and are not read.
func (h *house) compare(ctx context.Context, group *errgroup.Group, w *webhooks, a *account, orders []samples.Order) error {
	orders = slices.DeleteFunc(slices.Clone(orders), func(o samples.Order) bool { return o.End == "Searching" })
	if len(orders) == 0 {
		return nil
	}
	vendor, err := h.vendor.Login(ctx, "/token", a.ClientID, a.ClientSecret)
	if err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	for _, o := range orders {
		group.Go(func() error {
			history, err := readHistory(ctx, vendor, o.ID)
			if err != nil {
				return fmt.Errorf("read order %s: %w", o.ID, err)
			}
			w.hold(o, history, a.receiver.Timeline(o.ID))
			return nil
		})
	}
	return nil
}

// readHistory is the order's statuses. The script may have read it just now, so
// it is asked again after the wait that a 429 names.
func readHistory(ctx context.Context, vendor *client.Client, id string) (statuses []string, err error) {
	var order struct{ Events []struct{ Status string } }
	for range 3 {
		a, err := vendor.Do(ctx, http.MethodGet, "/orders/"+id, nil)
		if err != nil {
			return nil, err
		}
		if a.Code != "RATE_LIMITED" {
			if err := a.Into(&order); err != nil {
				return nil, err
			}
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(a.RetryAfter()):
		}
	}
	for _, e := range order.Events {
		statuses = append(statuses, e.Status)
	}
	return statuses, nil
}

// hold compares one order: the service's history, the webhooks and the script's
// intention.
func (w *webhooks) hold(o samples.Order, history []string, line []receiver.Entry) {
	told := []string{"Searching"} // the creation's own answer told that
	for _, e := range line {
		told = append(told, e.Status)
	}
	w.mu.Lock()
	w.Histories++
	w.Expected += max(0, len(history)-1)
	w.mu.Unlock()
	if !slices.Equal(told, history) {
		w.problem("order %s: the webhooks tell %v, the service %v", o.ID, told, history)
	}
	if len(history) == 0 || history[len(history)-1] != o.End {
		w.problem("order %s: it ended %v and should have ended %s", o.ID, history, o.End)
	}
}

// count adds up what one receiver got, and notes what it should not have got.
// The delays are from the occurrence to the arrival of each event.
func (w *webhooks) count(a *account, orders []samples.Order, stores int) (delays []time.Duration) {
	c := a.receiver.Counts()
	w.Stores += stores
	w.Expected += stores
	w.Received += c.Distinct
	w.Duplicates += c.Duplicates
	if c.Changed > 0 {
		w.problem("account %s: %d events came again with other bytes", a.Label, c.Changed)
	}
	if got := c.Events["store.activated"]; got != stores {
		w.problem("account %s: %d store.activated for %d stores", a.Label, got, stores)
	}
	for what, counts := range map[string]map[string]int{"not accepted": c.Invalid, "of an unknown type": c.Unknown} {
		for reason, n := range counts {
			w.problem("account %s: %d webhooks %s: %s", a.Label, n, what, reason)
		}
	}
	known := map[string]bool{}
	for _, o := range orders {
		known[o.ID] = true
	}
	for _, id := range a.receiver.Orders() {
		if !known[id] {
			w.problem("account %s: webhooks of an order that was never accepted: %s", a.Label, id)
		}
		for _, e := range a.receiver.Timeline(id) {
			delays = append(delays, e.ArrivedAt.Sub(e.OccurredAt))
		}
	}
	return delays
}

func (w *webhooks) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Problems = append(w.Problems, fmt.Sprintf(format, args...))
}

// mostProblems are as many as anybody reads.
const mostProblems = 20

// told are the problems for people, in a steady order.
func (w *webhooks) told() []string {
	problems := slices.Clone(w.Problems)
	slices.SortFunc(problems, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	if more := len(problems) - mostProblems; more > 0 {
		problems = append(problems[:mostProblems], fmt.Sprintf("… and %d more", more))
	}
	return problems
}
