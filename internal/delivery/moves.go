package delivery

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Verdict is what becomes of a fleet's update.
type Verdict uint8

// The verdicts.
const (
	Move    Verdict = 1 + iota // append the changes
	Drop                       // repeated or backward: nothing to do
	Illegal                    // no such move: counted and shown to operators
	Swap                       // another courier carries it, the status stays
)

func (v Verdict) String() string {
	switch v {
	case Move:
		return "Move"
	case Drop:
		return "Drop"
	case Illegal:
		return "Illegal"
	case Swap:
		return "Swap"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Decision is a verdict with the changes it appends, in order; there are some
// exactly when the verdict is Move.
type Decision struct {
	Changes []Change
	Verdict Verdict
}

// failures is the last column of the table of moves (design section 6): the
// reasons with which an order may fail, by the state it is in. Other is legal
// from all of these.
var failures = map[Status][]FailureReason{
	Searching:  {NoCourierFound, TimedOut},
	Assigned:   {CourierIncident, StoreClosed, TimedOut},
	PickingUp:  {CourierIncident, StoreClosed, TimedOut, PackageNotReady},
	PickedUp:   {CourierIncident, PackageDamaged, TimedOut},
	Delivering: {AddressNotFound, CustomerUnreachable, CustomerRefused, PaymentRefused, PackageDamaged, CourierIncident, TimedOut},
}

// LegalFrom reports whether an order in the state s may fail for this reason.
func (r FailureReason) LegalFrom(s Status) bool {
	reasons, ok := failures[s]
	return ok && (r == OtherFailure || slices.Contains(reasons, r))
}

const failureNames = "NoCourierFound, TimedOut, CourierIncident, StoreClosed, PackageNotReady, PackageDamaged, AddressNotFound, " +
	"CustomerUnreachable, CustomerRefused, PaymentRefused or Other"

// ParseFailureReason reads a reason's name, case-sensitively. The error continues
// the name of a field.
func ParseFailureReason(name string) (FailureReason, error) {
	for s := range failures {
		if reason := FailureReason(name); reason.LegalFrom(s) {
			return reason, nil
		}
	}
	return "", errors.New("must be " + failureNames)
}

// Decide judges a fleet's update by the table of moves (design section 6). A
// skipped step is filled in with the same time, one Change each; a repeated or
// backward update is dropped; Searching and Cancelled are not a fleet's to
// report; nothing moves a terminal order.
//
// An accept of an order that already has a courier is a repetition or, from
// another courier, illegal. When a status was reported before any courier was
// named, the accept brings the courier: Swap.
//
// A Change happens when the fleet says, but not in the future and not before
// the change that precedes it.
func Decide(o *Order, u Update, now time.Time) Decision {
	if o.Status.Terminal() {
		if u.Kind == KindStatus && u.Status == o.Status && u.Status != Cancelled {
			return Decision{Verdict: Drop}
		}
		return Decision{Verdict: Illegal}
	}
	switch u.Kind {
	case KindAccept:
		return decideAccept(o, u, now)
	case KindStatus:
		return decideStatus(o, u, now)
	case KindSwap:
		switch {
		case o.Status == Searching || u.Courier.IsZero():
		case u.Courier == o.Courier:
			return Decision{Verdict: Drop}
		default:
			return Decision{Verdict: Swap}
		}
	}
	return Decision{Verdict: Illegal}
}

func decideAccept(o *Order, u Update, now time.Time) Decision {
	switch {
	case o.Status == Searching:
		return forward(o, u, Assigned, now)
	case u.Courier == o.Courier:
		return Decision{Verdict: Drop}
	case o.Courier.IsZero():
		return Decision{Verdict: Swap}
	}
	return Decision{Verdict: Illegal}
}

func decideStatus(o *Order, u Update, now time.Time) Decision {
	switch {
	case u.Status == Failed && u.Failure.LegalFrom(o.Status):
		change := o.reported(u, now)
		change.Status, change.Failure = Failed, u.Failure
		return Decision{Verdict: Move, Changes: []Change{change}}
	case u.Status <= Searching || u.Status > Delivered:
		return Decision{Verdict: Illegal}
	case u.Status <= o.Status:
		return Decision{Verdict: Drop}
	}
	return forward(o, u, u.Status, now)
}

// forward fills in every step up to the target.
func forward(o *Order, u Update, target Status, now time.Time) Decision {
	changes := make([]Change, 0, target-o.Status)
	for s := o.Status + 1; s <= target; s++ {
		change := o.reported(u, now)
		change.Status = s
		changes = append(changes, change)
	}
	return Decision{Verdict: Move, Changes: changes}
}

// reported is the part of a Change that comes from the update, and from what
// the order knew before where the update is silent.
func (o *Order) reported(u Update, now time.Time) Change {
	at := u.At
	if at.After(now) {
		at = now
	}
	change := o.change(at)
	change.ETA = u.ETA
	if !u.Courier.IsZero() {
		change.Courier = u.Courier
	}
	if !u.Location.IsZero() {
		change.Location = u.Location
	}
	return change
}

// change begins a Change at a time, in milliseconds like everything stored,
// that never precedes the last one.
func (o *Order) change(at time.Time) Change {
	at = at.Truncate(time.Millisecond)
	if last := o.UpdatedAt(); at.Before(last) {
		at = last
	}
	return Change{At: at, Courier: o.Courier, Location: o.Location}
}

// LateDelivery reports whether an update says Delivered of an order that has
// ended otherwise, whatever the end. It is refused like any illegal move, and
// listed for finance because cash may have been collected (design section 6).
func LateDelivery(o *Order, u Update) bool {
	return o.Status.Terminal() && o.Status != Delivered && u.Kind == KindStatus && u.Status == Delivered
}
