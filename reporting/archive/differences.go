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

// batchCondition is the SQL condition that a row belongs to one of these batches. Pass those of a verified log: the
// table journal can hold forged rows.
func batchCondition(batches []uuid.UUID) string {
	if len(batches) == 0 {
		return "false"
	}
	return "batch IN (" + list(batches) + ")"
}

// factsDigest is the SHA-256 of an order's facts. Names are left out: a changed name is no correction.
const factsDigest = `SHA256(arrayStringConcat(arrayMap(x -> concat(toString(length(x)), ':', x), [
	toString(version), external_order_id, toString(external_store_id), toString(fleet_id), toString(status), toString(failure_reason),
	toString(cancel_reason), toString(toUnixTimestamp64Milli(created_at)), ifNull(toString(toUnixTimestamp64Milli(picked_up_at)), ''),
	ifNull(toString(toUnixTimestamp64Milli(delivered_at)), ''), ifNull(toString(toUnixTimestamp64Milli(ended_at)), ''), toString(payment_type),
	ifNull(toString(toInt64(CAST(order_amount AS Nullable(Decimal(38, 2))) * 100)), ''), ifNull(toString(toInt64(CAST(collection_amount AS Nullable(Decimal(38, 2))) * 100)), ''), toString(toUInt8(without_courier))])))`

// orderText is an order in words, for the person who decides: "Delivered, Cash, amount 684.35, to collect 684.35".
const orderText = `concat(toString(status), ', ', if(payment_type = '', 'no payment type', toString(payment_type)),
	', amount ', ifNull(toDecimalString(order_amount, 2), 'none'), ', to collect ', ifNull(toDecimalString(collection_amount, 2), 'none'))`

// selectBooked selects what was booked, one row per entry, and selectKnown what the table orders has.
const (
	selectBooked = `SELECT account_id, business_day, order_id, version, entry, toInt64(sign) AS sign, ` + factsDigest + ` AS facts,
	` + orderText + ` AS says, false AS is_known
FROM closed_orders WHERE sign != 0`
	selectKnown = `SELECT account_id, business_day, order_id, version, toUInt32(0) AS entry, toInt64(0) AS sign, ` + factsDigest + ` AS facts,
	` + orderText + ` AS says, true AS is_known
FROM orders FINAL WHERE true`
)

// ClosedDifference is an order of a closed month whose row in the table orders is not what was booked.
type ClosedDifference struct {
	Place
	Booked, Known         bool   // whether it was booked, and whether the table orders has it
	BookedVersion         uint64 // as it was last booked
	KnownVersion          uint64
	KnownFacts            string // SHA-256 of what the table orders says; empty: nothing
	BookedSays, KnownSays string // status, payment type and amounts; empty: it is not there
}

// Part says which orders of closed months are looked at.
type Part struct {
	Name string // for people

	within string
	args   []any
}

// MonthPart are the orders of a month, by its first day. With since, only those of which a row was stored
// since then, by ClickHouse's clock.
func MonthPart(month, since time.Time) Part {
	p := Part{
		Name:   month.Format("2006-01"),
		within: "business_day >= {month:Date} AND business_day < addMonths({month:Date}, 1)",
		args:   []any{clickhouse.Named("month", dateOf(month))},
	}
	if since.IsZero() {
		return p
	}

	stored := " WHERE stored_at >= fromUnixTimestamp64Milli({since:Int64}) AND " + p.within
	p.within += ` AND (account_id, business_day, order_id) GLOBAL IN
	(SELECT account_id, business_day, order_id FROM orders` + stored + ` UNION ALL SELECT account_id, business_day, order_id FROM late_deliveries` + stored + ")"
	p.args = append(p.args, clickhouse.Named("since", since.UnixMilli()))

	return p
}

// MaxPlaces is the most orders that one statement may name by their places.
const MaxPlaces = 1000

// PlacesPart are single orders, at most MaxPlaces.
func PlacesPart(places []Place) Part {
	if len(places) == 0 {
		return Part{within: "false"}
	}

	keys := make([]string, len(places))
	for i, p := range places {
		keys[i] = fmt.Sprintf("('%s', '%s', '%s')", p.Account, dateOf(p.Day), p.Order)
	}
	return Part{Name: fmt.Sprintf("%d orders", len(places)), within: "(account_id, business_day, order_id) IN (" + strings.Join(keys, ", ") + ")"}
}

// Differing lists the orders of a part whose row in the table orders is not what was booked in some batches, all
// those of the log, at most limit. The part must be of closed months.
func (a *Archive) Differing(ctx context.Context, batches []uuid.UUID, p Part, limit int) (found []ClosedDifference, err error) {
	// A reversal takes back exactly what was booked: over an order's entries, the digests of what they say,
	// as numbers with their signs, add up to that of the table orders, or to nothing.
	query := `SELECT account_id, business_day, order_id,
	toBool(sum(sign) > 0) AS is_booked, toBool(max(is_known)) AS is_there,
	argMaxIf(version, entry, sign > 0) AS booked_version, maxIf(version, is_known) AS known_version, anyIf(facts, is_known) AS known_facts,
	argMaxIf(says, entry, sign > 0) AS booked_says, anyIf(says, is_known) AS known_says
FROM (` + selectBooked + " AND " + batchCondition(batches) + " AND " + p.within + ` UNION ALL ` + selectKnown + " AND " + p.within + `)
GROUP BY account_id, business_day, order_id
HAVING is_booked != is_there OR sum(sign) NOT IN (0, 1) OR (is_there AND argMaxIf(facts, entry, sign > 0) != known_facts)
	OR sum(reinterpretAsInt256(facts) * sign) != if(is_there, reinterpretAsInt256(known_facts), 0)
ORDER BY toUInt128(order_id) LIMIT {limit:UInt32}` + bounded

	err = a.Each(ctx, query, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day time.Time
		var d ClosedDifference
		err := rows.Scan(&account, &day, &order, &d.Booked, &d.Known, &d.BookedVersion, &d.KnownVersion, &d.KnownFacts, &d.BookedSays, &d.KnownSays)
		d.Place = readPlace(account, day, order)
		found = append(found, d)

		return err
	}, append(slices.Clone(p.args), clickhouse.Named("limit", limit))...)

	return found, err
}

// UnbookedLate lists at most limit late deliveries, and at most ten of an order, that are in none of the batches. Their orders were booked in one
// of them and had failed or been cancelled. batches are all batches of the log; the part must be of closed months.
func (a *Archive) UnbookedLate(ctx context.Context, batches []uuid.UUID, p Part, limit int) (found []LateDelivery, err error) {
	const selectPlace = "SELECT account_id, business_day, order_id FROM "
	inBatches := batchCondition(batches) + " AND " + p.within
	hasLate := ` AND order_id GLOBAL IN (SELECT order_id FROM late_deliveries WHERE ` + p.within + `)`
	query := `SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE ` + p.within + `
	AND (order_id, reported_at) GLOBAL NOT IN (SELECT order_id, assumeNotNull(reported_at) FROM closed_orders WHERE sign = 0 AND ` + inBatches + `)
	AND (account_id, business_day, order_id) GLOBAL IN (` + selectPlace + `orders FINAL WHERE status IN ('Failed', 'Cancelled') AND ` + p.within + hasLate + `)
	AND (account_id, business_day, order_id) GLOBAL IN (` + selectPlace + `closed_orders WHERE sign > 0 AND ` + inBatches + hasLate + `)
ORDER BY toUInt128(order_id), reported_at LIMIT 10 BY order_id LIMIT {limit:UInt32}`

	err = a.Each(ctx, query, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var l LateDelivery
		err := rows.Scan(&account, &l.CreatedAt, &order, &l.ReportedAt)
		l.Account, l.Order = delivery.AccountID(account), delivery.OrderID(order)
		l.CreatedAt = readPlace(account, l.CreatedAt, order).Day
		found = append(found, l)

		return err
	}, append(slices.Clone(p.args), clickhouse.Named("limit", limit))...)

	return found, err
}

// Now returns ClickHouse's time, by which rows are stored.
func (a *Archive) Now(ctx context.Context) (now time.Time, err error) {
	err = a.Each(ctx, "SELECT now64(3)", func(rows driver.Rows) error { return rows.Scan(&now) })
	return now, err
}

// MonthsStoredSince returns, by their first days and in their order, the months before a day of which a row of an
// order or a late delivery was stored since a time of ClickHouse's clock; zero: at any time.
func (a *Archive) MonthsStoredSince(ctx context.Context, since, before time.Time) (months []time.Time, err error) {
	stored := " WHERE business_day < {before:Date}"
	if !since.IsZero() {
		stored += " AND stored_at >= fromUnixTimestamp64Milli({since:Int64})"
	}

	err = a.Each(ctx, `SELECT DISTINCT toStartOfMonth(business_day) AS month FROM
	(SELECT business_day FROM orders`+stored+` UNION ALL SELECT business_day FROM late_deliveries`+stored+`) ORDER BY month SETTINGS final = 0`,
		func(rows driver.Rows) error {
			var month time.Time
			err := rows.Scan(&month)
			months = append(months, localMidnight(month))
			return err
		}, clickhouse.Named("before", dateOf(before)), clickhouse.Named("since", since.UnixMilli()))

	return months, err
}

// PlacesOf returns where the rows of some orders are, at most MaxPlaces, in closed months and others. An
// order of which nothing is stored has no place.
func (a *Archive) PlacesOf(ctx context.Context, orders []delivery.OrderID) (places []Place, err error) {
	if len(orders) == 0 {
		return nil, nil
	}

	var days []string
	for _, id := range orders {
		// An id has the day of the creation in UTC; the local day is the same one or the next.
		created := time.Unix(int64(id.Day())*86400, 0).UTC()
		days = append(days, "'"+created.Format(time.DateOnly)+"'", "'"+created.AddDate(0, 0, 1).Format(time.DateOnly)+"'")
	}

	slices.Sort(days)
	within := " WHERE business_day IN (" + strings.Join(slices.Compact(days), ", ") + ") AND order_id IN (" + list(orders) + ")"

	err = a.Each(ctx, `SELECT DISTINCT account_id, business_day, order_id FROM
	(SELECT account_id, business_day, order_id FROM orders`+within+` UNION ALL SELECT account_id, business_day, order_id FROM closed_orders`+within+`)
LIMIT 10000 SETTINGS final = 0`, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day time.Time
		err := rows.Scan(&account, &day, &order)
		places = append(places, readPlace(account, day, order))
		return err
	})

	return places, err
}
