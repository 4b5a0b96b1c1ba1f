package archive

import (
	"math"
	"time"

	"vendorapi/internal/delivery"
)

// Order is a row of orders: an order as of one version. A zero time is NULL
// where the schema allows it.
type Order struct {
	Account         delivery.AccountID
	ID              delivery.OrderID
	Version         uint64
	ExternalOrderID string
	ExternalStoreID string
	StoreName       string
	TaxNumber       string
	Fleet           delivery.FleetID
	FleetName       string
	Status          delivery.Status
	Failure         delivery.FailureReason
	Cancel          delivery.CancelReason
	CreatedAt       time.Time
	OrderedAt       time.Time // zero: the vendor gave none
	ReadyAt         time.Time
	AssignedAt      time.Time // zero: not yet, or never
	PickedUpAt      time.Time
	DeliveredAt     time.Time
	EndedAt         time.Time
	UpdatedAt       time.Time
	PaymentType     delivery.PaymentType
	OrderAmount     delivery.Money
	Collection      delivery.Money
	CourierName     string // abbreviated; empty: none was reported
	WithoutCourier  bool   // Delivered, and no courier was named by then
}

// Place is where rows of the order lie.
func (o *Order) Place() Place {
	return Place{Account: o.Account, Day: BusinessDay(o.CreatedAt), Order: o.ID}
}

// Event is a row of order_events: a status that an order reached.
type Event struct {
	Account   delivery.AccountID
	CreatedAt time.Time // of the order; its local day is the row's business day
	Order     delivery.OrderID
	Version   uint64
	Status    delivery.Status
	At        time.Time
	Failure   delivery.FailureReason
	Cancel    delivery.CancelReason
}

// LateDelivery is a row of late_deliveries: a Delivered that a courier reported
// of an order that had failed or been cancelled.
type LateDelivery struct {
	Account    delivery.AccountID
	CreatedAt  time.Time // of the order
	Order      delivery.OrderID
	ReportedAt time.Time
}

// Outcome is a row of webhook_outcomes: one line of the ledger's stream of
// outcomes or of tries, which Partition, Entry and Line name.
type Outcome struct {
	Account      delivery.AccountID
	At           time.Time
	EventID      string
	Event        delivery.EventType // empty when nothing is known of the event any more
	Order        delivery.OrderID   // zero: an event of a store or a fleet
	State        string             // delivered, undelivered or notSent; retrying: an attempt that was not the last
	Attempt      int
	HTTPStatus   int // 0 without an answer
	Error        string
	Milliseconds int
	Replay       bool
	Probe        bool
	Partition    int
	Entry        string
	Line         int
}

// Place is the key of an order's rows. It never changes: a row under another
// one would stay for ever.
type Place struct {
	Account delivery.AccountID
	Day     time.Time // midnight of the business day, see BusinessDay
	Order   delivery.OrderID
}

// BusinessDay is the local day of a time: its midnight at +03:00.
func BusinessDay(t time.Time) time.Time {
	y, m, d := t.In(delivery.Istanbul).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, delivery.Istanbul)
}

// Batch is what Insert stores.
type Batch struct {
	Orders   []Order
	Events   []Event
	Late     []LateDelivery
	Outcomes []Outcome
}

// Rows is how many rows the batch has.
func (b *Batch) Rows() int {
	return len(b.Orders) + len(b.Events) + len(b.Late) + len(b.Outcomes)
}

// OrderOf is the row of an order as it is now. s is its store, nil when that is
// not there any more.
func OrderOf(o *delivery.Order, s *delivery.Store) Order {
	row := Order{
		Account: o.Account, ID: o.ID, Version: o.Version,
		ExternalOrderID: o.ExternalOrderID, ExternalStoreID: o.ExternalStoreID,
		Fleet: o.Fleet.ID, FleetName: o.Fleet.Name,
		Status:    o.Status,
		CreatedAt: o.CreatedAt, OrderedAt: o.OrderedAt, ReadyAt: o.ReadyAt, UpdatedAt: o.UpdatedAt(),
		PaymentType: o.Payment.Type, OrderAmount: o.OrderAmount, Collection: o.Payment.CollectionAmount,
		CourierName:    delivery.AbbreviateName(o.Courier.Name),
		WithoutCourier: o.Status == delivery.Delivered && o.Courier.IsZero(),
	}
	if s != nil {
		row.StoreName, row.TaxNumber = s.Name, s.TaxNumber
	}
	for i := range o.Changes {
		row.note(&o.Changes[i])
	}
	return row
}

// note takes over what a change says of the order. Every status is reached once
// at most: skipped steps are filled in with changes of their own.
func (o *Order) note(c *delivery.Change) {
	switch s := c.Status; {
	case s == delivery.Assigned:
		o.AssignedAt = c.At
	case s == delivery.PickedUp:
		o.PickedUpAt = c.At
	case s == delivery.Delivered:
		o.DeliveredAt, o.EndedAt = c.At, c.At
	case s.Terminal():
		o.EndedAt, o.Failure, o.Cancel = c.At, c.Failure, c.Cancel
	}
}

// EventOf is the row of the status that a version reached; false when the
// order's history has no such version: it was lost with the part of the ledger
// that a restored backup did not hold.
func EventOf(o *delivery.Order, version uint64) (Event, bool) {
	e := Event{
		Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID,
		Version: version, Status: delivery.Searching, At: o.CreatedAt,
	}
	if delivery.Sequence(version) == 1 {
		return e, true
	}
	c, ok := o.At(version)
	if !ok || c.Version != version {
		return Event{}, false
	}
	e.Status, e.At, e.Failure, e.Cancel = c.Status, c.At, c.Failure, c.Cancel
	return e, true
}

// EventsOf are the rows of all that an order went through, its creation first.
func EventsOf(o *delivery.Order) []Event {
	events := make([]Event, 0, 1+len(o.Changes))
	creation, _ := EventOf(o, creationOf(o))
	events = append(events, creation)
	for i := range o.Changes {
		e, _ := EventOf(o, o.Changes[i].Version)
		events = append(events, e)
	}
	return events
}

// creationOf is the version of the creation. Its epoch is not kept once the order
// has changed; that of the first change is never below it.
func creationOf(o *delivery.Order) uint64 {
	version := o.Version
	if len(o.Changes) > 0 {
		version = o.Changes[0].Version
	}
	return version&^math.MaxUint32 | 1
}
