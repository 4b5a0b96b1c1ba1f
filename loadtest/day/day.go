// Package day plays one day of a vendor against a running sandbox: it
// registers stores, creates orders of every kind (usual ones, failing ones,
// cancelled ones, ones that break a rule, repeated ones), obeys the limits'
// headers, and then holds everything it was told (answers, webhooks, order
// histories) against each other.
//
// It owns the vendor's side only, and what a vendor may conclude from the
// spec. It refuses to look inside: no Redis, no fleet or admin API. A request
// that got no answer counts as unknown, never as failed, and is sent again
// under the same idempotency key.
package day

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// concurrency is how many requests are under way at once; a vendor with some
// dozen branches has about so many tills.
const concurrency = 8

// Options of a day. BaseURL, ClientID, ClientSecret and FleetID are required.
type Options struct {
	BaseURL                string // origin of the Vendor API
	ClientID, ClientSecret string
	FleetID                string // attached to every store
	Orders                 int    // distinct orders, some of them refused; 0: 300
	Seed                   uint64
	Prefix                 string  // begins every external id; must differ between days on one account
	Rate                   float64 // creations per second at most; 0: 11, just below 600 per minute and 120 per 10 s
	// Patience is how long an unanswered request is sent again; 0: 5 s.
	Patience time.Duration
	// Settle is how long after the last creation every order may take to end
	// and every webhook to arrive; 0: a minute.
	Settle time.Duration
	// Progress is told the requests that are through; nil: nobody.
	Progress func(done, total int)
}

// Day is one day being played. Its Seen belongs into the receiver's options.
type Day struct {
	options  Options
	plan     *plan
	vendor   *client.Client
	received *receiver.Receiver
	pace     *pacer

	mu       sync.Mutex
	reached  map[string]map[string]bool // orderId -> statuses that webhooks told
	waiting  map[string]*request        // orderId -> to be cancelled at its cancelAt
	stores   map[string]bool            // activated ones
	problems []string
	settled  bool // no cancellation is begun any more
	cancels  errgroup.Group
	summary  Summary
}

// New plans a day.
func New(o Options) *Day {
	if o.Orders == 0 {
		o.Orders = 300
	}
	if o.Rate == 0 {
		o.Rate = 11
	}
	if o.Patience == 0 {
		o.Patience = 5 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = time.Minute
	}
	return &Day{
		options: o,
		plan:    newPlan(o.Orders, o.Seed, o.Prefix),
		vendor:  client.New(o.BaseURL+"/api/vendor/v1", 2*concurrency),
		pace:    newPacer(o.Rate),
		reached: map[string]map[string]bool{},
		waiting: map[string]*request{},
		stores:  map[string]bool{},
	}
}

// Play plays the day against the service whose webhooks r receives, and
// returns when everything has settled or cannot settle any more. The error is
// for a day that could not be played; what did not add up is in the summary.
func (d *Day) Play(ctx context.Context, r *receiver.Receiver) (*Summary, error) {
	d.received = r
	var err error
	if d.vendor, err = d.vendor.Login(ctx, "/token", d.options.ClientID, d.options.ClientSecret); err != nil {
		return nil, fmt.Errorf("get a token: %w", err)
	}
	if err := d.openStores(ctx); err != nil {
		return nil, fmt.Errorf("open the stores: %w", err)
	}
	if err := d.createOrders(ctx); err != nil {
		return nil, err
	}
	if err := d.settle(ctx); err != nil {
		return nil, err
	}
	d.summarise()
	return &d.summary, nil
}

// openStores registers every store in the two steps of the spec and waits
// until the fleet has confirmed them all.
func (d *Day) openStores(ctx context.Context) error {
	for _, s := range d.plan.stores {
		path := "/stores/" + escape(s.ID)
		var found struct {
			Status          string
			AvailableFleets []struct{ FleetID string }
		}
		if err := d.vendor.Call(ctx, http.MethodPut, path, s, &found); err != nil {
			return err
		}
		offered := false
		for _, f := range found.AvailableFleets {
			offered = offered || f.FleetID == d.options.FleetID
		}
		if !offered {
			return fmt.Errorf("store %s: the fleet is not among those that serve it", s.ID)
		}
		s.FleetID = d.options.FleetID
		if err := d.vendor.Call(ctx, http.MethodPut, path, s, nil); err != nil {
			return err
		}
	}
	return d.await(ctx, d.options.Settle, "store.activated for every store", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.stores) >= len(d.plan.stores)
	})
}

// await polls done; it returns an error that names what when that takes longer
// than limit.
func (d *Day) await(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s: %w", limit, what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// createOrders sends every planned request, in order, at the allowed pace.
func (d *Day) createOrders(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	total := len(d.plan.requests)
	var through int
	var mu sync.Mutex
	for _, r := range d.plan.requests {
		if err := d.pace.take(groupCtx); err != nil {
			break
		}
		group.Go(func() error {
			defer close(r.done)
			if r.original != nil {
				<-r.original.done // begun earlier, so it holds a place already and ends
			}
			if err := d.create(groupCtx, r); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			through++
			if d.options.Progress != nil {
				d.options.Progress(through, total)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("create orders: %w", err)
	}
	return ctx.Err()
}

// Seen takes note of a webhook and cancels where the plan says so.
func (d *Day) Seen(e receiver.Event, duplicate bool) {
	if duplicate {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case e.Event == "store.activated":
		d.stores[string(e.Data)] = true
	case e.Order.OrderID != "":
		statuses := d.reached[e.Order.OrderID]
		if statuses == nil {
			statuses = map[string]bool{}
			d.reached[e.Order.OrderID] = statuses
		}
		statuses[e.Order.Status] = true
		d.cancelIfDue(e.Order.OrderID)
	}
}

// cancelIfDue starts the cancellation of an order that has reached the status
// to be cancelled at. d.mu is held. The webhook can overtake the answer to the
// creation, so both look.
func (d *Day) cancelIfDue(orderID string) {
	r := d.waiting[orderID]
	if r == nil || d.settled || r.cancelAt != "Searching" && !d.reached[orderID][r.cancelAt] {
		return
	}
	delete(d.waiting, orderID)
	d.cancels.Go(func() error { return d.cancel(orderID) })
}

// problem notes something that does not add up.
func (d *Day) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

// errUnanswered is for a request that got no answer within the patience.
var errUnanswered = errors.New("no answer")

// insist calls until there is an answer that says something: not the service
// being away (no answer, or 503 SERVICE_UNAVAILABLE), and not 429, after which
// the wait is as long as the service asks.
func (d *Day) insist(ctx context.Context, method, path string, body any, headers ...string) (a *client.Answer, tries int, err error) {
	until := time.Now().Add(d.options.Patience)
	for {
		tries++
		a, err = d.vendor.Do(ctx, method, path, body, headers...)
		wait := 100 * time.Millisecond
		switch {
		case err != nil:
			d.count(func(s *Summary) { s.Unanswered++ })
		case a.Code == "SERVICE_UNAVAILABLE":
			d.count(func(s *Summary) { s.Unavailable++ })
			err = a.Err()
		case a.Code == "RATE_LIMITED":
			d.count(func(s *Summary) { s.RateLimited++ })
			wait = a.RetryAfter()
			until = until.Add(wait)
			err = a.Err()
		default:
			return a, tries, nil
		}
		if time.Now().Add(wait).After(until) {
			return nil, tries, fmt.Errorf("%w to %s %s for %v: %w", errUnanswered, method, path, d.options.Patience, err)
		}
		select {
		case <-ctx.Done():
			return nil, tries, ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (d *Day) count(add func(*Summary)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	add(&d.summary)
}
