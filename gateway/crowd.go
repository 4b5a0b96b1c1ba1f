package main

import (
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
	shed   prometheus.Counter
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
	c.shed.Inc()
	return false
}

func (c *crowd) leave() { c.inside.Add(-1) }

// errCrowded is the answer to one who got none. Nothing was counted or written.
var errCrowded = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
	Message: "the service is busy; sending the same request again is safe"}

func (g *gateway) crowdOf(x *exchange) *crowd {
	if x.vendor {
		return &g.vendorCrowd
	}
	return &g.privateCrowd
}
