package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Bodies of requests.
const (
	// tokenBody is the most that a request for a token may have. Nobody has shown a
	// credential for it.
	tokenBody = 4 << 10
	// usualBody is the most that other requests may have, but those with an area, positions
	// or a report's files.
	usualBody = 64 << 10
	// largeBody leaves it to the listener's max_body_bytes.
	largeBody = 1 << 30
	// freeBody is up to where a body is read without a reservation: every connection that a
	// listener lets in may hold as much.
	freeBody = 4 << 10
	// callerShare is the part of a listener's budget that one caller may hold: a quarter.
	callerShare = 4
)

// bodyBudget bounds the bytes of larger bodies that a listener is reading, so that callers who
// send them slowly cannot use up the process's memory, nor one caller the others' room.
type bodyBudget struct {
	most int // bytes
	held prometheus.Gauge
	shed prometheus.Counter

	mu      sync.Mutex
	all     int
	callers map[[16]byte]int // of an account, a fleet, or zero for operators
}

// reserve reports whether there is room for n more bytes of a caller; whoever got some gives
// it back.
func (b *bodyBudget) reserve(caller [16]byte, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	fits := b.all+n <= b.most && b.callers[caller]+n <= b.most/callerShare
	if !fits {
		b.shed.Inc()
		return false
	}

	if b.callers == nil {
		b.callers = make(map[[16]byte]int)
	}
	b.all += n
	b.callers[caller] += n
	b.held.Add(float64(n))
	return true
}

func (b *bodyBudget) giveBack(caller [16]byte, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	b.callers[caller] -= n
	if b.callers[caller] == 0 {
		delete(b.callers, caller)
	}
	b.held.Sub(float64(n))
}

// caller is who sends a request, as far as its token says so: an account, a fleet, or zero.
func (x *requestContext) caller() [16]byte {
	if x.route.access == fleetOnly {
		return x.fleet
	}
	if x.route.access == vendorOnly {
		return x.account
	}
	return [16]byte{}
}

// bodiesOf is the budget of the listener that a request came to.
func (g *gateway) bodiesOf(x *requestContext) *bodyBudget {
	if x.vendor {
		return g.vendorBodies
	}
	return g.privateBodies
}
