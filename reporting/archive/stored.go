package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
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

// Stored is what ClickHouse holds of an order under one Place, as of its latest version.
// Values are kept as ClickHouse writes them, so that an impossible row can be shown, too.
type Stored struct {
	Place
	Version uint64 // of the row in orders; 0 when there is none

	// Digest is that of the row in orders, read together with it; zero when there is none.
	Digest RowDigest

	order  []string            // in the order of orders.columns; nil: there is no row
	events map[uint32][]string // by sequence, in the order of orderEvents.columns
}

// HasOrder reports whether the table orders has a row; there can be events alone.
func (s *Stored) HasOrder() bool { return s.order != nil }

func (s *Stored) value(name string) string { return s.order[orders.index(name)] }

// Stored calls take for orders with their events, one place after the other; take's first
// error ends it. Memory does not grow with their number.
func (a *Archive) Stored(ctx context.Context, s Selection, take func(*Stored) error) error {
	query, err := s.query()
	if err != nil {
		return err
	}

	var one *Stored
	err = a.Each(ctx, query, func(rows driver.Rows) (err error) {
		var account, order uuid.UUID
		var day time.Time
		var version uint64
		var sequence int64
		var texts []string
		var digest string
		if err := rows.Scan(&account, &day, &order, &version, &sequence, &texts, &digest); err != nil {
			return err
		}

		if place := readPlace(account, day, order); one == nil || place != one.Place {
			if one != nil {
				err = take(one)
			}
			one = &Stored{Place: place, events: map[uint32][]string{}}
		}

		if sequence == anOrder {
			one.Version, one.order = version, texts
			copy(one.Digest[:], digest)
		} else {
			one.events[uint32(sequence)] = texts
		}

		return err
	})
	if err != nil || one == nil {
		return err
	}

	return take(one)
}

// anOrder stands in the place of an event's sequence.
const anOrder = -1

// query is that of both tables: the key, version, sequence and values of each row, and the digest of an order's.
func (s *Selection) query() (string, error) {
	if len(s.Accounts)+len(s.Orders) > MaxListed {
		return "", fmt.Errorf("clickhouse: %d accounts and %d orders: at most %d can be named", len(s.Accounts), len(s.Orders), MaxListed)
	}
	if s.To.Before(s.From) {
		return "", fmt.Errorf("clickhouse: no day is from %s to %s", dateOf(s.From), dateOf(s.To))
	}

	where := fmt.Sprintf("business_day BETWEEN '%s' AND '%s'", dateOf(s.From), dateOf(s.To))
	if len(s.Accounts) > 0 {
		where += " AND account_id IN (" + list(s.Accounts) + ")"
	}

	if len(s.Orders) > 0 {
		where += " AND order_id IN (" + list(s.Orders) + ")"
	}

	part := func(t *table, sequence, digest, from string) string {
		return fmt.Sprintf("SELECT account_id, business_day, order_id, version AS number, %s AS step, [%s] AS texts, %s AS digest FROM %s",
			sequence, t.list("ifNull(toString(%[1]s), '')"), digest, from)
	}

	frozen := fmt.Sprintf("(SELECT *, %s FROM %s WHERE %s)", frozenColumns, orders.name, where)

	return "SELECT * FROM (" + part(orders, fmt.Sprintf("toInt64(%d)", anOrder), rowDigest, frozen) +
		" UNION ALL " + part(orderEvents, "toInt64(sequence)", "''", orderEvents.name+" WHERE "+where) +
		") ORDER BY account_id, business_day, order_id SETTINGS max_bytes_before_external_sort = 268435456", nil
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

func readPlace(account uuid.UUID, day time.Time, order uuid.UUID) Place {
	return Place{Account: delivery.AccountID(account), Day: localMidnight(day), Order: delivery.OrderID(order)}
}

// localMidnight returns a Date of ClickHouse as the midnight of that day at +03:00.
func localMidnight(date time.Time) time.Time {
	y, m, d := date.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, delivery.Istanbul)
}

// Summed is what reports sum up of an order: status, payment and amounts, from the stored
// row. It is an error without one or with an impossible amount; other values that no order
// has are zero.
func (s *Stored) Summed() (*delivery.Order, error) {
	if s.order == nil {
		return nil, fmt.Errorf("order %s has events and no row", s.Order)
	}

	o := &delivery.Order{ID: s.Order, Account: s.Account}
	o.Status, _ = delivery.ParseStatus(s.value("status"))
	o.Payment.Type, _ = delivery.ParsePaymentType(s.value("payment_type"))
	for column, amount := range map[string]*delivery.Money{"order_amount": &o.OrderAmount, "collection_amount": &o.Payment.CollectionAmount} {
		var err error
		if text := s.value(column); text != "" {
			*amount, err = delivery.ParseMoney(text)
		}
		if err != nil {
			return nil, fmt.Errorf("order %s: an amount %w", s.Order, err)
		}
	}

	return o, nil
}

// Flaws checks an order that has left the ledger: it has ended, lies where its id and its
// creation say, and has all of its events. Each flaw is a clause for people.
func (s *Stored) Flaws() (flaws []string) {
	if s.order == nil {
		return []string{fmt.Sprintf("there is no row, but %d events", len(s.events))}
	}

	status, external, created := s.value("status"), s.value("external_order_id"), s.value("created_at")
	if reached, err := delivery.ParseStatus(status); err != nil || !reached.Terminal() {
		flaws = append(flaws, fmt.Sprintf("status is %.100q, and it has ended", status))
	}

	digest := delivery.OrderDigest(s.Account, external)
	if delivery.MakeOrderID(s.Order.Partition(), s.Order.Day(), digest) != s.Order {
		flaws = append(flaws, fmt.Sprintf("its id is not that of external order id %.100q of this account", external))
	}

	if !strings.HasPrefix(created, dateOf(s.Day)) {
		flaws = append(flaws, fmt.Sprintf("it was created on %.100q, which is another day", created))
	}

	if steps := int(delivery.Sequence(s.Version)); len(s.events) != steps {
		flaws = append(flaws, fmt.Sprintf("it has %d events, should have %d", len(s.events), steps))
	}

	if _, err := s.Summed(); err != nil {
		flaws = append(flaws, err.Error())
	}

	return flaws
}

// Differences compares what is stored with what should be: the row of an order, and of all
// its events. Each is a clause for people that names a row or a column, such as
// order_events[3].at. Volatile columns are left out.
func (s *Stored) Differences(want *Order, events []Event) (found []string) {
	const noRow, aRow = "no row", "a row"
	differs := func(what, have, wanted string) {
		if have != wanted {
			found = append(found, fmt.Sprintf("%s is %.100q, should be %.100q", what, have, wanted))
		}
	}

	compare := func(t *table, name string, columns []reflect.Value, row int, have []string) {
		if have == nil {
			differs(name, noRow, aRow)
			return
		}

		for i, c := range t.columns {
			if !c.volatile {
				differs(name+"."+c.name, have[i], printed(columns[i].Index(row)))
			}
		}
	}

	row, err := orders.values(reflect.ValueOf([]Order{*want}))
	rows, other := orderEvents.values(reflect.ValueOf(events))
	err = errors.Join(err, other)
	if err != nil { // a value that ClickHouse cannot hold differs from all that it can
		return []string{err.Error()}
	}

	compare(orders, orders.name, row, 0, s.order)
	expected := map[uint32]bool{}
	for i := range events {
		sequence := delivery.Sequence(events[i].Version)
		compare(orderEvents, fmt.Sprintf("%s[%d]", orderEvents.name, sequence), rows, i, s.events[sequence])
		expected[sequence] = true
	}

	for _, sequence := range slices.Sorted(maps.Keys(s.events)) {
		if !expected[sequence] {
			differs(fmt.Sprintf("%s[%d]", orderEvents.name, sequence), aRow, noRow)
		}
	}

	return found
}

// Describe is the stored row of orders in words.
func (s *Stored) Describe() string {
	if s.order == nil {
		return fmt.Sprintf("%d events without an order", len(s.events))
	}

	var parts []string
	for i, value := range s.order {
		if value != "" {
			parts = append(parts, orders.columns[i].name+"="+value)
		}
	}

	return strings.Join(parts, " ")
}

// AccountsOf is how many orders each account with rows on a business day has.
func (a *Archive) AccountsOf(ctx context.Context, day time.Time) (map[delivery.AccountID]uint64, error) {
	counts := map[delivery.AccountID]uint64{}
	err := a.Each(ctx, `SELECT account_id, sum(n) FROM (
	SELECT account_id, count() AS n FROM orders WHERE business_day = {day:Date} GROUP BY account_id
	UNION ALL SELECT DISTINCT account_id, 0 FROM order_events WHERE business_day = {day:Date}) GROUP BY account_id`,
		func(rows driver.Rows) error {
			var account uuid.UUID
			var n uint64
			err := rows.Scan(&account, &n)
			counts[delivery.AccountID(account)] = n
			return err
		}, clickhouse.Named("day", dateOf(day)))

	return counts, err
}

// Misplaced looks for rows of these orders, and of their events, under another account or
// business day than theirs. It reads the ids of all orders that are stored.
func (a *Archive) Misplaced(ctx context.Context, right []Place) ([]Place, error) {
	var wrong []Place
	for part := range slices.Chunk(right, MaxListed) {
		known := make(map[Place]bool, len(part))
		ids := make([]delivery.OrderID, len(part))
		for i, p := range part {
			p.Day = BusinessDay(p.Day)
			known[p], ids[i] = true, p.Order
		}

		const columns = "SELECT account_id, business_day, order_id FROM "
		condition := " WHERE order_id IN (" + list(ids) + ")"
		err := a.Each(ctx, columns+orders.name+condition+" UNION DISTINCT "+columns+orderEvents.name+condition, func(rows driver.Rows) error {
			var account, order uuid.UUID
			var day time.Time
			err := rows.Scan(&account, &day, &order)
			if p := readPlace(account, day, order); !known[p] {
				wrong = append(wrong, p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	return wrong, nil
}

// Remove deletes the rows of orders and events at these places, and returns when no SELECT
// sees them. InsertAgain may store them again; Insert would take them for repetitions.
func (a *Archive) Remove(ctx context.Context, places []Place) error {
	settings := clickhouse.Settings{"lightweight_deletes_sync": 2, "max_query_size": maxQuerySize}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
	for part := range slices.Chunk(places, MaxListed/2) {
		keys := make([]string, len(part))
		for i, p := range part {
			keys[i] = fmt.Sprintf("('%s', '%s', '%s')", p.Account, dateOf(p.Day), p.Order)
		}

		for _, table := range []string{orders.name, orderEvents.name} {
			if err := a.exec(ctx, a.removal(table, keys)); err != nil {
				return err
			}
		}
	}

	return nil
}

// RemoveLate deletes late deliveries, and returns once no SELECT sees them.
func (a *Archive) RemoveLate(ctx context.Context, late []LateDelivery) error {
	settings := clickhouse.Settings{"lightweight_deletes_sync": 2, "max_query_size": maxQuerySize}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
	for part := range slices.Chunk(late, MaxPlaces) {
		keys := make([]string, len(part))
		for i, d := range part {
			keys[i] = fmt.Sprintf("('%s', '%s', '%s', %d)", d.Account, dateOf(d.CreatedAt), d.Order, d.ReportedAt.UnixMilli())
		}

		statement := fmt.Sprintf("DELETE FROM %s %s WHERE (account_id, business_day, order_id, toUnixTimestamp64Milli(reported_at)) IN (%s)",
			a.physical(lateDeliveries), a.onCluster(), strings.Join(keys, ", "))
		if err := a.exec(ctx, statement); err != nil {
			return err
		}
	}

	return nil
}

// removal deletes from the tables that hold rows: a Distributed one cannot.
func (l layout) removal(table string, keys []string) string {
	return fmt.Sprintf("DELETE FROM %s %s WHERE (account_id, business_day, order_id) IN (%s)",
		l.local(table), l.onCluster(), strings.Join(keys, ", "))
}

// Reconciliation is a comparison of Redis with ClickHouse that came to its end.
type Reconciliation struct {
	Account     delivery.AccountID // zero: all
	At          time.Time          // in milliseconds
	From, To    time.Time          // local days, both included
	Orders      int                // that Redis held
	Differences int                // orders that differ and were not repaired
	Totals      int                // sums of reports that do not balance
}

// NoteReconciliation stores it. The same one stored again changes nothing.
func (a *Archive) NoteReconciliation(ctx context.Context, r *Reconciliation) error {
	return a.exec(ctx, `INSERT INTO reconciliations (account_id, at, from_day, to_day, orders, differences, totals)
SELECT {account:UUID}, fromUnixTimestamp64Milli({at:Int64}), {from:Date}, {to:Date}, {orders:UInt64}, {differences:UInt64}, {totals:UInt64}`,
		clickhouse.Named("account", r.Account.String()), clickhouse.Named("at", r.At.UnixMilli()),
		clickhouse.Named("from", dateOf(r.From)), clickhouse.Named("to", dateOf(r.To)),
		clickhouse.Named("orders", r.Orders), clickhouse.Named("differences", r.Differences), clickhouse.Named("totals", r.Totals))
}

// LastReconciliation is the latest one of all accounts; nil: there was none.
func (a *Archive) LastReconciliation(ctx context.Context) (last *Reconciliation, err error) {
	err = a.Each(ctx, `SELECT toUnixTimestamp64Milli(at), from_day, to_day, toInt64(orders), toInt64(differences), toInt64(totals) FROM reconciliations
WHERE account_id = toUUID('00000000-0000-0000-0000-000000000000') ORDER BY at DESC LIMIT 1`, func(rows driver.Rows) error {
		var at, orders, differences, totals int64
		var r Reconciliation
		err := rows.Scan(&at, &r.From, &r.To, &orders, &differences, &totals)
		r.At, r.Orders, r.Differences, r.Totals = time.UnixMilli(at), int(orders), int(differences), int(totals)
		last = &r

		return err
	})

	return last, err
}
