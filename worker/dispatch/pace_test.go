package dispatch

import (
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/ledger/partitions"
)

// Whatever a receiver answers, it never has more sends in flight than it may, none during a pause, and one while its
// breaker is open; and there is always a time at which the next may go.
func TestPace_HoldsItsLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const usualLimit, threshold = 4, 3
		p := &pace{ownLimits: partitions.EndpointLimits{
			InFlight:  rapid.IntRange(0, 6).Draw(rt, "own limit"),
			PerSecond: rapid.SampledFrom([]int{0, 1, 50}).Draw(rt, "own rate"),
		}}

		limit := usualLimit
		if p.ownLimits.InFlight > 0 {
			limit = p.ownLimits.InFlight
		}

		now := int64(moment)

		rt.Repeat(map[string]func(*rapid.T){
			"wait": func(rt *rapid.T) {
				now += rapid.SampledFrom([]int64{1, 20, 1000, 30_000, 4_000_000}).Draw(rt, "wait")
			},
			"send": func(*rapid.T) {
				if p.nextAt(now, usualLimit) <= now {
					p.sendBegins(now)
				}
			},
			"answer": func(rt *rapid.T) {
				if p.inFlight == 0 {
					return
				}

				p.sendEnds()
				if rapid.Bool().Draw(rt, "succeeds") {
					p.breaker.succeed(now)
				} else {
					pause := rapid.SampledFrom([]int64{0, 1, 60_000, 90_000_000}).Draw(rt, "pause")
					p.breaker.fail(now, pause, threshold, never)
				}
			},
			"": func(rt *rapid.T) {
				next := p.nextAt(now, usualLimit)
				state := p.breaker.state(now)
				switch {
				case p.inFlight > limit:
					rt.Fatalf("%d sends are in flight of %d", p.inFlight, limit)
				case next <= now && p.breaker.Hold > now:
					rt.Fatalf("an event may go at %d, during a pause until %d", next, p.breaker.Hold)
				case next < never && state == breakerOpen && p.inFlight > 0:
					rt.Fatalf("a second probe may go")
				case next == never && p.inFlight == 0:
					rt.Fatalf("nothing may ever go")
				case next < never && next > now+longPause+1000:
					rt.Fatalf("the next may go in %d ms", next-now)
				}
			},
		})
	})
}

func TestPace_SaysWhatIsWorthHavingInMemory(t *testing.T) {
	const most = 512
	for name, c := range map[string]struct {
		pace pace
		want int
	}{
		"no limit":                 {pace{}, most},
		"a pace of its own":        {pace{ownLimits: partitions.EndpointLimits{PerSecond: 20}}, 20 * secondsAhead},
		"a slow pace":              {pace{ownLimits: partitions.EndpointLimits{PerSecond: 1}}, leastAhead},
		"a fast pace":              {pace{ownLimits: partitions.EndpointLimits{PerSecond: 5000}}, most},
		"recovering":               {pace{breaker: breaker{Rate: firstRate}}, firstRate * secondsAhead},
		"on hold":                  {pace{breaker: breaker{Rate: 100, Hold: moment + 1}}, 0},
		"the breaker is open":      {pace{breaker: breaker{Open: true}}, 1},
		"open, and a probe is due": {pace{breaker: breaker{Open: true, Hold: moment - 1}}, 1},
	} {
		got := c.pace.useful(moment, most)
		if got != c.want {
			t.Errorf("%s: %d events, want %d", name, got, c.want)
		}
	}
}
