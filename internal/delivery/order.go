// Package delivery is the domain: orders, stores, fleets, accounts, their identifiers, states and
// moves, the one validator of requests, and the one list of error codes (spec, "Resources and their
// fields" and "States and transitions"). It does no input or output; callers pass the time in.
package delivery

import (
	"fmt"
	"slices"
	"time"
)

// OrderDraft is what a vendor asks for, checked by OrderRequest.Check.
type OrderDraft struct {
	ExternalStoreID string
	ExternalOrderID string
	OrderedAt       time.Time // zero when not given
	ReadyAt         time.Time // never before the time of the check
	Recipient       Recipient
	Dropoff         Dropoff
	PackageNote     string
	OrderAmount     Money // unset when not given
	Payment         Payment
}

// Recipient is the customer. Phone holds exactly 10 digits.
type Recipient struct {
	Name  string `json:"name"`
	Phone string `json:"phone,omitempty"`
}

// Dropoff is where the courier goes: Text to read, the point to navigate to.
type Dropoff struct {
	Text string `json:"text"`
	Point
	BuildingNo string `json:"buildingNo,omitempty"`
	DoorNo     string `json:"doorNo,omitempty"`
	Floor      string `json:"floor,omitempty"`
	Note       string `json:"note,omitempty"`
}

// Payment is passed on and reported, never collected here.
type Payment struct {
	Type             PaymentType
	CollectionAmount Money // unset when not given
}

// Point is a position in decimal degrees, WGS 84.
type Point struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
}

// FleetTerms is what a replayed creation answers of the fleet.
type FleetTerms struct {
	ID              FleetID
	Name            string
	PickupMinutes   int // average minutes until a courier is at the store
	DeliveryMinutes int // average minutes from pickup to drop-off
}

// Order is one delivery with its whole history.
type Order struct {
	ID      OrderID
	Account AccountID
	OrderDraft
	Fleet     FleetTerms
	CreatedAt time.Time // milliseconds

	// Every version after the first (FirstVersion) has one Change.
	Status  Status
	Version uint64
	Changes []Change

	// Reported is the most advanced forward status that a courier has reported,
	// committed or not. A reported pickup beats a cancellation (decisions, "States").
	Reported          Status
	Accepted          Courier   // the courier whose accept was last confirmed to the fleet, or zero
	LastCourierUpdate time.Time // when the fleet last reported; zero: never
	Location          Location  // the last known position of Courier
	Courier           Courier   // carries it now, or carried it last
	ErasedAt          time.Time // when the recipient's data was erased on request; zero: it was not
}

// Change is one version of an order. It says how things stand as of then, whatever has changed.
type Change struct {
	Version  uint64 // set by the ledger when the change is stored
	Kind     ChangeKind
	Status   Status
	At       time.Time
	Courier  Courier   // who carries the order as of this change; zero: nobody
	ETA      time.Time // drop-off estimate that the courier gave with this change; zero: none given
	Location Location  // zero: none reported
	Failure  FailureReason
	Cancel   CancelReason
	Note     string // the vendor's note on a cancellation
}

// ChangeKind is what a version of an order has changed.
type ChangeKind uint8

// The kinds. The numbers are stored; never renumber them.
const (
	StatusReached   ChangeKind = iota
	CourierNamed               // the first courier, of an order whose status was reported without one
	CourierReplaced            // by another one
	EstimateRevised            // the drop-off is expected at another time
)

var (
	changeNames  = [...]string{StatusReached: "status", CourierNamed: "firstCourier", CourierReplaced: "courier", EstimateRevised: "estimate"}
	changeEvents = [...]EventType{StatusReached: StatusChanged, CourierReplaced: CourierChanged, EstimateRevised: ETAChanged}
)

// String is the name under which ClickHouse keeps the kind, empty for a number that is none.
func (k ChangeKind) String() string {
	if int(k) >= len(changeNames) {
		return ""
	}
	return changeNames[k]
}

// ParseChangeKind reads such a name.
func ParseChangeKind(name string) (ChangeKind, error) {
	i := slices.Index(changeNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("%q is no kind of change", name)
	}
	return ChangeKind(i), nil
}

// EventType is the webhook that tells of such a change. It is empty for CourierNamed, of which none
// does, and for numbers that are no kind.
func (k ChangeKind) EventType() EventType {
	if int(k) >= len(changeEvents) {
		return ""
	}
	return changeEvents[k]
}

// Courier carries an order. Vendors see the name abbreviated (AbbreviateName).
type Courier struct {
	Name        string `json:"name"`
	Phone       string `json:"phone"`
	VehicleType string `json:"vehicleType"`
}

// IsZero reports whether there is no courier.
func (c Courier) IsZero() bool { return c == Courier{} }

// isSamePerson reports whether both are one person, whose name or vehicle may have been corrected. The
// phone decides, as core/order.lua has it, too: names are spelled in many ways.
func (c Courier) isSamePerson(other Courier) bool { return c.Phone == other.Phone }

// Location is a courier's position at a time. Without a place, the zero Point, it says that nothing
// is known of where the courier has been since At.
type Location struct {
	Point
	At time.Time
}

// IsZero reports whether no position is known.
func (l Location) IsZero() bool { return l.At.IsZero() || l.Point == Point{} }

// Shrunk reports whether the ledger has dropped what is not needed a day after the end: recipient,
// drop-off, package note and positions.
func (o *Order) Shrunk() bool { return o.Recipient.Name == "" }

// Erase drops what the recipient, or the vendor about the recipient, has given, and where couriers
// were with the order: they end at the recipient's door.
func (o *Order) Erase(at time.Time) {
	o.Recipient, o.Dropoff, o.PackageNote, o.ErasedAt = Recipient{}, Dropoff{}, "", at
	o.Courier, o.Location = Courier{}, Location{}
	for i := range o.Changes {
		o.Changes[i].Location, o.Changes[i].Note = Location{}, ""
		o.Reach(&o.Changes[i])
	}
}

// EstimatedPickup is max(readyAt, creation + the fleet's pickup minutes).
func (o *Order) EstimatedPickup() time.Time {
	return later(o.ReadyAt, o.CreatedAt.Add(time.Duration(o.Fleet.PickupMinutes)*time.Minute))
}

// EstimatedDropoff is the courier's estimate as of the version, or the pickup plus the
// fleet's delivery minutes; zero while no courier is assigned.
func (o *Order) EstimatedDropoff(version uint64) time.Time {
	var pickup, given time.Time
	assigned := false
	for _, c := range o.Changes[:min(max(int(Sequence(version))-1, 0), len(o.Changes))] {
		assigned = assigned || c.Status >= Assigned && c.Status <= Delivered
		if !c.ETA.IsZero() {
			given = c.ETA
		}
		if c.Kind == StatusReached && c.Status == PickedUp {
			pickup = c.At
		}
	}

	switch {
	case !given.IsZero():
		return given
	case !assigned:
		return time.Time{}
	case pickup.IsZero():
		pickup = o.EstimatedPickup()
	}

	return pickup.Add(time.Duration(o.Fleet.DeliveryMinutes) * time.Minute)
}

// ToldDropoff is the estimate of the drop-off that the vendor was last told: as of the last change of
// which a webhook tells. Zero: none.
func (o *Order) ToldDropoff() time.Time {
	told := len(o.Changes)
	for told > 0 && o.Changes[told-1].Kind.EventType() == "" {
		told--
	}
	return o.EstimatedDropoff(uint64(told) + 1)
}

// At is the change that made the version; false for the creation and later ones.
func (o *Order) At(version uint64) (Change, bool) {
	i := int(Sequence(version)) - 2
	if i < 0 || i >= len(o.Changes) {
		return Change{}, false
	}
	return o.Changes[i], true
}

// UpdatedAt is when the order last changed.
func (o *Order) UpdatedAt() time.Time {
	if n := len(o.Changes); n > 0 {
		return o.Changes[n-1].At
	}
	return o.CreatedAt
}

// isHandedOver reports whether the order goes from one person to another. Who is named first takes
// it from nobody.
func (o *Order) isHandedOver(to Courier) bool {
	return !o.Courier.IsZero() && !o.Courier.isSamePerson(to)
}

// Reach applies a change as it is stored to the courier and the position. The courier's newest position
// counts, which need not be the change's.
func (o *Order) Reach(c *Change) {
	if !c.Courier.IsZero() {
		if o.isHandedOver(c.Courier) {
			o.Location = Location{At: c.At}
		}
		o.Courier = c.Courier
	}
	o.Locate(c.Location)
}

// CompleteCancellation fills in who had the order that its vendor has cancelled, and where. The ledger
// cancels without looking into the order, in which nothing changes afterwards.
func (o *Order) CompleteCancellation() {
	if o.Status != Cancelled || len(o.Changes) == 0 {
		return
	}

	last := &o.Changes[len(o.Changes)-1]
	last.Courier = o.Courier
	if !o.Location.IsZero() {
		last.Location = o.Location
	}
}

// Locate takes where the courier is, or that nothing is known of it any more, unless something later
// is known.
func (o *Order) Locate(l Location) {
	saysNothing := l.At.IsZero()
	isOutdated := l.At.Before(o.Location.At)
	if !saysNothing && !isOutdated {
		o.Location = l
	}
}

// PaymentWarning is what finance has to check of an accepted order.
type PaymentWarning struct {
	Kind    string // as the report exceptions names it
	Field   string
	Message string
}

// paymentWarnings are the report's kinds that are known when the order is made.
var paymentWarnings = [...]PaymentWarning{
	{"CollectionMissing", "payment.collectionAmount", "is missing: paid at the door, but nothing is expected to be collected"},
	{"CollectionOnPrepaid", "payment.collectionAmount", "is not expected: the order is prepaid"},
	{"CollectionDiffers", "payment.collectionAmount", "is not the orderAmount, or the order has none"},
	{"PaymentTypeMissing", "payment.type", "is missing: nothing is expected to be collected"},
}

// PaymentWarnings yields each warning that applies. The report decides the same in
// SQL (reporting/archive/views/exceptions.sql); its test compares them.
func (o *OrderDraft) PaymentWarnings(yield func(*PaymentWarning) bool) {
	collection := o.Payment.CollectionAmount
	atDoor := o.Payment.Type == Cash || o.Payment.Type == Card
	for i, applies := range [len(paymentWarnings)]bool{
		atDoor && !collection.Set,
		o.Payment.Type == Prepaid && collection.Set,
		atDoor && collection.Set && collection != o.OrderAmount, // also when the order has no amount
		o.Payment.Type == PaymentUnknown,
	} {
		if applies && !yield(&paymentWarnings[i]) {
			return
		}
	}
}
