// Package day plays one day of a vendor against a running sandbox and says whether it balances.
//
// The vendor registers stores and creates orders of every kind (orders.json): most are delivered and paid in one of
// the ways that there are, some fail or are cancelled, some are invalid or sent twice, and a few are reported as
// delivered after they had failed. All answers, webhooks, histories and payment reports are then compared with each
// other and with what was sent.
//
// A request without an answer is sent again under the same idempotency key.
//
// The day keeps below the limit by its rate alone, and does not show that this suffices: steady.js proves that vendors
// below the limit are never refused, burst.js that the headers of the limit count every order.
package day

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

const (
	// concurrency is how many requests are in flight at once; a vendor with some dozen branches has about so many
	// tills.
	concurrency = 8

	// defaultRate keeps below the limit of 600 orders a minute.
	defaultRate = 9

	// sendTimeout is how long a request is sent again. It is no longer than that where the service asks for a longer
	// wait.
	sendTimeout = 10 * time.Second

	// settleTimeout is how long after the last creation every order may take to end and every webhook to arrive.
	settleTimeout = 3 * time.Minute
)

// Options say what is played. Demo and Orders are required.
type Options struct {
	Demo   stack.Demo // its account plays the vendor, its fleet delivers
	Orders int        // distinct orders, some of them refused
	Rate   float64    // creations per second; 0: 9
}

// Day is one day being played. It is the receiver of the account's webhooks.
type Day struct {
	*receiver.Receiver
	options Options
	plan    *plan

	// vendor and fleet are the two APIs, with tokens.
	vendor, fleet *client.Client

	began   time.Time
	cancels sync.WaitGroup

	mu       sync.Mutex
	retries  map[string]int // requests that were sent again, by the errorCode or noAnswer
	tooLate  int            // cancellations that were refused because the order had been delivered
	problems receiver.Problems
}

// noAnswer stands for an errorCode where a request was not answered.
const noAnswer = "no answer"

// New plans a day. An account can play one day only: the next one would have the same external ids and idempotency
// keys.
func New(o Options) (*Day, error) {
	if o.Rate == 0 {
		o.Rate = defaultRate
	}

	p, err := newPlan(o.Orders)
	if err != nil {
		return nil, err
	}
	r, err := receiver.New(receiver.Options{Secrets: []string{o.Demo.Webhook.Secret}})
	if err != nil {
		return nil, err
	}

	return &Day{Receiver: r, options: o, plan: p, retries: map[string]int{}}, nil
}

// Run plays the day and prints what it came to, with its payment reports. The error reports that it could not be
// played, or that it does not balance.
func (d *Day) Run(ctx context.Context, out io.Writer) error {
	d.began = time.Now()
	fmt.Fprintf(out, "playing %d requests at %.2g a second\n", len(d.plan.requests), d.options.Rate)
	if err := d.play(ctx); err != nil {
		return fmt.Errorf("play the day: %w", err)
	}
	return d.conclude(ctx, out)
}

// play returns when everything has settled or cannot settle any more. What is not as planned becomes a problem.
func (d *Day) play(ctx context.Context) error {
	if err := d.login(ctx); err != nil {
		return err
	}
	if err := d.openStores(ctx); err != nil {
		return fmt.Errorf("open the stores: %w", err)
	}
	if err := d.createOrders(ctx); err != nil {
		return err
	}

	d.settle(ctx)

	return ctx.Err()
}

func (d *Day) login(ctx context.Context) error {
	apis, err := d.options.Demo.Connect(ctx, client.New("", 2*concurrency))
	if err != nil {
		return err
	}

	d.fleet = apis.Fleet
	account := d.options.Demo.Account
	d.vendor, err = apis.Vendor.Login(ctx, "/token", account.ClientID, account.ClientSecret)
	return err
}

// openStores registers every store in the two steps of the spec and waits until the fleet has confirmed them all.
func (d *Day) openStores(ctx context.Context) error {
	fleet := d.options.Demo.Fleet.FleetID
	for _, s := range d.plan.stores {
		path := "/stores/" + url.PathEscape(s.id)
		var found struct{ AvailableFleets []struct{ FleetID string } }
		if err := d.vendor.Call(ctx, http.MethodPut, path, s.body, &found); err != nil {
			return err
		}
		if !slices.Contains(found.AvailableFleets, struct{ FleetID string }{fleet}) {
			return fmt.Errorf("store %s: the fleet is not among those that serve it", s.id)
		}

		s.body["fleetId"] = fleet
		if err := d.vendor.Call(ctx, http.MethodPut, path, s.body, nil); err != nil {
			return err
		}
	}

	return d.await(ctx, "store.activated for every store", func() bool {
		return d.Counts().Events["store.activated"] >= len(d.plan.stores)
	})
}

func (d *Day) await(ctx context.Context, what string, done func() bool) error {
	return harness.Await(ctx, what, settleTimeout, 20*time.Millisecond, func() (bool, error) { return done(), nil })
}

// createOrders sends every planned request, in order and at a steady pace, and cancels what is to be cancelled.
func (d *Day) createOrders(ctx context.Context) error {
	pace := time.NewTicker(time.Duration(float64(time.Second) / d.options.Rate))
	defer pace.Stop()

	var inFlight errgroup.Group
	inFlight.SetLimit(concurrency)
	for _, r := range d.plan.requests {
		select {
		case <-pace.C:
		case <-ctx.Done(): // the remaining requests fail at once
		}
		inFlight.Go(func() error {
			d.create(ctx, r)
			return nil
		})
	}

	_ = inFlight.Wait() // no request returns an error

	d.cancels.Wait()

	return ctx.Err()
}

// create sends one planned request and compares the answer with the plan.
func (d *Day) create(ctx context.Context, r *request) {
	defer close(r.done)
	if r.original != nil {
		<-r.original.done // it was begun earlier, so it ends without waiting for this one
	}

	answer, retried, err := d.send(ctx, http.MethodPost, "/orders", r.body, "X-Idempotency-Key", r.key)
	if err != nil {
		d.problem("order %s: %v", r.externalID, err)
		return
	}

	r.answer = *answer
	if answer.Status != r.want.Status || answer.Code != r.want.Code {
		d.problem("order %s: answered %d %s %s, planned %d %s",
			r.externalID, answer.Status, answer.Code, answer.Message, r.want.Status, r.want.Code)
	}

	// Every answer shows the bucket it consumed (spec, "Limits" 2).
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if answer.Header.Get(name) == "" {
			d.problem("order %s: answered %d without %s", r.externalID, answer.Status, name)
		}
	}

	if answer.OK() {
		d.accept(ctx, r, retried)
	}
}

// accept checks the answer to an order that was taken. The first answer must be fresh and that to a repetition must
// be the original's bytes. After a retry either may be, because the order may have been created by the try whose
// answer was lost.
func (d *Day) accept(ctx context.Context, r *request, retried bool) {
	var created struct{ OrderID, ExternalOrderID, Status, TrackingURL, EstimatedPickupAt string }
	if err := r.answer.Into(&created); err != nil {
		d.problem("order %s: %v", r.externalID, err)
		return
	}

	r.order.OrderID, r.order.End, r.order.Failure = created.OrderID, r.want.End, r.want.Failure
	isAsPlanned := created.ExternalOrderID == r.externalID && created.Status == "Searching"
	if !isAsPlanned || created.TrackingURL == "" || created.EstimatedPickupAt == "" {
		d.problem("order %s: creation answered %s", r.externalID, r.answer.Raw)
	}

	replayed := r.answer.Header.Get("Idempotent-Replayed") == "true"
	if r.original != nil {
		original := r.original.answer.Raw
		if !replayed || string(original) != string(r.answer.Raw) {
			d.problem("order %s: its repetition answered %s, the original %s", r.externalID, r.answer.Raw, original)
		}
		return
	}

	if replayed && !retried {
		d.problem("order %s: the first answer says that it is a repetition", r.externalID)
	}

	if r.want.CancelAt != "" {
		d.cancels.Go(func() { d.cancel(ctx, r) })
	}
}

// cancel waits until an order has the status to be cancelled at, and cancels it twice: the second answer is the same
// (decisions, "States").
func (d *Day) cancel(ctx context.Context, r *request) {
	err := d.await(ctx, "order "+r.externalID+" to be "+r.want.CancelAt, func() bool {
		return d.Last(r.order.OrderID) == r.want.CancelAt
	})
	if err != nil {
		d.problem("%v", err)
		return
	}

	path := "/orders/" + r.order.OrderID + "/cancel"
	reason := map[string]string{"reason": "CustomerRequest", "note": "vazgeçti"}
	first := d.ask(ctx, http.MethodPost, path, reason)
	second := d.ask(ctx, http.MethodPost, path, reason)
	var cancelled struct{ Status string }
	err = first.Into(&cancelled)
	if err != nil || cancelled.Status != "Cancelled" || string(second.Data) != string(first.Data) {
		d.problem("cancel %s: answered %s, and again %s", r.externalID, first.Raw, second.Raw)
	}
}

// settle waits until every accepted order has ended according to the webhooks, reports the late deliveries, tries
// some cancellations that are too late, and reads every order's history.
func (d *Day) settle(ctx context.Context) {
	orders := d.plan.accepted()
	unsettled := d.await(ctx, "every order's last webhook", func() bool {
		return !slices.ContainsFunc(orders, func(r *request) bool {
			return !slices.Contains([]string{"Delivered", "Failed", "Cancelled"}, d.Last(r.order.OrderID))
		})
	})

	if unsettled != nil {
		d.problem("%v", unsettled)
	}

	var inFlight errgroup.Group
	inFlight.SetLimit(concurrency)
	for i, r := range orders {
		inFlight.Go(func() error {
			if r.want.LateDelivery {
				d.deliverLate(ctx, r)
			}

			if i%50 == 0 && d.Last(r.order.OrderID) == "Delivered" {
				d.cancelTooLate(ctx, r)
			}

			d.read(ctx, r)
			return nil
		})
	}

	_ = inFlight.Wait() // no request returns an error

	if unsettled != nil {
		return // it has waited long enough
	}

	// Webhooks of earlier statuses may still be in flight after a retry. Those that do not come are found later.
	_ = d.await(ctx, "every webhook", func() bool {
		return !slices.ContainsFunc(orders, func(r *request) bool {
			return len(d.Timeline(r.order.OrderID))+1 < len(r.order.Events)
		})
	})
}

// deliverLate reports for the fleet that an order that has failed was delivered after all. The answer comes before the
// worker decides the report, so conclude checks what it came to: the delivery must be in the report exceptions, and the
// order must be as it was.
func (d *Day) deliverLate(ctx context.Context, r *request) {
	path := "/jobs/" + r.order.OrderID + "/status"
	if err := d.fleet.Call(ctx, http.MethodPost, path, map[string]string{"status": "Delivered"}, nil); err != nil {
		d.problem("late delivery of order %s: %v", r.externalID, err)
	}
}

func (d *Day) cancelTooLate(ctx context.Context, r *request) {
	answer := d.ask(ctx, http.MethodPost, "/orders/"+r.order.OrderID+"/cancel", nil)
	var detail struct{ Status string }
	err := json.Unmarshal(answer.Data, &detail)
	if err != nil || answer.Code != "ORDER_NOT_CANCELLABLE" || detail.Status != "Delivered" {
		d.problem("late cancel %s: answered %s", r.externalID, answer.Raw)
		return
	}

	d.countTooLate()
}

// read reads an order's history.
func (d *Day) read(ctx context.Context, r *request) {
	history := receiver.History{End: r.want.End, Failure: r.want.Failure}
	if err := d.ask(ctx, http.MethodGet, "/orders/"+r.order.OrderID, nil).Into(&history); err != nil {
		d.problem("read order %s: %v", r.externalID, err)
		return
	}

	r.order = history

	courier := history.Courier
	if courier != nil && !strings.HasSuffix(courier.Name, ".") {
		d.problem("order %s: the courier's surname is not abbreviated: %s", r.externalID, courier.Name)
	}
}

// readLate reads the orders that were reported as delivered after they had failed.
func (d *Day) readLate(ctx context.Context) {
	for _, r := range d.plan.accepted() {
		if r.want.LateDelivery {
			d.read(ctx, r)
		}
	}
}

// ask is send for a request whose answer is compared. Without an answer it notes a problem and returns an empty one.
func (d *Day) ask(ctx context.Context, method, path string, body any) *client.Answer {
	answer, _, err := d.send(ctx, method, path, body)
	if err != nil {
		d.problem("%s %s: %v", method, path, err)
		return &client.Answer{}
	}
	return answer
}

// send calls the Vendor API until the answer is not that the service is unavailable or that the limit is reached, at
// most for sendTimeout. Between tries it waits as long as the service asks; a wait that would end after sendTimeout is an
// error at once. retried reports that it was sent more than once.
func (d *Day) send(
	ctx context.Context, method, path string, body any, headers ...string,
) (answer *client.Answer, retried bool, err error) {
	deadline := time.Now().Add(sendTimeout)
	for {
		answer, err = d.vendor.Do(ctx, method, path, body, headers...)
		if err == nil && answer.Code != "SERVICE_UNAVAILABLE" && answer.Code != "RATE_LIMITED" {
			return answer, retried, nil
		}

		pause := 100 * time.Millisecond
		reason := noAnswer
		if err == nil {
			err = answer.Err()
			reason = answer.Code
			pause = max(pause, answer.RetryAfter())
		}

		if time.Now().Add(pause).After(deadline) {
			return nil, retried, fmt.Errorf("no final answer within %v: %w", sendTimeout, err)
		}
		if err := harness.Sleep(ctx, pause); err != nil {
			return nil, retried, err
		}

		retried = true
		d.countRetry(reason)
	}
}

func (d *Day) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems.Add(format, args...)
}

func (d *Day) countRetry(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retries[reason]++
}

func (d *Day) countTooLate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tooLate++
}
