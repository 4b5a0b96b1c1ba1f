package dispatch

import (
	"math"

	"vendorapi/internal/ledger/partitions"
)

const (
	// paceBurst: the events of a second divided by it may go at once.
	paceBurst = 5

	// A receiver that is sent to at a pace has the events of the next secondsAhead in memory, and leastAhead at
	// least. The others wait in its schedule.
	secondsAhead = 10
	leastAhead   = 16
)

// never is a time that does not come, in ms.
const never = math.MaxInt64

// pace decides when an endpoint may be sent its next event: how many are in flight, how fast they follow each
// other, and what its breaker allows. How often an event is sent is decided by what follows from its answers:
// Role.conclude.
type pace struct {
	ownLimits partitions.EndpointLimits // 0 for none
	breaker   breaker
	bucket    bucket
	inFlight  int // with pings
}

// rate returns the events per second that may be sent; 0 for no limit.
func (p *pace) rate() float64 {
	own := float64(p.ownLimits.PerSecond)
	switch {
	case p.breaker.Rate == 0:
		return own
	case own == 0:
		return p.breaker.Rate
	default:
		return min(own, p.breaker.Rate)
	}
}

// nextAt returns from when on an event that waits may be sent, in ms; never if a send has to end first.
// usualLimit is how many may be in flight to an endpoint that has no limit of its own.
func (p *pace) nextAt(now int64, usualLimit int) int64 {
	limit := usualLimit
	if p.ownLimits.InFlight > 0 {
		limit = p.ownLimits.InFlight
	}

	switch {
	case p.inFlight >= limit:
		return never
	case p.breaker.Open && p.inFlight > 0:
		return never
	case p.breaker.Open:
		return p.breaker.Hold
	default:
		return max(p.breaker.Hold, p.bucket.next(now, p.rate()))
	}
}

// sendBegins takes note of a send.
func (p *pace) sendBegins(now int64) {
	p.inFlight++
	rate := p.rate()
	if rate > 0 && !p.breaker.Open {
		p.bucket.take(now, rate)
	}
}

// sendEnds takes note that a send has ended, or was not begun after all.
func (p *pace) sendEnds() { p.inFlight-- }

// useful returns how many events are worth having in memory, up to most: what can be sent soon. While a breaker is
// open that is the next probe, and while the receiver is on hold nothing.
func (p *pace) useful(now int64, most int) int {
	switch p.breaker.state(now) {
	case breakerOpen:
		return 1
	case breakerOnHold:
		return 0
	}

	rate := p.rate()
	if rate == 0 {
		return most
	}

	return min(most, max(leastAhead, int(rate*secondsAhead)))
}

// bucket limits the rate of sends. Its zero value is full.
type bucket struct {
	tokens float64
	at     int64 // ms, when there were so many
}

// next returns when an event may go, in ms; 0 for now. A rate of 0 is no limit.
func (b *bucket) next(now int64, rate float64) int64 {
	if rate == 0 {
		return 0
	}

	tokens := b.filled(now, rate)
	if tokens >= 1 {
		return 0
	}
	return now + int64(math.Ceil((1-tokens)*1000/rate))
}

func (b *bucket) take(now int64, rate float64) { b.tokens, b.at = b.filled(now, rate)-1, now }

func (b *bucket) filled(now int64, rate float64) float64 {
	return min(b.tokens+float64(now-b.at)*rate/1000, max(2, rate/paceBurst))
}
