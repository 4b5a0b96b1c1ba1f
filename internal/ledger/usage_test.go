package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"vendorapi/internal/delivery"
)

// used is what each limit holds at a time, spelled out. Nothing is forgotten or
// drawn to the present for it.
func (m *bruteForce) used(now int64) (sustained, burst int) {
	if m.last > now && m.last-now <= second {
		now = m.last
	}
	var inside [2]int
	for i, w := range m.windows() {
		for _, t := range m.live[i] {
			if w.Count > 0 && t > now-int64(w.Seconds)*second {
				inside[i]++
			}
		}
	}
	if m.bucket() {
		refill, cost := int64(m.limit.Sustained.Count), int64(m.limit.Sustained.Seconds)*second
		for debt := m.debt - max(0, now-m.last)*refill; debt > 0; debt -= cost {
			inside[0]++
		}
	}
	return inside[0], inside[1]
}

// compareUsage compares Usage with the model, and with what the last request was
// told: as many pass as it says remain.
func (m *bruteForce) compareUsage(tb testing.TB, l *Ledger, account delivery.AccountID, now int64, told *Quota) error {
	tb.Helper()
	uses := get(l.Usage(tb.Context(), []delivery.AccountID{account}))(tb)
	use := uses[0][m.endpoint]
	sustained, burst := m.used(now)
	if use.Endpoint != m.endpoint || use.Sustained.Used != sustained || use.Burst.Used != burst {
		return fmt.Errorf("usage %+v, the model says %d and %d", use, sustained, burst)
	}
	if told == nil {
		return nil
	}
	left := use.Sustained.Window.Count - use.Sustained.Used
	if use.Burst.Window.Count > 0 {
		left = min(left, use.Burst.Window.Count-use.Burst.Used)
	}
	if max(0, left) != told.Remaining {
		return fmt.Errorf("usage %+v leaves %d, the request was told %d", use, left, told.Remaining)
	}
	return nil
}

func TestUsage_MutantsAreFound(t *testing.T) {
	for name, mutate := range map[string]struct{ from, to string }{
		"one request more":            {"return admitted - advance", "return admitted + 1 - advance"},
		"tails of the last admission": {"advance(tail, at, present() - seconds * 1000000)", "tail"},
		"bucket rounded down":         {"(spare - spare % cost) / cost", "ceil(spare / cost)"},
		"bucket never paid off":       {"max(0, now - last) * count1", "0"},
		"bucket paid off in the past": {"max(0, now - last)", "(now - last)"},
		"second window forgotten":     {"if count2 > 0", "if false"},
	} {
		t.Run(name, func(t *testing.T) { findMutant(t, "usage", mutate.from, mutate.to) })
	}
}

func TestUsage_ShowsTheLimitsOfEveryEndpoint(t *testing.T) {
	l := openTest(t)
	limits := delivery.DefaultLimits()
	id, other := newAccount(t, l, limits), newAccount(t, l, limits)
	l.setClock(t, 4_000_000_000*second)
	for e := range endpoints {
		for range e + 2 {
			get(l.Consume(t.Context(), id, e))(t)
		}
	}
	uses := get(l.Usage(t.Context(), []delivery.AccountID{other, delivery.NewAccountID(), id}))(t)
	require(t, len(uses) == 3 && uses[1] == nil && len(uses[0]) == 5 && len(uses[2]) == 5, "%+v", uses)
	want := []EndpointUse{
		{EndpointOrders, WindowUse{limits.Orders.Sustained, 2}, WindowUse{limits.Orders.Burst, 2}},
		{EndpointOrderStatus, WindowUse{limits.OrderStatus.Sustained, 3}, WindowUse{}},
		{EndpointCancel, WindowUse{limits.Cancel.Sustained, 4}, WindowUse{}},
		// 200 requests that are paid off at one a second.
		{EndpointStores, WindowUse{delivery.Window{Count: 200, Seconds: 200}, 5}, WindowUse{limits.Stores.Burst, 5}},
		{EndpointToken, WindowUse{limits.Token.Sustained, 6}, WindowUse{}},
	}
	names := []string{"orders", "orderStatus", "cancel", "stores", "token"}
	for i, w := range want {
		check(t, uses[2][i] == w, "%s: %+v, want %+v", w.Endpoint, uses[2][i], w)
		w.Sustained.Used, w.Burst.Used = 0, 0
		check(t, uses[0][i] == w, "%s of an idle account: %+v", w.Endpoint, uses[0][i])
		check(t, w.Endpoint.String() == names[i], "endpoint %d is called %s", i, w.Endpoint)
	}
	check(t, endpoints.String() == "Endpoint(5)", "%v", endpoints.String())
}

// A window that was made shorter holds, until the next admission, more than its
// ring's head tells; then it matters which time a clock that went back is taken
// for: half a second is waited out, more is believed.
func TestUsage_ClockBackInAShorterWindow(t *testing.T) {
	l := openTest(t)
	wide := delivery.EndpointLimit{Sustained: delivery.Window{Count: 100, Seconds: 60}}
	last := 4_000_000_000 * second
	for _, c := range []struct{ back, first int64 }{{second / 2, 10*second + second/5}, {5 * second, 12 * second}} {
		id := newAccount(t, l, delivery.Limits{Orders: wide, OrderStatus: wide, Cancel: wide, Stores: wide, Token: wide})
		for _, at := range []int64{last - c.first, last} {
			l.setClock(t, at)
			get(l.Consume(t.Context(), id, EndpointCancel))(t)
		}
		_, err := l.UpdateAccount(t.Context(), id, func(a *delivery.Account) error {
			a.Limits.Cancel.Sustained.Seconds = 10
			return nil
		})
		must(t, err)
		l.setClock(t, last-c.back)
		uses := get(l.Usage(t.Context(), []delivery.AccountID{id}))(t)
		quota := get(l.Consume(t.Context(), id, EndpointCancel))(t)
		if used := uses[0][EndpointCancel].Sustained.Used; used != quota.Limit-quota.Remaining-1 {
			t.Errorf("%d us back: %d used, and after one more request %d of %d remain", c.back, used, quota.Remaining, quota.Limit)
		}
	}
}

func TestUsage_OfNobodyIsNothing(t *testing.T) {
	uses := get(openTest(t).Usage(t.Context(), nil))(t)
	check(t, len(uses) == 0, "%+v", uses)
}

// Whatever was admitted, looking at it writes nothing, counts nothing and, the
// server being the judge, may not.
func TestUsage_WritesNothing(t *testing.T) {
	s := newEnv(t)
	ring := s.roomOf(s.account).ring(EndpointOrders, s.account)
	now := 4_000_000_000 * second
	s.setClock(t, now)
	for range 40 {
		get(s.Consume(t.Context(), s.account, EndpointOrders))(t)
	}
	dump := func() string { return s.rdb.Dump(t.Context(), ring).Val() + s.rdb.Dump(t.Context(), ring+"l").Val() }
	before := dump()
	for _, at := range []int64{now, now - second/2, now - 500*second, now + 59*second, now + 61*second} {
		s.setClock(t, at)
		uses := get(s.Usage(t.Context(), []delivery.AccountID{s.account}))(t)
		want := 40
		if at > now+60*second {
			want = 0
		}
		got := uses[0][EndpointOrders].Sustained.Used
		check(t, got == want, "%d used %d s later, want %d", got, (at-now)/second, want)
	}
	check(t, dump() == before, "the ring was changed")
	writing := openTest(t, func(c *Config) {
		c.edit = func(file, text string) string {
			if file == "usage" {
				text = "call('SET', KEYS[1], '')\n" + text
			}
			return text
		}
	})
	check(t, errOf(writing.Usage(t.Context(), []delivery.AccountID{newAccount(t, writing, plenty())})) != nil, "a usage script that writes is let pass")
}

// Without its log a ring counts what is in its head; a limit that was lowered is
// shown as exceeded.
func TestUsage_ExpiredLogAndLoweredLimit(t *testing.T) {
	s := newEnv(t)
	s.setClock(t, 4_000_000_000*second)
	for range 20 {
		get(s.Consume(t.Context(), s.account, EndpointCancel))(t)
	}
	use := func() WindowUse {
		t.Helper()
		uses := get(s.Usage(t.Context(), []delivery.AccountID{s.account}))(t)
		return uses[0][EndpointCancel].Sustained
	}
	lower := delivery.Window{Count: 5, Seconds: 60}
	_, err := s.UpdateAccount(t.Context(), s.account, func(a *delivery.Account) error {
		a.Limits.Cancel.Sustained = lower
		return nil
	})
	must(t, err)
	equal(t, use(), (WindowUse{lower, 20}), "got")
	must(t, s.rdb.Del(t.Context(), s.roomOf(s.account).ring(EndpointCancel, s.account)+"l").Err())
	s.setClock(t, 4_000_000_059*second)
	if got := use(); got.Used != 20 {
		t.Errorf("%+v without the log, within the window", got)
	}
	s.setClock(t, 4_000_000_061*second)
	if got := use(); got.Used != 0 {
		t.Errorf("%+v without the log, behind the window", got)
	}
}

func TestUsage_RedisAway(t *testing.T) {
	l := openTest(t)
	id := newAccount(t, l, plenty())
	_, err := l.Usage(overContext(t), []delivery.AccountID{id})
	check(t, errors.Is(err, delivery.ErrUnavailable), "got %v", err)
}

// overContext is one that is over: with it Redis does not answer.
func overContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
