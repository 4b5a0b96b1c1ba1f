//go:build long

package ledger

import (
	"math"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// rush leases and accepts n events, by the server's own clock, which the rate
// limiter reads, and returns when each went at the latest.
func (s *env) rush(t *testing.T, n int) (sent []time.Duration) {
	t.Helper()
	must(t, s.rdb.Del(t.Context(), "test:clock").Err())
	start := time.Now()
	testserver.Await(t, "all are sent", func() bool {
		ds, _ := get2(s.Queue.Lease(t.Context(), 0, grant(100)))(t)
		at := time.Since(start)
		for range ds {
			sent = append(sent, at)
		}
		s.ends(t, accepts, ds...)
		return len(sent) >= n
	})
	return sent
}

// The backlog of a receiver that is back: ten events a second first, and in no
// second three times as many as in the one before.
func TestPace_SlowStartInRealTime(t *testing.T) {
	t.Parallel()
	s := newWebhookEnv(t, 3)
	s.pass(t, -time.Hour) // what the test does is long past for the server's clock
	s.open(t, 20*time.Hour)
	s.publish(t, 60)
	s.pass(t, time.Second)
	s.ends(t, accepts, s.one(t))
	for i, at := range s.rush(t, 40) {
		// The rate is below 10 * e^t; a burst of two comes on top.
		most := firstRate*(math.Exp(at.Seconds())-1) + 3
		check(t, float64(i+1) <= most, "%d events within %s, want %.0f at most", i+1, at, most)
	}
}

//rule:limits-and-idempotency/redis_rate
func TestPace_OfASettingInRealTime(t *testing.T) {
	t.Parallel()
	s := newWebhookEnv(t, breakerAt)
	must(t, s.Webhooks.SetLimits(t.Context(), s.account, EndpointLimits{InFlight: -1, PerSecond: 40}))
	s.publish(t, 60)
	for i, at := range s.rush(t, 50) {
		most := 40*at.Seconds() + 40/paceBurst + 2
		check(t, float64(i+1) <= most, "%d events within %s, want %.0f at most", i+1, at, most)
	}
}
