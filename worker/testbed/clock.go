package testbed

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// clockKey is where the scripts of a bed with a clock find the time.
const clockKey = "testbed:clock"

// Clock is the time of a bed, in this process and in Redis: it stands still
// until it is set. Rates of events a second alone go by Redis's own clock.
type Clock struct{ at atomic.Int64 }

// Now is the time, to the microsecond.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.at.Load()) }

// NewWithClock is New with a clock that stands at a time.
func NewWithClock(t *testing.T, at time.Time) (*Bed, *Clock) {
	t.Helper()
	c := &Clock{}
	c.at.Store(at.UnixMicro())
	b := newBed(t, c)
	b.SetClock(at)
	return b, c
}

// SetClock moves the bed's clock: Redis's last, so that a process never believes
// that what it has just leased is about to end.
func (b *Bed) SetClock(at time.Time) {
	b.T.Helper()
	b.clock.at.Store(at.UnixMicro())
	b.Command(fmt.Sprintf("SET %s %d", clockKey, at.UnixMicro()))
}
