//go:build long

package ledger

import (
	"strings"
	"testing"

	"vendorapi/internal/ledger/core"
)

// gcra is what a limiter of the usual kind would do in place of the log.
const gcra = `
local function check_window(count, span, tail, at)
  local each, now = span / count, decided
  local key = windows_key .. ':gcra' .. span
  local full = math.max(tonumber(redis.call('GET', key) or 0), now) + each
  if full - now > span then return -1, full - span end
  redis.call('SET', key, string.format('%.0f', full))
  return math.floor((span - (full - now)) / each), now + each
end
local function check_bucket`

// TestLimits_MutantsAreFound proves that the comparison with brute force can fail.
func TestLimits_MutantsAreFound(t *testing.T) {
	for name, mutate := range map[string]struct{ from, to string }{
		"one too many":              {"local inside = admitted - tail", "local inside = admitted - tail - 1"},
		"one too few":               {"if inside >= count then", "if inside >= count - 1 then"},
		"closed window":             {"if tail >= admitted or at > horizon then", "if tail >= admitted or at >= horizon then"},
		"gcra":                      {"local function check_bucket", gcra},
		"second window forgotten":   {"if count2 > 0 then\n    local span", "if false then\n    local span"},
		"future kept":               {"if last - now > 1000000 then clamp_future(now)", "if false then clamp_future(now)"},
		"log does not grow":         {"capacity < KEPT and", "capacity < RECENT and"},
		"log keeps a minute":        {"> decided - DAY do grow", "> decided - 60000000 do grow"},
		"laps change places":        {"odd and lap .. before or before .. lap", "odd and before .. lap or lap .. before"},
		"tails stay in the future":  {"  find_tails(now)\n  windows_value", "  windows_value"},
		"bucket refills too fast":   {"local cost = seconds1 * 1000000", "local cost = seconds1 * 900000"},
		"tail not kept":             {"tail1, tail2, last, at1, at2, decided)", "0, 0, last, at1, at2, decided)"},
		"log forgotten":             {"* ENTRY, recent)", "* ENTRY, '')"},
		"log in the wrong order":    {"(capacity - 1 - index % capacity) * ENTRY\n", "(index % capacity) * ENTRY\n"},
		"recent in the wrong order": {"(admitted - 1 - index) * ENTRY", "(index - logged) * ENTRY"},
	} {
		t.Run(name, func(t *testing.T) { findMutant(t, "window", mutate.from, mutate.to) })
	}
}

func TestLimits_MutantsOfAChangeAreFound(t *testing.T) {
	for name, mutate := range map[string]struct{ from, to string }{
		"tails stay":             {"  find_tails(now)\n", ""},
		"shorter window's tails": {"  find_tails(now)\n", "  seconds1 = 0 find_tails(now) seconds1 = parse('>I4', limits, 6)\n"},
		"debt by the new rate":   {"at1 = max(0, at1 - max(0, now - last) * count1)\n    last = max(last, now)", ""},
		"debt paid twice":        {"    last = max(last, now)\n", ""},
		"debt in the old unit":   {"ceil(at1 * seconds1 / before)", "at1"},
	} {
		t.Run(name, func(t *testing.T) { findMutant(t, "write_account", mutate.from, mutate.to) })
	}
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

func findMutant(t *testing.T, script, from, to string) {
	t.Helper()
	l := openTest(t, func(c *core.Config) {
		c.Edit = func(file, text string) string {
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
