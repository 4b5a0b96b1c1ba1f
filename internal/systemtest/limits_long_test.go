//go:build long

package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/stack/client"
)

// accepted is when one accepted creation was sent and answered; the service
// counted it in between.
type accepted struct{ sent, answered time.Time }

// A client that pushes as hard as it can for 70 s gets what the spec allows,
// all of it, and nothing beyond.
//
//rule:limits/post-orders limits-and-idempotency/per-account-and-endpoint-an limits-and-idempotency/post-orders
func TestOrderLimits_HoldExactlyUnderAHammer(t *testing.T) {
	t.Parallel()
	v := newHouse(t, sharedStack(t)).vendor(t, nil)
	const connections = 50
	began := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), began.Add(70*time.Second))
	defer cancel()
	var mu sync.Mutex
	var got []accepted
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for ctx.Err() == nil {
				sent := time.Now()
				a, err := v.Do(ctx, http.MethodPost, "/orders", v.order(nil))
				if errors.Is(err, context.DeadlineExceeded) {
					return
				}
				switch {
				case err != nil:
					t.Error(err)
					return
				case a.OK():
					mu.Lock()
					got = append(got, accepted{sent, time.Now()})
					mu.Unlock()
				case a.Code != "RATE_LIMITED" || a.RetryAfter() < time.Second || a.RetryAfter() > time.Minute:
					t.Errorf("answered %d %s, Retry-After %v", a.Status, a.Code, a.RetryAfter())
					return
				}
			}
		})
	}
	wg.Wait()
	checkWindow(t, got, 120, 10*time.Second)
	checkWindow(t, got, 600, 60*time.Second)
	first := slices.MinFunc(got, func(a, b accepted) int { return a.sent.Compare(b.sent) }).sent
	inFirstMinute := 0
	for _, a := range got {
		if a.answered.Before(first.Add(time.Minute)) {
			inFirstMinute++
		}
	}
	// The five bursts of a minute are through by 40 s, so the minute's edge
	// falls into a pause and the count is exact.
	if inFirstMinute != 600 {
		t.Errorf("%d accepted in the first minute, want exactly 600", inFirstMinute)
	}
	if len(got) < 720 {
		t.Errorf("%d accepted in 70 s: the second minute's first burst is missing", len(got))
	}
}

// checkWindow: count+1 acceptances that were all sent and answered within less
// than span prove a violation.
func checkWindow(t *testing.T, got []accepted, count int, span time.Duration) {
	t.Helper()
	slices.SortFunc(got, func(a, b accepted) int { return a.answered.Compare(b.answered) })
	for last := count; last < len(got); last++ {
		window := got[last-count : last+1]
		earliest := slices.MinFunc(window, func(a, b accepted) int { return a.sent.Compare(b.sent) }).sent
		if within := got[last].answered.Sub(earliest); within < span {
			t.Errorf("%d accepted within %v, allowed are %d in %v", count+1, within, count, span)
			return
		}
	}
}

// Every other row of the spec's limits table: all that is allowed is admitted,
// the next one is refused, and a client that waits as long as it is told is
// admitted again.
//
//rule:get-orders-orderid/limited-to-one-request-per authentication/3 limits/get-orders-id limits/post-orders-id-cancel limits/put-stores-id
//rule:limits/post-token limits/rules/1 limits/rules/3 limits-and-idempotency/cancel-600-60-s limits-and-idempotency/get-3000-60-s-per-account
//rule:limits-and-idempotency/token-60-h limits-and-idempotency/put-stores limits-and-idempotency/429-retry-after-and-data.retryafterseconds-rounded
func TestLimits_EveryRowHoldsExactly(t *testing.T) {
	t.Parallel()
	h := newHouse(t, sharedStack(t))
	for name, c := range map[string]struct {
		allowed int
		longest time.Duration // the longest wait that can be true
		call    func(*vendor, string) call
	}{
		"GET one order": {1, 10 * time.Second, func(_ *vendor, id string) call {
			return call{http.MethodGet, "/orders/" + id, nil}
		}},
		"GET orders": {3000, time.Minute, func(*vendor, string) call {
			return call{http.MethodGet, "/orders/" + unknownOrder, nil}
		}},
		"POST cancel": {600, time.Minute, func(*vendor, string) call {
			return call{http.MethodPost, "/orders/" + unknownOrder + "/cancel", nil}
		}},
		"PUT store": {199, 10 * time.Second, func(v *vendor, _ string) call { // openStore was the first of 200
			return call{http.MethodPut, "/stores/" + v.store, storeBody(h.Demo.Fleet.FleetID)}
		}},
		"POST token": {59, time.Hour, func(v *vendor, _ string) call { // login was the first of 60
			return call{http.MethodPost, "/token", map[string]string{"clientId": v.clientID, "clientSecret": v.clientSecret}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := h.vendor(t, nil)
			v.exhaust(t, c.allowed, c.longest, c.call(v, v.create(t, nil)))
		})
	}
}

// unknownOrder has the form of an order id, and no order has it.
const unknownOrder = "00000000-0000-8000-8000-000000000000"

type call struct {
	method, path string
	body         any
}

// exhaust makes the call as often as allowed, concurrently, then once more,
// and then again after the wait that it is told, if that is at most a minute.
func (v *vendor) exhaust(t *testing.T, allowed int, longest time.Duration, c call) {
	t.Helper()
	v.admitted(t, allowed, c)
	refused, err := v.Do(t.Context(), c.method, c.path, c.body)
	must(t, err)
	wait := refused.RetryAfter()
	if refused.Status != http.StatusTooManyRequests || refused.Code != "RATE_LIMITED" || wait < time.Second || wait > longest {
		t.Fatalf("number %d answered %d %s, Retry-After %v", allowed+1, refused.Status, refused.Code, wait)
	}
	checkRefusal(t, refused)
	if wait > time.Minute {
		return
	}
	time.Sleep(wait) // the promise under test is exactly this wait
	again, err := v.Do(t.Context(), c.method, c.path, c.body)
	must(t, err)
	if again.Code == "RATE_LIMITED" {
		t.Errorf("refused again after the %v it was told to wait", wait)
	}
}

func (v *vendor) admitted(t *testing.T, n int, c call) {
	t.Helper()
	var wg sync.WaitGroup
	turns := make(chan struct{}, n)
	for range n {
		turns <- struct{}{}
	}
	close(turns)
	for range min(n, 16) {
		wg.Go(func() {
			for range turns {
				a, err := v.Do(t.Context(), c.method, c.path, c.body)
				if err != nil || a.Code == "RATE_LIMITED" {
					t.Errorf("refused within the limit: %+v, %v", a, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// checkRefusal: a 429 tells the wait twice and shows the bucket.
func checkRefusal(t *testing.T, a *client.Answer) {
	t.Helper()
	var detail struct{ RetryAfterSeconds int }
	must(t, json.Unmarshal(a.Data, &detail))
	if told := time.Duration(detail.RetryAfterSeconds) * time.Second; told != a.RetryAfter() {
		t.Errorf("data says %v, the header %v", told, a.RetryAfter())
	}
	if a.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("X-RateLimit-Remaining is %q", a.Header.Get("X-RateLimit-Remaining"))
	}
	if _, err := strconv.Atoi(a.Header.Get("X-RateLimit-Limit")); err != nil {
		t.Errorf("X-RateLimit-Limit: %v", err)
	}
	if reset, err := strconv.ParseInt(a.Header.Get("X-RateLimit-Reset"), 10, 64); err != nil || reset < time.Now().Unix() {
		t.Errorf("X-RateLimit-Reset is %q", a.Header.Get("X-RateLimit-Reset"))
	}
}
