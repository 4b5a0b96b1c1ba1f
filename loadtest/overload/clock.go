package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/stack"
)

// The burst limit that the case runs into: shorter than the ordinary one, so that
// a slow machine runs into it, too.
const (
	burst       = 12
	burstWindow = 10 * time.Second
)

// slack is what rounding up to seconds and a busy machine add to a wait.
const slack = 3 * time.Second

// scarce is a vendor at its ordinary limits whose burst is used up again and
// again.
type scarce struct {
	s       *system
	v       *vendor
	granted []time.Time
}

// exhaust orders until it is refused and answers how many were granted and how
// long it was told to wait.
func (v *scarce) exhaust(ctx context.Context) (granted int, wait time.Duration, err error) {
	for range 10 * burst {
		status, wait, err := v.s.tryOrder(ctx, v.v)
		if err != nil {
			return granted, 0, err
		}
		if status == http.StatusTooManyRequests {
			return granted, wait, nil
		}
		switch status {
		case http.StatusCreated:
			v.granted = append(v.granted, time.Now())
			granted++
		case http.StatusServiceUnavailable: // a machine that stands still
		default:
			return granted, 0, fmt.Errorf("an order was answered %d", status)
		}
	}
	return granted, 0, nil
}

// await tries until an order is granted and answers how long that took.
func (v *scarce) await(ctx context.Context, most time.Duration) (time.Duration, error) {
	for began := time.Now(); time.Since(began) < most; time.Sleep(100 * time.Millisecond) {
		status, _, err := v.s.tryOrder(ctx, v.v)
		if err != nil {
			return 0, err
		}
		if status == http.StatusCreated {
			v.granted = append(v.granted, time.Now())
			return time.Since(began), nil
		}
	}
	return most, nil
}

// most is the largest number of grants within any span.
func (v *scarce) most(span time.Duration) int {
	most, first := 0, 0
	for last, at := range v.granted {
		for at.Sub(v.granted[first]) >= span {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// tryOrder answers the HTTP status of a new order, and when to try again.
func (s *system) tryOrder(ctx context.Context, v *vendor) (status int, wait time.Duration, err error) {
	body := strings.ReplaceAll(orderBody, placeholder, fmt.Sprintf("POS-%012d", s.numbers.block(1)))
	a, err := s.api(v).Do(ctx, http.MethodPost, "/orders", []byte(body))
	if err != nil {
		return 0, 0, err
	}
	return a.Status, a.RetryAfter(), nil
}

// inbox is a receiver of webhooks that can be out of order.
type inbox struct {
	url    string
	server *http.Server
	broken atomic.Bool
	mu     sync.Mutex
	events map[string]bool // by webhook-id
	failed int
}

func newInbox(ctx context.Context) (*inbox, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &inbox{url: "http://" + l.Addr().String() + "/", events: map[string]bool{}}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = b.server.Serve(l) }() // ends with Close
	return b, nil
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken.Load() {
		b.failed++
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	b.events[r.Header.Get("Webhook-Id")] = true
}

func (b *inbox) seen() (events, failed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events), b.failed
}

// jumpingClock is the case clock. Redis's clock alone is wrong: gateway and
// worker know when they are, as they would when Redis's machine loses the time.
func (r *run) jumpingClock(ctx context.Context) error {
	s, lie, stop, err := r.shimmed(ctx, "clock", stack.Options{Courier: "auto", CourierStep: 200 * time.Millisecond}, 1, 2)
	if err != nil {
		return err
	}
	defer stop()
	box, err := newInbox(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = box.server.Close() }() // nothing is lost
	if err := s.api(s.vendors[0]).Call(ctx, http.MethodPut, "/webhook", map[string]string{"url": box.url}, nil); err != nil {
		return err
	}
	few := map[string]any{"limits": map[string]any{"orders": map[string]any{
		"sustained": map[string]int{"count": 600, "seconds": 60}, "burst": map[string]int{"count": burst, "seconds": 10},
	}}}
	if err := s.admin.Call(ctx, http.MethodPatch, "/accounts/"+s.vendors[1].account, few, nil); err != nil {
		return err
	}
	p := &jump{run: r, s: s, box: box, vendor: &scarce{s: s, v: s.vendors[1]}}
	if err := p.before(ctx); err != nil {
		return err
	}
	if err := lie.ShiftClock(r.form.jump); err != nil {
		return err
	}
	if err := p.ahead(ctx); err != nil {
		return err
	}
	if err := lie.ShiftClock(0); err != nil {
		return err
	}
	return p.back(ctx)
}

// jump is what is known while the clock jumps.
type jump struct {
	*run
	s      *system
	box    *inbox
	vendor *scarce
	orders []placed
	read   placed // read in the moment before each jump
	events int    // that the inbox is owed
}

// order lets the wide vendor order, each with five webhooks to follow.
func (p *jump) order(ctx context.Context, when string, n int) {
	t := newTally()
	v := p.s.ordering([]int{0}, 4, 0, time.Minute)
	v.most = n
	v.fire(ctx, t)
	ok := t.served(t.accepted.TotalCount(), p.form.share)
	late, oddity := p.s.insist(ctx, slices.Concat(t.refusals, t.unknown))
	orders := slices.Concat(t.orders, late)
	p.sheet.demand(ok && len(orders) == n, "orders of a vendor within its limits, "+when, "all accepted", "%d of %d%s", len(orders), n, t.oddity()+oddity)
	p.orders, p.events = append(p.orders, orders...), p.events+5*len(orders)
}

func (p *jump) before(ctx context.Context) error {
	p.order(ctx, "before", 20)
	p.read = p.orders[0]
	granted, wait, err := p.vendor.exhaust(ctx)
	if err != nil {
		return err
	}
	p.sheet.demand(wait > 0 && wait <= burstWindow, "limits before: granted until 429, told to wait", "at most "+burstWindow.String(), "%d, %s", granted, wait)
	took := p.delivered(ctx)
	events, _ := p.box.seen()
	p.sheet.demand(took >= 0, "webhooks before", "all delivered within "+p.form.patience.String(), "%d of %d", events, p.events)
	return p.poll(ctx, "before", http.StatusOK)
}

func (p *jump) ahead(ctx context.Context) error {
	p.box.broken.Store(true)
	p.order(ctx, "an hour ahead", 20)
	granted, wait, err := p.vendor.exhaust(ctx)
	if err != nil {
		return err
	}
	p.sheet.demand(granted > 0 && wait <= burstWindow, "limits an hour ahead: granted until 429, told to wait", "some, at most "+burstWindow.String(), "%d, %s", granted, wait)
	if err := p.poll(ctx, "an hour ahead", http.StatusOK); err != nil {
		return err
	}
	p.keysKnown(ctx, "an hour ahead")
	if _, err := p.guess(ctx, 12); err != nil {
		return err
	}
	// Until the breaker has been opened and probed ahead of time.
	for began := time.Now(); time.Since(began) < p.form.patience; time.Sleep(100 * time.Millisecond) {
		if _, failed := p.box.seen(); failed >= 8 {
			break
		}
	}
	return nil
}

func (p *jump) back(ctx context.Context) error {
	p.box.broken.Store(false)
	began := time.Now()
	p.order(ctx, "after the jump back", 20)
	if err := p.poll(ctx, "after the jump back", http.StatusOK); err != nil {
		return err
	}
	_, wait, err := p.vendor.exhaust(ctx)
	if err != nil {
		return err
	}
	p.sheet.demand(wait > 0 && wait <= burstWindow+slack, "limits after the jump back: told to wait", "at most "+burstWindow.String(), "%s", wait)
	took, err := p.vendor.await(ctx, 2*burstWindow+slack)
	if err != nil {
		return err
	}
	p.sheet.demand(took <= burstWindow+slack, "limits after the jump back: granted again", "within the window of "+burstWindow.String(), "%s", took.Round(time.Millisecond))
	// Each jump can open a window that the clock says is over.
	p.sheet.demand(p.vendor.most(burstWindow) <= 3*burst, "most granted within 10 s over both jumps", fmt.Sprintf("at most %d, once the limit for each jump more", 3*burst),
		"%d", p.vendor.most(burstWindow))
	p.keysKnown(ctx, "after the jump back")
	if wait, err = p.guess(ctx, 12); err != nil {
		return err
	}
	p.sheet.demand(wait <= time.Minute, "wrong credentials after the jump back: told to wait", "at most the minute of that guard", "%s", wait)
	all := p.delivered(ctx) >= 0
	events, _ := p.box.seen()
	p.sheet.demand(all, "webhooks after the jump back, those of a receiver that failed meanwhile", "all delivered within "+p.form.patience.String(),
		"%d of %d after %s", events, p.events, time.Since(began).Round(time.Millisecond))
	return p.settle(ctx)
}

// settle looks at what is left.
func (p *jump) settle(ctx context.Context) error {
	settled, err := p.s.awaitSettled(ctx, p.form.patience)
	if err != nil {
		return err
	}
	p.sheet.demand(settled >= 0, "streams: the worker has read and settled everything", "within "+p.form.patience.String(), "%s", settled.Round(time.Millisecond))
	p.s.proveKept(ctx, p.orders)
	return nil
}

// pollInterval is how often one order may be read (spec, "Limits").
const pollInterval = 10 * time.Second

// poll reads one order, waiting no longer than the interval between two reads.
func (p *jump) poll(ctx context.Context, when string, want int) error {
	began := time.Now()
	for {
		a, err := p.s.api(p.s.vendors[0]).Do(ctx, http.MethodGet, "/orders/"+p.read.id, nil)
		if err != nil {
			return err
		}
		took := time.Since(began)
		if a.Status == want || took > pollInterval+slack {
			p.sheet.demand(a.Status == want, "the order that was read just before, read "+when, "within its 10 s", "%d after %s", a.Status, took.Round(time.Millisecond))
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// keysKnown sends the first orders again.
func (p *jump) keysKnown(ctx context.Context, when string) {
	var past []shot
	for _, o := range p.orders[:20] {
		past = append(past, shot{vendor: o.vendor, number: o.number})
	}
	orders, oddity := p.s.insist(ctx, past)
	same := 0
	for _, o := range orders {
		if slices.Contains(p.orders, o) {
			same++
		}
	}
	p.sheet.demand(same == len(past), "idempotency keys "+when, "each answers its order", "%d of %d%s", same, len(past), oddity)
}

// guess presents wrong credentials and answers the longest wait that it was told.
func (p *jump) guess(ctx context.Context, times int) (longest time.Duration, err error) {
	anyone := p.s.admin.As(p.s.Demo.BaseURL+"/api/vendor/v1", "")
	for range times {
		a, err := anyone.Do(ctx, http.MethodPost, "/token", map[string]string{"clientId": p.s.vendors[2].clientID, "clientSecret": strings.Repeat("x", 43)})
		if err != nil {
			return 0, err
		}
		longest = max(longest, a.RetryAfter())
	}
	return longest, nil
}

// delivered waits until the inbox has all that it is owed; -1: longer than
// patience.
func (p *jump) delivered(ctx context.Context) time.Duration {
	began := time.Now()
	for time.Since(began) < p.form.patience && ctx.Err() == nil {
		if events, _ := p.box.seen(); events >= p.events {
			return time.Since(began)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return -1
}
