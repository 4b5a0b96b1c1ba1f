package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// How many bytes the body of a request may have.
const (
	// tokenBody is for requests for a token, for which nobody has shown a credential.
	tokenBody = 4 << 10
	// usualBody is for all others but those with an area, positions or a report's files.
	usualBody = 64 << 10
	// noOwnLimit, as a route's limit, leaves only the listener's max_body_bytes.
	noOwnLimit = 1 << 30
	// unreservedBody is the longest body that needs no reservation: every connection that a
	// listener lets in may hold as much, and the line of one account (maxInLine) 16 MB.
	unreservedBody = 4 << 10
	// callerDivisor divides what the other callers leave into the part that one may hold: a quarter.
	callerDivisor = 4
	// operatorDivisor divides a private budget into the part that is kept for operators: a quarter.
	operatorDivisor = 4
)

// A bodyBudget bounds the bytes of the larger bodies that a listener holds, from before they are
// read until their requests have been answered. So callers who send slowly, and requests that
// wait, cannot use up the process's memory.
//
// A caller may hold a quarter of what the others leave, so that each one that takes all it can leaves
// three quarters of that to the next. One that holds nothing may have one body as long as it fits.
// So a few callers cannot use up the budget, but about a dozen with the largest bodies can.
type bodyBudget struct {
	maxBytes      int // of accounts and fleets together
	operatorBytes int // for operators together, whatever the others hold

	reserved prometheus.Gauge
	refused  prometheus.Counter

	mu       sync.Mutex
	used     int              // of maxBytes
	byCaller map[[16]byte]int // bytes of an account, a fleet or operators; none is zero
}

// operators is the caller of all requests to the admin API.
var operators [16]byte

// reserve reports whether there is room for n more bytes of a caller, which then holds them until
// giveBack.
func (b *bodyBudget) reserve(caller [16]byte, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(caller, n) {
		b.refused.Inc()
		return false
	}

	if caller != operators {
		b.used += n
	}

	if b.byCaller == nil {
		b.byCaller = make(map[[16]byte]int)
	}

	b.byCaller[caller] += n
	b.reserved.Add(float64(n))

	return true
}

// fits reports whether a caller may hold n more bytes. b.mu is held.
func (b *bodyBudget) fits(caller [16]byte, n int) bool {
	held := b.byCaller[caller]
	if caller == operators {
		return held+n <= b.operatorBytes
	}

	left := b.maxBytes - b.used
	isFirst := held == 0
	return n <= left && (isFirst || held+n <= (left+held)/callerDivisor)
}

// giveBack ends a caller's reservation of n bytes, or a part of one.
func (b *bodyBudget) giveBack(caller [16]byte, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if caller != operators {
		b.used -= n
	}

	b.byCaller[caller] -= n
	if b.byCaller[caller] == 0 {
		delete(b.byCaller, caller)
	}

	b.reserved.Sub(float64(n))
}

// A bodyReservation is what a request holds of a budget. The zero value holds nothing.
type bodyReservation struct {
	budget *bodyBudget
	caller [16]byte
	bytes  int
}

// shrink gives back what is above so many bytes.
func (r *bodyReservation) shrink(bytes int) {
	if r.bytes <= bytes {
		return
	}
	r.budget.giveBack(r.caller, r.bytes-bytes)
	r.bytes = bytes
}

// caller is who sends a request, as far as its token says so: an account, a fleet, or operators.
func (x *requestContext) caller() [16]byte {
	if x.route.access == fleetOnly {
		return x.fleet
	}
	if x.route.access == vendorOnly {
		return x.account
	}
	return operators
}

// bodiesOf is the budget of the listener that a request came to.
func (g *gateway) bodiesOf(x *requestContext) *bodyBudget {
	if x.vendor {
		return g.vendorBodies
	}
	return g.privateBodies
}
