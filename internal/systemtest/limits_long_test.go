//go:build long

package systemtest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/stack"
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
	v := startStack(t, stack.Options{Courier: "manual"}).Vendor(t, nil)
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
				a, err := v.Do(ctx, http.MethodPost, "/orders", v.Order(nil))
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
