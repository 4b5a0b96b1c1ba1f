package archive

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"vendorapi/internal/delivery"
)

// column is a column of a table whose rows are made from R.
type column[R any] struct {
	name string
	// kind is the type in which values are sent. ClickHouse turns a String into
	// LowCardinality(String) faster than the driver does.
	kind string
	// values are those of the rows, in a slice of exactly as many elements.
	values func(rows []R) any
	// encode appends the value of one row, so that different values are
	// different bytes. With the columns in their order it is the row's content.
	encode func(b []byte, r *R) []byte
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
		encode: func(b []byte, r *R) []byte {
			value := get(r)
			return append(b, value[:]...)
		},
		text: func(r *R) string { return uuid.UUID(get(r)).String() },
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
	return column[R]{
		name: name, kind: "String",
		values: gather(get),
		encode: func(b []byte, r *R) []byte {
			value := get(r)
			b = binary.AppendUvarint(b, uint64(len(value)))
			return append(b, value...)
		},
		text: get,
	}
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
		encode: func(b []byte, r *R) []byte { return binary.AppendUvarint(b, uint64(get(r))) },
		text:   func(r *R) string { return strconv.FormatUint(uint64(get(r)), 10) },
	}
}

func flag[R any](name string, get func(*R) bool) column[R] {
	return column[R]{
		name: name, kind: "Bool",
		values: gather(get),
		encode: func(b []byte, r *R) []byte { return strconv.AppendBool(b, get(r)) },
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
		encode: func(b []byte, r *R) []byte { return local(r).AppendFormat(b, time.DateOnly) },
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
		encode: func(b []byte, r *R) []byte { return binary.AppendVarint(b, get(r).UnixMilli()) },
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
		encode: func(b []byte, r *R) []byte {
			m := get(r)
			return binary.AppendVarint(strconv.AppendBool(b, m.Set), m.Minor)
		},
		// ClickHouse drops the zeros behind the point.
		text: func(r *R) string {
			m := get(r)
			if !m.Set {
				return ""
			}
			return m.Decimal().String()
		},
	}
}
