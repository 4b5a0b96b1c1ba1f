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

// receivers see webhooks by receiving them: those of each account at a path of its own.
type receivers struct {
	mux *http.ServeMux
	url string // at which the service reaches mux, without a slash at its end

	// server serves mux; nil if the caller does.
	server *http.Server

	// removes says that the webhooks are removed at the end, because the accounts stay.
	removes bool

	mu       sync.Mutex
	byLabel  map[string]*receiver.Receiver // by label of the accounts that the script at hand plays
	accounts []*account                    // that have a webhook
}

// newReceivers listens at an address for the webhooks of a deployment, which reaches it at url; empty: at that address.
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
	go func() { _ = r.server.Serve(listener) }() // ends with close, or with the process

	return r, nil
}

// close ends the server of newReceivers.
func (r *receivers) close() { _ = r.server.Close() } // nothing is left to be received

func (r *receivers) description() string { return "by a receiver at " + r.url }

// serve passes a webhook to the receiver of its account; 503 if there is none.
func (r *receivers) serve(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	found := r.byLabel[request.PathValue("label")]
	r.mu.Unlock()
	if found == nil {
		http.Error(w, "no load test is going on", http.StatusServiceUnavailable)
		return
	}

	found.ServeHTTP(w, request)
}

// arrivesWithin is how long a test event may take until it arrives.
const arrivesWithin = 10 * time.Second

// tryOut registers a webhook for an account, has the service send a test event to it and removes it. It returns an error
// if the event does not arrive within arrivesWithin.
func (r *receivers) tryOut(ctx context.Context, a *account) error {
	if err := r.begin(ctx, []*account{a}); err != nil {
		return err
	}

	defer r.end()

	if err := a.call(ctx, http.MethodPost, "/webhook/test", nil); err != nil {
		return err
	}

	return harness.Await(ctx, "a test event", arrivesWithin, 20*time.Millisecond, func() (bool, error) {
		return r.byLabel[a.label].Counts().Events["webhook.test"] > 0, nil
	})
}

// mostRegistrations is how often a registration is tried while the webhook of before is being removed.
const mostRegistrations = 10

// register registers a webhook for an account that has none, and returns its secret. If an earlier webhook is still being
// removed, it waits for that.
func (r *receivers) register(ctx context.Context, a *account) (secret string, err error) {
	for range mostRegistrations {
		answer, err := a.do(ctx, http.MethodPut, "/webhook", map[string]string{"url": r.url + "/" + a.label})
		if err != nil {
			return "", err
		}

		if answer.Code != "WEBHOOK_BEING_REMOVED" {
			var registered struct{ Secret string }
			err := answer.Into(&registered)
			return registered.Secret, err
		}

		if err := harness.Sleep(ctx, answer.RetryAfter()); err != nil {
			return "", err
		}
	}

	return "", errors.New("the webhook that it had is still being removed")
}

// begin registers a webhook for each account. After an error none is registered.
func (r *receivers) begin(ctx context.Context, accounts []*account) error {
	r.mu.Lock()
	r.byLabel, r.accounts = map[string]*receiver.Receiver{}, nil
	r.mu.Unlock()

	for _, a := range accounts {
		if err := r.add(ctx, a); err != nil {
			r.end()
			return fmt.Errorf("webhook of account %s: %w", a.label, err)
		}
	}

	return nil
}

// add registers a webhook for an account, with a receiver.
func (r *receivers) add(ctx context.Context, a *account) error {
	secret, err := r.register(ctx, a)
	if err != nil {
		return err
	}

	r.accounts = append(r.accounts, a)

	added, err := receiver.New(receiver.Options{Secrets: []string{secret}})
	if err != nil {
		return err
	}

	r.mu.Lock()
	r.byLabel[a.label] = added
	r.mu.Unlock()
	if r.server == nil {
		r.mux.Handle("/"+a.label, added)
	}

	return nil
}

// end removes the webhooks that begin registered, and prints which could not be removed.
func (r *receivers) end() {
	if !r.removes {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, a := range r.accounts {
		if err := a.call(ctx, http.MethodDelete, "/webhook", nil); err != nil {
			fmt.Printf("  the webhook of account %s (%s) is left behind: %v\n", a.label, a.ClientID, err)
		}
	}
}

// compare waits until the webhooks of all orders of the script have arrived, for settleTime at most, and compares what the
// receivers got with what the service answers.
func (r *receivers) compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error) {
	deadline := time.Now().Add(settleTime)
	for _, a := range accounts {
		r.settle(ctx, a, script, deadline)
	}

	var total receiver.Check
	orders, stores, foreign := 0, 0, 0
	for _, a := range accounts {
		received := r.byLabel[a.label]
		histories, err := a.histories(ctx, script.Orders[a.label], received)
		if err != nil {
			return nil, err
		}

		checked, others := r.check(received, histories, script.Stores[a.label])
		foreign += others
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

	if foreign > 0 {
		script.Notes = append(script.Notes, fmt.Sprintf("%d webhooks came of orders that are not this run's", foreign))
	}

	return results.WebhooksOf(results.WebhooksByReceiver, total, orders, stores), nil
}

// check compares the webhooks that a receiver got with the histories of the run's orders. The accounts of a deployment may
// also get webhooks of other orders, earlier ones or somebody else's; these are only counted, as others.
func (r *receivers) check(
	received *receiver.Receiver, histories []receiver.History, stores int,
) (checked *receiver.Check, others int) {
	if !r.removes {
		return received.Check(histories, stores), 0
	}
	return received.CheckAmongOthers(histories, stores)
}

// settle waits until the last webhook of every order of an account has arrived, and those of its stores, or the deadline
// has passed. The comparison after it finds what is missing.
func (r *receivers) settle(ctx context.Context, a *account, script *results.Script, deadline time.Time) {
	received := r.byLabel[a.label]
	open := script.Orders[a.label] // those that have not been seen to end
	stores := script.Stores[a.label]

	_ = harness.Await(ctx, "webhooks", time.Until(deadline), 20*time.Millisecond, func() (bool, error) {
		for len(open) > 0 && received.Last(open[0].ID) == open[0].End {
			open = open[1:]
		}
		return len(open) == 0 && received.Counts().Events["store.activated"] >= stores, nil
	})
}
