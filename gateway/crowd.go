package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
)

// crowd is the requests of one listener that are in work, nearly all of them
// waiting for Redis. It is bounded: beyond what Redis takes, a longer queue
// would serve nobody sooner and everybody later, until all of them time out.
type crowd struct {
	most   int64 // 0: no bound
	inside atomic.Int64
	shed   prometheus.Counter // nil: not counted
}

// bound sets the limit (0: none) and what counts those turned away; before the
// first request.
func (c *crowd) bound(most int, shed prometheus.Counter) { c.most, c.shed = int64(most), shed }

// enter reports whether there is a place; whoever got one leaves it.
func (c *crowd) enter() bool {
	if c.inside.Add(1) <= c.most || c.most == 0 {
		return true
	}
	c.inside.Add(-1)
	if c.shed != nil {
		c.shed.Inc()
	}
	return false
}

func (c *crowd) leave() { c.inside.Add(-1) }

// errCrowded is the answer to one who got none. Nothing was counted or written.
var errCrowded = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
	Message: "the service is busy; sending the same request again is safe"}

// maxLogins is how many logins may be in work at once on both listeners, each of
// them waiting for Redis.
const maxLogins = 32

func (g *gateway) crowdOf(x *exchange) *crowd {
	if x.vendor {
		return &g.vendorCrowd
	}
	return &g.privateCrowd
}

// maxFleetInFlight is how many requests of one fleet are in work at a gateway. When
// Redis is slow no fleet keeps the others, or operators, out.
const maxFleetInFlight = 64

// fleetCrowds are the crowds of fleets that there are.
type fleetCrowds struct{ byID sync.Map }

func (f *fleetCrowds) of(id delivery.FleetID, shed prometheus.Counter) *crowd {
	if c, there := f.byID.Load(id); there {
		return c.(*crowd)
	}
	c := new(crowd)
	c.bound(maxFleetInFlight, shed)
	first, _ := f.byID.LoadOrStore(id, c)
	return first.(*crowd)
}

// enterFleet counts a fleet's request in its limit and in its crowd, which whoever
// got in leaves.
func (g *gateway) enterFleet(x *exchange) (*crowd, error) {
	l, err := g.ledger()
	if err != nil {
		return nil, err
	}
	c := g.fleetCrowds.of(x.fleet, g.privateCrowd.shed)
	if !c.enter() {
		return nil, errCrowded
	}
	if err := l.Fleets.Admit(g.work, l.Fleets.Snapshot().Fleet(x.fleet), x.now); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}
