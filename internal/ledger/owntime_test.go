package ledger

import (
	"regexp"
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
	check(t, ahead >= 50*time.Second && ahead <= 70*time.Second, "reset is %s ahead", ahead)
	_, err := l.Consume(t.Context(), id, EndpointOrders)
	check(t, delivery.CodeOf(err) == delivery.CodeRateLimited, "the second: %v", err)
}

// One reading of the clock per call: two could lie on two sides of an edge.
//
//rule:limits-and-idempotency/the-clock-is-redis-s-own
func TestClock_IsReadOncePerScript(t *testing.T) {
	files := get(luaFiles.ReadDir("lua"))(t)
	comment, reading := regexp.MustCompile(`--.*`), regexp.MustCompile(`(^|[^_\w])clock\(\)`)
	times := 0
	for _, f := range files {
		source := get(luaFiles.ReadFile("lua/" + f.Name()))(t)
		code := comment.ReplaceAllString(string(source), "")
		if f.Name() == "clock.lua" {
			code = strings.Replace(code, "local function clock()", "", 1)
			times += strings.Count(code, "'TIME'")
		} else if strings.Contains(code, "'TIME'") {
			t.Errorf("%s asks for the time past clock()", f.Name())
		}
		n := len(reading.FindAllString(code, -1))
		check(t, n <= 1, "%s reads the clock %d times", f.Name(), n)
	}
	check(t, times == 1, "clock.lua asks for the time %d times", times)
}
