package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// The burst limit of the limited vendor: shorter than the ordinary one, so that a slow machine reaches it, too.
const (
	burst       = 12
	burstWindow = 10 * time.Second
	slack       = 3 * time.Second // for rounding up to seconds and a busy machine
)

// clockTest is what two vendors see while Redis's clock jumps.
type clockTest struct {
	*ownSystem

	busy   *loadVendor     // with a limit out of reach and a webhook
	inbox  *validate.Inbox // its receiver
	orders []placed        // of the busy vendor, each with five webhooks

	limited *loadVendor // with the burst limit
	granted []time.Time // when its orders were
}

// jumpingClock lets Redis's clock jump an hour ahead and back. Only that clock is wrong, as when the time of its
// machine is lost.
func (s *ownSystem) jumpingClock(ctx context.Context) {
	c := &clockTest{ownSystem: s, busy: s.wide[0], limited: s.ordinary[0], inbox: validate.NewInbox()}
	s.ends = append(s.ends, c.inbox.Close)
	secret, err := c.busy.SetWebhook(ctx, "http://"+c.inbox.Listener.Addr().String()+"/")
	s.require(err)
	c.inbox.Serve(c.busy.AccountID, secret)
	few := map[string]any{"limits": map[string]any{"orders": stack.Limit(600, 60, burst, int(burstWindow/time.Second))}}
	s.require(s.apis.Admin.Call(ctx, http.MethodPatch, "/accounts/"+c.limited.AccountID, few, nil))
	c.play(ctx, "before", window{leastGranted: 1, longestWait: burstWindow})
	c.checkDelivered(ctx, "webhooks before")

	s.disk.ShiftClock(time.Hour)
	c.inbox.Behave(http.StatusInternalServerError, 0)
	earlier := len(c.inbox.Arrivals())
	c.play(ctx, "an hour ahead", window{leastGranted: 1, longestWait: burstWindow})
	c.guess(ctx)
	// Until the breaker has been opened and probed ahead of time.
	_ = harness.Await(ctx, "the breaker", s.form.timeout, pollInterval, func() (bool, error) { // webhooks are checked later
		return len(c.inbox.Arrivals())-earlier >= 8, nil
	})

	s.disk.ShiftClock(0)
	c.inbox.Behave(0, 0)
	c.play(ctx, "after the jump back", window{longestWait: burstWindow + slack})
	c.checkGrantedAgain(ctx)
	c.checkGuesses(ctx)
	c.checkDelivered(ctx, "webhooks after the jump back, those of a receiver that failed ahead of time")
	c.checkSettled(ctx, "streams: the worker has read and settled everything")
	c.checkKept(ctx, c.orders)
}

// window is what is wanted of the burst limit: how many orders it grants at least, and the longest wait that it asks for.
type window struct {
	leastGranted int
	longestWait  time.Duration
}

// play orders, reads and repeats as the busy vendor, and orders up to the limit as the limited one.
func (c *clockTest) play(ctx context.Context, when string, wanted window) {
	c.orderWithinLimits(ctx, when)
	if len(c.orders) == 0 {
		c.require(fmt.Errorf("no order was accepted %s", when))
		return
	}

	c.checkBecomes(ctx, condition{
		what:   "the order that was read just before, read " + when,
		within: delivery.PollInterval + slack,
		holds: func() (bool, string) {
			a, err := c.busy.Do(ctx, http.MethodGet, "/orders/"+c.orders[0].id, nil)
			return answered(a, err, http.StatusOK)
		},
	})

	c.checkSame(ctx, c.orders[:min(20, len(c.orders))], "idempotency keys "+when)

	before := len(c.granted)
	wait := c.orderUntilLimited(ctx)
	granted := len(c.granted) - before
	c.check(expectation{
		what:  "limits " + when + ": granted until 429, Retry-After",
		want:  fmt.Sprintf("%d or more, at most %s", wanted.leastGranted, wanted.longestWait),
		got:   fmt.Sprintf("%d, %s", granted, wait),
		holds: granted >= wanted.leastGranted && wait > 0 && wait <= wanted.longestWait,
	})
}

// orderWithinLimits lets the busy vendor send twenty orders.
func (c *clockTest) orderWithinLimits(ctx context.Context, when string) {
	const n = 20
	t := c.order(ctx, []*loadVendor{c.busy}, load{connections: 4, duration: time.Minute, most: n})
	late, problems := c.resend(ctx, t.again)
	orders := slices.Concat(t.orders, late)
	c.check(expectation{
		what:  "orders of a vendor within its limits, " + when,
		want:  "all accepted",
		got:   fmt.Sprintf("%d of %d%s", len(orders), n, t.problems()+problems),
		holds: t.served(t.accepted, c.form.share) && len(orders) == n,
	})

	c.orders = append(c.orders, orders...)
}

// orderUntilLimited lets the limited vendor order until it is answered 429, and returns the wait that this asks for.
func (c *clockTest) orderUntilLimited(ctx context.Context) time.Duration {
	for range 10 * burst {
		a, err := c.tryOrder(ctx)
		if err != nil {
			c.require(err)
			return 0
		}

		switch a.Status {
		case http.StatusTooManyRequests:
			return a.RetryAfter()
		case http.StatusCreated, http.StatusServiceUnavailable: // 503: the machine is too busy
		default:
			c.require(fmt.Errorf("an order was answered %d", a.Status))
			return 0
		}
	}

	return 0
}

// checkGrantedAgain checks that nobody waits longer than a window after the jump back, and that each jump has granted
// at most one limit more: it can open a window that is over by the clock.
func (c *clockTest) checkGrantedAgain(ctx context.Context) {
	c.checkBecomes(ctx, condition{
		what:   "limits after the jump back: granted again",
		within: burstWindow + slack,
		holds: func() (bool, string) {
			a, err := c.tryOrder(ctx)
			return answered(a, err, http.StatusCreated)
		},
	})

	most := mostWithin(c.granted, burstWindow)
	c.check(expectation{
		what:  "most granted within 10 s over both jumps",
		want:  fmt.Sprintf("at most %d, once the limit for each jump more", 3*burst),
		got:   strconv.Itoa(most),
		holds: most <= 3*burst,
	})
}

func (c *clockTest) checkGuesses(ctx context.Context) {
	wait := c.guess(ctx)
	c.check(expectation{
		what:  "wrong credentials after the jump back: Retry-After",
		want:  "at most the minute of that guard",
		got:   wait.String(),
		holds: wait <= time.Minute,
	})
}

func answered(a *client.Answer, err error, want int) (ok bool, figure string) {
	if err != nil {
		return false, err.Error()
	}
	return a.Status == want, strconv.Itoa(a.Status)
}

func (c *clockTest) tryOrder(ctx context.Context) (*client.Answer, error) {
	a, err := c.limited.Do(ctx, http.MethodPost, "/orders", c.limited.Order(nil))
	if err == nil && a.Status == http.StatusCreated {
		c.granted = append(c.granted, time.Now())
	}
	return a, err
}

// mostWithin returns the largest number of times, in ascending order, within any span.
func mostWithin(times []time.Time, span time.Duration) (most int) {
	first := 0
	for last, at := range times {
		for at.Sub(times[first]) >= span {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// guess returns the longest wait that wrong credentials are answered with.
func (c *clockTest) guess(ctx context.Context) (longest time.Duration) {
	wrong := map[string]string{"clientId": c.ordinary[1].ClientID, "clientSecret": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}
	for range 12 {
		a, err := c.apis.Vendor.Do(ctx, http.MethodPost, "/token", wrong)
		if err != nil {
			c.require(err)
			return longest
		}
		longest = max(longest, a.RetryAfter())
	}

	return longest
}

// checkDelivered checks that the receiver has taken every event of the busy vendor's orders.
func (c *clockTest) checkDelivered(ctx context.Context, what string) {
	events := make(map[string]bool)
	want := 5 * len(c.orders)
	c.checkBecomes(ctx, condition{what: what + ", delivered", within: c.form.timeout, holds: func() (bool, string) {
		for _, a := range c.inbox.Arrivals() {
			if a.Answered == http.StatusNoContent && a.Order != "" {
				events[a.EventID] = true
			}
		}
		return len(events) >= want, fmt.Sprintf("%d of %d", len(events), want)
	}})
}
