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

// values are the rows of a slice by column, as the driver takes them. The error names
// the first value that ClickHouse would store as something else.
func (t *table) values(rows reflect.Value) ([]reflect.Value, error) {
	all := make([]reflect.Value, len(t.columns))
	for i := range t.columns {
		values, row, err := t.columns[i].values(rows)
		if err != nil {
			return nil, fmt.Errorf("%s (%+v): %s %w", t.name, rows.Index(row), t.columns[i].name, err)
		}
		all[i] = reflect.ValueOf(values)
	}
	return all, nil
}

// The days of ClickHouse's Date, with a margin for zones.
var (
	firstDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2149, 6, 5, 0, 0, 0, 0, time.UTC)
)

// values are a slice of those of the rows; the error is that of the given row.
func (c *column) values(rows reflect.Value) (values any, row int, err error) {
	switch c.kind {
	case "UUID", "Nullable(UUID)":
		return gather(c, rows, func(field reflect.Value) (uuid.UUID, bool, error) {
			return uuid.UUID(field.Bytes()), !field.IsZero(), nil
		})
	case "Date":
		return gather(c, rows, func(field reflect.Value) (time.Time, bool, error) {
			at := field.Addr().Interface().(*time.Time)
			return at.In(delivery.Istanbul), true, checkTime(at) // the driver takes the date in the time's own zone
		})
	case "DateTime64(3, 'UTC')", "Nullable(DateTime64(3, 'UTC'))":
		return gather(c, rows, func(field reflect.Value) (int64, bool, error) {
			at := field.Addr().Interface().(*time.Time)
			if c.nullable && at.IsZero() {
				return 0, false, nil
			}
			return at.UnixMilli(), true, checkTime(at)
		})
	case "Nullable(Decimal(18, 2))":
		return gather(c, rows, func(field reflect.Value) (_ decimal.Decimal, set bool, err error) {
			amount := field.Addr().Interface().(*delivery.Money)
			if amount.Minor < 0 || amount.Minor > delivery.MaxMoneyMinor {
				err = fmt.Errorf("is %d kuruş: wanted are 0 to %d", amount.Minor, delivery.MaxMoneyMinor)
			}
			return amount.Decimal(), amount.Set, err
		})
	case "Bool":
		return gather(c, rows, func(field reflect.Value) (bool, bool, error) { return field.Bool(), true, nil })
	case "UInt64":
		return gather(c, rows, number[uint64])
	case "UInt32":
		return gather(c, rows, number[uint32])
	case "UInt16":
		return gather(c, rows, number[uint16])
	}
	return gather(c, rows, text)
}

// gather makes a slice of a field of all rows: of pointers, nil for NULL, when the
// column is nullable.
func gather[V any](c *column, rows reflect.Value, convert func(reflect.Value) (value V, set bool, err error)) (any, int, error) {
	values, pointers := make([]V, rows.Len()), []*V(nil)
	if c.nullable {
		pointers = make([]*V, len(values))
	}
	for i := range values {
		value, set, err := convert(rows.Index(i).Field(c.field))
		if err != nil {
			return nil, i, err
		}
		values[i] = value
		if c.nullable && set {
			pointers[i] = &values[i]
		}
	}
	if c.nullable {
		return pointers, 0, nil
	}
	return values, 0, nil
}

func checkTime(at *time.Time) error {
	if at.Before(firstDay) || at.After(lastDay) {
		return fmt.Errorf("is %s, not within 1970 to 2149", at.Format(time.RFC3339))
	}
	return nil
}

func number[V uint16 | uint32 | uint64](field reflect.Value) (n V, set bool, err error) { //nolint:unparam // gather calls it
	if field.CanUint() {
		return V(field.Uint()), true, nil // a version's lower half is its sequence
	}
	if n = V(field.Int()); int64(n) != field.Int() {
		err = fmt.Errorf("is %d: %T cannot hold it", field.Int(), n)
	}
	return n, true, err
}

func text(field reflect.Value) (_ string, set bool, err error) {
	if field.Kind() == reflect.String {
		return field.String(), true, nil
	}
	switch v := field.Interface().(type) {
	case delivery.Status:
		if v < delivery.Searching || v > delivery.Cancelled {
			err = fmt.Errorf("is %s, no status of an order", v)
		}
		return v.String(), true, err
	case delivery.PaymentType:
		return v.String(), true, nil
	}
	return "", false, fmt.Errorf("is no text: %s", field.Type())
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
