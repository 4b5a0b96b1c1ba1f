package archive

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"vendorapi/internal/delivery"
)

// columnSet names a table and its columns with the types in which they are sent.
type columnSet struct {
	table string
	names []string
	kinds []string
}

// table is where rows of R go.
type table[R any] struct {
	columnSet
	columns []column[R]
	// check refuses what ClickHouse would store as something else.
	check func(*R) error
}

func newTable[R any](name string, check func(*R) error, columns ...column[R]) *table[R] {
	t := &table[R]{columnSet: columnSet{table: name}, columns: columns, check: check}
	for _, c := range columns {
		t.names, t.kinds = append(t.names, c.name), append(t.kinds, c.kind)
	}
	return t
}

// rowTables hold rows. The rest of the schema is made by Migrate.
var rowTables = []*columnSet{&orders.columnSet, &orderEvents.columnSet, &lateDeliveries.columnSet, &webhookOutcomes.columnSet}

// Tables are the names of the tables that hold rows.
func Tables() []string {
	var names []string
	for _, t := range rowTables {
		names = append(names, t.table)
	}
	return names
}

var orders = newTable("orders",
	func(o *Order) error {
		return errors.Join(
			checkTimes(o.CreatedAt, o.ReadyAt, o.UpdatedAt),
			checkOptionalTimes(o.OrderedAt, o.AssignedAt, o.PickedUpAt, o.DeliveredAt, o.EndedAt),
			checkMoney("order_amount", o.OrderAmount),
			checkMoney("collection_amount", o.Collection),
			checkStatus(o.Status),
		)
	},
	id("account_id", func(o *Order) [16]byte { return o.Account }),
	day("business_day", func(o *Order) time.Time { return o.CreatedAt }),
	id("order_id", func(o *Order) [16]byte { return o.ID }),
	number("version", "UInt64", func(o *Order) uint64 { return o.Version }),
	text("external_order_id", func(o *Order) string { return o.ExternalOrderID }),
	text("external_store_id", func(o *Order) string { return o.ExternalStoreID }),
	unstableText("store_name", func(o *Order) string { return o.StoreName }),
	unstableText("tax_number", func(o *Order) string { return o.TaxNumber }),
	id("fleet_id", func(o *Order) [16]byte { return o.Fleet }),
	text("fleet_name", func(o *Order) string { return o.FleetName }),
	text("status", func(o *Order) string { return o.Status.String() }),
	text("failure_reason", func(o *Order) string { return string(o.Failure) }),
	text("cancel_reason", func(o *Order) string { return string(o.Cancel) }),
	moment("created_at", func(o *Order) time.Time { return o.CreatedAt }),
	optionalMoment("ordered_at", func(o *Order) time.Time { return o.OrderedAt }),
	moment("ready_at", func(o *Order) time.Time { return o.ReadyAt }),
	optionalMoment("assigned_at", func(o *Order) time.Time { return o.AssignedAt }),
	optionalMoment("picked_up_at", func(o *Order) time.Time { return o.PickedUpAt }),
	optionalMoment("delivered_at", func(o *Order) time.Time { return o.DeliveredAt }),
	optionalMoment("ended_at", func(o *Order) time.Time { return o.EndedAt }),
	moment("updated_at", func(o *Order) time.Time { return o.UpdatedAt }),
	text("payment_type", func(o *Order) string { return o.PaymentType.String() }),
	amount("order_amount", func(o *Order) delivery.Money { return o.OrderAmount }),
	amount("collection_amount", func(o *Order) delivery.Money { return o.Collection }),
	unstableText("courier_name", func(o *Order) string { return o.CourierName }), // a swap raises no version
	flag("without_courier", func(o *Order) bool { return o.WithoutCourier }),
)

var orderEvents = newTable("order_events",
	func(e *Event) error {
		return errors.Join(checkTimes(e.CreatedAt, e.At), checkStatus(e.Status))
	},
	id("account_id", func(e *Event) [16]byte { return e.Account }),
	day("business_day", func(e *Event) time.Time { return e.CreatedAt }),
	id("order_id", func(e *Event) [16]byte { return e.Order }),
	number("sequence", "UInt32", func(e *Event) uint32 { return delivery.Sequence(e.Version) }),
	number("version", "UInt64", func(e *Event) uint64 { return e.Version }),
	text("status", func(e *Event) string { return e.Status.String() }),
	moment("at", func(e *Event) time.Time { return e.At }),
	text("failure_reason", func(e *Event) string { return string(e.Failure) }),
	text("cancel_reason", func(e *Event) string { return string(e.Cancel) }),
)

var lateDeliveries = newTable("late_deliveries",
	func(l *LateDelivery) error { return checkTimes(l.CreatedAt, l.ReportedAt) },
	id("account_id", func(l *LateDelivery) [16]byte { return l.Account }),
	day("business_day", func(l *LateDelivery) time.Time { return l.CreatedAt }),
	id("order_id", func(l *LateDelivery) [16]byte { return l.Order }),
	moment("reported_at", func(l *LateDelivery) time.Time { return l.ReportedAt }),
)

var webhookOutcomes = newTable("webhook_outcomes",
	func(o *Outcome) error {
		return errors.Join(
			checkTimes(o.At),
			checkRange("attempt", o.Attempt, math.MaxUint32),
			checkRange("http_status", o.HTTPStatus, math.MaxUint16),
			checkRange("milliseconds", o.Milliseconds, math.MaxUint32),
			checkRange("partition", o.Partition, math.MaxUint16),
			checkRange("line", o.Line, math.MaxUint32),
		)
	},
	id("account_id", func(o *Outcome) [16]byte { return o.Account }),
	day("day", func(o *Outcome) time.Time { return o.At }),
	text("event_id", func(o *Outcome) string { return o.EventID }),
	text("event", func(o *Outcome) string { return string(o.Event) }),
	optionalID("order_id", func(o *Outcome) [16]byte { return o.Order }),
	moment("at", func(o *Outcome) time.Time { return o.At }),
	text("state", func(o *Outcome) string { return o.State }),
	number("attempt", "UInt32", func(o *Outcome) uint32 { return uint32(o.Attempt) }),
	number("http_status", "UInt16", func(o *Outcome) uint16 { return uint16(o.HTTPStatus) }),
	text("error", func(o *Outcome) string { return o.Error }),
	number("milliseconds", "UInt32", func(o *Outcome) uint32 { return uint32(o.Milliseconds) }),
	flag("replay", func(o *Outcome) bool { return o.Replay }),
	flag("probe", func(o *Outcome) bool { return o.Probe }),
	number("partition", "UInt16", func(o *Outcome) uint16 { return uint16(o.Partition) }),
	text("entry", func(o *Outcome) string { return o.Entry }),
	number("line", "UInt32", func(o *Outcome) uint32 { return uint32(o.Line) }),
)

// The days of ClickHouse's Date, with a margin for zones.
var (
	firstDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2149, 6, 5, 0, 0, 0, 0, time.UTC)
)

func checkTimes(times ...time.Time) error {
	for _, at := range times {
		if at.Before(firstDay) || at.After(lastDay) {
			return fmt.Errorf("the time %s is not within 1970 to 2149", at.Format(time.RFC3339))
		}
	}
	return nil
}

// checkOptionalTimes takes zero times for absent ones.
func checkOptionalTimes(times ...time.Time) error {
	for _, at := range times {
		if err := checkTimes(at); err != nil && !at.IsZero() {
			return err
		}
	}
	return nil
}

func checkMoney(name string, m delivery.Money) error {
	if m.Minor < 0 || m.Minor > delivery.MaxMoneyMinor {
		return fmt.Errorf("%s is %d kuruş: wanted are 0 to %d", name, m.Minor, delivery.MaxMoneyMinor)
	}
	return nil
}

func checkStatus(s delivery.Status) error {
	if s < delivery.Searching || s > delivery.Cancelled {
		return fmt.Errorf("%s is no status of an order", s)
	}
	return nil
}

func checkRange(name string, value, limit int) error {
	if value < 0 || value > limit {
		return fmt.Errorf("%s is %d: wanted are 0 to %d", name, value, limit)
	}
	return nil
}

// column is a column of a table whose rows are made from R.
type column[R any] struct {
	name string
	// kind is the type in which values are sent. ClickHouse turns a String into
	// LowCardinality(String) faster than the driver does.
	kind string
	// values are those of the rows, in a slice of exactly as many elements.
	values func(rows []R) any
	// text is the value as ClickHouse's toString writes it; empty for NULL.
	text func(r *R) string
	// unstable columns say more than the order does: they are as they were when
	// the row was exported.
	unstable bool
}

// gather makes a column's values.
func gather[R, V any](get func(*R) V) func([]R) any {
	return func(rows []R) any {
		values := make([]V, len(rows))
		for i := range rows {
			values[i] = get(&rows[i])
		}
		return values
	}
}

// gatherNullable makes the values of a column that may be NULL, without an
// allocation for each.
func gatherNullable[R, V any](get func(*R) (V, bool)) func([]R) any {
	return func(rows []R) any {
		values, pointers := make([]V, len(rows)), make([]*V, len(rows))
		for i := range rows {
			var ok bool
			if values[i], ok = get(&rows[i]); ok {
				pointers[i] = &values[i]
			}
		}
		return pointers
	}
}

func id[R any](name string, get func(*R) [16]byte) column[R] {
	return column[R]{
		name: name, kind: "UUID",
		values: gather(func(r *R) uuid.UUID { return get(r) }),
		text:   func(r *R) string { return uuid.UUID(get(r)).String() },
	}
}

// optionalID is an id of which zero means NULL.
func optionalID[R any](name string, get func(*R) [16]byte) column[R] {
	c := id(name, get)
	c.kind = "Nullable(UUID)"
	c.values = gatherNullable(func(r *R) (uuid.UUID, bool) {
		value := get(r)
		return value, value != [16]byte{}
	})
	return c
}

func text[R any](name string, get func(*R) string) column[R] {
	return column[R]{name: name, kind: "String", values: gather(get), text: get}
}

// unstableText may change while the order's version stays.
func unstableText[R any](name string, get func(*R) string) column[R] {
	c := text(name, get)
	c.unstable = true
	return c
}

// number is an unsigned integer, whose type in ClickHouse is kind.
func number[R any, V uint16 | uint32 | uint64](name, kind string, get func(*R) V) column[R] {
	return column[R]{
		name: name, kind: kind,
		values: gather(get),
		text:   func(r *R) string { return strconv.FormatUint(uint64(get(r)), 10) },
	}
}

func flag[R any](name string, get func(*R) bool) column[R] {
	return column[R]{
		name: name, kind: "Bool",
		values: gather(get),
		text:   func(r *R) string { return strconv.FormatBool(get(r)) },
	}
}

// day is the local day of a time.
func day[R any](name string, get func(*R) time.Time) column[R] {
	// The driver takes the date in the time's own zone.
	local := func(r *R) time.Time { return get(r).In(delivery.Istanbul) }
	return column[R]{
		name: name, kind: "Date",
		values: gather(local),
		text:   func(r *R) string { return local(r).Format(time.DateOnly) },
	}
}

// momentKind is a time in milliseconds; the zone is the table's own matter.
const (
	momentKind   = "DateTime64(3, 'UTC')"
	momentFormat = "2006-01-02 15:04:05.000" // in delivery.Istanbul
)

func moment[R any](name string, get func(*R) time.Time) column[R] {
	return column[R]{
		name: name, kind: momentKind,
		values: gather(func(r *R) int64 { return get(r).UnixMilli() }),
		text: func(r *R) string {
			if at := get(r); !at.IsZero() {
				return at.In(delivery.Istanbul).Format(momentFormat)
			}
			return ""
		},
	}
}

// optionalMoment is a moment of which the zero time means NULL.
func optionalMoment[R any](name string, get func(*R) time.Time) column[R] {
	c := moment(name, get)
	c.kind = "Nullable(" + momentKind + ")"
	c.values = gatherNullable(func(r *R) (int64, bool) {
		at := get(r)
		return at.UnixMilli(), !at.IsZero()
	})
	return c
}

// amount is money; NULL when not given.
func amount[R any](name string, get func(*R) delivery.Money) column[R] {
	return column[R]{
		name: name, kind: "Nullable(Decimal(18, 2))",
		values: gatherNullable(func(r *R) (decimal.Decimal, bool) {
			m := get(r)
			return m.Decimal(), m.Set
		}),
		// ClickHouse drops the zeros behind the point.
		text: func(r *R) string {
			if m := get(r); m.Set {
				return m.Decimal().String()
			}
			return ""
		},
	}
}
