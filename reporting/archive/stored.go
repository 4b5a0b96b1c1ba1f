package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
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

// value is that of a column of orders.
func (s *Stored) value(column string) string { return s.order[slices.Index(orders.names, column)] }

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
		nextHead, stopHeads := iter.Pull2(a.keyedRows(ctx, &orders.columnSet, where, "version", ""))
		defer stopHeads()
		nextEvent, stopEvents := iter.Pull2(a.keyedRows(ctx, &orderEvents.columnSet, where, "toUInt64(sequence)", ", sequence"))
		defer stopEvents()
		head, err, _ := nextHead()
		var event *keyedRow
		if err == nil {
			event, err, _ = nextEvent()
		}
		for err == nil && (head != nil || event != nil) {
			one := &Stored{}
			if head != nil && (event == nil || ComparePlaces(head.place, event.place) <= 0) {
				one.Place, one.Version, one.order = head.place, head.version, head.values
				head, err, _ = nextHead()
			} else {
				one.Place = event.place
			}
			for err == nil && event != nil && ComparePlaces(event.place, one.Place) == 0 {
				one.events = append(one.events, storedEvent{sequence: delivery.Sequence(event.version), values: event.values})
				event, err, _ = nextEvent()
			}
			if err == nil && !yield(one, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
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
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = "'" + id.String() + "'"
	}
	return strings.Join(texts, ", ")
}

func dateOf(t time.Time) string { return t.In(delivery.Istanbul).Format(time.DateOnly) }

// keyedRow is a row with its key, each value as text.
type keyedRow struct {
	place   Place
	version uint64
	values  []string
}

var errStopped = errors.New("nobody reads on")

// keyedRows reads a table in the order of its key. The key comes a second time as
// it is, because it is compared.
func (a *Archive) keyedRows(ctx context.Context, t *columnSet, where, version, thenBy string) iter.Seq2[*keyedRow, error] {
	columns := []string{"account_id", "business_day", "order_id", version}
	for i, name := range t.names {
		value := "toString(" + name + ")"
		if strings.HasPrefix(t.kinds[i], "Nullable") {
			value = "ifNull(" + value + ", '')"
		}
		columns = append(columns, value)
	}
	query := "SELECT " + strings.Join(columns, ", ") + " FROM " + t.table + " WHERE " + where + " ORDER BY account_id, business_day, order_id" + thenBy
	return func(yield func(*keyedRow, error) bool) {
		err := a.Each(ctx, query, func(rows driver.Rows) error {
			var account, order uuid.UUID
			var day time.Time
			row := &keyedRow{values: make([]string, len(t.names))}
			targets := []any{&account, &day, &order, &row.version}
			for i := range row.values {
				targets = append(targets, &row.values[i])
			}
			if err := rows.Scan(targets...); err != nil {
				return err
			}
			if row.place = placeOf(account, day, order); !yield(row, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// placeOf makes a place of what was read.
func placeOf(account uuid.UUID, day time.Time, order uuid.UUID) Place {
	y, m, d := day.Date()
	return Place{Account: delivery.AccountID(account), Day: time.Date(y, m, d, 0, 0, 0, 0, delivery.Istanbul), Order: delivery.OrderID(order)}
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

// Sums is what reports sum up of a stored order.
type Sums struct {
	Status      string
	PaymentType string
	OrderAmount delivery.Money
	Collection  delivery.Money
}

// Sums reads them from the stored row; an error when there is none, or when an
// amount is none that an order can have.
func (s *Stored) Sums() (sums Sums, err error) {
	if s.order == nil {
		return sums, fmt.Errorf("order %s has events and no row", s.Order)
	}
	sums.Status, sums.PaymentType = s.value("status"), s.value("payment_type")
	for column, amount := range map[string]*delivery.Money{"order_amount": &sums.OrderAmount, "collection_amount": &sums.Collection} {
		if text := s.value(column); text != "" {
			if *amount, err = delivery.ParseMoney(text); err != nil {
				return Sums{}, fmt.Errorf("order %s: an amount %w", s.Order, err)
			}
		}
	}
	return sums, nil
}

// Flaws checks an order that has left the ledger, so that there is nothing to
// compare it with, by what must be true of any such order: it has ended, lies
// where its id and its creation say, and has all of its events. Each flaw is a
// clause for people.
func (s *Stored) Flaws() (flaws []string) {
	if s.order == nil {
		return []string{fmt.Sprintf("there is no row, but %d events", len(s.events))}
	}
	status, external, created := s.value("status"), s.value("external_order_id"), s.value("created_at")
	if reached, err := delivery.ParseStatus(status); err != nil || !reached.Terminal() {
		flaws = append(flaws, fmt.Sprintf("status is %q, and it has ended", status))
	}
	digest := delivery.OrderDigest(s.Account, external)
	if delivery.MakeOrderID(s.Order.Partition(), s.Order.Day(), digest) != s.Order {
		flaws = append(flaws, fmt.Sprintf("its id is not that of external order id %q of this account", external))
	}
	if !strings.HasPrefix(created, dateOf(s.Day)) {
		flaws = append(flaws, fmt.Sprintf("it was created on %q, which is another day", created))
	}
	if steps := int(delivery.Sequence(s.Version)); len(s.events) != steps {
		flaws = append(flaws, fmt.Sprintf("it has %d events, should have %d", len(s.events), steps))
	}
	if _, err := s.Sums(); err != nil {
		flaws = append(flaws, err.Error())
	}
	return flaws
}

// Differences compares what is stored with what should be: the row of an order,
// and of all its events. Each is a clause for people that names a column, such as
// orders.status or order_events[3].at, or a row. store_name and tax_number are
// left out: they are what the store was called when the order was exported. So is
// the epoch of the creation's event, which orders do not keep.
func (s *Stored) Differences(want *Order, events []Event) (found []string) {
	const noRow, aRow = "no row", "a row"
	differs := func(what, have, wanted string) {
		if have != wanted {
			found = append(found, fmt.Sprintf("%s is %q, should be %q", what, have, wanted))
		}
	}
	if s.order == nil {
		differs(orders.table, noRow, aRow)
	} else {
		orders.compare(orders.table, want, s.order, "", differs)
	}
	stored := map[uint32][]string{}
	for _, e := range s.events {
		stored[e.sequence] = e.values
	}
	for i := range events {
		sequence := delivery.Sequence(events[i].Version)
		name, except := fmt.Sprintf("%s[%d]", orderEvents.table, sequence), ""
		if sequence == 1 {
			except = "version"
		}
		if values := stored[sequence]; values == nil {
			differs(name, noRow, aRow)
		} else {
			orderEvents.compare(name, &events[i], values, except, differs)
		}
		delete(stored, sequence)
	}
	for _, sequence := range slices.Sorted(maps.Keys(stored)) {
		differs(fmt.Sprintf("%s[%d]", orderEvents.table, sequence), aRow, noRow)
	}
	return found
}

// compare passes the values of all columns that derive from the order to differs.
func (t *table[R]) compare(name string, want *R, have []string, except string, differs func(what, have, want string)) {
	for i, c := range t.columns {
		if !c.unstable && c.name != except {
			differs(name+"."+c.name, have[i], c.text(want))
		}
	}
}

// Describe is the stored row of orders in words, for an order that should not be
// there.
func (s *Stored) Describe() string {
	if s.order == nil {
		return fmt.Sprintf("%d events without an order", len(s.events))
	}
	var parts []string
	for i, value := range s.order {
		if value != "" {
			parts = append(parts, orders.names[i]+"="+value)
		}
	}
	return strings.Join(parts, " ")
}
