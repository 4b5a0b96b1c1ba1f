package archive

import (
	"math"
	"time"

	"vendorapi/internal/delivery"
)

// Order is a row of orders: an order as of one version. A zero time is NULL where allowed.
type Order struct {
	Account         delivery.AccountID     `ch:"account_id UUID"`
	CreatedAt       time.Time              `ch:"business_day Date; created_at DateTime64(3, 'UTC')"`
	ID              delivery.OrderID       `ch:"order_id UUID"`
	Version         uint64                 `ch:"version UInt64"`
	ExternalOrderID string                 `ch:"external_order_id String"`
	ExternalStoreID string                 `ch:"external_store_id String"`
	StoreName       string                 `ch:"store_name String" volatile:"the store may be renamed"`
	TaxNumber       string                 `ch:"tax_number String" volatile:"the store may change it"`
	Fleet           delivery.FleetID       `ch:"fleet_id UUID"`
	FleetName       string                 `ch:"fleet_name String"`
	Status          delivery.Status        `ch:"status String"`
	Failure         delivery.FailureReason `ch:"failure_reason String"`
	Cancel          delivery.CancelReason  `ch:"cancel_reason String"`
	OrderedAt       time.Time              `ch:"ordered_at Nullable(DateTime64(3, 'UTC'))"` // zero: the vendor gave none
	ReadyAt         time.Time              `ch:"ready_at DateTime64(3, 'UTC')"`
	AssignedAt      time.Time              `ch:"assigned_at Nullable(DateTime64(3, 'UTC'))"` // zero: not yet, or never
	PickedUpAt      time.Time              `ch:"picked_up_at Nullable(DateTime64(3, 'UTC'))"`
	DeliveredAt     time.Time              `ch:"delivered_at Nullable(DateTime64(3, 'UTC'))"`
	EndedAt         time.Time              `ch:"ended_at Nullable(DateTime64(3, 'UTC'))"`
	UpdatedAt       time.Time              `ch:"updated_at DateTime64(3, 'UTC')"`
	PaymentType     delivery.PaymentType   `ch:"payment_type String"`
	OrderAmount     delivery.Money         `ch:"order_amount Nullable(Decimal(18, 2))"`
	Collection      delivery.Money         `ch:"collection_amount Nullable(Decimal(18, 2))"`
	CourierName     string                 `ch:"courier_name String" volatile:"a swap raises no version"` // abbreviated; empty: none
	WithoutCourier  bool                   `ch:"without_courier Bool"`                                    // Delivered, and no courier was named
}

// Event is a row of order_events: a status that an order reached.
type Event struct {
	Account   delivery.AccountID     `ch:"account_id UUID"`
	CreatedAt time.Time              `ch:"business_day Date"` // of the order
	Order     delivery.OrderID       `ch:"order_id UUID"`
	Version   uint64                 `ch:"sequence UInt32; version UInt64"`
	Status    delivery.Status        `ch:"status String"`
	At        time.Time              `ch:"at DateTime64(3, 'UTC')"`
	Failure   delivery.FailureReason `ch:"failure_reason String"`
	Cancel    delivery.CancelReason  `ch:"cancel_reason String"`
}

// LateDelivery is a Delivered of an order that had failed or been cancelled.
type LateDelivery struct {
	Account    delivery.AccountID `ch:"account_id UUID"`
	CreatedAt  time.Time          `ch:"business_day Date"` // of the order
	Order      delivery.OrderID   `ch:"order_id UUID"`
	ReportedAt time.Time          `ch:"reported_at DateTime64(3, 'UTC')"`
}

// Outcome is one line of the ledger's stream of outcomes or of tries, which Partition,
// Entry and Line name.
type Outcome struct {
	Account      delivery.AccountID `ch:"account_id UUID"`
	At           time.Time          `ch:"day Date; at DateTime64(3, 'UTC')"`
	EventID      string             `ch:"event_id String"`
	Event        delivery.EventType `ch:"event String"`            // empty when nothing is known of the event any more
	Order        delivery.OrderID   `ch:"order_id Nullable(UUID)"` // zero: an event of a store or a fleet
	State        string             `ch:"state String"`            // delivered, undelivered or notSent; retrying: not the last attempt
	Attempt      int                `ch:"attempt UInt32"`
	HTTPStatus   int                `ch:"http_status UInt16"` // 0 without an answer
	Error        string             `ch:"error String"`
	Milliseconds int                `ch:"milliseconds UInt32"`
	Replay       bool               `ch:"replay Bool"`
	Probe        bool               `ch:"probe Bool"`
	Partition    int                `ch:"partition UInt16"`
	Entry        string             `ch:"entry String"`
	Line         int                `ch:"line UInt32"`
}

// Place is the key of an order's rows. It never changes: a row under another
// one would stay for ever.
type Place struct {
	Account delivery.AccountID
	Day     time.Time // midnight of the business day, see BusinessDay
	Order   delivery.OrderID
}

// PlaceOf is where the rows of an order belong.
func PlaceOf(o *delivery.Order) Place {
	return Place{Account: o.Account, Day: BusinessDay(o.CreatedAt), Order: o.ID}
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
func (b *Batch) Rows() int { return len(b.Orders) + len(b.Events) + len(b.Late) + len(b.Outcomes) }

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

// note takes over what a change says of the order. A status is reached once at most;
// skipped steps have changes of their own.
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

// EventOf is the row of the status that a version reached; false when the history has no
// such version: a restored backup did not hold it.
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
