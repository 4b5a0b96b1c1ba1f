package archive

import (
	"fmt"
	"reflect"
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
}

func newTable[R any](name string, columns ...column[R]) *table[R] {
	t := &table[R]{columnSet: columnSet{table: name}, columns: columns}
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
	id("account_id", func(o *Order) [16]byte { return o.Account }),
	day("business_day", func(o *Order) time.Time { return o.CreatedAt }),
	id("order_id", func(o *Order) [16]byte { return o.ID }),
	number[uint64]("version", func(o *Order) uint64 { return o.Version }),
	text("external_order_id", func(o *Order) string { return o.ExternalOrderID }),
	text("external_store_id", func(o *Order) string { return o.ExternalStoreID }),
	unstableText("store_name", func(o *Order) string { return o.StoreName }),
	unstableText("tax_number", func(o *Order) string { return o.TaxNumber }),
	id("fleet_id", func(o *Order) [16]byte { return o.Fleet }),
	text("fleet_name", func(o *Order) string { return o.FleetName }),
	status("status", func(o *Order) delivery.Status { return o.Status }),
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
	id("account_id", func(e *Event) [16]byte { return e.Account }),
	day("business_day", func(e *Event) time.Time { return e.CreatedAt }),
	id("order_id", func(e *Event) [16]byte { return e.Order }),
	number[uint32]("sequence", func(e *Event) uint32 { return delivery.Sequence(e.Version) }),
	number[uint64]("version", func(e *Event) uint64 { return e.Version }),
	status("status", func(e *Event) delivery.Status { return e.Status }),
	moment("at", func(e *Event) time.Time { return e.At }),
	text("failure_reason", func(e *Event) string { return string(e.Failure) }),
	text("cancel_reason", func(e *Event) string { return string(e.Cancel) }),
)

var lateDeliveries = newTable("late_deliveries",
	id("account_id", func(l *LateDelivery) [16]byte { return l.Account }),
	day("business_day", func(l *LateDelivery) time.Time { return l.CreatedAt }),
	id("order_id", func(l *LateDelivery) [16]byte { return l.Order }),
	moment("reported_at", func(l *LateDelivery) time.Time { return l.ReportedAt }),
)

var webhookOutcomes = newTable("webhook_outcomes",
	id("account_id", func(o *Outcome) [16]byte { return o.Account }),
	day("day", func(o *Outcome) time.Time { return o.At }),
	text("event_id", func(o *Outcome) string { return o.EventID }),
	text("event", func(o *Outcome) string { return string(o.Event) }),
	optionalID("order_id", func(o *Outcome) [16]byte { return o.Order }),
	moment("at", func(o *Outcome) time.Time { return o.At }),
	text("state", func(o *Outcome) string { return o.State }),
	number[uint32]("attempt", func(o *Outcome) int { return o.Attempt }),
	number[uint16]("http_status", func(o *Outcome) int { return o.HTTPStatus }),
	text("error", func(o *Outcome) string { return o.Error }),
	number[uint32]("milliseconds", func(o *Outcome) int { return o.Milliseconds }),
	flag("replay", func(o *Outcome) bool { return o.Replay }),
	flag("probe", func(o *Outcome) bool { return o.Probe }),
	number[uint16]("partition", func(o *Outcome) int { return o.Partition }),
	text("entry", func(o *Outcome) string { return o.Entry }),
	number[uint32]("line", func(o *Outcome) int { return o.Line }),
)

// The days of ClickHouse's Date, with a margin for zones.
var (
	firstDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2149, 6, 5, 0, 0, 0, 0, time.UTC)
)

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
	// check refuses what ClickHouse would store as something else; nil: it holds all.
	check func(r *R) error
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

func status[R any](name string, get func(*R) delivery.Status) column[R] {
	c := text(name, func(r *R) string { return get(r).String() })
	c.check = func(r *R) error {
		if s := get(r); s < delivery.Searching || s > delivery.Cancelled {
			return fmt.Errorf("%s is no status of an order", s)
		}
		return nil
	}
	return c
}

// number is an unsigned integer that is stored as V.
func number[V uint16 | uint32 | uint64, R any, N int | uint32 | uint64](name string, get func(*R) N) column[R] {
	kind := fmt.Sprintf("UInt%d", reflect.TypeFor[V]().Bits())
	return column[R]{
		name: name, kind: kind,
		values: gather(func(r *R) V { return V(get(r)) }),
		text:   func(r *R) string { return fmt.Sprint(get(r)) },
		check: func(r *R) error {
			if n := get(r); N(V(n)) != n {
				return fmt.Errorf("%s is %d: %s cannot hold it", name, n, kind)
			}
			return nil
		},
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
		check:  func(r *R) error { return checkTime(get(r)) },
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
		check: func(r *R) error { return checkTime(get(r)) },
	}
}

func checkTime(at time.Time) error {
	if at.Before(firstDay) || at.After(lastDay) {
		return fmt.Errorf("the time %s is not within 1970 to 2149", at.Format(time.RFC3339))
	}
	return nil
}

// optionalMoment is a moment of which the zero time means NULL.
func optionalMoment[R any](name string, get func(*R) time.Time) column[R] {
	c := moment(name, get)
	c.kind = "Nullable(" + momentKind + ")"
	c.values = gatherNullable(func(r *R) (int64, bool) {
		at := get(r)
		return at.UnixMilli(), !at.IsZero()
	})
	c.check = func(r *R) error {
		if get(r).IsZero() {
			return nil
		}
		return checkTime(get(r))
	}
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
		check: func(r *R) error {
			if m := get(r); m.Minor < 0 || m.Minor > delivery.MaxMoneyMinor {
				return fmt.Errorf("%s is %d kuruş: wanted are 0 to %d", name, m.Minor, delivery.MaxMoneyMinor)
			}
			return nil
		},
	}
}
