package delivery

import (
	"errors"
	"slices"
	"time"
)

// Action is what becomes of a fleet's update.
type Action uint8

// The actions.
const (
	Move    Action = 1 + iota // to another status
	Drop                      // repeated or backward: nothing to do
	Illegal                   // no such move: counted and shown to operators
	Swap                      // another courier carries it, the status stays
	Revise                    // it is expected at another time, the status stays
)

// minRevision is the least by which an estimate must differ from the one that the vendor was last told
// to be an estimate of its own. report_update.lua has the same figure.
const minRevision = time.Minute

// Decision is an action with the changes it appends: at least one with Move and with Swap, one with
// Revise, else none.
type Decision struct {
	Changes []Change
	Action  Action
}

// failures is the last column of the table of moves (decisions, "States"): the reasons
// with which an order may fail in each state. Other is legal in all.
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

// ParseFailureReason reads a name. The error's text continues the field's name.
func ParseFailureReason(name string) (FailureReason, error) {
	for s := range failures {
		if reason := FailureReason(name); reason.LegalFrom(s) {
			return reason, nil
		}
	}
	return "", errors.New("must be " + failureNames)
}

// Decide decides a fleet's update by the table of moves (decisions, "States"). Skipped steps are
// filled in with the same time, one Change each; repeated and backward updates are dropped; fleets
// cannot report Searching or Cancelled; nothing moves a terminal order.
//
// An accept of an order that has a courier is a repetition or, from another courier, illegal. When
// a status was reported before any courier was named, the accept is a Swap, with an EstimateRevised if it
// brings another estimate.
//
// The status that the order is in, or its acceptance, reported again with another estimate is a
// Revise. The estimate counts that was reported last, whatever times the reports have.
//
// A Change has the fleet's time, but not in the future and not before what precedes it, and the newest
// position that is known of its courier. What leaves the status as it is is later than what precedes it.
func Decide(o *Order, u Update, now time.Time) Decision {
	switch {
	case o.Status.Terminal():
		if u.Kind == KindStatus && u.Status == o.Status && u.Status != Cancelled {
			return Decision{Action: Drop}
		}
	case u.Kind == KindStatus:
		return decideStatus(o, u, now)
	case u.Kind != KindAccept && u.Kind != KindSwap:
	case u.Kind == KindAccept && o.Status == Searching:
		return forward(o, u, Assigned, now)
	case u.Kind == KindSwap && (o.Status == Searching || u.Courier.IsZero()):
	case o.revisesAcceptance(u):
		return Decision{Action: Revise, Changes: []Change{o.between(EstimateRevised, u, now)}}
	case u.Courier == o.Courier:
		return Decision{Action: Drop}
	case u.Kind == KindSwap || o.Courier.IsZero():
		return Decision{Action: Swap, Changes: o.handedOver(u, now)}
	}

	return Decision{Action: Illegal}
}

func decideStatus(o *Order, u Update, now time.Time) Decision {
	switch {
	case u.Status == Failed && u.Failure.LegalFrom(o.Status):
		change := o.reported(u, now)
		change.Status, change.Failure = Failed, u.Failure
		return Decision{Action: Move, Changes: []Change{change}}
	case u.Status <= Searching || u.Status > Delivered:
		return Decision{Action: Illegal}
	case u.Status == o.Status && o.revisedBy(u.ETA):
		return Decision{Action: Revise, Changes: []Change{o.between(EstimateRevised, u, now)}}
	case u.Status <= o.Status:
		return Decision{Action: Drop}
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
	return Decision{Action: Move, Changes: changes}
}

// revisesAcceptance reports whether the courier who has the order accepts it once more, with
// another estimate. The estimate that is in force already is no other one: an acceptance may be
// decided twice, since the stream delivers it at least once.
func (o *Order) revisesAcceptance(u Update) bool {
	isSameCourier := u.Kind == KindAccept && u.Courier == o.Courier
	isInForce := u.ETA.Equal(o.EstimatedDropoff(o.Version))
	return isSameCourier && !isInForce && o.revisedBy(u.ETA)
}

// revisedBy reports whether an estimate is another one than the vendor was last told; a zero one is
// none.
func (o *Order) revisedBy(estimate time.Time) bool {
	if estimate.IsZero() {
		return false
	}
	told := o.ToldDropoff()
	return told.IsZero() || estimate.Sub(told).Abs() >= minRevision
}

// handedOver returns the Changes of a Swap: the new courier and, if it is the first one and comes with another
// estimate, an EstimateRevised. No webhook tells of the first courier, so the estimate must not be in that Change.
func (o *Order) handedOver(u Update, now time.Time) []Change {
	change := o.swapped(u, now)
	if change.Kind != CourierNamed {
		return []Change{change}
	}

	change.ETA = time.Time{}
	if !o.revisedBy(u.ETA) {
		return []Change{change}
	}

	withCourier := *o
	withCourier.Changes = append(slices.Clip(o.Changes), change)
	withCourier.Reach(&change)

	return []Change{change, withCourier.between(EstimateRevised, u, now)}
}

// swapped returns the Change that names the update's courier, with the update's estimate.
func (o *Order) swapped(u Update, now time.Time) Change {
	kind := CourierReplaced
	if o.Courier.IsZero() {
		kind = CourierNamed
	}

	change := o.between(kind, u, now)
	reportedSince := !o.Location.At.Before(change.At) // it is the new courier's place
	if change.Location.IsZero() && reportedSince {
		change.Location = o.Location
	}

	return change
}

// between begins a Change of the given kind that leaves the status as it is. It is later than the one
// before, because receivers tell by the time which of two is the newer where the status does not.
func (o *Order) between(kind ChangeKind, u Update, now time.Time) Change {
	change := o.reported(u, now)
	change.Kind, change.Status = kind, o.Status
	change.At = later(change.At, o.UpdatedAt().Add(time.Millisecond))
	return change
}

// reported begins a Change with the update's data, or else the order's.
func (o *Order) reported(u Update, now time.Time) Change {
	change := o.change(earlier(u.At, now))
	change.ETA = u.ETA

	takesOver := !u.Courier.IsZero() && o.isHandedOver(u.Courier)
	if takesOver {
		change.Location = Location{At: change.At}
	}

	if !u.Courier.IsZero() {
		change.Courier = u.Courier
	}

	isNewest := takesOver || !u.Location.At.Before(change.Location.At)
	if isNewest && !u.Location.IsZero() {
		change.Location = u.Location
	}

	return change
}

// change begins a Change at a time, in milliseconds, never before the last one.
func (o *Order) change(at time.Time) Change {
	at = at.Truncate(time.Millisecond)
	if last := o.UpdatedAt(); at.Before(last) {
		at = last
	}
	return Change{At: at, Courier: o.Courier, Location: o.Location}
}

// LateDelivery reports a Delivered of an order that has ended otherwise, which is listed for
// finance: cash may have been collected (decisions, "States").
func LateDelivery(o *Order, u Update) bool {
	return o.Status.Terminal() && o.Status != Delivered && u.Kind == KindStatus && u.Status == Delivered
}

// How long an order may wait (decisions, "States").
const (
	// SearchTimeout is how long a courier is searched, from when one should set off.
	SearchTimeout = 15 * time.Minute
	// Lifetime is an order's longest life (spec: "under an hour") from readyAt.
	Lifetime = 55 * time.Minute
	// CourierSilence is how long a courier's report delays the end of Lifetime.
	CourierSilence = 15 * time.Minute
	// LongestLife ends an order, from readyAt, whatever is still reported of it: an app that goes on
	// sending the position of a courier who has forgotten the order would keep it open for ever.
	LongestLife = 4 * time.Hour
)

// DecideTimeout ends an order without undecided updates that has waited too long (decisions,
// "States"). next is when to look again; zero for a terminal order.
func DecideTimeout(o *Order, now time.Time) (change Change, due bool, next time.Time) {
	reason, at := o.timeout()
	if at.IsZero() || now.Before(at) {
		return Change{}, false, at
	}
	change = o.change(now)
	change.Status, change.Failure = Failed, reason
	return change, true, time.Time{}
}

// timeout is what ends the order next, and when.
func (o *Order) timeout() (FailureReason, time.Time) {
	switch {
	case o.Status.Terminal():
		return "", time.Time{}
	case o.Status == Searching:
		setOff := later(o.CreatedAt, o.ReadyAt.Add(-time.Duration(o.Fleet.PickupMinutes)*time.Minute))
		return NoCourierFound, setOff.Add(SearchTimeout)
	}

	end := later(o.begin().Add(Lifetime), o.LastCourierUpdate.Add(CourierSilence))
	longest := o.begin().Add(LongestLife)
	if end.After(longest) {
		end = longest
	}

	return TimedOut, end
}

// Overdue reports whether the order should have ended by itself, however often it was reported on.
func (o *Order) Overdue(now time.Time) bool {
	return !o.Status.Terminal() && now.After(o.begin().Add(LongestLife))
}

// begin is when the order's life is counted from.
func (o *Order) begin() time.Time { return later(o.CreatedAt, o.ReadyAt) }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// The moves of a store (spec, "Store states"; decisions, "States") besides a vendor's PUT. The caller
// writes s with the move's notice, and decides again after a conflict.

// ConfirmStore accepts the store for its fleet: it becomes Active.
// STORE_NOT_PENDING unless it awaits the fleet's approval.
func ConfirmStore(s *Store, now time.Time) error {
	if err := pending(s); err != nil {
		return err
	}
	s.State, s.UpdatedAt = Active, now
	return nil
}

// RejectStore returns a store to AwaitingFleet. STORE_NOT_PENDING as ConfirmStore.
func RejectStore(s *Store, now time.Time) error {
	if err := pending(s); err != nil {
		return err
	}
	s.State, s.Fleet, s.FleetName, s.UpdatedAt = AwaitingFleet, FleetID{}, "", now
	return nil
}

// MigrateStore sets or moves the local day after which the store closes (ClosingOver).
// STORE_NOT_CONFIGURED unless Active, VALIDATION_FAILED for a day before today.
func MigrateStore(s *Store, closing, now time.Time) error {
	if s.State != Active {
		return NotActive(s.ExternalID, s.State)
	}

	day := localDay(closing)
	if day.Before(localDay(now)) {
		return &Error{Code: CodeValidationFailed, Message: "closingDate is in the past",
			Fields: []FieldError{{Field: "closingDate", Message: "must not be in the past"}}}
	}

	s.ClosingDate, s.UpdatedAt = day, now

	return nil
}

// DeactivateStore closes the store, which loses its fleet and closing date; a later
// PUT registers it again. STORE_NOT_CONFIGURED when it is closed already.
func DeactivateStore(s *Store, now time.Time) error {
	if s.State == Deactivated {
		return NotActive(s.ExternalID, s.State)
	}
	s.State, s.Fleet, s.FleetName, s.ClosingDate, s.UpdatedAt = Deactivated, FleetID{}, "", time.Time{}, now
	return nil
}

// ClosesAt is the midnight that ends the closing day of a migrating store; zero for others.
func (s *Store) ClosesAt() time.Time {
	if s.State != Active || s.ClosingDate.IsZero() {
		return time.Time{}
	}
	return localDay(s.ClosingDate).AddDate(0, 0, 1)
}

// ClosingOver reports whether the closing day of a migrating store has ended.
func (s *Store) ClosingOver(now time.Time) bool {
	end := s.ClosesAt()
	return !end.IsZero() && !now.Before(end)
}

// NotActive is STORE_NOT_CONFIGURED; state is 0 when no store is registered.
func NotActive(externalID string, state StoreState) *Error {
	refusal := &Error{Code: CodeStoreNotConfigured, Store: state}
	switch state {
	case 0:
		refusal.Message = "no store is registered as " + externalID + "; register it with PUT /stores/{externalStoreId}"
	case AwaitingFleet:
		refusal.Message = "store " + externalID + " has no fleet; choose one with PUT /stores/{externalStoreId} and fleetId"
	default:
		refusal.Message = "store " + externalID + " is " + state.String() + ", not Active"
		if state == AwaitingFleetApproval {
			refusal.Message += "; wait for store.activated"
		}
	}

	return refusal
}

func pending(s *Store) error {
	if s.State != AwaitingFleetApproval {
		refusal := Refuse(CodeStoreNotPending, "store %s is %s, not AwaitingFleetApproval", s.ExternalID, s.State)
		refusal.Store = s.State
		return refusal
	}
	return nil
}

// localDay is 00:00 +03:00 of the day that t falls on.
func localDay(t time.Time) time.Time {
	local := t.In(Istanbul)
	return time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, Istanbul)
}
