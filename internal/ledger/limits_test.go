package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/testenv/testserver"
)

const second = int64(1_000_000)

// bruteForce is the contract, spelled out (decisions, "Limits and idempotency"): never more than N
// admissions in any T of what is in force, and never a refusal otherwise. It
// remembers every admission for good, and counts them again for each request by
// the limits of that moment. A bucket's debt grows by one request with each
// admission and is paid off at the rate of the moment.
type bruteForce struct {
	endpoint limits.Endpoint
	limit    delivery.EndpointLimit
	admitted []int64 // every admission ever
	last     int64   // the latest time that was seen to count
	debt     int64   // of a bucket, at last: microseconds x refill count
}

func (m *bruteForce) bucket() bool { return m.endpoint == limits.EndpointStores }

func (m *bruteForce) windows() [2]delivery.Window {
	if m.bucket() {
		return [2]delivery.Window{{}, m.limit.Burst}
	}
	return [2]delivery.Window{m.limit.Sustained, m.limit.Burst}
}

type judgement struct {
	admitted bool
	quota    limits.Quota
	wait     int64 // us
}

func (m *bruteForce) request(now int64) judgement {
	if m.last > now {
		if m.last-now > second {
			m.drawToPresent(now)
		} else {
			now = m.last
		}
	}

	opinions := m.askWindows(now)
	debt := int64(0)
	if m.bucket() {
		refill, cost := int64(m.limit.Sustained.Count), int64(m.limit.Sustained.Seconds)*second
		debt = max(0, m.debt-(now-m.last)*refill) + cost
		remaining, owed := -1, debt-int64(m.limit.Burst.Count)*cost
		for owed <= 0 {
			remaining++
			owed += cost
		}
		opinions = append([]opinion{{m.limit.Burst.Count, 0, remaining, now + (owed+refill-1)/refill}}, opinions...)
	}

	tightest := opinions[0]
	for _, o := range opinions[1:] {
		if o.remaining < tightest.remaining || o.remaining == tightest.remaining && o.grows > tightest.grows {
			tightest = o
		}
	}

	j := judgement{admitted: tightest.remaining >= 0}
	j.quota = limits.Quota{Limit: tightest.limit, Remaining: max(0, tightest.remaining), Reset: int64(math.Ceil(float64(tightest.grows) / 1e6)),
		ResetIn: int((tightest.grows - now + second - 1) / second), Window: tightest.window}
	if !j.admitted {
		j.wait = tightest.grows - now
		return j
	}

	m.admitted, m.last, m.debt = append(m.admitted, now), now, debt

	return j
}

// opinion is what one window, or the bucket, makes of a request.
type opinion struct {
	limit, window, remaining int // remaining -1: refused
	grows                    int64
}

func (m *bruteForce) askWindows(now int64) (opinions []opinion) {
	for _, w := range m.windows() {
		if w.Count == 0 {
			continue
		}

		span := int64(w.Seconds) * second
		inside := m.since(now - span)
		n := len(inside)
		switch {
		case n >= w.Count:
			opinions = append(opinions, opinion{w.Count, w.Seconds, -1, inside[n-w.Count] + span})
		case n == 0:
			opinions = append(opinions, opinion{w.Count, w.Seconds, w.Count - 1, now + span})
		default:
			opinions = append(opinions, opinion{w.Count, w.Seconds, w.Count - n - 1, inside[0] + span})
		}
	}

	return opinions
}

// since are the admissions after a time.
func (m *bruteForce) since(horizon int64) []int64 {
	first := len(m.admitted)
	for first > 0 && m.admitted[first-1] > horizon {
		first--
	}
	return m.admitted[first:]
}

func (m *bruteForce) drawToPresent(now int64) {
	for i, t := range m.admitted {
		m.admitted[i] = min(t, now)
	}
	m.last = now
}

// change takes new limits at a time. Of a bucket as many requests stay owed as the
// rate so far has left.
func (m *bruteForce) change(limit delivery.EndpointLimit, now int64) {
	if m.bucket() {
		m.debt = max(0, m.debt-max(0, now-m.last)*int64(m.limit.Sustained.Count))
		was, is := int64(m.limit.Sustained.Seconds), int64(limit.Sustained.Seconds)
		m.debt = (m.debt*is + was - 1) / was
		m.last = max(m.last, now)
	}
	m.limit = limit
}

// draws is where a sequence of steps gets its choices from.
type draws func(low, high int) int

func drawLimit(draw draws, e limits.Endpoint) delivery.EndpointLimit {
	seconds := func(most int) int { // at times an hour or three
		if draw(0, 4) == 0 {
			most = 10_000
		}
		return draw(1, most)
	}

	var l delivery.EndpointLimit
	if e == limits.EndpointStores {
		l.Sustained = delivery.Window{Count: draw(1, 13), Seconds: seconds(20)}
		l.Burst = delivery.Window{Count: draw(1, 40), Seconds: seconds(10)}
		return l
	}

	l.Sustained = delivery.Window{Count: draw(1, 60), Seconds: seconds(60)}
	if draw(0, 3) > 0 {
		l.Burst = delivery.Window{Count: draw(1, 30), Seconds: seconds(20)}
	}

	return l
}

// later is when the next request comes, after a step of a kind from 0 to 99.
func (m *bruteForce) later(draw draws, kind int, now int64) int64 {
	switch {
	case kind < 55:
		return now + int64(draw(0, 3000))
	case kind < 85:
		return now + int64(draw(0, int(3*second)))
	case kind < 90:
		return now + int64(draw(0, int(70*second)))
	case kind < 93:
		return now - int64(draw(0, int(second)))
	case kind < 95:
		return now - int64(draw(int(second), int(200*second)))
	case kind < 96:
		return now + int64(draw(0, int(4000*second)))
	}

	return max(now, m.last+int64(m.limit.Sustained.Seconds)*second) // the very end of a window
}

// compareWithModel plays steps against the scripts and the model, and tells the
// first difference. Steps are requests after pauses from nothing to longer than
// any window, the very ends of windows, changed limits, and clocks that go back.
func compareWithModel(tb testing.TB, l *Ledger, draw draws, steps int) error {
	e := []limits.Endpoint{limits.EndpointOrders, limits.EndpointStores, limits.EndpointToken}[draw(0, 2)]
	m := &bruteForce{endpoint: e, limit: drawLimit(draw, e)}
	account := delivery.NewAccountID()
	write := func(mode string) {
		a := &delivery.Account{ID: account}
		for _, into := range []*delivery.EndpointLimit{&a.Limits.Orders, &a.Limits.Stores, &a.Limits.Token} {
			*into = m.limit
		}
		must(tb, l.Accounts.WriteAccount(tb.Context(), mode, a, ""))
	}

	write("create")
	// Rings expire by the server's own clock, so the test's must be ahead of it.
	now := 4_000_000_000*second + int64(draw(0, 999_999))
	for step := range steps {
		if kind := draw(0, 99); kind >= 96 && kind < 99 {
			l.setClock(tb, now)
			m.change(drawLimit(draw, e), now)
			write("update")
		} else {
			now = m.later(draw, kind, now)
		}

		l.setClock(tb, now)
		// What operators see is compared before and after some of the requests.
		look := draw(0, 3) == 0
		if look {
			if err := m.compareUsage(tb, l, account, now, nil); err != nil {
				return fmt.Errorf("before step %d: %w", step, err)
			}
		}

		want := m.request(now)
		got, err := l.Limits.Consume(tb.Context(), account, e)
		refusal, refused := err.(*delivery.Error)
		require(tb, err == nil || refused, "%v", err)
		if refused == want.admitted {
			return fmt.Errorf("step %d: admitted %v, the model says %v", step, !refused, want.admitted)
		}
		if got != want.quota {
			return fmt.Errorf("step %d (admitted %v): quota %+v, the model says %+v", step, want.admitted, got, want.quota)
		}

		if refused {
			if wait := (want.wait + 999) / 1000; refusal.RetryAfter.Milliseconds() != max(1, wait) {
				return fmt.Errorf("step %d: wait %s, the model says %d ms", step, refusal.RetryAfter, wait)
			}
		}

		if look {
			if err := m.compareUsage(tb, l, account, now, &got); err != nil {
				return fmt.Errorf("after step %d: %w", step, err)
			}
		}
	}

	return nil
}

//rule:limits/post-orders limits/get-orders-id limits/post-orders-id-cancel limits/put-stores-id limits/post-token limits/rules/2
//rule:limits-and-idempotency/per-account-and-endpoint-an limits-and-idempotency/post-orders limits-and-idempotency/put-stores
//rule:limits-and-idempotency/every-request-of-an-authenticated limits-and-idempotency/headers-on-every-such-response
func TestLimits_AgreeWithBruteForce(t *testing.T) {
	must(t, playSequences(t, openTest(t)))
}

// playSequences compares as many sequences as a mutant may take to be found.
func playSequences(t *testing.T, l *Ledger) error {
	t.Helper()
	sequences := 20
	if testserver.Long {
		sequences = 200
	}

	draw := drawFrom(testserver.Seed(t))
	for n := range sequences {
		if err := compareWithModel(t, l, draw, 300); err != nil {
			return fmt.Errorf("sequence %d: %w", n, err)
		}
	}

	return nil
}

func drawFrom(seed uint64) draws {
	random := rand.New(rand.NewPCG(seed, 2))
	return func(low, high int) int { return low + random.IntN(high-low+1) }
}

// What was admitted before a change counts after it, whatever the windows are then,
// and nothing else does.
//
//rule:limits-and-idempotency/the-clock-is-redis-s-own
func TestLimits_ChangedWindowsCountWhatWasAdmitted(t *testing.T) {
	window := func(count, seconds int) delivery.Window { return delivery.Window{Count: count, Seconds: seconds} }
	only := func(count, seconds int) delivery.EndpointLimit {
		return delivery.EndpointLimit{Sustained: window(count, seconds)}
	}
	for name, c := range map[string]struct {
		endpoint      limits.Endpoint
		before, after delivery.EndpointLimit
		sent          map[int]int // requests by the second; all are admitted
		changed       int         // the second
		want          map[int]int // how many more are admitted in a second, when all are tried
	}{
		"longer":            {limits.EndpointOrders, only(10, 1), only(10, 60), map[int]int{0: 10}, 2, map[int]int{2: 0, 59: 0, 60: 10}},
		"longer, half used": {limits.EndpointOrders, only(10, 1), only(10, 60), map[int]int{0: 4, 30: 3}, 40, map[int]int{40: 3, 60: 4, 90: 3}},
		"a day":             {limits.EndpointToken, only(40, 1), only(100, 86_400), map[int]int{0: 40, 3600: 40, 7200: 10}, 80_000, map[int]int{80_000: 10, 86_400: 40, 90_000: 40}},
		"more than it held": {limits.EndpointOrders, only(3, 1), only(100, 3600), map[int]int{0: 3, 10: 3, 20: 3, 30: 3}, 40, map[int]int{40: 88, 3600: 3, 3610: 3}},
		"shorter":           {limits.EndpointOrders, only(10, 60), only(10, 5), map[int]int{0: 10}, 4, map[int]int{4: 0, 5: 10}},
		"lower":             {limits.EndpointCancel, only(50, 60), only(5, 60), map[int]int{0: 20, 30: 4}, 31, map[int]int{31: 0, 60: 1, 90: 4}},
		"higher":            {limits.EndpointCancel, only(5, 60), only(50, 60), map[int]int{0: 5}, 1, map[int]int{1: 45, 60: 5}},
		"a burst is added": {limits.EndpointOrderStatus, only(50, 60), delivery.EndpointLimit{Sustained: window(50, 60), Burst: window(20, 30)},
			map[int]int{0: 18}, 20, map[int]int{20: 2, 30: 18, 50: 2}},
		"only the burst is longer": {limits.EndpointOrders, delivery.EndpointLimit{Sustained: window(50, 60), Burst: window(10, 1)},
			delivery.EndpointLimit{Sustained: window(50, 60), Burst: window(10, 20)}, map[int]int{0: 10}, 2, map[int]int{2: 0, 20: 10}},
		"a bucket that refilled slowly": {limits.EndpointStores, delivery.EndpointLimit{Sustained: window(1, 60), Burst: window(50, 1)},
			delivery.EndpointLimit{Sustained: window(60, 60), Burst: window(50, 1)}, map[int]int{0: 50}, 120, map[int]int{120: 2, 130: 10}},
		"a bucket that refilled quickly": {limits.EndpointStores, delivery.EndpointLimit{Sustained: window(60, 60), Burst: window(50, 1)},
			delivery.EndpointLimit{Sustained: window(1, 60), Burst: window(50, 1)}, map[int]int{0: 50}, 100, map[int]int{100: 50, 159: 0, 160: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			l := openTest(t)
			bounds := delivery.DefaultLimits()
			of := map[limits.Endpoint]*delivery.EndpointLimit{limits.EndpointOrders: &bounds.Orders, limits.EndpointOrderStatus: &bounds.OrderStatus,
				limits.EndpointCancel: &bounds.Cancel, limits.EndpointStores: &bounds.Stores, limits.EndpointToken: &bounds.Token}[c.endpoint]
			*of = c.before
			id := newAccount(t, l, bounds)
			start := 4_000_000_000 * second
			try := func(at, most int) (admitted int) {
				l.setClock(t, start+int64(at)*second)
				for range most {
					if _, err := l.Limits.Consume(t.Context(), id, c.endpoint); err == nil {
						admitted++
					}
				}
				return admitted
			}

			for _, at := range slices.Sorted(maps.Keys(c.sent)) {
				if n := try(at, c.sent[at]); n != c.sent[at] {
					t.Fatalf("%d of %d admitted after %d s", n, c.sent[at], at)
				}
			}

			l.setClock(t, start+int64(c.changed)*second)
			*of = c.after
			get(l.Accounts.Update(t.Context(), id, func(a *delivery.Account) error { a.Limits = bounds; return nil }))(t)
			for _, at := range slices.Sorted(maps.Keys(c.want)) {
				if n := try(at, 200); n != c.want[at] {
					t.Errorf("%d admitted after %d s, want %d", n, at, c.want[at])
				}
			}
		})
	}
}

// The log holds no more than the windows in force and 16,384 admissions, whoever
// sends how many, and begins small again once it has expired.
func TestRing_LogIsBounded(t *testing.T) {
	l := openTest(t, func(c *core.Config) {
		c.Edit = func(file, text string) string {
			if file == "window" {
				require(t, strings.Contains(text, ", 16384"), "window.lua has another bound")
			}
			return strings.Replace(text, ", 16384", ", 64", 1)
		}
	})

	bounds := plenty()
	bounds.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 50, Seconds: 1}}
	bounds.Cancel = delivery.EndpointLimit{Sustained: delivery.Window{Count: 200, Seconds: 10}}
	id := newAccount(t, l, bounds)
	now := 4_000_000_000 * second
	send := func(e limits.Endpoint, n int) (admitted int) {
		for range n {
			now += second / 40
			l.setClock(t, now)
			if _, err := l.Limits.Consume(t.Context(), id, e); err == nil {
				admitted++
			}
		}
		return admitted
	}

	log := func(e limits.Endpoint) string { return limits.WindowsKey(l.core.PartitionOf(id), e, id) + "l" }
	size := func(e limits.Endpoint) int64 { return l.core.Redis.StrLen(t.Context(), log(e)).Val() }
	check(t, send(limits.EndpointOrders, 500) == 500, "refused within the window")
	check(t, size(limits.EndpointOrders) == 64*7, "the log takes %d bytes", size(limits.EndpointOrders))
	must(t, l.core.Redis.Del(t.Context(), log(limits.EndpointOrders)).Err())
	send(limits.EndpointOrders, 20)
	check(t, size(limits.EndpointOrders) == 16*7, "a new log takes %d bytes", size(limits.EndpointOrders))

	check(t, send(limits.EndpointCancel, 400) == 200, "a window larger than the bound forgets")
	check(t, size(limits.EndpointCancel) == 256*7, "the log of a large window takes %d bytes", size(limits.EndpointCancel))
}

// A client that goes on while it is refused is admitted when its window has room
// again: what was refused has not been counted, by no operation that has a limit.
//
//rule:limits-and-idempotency/every-request-of-an-authenticated
func TestRefusals_AreNotCounted(t *testing.T) {
	two := delivery.EndpointLimit{Sustained: delivery.Window{Count: 2, Seconds: 60}}
	unknown := delivery.MakeOrderID(0, delivery.DayOf(time.Now()), [delivery.OrderDigestSize]byte{1})
	for name, call := range map[string]func(s *env, n int) error{
		"create": func(s *env, n int) error { return errOf(s.Orders.Create(t.Context(), s.creation(fmt.Sprint(n), ""))) },
		"poll":   func(s *env, _ int) error { return errOf(s.Orders.Poll(t.Context(), s.account, unknown)) },
		"cancel": func(s *env, _ int) error {
			return errOf(s.Orders.Cancel(t.Context(), s.account, unknown, "", "", time.Now()))
		},
		"token": func(s *env, _ int) error { return errOf(s.Limits.CountToken(t.Context(), s.account, testHash)) },
		"consume": func(s *env, _ int) error {
			return errOf(s.Limits.Consume(t.Context(), s.account, limits.EndpointOrders))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error {
				a.Limits = delivery.Limits{Orders: two, OrderStatus: two, Cancel: two, Token: two, Stores: a.Limits.Stores}
				return nil
			}))(t)

			start := time.Now().UnixMicro()
			for n, at := range []int64{0, 0, 30, 40, 59, 60, 60} {
				s.setClock(t, start+at*second)
				limited := delivery.CodeOf(call(s, n)) == delivery.CodeRateLimited
				if want := at > 0 && at < 60; limited != want {
					t.Errorf("request %d after %d s: limited %v", n, at, limited)
				}
			}
		})
	}
}

// The log is kept a little longer than the longest window that can be set, also when
// it was about to expire; without it an account goes on.
func TestRing_LogOutlivesItsWindows(t *testing.T) {
	s := newEnv(t)
	log := limits.WindowsKey(s.core.PartitionOf(s.account), limits.EndpointCancel, s.account) + "l"
	admit := func() {
		t.Helper()
		get(s.Limits.Consume(t.Context(), s.account, limits.EndpointCancel))(t)
	}

	outlives := func() {
		t.Helper()
		day, ttl := delivery.MaxWindowSeconds*time.Second, s.core.Redis.PTTL(t.Context(), log).Val()
		check(t, ttl >= day && ttl <= day+2*time.Minute, "the log is kept for %s", ttl)
	}

	for range 20 {
		admit()
	}

	outlives()
	must(t, s.core.Redis.PExpire(t.Context(), log, 2*time.Minute).Err())
	get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error {
		a.Limits.Cancel.Sustained = delivery.Window{Count: 1000, Seconds: 3600}
		return nil
	}))(t)

	outlives()
	must(t, s.core.Redis.Del(t.Context(), log).Err())
	for range 20 {
		admit()
	}
}

// used is what each limit holds at a time, spelled out. Nothing is drawn to the
// present for it.
func (m *bruteForce) used(now int64) (sustained, burst int) {
	if m.last > now && m.last-now <= second {
		now = m.last
	}

	var inside [2]int
	for i, w := range m.windows() {
		if w.Count > 0 {
			inside[i] = len(m.since(now - int64(w.Seconds)*second))
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
func (m *bruteForce) compareUsage(tb testing.TB, l *Ledger, account delivery.AccountID, now int64, answered *limits.Quota) error {
	tb.Helper()
	uses := get(l.Limits.Usage(tb.Context(), []delivery.AccountID{account}))(tb)
	use := uses[0][m.endpoint]
	sustained, burst := m.used(now)
	if use.Endpoint != m.endpoint || use.Sustained.Used != sustained || use.Burst.Used != burst {
		return fmt.Errorf("usage %+v, the model says %d and %d", use, sustained, burst)
	}
	if answered == nil {
		return nil
	}

	left := use.Sustained.Window.Count - use.Sustained.Used
	if use.Burst.Window.Count > 0 {
		left = min(left, use.Burst.Window.Count-use.Burst.Used)
	}

	if max(0, left) != answered.Remaining {
		return fmt.Errorf("usage %+v leaves %d, the request's answer said %d", use, left, answered.Remaining)
	}

	return nil
}

func TestUsage_ShowsTheLimitsOfEveryEndpoint(t *testing.T) {
	l := openTest(t)
	bounds := delivery.DefaultLimits()
	id, other := newAccount(t, l, bounds), newAccount(t, l, bounds)
	l.setClock(t, 4_000_000_000*second)
	for e := range limits.Endpoints {
		for range e + 2 {
			get(l.Limits.Consume(t.Context(), id, e))(t)
		}
	}

	uses := get(l.Limits.Usage(t.Context(), []delivery.AccountID{other, delivery.NewAccountID(), id}))(t)
	require(t, len(uses) == 3 && uses[1] == nil && len(uses[0]) == 5 && len(uses[2]) == 5, "%+v", uses)
	want := []limits.EndpointUse{
		{Endpoint: limits.EndpointOrders, Sustained: limits.WindowUse{Window: bounds.Orders.Sustained, Used: 2}, Burst: limits.WindowUse{Window: bounds.Orders.Burst, Used: 2}},
		{Endpoint: limits.EndpointOrderStatus, Sustained: limits.WindowUse{Window: bounds.OrderStatus.Sustained, Used: 3}, Burst: limits.WindowUse{}},
		{Endpoint: limits.EndpointCancel, Sustained: limits.WindowUse{Window: bounds.Cancel.Sustained, Used: 4}, Burst: limits.WindowUse{}},
		// 200 requests that are paid off at one a second.
		{Endpoint: limits.EndpointStores, Sustained: limits.WindowUse{Window: delivery.Window{Count: 200, Seconds: 200}, Used: 5}, Burst: limits.WindowUse{Window: bounds.Stores.Burst, Used: 5}},
		{Endpoint: limits.EndpointToken, Sustained: limits.WindowUse{Window: bounds.Token.Sustained, Used: 6}, Burst: limits.WindowUse{}},
	}

	names := []string{"orders", "orderStatus", "cancel", "stores", "token"}
	for i, w := range want {
		check(t, uses[2][i] == w, "%s: %+v, want %+v", w.Endpoint, uses[2][i], w)
		w.Sustained.Used, w.Burst.Used = 0, 0
		check(t, uses[0][i] == w, "%s of an idle account: %+v", w.Endpoint, uses[0][i])
		check(t, w.Endpoint.String() == names[i], "endpoint %d is called %s", i, w.Endpoint)
	}

	check(t, limits.Endpoints.String() == "Endpoint(5)", "%v", limits.Endpoints.String())
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
			get(l.Limits.Consume(t.Context(), id, limits.EndpointCancel))(t)
		}

		get(l.Accounts.Update(t.Context(), id, func(a *delivery.Account) error { a.Limits.Cancel.Sustained.Seconds = 10; return nil }))(t)
		l.setClock(t, last-c.back)
		uses := get(l.Limits.Usage(t.Context(), []delivery.AccountID{id}))(t)
		quota := get(l.Limits.Consume(t.Context(), id, limits.EndpointCancel))(t)
		if used := uses[0][limits.EndpointCancel].Sustained.Used; used != quota.Limit-quota.Remaining-1 {
			t.Errorf("%d us back: %d used, and after one more request %d of %d remain", c.back, used, quota.Remaining, quota.Limit)
		}
	}
}

func TestUsage_OfNobodyIsNothing(t *testing.T) {
	uses := get(openTest(t).Limits.Usage(t.Context(), nil))(t)
	check(t, len(uses) == 0, "%+v", uses)
}

func TestUsage_WritesNothing(t *testing.T) {
	s := newEnv(t)
	ring := limits.WindowsKey(s.core.PartitionOf(s.account), limits.EndpointOrders, s.account)
	now := 4_000_000_000 * second
	s.setClock(t, now)
	for range 40 {
		get(s.Limits.Consume(t.Context(), s.account, limits.EndpointOrders))(t)
	}

	dump := func() string {
		return s.core.Redis.Dump(t.Context(), ring).Val() + s.core.Redis.Dump(t.Context(), ring+"l").Val()
	}
	before := dump()
	for _, at := range []int64{now, now - second/2, now - 500*second, now + 59*second, now + 61*second} {
		s.setClock(t, at)
		uses := get(s.Limits.Usage(t.Context(), []delivery.AccountID{s.account}))(t)
		want := 40
		if at > now+60*second {
			want = 0
		}
		got := uses[0][limits.EndpointOrders].Sustained.Used
		check(t, got == want, "%d used %d s later, want %d", got, (at-now)/second, want)
	}

	check(t, dump() == before, "the ring was changed")
	writing := openTest(t, func(c *core.Config) {
		c.Edit = func(file, text string) string {
			if file == "usage" {
				text = "call('SET', KEYS[1], '')\n" + text
			}
			return text
		}
	})

	check(t, errOf(writing.Limits.Usage(t.Context(), []delivery.AccountID{newAccount(t, writing, plenty())})) != nil, "a usage script that writes is let pass")
}

// Without its log a ring counts what is in its head; a limit that was lowered is
// shown as exceeded.
func TestUsage_ExpiredLogAndLoweredLimit(t *testing.T) {
	s := newEnv(t)
	s.setClock(t, 4_000_000_000*second)
	for range 20 {
		get(s.Limits.Consume(t.Context(), s.account, limits.EndpointCancel))(t)
	}

	use := func() limits.WindowUse {
		t.Helper()
		uses := get(s.Limits.Usage(t.Context(), []delivery.AccountID{s.account}))(t)
		return uses[0][limits.EndpointCancel].Sustained
	}

	lower := delivery.Window{Count: 5, Seconds: 60}
	get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error { a.Limits.Cancel.Sustained = lower; return nil }))(t)
	equal(t, use(), (limits.WindowUse{Window: lower, Used: 20}), "got")
	must(t, s.core.Redis.Del(t.Context(), limits.WindowsKey(s.core.PartitionOf(s.account), limits.EndpointCancel, s.account)+"l").Err())
	s.setClock(t, 4_000_000_059*second)
	if got := use(); got.Used != 20 {
		t.Errorf("%+v without the log, within the window", got)
	}

	s.setClock(t, 4_000_000_061*second)
	if got := use(); got.Used != 0 {
		t.Errorf("%+v without the log, behind the window", got)
	}
}

func TestUsage_RedisUnavailable(t *testing.T) {
	l := openTest(t)
	id := newAccount(t, l, plenty())
	_, err := l.Limits.Usage(overContext(t), []delivery.AccountID{id})
	check(t, errors.Is(err, delivery.ErrUnavailable), "got %v", err)
}

// overContext is one that is over: with it Redis does not answer.
func overContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
