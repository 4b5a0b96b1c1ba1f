package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

// webhooks is a way to see which webhooks a script's orders had.
type webhooks interface {
	how() string // in words

	// begin is called before the script, compare after it, and end at last.
	begin(ctx context.Context, accounts []*account) error
	compare(ctx context.Context, accounts []*account, script *results.Script) (*results.Webhooks, error)
	end()
}

// settleTime is how long after a script's end its orders may take to end and their webhooks to arrive. A delivery by a
// sandbox courier lasts half a minute, and a webhook that was lost on the way is sent again after ten seconds. Tests
// lower it.
var settleTime = 90 * time.Second

// mostRead bounds the orders of an account whose history is read back. An account may read 3,000 a minute. The orders
// in between are compared with how they had to end.
const mostRead = 2500

// readsAtOnce is how many histories are read at once.
const readsAtOnce = 8

// unchecked looks at no webhooks.
type unchecked struct{ why string }

func (u unchecked) how() string                             { return "not checked: " + u.why }
func (u unchecked) begin(context.Context, []*account) error { return nil }
func (u unchecked) end()                                    {}
func (u unchecked) compare(context.Context, []*account, *results.Script) (*results.Webhooks, error) {
	return &results.Webhooks{How: results.WebhooksNotChecked, Why: u.why}, nil
}

// receiverOptions say where a deployment reaches a receiver of this process.
type receiverOptions struct{ url, addr string }

func (o receiverOptions) isGiven() bool { return o.url != "" || o.addr != "" }

// chooseWebhooks finds the way to see a deployment's webhooks: a receiver that it can reach, or the attempts that it
// lists for its operators.
func chooseWebhooks(ctx context.Context, o receiverOptions, d *deployment) (webhooks, error) {
	taken, err := accountsWithWebhook(ctx, d.accounts)
	if err != nil {
		return nil, err
	}

	if o.isGiven() {
		if o.url == "" || o.addr == "" {
			return nil, fmt.Errorf("-receiver-url and -receiver-addr belong together: where the deployment reaches this machine, and where to listen")
		}
		if taken != "" {
			return nil, fmt.Errorf("%s has a webhook already, which the load test would replace: use accounts of its own (make load-accounts)", taken)
		}
		return newReceivers(o.addr, strings.TrimRight(o.url, "/"))
	}
	if d.isLoopback() && taken == "" {
		return newReceivers("127.0.0.1:0", "")
	}

	hasIDs := !slices.ContainsFunc(d.accounts, func(a *account) bool { return a.AccountID == "" })
	admin, adminErr := adminOf(os.Getenv("OPS_URL"), os.Getenv("ADMIN_KEY"))
	switch {
	case adminErr == nil && hasIDs && taken != "":
		return &attempts{admin: admin}, nil
	case taken != "":
		return unchecked{why: "the accounts have webhooks that go elsewhere; with OPS_URL, ADMIN_KEY and accountIds the attempts are looked at, and accounts without a webhook can have -receiver-url"}, nil
	}
	return unchecked{why: "give -receiver-url and -receiver-addr, if the deployment can reach this machine"}, nil
}

// accountsWithWebhook names an account that has a webhook; empty: none has.
func accountsWithWebhook(ctx context.Context, accounts []*account) (string, error) {
	for _, a := range accounts {
		answer, err := a.api.Do(ctx, http.MethodGet, "/webhook", nil)
		if err != nil {
			return "", fmt.Errorf("ask for the webhook of account %s: %w", a.label, err)
		}
		if answer.Code == "WEBHOOK_NOT_CONFIGURED" {
			continue
		}
		if err := answer.Err(); err != nil {
			return "", fmt.Errorf("ask for the webhook of account %s: %w", a.label, err)
		}
		return "account " + a.label, nil
	}
	return "", nil
}

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

// begin registers a webhook for each account. The secret of a new one is shown once.
func (r *receivers) begin(ctx context.Context, accounts []*account) error {
	byID := map[string]*receiver.Receiver{}
	for _, a := range accounts {
		var set struct{ Secret string }
		err := a.api.Call(ctx, http.MethodPut, "/webhook", map[string]string{"url": r.url + "/" + a.label}, &set)
		if err != nil {
			return fmt.Errorf("webhook of account %s: %w", a.label, err)
		}
		byID[a.label], err = receiver.New(receiver.Options{Secrets: []string{set.Secret}})
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
		if err = harness.Sleep(ctx, answer.RetryAfter()); err == nil {
			answer, err = a.api.Do(ctx, http.MethodGet, "/orders/"+h.OrderID, nil)
		}
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
