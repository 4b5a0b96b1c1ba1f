package archive

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

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

// values are the rows of a slice as the driver takes them. The error names the first
// value that ClickHouse would store as something else.
func (t *table) values(slice any) ([][]any, error) {
	rows := reflect.ValueOf(slice)
	all := slices.Collect(slices.Chunk(make([]any, rows.Len()*len(t.columns)), len(t.columns)))
	for i := range all {
		for j := range t.columns {
			var err error
			if all[i][j], err = t.columns[j].value(rows.Index(i)); err != nil {
				return nil, fmt.Errorf("%s (%+v): %w", t.name, rows.Index(i), err)
			}
		}
	}
	return all, nil
}

// The days of ClickHouse's Date, with a margin for zones.
var (
	firstDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2149, 6, 5, 0, 0, 0, 0, time.UTC)
)

// value is a row's value as the driver takes it, in place where it can; nil for NULL.
func (c *column) value(row reflect.Value) (any, error) {
	field := row.Field(c.field).Addr().Interface()
	switch v := field.(type) {
	case *time.Time:
		switch {
		case v.IsZero() && c.nullable:
			return nil, nil
		case v.Before(firstDay) || v.After(lastDay):
			return nil, fmt.Errorf("the time %s is not within 1970 to 2149", v.Format(time.RFC3339))
		case c.kind == "Date":
			return v.Round(0).In(delivery.Istanbul), nil // the driver takes the date in the time's own zone
		}
		return v.UnixMilli(), nil
	case *delivery.Money:
		switch {
		case v.Minor < 0 || v.Minor > delivery.MaxMoneyMinor:
			return nil, fmt.Errorf("%s is %d kuruş: wanted are 0 to %d", c.name, v.Minor, delivery.MaxMoneyMinor)
		case !v.Set:
			return nil, nil
		}
		return v.Decimal(), nil
	case *delivery.Status:
		if *v < delivery.Searching || *v > delivery.Cancelled {
			return nil, fmt.Errorf("%s is no status of an order", v)
		}
		return v.String(), nil
	case *delivery.PaymentType:
		return v.String(), nil
	case *uint64:
		if c.kind == "UInt32" {
			return delivery.Sequence(*v), nil
		}
	case *int:
		if *v < 0 || *v > math.MaxUint32 || *v > math.MaxUint16 && c.kind == "UInt16" {
			return nil, fmt.Errorf("%s is %d: %s cannot hold it", c.name, *v, c.kind)
		}
		return *v, nil // the driver converts it
	case *delivery.AccountID:
		return (*uuid.UUID)(v), nil
	case *delivery.FleetID:
		return (*uuid.UUID)(v), nil
	case *delivery.OrderID:
		if c.nullable && v.IsZero() {
			return nil, nil
		}
		return (*uuid.UUID)(v), nil
	case *delivery.FailureReason:
		return (*string)(v), nil
	case *delivery.CancelReason:
		return (*string)(v), nil
	case *delivery.EventType:
		return (*string)(v), nil
	}
	return field, nil
}

// text is a row's value as ClickHouse's toString writes it; empty for NULL.
func (c *column) text(row reflect.Value) string {
	value, err := c.value(row)
	switch v := value.(type) {
	case nil:
		if err != nil { // a value that ClickHouse cannot hold, which differs from all that it can
			return err.Error()
		}
		return ""
	case int64:
		return time.UnixMilli(v).In(delivery.Istanbul).Format("2006-01-02 15:04:05.000")
	case time.Time:
		return v.Format(time.DateOnly)
	}
	return printed(value) // of decimals without zeros behind the point
}

// printed is a value of the driver's.
func printed(value any) string { return fmt.Sprint(reflect.Indirect(reflect.ValueOf(value))) }
