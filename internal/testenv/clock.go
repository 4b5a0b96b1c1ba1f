package testenv

import (
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// clockKey is where the scripts of an environment with a clock find the time. It
// begins as the keys of the sandbox do, so that every program may read it.
const clockKey = "{sclock}"

// Clock is the time of an environment, in this process and in Redis: it stands
// still until it is set. Rates of events a second alone go by Redis's own clock.
type Clock struct{ at atomic.Int64 }

// Now is the time, to the microsecond.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.at.Load()) }

// NewWithClock is New with a clock that stands at a time.
func NewWithClock(t *testing.T, at time.Time) (*Env, *Clock) {
	t.Helper()
	c := &Clock{}
	c.at.Store(at.UnixMicro())
	r := testserver.NewRedis(t)
	r.Do(t, "SET", clockKey, at.UnixMicro())
	return newOn(t, r, c), c
}

// SetClock moves the environment's clock, Redis's last.
func (e *Env) SetClock(at time.Time) {
	e.T.Helper()
	e.clock.at.Store(at.UnixMicro())
	e.Do("SET", clockKey, at.UnixMicro())
}
