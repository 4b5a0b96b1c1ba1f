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

// An attemptWatcher sees webhooks by the attempts that the service lists for its operators. The list has the last 200 of
// an account, so it is read again and again while the script runs.
type attemptWatcher struct {
	admin *client.Client

	stop    context.CancelFunc
	running *errgroup.Group

	mu      sync.Mutex
	byLabel map[string]*attemptLog // by label of the account
}

// attemptLog is what has been seen of one account's attempts.
type attemptLog struct {
	delivered map[string]map[string]bool // by order: the IDs of its events that were delivered
	newest    string                     // id of the newest attempt at the last look; empty: there was none
	hasGap    bool                       // attempts may have been missed between two looks
}

// attemptsListed is how many attempts a full list has at least.
const attemptsListed = 200

// betweenLooks is the time between two looks at an account's attempts: 200 lines are those of 10 orders a second in 4 s.
const betweenLooks = time.Second

func (w *attemptWatcher) description() string {
	return "by the attempts that the service lists (the accounts' webhooks go elsewhere)"
}

func (w *attemptWatcher) begin(ctx context.Context, accounts []*account) error {
	w.byLabel = map[string]*attemptLog{}
	for _, a := range accounts {
		w.byLabel[a.label] = &attemptLog{delivered: map[string]map[string]bool{}}

		// The attempts of before the script do not count, except to know where its own begin.
		if err := w.look(ctx, a); err != nil {
			return err
		}
		w.byLabel[a.label].delivered = map[string]map[string]bool{}
		w.byLabel[a.label].hasGap = false
	}

	ctx, w.stop = context.WithCancel(ctx)
	w.running, ctx = errgroup.WithContext(ctx)
	for _, a := range accounts {
		w.running.Go(func() error {
			for harness.Sleep(ctx, betweenLooks) == nil {
				_ = w.look(ctx, a) // an unavailable service is asked again, and the next look finds a gap
			}
			return nil
		})
	}

	return nil
}

func (w *attemptWatcher) end() {
	w.stop()
	_ = w.running.Wait()
}

// attempt is one attempt to deliver an event, as the service lists it.
type attempt struct {
	EventID, Event, OrderID, Status string
	Attempt                         int
}

// id identifies an attempt.
func (a *attempt) id() string { return fmt.Sprint(a.EventID, a.Attempt) }

// isDelivery reports whether the attempt delivered an event of an order.
func (a *attempt) isDelivery() bool {
	return a.Status == "delivered" && a.Event == "delivery.status_changed"
}

// look reads the list of an account's attempts, newest first, and adds what it has to the account's log.
func (w *attemptWatcher) look(ctx context.Context, a *account) error {
	var listed struct{ Deliveries []attempt }
	path := "/accounts/" + url.PathEscape(a.AccountID) + "/webhook/deliveries?status="
	if err := w.admin.Call(ctx, http.MethodGet, path, nil, &listed); err != nil {
		return fmt.Errorf("read the attempts of account %s: %w", a.label, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.byLabel[a.label].add(listed.Deliveries)
	return nil
}

// add adds a list of attempts, newest first. Unless the list reaches back to the newest attempt of the last one, there is
// a gap.
func (l *attemptLog) add(listed []attempt) {
	reachesBack := l.newest == "" && len(listed) < attemptsListed
	for i := range listed {
		a := &listed[i]
		if a.id() == l.newest {
			reachesBack = true
		}

		if !a.isDelivery() {
			continue
		}

		if l.delivered[a.OrderID] == nil {
			l.delivered[a.OrderID] = map[string]bool{}
		}

		l.delivered[a.OrderID][a.EventID] = true
	}

	if !reachesBack {
		l.hasGap = true
	}

	if len(listed) > 0 {
		l.newest = listed[0].id()
	}
}

// deliveredEvents returns how many events of an order were delivered.
func (w *attemptWatcher) deliveredEvents(a *account, orderID string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byLabel[a.label].delivered[orderID])
}

// compare waits until the orders have ended and their events were delivered, for settleTime at most, and counts them. If
// an account's log has a gap, the webhooks count as not checked.
func (w *attemptWatcher) compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error) {
	total := &receiver.Check{}
	orders := 0
	deadline := time.Now().Add(settleTime)
	for _, a := range accounts {
		histories, err := a.endedHistories(ctx, script.Orders[a.label], deadline)
		if err != nil {
			return nil, err
		}

		// What is still missing when the time is over is found below.
		_ = harness.Await(ctx, "webhooks", time.Until(deadline), 200*time.Millisecond, func() (bool, error) {
			isMissing := slices.ContainsFunc(histories, func(h receiver.History) bool {
				return w.deliveredEvents(a, h.OrderID) < webhooksOf(&h)
			})
			return !isMissing, nil
		})

		for i := range histories {
			w.compareOrder(total, a, &histories[i])
		}

		orders += len(histories)

		if w.hasGap(a) {
			return &results.Webhooks{
				How: results.WebhooksNotChecked,
				Why: "account " + a.label + " had more attempts than the service lists between two looks; use accounts without a webhook and -receiver-url",
			}, nil
		}
	}

	return results.WebhooksOf(results.WebhooksByAttempts, *total, orders, 0), nil
}

// webhooksOf returns how many webhooks an order has to have: one for each status after the first.
// An order that could not be read has none.
func webhooksOf(h *receiver.History) int { return max(0, len(h.Events)-1) }

// compareOrder adds an order of an account to the total.
func (w *attemptWatcher) compareOrder(total *receiver.Check, a *account, h *receiver.History) {
	expected, delivered := webhooksOf(h), w.deliveredEvents(a, h.OrderID)
	total.Expected += expected
	total.Received += min(expected, delivered)

	if delivered != expected {
		total.Problems.Add("account %s: order %s: %d of %d webhooks were delivered", a.label, h.OrderID, delivered, expected)
	}

	if h.Status != h.End {
		total.Problems.Add("account %s: order %s: ended %s and should have ended %s", a.label, h.OrderID, h.Status, h.End)
	}
}

// hasGap reports whether attempts of an account may have been missed.
func (w *attemptWatcher) hasGap(a *account) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byLabel[a.label].hasGap
}

// betweenHistories is the time between two readings of the same order: it may be read once in 10 s.
const betweenHistories = 11 * time.Second

// endedHistories reads at most mostRead orders of an account, evenly spread. Those that have not ended as they had to are
// read again and again, until the deadline has passed. It returns what it has read last.
func (a *account) endedHistories(ctx context.Context, orders []results.Order, deadline time.Time) ([]receiver.History, error) {
	histories := withWebhooks(orders)
	distance := distanceOfRead(len(histories))
	var read []receiver.History
	for i := 0; i < len(histories); i += distance {
		read = append(read, histories[i])
	}

	for {
		open, err := a.readOpen(ctx, read)
		if err != nil || open == 0 || time.Now().After(deadline) {
			return read, err
		}
		if err := harness.Sleep(ctx, betweenHistories); err != nil {
			return nil, err
		}
	}
}

// readOpen reads the orders that have not ended as they had to, and returns how many of them still have not.
func (a *account) readOpen(ctx context.Context, histories []receiver.History) (open int, err error) {
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readsAtOnce)
	for i := range histories {
		h := &histories[i]
		if h.Status != h.End {
			reading.Go(func() error { return a.read(ctx, h) })
		}
	}

	if err := reading.Wait(); err != nil {
		return 0, err
	}

	for _, h := range histories {
		if h.Status != h.End {
			open++
		}
	}

	return open, nil
}
