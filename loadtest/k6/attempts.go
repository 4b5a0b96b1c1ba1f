package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

// attempts looks at the attempts that the service lists of each account for its operators: the last 200, so it asks
// again and again while the script runs.
type attempts struct {
	admin *client.Client

	stop    context.CancelFunc
	running *errgroup.Group

	mu   sync.Mutex
	byID map[string]*attemptLog // by label
}

// attemptLog is what has been seen of one account's attempts.
type attemptLog struct {
	delivered map[string]map[string]bool // events by order
	newest    string                     // event and attempt of the newest line at the last look
	gap       bool                       // lines may have gone unseen between two looks
}

// betweenLooks is the time between two looks at an account's attempts: 200 lines are those of 10 orders a second in 4 s.
const betweenLooks = time.Second

func (w *attempts) how() string {
	return "by the attempts that the service lists (the accounts' webhooks go elsewhere)"
}

func (w *attempts) begin(ctx context.Context, accounts []*account) error {
	w.byID = map[string]*attemptLog{}
	for _, a := range accounts {
		w.byID[a.label] = &attemptLog{delivered: map[string]map[string]bool{}}
		if err := w.look(ctx, a); err != nil { // what is there before counts for nothing
			return err
		}
		w.byID[a.label].delivered = map[string]map[string]bool{}
		w.byID[a.label].gap = false
	}

	ctx, w.stop = context.WithCancel(ctx)
	w.running, ctx = errgroup.WithContext(ctx)
	for _, a := range accounts {
		w.running.Go(func() error {
			for harness.Sleep(ctx, betweenLooks) == nil {
				_ = w.look(ctx, a) // a service that is away is asked again; a gap shows
			}
			return nil
		})
	}
	return nil
}

func (w *attempts) end() {
	w.stop()
	_ = w.running.Wait()
}

// look reads the attempts of an account.
func (w *attempts) look(ctx context.Context, a *account) error {
	var listed struct {
		Deliveries []struct {
			EventID, Event, OrderID, Status string
			Attempt                         int
		}
	}
	path := "/accounts/" + url.PathEscape(a.AccountID) + "/webhook/deliveries?status="
	if err := w.admin.Call(ctx, http.MethodGet, path, nil, &listed); err != nil {
		return fmt.Errorf("read the attempts of account %s: %w", a.label, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.byID[a.label]
	isConnected := log.newest == ""
	for _, d := range listed.Deliveries {
		isConnected = isConnected || fmt.Sprint(d.EventID, d.Attempt) == log.newest
		if d.Status != "delivered" || d.Event != "delivery.status_changed" {
			continue
		}
		if log.delivered[d.OrderID] == nil {
			log.delivered[d.OrderID] = map[string]bool{}
		}
		log.delivered[d.OrderID][d.EventID] = true
	}
	log.gap = log.gap || !isConnected
	if len(listed.Deliveries) > 0 {
		log.newest = fmt.Sprint(listed.Deliveries[0].EventID, listed.Deliveries[0].Attempt)
	}
	return nil
}

// eventsOf returns how many events of an order were delivered.
func (w *attempts) eventsOf(a *account, orderID string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID[a.label].delivered[orderID])
}

// compare waits until the orders have ended and their events were delivered, and counts them.
func (w *attempts) compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error) {
	total := &receiver.Check{}
	orders := 0
	deadline := time.Now().Add(settleTime)
	for _, a := range accounts {
		histories, err := a.endedHistories(ctx, script.Orders[a.label], deadline)
		if err != nil {
			return nil, err
		}
		_ = harness.Await(ctx, "webhooks", time.Until(deadline), 200*time.Millisecond, func() (bool, error) {
			missing := slices.ContainsFunc(histories, func(h receiver.History) bool { return w.eventsOf(a, h.OrderID) < len(h.Events)-1 })
			return !missing, nil
		})

		for _, h := range histories {
			expected, got := len(h.Events)-1, w.eventsOf(a, h.OrderID)
			total.Expected += expected
			total.Received += min(expected, got)
			if got != expected {
				total.Problems.Add("account %s: order %s: %d of %d webhooks were delivered", a.label, h.OrderID, got, expected)
			}
			if h.Status != h.End {
				total.Problems.Add("account %s: order %s: ended %s and should have ended %s", a.label, h.OrderID, h.Status, h.End)
			}
		}
		orders += len(histories)
		if w.hasGap(a) {
			return &results.Webhooks{How: results.WebhooksNotChecked,
				Why: "account " + a.label + " had more attempts than the service lists between two looks; use accounts without a webhook and -receiver-url"}, nil
		}
	}
	return results.WebhooksOf(results.WebhooksByAttempts, *total, orders, 0), nil
}

func (w *attempts) hasGap(a *account) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[a.label].gap
}

// endedHistories reads the orders of an account once they have ended as they had to, or the deadline has come.
func (a *account) endedHistories(ctx context.Context, orders []results.Order, deadline time.Time) ([]receiver.History, error) {
	for {
		histories, err := a.histories(ctx, orders, nil)
		if err != nil {
			return nil, err
		}
		isOpen := slices.ContainsFunc(histories, func(h receiver.History) bool { return h.Status != h.End })
		if !isOpen || time.Now().After(deadline) {
			return histories, nil
		}
		if err := harness.Sleep(ctx, 11*time.Second); err != nil { // an order may be read once in 10 s
			return nil, err
		}
	}
}
