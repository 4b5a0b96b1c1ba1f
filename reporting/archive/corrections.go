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

// InsertCorrections adds to a batch, for each order of a closed month, the reversal of what was booked and
// what orders says now. There are at most MaxPlaces.
func (a *Archive) InsertCorrections(ctx context.Context, c Correction, orders []Place) error {
	within := PlacesPart(orders).within
	booked := c.sealed() + " AND " + within
	const head = " SELECT {batch:UUID}, account_id, business_day, order_id, "
	const posted = ", {posted:Date}, toStartOfMonth(business_day), {cause:String}, version, " + factColumns + ", NULL "
	last := "(SELECT order_id, max(entry) AS entry FROM closed_orders WHERE sign = 1 AND " + booked + " GROUP BY order_id)"
	reversed := "(SELECT order_id, entry FROM closed_orders WHERE sign = -1 AND " + booked + ")"

	return a.fill(ctx, closedOrders, "INSERT INTO closed_orders (batch, "+rowColumns+")"+
		head+"entry, toInt8(-1)"+posted+"FROM closed_orders WHERE sign = 1 AND "+booked+
		" AND (order_id, entry) GLOBAL IN "+last+" AND (order_id, entry) GLOBAL NOT IN "+reversed+
		" UNION ALL"+head+"toUInt32(last.entry + 1), toInt8(1)"+posted+
		"FROM (SELECT * FROM orders FINAL WHERE "+within+") AS now GLOBAL LEFT JOIN "+last+" AS last USING order_id", c.named()...)
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
}

// ClosedRows lists a batch of corrections.
func (a *Archive) ClosedRows(ctx context.Context, batch uuid.UUID) (all []ClosedRow, err error) {
	err = a.Each(ctx, `SELECT account_id, business_day, order_id, entry, sign, cause, version, status,
	toInt64(if(status = 'Delivered' AND payment_type IN ('Cash', 'Card'), sign * ifNull(collection_amount, 0), 0) * 100),
	toInt64(if(sign = 0, ifNull(collection_amount, 0), 0) * 100), ifNull(reported_at, fromUnixTimestamp64Milli(0))
FROM closed_orders WHERE batch = {batch:UUID} ORDER BY toUInt128(order_id), entry, sign, reported_at`, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day time.Time
		var r ClosedRow
		err := rows.Scan(&account, &day, &order, &r.Entry, &r.Sign, &r.Cause, &r.Version, &r.Status, &r.Expected, &r.Collection, &r.ReportedAt)
		r.Place = readPlace(account, day, order)
		all = append(all, r)
		return err
	}, clickhouse.Named("batch", batch.String()))
	return all, err
}
