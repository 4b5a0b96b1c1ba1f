package archive

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

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
		found, err := a.placesOf(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if !known[p] {
				wrong = append(wrong, p)
			}
		}
	}
	return wrong, nil
}

// placesOf are all places that hold rows of these orders.
func (a *Archive) placesOf(ctx context.Context, ids []delivery.OrderID) (places []Place, err error) {
	const columns = "SELECT account_id, business_day, order_id FROM "
	condition := " WHERE order_id IN (" + list(ids) + ")"
	err = a.Each(ctx, columns+orders.name+condition+" UNION DISTINCT "+columns+orderEvents.name+condition, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day time.Time
		err := rows.Scan(&account, &day, &order)
		places = append(places, readPlace(account, day, order))
		return err
	})
	return places, err
}

// Remove deletes the rows of orders and events at these places, and returns when no SELECT
// sees them. InsertAgain may store them again; Insert would take them for repetitions.
func (a *Archive) Remove(ctx context.Context, places []Place) error {
	l := a.layout()
	settings := clickhouse.Settings{"lightweight_deletes_sync": 2, "max_query_size": maxQuerySize}
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings))
	for part := range slices.Chunk(places, MaxListed/2) {
		keys := make([]string, len(part))
		for i, p := range part {
			keys[i] = fmt.Sprintf("('%s', '%s', '%s')", p.Account, dateOf(p.Day), p.Order)
		}
		for _, table := range []string{orders.name, orderEvents.name} {
			if err := a.exec(ctx, l.removal(table, keys)); err != nil {
				return err
			}
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
		if err := rows.Scan(&at, &r.From, &r.To, &orders, &differences, &totals); err != nil {
			return err
		}
		r.At, r.Orders, r.Differences, r.Totals = time.UnixMilli(at), int(orders), int(differences), int(totals)
		last = &r
		return nil
	})
	return last, err
}
