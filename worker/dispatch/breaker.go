package dispatch

import (
	"math"
	"time"

	"vendorapi/internal/ledger/partitions"
)

const (
	firstProbe, lastProbe = 1000, 30_000    // ms between probes, doubling
	firstRate, fullRate   = 10, 2000        // events per second
	shortPause, longPause = 1000, 3_600_000 // ms after 429, 502, 503, 504
)

// pingFor is how long an endpoint for which nothing waits is probed, in ms.
var pingFor = (72 * time.Hour).Milliseconds()

// A breaker keeps an endpoint's events from being sent as fast as they come. Its states are those of
// docs/webhook-states.md, "Breaker".
type breaker partitions.Breaker

// breakerState is derived from what is stored.
type breakerState byte

const (
	// breakerClosed: events go out as they come.
	breakerClosed breakerState = iota
	// breakerOnHold: the receiver has asked for a pause, and nothing is sent.
	breakerOnHold
	// breakerOpen: one event at a time goes out, as a probe, from Hold on.
	breakerOpen
	// breakerRecovering: events go out at a pace that grows.
	breakerRecovering
)

func (b *breaker) state(now int64) breakerState {
	switch {
	case b.Open:
		return breakerOpen
	case b.Hold > now:
		return breakerOnHold
	case b.Rate > 0:
		return breakerRecovering
	default:
		return breakerClosed
	}
}

// isFailing reports whether the last attempt of those that count has failed.
func (b *breaker) isFailing() bool { return b.Open || b.Failures > 0 }

// fail takes note of an attempt that failed. pause is how long the receiver asks to be left alone, in ms, 0 if it
// does not. threshold is how many failures in a row open the breaker. first is when the schedule's first event is
// due.
func (b *breaker) fail(now, pause int64, threshold int, first int64) {
	b.Failures = min(b.Failures, math.MaxUint16-1) + 1
	pause = min(pause, longPause)
	opens := int(b.Failures) >= threshold

	switch {
	case now < b.Hold && (b.Open || !opens):
		// What was in flight when the hold began says nothing new, but it may ask for longer.
		b.Hold = max(b.Hold, now+pause)
	case b.Open:
		b.Probes = min(b.Probes, math.MaxUint16-1) + 1
		b.planProbe(now, pause, first)
	case opens:
		b.Open, b.Probes, b.Since, b.Rate, b.Forward = true, 0, now, 0, 0
		b.planProbe(now, pause, first)
	case pause > 0: // one step down for all that were in flight
		if b.Rate > 0 {
			b.Rate = max(1, b.Rate/2)
		} else {
			b.Rate = firstRate
		}
		b.Calm, b.Hold = b.Rate, now+max(pause, shortPause)
	}
}

// planProbe sets the time of the next probe. It waits for an event that is due about then, so that a single one
// keeps to its schedule.
func (b *breaker) planProbe(now, pause, first int64) {
	gap := min(int64(lastProbe), firstProbe<<min(b.Probes, 5))
	at := now + max(gap, pause)
	isDueAboutThen := first > now && first <= at+gap && first >= now+pause
	if isDueAboutThen {
		at = max(first, now+firstProbe)
	}
	b.Hold = max(b.Hold, at) // opening does not shorten what was asked for
}

// succeed takes note of a success. After a hold the rate grows by ten for each second since the hold has ended, so
// that little traffic does not make the recovery last; otherwise by one for each success.
func (b *breaker) succeed(now int64) {
	if b.Open {
		b.startSlowly(now)
		return
	}

	b.Failures = 0
	switch {
	case b.Rate == 0:
		return
	case b.Calm > 0 && b.Rate >= b.Calm:
		b.Rate = max(b.Rate, b.Calm+float64(now-b.Hold)/100)
	default:
		b.Rate++
	}

	if b.Rate >= fullRate {
		b.Rate, b.Calm = 0, 0
	}
}

// startSlowly begins the recovery of a receiver that answers again, or of a new one with a backlog: it gets all of
// it, what was postponed by hours included.
func (b *breaker) startSlowly(now int64) {
	*b = breaker{Rate: firstRate, Forward: now, Since: b.Since}
}

// endRecovery is for when nothing waits. A pace that the receiver asked for stays.
func (b *breaker) endRecovery() {
	if !b.Open && b.Calm == 0 {
		b.Rate, b.Forward = 0, 0
	}
}

// lift ends a pause at once: somebody says that the receiver is repaired. An open breaker probes now.
func (b *breaker) lift(now int64) { b.Hold = min(b.Hold, now) }

// drawBack corrects times that were set by a clock that was ahead by so much.
func (b *breaker) drawBack(now, ahead int64) {
	b.Hold = drawnBack(b.Hold, now, ahead)
	b.Since, b.Forward = min(b.Since, now), min(b.Forward, now)
}

func drawnBack(at, now, ahead int64) int64 { return min(at, max(now, at-ahead)) }

// stored returns what is to be stored: the zero value when nothing is held back.
func (b *breaker) stored(now int64) breaker {
	holdsNothingBack := b.Hold <= now && !b.Open && b.Failures == 0 && b.Rate == 0 && b.Forward == 0
	if holdsNothingBack {
		return breaker{}
	}
	return *b
}

// turned reports whether more differs than the count of failures and the growth of the rate, which are stored once
// a second only.
func (b *breaker) turned(from breaker) bool {
	from.Failures = b.Failures
	if from.Rate > 0 && b.Rate > 0 {
		from.Rate = b.Rate
	}
	return from != *b
}
