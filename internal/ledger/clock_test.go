package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// Whatever Redis's clock does, an account waits no longer than its longest window
// by a clock that only measures, is told so, and gets in any such window no more
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
	must(tb, l.writeAccount(tb.Context(), "create", s.account, "", a))
	for range 150 {
		switch kind := draw(0, 19); {
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
	_, err := s.l.Consume(tb.Context(), s.account, EndpointOrders)
	var refusal *delivery.Error
	if errors.As(err, &refusal) {
		// A step back of up to a second is waited out.
		if most := time.Duration(s.limit.Seconds+1) * time.Second; refusal.RetryAfter > most {
			return fmt.Errorf("told to wait %v, the window is %d s", refusal.RetryAfter, s.limit.Seconds)
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
	must(t, l.writeAccount(t.Context(), "create", account, "", a))
	now := 4_000_000_000 * second
	l.setClock(t, now)
	for range count {
		get(l.Consume(t.Context(), account, EndpointOrders))(t)
	}
	l.setClock(t, now-3600*second)
	_, err := l.Consume(t.Context(), account, EndpointOrders)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, refusal.RetryAfter <= time.Minute, "told to wait %v", refusal.RetryAfter)
	l.setClock(t, now-3540*second)
	for range count {
		get(l.Consume(t.Context(), account, EndpointOrders))(t)
	}
}

// Limits of the library that space things out: a time far ahead is forgotten.
func TestClock_SpacingLimitsForgetAFutureThatWas(t *testing.T) {
	l := openTest(t)
	for range 30 { // more than any of them takes
		_ = l.CountFailedLogin(t.Context(), "client", "address")
		_ = l.CountSignIn(t.Context(), "user", "address")
	}
	wantCode(t, l.CountFailedLogin(t.Context(), "client", "address"), delivery.CodeRateLimited)
	wantCode(t, l.CountSignIn(t.Context(), "user", "address"), delivery.CodeRateLimited)
	// As if the server's clock had been an hour ahead until now.
	keys := get(l.rdb.Keys(t.Context(), "rate:*").Result())(t)
	require(t, len(keys) != 0, "no limits are stored")
	for _, key := range keys {
		must(t, l.rdb.IncrByFloat(t.Context(), key, 3600).Err())
	}
	must(t, l.CountFailedLogin(t.Context(), "client", "address"))
	must(t, l.CountSignIn(t.Context(), "user", "address"))
}
