package archive

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"vendorapi/internal/delivery"
)

// table is where rows of one struct go. The struct's tags name the columns with
// the types in which values are sent: ClickHouse turns a String into
// LowCardinality(String) faster than the driver does. The zones of columns are the
// schema's own matter.
type table struct {
	name    string
	columns []column
}

type column struct {
	name, kind string
	field      int  // of the struct
	nullable   bool // the zero value, and an amount that is not set, is NULL
	// volatile columns say more than the order does: they are as they were when the
	// row was exported.
	volatile bool
}

// The tables that hold rows. The rest of the schema is made by Migrate.
var (
	orders          = newTable[Order]("orders")
	orderEvents     = newTable[Event]("order_events")
	lateDeliveries  = newTable[LateDelivery]("late_deliveries")
	webhookOutcomes = newTable[Outcome]("webhook_outcomes")
	rowTables       = []*table{orders, orderEvents, lateDeliveries, webhookOutcomes}
)

// Tables are the names of the tables that hold rows.
func Tables() (names []string) {
	for _, t := range rowTables {
		names = append(names, t.name)
	}
	return names
}

func newTable[R any](name string) *table {
	t := &table{name: name}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[R]()) {
		_, volatile := field.Tag.Lookup("volatile")
		for text := range strings.SplitSeq(field.Tag.Get("ch"), "; ") {
			name, kind, _ := strings.Cut(text, " ")
			t.columns = append(t.columns, column{name: name, kind: kind, field: i, nullable: strings.HasPrefix(kind, "Nullable"), volatile: volatile})
		}
	}
	return t
}

// names are those of the columns.
func (t *table) names() (names []string) {
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	return names
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
		if field.CanUint() { // a version's lower half is its sequence
			return gather(c, field, n, func(version uint64) (uint32, bool, error) { return uint32(version), true, nil })
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
	case delivery.PaymentType:
		return gather(c, field, n, func(t delivery.PaymentType) (string, bool, error) { return t.String(), true, nil })
	}
	return gather(c, field, n, unchanged[string])
}

// gather makes a slice of pointers, nil for NULL, when the column is nullable.
func gather[F, V any](c *column, field reflect.Value, n int, convert func(F) (value V, set bool, err error)) (reflect.Value, func(int) error) {
	from := field.Addr().Convert(reflect.TypeFor[*F]()).Interface().(*F)
	values := make([]V, n)
	if !c.nullable {
		return reflect.ValueOf(values), func(i int) (err error) {
			values[i], _, err = convert(*from)
			return err
		}
	}
	pointers := make([]*V, n)
	return reflect.ValueOf(pointers), func(i int) (err error) {
		var set bool
		if values[i], set, err = convert(*from); set {
			pointers[i] = &values[i]
		}
		return err
	}
}

func unchanged[V any](value V) (V, bool, error) { return value, true, nil }

func narrow[V uint16 | uint32](wide int) (n V, set bool, err error) {
	if n = V(wide); int(n) != wide {
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
