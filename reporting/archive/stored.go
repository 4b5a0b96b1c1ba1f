package archive

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

// MaxListed is the most accounts or orders that one call may name.
const MaxListed = 10_000

// Selection says which orders are read.
type Selection struct {
	From, To time.Time            // business days, both included
	Accounts []delivery.AccountID // empty: all
	Orders   []delivery.OrderID   // empty: all of the days
}

// Stored is what ClickHouse holds of an order under one Place, as of its latest
// version. Values are kept as ClickHouse writes them, so that even a row that
// no order of ours could have can be read and shown.
type Stored struct {
	Place
	Version uint64 // of the row in orders; 0 when there is none

	order  []string // in the order of orders.columns; nil: there is no row
	events []storedEvent
}

// storedEvent is a row of order_events.
type storedEvent struct {
	sequence uint32
	values   []string // in the order of orderEvents.columns
}

// Found reports whether there is a row in orders; without one there are events
// only.
func (s *Stored) Found() bool { return s.order != nil }

// Events is how many rows order_events has.
func (s *Stored) Events() int { return len(s.events) }

// Stored reads orders with their events, sorted by account, business day and
// order in ClickHouse's own order of UUIDs. Memory does not grow with their
// number. After an error nothing follows.
func (a *Archive) Stored(ctx context.Context, s Selection) iter.Seq2[*Stored, error] {
	return func(yield func(*Stored, error) bool) {
		where, err := s.condition()
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		var readers []*tableReader
		defer func() {
			cancel() // first: else closing would read to the end
			for _, r := range readers {
				_ = r.rows.Close() // what went wrong is known by then
			}
		}()
		heads, err := readTable(ctx, a, &orders, where, "")
		if err != nil {
			yield(nil, err)
			return
		}
		readers = append(readers, heads)
		events, err := readTable(ctx, a, &orderEvents, where, ", sequence")
		if err != nil {
			yield(nil, err)
			return
		}
		readers = append(readers, events)
		for {
			one, err := nextStored(heads, events)
			if one == nil && err == nil || !yield(one, err) || err != nil {
				return
			}
		}
	}
}

// condition is the selection in SQL.
func (s *Selection) condition() (string, error) {
	if len(s.Accounts) > MaxListed || len(s.Orders) > MaxListed {
		return "", fmt.Errorf("clickhouse: %d accounts and %d orders: at most %d of each can be named", len(s.Accounts), len(s.Orders), MaxListed)
	}
	if s.To.Before(s.From) {
		return "", fmt.Errorf("clickhouse: no day is from %s to %s", dateOf(s.From), dateOf(s.To))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "business_day BETWEEN '%s' AND '%s'", dateOf(s.From), dateOf(s.To))
	if len(s.Accounts) > 0 {
		fmt.Fprintf(&b, " AND account_id IN (%s)", list(s.Accounts))
	}
	if len(s.Orders) > 0 {
		fmt.Fprintf(&b, " AND order_id IN (%s)", list(s.Orders))
	}
	return b.String(), nil
}

// list writes ids, which need no escaping.
func list[ID fmt.Stringer](ids []ID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("'" + id.String() + "'")
	}
	return b.String()
}

func dateOf(t time.Time) string { return t.In(delivery.Istanbul).Format(time.DateOnly) }

// nextStored takes the next order off both tables; nil at the end.
func nextStored(heads, events *tableReader) (*Stored, error) {
	if err := heads.fill(); err != nil {
		return nil, err
	}
	if err := events.fill(); err != nil {
		return nil, err
	}
	if heads.ended && events.ended {
		return nil, nil
	}
	s := &Stored{}
	withoutHead := heads.ended || !events.ended && ComparePlaces(events.place, heads.place) < 0
	if withoutHead {
		s.Place = events.place
	} else {
		s.Place, s.Version, s.order = heads.place, heads.version, heads.take()
	}
	for {
		if err := events.fill(); err != nil {
			return nil, err
		}
		if events.ended || ComparePlaces(events.place, s.Place) != 0 {
			return s, nil
		}
		s.events = append(s.events, storedEvent{sequence: delivery.Sequence(events.version), values: events.take()})
	}
}

// tableReader reads a table's rows one after the other, each value as text.
type tableReader struct {
	rows    driver.Rows
	columns int
	targets []any
	// The row that was read and not yet taken; nil: none.
	values  []string
	place   Place
	version uint64
	ended   bool
}

// readTable reads rows in the order of the tables' keys. The key comes a second
// time as it is, because it is compared.
func readTable[R any](ctx context.Context, a *Archive, t *table[R], where, thenBy string) (*tableReader, error) {
	columns := []string{"account_id", "business_day", "order_id", "version"}
	for _, c := range t.columns {
		value := "toString(" + c.name + ")"
		if strings.HasPrefix(c.kind, "Nullable") {
			value = "ifNull(" + value + ", '')"
		}
		columns = append(columns, value)
	}
	if t.name == orderEvents.name {
		columns[3] = "toUInt64(sequence)"
	}
	rows, err := a.Select(ctx, "SELECT "+strings.Join(columns, ", ")+
		" FROM "+t.name+" WHERE "+where+" ORDER BY account_id, business_day, order_id"+thenBy)
	if err != nil {
		return nil, err
	}
	return &tableReader{rows: rows, columns: len(t.columns), targets: make([]any, 4+len(t.columns))}, nil
}

// fill reads a row unless there is one, or none is left.
func (r *tableReader) fill() error {
	if r.values != nil || r.ended {
		return nil
	}
	if !r.rows.Next() {
		r.ended = true
		return r.rows.Err()
	}
	var account, order uuid.UUID
	var day time.Time
	r.values = make([]string, r.columns)
	r.targets[0], r.targets[1], r.targets[2], r.targets[3] = &account, &day, &order, &r.version
	for i := range r.values {
		r.targets[4+i] = &r.values[i]
	}
	if err := r.rows.Scan(r.targets...); err != nil {
		return fmt.Errorf("clickhouse: reading rows: %w", err)
	}
	r.place = placeOf(account, day, order)
	return nil
}

// placeOf makes a place of what was read.
func placeOf(account uuid.UUID, day time.Time, order uuid.UUID) Place {
	y, m, d := day.Date()
	return Place{Account: delivery.AccountID(account), Day: time.Date(y, m, d, 0, 0, 0, 0, delivery.Istanbul), Order: delivery.OrderID(order)}
}

// take gives the row away.
func (r *tableReader) take() []string {
	values := r.values
	r.values = nil
	return values
}

// ComparePlaces tells which of two comes first in Stored's order: it compares as
// ClickHouse sorts the tables' keys.
func ComparePlaces(a, b Place) int {
	return cmp.Or(
		compareIDs(a.Account, b.Account),
		a.Day.Compare(b.Day),
		compareIDs(a.Order, b.Order),
	)
}

// compareIDs compares as ClickHouse sorts UUIDs: by their second halves first.
func compareIDs(a, b [16]byte) int {
	return cmp.Or(bytes.Compare(a[8:], b[8:]), bytes.Compare(a[:8], b[:8]))
}
