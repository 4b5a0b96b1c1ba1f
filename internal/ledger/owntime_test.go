package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// Limits go by Redis's clock: a process whose own is wrong counts like any other.
//
//rule:limits-and-idempotency/the-clock-is-redis-s-own
func TestClock_OfTheProcessDoesNotMatterToLimits(t *testing.T) {
	l := openTest(t, func(c *Config) {
		c.ClockKey = "" // Redis's own time
		c.Now = func() time.Time { return time.Now().AddDate(1, 0, 0) }
	})
	limits := plenty()
	limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
	id := newAccount(t, l, limits)
	quota := get(l.Consume(t.Context(), id, EndpointOrders))(t)
	ahead := time.Until(time.Unix(quota.Reset, 0))
	check(t, ahead <= time.Minute+time.Second, "reset is %s ahead", ahead)
	_, err := l.Consume(t.Context(), id, EndpointOrders)
	check(t, delivery.CodeOf(err) == delivery.CodeRateLimited, "the second: %v", err)
}

// One reading of the clock per call: two could lie on two sides of an edge.
//
//rule:limits-and-idempotency/the-clock-is-redis-s-own
func TestClock_IsReadOncePerScript(t *testing.T) {
	_, own := ownServer(t) // its figures count what everybody calls
	s := newEnv(t, own, func(c *Config) { c.ClockKey = "" })
	o := s.create(t, "X-1")
	readings := func() (n int) {
		_, figures, _ := strings.Cut(get(s.rdb.Info(t.Context(), "commandstats").Result())(t), "cmdstat_time:calls=")
		get(fmt.Sscanf(figures, "%d", &n))(t)
		return n
	}
	for name, call := range map[string]func() error{
		"create": func() error { _, _, err := s.CreateOrder(t.Context(), s.creation("X-2", "key")); return err },
		"poll":   func() error { _, _, err := s.PollOrder(t.Context(), s.account, o.ID); return err },
		"cancel": func() error { _, _, err := s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now()); return err },
		"store":  func() error { _, _, err := s.CountAndReadStore(t.Context(), s.account, "S-1"); return err },
		"token":  func() error { _, err := s.CountToken(t.Context(), s.account, testHash); return err },
		"usage":  func() error { _, err := s.Usage(t.Context(), []delivery.AccountID{s.account}); return err },
		"lease":  func() error { _, _, err := s.Lease(t.Context(), 0, grant(1)); return err },
	} {
		before := readings()
		must(t, call())
		check(t, readings()-before == 1, "%s reads the clock %d times", name, readings()-before)
	}
}
