package main

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
)

// inFlightLimiter bounds the requests in flight, nearly all of them waiting for Redis.
// A longer queue would serve nobody sooner and everybody later.
type inFlightLimiter struct {
	most   int64 // 0: no bound
	inside atomic.Int64
	shed   prometheus.Counter // nil: not counted
}

// enter reports whether there is a place; whoever got one leaves it.
func (c *inFlightLimiter) enter() bool {
	if c.inside.Add(1) <= c.most || c.most == 0 {
		return true
	}
	c.inside.Add(-1)
	if c.shed != nil {
		c.shed.Inc()
	}
	return false
}

func (c *inFlightLimiter) leave() { c.inside.Add(-1) }

// errOverloaded is the answer to one who got none. Nothing was counted or written.
var errOverloaded = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
	Message: "the service is busy; sending the same request again is safe"}

const maxLogins = 32

func (g *gateway) limiterOf(x *requestContext) *inFlightLimiter {
	if x.vendor {
		return g.vendorLimiter
	}
	return g.privateLimiter
}

// maxFleetInFlight is how many requests of one fleet are in flight at a gateway, so
// that no fleet keeps the others, or operators, out when Redis is slow.
const maxFleetInFlight = 64

func (g *gateway) fleetLimiter(id delivery.FleetID) *inFlightLimiter {
	if c, there := g.fleetLimiters.Load(id); there {
		return c.(*inFlightLimiter)
	}
	c, _ := g.fleetLimiters.LoadOrStore(id, &inFlightLimiter{most: maxFleetInFlight, shed: g.privateLimiter.shed})
	return c.(*inFlightLimiter)
}

// enterFleet counts a fleet's request in its limit and in its limiter, which whoever
// got in leaves.
func (g *gateway) enterFleet(x *requestContext) (*inFlightLimiter, error) {
	c := g.fleetLimiter(x.fleet)
	if !c.enter() {
		return nil, errOverloaded
	}
	if err := x.ledger.Fleets.Admit(g.work, x.ledger.Fleets.Snapshot().Fleet(x.fleet), x.now); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}
