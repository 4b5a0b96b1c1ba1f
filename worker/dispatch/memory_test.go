package dispatch

import (
	"testing"

	"pgregory.net/rapid"
)

// However many endpoints take what they can get, the budget is exceeded by their first events only, and each of
// them gets one.
func TestMemory_IsSharedAndBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const bytes = 1000
		events := rapid.Int64Range(1, 2000).Draw(rt, "events of the budget")
		m := &memory{budget: events * bytes}
		held := make([]int64, rapid.IntRange(1, 500).Draw(rt, "endpoints"))

		for isAnyFed := true; isAnyFed; {
			isAnyFed = false
			for i := range held {
				if m.fits(bytes, held[i]) {
					m.take(bytes)
					held[i] += bytes
					isAnyFed = true
				}
			}
		}

		firstEvents := int64(len(held)) * bytes
		if used := m.used.Load(); used > max(m.budget, firstEvents) {
			rt.Fatalf("%d bytes are used, of a budget of %d for %d endpoints", used, m.budget, len(held))
		}

		for i := range held {
			if held[i] == 0 {
				rt.Fatalf("endpoint %d of %d has nothing", i, len(held))
			}
		}
	})
}
