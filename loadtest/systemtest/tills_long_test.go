//go:build long

package systemtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// tills are a vendor's tills: each creates one order after the other, reads it
// and now and then cancels it, and repeats what was not answered, under the same
// idempotency key and at whichever gateway answers, as behind a balancer.
type tills struct {
	vendor  account
	origins []string // of the gateways
	// forgives reports whether an answer may be met by a client that then tries
	// again; what is no answer at all always may.
	forgives func(*client.Answer) bool

	stop    chan struct{}
	running sync.WaitGroup
	http    *http.Client

	mu      sync.Mutex
	orders  []*tillOrder
	faults  []string
	acked   atomic.Int64
	resets  int            // tries that met nobody
	refused map[string]int // answers that were forgiven, by status and code
}

// tillOrder is one order as its till saw it.
type tillOrder struct {
	key       string
	body      []byte
	orderID   string
	raw       []byte    // of the 201
	acked     time.Time // the last time that something about it was acknowledged
	cancelled bool      // the cancellation was answered 200
	unknown   bool      // answered ORDER_NOT_FOUND after it had been acknowledged
}

// tillPause is what a till waits between two orders.
const tillPause = 80 * time.Millisecond

// openTills opens the tills.
func openTills(t *testing.T, v account, origins []string, count int, forgives func(*client.Answer) bool) *tills {
	t.Helper()
	c := &tills{vendor: v, origins: origins, forgives: forgives, stop: make(chan struct{}), refused: map[string]int{},
		http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: count}}}
	for i := range count {
		c.running.Go(func() {
			for n := 0; c.open(); n++ {
				c.order(t, i, n)
				time.Sleep(tillPause)
			}
		})
	}

	t.Cleanup(c.close)

	return c
}

func (c *tills) open() bool {
	select {
	case <-c.stop:
		return false
	default:
		return true
	}
}

// close lets every till finish the order that it is at.
func (c *tills) close() {
	if c.open() {
		close(c.stop)
	}
	c.running.Wait()
}

func (c *tills) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// order is one order's way. Every ninth is to be cancelled: its courier waits.
func (c *tills) order(t *testing.T, i, n int) {
	o := &tillOrder{key: fmt.Sprintf("T-%d-%d", i, n)}
	cancels := n%9 == 4
	body, err := json.Marshal(c.vendor.Order(func(b map[string]any) {
		b["externalOrderId"] = "E" + o.key
		if cancels {
			b["packageNote"] = "SIM:HOLD=Assigned"
		}
	}))

	if err != nil {
		c.fault("%v", err)
		return
	}

	o.body = body
	a := c.call(t, i+n, http.MethodPost, "/orders", body, "X-Idempotency-Key", o.key)
	if a == nil {
		return
	}

	var created struct{ OrderID string }
	if err := a.Into(&created); err != nil {
		c.fault("order %s: %v", o.key, err)
		return
	}

	o.orderID, o.raw, o.acked = created.OrderID, a.Raw, time.Now()
	c.mu.Lock()
	c.orders = append(c.orders, o)
	c.mu.Unlock()
	c.acked.Add(1)
	// A read whose answer was lost has used up the order's ten seconds.
	c.record(o, "reading", c.call(t, i+n+1, http.MethodGet, "/orders/"+o.orderID, nil), "RATE_LIMITED")
	if cancels {
		o.cancelled = c.record(o, "cancelling", c.call(t, i+n, http.MethodPost, "/orders/"+o.orderID+"/cancel", []byte("{}")))
		if o.cancelled {
			o.acked = time.Now()
		}
	}
}

// record notes an answer about an acknowledged order and reports whether it was a
// success. Only an order that was lost may be unknown, which check finds out.
func (c *tills) record(o *tillOrder, doing string, a *client.Answer, fine ...string) bool {
	switch {
	case a == nil:
		return false
	case a.Code == "ORDER_NOT_FOUND":
		o.unknown = true
	case !a.OK() && !slices.Contains(fine, a.Code):
		c.fault("%s %s: %v", doing, o.key, a.Err())
	}
	return a.OK()
}

// tillTimeout bounds how long one request is repeated.
const tillTimeout = 2 * time.Minute

// call repeats a request until it is answered for good; nil: it never was.
func (c *tills) call(t *testing.T, first int, method, path string, body []byte, headers ...string) *client.Answer {
	for try, began := first, time.Now(); time.Since(began) < tillTimeout; try++ {
		gateway := client.Client{Base: c.origins[try%len(c.origins)] + "/api/vendor/v1", Bearer: c.vendor.Bearer, HTTP: c.http}
		var content any
		if body != nil {
			content = body
		}

		a, err := gateway.Do(t.Context(), method, path, content, headers...)
		switch {
		case t.Context().Err() != nil:
			return nil
		case err != nil && !cutOff(err):
			c.fault("%s %s: %v", method, path, err)
			return nil
		case err != nil:
			c.mu.Lock()
			c.resets++
			c.mu.Unlock()
		case c.forgives(a):
			c.mu.Lock()
			c.refused[fmt.Sprintf("%d %s", a.Status, a.Code)]++
			c.mu.Unlock()
		default:
			return a
		}

		time.Sleep(50 * time.Millisecond)
	}

	c.fault("%s %s: no answer for good in %v", method, path, tillTimeout)

	return nil
}

// cutOff reports a connection that was refused, reset or closed: what a balancer
// tries at another gateway.
func cutOff(err error) bool {
	var operation *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPIPE) || errors.As(err, &operation) && operation.Op == "dial" ||
		strings.Contains(err.Error(), "server closed idle connection")
}

// passes waits until so many more orders have been taken.
func (c *tills) passes(t *testing.T, more int64) {
	t.Helper()
	target := c.acked.Load() + more
	await(t, fmt.Sprintf("%d more orders", more), func() bool { return c.acked.Load() >= target })
}

// awaitResets waits until a till has met nobody since the call.
func (c *tills) awaitResets(t *testing.T) {
	t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.resets
	}
	before := count()
	await(t, "a till meets nobody", func() bool { return count() > before })
}

// check holds everything that the tills saw against the system afterwards; lost
// are the orders that it no longer knows, or knows as not cancelled.
func (c *tills) check(t *testing.T, r *receiver.Receiver) (lost []*tillOrder) {
	t.Helper()
	c.close()
	for _, fault := range c.faults[:min(len(c.faults), 10)] {
		t.Error(fault)
	}

	var all sync.WaitGroup
	gone := make([]bool, len(c.orders))
	slots := make(chan struct{}, 8)
	for i, o := range c.orders {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			a := c.call(t, i, http.MethodPost, "/orders", o.body, "X-Idempotency-Key", o.key)
			if a == nil {
				return
			}

			gone[i] = a.Header.Get("Idempotent-Replayed") != "true"
			if !gone[i] && string(a.Raw) != string(o.raw) {
				t.Errorf("key %s has two outcomes:\n%s\n%s", o.key, o.raw, a.Raw)
			}

			if o.cancelled && !gone[i] {
				gone[i] = !c.stillCancelled(t, i, o)
			}
		})
	}

	all.Wait()
	for i, o := range c.orders {
		switch {
		case gone[i]:
			lost = append(lost, o)
		case o.unknown:
			t.Errorf("order %s (%s) is there and was answered ORDER_NOT_FOUND", o.orderID, o.key)
		}
	}

	c.checkWebhooks(t, r)
	t.Logf("%d orders; %d tries met nobody, forgiven answers: %v; webhooks: %+v",
		len(c.orders), c.resets, c.refused, r.Counts())

	return lost
}

// stillCancelled reads an order whose cancellation was acknowledged, and cancels
// it again if the system has forgotten that, so that it ends.
func (c *tills) stillCancelled(t *testing.T, i int, o *tillOrder) bool {
	var order struct{ Status string }
	a := c.call(t, i, http.MethodGet, "/orders/"+o.orderID, nil)
	for ; a != nil && a.Code == "RATE_LIMITED"; a = c.call(t, i, http.MethodGet, "/orders/"+o.orderID, nil) {
		time.Sleep(time.Second)
	}

	if a == nil || !a.OK() || a.Into(&order) != nil || order.Status != "Cancelled" {
		c.call(t, i, http.MethodPost, "/orders/"+o.orderID+"/cancel", []byte("{}"))
		return false
	}

	return true
}

// checkWebhooks waits until every order's end has arrived, and all steps
// before it.
func (c *tills) checkWebhooks(t *testing.T, r *receiver.Receiver) {
	t.Helper()
	for _, o := range c.orders {
		want := []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered"}
		if o.cancelled {
			want = []string{"Cancelled"}
		}
		await(t, fmt.Sprintf("the webhooks of order %s (%s) contain %v", o.orderID, o.key, want), func() bool {
			received := statuses(r.Timeline(o.orderID))
			return !slices.ContainsFunc(want, func(status string) bool { return !slices.Contains(received, status) })
		})
	}

	if counts := r.Counts(); len(counts.Invalid) > 0 {
		t.Errorf("webhooks that do not verify: %v", counts.Invalid)
	}
}
