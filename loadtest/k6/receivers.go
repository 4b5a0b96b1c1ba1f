package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

// receivers get the webhooks of the accounts, each at a path of its own.
type receivers struct {
	mux *http.ServeMux
	url string // where the service reaches mux

	server  *http.Server // nil for a system of its own, which has one
	removes bool         // the webhooks, at the end: the accounts are not this run's

	mu   sync.Mutex
	byID map[string]*receiver.Receiver // by label of the present script's accounts
	used []*account
}

// newReceivers listens for the webhooks of a deployment. Without a url it is reached where it listens.
func newReceivers(addr, url string) (*receivers, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}
	if url == "" {
		url = "http://" + listener.Addr().String()
	}
	r := &receivers{mux: http.NewServeMux(), url: url, removes: true}
	r.server = &http.Server{Handler: r.mux, ReadHeaderTimeout: 10 * time.Second}
	r.mux.HandleFunc("/{label}", r.serve)
	go func() { _ = r.server.Serve(listener) }() // ends with the process
	return r, nil
}

func (r *receivers) how() string { return "by a receiver at " + r.url }

// serve hands a webhook to the receiver of its account.
func (r *receivers) serve(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	found := r.byID[request.PathValue("label")]
	r.mu.Unlock()
	if found == nil {
		http.Error(w, "no load test is going on", http.StatusServiceUnavailable)
		return
	}
	found.ServeHTTP(w, request)
}

// arrivesWithin is how long a test event may take.
const arrivesWithin = 10 * time.Second

// tryOut sends a test event to the receiver of an account, and returns why it does not arrive. The webhook is removed
// again.
func (r *receivers) tryOut(ctx context.Context, a *account) error {
	if err := r.begin(ctx, []*account{a}); err != nil {
		return err
	}
	defer r.end()

	if err := a.api.Call(ctx, http.MethodPost, "/webhook/test", nil, nil); err != nil {
		return err
	}
	return harness.Await(ctx, "a test event", arrivesWithin, 20*time.Millisecond, func() (bool, error) {
		return r.byID[a.label].Counts().Events["webhook.test"] > 0, nil
	})
}

// register registers a webhook and returns its secret, which is shown only for a new one. One that is being removed is
// waited for.
func (r *receivers) register(ctx context.Context, a *account) (secret string, err error) {
	var set struct{ Secret string }
	for range 10 {
		answer, err := a.api.Do(ctx, http.MethodPut, "/webhook", map[string]string{"url": r.url + "/" + a.label})
		if err != nil {
			return "", err
		}
		if answer.Code != "WEBHOOK_BEING_REMOVED" {
			err := answer.Into(&set)
			return set.Secret, err
		}
		if err := harness.Sleep(ctx, answer.RetryAfter()); err != nil {
			return "", err
		}
	}
	return "", errors.New("the webhook that it had is still being removed")
}

// begin registers a webhook for each account.
func (r *receivers) begin(ctx context.Context, accounts []*account) error {
	byID := map[string]*receiver.Receiver{}
	for _, a := range accounts {
		secret, err := r.register(ctx, a)
		if err != nil {
			return fmt.Errorf("webhook of account %s: %w", a.label, err)
		}
		byID[a.label], err = receiver.New(receiver.Options{Secrets: []string{secret}})
		if err != nil {
			return fmt.Errorf("webhook of account %s: %w", a.label, err)
		}
		if r.server == nil {
			r.mux.Handle("/"+a.label, byID[a.label])
		}
	}

	r.mu.Lock()
	r.byID, r.used = byID, accounts
	r.mu.Unlock()
	return nil
}

// end removes the webhooks again.
func (r *receivers) end() {
	if !r.removes {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, a := range r.used {
		if err := a.api.Call(ctx, http.MethodDelete, "/webhook", nil, nil); err != nil {
			fmt.Printf("  the webhook of account %s (%s) is left behind: %v\n", a.label, a.ClientID, err)
		}
	}
}

// compare waits until every order of the script has come to its end, and compares what the receivers got with what the
// service answers.
func (r *receivers) compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error) {
	deadline := time.Now().Add(settleTime)
	for _, a := range accounts {
		settle(ctx, r.byID[a.label], time.Until(deadline), script.Orders[a.label], script.Stores[a.label])
	}

	var total receiver.Check
	orders, stores := 0, 0
	for _, a := range accounts {
		received := r.byID[a.label]
		histories, err := a.histories(ctx, script.Orders[a.label], received)
		if err != nil {
			return nil, err
		}
		checked := received.Check(histories, script.Stores[a.label])
		total.Expected += checked.Expected
		total.Received += checked.Received
		total.Duplicates += checked.Duplicates
		total.Delays = append(total.Delays, checked.Delays...)
		for _, problem := range checked.Problems {
			total.Problems.Add("account %s: %s", a.label, problem)
		}
		orders += len(histories)
		stores += script.Stores[a.label]
	}
	return results.WebhooksOf(results.WebhooksByReceiver, total, orders, stores), nil
}

// settle waits for the last webhook of every order of an account, and for its stores'. The comparison finds what is
// missing.
func settle(ctx context.Context, received *receiver.Receiver, timeout time.Duration, orders []results.Order, stores int) {
	_ = harness.Await(ctx, "webhooks", timeout, 20*time.Millisecond, func() (bool, error) {
		for len(orders) > 0 && received.Last(orders[0].ID) == orders[0].End {
			orders = orders[1:]
		}
		return len(orders) == 0 && received.Counts().Events["store.activated"] >= stores, nil
	})
}
