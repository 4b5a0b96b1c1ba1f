package ledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
)

// Whatever Redis's clock does, an account waits no longer than its longest window
// by a clock that only measures, is refused, and gets in any such window no more
// than its limit for every time that the clock jumped meanwhile, and once more.
func TestClock_JumpsNeitherLockOutNorOpenUp(t *testing.T) {
	l, draw := openTest(t), drawFrom(testserver.Seed(t))
	stints := 15
	if testserver.Long {
		stints = 200
	}

	for range stints {
		must(t, playJumps(t, l, draw))
	}
}

// stint is an account under a clock that jumps. Times are in microseconds.
type stint struct {
	l        *Ledger
	account  delivery.AccountID
	limit    delivery.Window
	real     int64 // time that passed
	jumped   int64 // by how much the clock is off
	jumps    []int64
	admitted []int64 // in time that passed
}

func playJumps(tb testing.TB, l *Ledger, draw draws) error {
	limit := delivery.Window{Count: draw(1, 40), Seconds: draw(1, 60)}
	s := &stint{l: l, account: delivery.NewAccountID(), limit: limit}
	a := &delivery.Account{ID: s.account, Limits: delivery.Limits{Orders: delivery.EndpointLimit{Sustained: limit}}}
	must(tb, l.Accounts.WriteAccount(tb.Context(), "create", a, ""))
	for range 150 {
		kind := draw(0, 19)
		switch {
		case kind < 14:
			s.real += int64(draw(0, int(second)))
		case kind < 16:
			s.real += int64(draw(0, limit.Seconds*int(second)))
		default:
			s.jumped += int64(draw(-2*3600, 2*3600)) * second
			s.jumps = append(s.jumps, s.real)
		}

		if err := s.request(tb); err != nil {
			return err
		}
	}

	// From here on the clock is left alone: after one window it has to let pass.
	s.real += int64(limit.Seconds)*second + second
	before := len(s.admitted)
	if err := s.request(tb); err != nil {
		return err
	}
	if len(s.admitted) == before {
		return fmt.Errorf("still locked out a window of %d s after the last jump", limit.Seconds)
	}

	return nil
}

func (s *stint) request(tb testing.TB) error {
	// Rings expire by the server's own clock, so the test's must be ahead of it.
	s.l.setClock(tb, 4_000_000_000*second+s.real+s.jumped)
	_, err := s.l.Limits.Consume(tb.Context(), s.account, limits.EndpointOrders)
	var refusal *delivery.Error
	if errors.As(err, &refusal) {
		// A step back of up to a second is waited out.
		if most := time.Duration(s.limit.Seconds+1) * time.Second; refusal.RetryAfter > most {
			return fmt.Errorf("must wait %v, the window is %d s", refusal.RetryAfter, s.limit.Seconds)
		}
		return nil
	}

	must(tb, err)
	s.admitted = append(s.admitted, s.real)

	return s.inBounds()
}

func (s *stint) inBounds() error {
	from := s.real - int64(s.limit.Seconds)*second
	inside, jumps := 0, 0
	for _, at := range s.admitted {
		if at > from {
			inside++
		}
	}

	for _, at := range s.jumps {
		if at > from {
			jumps++
		}
	}

	if inside > s.limit.Count*(jumps+1) {
		return fmt.Errorf("%d admissions within %d s and %d jumps, the limit is %d", inside, s.limit.Seconds, jumps, s.limit.Count)
	}

	return nil
}

// Drawing a long log back takes two writes, not one for each admission.
func TestClock_LongLogIsDrawnBackAtOnce(t *testing.T) {
	l := openTest(t)
	account := delivery.NewAccountID()
	const count = 3000
	a := &delivery.Account{ID: account, Limits: delivery.Limits{Orders: delivery.EndpointLimit{Sustained: delivery.Window{Count: count, Seconds: 60}}}}
	must(t, l.Accounts.WriteAccount(t.Context(), "create", a, ""))
	now := 4_000_000_000 * second
	l.setClock(t, now)
	for range count {
		get(l.Limits.Consume(t.Context(), account, limits.EndpointOrders))(t)
	}

	l.setClock(t, now-3600*second)
	_, err := l.Limits.Consume(t.Context(), account, limits.EndpointOrders)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, refusal.RetryAfter <= time.Minute, "must wait %v", refusal.RetryAfter)
	l.setClock(t, now-3540*second)
	for range count {
		get(l.Limits.Consume(t.Context(), account, limits.EndpointOrders))(t)
	}
}

// Limits of the library that space things out: a time far ahead is forgotten.
func TestClock_SpacingLimitsForgetAFutureThatWas(t *testing.T) {
	l := openTest(t)
	untilRefused(t, 10, 6*time.Second, func(int) error { return l.Limits.CountFailedLogin(t.Context(), "client", "address") })
	untilRefused(t, 5, time.Minute, func(int) error { return l.Sessions.CountSignIn(t.Context(), "user", "address") })

	// As if the server's clock had been an hour ahead until now.
	keys := get(l.core.Redis.Keys(t.Context(), "rate:*").Result())(t)
	require(t, len(keys) != 0, "no limits are stored")
	for _, key := range keys {
		must(t, l.core.Redis.IncrByFloat(t.Context(), key, 3600).Err())
	}

	must(t, l.Limits.CountFailedLogin(t.Context(), "client", "address"))
	must(t, l.Sessions.CountSignIn(t.Context(), "user", "address"))
}

// Limits go by Redis's clock: a process whose own is wrong counts like any other.
//
//rule:limits-and-idempotency/the-clock-is-redis-s-own
func TestClock_OfTheProcessDoesNotMatterToLimits(t *testing.T) {
	l := openTest(t, func(c *core.Config) {
		c.ClockKey = "" // Redis's own time
		c.Now = func() time.Time { return time.Now().AddDate(1, 0, 0) }
	})

	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
	id := newAccount(t, l, bounds)
	quota := get(l.Limits.Consume(t.Context(), id, limits.EndpointOrders))(t)
	ahead := time.Until(time.Unix(quota.Reset, 0))
	check(t, ahead <= time.Minute+time.Second, "reset is %s ahead", ahead)
	_, err := l.Limits.Consume(t.Context(), id, limits.EndpointOrders)
	check(t, delivery.CodeOf(err) == delivery.CodeRateLimited, "the second: %v", err)
}

// One reading of the clock per call: two could lie on two sides of an edge.
//
//rule:limits-and-idempotency/the-clock-is-redis-s-own
func TestClock_IsReadOncePerScript(t *testing.T) {
	_, own := ownServer(t) // its figures count what everybody calls
	s := newEnv(t, own, func(c *core.Config) { c.ClockKey = "" })
	s.register(t)
	o := s.create(t, "X-1")
	readings := func() (n int) {
		_, figures, _ := strings.Cut(get(s.core.Redis.Info(t.Context(), "commandstats").Result())(t), "cmdstat_time:calls=")
		get(fmt.Sscanf(figures, "%d", &n))(t)
		return n
	}

	for name, call := range map[string]func() error{
		"create": func() error { _, _, err := s.Orders.Create(t.Context(), s.creation("X-2", "key")); return err },
		"poll":   func() error { _, _, err := s.Orders.Poll(t.Context(), s.account, o.ID); return err },
		"cancel": func() error {
			_, _, err := s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", time.Now())
			return err
		},
		"store": func() error { _, _, err := s.Stores.CountAndGet(t.Context(), s.account, "S-1"); return err },
		"token": func() error { _, _, err := s.Limits.CountToken(t.Context(), s.account, testHash); return err },
		"usage": func() error { _, err := s.Limits.Usage(t.Context(), []delivery.AccountID{s.account}); return err },
		"endpoint": func() error {
			_, _, err := s.Webhooks.SetURL(t.Context(), s.account, "https://vendor.example/hook")
			return err
		},
		"replay": func() error {
			return errOf(s.Webhooks.QueueReplays(t.Context(), s.account, []partitions.Event{{Notice: "evt_1"}}, 0))
		},
	} {
		before := readings()
		must(t, call())
		check(t, readings()-before == 1, "%s reads the clock %d times", name, readings()-before)
	}
}

// A sandbox and a production in one Redis share nothing: not an account, and of
// two accounts with one id not a place of a bucket.
//
//rule:what-the-service-does/facts-that/sandbox-a-sandbox-environment-exists limits/rules/4 decisions/sandbox
func TestEnvironments_HaveBucketsOfTheirOwn(t *testing.T) {
	box := openTest(t)
	live := openTest(t, sameDatabase(box), func(c *core.Config) { c.Environment = "production" })
	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 2, Seconds: 3600}}
	id := newAccount(t, box, bounds)
	wantCode(t, errOf(live.Accounts.Get(t.Context(), id)), delivery.CodeAccountNotFound)
	must(t, live.Accounts.Create(t.Context(), &delivery.Account{ID: id, Name: "Vendor", Limits: bounds}, testHash))
	for range 2 {
		get(box.Limits.Consume(t.Context(), id, limits.EndpointOrders))(t)
	}

	var refusal *delivery.Error
	if _, err := box.Limits.Consume(t.Context(), id, limits.EndpointOrders); !errors.As(err, &refusal) || refusal.Code != delivery.CodeRateLimited {
		t.Errorf("the sandbox's third: %v", err)
	}

	quota, err := live.Limits.Consume(t.Context(), id, limits.EndpointOrders)
	check(t, err == nil && quota.Limit == 2 && quota.Remaining == 1, "production's first: %+v, %v", quota, err)
}

func TestClock_IsRedissUnlessTheyAreEqual(t *testing.T) {
	server := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ahead, roundTrip, want time.Duration
	}{
		"equal":                             {0, 0, 0},
		"a little ahead":                    {core.ClockTolerance - 1, 0, 0},
		"16 minutes behind":                 {-16 * time.Minute, 2 * time.Millisecond, -16 * time.Minute},
		"a day ahead":                       {24 * time.Hour, 2 * time.Millisecond, 24 * time.Hour},
		"perhaps the way there took it all": {time.Second, 3 * time.Second, 0},
	} {
		sent := server.Add(c.ahead).Add(-c.roundTrip / 2)
		if got := core.AheadBy(sent, sent.Add(c.roundTrip), server); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestClock_IsComparedWithTheFleets(t *testing.T) {
	l := newEnv(t)
	l.core.Ahead.Store(int64(time.Hour)) // this machine's clock is Redis's
	must(t, l.Fleets.Load(t.Context()))
	if now := time.Now(); !l.core.Clock(now).Equal(now) {
		t.Errorf("%s at %s", l.core.Clock(now), now)
	}
}
