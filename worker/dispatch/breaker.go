package dispatch

import (
	"math"
	"time"

	"vendorapi/internal/ledger"
)

const (
	firstProbe, lastProbe = 1000, 30_000    // ms between probes, doubling
	firstRate, fullRate   = 10, 2000        // events per second
	shortPause, longPause = 1000, 3_600_000 // ms after 429, 502, 503, 504
	paceBurst             = 5               // the part of a second's events that may go at once
)

// pingFor is how long an endpoint for which nothing waits is probed, in ms.
var pingFor = (72 * time.Hour).Milliseconds()

// breaker keeps an endpoint's events from being sent as fast as they come.
type breaker ledger.Breaker

// failed notes an attempt that failed. pause: how long the endpoint asks to be left alone; 0: it
// does not. threshold: failures in a row that open it. first: when the schedule's first is due.
func (b *breaker) failed(now, pause int64, threshold int, first int64) {
	b.Failures = min(b.Failures, math.MaxUint16-1) + 1
	pause = min(pause, longPause)
	switch {
	case now < b.Hold && (b.Open || int(b.Failures) < threshold):
		// What was in flight when it was held tells only that it may ask for longer.
		b.Hold = max(b.Hold, now+pause)
	case b.Open:
		b.Probes = min(b.Probes, math.MaxUint16-1) + 1
		b.planProbe(now, pause, first)
	case int(b.Failures) >= threshold:
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

// planProbe awaits an event that is due about then, so that a lone one keeps to its schedule.
func (b *breaker) planProbe(now, pause, first int64) {
	gap := min(int64(lastProbe), firstProbe<<min(b.Probes, 5))
	at := now + max(gap, pause)
	if first > now && first <= at+gap && first >= now+pause {
		at = max(first, now+firstProbe)
	}
	b.Hold = max(b.Hold, at) // opening does not shorten what was asked for
}

// succeeded lets the rate grow by one, up to the last one that was borne, and from there by ten a
// second from the end of the pause, so that little traffic does not make it last.
func (b *breaker) succeeded(now int64) {
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

// startSlowly: an endpoint that answers again, or a new one with a backlog, gets all of it, what
// was postponed by hours included.
func (b *breaker) startSlowly(now int64) {
	*b = breaker{Rate: firstRate, Forward: now, Since: b.Since}
}

// endRecovery is for when nothing waits. A pace that the endpoint asked for stays.
func (b *breaker) endRecovery() {
	if !b.Open && b.Calm == 0 {
		b.Rate, b.Forward = 0, 0
	}
}

// drawBack corrects times of a clock that was ahead by so much.
func (b *breaker) drawBack(now, ahead int64) {
	b.Hold = drawnBack(b.Hold, now, ahead)
	b.Since, b.Forward = min(b.Since, now), min(b.Forward, now)
}

func drawnBack(at, now, ahead int64) int64 { return min(at, max(now, at-ahead)) }

// stored is the state to store: the zero value when nothing is held back.
func (b *breaker) stored(now int64) breaker {
	if b.Hold <= now && !b.Open && b.Failures == 0 && b.Rate == 0 && b.Forward == 0 {
		return breaker{}
	}
	return *b
}

// turned reports whether more differs than the count of failures and the growth of the rate.
func (b *breaker) turned(from breaker) bool {
	from.Failures = b.Failures
	if from.Rate > 0 && b.Rate > 0 {
		from.Rate = b.Rate
	}
	return from != *b
}

// bucket limits the pace. Its zero value is full.
type bucket struct {
	tokens float64
	at     int64 // ms, when there were so many
}

// next is when an event may go; 0: now. A rate of 0 is no limit.
func (b *bucket) next(now int64, rate float64) int64 {
	if tokens := b.filled(now, rate); rate > 0 && tokens < 1 {
		return now + int64(math.Ceil((1-tokens)*1000/rate))
	}
	return 0
}

func (b *bucket) take(now int64, rate float64) { b.tokens, b.at = b.filled(now, rate)-1, now }

func (b *bucket) filled(now int64, rate float64) float64 {
	return min(b.tokens+float64(now-b.at)*rate/1000, max(2, rate/paceBurst))
}
