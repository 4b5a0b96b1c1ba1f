package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// placed is an order of a vendor: its number, and its id once that is known.
type placed struct {
	vendor *loadVendor
	number int
	id     string
}

// created reports whether an order was created, and notes its id.
func created(o *placed, a harness.Answer) bool {
	_, after, found := bytes.Cut(a.Body, []byte(`"orderId":"`))
	if a.Status != 201 || !found || len(after) < 36 {
		return false
	}
	o.id = string(after[:36])
	return true
}

// loadVendor is an account with its request for a new order.
type loadVendor struct {
	*stack.Vendor
	order string // format of the request, of the order's number
}

func newLoadVendor(opened *stack.Vendor) *loadVendor {
	const id = "POS-%012[1]d"
	body, err := json.Marshal(opened.Order(func(o map[string]any) { o["externalOrderId"] = id }))
	if err != nil {
		panic(err) // it holds numbers and text only
	}

	length := len(fmt.Sprintf(string(body), 0))
	order := fmt.Sprintf("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\n"+
		"Accept: application/json\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"X-Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s",
		opened.Bearer, id, length, body)

	return &loadVendor{Vendor: opened, order: order}
}

// post sends a load of orders, of which order names the n-th.
func (s *ownSystem) post(ctx context.Context, l load, order func(n int) placed) *tally {
	l.addr, l.accepts = s.addr, created
	l.request = func(dst []byte, n int) ([]byte, placed) {
		o := order(n)
		return fmt.Appendf(dst, o.vendor.order, o.number), o
	}
	return l.send(ctx)
}

// orderNumbers is how many numbers each load of orders has: more than any sends.
const orderNumbers = 100_000_000

// firstNumber returns the first of the numbers of another load of orders.
func (s *ownSystem) firstNumber() int { return int(s.orders.Add(orderNumbers)) - orderNumbers }

// order sends a load of new orders of the vendors, in turns.
func (s *ownSystem) order(ctx context.Context, vendors []*loadVendor, l load) *tally {
	first := s.firstNumber()
	return s.post(ctx, l, func(n int) placed { return placed{vendor: vendors[n%len(vendors)], number: first + n} })
}

// readers is how many connections read or repeat what was ordered.
const readers = 32

// resend sends orders again, up to five times what is answered 503 or not at all. It returns those that exist.
func (s *ownSystem) resend(ctx context.Context, past []placed) (orders []placed, problems string) {
	for try := 0; try < 5 && len(past) > 0 && ctx.Err() == nil; try++ {
		repeated := past
		t := s.post(ctx, load{connections: readers, duration: time.Minute, most: len(repeated)},
			func(n int) placed { return placed{vendor: repeated[n].vendor, number: repeated[n].number} })
		orders = append(orders, t.orders...)
		problems += t.problems()
		past = t.again
	}
	return orders, problems
}

// checkResent checks that what was refused or not answered becomes an order when it is sent again, and returns these.
func (s *ownSystem) checkResent(ctx context.Context, t *tally, what string) []placed {
	orders, problems := s.resend(ctx, t.again)
	s.check(expectation{
		what:  what + ", sent again and accepted",
		want:  "all",
		got:   fmt.Sprintf("%d of %d%s", len(orders), len(t.again), problems),
		holds: len(orders) == len(t.again),
	})
	return orders
}

// read sends a load of reads, each order once.
func (s *ownSystem) read(ctx context.Context, orders []placed, l load) *tally {
	l.addr, l.most = s.addr, len(orders)
	if len(orders) == 0 {
		l.duration = 0
	}

	l.request = func(dst []byte, n int) ([]byte, placed) {
		o := orders[n]
		return fmt.Appendf(dst, "GET /api/vendor/v1/orders/%s HTTP/1.1\r\nHost: api.example.com\r\n"+
			"Authorization: Bearer %s\r\n\r\n", o.id, o.vendor.Bearer), o
	}

	l.accepts = func(o *placed, a harness.Answer) bool {
		return a.Status == 200 && bytes.Contains(a.Body, []byte(`"orderId":"`+o.id+`"`))
	}

	return l.send(ctx)
}

// checkKept checks that the service knows every accepted order by its id, and some of them by their key.
func (s *ownSystem) checkKept(ctx context.Context, lists ...[]placed) {
	orders := slices.Concat(lists...)
	found, problems := 0, ""
	unread := orders
	for try := 0; try < 3 && len(unread) > 0 && ctx.Err() == nil; try++ {
		if try > 0 {
			_ = harness.Sleep(ctx, delivery.PollInterval) // some may have been read a moment ago
		}
		t := s.read(ctx, unread, load{connections: readers, duration: 5 * time.Minute})
		found += len(t.orders)
		problems += t.problems()
		unread = t.again
	}

	s.check(expectation{
		what:  "accepted orders read back",
		want:  "all",
		got:   fmt.Sprintf("%d of %d%s", found, len(orders), problems),
		holds: found == len(orders),
	})

	const most = 500
	var sample []placed
	for i := 0; i < len(orders); i += 1 + len(orders)/most {
		isLimited := slices.Contains(s.ordinary, orders[i].vendor)
		if !isLimited {
			sample = append(sample, orders[i])
		}
	}

	s.checkSame(ctx, sample, "sent again, answered with the same order")
}

// checkSame checks that orders that are sent again are answered with themselves.
func (s *ownSystem) checkSame(ctx context.Context, orders []placed, what string) {
	repeated, problems := s.resend(ctx, orders)
	isOther := func(o placed) bool { return !slices.Contains(orders, o) }
	same := len(slices.DeleteFunc(repeated, isOther))
	s.check(expectation{
		what:  what,
		want:  "all",
		got:   fmt.Sprintf("%d of %d%s", same, len(orders), problems),
		holds: same == len(orders),
	})
}
