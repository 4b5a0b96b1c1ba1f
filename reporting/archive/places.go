package archive

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

// Count is how much is stored of an account's day.
type Count struct{ Orders, Events uint64 }

// AccountsOf tells which accounts have rows on a business day, and how many.
func (a *Archive) AccountsOf(ctx context.Context, day time.Time) (map[delivery.AccountID]Count, error) {
	counts := map[delivery.AccountID]Count{}
	for _, table := range []string{orders.name, orderEvents.name} {
		rows, err := a.Select(ctx, "SELECT account_id, count() FROM "+table+" WHERE business_day = {day:Date} GROUP BY account_id",
			clickhouse.Named("day", dateOf(day)))
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var account uuid.UUID
			var n uint64
			if err := rows.Scan(&account, &n); err != nil {
				return nil, a.fault(ctx, "counting "+table, err)
			}
			c := counts[delivery.AccountID(account)]
			if table == orders.name {
				c.Orders = n
			} else {
				c.Events = n
			}
			counts[delivery.AccountID(account)] = c
		}
		err = rows.Err()
		_ = rows.Close() // all of them have been read
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// Misplaced looks for rows of these orders, and of their events, under another
// account or business day than theirs. It reads the ids of all orders there
// are, so it is for those that are suspected.
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
func (a *Archive) placesOf(ctx context.Context, ids []delivery.OrderID) ([]Place, error) {
	condition := " WHERE order_id IN (" + list(ids) + ")"
	rows, err := a.Select(ctx,
		"SELECT account_id, business_day, order_id FROM "+orders.name+condition+
			" UNION DISTINCT SELECT account_id, business_day, order_id FROM "+orderEvents.name+condition)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // what went wrong is in Err
	var places []Place
	for rows.Next() {
		var account, order uuid.UUID
		var day time.Time
		if err := rows.Scan(&account, &day, &order); err != nil {
			return nil, a.fault(ctx, "looking for orders", err)
		}
		places = append(places, placeOf(account, day, order))
	}
	return places, rows.Err()
}

// Remove deletes the rows of orders and of their events at these places, and
// returns when no SELECT sees them any more. Whoever stores such rows again
// does so with InsertAnew: Insert would take them for repetitions.
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
