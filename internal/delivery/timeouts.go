package delivery

import "time"

// How long an order may wait (design section 6).
const (
	// SearchPatience is how long a courier is looked for, counted from when one
	// should set off.
	SearchPatience = 15 * time.Minute
	// Lifetime is how long an order lives (spec: "under an hour"), counted from
	// when the package is ready.
	Lifetime = 55 * time.Minute
	// CourierSilence is how long a courier who is on the way may say nothing
	// before the end of the Lifetime takes effect.
	CourierSilence = 15 * time.Minute
)

// DecideTimeout ends an order that has waited too long (design section 6):
// NoCourierFound while Searching, TimedOut afterwards. When nothing is due,
// next is when to look again; it is zero for a terminal order. It must not be
// asked of an order of which an update waits to be decided.
func DecideTimeout(o *Order, now time.Time) (change Change, due bool, next time.Time) {
	reason, at := o.timeout()
	if at.IsZero() || now.Before(at) {
		return Change{}, false, at
	}
	change = o.change(now)
	change.Status, change.Failure = Failed, reason
	return change, true, time.Time{}
}

// FirstTimeout is when to look at an order first if nothing is heard of it;
// zero for a terminal one.
func FirstTimeout(o *Order) time.Time {
	_, at := o.timeout()
	return at
}

// timeout is what ends the order next and when, as far as is known now.
func (o *Order) timeout() (FailureReason, time.Time) {
	switch {
	case o.Status.Terminal():
		return "", time.Time{}
	case o.Status == Searching:
		setOff := later(o.CreatedAt, o.ReadyAt.Add(-time.Duration(o.Fleet.PickupMinutes)*time.Minute))
		return NoCourierFound, setOff.Add(SearchPatience)
	}
	return TimedOut, later(later(o.CreatedAt, o.ReadyAt).Add(Lifetime), o.LastCourierUpdate.Add(CourierSilence))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
