package ledger

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

const second = int64(1_000_000)

// bruteForce is what the limits mean, spelled out: every admission of every
// window is kept, and counted anew for each request.
type bruteForce struct {
	endpoint Endpoint
	limit    delivery.EndpointLimit
	last     int64
	live     [2][]int64 // admissions that each window still counts
	debt     int64      // of a bucket, at last: microseconds x refill count
}

func (m *bruteForce) bucket() bool { return m.endpoint == EndpointStores }

func (m *bruteForce) windows() [2]delivery.Window {
	if m.bucket() {
		return [2]delivery.Window{{}, m.limit.Burst}
	}
	return [2]delivery.Window{m.limit.Sustained, m.limit.Burst}
}

type judgement struct {
	admitted bool
	quota    Quota
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
	opinions, kept := m.askWindows(now)
	debt := int64(0)
	if m.bucket() {
		refill, cost := int64(m.limit.Sustained.Count), int64(m.limit.Sustained.Seconds)*second
		debt = max(0, m.debt-(now-m.last)*refill) + cost
		remaining, owed := -1, debt-int64(m.limit.Burst.Count)*cost
		for owed <= 0 {
			remaining++
			owed += cost
		}
		opinions = append(opinions, opinion{m.limit.Burst.Count, remaining, now + (owed+refill-1)/refill})
	}
	tightest := opinions[0]
	for _, o := range opinions[1:] {
		if o.remaining < tightest.remaining || o.remaining == tightest.remaining && o.grows > tightest.grows {
			tightest = o
		}
	}
	j := judgement{admitted: tightest.remaining >= 0}
	j.quota = Quota{Limit: tightest.limit, Remaining: max(0, tightest.remaining), Reset: int64(math.Ceil(float64(tightest.grows) / 1e6))}
	if !j.admitted {
		j.wait = tightest.grows - now
		return j
	}
	for i, w := range m.windows() {
		m.live[i] = nil
		if w.Count > 0 {
			m.live[i] = append(kept[i], now)
		}
	}
	m.last, m.debt = now, debt
	return j
}

// opinion is what one window, or the bucket, makes of a request.
type opinion struct {
	limit, remaining int // remaining -1: refused
	grows            int64
}

// askWindows also tells which admissions each window still counts.
func (m *bruteForce) askWindows(now int64) (opinions []opinion, kept [2][]int64) {
	kept = m.live
	for i, w := range m.windows() {
		if w.Count == 0 {
			continue
		}
		kept[i] = nil
		for _, t := range m.live[i] {
			if t > now-int64(w.Seconds)*second {
				kept[i] = append(kept[i], t)
			}
		}
		span := int64(w.Seconds) * second
		switch inside := len(kept[i]); {
		case inside >= w.Count:
			opinions = append(opinions, opinion{w.Count, -1, kept[i][inside-w.Count] + span})
		case inside == 0:
			opinions = append(opinions, opinion{w.Count, w.Count - 1, now + span})
		default:
			opinions = append(opinions, opinion{w.Count, w.Count - inside - 1, kept[i][0] + span})
		}
	}
	return opinions, kept
}

func (m *bruteForce) drawToPresent(now int64) {
	for i := range m.live {
		for k, t := range m.live[i] {
			m.live[i][k] = min(t, now)
		}
	}
	m.last = now
}

// change takes new limits: of a bucket, as many requests stay owed.
func (m *bruteForce) change(limit delivery.EndpointLimit) {
	was, is := int64(m.limit.Sustained.Seconds), int64(limit.Sustained.Seconds)
	m.debt = (m.debt*is + was - 1) / was
	m.limit = limit
}

// draws is where a sequence of steps gets its choices from.
type draws func(low, high int) int

func drawLimit(draw draws, e Endpoint) delivery.EndpointLimit {
	var l delivery.EndpointLimit
	if e == EndpointStores {
		l.Sustained = delivery.Window{Count: draw(1, 13), Seconds: draw(1, 20)}
		l.Burst = delivery.Window{Count: draw(1, 40), Seconds: draw(1, 10)}
		return l
	}
	l.Sustained = delivery.Window{Count: draw(1, 60), Seconds: draw(1, 60)}
	if draw(0, 3) > 0 {
		l.Burst = delivery.Window{Count: draw(1, 30), Seconds: draw(1, 20)}
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
	e := []Endpoint{EndpointOrders, EndpointStores, EndpointToken}[draw(0, 2)]
	m := &bruteForce{endpoint: e, limit: drawLimit(draw, e)}
	account := delivery.NewAccountID()
	write := func(mode string) {
		a := &delivery.Account{ID: account}
		for _, into := range []*delivery.EndpointLimit{&a.Limits.Orders, &a.Limits.Stores, &a.Limits.Token} {
			*into = m.limit
		}
		must(tb, l.writeAccount(tb.Context(), mode, account, "", a))
	}
	write("create")
	// Rings expire by the server's own clock, so the test's must be ahead of it.
	now := 4_000_000_000*second + int64(draw(0, 999_999))
	for step := range steps {
		if kind := draw(0, 99); kind == 96 {
			m.change(drawLimit(draw, e))
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
		got, err := l.Consume(tb.Context(), account, e)
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

// gcra is what a limiter of the usual kind would do in place of the log.
const gcra = `
local function judge_window(count, span, tail, at)
  local each, now = span / count, decided
  local key = ring_key .. ':gcra' .. span
  local full = math.max(tonumber(redis.call('GET', key) or 0), now) + each
  if full - now > span then return -1, full - span end
  redis.call('SET', key, string.format('%.0f', full))
  return math.floor((span - (full - now)) / each), now + each
end
local function judge_bucket`

// TestLimits_MutantsAreFound proves that the comparison above can fail.
func TestLimits_MutantsAreFound(t *testing.T) {
	for name, mutate := range map[string]struct{ from, to string }{
		"one too many":              {"local inside = admitted - tail", "local inside = admitted - tail - 1"},
		"one too few":               {"if inside >= count then", "if inside >= count - 1 then"},
		"closed window":             {"if tail >= admitted or at > horizon then", "if tail >= admitted or at >= horizon then"},
		"gcra":                      {"local function judge_bucket", gcra},
		"second window forgotten":   {"if count2 > 0 then\n    local span", "if false then\n    local span"},
		"future kept":               {"if last - now > 1000000 then clamp_future(now)", "if false then clamp_future(now)"},
		"ring does not grow":        {"> capacity do grow() end", "> capacity * 1000 do grow() end"},
		"bucket refills too fast":   {"local cost = seconds1 * 1000000", "local cost = seconds1 * 900000"},
		"tail not kept":             {"tail1, tail2, last, at1, at2, decided)", "0, 0, last, at1, at2, decided)"},
		"log forgotten":             {"* ENTRY, recent)", "* ENTRY, '')"},
		"log in the wrong order":    {"(capacity - 1 - index % capacity) * ENTRY\n", "(index % capacity) * ENTRY\n"},
		"recent in the wrong order": {"(admitted - 1 - index) * ENTRY", "(index - logged) * ENTRY"},
	} {
		t.Run(name, func(t *testing.T) { findMutant(t, "window", mutate.from, mutate.to) })
	}
}

// findMutant expects the comparison to notice a changed script.
func findMutant(t *testing.T, script, from, to string) {
	t.Helper()
	l := openTest(t, func(c *Config) {
		c.edit = func(file, text string) string {
			if file != script {
				return text
			}
			require(t, strings.Contains(text, from), "%s.lua has no %q", script, from)
			return strings.Replace(text, from, to, 1)
		}
	})
	err := playSequences(t, l)
	check(t, err != nil, "the mutant was not found")
}

// The log lives a little longer than the longest window, also when the limits
// are changed to a longer one; without it an account goes on.
func TestRing_LogOutlivesItsWindows(t *testing.T) {
	s := newEnv(t)
	log := s.roomOf(s.account).ring(EndpointCancel, s.account) + "l"
	admit := func() {
		t.Helper()
		get(s.Consume(t.Context(), s.account, EndpointCancel))(t)
	}
	outlives := func(longest time.Duration) {
		t.Helper()
		ttl := s.rdb.PTTL(t.Context(), log).Val()
		check(t, ttl >= longest && ttl <= longest+2*time.Minute, "the log lives for %s, its windows for %s", ttl, longest)
	}
	for range 20 {
		admit()
	}
	outlives(time.Minute)
	_, err := s.UpdateAccount(t.Context(), s.account, func(a *delivery.Account) error {
		a.Limits.Cancel.Sustained = delivery.Window{Count: 1000, Seconds: 3600}
		return nil
	})
	must(t, err)
	outlives(time.Hour)
	must(t, s.rdb.Del(t.Context(), log).Err())
	for range 20 {
		admit()
	}
}
