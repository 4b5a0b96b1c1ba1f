package archive

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
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
	CourierName     string                 `ch:"courier_name String" volatile:"a release may abbreviate otherwise"` // empty: none
	WithoutCourier  bool                   `ch:"without_courier Bool"`                                              // Delivered, and no courier was named
}

// Event is a row of order_events: a version of an order.
type Event struct {
	Account     delivery.AccountID     `ch:"account_id UUID"`
	CreatedAt   time.Time              `ch:"business_day Date"` // of the order
	Order       delivery.OrderID       `ch:"order_id UUID"`
	Version     uint64                 `ch:"sequence UInt32; version UInt64"`
	Kind        delivery.ChangeKind    `ch:"kind String"`
	Status      delivery.Status        `ch:"status String"`
	At          time.Time              `ch:"at DateTime64(3, 'UTC')"`
	Failure     delivery.FailureReason `ch:"failure_reason String"`
	Cancel      delivery.CancelReason  `ch:"cancel_reason String"`
	CourierName string                 `ch:"courier_name String" volatile:"a release may abbreviate otherwise"` // of a change of the courier
	ETA         time.Time              `ch:"eta_dropoff_at Nullable(DateTime64(3, 'UTC'))"`                     // of an estimate
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
	Audit    []audit.Entry
}

// Rows is how many rows the batch has.
func (b *Batch) Rows() int {
	return len(b.Orders) + len(b.Events) + len(b.Late) + len(b.Outcomes) + len(b.Audit)
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

	for i := range o.Changes { // a status is reached once at most; skipped steps have changes of their own
		c := &o.Changes[i]
		switch {
		case c.Kind != delivery.StatusReached:
		case c.Status == delivery.Assigned:
			row.AssignedAt = c.At
		case c.Status == delivery.PickedUp:
			row.PickedUpAt = c.At
		case c.Status == delivery.Delivered:
			row.DeliveredAt, row.EndedAt = c.At, c.At
		case c.Status.Terminal():
			row.EndedAt, row.Failure, row.Cancel = c.At, c.Failure, c.Cancel
		}
	}

	return row
}

// EventOf is the row of a version; false when the history has no such version: a restored backup did
// not hold it.
func EventOf(o *delivery.Order, version uint64) (Event, bool) {
	e := Event{
		Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID,
		Version: version, Status: delivery.Searching, At: o.CreatedAt,
	}
	if delivery.Sequence(version) == 1 {
		return e, version == delivery.FirstVersion(o.CreatedAt)
	}

	c, ok := o.At(version)
	if !ok || c.Version != version {
		return Event{}, false
	}

	e.Kind, e.Status, e.At, e.Failure, e.Cancel = c.Kind, c.Status, c.At, c.Failure, c.Cancel
	switch c.Kind {
	case delivery.CourierNamed, delivery.CourierReplaced:
		e.CourierName = delivery.AbbreviateName(c.Courier.Name)
	case delivery.EstimateRevised:
		e.ETA = c.ETA
	case delivery.StatusReached: // its row has the status alone
	}

	return e, true
}

// EventsOf are the rows of all that an order went through, its creation first.
func EventsOf(o *delivery.Order) []Event {
	events := make([]Event, 1+len(o.Changes))
	events[0], _ = EventOf(o, delivery.FirstVersion(o.CreatedAt))
	for i := range o.Changes {
		events[i+1], _ = EventOf(o, o.Changes[i].Version)
	}
	return events
}

// table is where rows of one struct go. The struct's tags name the columns with
// the types in which values are sent: ClickHouse turns a String into
// LowCardinality(String) faster than the driver does. The zones of columns are the
// schema's own matter.
type table struct {
	name    string
	columns []column
	// appended: rows do not replace each other, so none may be stored twice.
	appended bool
}

type column struct {
	name, kind string
	field      int  // of the struct
	nullable   bool // the zero value, and an amount that is not set, is NULL
	// volatile columns say more than the order does: they are as they were when the
	// row was exported.
	volatile bool
}

var (
	orders          = newTable[Order]("orders")
	orderEvents     = newTable[Event]("order_events")
	lateDeliveries  = newTable[LateDelivery]("late_deliveries")
	webhookOutcomes = newTable[Outcome]("webhook_outcomes")
	auditTable      = newTable[auditRow]("audit")
	journalTable    = &table{"journal", columnsOf[journalRow](), true}

	// What ClickHouse fills itself, for copies of it. The driver writes no UInt256: ClickHouse reads it from a String.
	closedOrders = listedTable("closed_orders", "batch UUID; account_id UUID; business_day Date; order_id UUID; entry UInt32; sign Int8; "+
		"posted_day Date; correction_of Date; cause String; version UInt64; external_order_id String; external_store_id String; store_name String; "+
		"tax_number String; fleet_id UUID; fleet_name String; status String; failure_reason String; cancel_reason String; created_at DateTime64(3, 'UTC'); "+
		"ordered_at Nullable(DateTime64(3, 'UTC')); picked_up_at Nullable(DateTime64(3, 'UTC')); delivered_at Nullable(DateTime64(3, 'UTC')); "+
		"ended_at Nullable(DateTime64(3, 'UTC')); payment_type String; order_amount Nullable(Decimal(18, 2)); collection_amount Nullable(Decimal(18, 2)); "+
		"courier_name String; without_courier Bool; reported_at Nullable(DateTime64(3, 'UTC'))")
	closedDays = listedTable("closed_days", "batch UUID; account_id UUID; booked_day Date; day Date; correction_of Date; fleet_id UUID; "+
		"external_store_id String; created Int64; delivered Int64; failed Int64; cancelled Int64; cash_count Int64; card_count Int64; prepaid_count Int64; "+
		"no_payment_type_count Int64; cash_without_amount_count Int64; order_amount_delivered Decimal(18, 2); cash_expected Decimal(18, 2); "+
		"card_expected Decimal(18, 2); prepaid_amount Decimal(18, 2); no_payment_type_amount Decimal(18, 2); fleet_name String; fleet_youngest String; "+
		"store_name String; store_youngest String; delivered_fleet_name String; delivered_fleet_youngest String; delivered_store_name String; "+
		"delivered_store_youngest String")
	deliverySets = &table{"delivery_sets", columnsOf[DeliverySet](), true}

	reconciliations = replacingTable("reconciliations", "account_id UUID; at DateTime64(3, 'UTC'); from_day Date; to_day Date; "+
		"orders UInt64; differences UInt64; totals UInt64")

	identity = listedTable(Identity, "number UInt32; environment String; ledger String; since DateTime64(3, 'UTC')")

	rowTables = []*table{orders, orderEvents, lateDeliveries, webhookOutcomes, auditTable, journalTable, closedOrders, closedDays, deliverySets, reconciliations, identity}
)

// Identity is the name of the table that says whose the database is. A database without any order
// has a row in it.
const Identity = "identity"

// Tables are the names of the tables that hold rows: what a backup has.
func Tables() (names []string) {
	for _, t := range rowTables {
		names = append(names, t.name)
	}
	return names
}

func newTable[R any](name string) *table { return &table{name: name, columns: columnsOf[R]()} }

func listedTable(name, columns string) *table {
	t := &table{name: name, appended: true}
	for text := range strings.SplitSeq(columns, "; ") {
		name, kind, _ := strings.Cut(text, " ")
		t.columns = append(t.columns, column{name: name, kind: kind})
	}
	return t
}

// replacingTable is a listed table whose rows replace each other.
func replacingTable(name, columns string) *table {
	t := listedTable(name, columns)
	t.appended = false
	return t
}

func columnsOf[R any]() (columns []column) {
	for i, field := range reflect.VisibleFields(reflect.TypeFor[R]()) {
		_, volatile := field.Tag.Lookup("volatile")
		for text := range strings.SplitSeq(field.Tag.Get("ch"), "; ") {
			name, kind, _ := strings.Cut(text, " ")
			columns = append(columns, column{name: name, kind: kind, field: i, nullable: strings.HasPrefix(kind, "Nullable"), volatile: volatile})
		}
	}
	return columns
}

func (t *table) index(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
}

// list writes every column in a format, of its name and its type, with commas between.
func (t *table) list(format string) string {
	columns := make([]string, len(t.columns))
	for i, c := range t.columns {
		columns[i] = fmt.Sprintf(format, c.name, c.kind)
	}
	return strings.Join(columns, ", ")
}

// The days of ClickHouse's Date, with a margin for zones.
var (
	firstDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2149, 6, 5, 0, 0, 0, 0, time.UTC)
)

// values are the rows of a slice by column, as the driver takes them. The error names
// the first value that ClickHouse would store as something else.
func (t *table) values(rows reflect.Value) ([]reflect.Value, error) {
	row := reflect.New(rows.Type().Elem()).Elem() // each in turn: its fields are looked up once
	all, add := make([]reflect.Value, len(t.columns)), make([]func(int) error, len(t.columns))
	for i := range t.columns {
		all[i], add[i] = t.columns[i].gather(row.Field(t.columns[i].field), rows.Len())
	}

	for n := range rows.Len() {
		row.Set(rows.Index(n))
		for i := range add {
			if err := add[i](n); err != nil {
				return nil, fmt.Errorf("%s (%+v): %s %w", t.name, row, t.columns[i].name, err)
			}
		}
	}

	return all, nil
}

// gather makes a slice for n values of the field, and what adds the present one.
func (c *column) gather(field reflect.Value, n int) (values reflect.Value, add func(i int) error) {
	switch c.kind {
	case "UUID", "Nullable(UUID)":
		return gather(c, field, n, func(id uuid.UUID) (uuid.UUID, bool, error) { return id, id != uuid.Nil, nil })
	case "Date":
		return gather(c, field, n, func(at time.Time) (time.Time, bool, error) {
			return at.In(delivery.Istanbul), true, checkTime(at) // the driver takes the date in the time's own zone
		})
	case "DateTime64(3, 'UTC')", "Nullable(DateTime64(3, 'UTC'))":
		return gather(c, field, n, func(at time.Time) (int64, bool, error) {
			if c.nullable && at.IsZero() {
				return 0, false, nil
			}
			return at.UnixMilli(), true, checkTime(at)
		})
	case "Nullable(Decimal(18, 2))":
		return gather(c, field, n, func(amount delivery.Money) (_ decimal.Decimal, set bool, err error) {
			if amount.Minor < 0 || amount.Minor > delivery.MaxMoneyMinor {
				err = fmt.Errorf("is %d kuruş: wanted are 0 to %d", amount.Minor, delivery.MaxMoneyMinor)
			}
			return amount.Decimal(), amount.Set, err
		})
	case "Bool":
		return gather(c, field, n, unchanged[bool])
	case "UInt64":
		return gather(c, field, n, unchanged[uint64])
	case "UInt32":
		if field.CanUint() { // a version, whose last bits are its sequence
			return gather(c, field, n, func(version uint64) (uint32, bool, error) { return delivery.Sequence(version), true, nil })
		}
		return gather(c, field, n, narrow[uint32])
	case "UInt16":
		return gather(c, field, n, narrow[uint16])
	}

	switch field.Interface().(type) {
	case delivery.Status:
		return gather(c, field, n, func(s delivery.Status) (_ string, set bool, err error) {
			if s < delivery.Searching || s > delivery.Cancelled {
				err = fmt.Errorf("is %s, no status of an order", s)
			}
			return s.String(), true, err
		})
	case delivery.ChangeKind:
		return gather(c, field, n, func(k delivery.ChangeKind) (_ string, set bool, err error) {
			if k.String() == "" {
				err = fmt.Errorf("is %d, no kind of change", k)
			}
			return k.String(), true, err
		})
	case delivery.PaymentType:
		return gather(c, field, n, func(t delivery.PaymentType) (string, bool, error) { return t.String(), true, nil })
	}

	return gather(c, field, n, unchanged[string])
}

// gather makes a slice of pointers, nil for NULL, when the column is nullable.
func gather[F, V any](c *column, field reflect.Value, n int, convert func(F) (value V, set bool, err error)) (reflect.Value, func(int) error) {
	from := field.Addr().Convert(reflect.TypeFor[*F]()).Interface().(*F)
	var pointers []*V
	values := make([]V, n)
	all := reflect.ValueOf(values)
	if c.nullable {
		pointers = make([]*V, n)
		all = reflect.ValueOf(pointers)
	}

	return all, func(i int) (err error) {
		var set bool
		values[i], set, err = convert(*from)
		if set && c.nullable {
			pointers[i] = &values[i]
		}
		return err
	}
}

func unchanged[V any](value V) (V, bool, error) { return value, true, nil }

func narrow[V uint16 | uint32](wide int) (n V, set bool, err error) {
	n = V(wide)
	if int(n) != wide {
		err = fmt.Errorf("is %d: %T cannot hold it", wide, n)
	}
	return n, true, err
}

func checkTime(at time.Time) error {
	if at.Before(firstDay) || at.After(lastDay) {
		return fmt.Errorf("is %s, not within 1970 to 2149", at.Format(time.RFC3339))
	}
	return nil
}

// printed is a value as ClickHouse's toString writes it; empty for NULL.
func printed(value reflect.Value) string {
	if value.Kind() == reflect.Pointer && value.IsNil() {
		return ""
	}

	switch v := reflect.Indirect(value).Interface().(type) {
	case int64:
		return time.UnixMilli(v).In(delivery.Istanbul).Format("2006-01-02 15:04:05.000")
	case time.Time:
		return v.Format(time.DateOnly)
	default:
		return fmt.Sprint(v) // of decimals without zeros behind the point
	}
}
