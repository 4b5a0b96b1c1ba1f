package archive

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// Correction is what one INSERT of corrections has in common.
type Correction struct {
	Batch  uuid.UUID
	Posted time.Time // local day on which they are booked
	Cause  string

	// Sealed are the batches of the entries before: what was booked.
	Sealed []uuid.UUID
}

// sealed is the condition for rows that were booked.
func (c *Correction) sealed() string {
	if len(c.Sealed) == 0 {
		return "false"
	}

	ids := make([]string, len(c.Sealed))
	for i, id := range c.Sealed {
		ids[i] = "'" + id.String() + "'"
	}
	return "batch IN (" + strings.Join(ids, ", ") + ")"
}

func (c *Correction) named() []any {
	return []any{clickhouse.Named("batch", c.Batch.String()), clickhouse.Named("posted", dateOf(c.Posted)), clickhouse.Named("cause", c.Cause)}
}

// InsertCorrections adds two rows to a batch for each order of a closed month: the reversal of what was
// booked, and the order as it is now. An order that was not booked has no reversal, an order that is gone has
// no second row. There are at most MaxPlaces.
func (a *Archive) InsertCorrections(ctx context.Context, c Correction, orders []Place) error {
	within := PlacesPart(orders).within
	booked := c.sealed() + " AND " + within
	last := "(SELECT account_id, order_id, max(entry) AS entry FROM closed_orders WHERE sign = 1 AND " + booked + " GROUP BY account_id, order_id)"
	reversed := "(SELECT account_id, order_id, entry FROM closed_orders WHERE sign = -1 AND " + booked + ")"
	const head = " SELECT {batch:UUID}, account_id, business_day, order_id, "
	const posted = ", {posted:Date}, toStartOfMonth(business_day), {cause:String}, version, " + factColumns + ", NULL "

	// What was last booked of each order, unless it was reversed already.
	reversals := head + "entry, toInt8(-1)" + posted + "FROM closed_orders WHERE sign = 1 AND " + booked +
		" AND (account_id, order_id, entry) GLOBAL IN " + last + " AND (account_id, order_id, entry) GLOBAL NOT IN " + reversed

	// What the table orders has now, as the next entry of each order.
	replacements := head + "toUInt32(last.entry + 1), toInt8(1)" + posted +
		"FROM (SELECT * FROM orders FINAL WHERE " + within + ") AS now GLOBAL LEFT JOIN " + last + " AS last USING (account_id, order_id)"

	return a.fill(ctx, closedOrders, "INSERT INTO closed_orders (batch, "+rowColumns+")"+reversals+" UNION ALL"+replacements, c.named()...)
}

// InsertLate adds late deliveries of closed orders to a batch, at most MaxPlaces.
func (a *Archive) InsertLate(ctx context.Context, c Correction, late []LateDelivery) error {
	pairs := make([]string, len(late))
	places := make([]Place, len(late))
	for i, l := range late {
		pairs[i] = fmt.Sprintf("('%s', fromUnixTimestamp64Milli(%d))", l.Order, l.ReportedAt.UnixMilli())
		places[i] = Place{Account: l.Account, Day: BusinessDay(l.CreatedAt), Order: l.Order}
	}

	within := PlacesPart(places).within

	return a.fill(ctx, closedOrders, "INSERT INTO closed_orders (batch, "+rowColumns+")"+
		" SELECT {batch:UUID}, account_id, business_day, order_id, toUInt32(0), toInt8(0), {posted:Date}, toStartOfMonth(business_day), {cause:String}, version, "+
		factColumns+", reported_at FROM (SELECT * FROM orders FINAL WHERE "+within+") AS given_up GLOBAL INNER JOIN "+
		"(SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE "+within+" AND (order_id, reported_at) IN ("+strings.Join(pairs, ", ")+
		")) AS late USING (account_id, business_day, order_id)", c.named()...)
}

// ClosedRow is a row of a batch of corrections. Amounts are in kuruş and signed.
type ClosedRow struct {
	Place
	Entry      uint32
	Sign       int8
	Cause      string
	Version    uint64
	Status     string
	Expected   int64 // the expected collection
	Collection int64 // of a late delivery: what may have been collected
	ReportedAt time.Time
	Facts      string // SHA-256 of what the row says of the order, as ClosedDifference.KnownFacts
}

// maxClosedRows is more than a batch of corrections can have.
const maxClosedRows = 2*MaxPlaces + 1

// ClosedRows lists a batch of corrections, at most maxClosedRows of its rows.
func (a *Archive) ClosedRows(ctx context.Context, batch uuid.UUID) (all []ClosedRow, err error) {
	err = a.Each(ctx, `SELECT account_id, business_day, order_id, entry, sign, cause, version, status,
	toInt64(if(status = 'Delivered' AND payment_type IN ('Cash', 'Card'), sign * CAST(ifNull(collection_amount, 0) AS Decimal(38, 2)), 0) * 100),
	toInt64(if(sign = 0, CAST(ifNull(collection_amount, 0) AS Decimal(38, 2)), 0) * 100), ifNull(reported_at, fromUnixTimestamp64Milli(0)), `+factsDigest+`
FROM closed_orders WHERE batch = {batch:UUID} ORDER BY toUInt128(order_id), entry, sign, reported_at LIMIT {limit:UInt32}`, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day time.Time
		var r ClosedRow
		err := rows.Scan(&account, &day, &order, &r.Entry, &r.Sign, &r.Cause, &r.Version, &r.Status, &r.Expected, &r.Collection, &r.ReportedAt, &r.Facts)
		r.Place = readPlace(account, day, order)
		all = append(all, r)

		return err
	}, clickhouse.Named("batch", batch.String()), clickhouse.Named("limit", maxClosedRows))

	return all, err
}
