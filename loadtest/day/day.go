// Package day plays one day of a vendor against a running sandbox: it registers stores, creates orders of every kind
// (usual ones, failing, cancelled, invalid and repeated ones), obeys the limits' headers, and then compares all
// answers, webhooks and order histories with each other. It uses the Vendor API only. A request without an answer
// counts as unknown and is sent again under the same idempotency key.
package day

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// concurrency is how many requests are in flight at once; a vendor with some dozen branches has about so many tills.
const concurrency = 8

// Options of a day. Demo is required: its account plays the vendor.
type Options struct {
	Demo   stack.Demo
	Orders int // distinct orders, some of them refused; 0: 300
	Seed   uint64
	Prefix string  // begins every external id; must differ between days on one account
	Rate   float64 // creations per second at most; 0: 11, just below 600 per minute and 120 per 10 s
	// Settle is how long after the last creation every order may take to end
	// and every webhook to arrive; 0: a minute.
	Settle time.Duration
	// Progress is called with the number of requests that are through; optional.
	Progress func(done, total int)
}

// sendTimeout is how long an unanswered request is sent again.
const sendTimeout = 5 * time.Second

// Day is one day being played. It is the receiver of the account's webhooks.
type Day struct {
	*receiver.Receiver
	options Options
	plan    *plan
	vendor  *client.Client
	pace    *pacer
	cancels sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]*request // orderId -> to be cancelled at its CancelAt
	settled bool                // no cancellation is begun any more
	through int                 // requests
	summary Summary
}

// New plans a day.
func New(o Options) (*Day, error) {
	o.Orders = cmp.Or(o.Orders, 300)
	o.Rate = cmp.Or(o.Rate, 11)
	o.Settle = cmp.Or(o.Settle, time.Minute)
	p, err := newPlan(o.Orders, o.Seed, o.Prefix)
	if err != nil {
		return nil, err
	}
	d := &Day{
		options: o,
		plan:    p,
		vendor:  client.New(o.Demo.BaseURL+"/api/vendor/v1", 2*concurrency),
		pace:    newPacer(o.Rate),
		waiting: map[string]*request{},
	}
	d.Receiver, err = receiver.New(receiver.Options{Secrets: []string{o.Demo.Webhook.Secret}, Seen: func(e receiver.Event, _ bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cancelIfDue(e.Order.OrderID)
	}})
	return d, err
}

// Run plays the day, reads the reports, prints both, and fails when they do not balance.
func (d *Day) Run(ctx context.Context, out io.Writer) error {
	summary, err := d.Play(ctx)
	if err != nil {
		return err
	}
	finance, err := d.readFinance(ctx)
	if err != nil {
		return err
	}
	if err := summary.Print(out); err != nil {
		return err
	}
	finance.Print(out)
	if len(summary.Problems)+len(finance.Problems) > 0 {
		return errors.New("the day does not balance")
	}
	return nil
}

// Play plays the day and returns when everything has settled or cannot settle any more. The error is for a day that
// could not be played; what does not balance is in the summary.
func (d *Day) Play(ctx context.Context) (*Summary, error) {
	account := d.options.Demo.Account
	var err error
	if d.vendor, err = d.vendor.Login(ctx, "/token", account.ClientID, account.ClientSecret); err != nil {
		return nil, fmt.Errorf("get a token: %w", err)
	}
	if err := d.openStores(ctx); err != nil {
		return nil, fmt.Errorf("open the stores: %w", err)
	}
	if err := d.createOrders(ctx); err != nil {
		return nil, fmt.Errorf("create orders: %w", err)
	}
	if err := d.settle(ctx); err != nil {
		return nil, err
	}
	d.summarise()
	return &d.summary, nil
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
	return harness.Await(ctx, what, d.options.Settle, 20*time.Millisecond, func() (bool, error) { return done(), nil })
}

// createOrders sends every planned request, in order, at the allowed pace.
func (d *Day) createOrders(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
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
			d.mu.Lock()
			defer d.mu.Unlock()
			d.through++
			if d.options.Progress != nil {
				d.options.Progress(d.through, len(d.plan.requests))
			}
			return nil
		})
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

func (d *Day) problem(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.summary.Problems.Add(format, args...)
}

func (d *Day) count(figure *int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*figure++
}

// errUnanswered is for a request that got no answer in time.
var errUnanswered = errors.New("no answer")

// send calls until there is an answer other than "try again": the service is unavailable (no answer, or 503
// SERVICE_UNAVAILABLE), or 429, after which the wait is as long as the service asks.
func (d *Day) send(ctx context.Context, method, path string, body any, headers ...string) (a *client.Answer, tries int, err error) {
	until := time.Now().Add(sendTimeout)
	for {
		tries++
		a, err = d.vendor.Do(ctx, method, path, body, headers...)
		wait := 100 * time.Millisecond
		switch {
		case err != nil:
			d.count(&d.summary.Unanswered)
		case a.Code == "SERVICE_UNAVAILABLE":
			d.count(&d.summary.Unavailable)
			err = a.Err()
		case a.Code == "RATE_LIMITED":
			d.count(&d.summary.RateLimited)
			wait = a.RetryAfter()
			until = until.Add(wait)
			err = a.Err()
		default:
			return a, tries, nil
		}
		if time.Now().Add(wait).After(until) {
			return nil, tries, fmt.Errorf("%w to %s %s for %v: %w", errUnanswered, method, path, sendTimeout, err)
		}
		if err := harness.Sleep(ctx, wait); err != nil {
			return nil, tries, err
		}
	}
}

// pacer lets requests through at a steady rate, and not at all while the service's
// headers say that nothing remains. A vendor that keeps to it is never refused.
type pacer struct {
	interval time.Duration

	mu        sync.Mutex
	next      time.Time // when the next request may go
	remaining int       // as far as is known; -1: nothing is known
	reset     time.Time // when remaining is larger again
	inFlight  int       // let through and not answered yet
}

func newPacer(rate float64) *pacer {
	return &pacer{interval: time.Duration(float64(time.Second) / rate), remaining: -1}
}

// take waits for this request's turn.
func (p *pacer) take(ctx context.Context) error {
	for wait := p.claim(time.Now()); wait > 0; wait = p.claim(time.Now()) {
		if err := harness.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// claim takes a place, or returns how long to wait before asking again.
func (p *pacer) claim(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := p.next.Sub(now); wait > 0 {
		return wait
	}
	if p.remaining == 0 {
		if wait := p.reset.Sub(now); wait > 0 {
			return wait
		}
		p.remaining = 1 // at least one by now; its answer says how many
	}
	if p.remaining > 0 {
		p.remaining--
	}
	p.inFlight++
	p.next = now.Add(p.interval)
	return 0
}

// learn reads an answer's headers. What is in flight counts as taken: its answers may be of an earlier state.
func (p *pacer) learn(h http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	remaining, err := strconv.Atoi(h.Get("X-RateLimit-Remaining"))
	reset, resetErr := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if err == nil && resetErr == nil {
		p.remaining, p.reset = max(remaining-p.inFlight, 0), time.Unix(reset, 0)
	}
}
