package world

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A plan is what a seed has drawn for the whole life.
type plan struct {
	faults  faults
	skewed  bool // some gateways' clocks are wrong
	bursts  []burst
	outages int // in a hundred hours, of receivers that fail
}

// burst is a time in which people act; between two of them only time passes.
type burst struct {
	from, to time.Time
	gap      time.Duration // between two acts of one person, on average
}

// drawPlan draws few kinds of faults for each seed, and other rates: a life in which everything fails at the same
// rate shows less than one in which only replies are lost, but often.
func drawPlan(random *rand.Rand) plan {
	rate := func() int { return draw(random, []int{0, 0, 0, 2, 6, 20}) }
	p := plan{
		faults:  faults{lost: rate(), refused: rate(), held: rate(), twice: rate(), kill: draw(random, []int{0, 0, 2, 4}), slow: rate()},
		skewed:  percent(random, 30),
		outages: draw(random, []int{0, 20, 50, 80}),
	}

	if percent(random, 10) {
		p.faults = faults{}
	}

	at := began.Add(time.Hour)
	for range 3 + random.IntN(3) {
		length := time.Duration(20+random.IntN(60)) * time.Second
		gap := draw(random, []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 5 * time.Second})
		if gap < time.Second {
			length = min(length, 40*gap)
		}

		if percent(random, 25) { // somebody acts now and then for hours
			length, gap = time.Duration(1+random.IntN(3))*time.Hour, 10*time.Minute
		}

		p.bursts = append(p.bursts, burst{from: at, to: at.Add(length), gap: gap})
		rest := draw(random, []time.Duration{time.Minute, 20 * time.Minute, 2 * time.Hour, 8 * time.Hour})
		at = at.Add(length + rest/2 + time.Duration(random.Int64N(int64(rest))))
	}

	return p
}

func (p *plan) end() time.Time { return p.bursts[len(p.bursts)-1].to }

// nextAct returns how long somebody rests who has just acted.
func (p *plan) nextAct(random *rand.Rand) (wait time.Duration, over bool) {
	now := time.Now()
	i := slices.IndexFunc(p.bursts, func(b burst) bool { return now.Before(b.to) })
	if i < 0 {
		return 0, true
	}

	b := p.bursts[i]
	rest := time.Duration(random.Int64N(int64(2 * b.gap)))
	if now.Before(b.from) {
		return b.from.Sub(now) + rest, false
	}

	return rest, false
}

// isBusy reports whether people act at present.
func (p *plan) isBusy() bool {
	now := time.Now()
	return slices.ContainsFunc(p.bursts, func(b burst) bool { return !now.Before(b.from) && now.Before(b.to) })
}
