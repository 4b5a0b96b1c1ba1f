package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

// firstDayOfAll is before every order; views look 31 days further back.
const firstDayOfAll = "1970-02-01"

const (
	openRows    = `open_rows(from='` + firstDayOfAll + `', to={to:Date}, account='', fleet='', store='')`
	batchRows   = `closed_orders WHERE batch = {batch:UUID}`
	rowColumns  = `account_id, business_day, order_id, entry, sign, posted_day, correction_of, cause, version, ` + factColumns + `, reported_at`
	factColumns = `external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name, status, failure_reason, cancel_reason,
	created_at, ordered_at, picked_up_at, delivered_at, ended_at, payment_type, order_amount, collection_amount, courier_name, without_courier`

	// rowDigest is the SHA-256 of all that a row says. Each value stands behind its length, so that no two rows look alike.
	rowDigest = `SHA256(arrayStringConcat(arrayMap(x -> concat(toString(length(x)), ':', x), [
	toString(account_id), toString(business_day), toString(order_id), toString(entry), toString(sign), toString(posted_day), toString(correction_of),
	toString(cause), toString(version), external_order_id, toString(external_store_id), toString(store_name), toString(tax_number),
	toString(fleet_id), toString(fleet_name), toString(status), toString(failure_reason), toString(cancel_reason),
	toString(toUnixTimestamp64Milli(created_at)), ifNull(toString(toUnixTimestamp64Milli(ordered_at)), ''),
	ifNull(toString(toUnixTimestamp64Milli(picked_up_at)), ''), ifNull(toString(toUnixTimestamp64Milli(delivered_at)), ''),
	ifNull(toString(toUnixTimestamp64Milli(ended_at)), ''), toString(payment_type),
	ifNull(toString(toInt64(order_amount * 100)), ''), ifNull(toString(toInt64(collection_amount * 100)), ''),
	toString(courier_name), toString(toUInt8(without_courier)), ifNull(toString(toUnixTimestamp64Milli(reported_at)), '')])))`

	// sealed are the batches that count.
	sealed = `batch IN (SELECT batch FROM journal WHERE kind IN ('close', 'correction'))`
	// openFrom is the first day that is not closed.
	openFrom = `(SELECT if(count() = 0, toDate(0), addMonths(max(month), 1)) FROM journal WHERE kind = 'close')`

	closingSettings = ` SETTINGS max_bytes_before_external_sort = 268435456, max_bytes_before_external_group_by = 268435456, max_block_size = 8192`
)

// Digest is of rows in the order of order, entry and sign.
type Digest struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"`
}

// DigestOpen is that of the rows that closing everything up to a day would freeze.
func (a *Archive) DigestOpen(ctx context.Context, to time.Time) (Digest, error) {
	return a.digest(ctx, openRows, clickhouse.Named("to", dateOf(to)))
}

// DigestBatch is that of a batch.
func (a *Archive) DigestBatch(ctx context.Context, batch uuid.UUID) (Digest, error) {
	return a.digest(ctx, batchRows, clickhouse.Named("batch", batch.String()))
}

func (a *Archive) digest(ctx context.Context, from string, args ...any) (d Digest, err error) {
	all := sha256.New()
	err = a.Each(ctx, "SELECT "+rowDigest+" FROM "+from+" ORDER BY toUInt128(order_id), entry, sign, reported_at"+closingSettings,
		func(rows driver.Rows) error {
			var one string
			err := rows.Scan(&one)
			all.Write([]byte(one))
			d.Rows++
			return err
		}, args...)
	d.SHA256 = hex.EncodeToString(all.Sum(nil))
	return d, err
}

// Freeze copies all that is open, up to a day, into a batch.
func (a *Archive) Freeze(ctx context.Context, batch uuid.UUID, to time.Time) error {
	return a.fill(ctx, "INSERT INTO closed_orders (batch, "+rowColumns+") SELECT {batch:UUID}, "+rowColumns+" FROM "+openRows,
		clickhouse.Named("batch", batch.String()), clickhouse.Named("to", dateOf(to)))
}

// dayColumns are those of closed_days behind batch.
var dayColumns = strings.TrimPrefix(closedDays.list("%[1]s"), "batch, ")

// InsertDays stores the sums of a batch, whose rows are there, in closed_days.
func (a *Archive) InsertDays(ctx context.Context, batch uuid.UUID) error {
	return a.fill(ctx, "INSERT INTO closed_days (batch, "+dayColumns+") SELECT {batch:UUID}, "+dayColumns+" FROM batch_days(batch={batch:UUID})",
		clickhouse.Named("batch", batch.String()))
}

// fill runs an INSERT that ClickHouse feeds itself. It is not repeated: a row would be there twice.
func (a *Archive) fill(ctx context.Context, statement string, args ...any) error {
	settings := clickhouse.Settings{"final": 1, "do_not_merge_across_partitions_select_final": 1, "max_query_size": maxQuerySize, "max_insert_threads": 1}
	for name, value := range storing {
		settings[name] = value
	}
	return a.exec(clickhouse.Context(ctx, clickhouse.WithSettings(settings)), statement+closingSettings, args...)
}

// RemoveBatch removes the rows of a batch that is not sealed.
func (a *Archive) RemoveBatch(ctx context.Context, batch uuid.UUID) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"lightweight_deletes_sync": 2}))
	for _, t := range []*table{closedOrders, closedDays} {
		if err := a.exec(ctx, fmt.Sprintf("DELETE FROM %s %s WHERE batch = '%s'", a.physical(t), a.onCluster(), batch)); err != nil {
			return err
		}
	}
	return nil
}

// DaysDiffering lists days and stores of which closed_days says something else than the batch's rows; at most 20.
func (a *Archive) DaysDiffering(ctx context.Context, batch uuid.UUID) (found []string, err error) {
	part := func(from string, sign int) string {
		return fmt.Sprintf("SELECT booked_day, account_id, external_store_id, sipHash128(toString(tuple(%s))) AS hash, toInt8(%d) AS sign FROM %s", dayColumns, sign, from)
	}
	err = a.Each(ctx, `SELECT concat(toString(booked_day), ', account ', toString(account_id), ', store ', external_store_id) FROM (`+
		part("closed_days WHERE batch = {batch:UUID}", 1)+" UNION ALL "+part("batch_days(batch={batch:UUID})", -1)+
		`) GROUP BY booked_day, account_id, external_store_id HAVING sum(sign * reinterpretAsInt64(hash)) != 0 OR sum(sign) != 0
ORDER BY booked_day, account_id, external_store_id LIMIT 20`+closingSettings, func(rows driver.Rows) error {
		var text string
		err := rows.Scan(&text)
		found = append(found, text)
		return err
	}, clickhouse.Named("batch", batch.String()))
	return found, err
}

// fingerprint is of what an order says, without names, which can be as they were when a row was exported.
const fingerprint = `toInt64(cityHash64(version, external_order_id, toString(external_store_id), fleet_id, toString(status), toString(failure_reason),
	toString(cancel_reason), created_at, ifNull(toUnixTimestamp64Milli(picked_up_at), -1), ifNull(toUnixTimestamp64Milli(delivered_at), -1),
	ifNull(toUnixTimestamp64Milli(ended_at), -1), toString(payment_type), ifNull(toInt64(order_amount * 100), -1),
	ifNull(toInt64(collection_amount * 100), -1), without_courier))`

// booked and known are both sides of closed months: rows with what they add to an order's fingerprint.
const (
	booked = `SELECT account_id, business_day, order_id, version, entry, toInt64(sign) AS booked, 0 AS known, sign * ` + fingerprint + ` AS hash,
	sign * toInt64(ifNull(collection_amount, 0) * 100) AS collection, concat(toString(status), ' ', toString(ifNull(collection_amount, 0))) AS says
FROM closed_orders WHERE sign != 0 AND ` + sealed
	known = `SELECT account_id, business_day, order_id, version, toUInt32(0) AS entry, toInt64(0) AS booked, 1 AS known, -` + fingerprint + ` AS hash,
	-toInt64(ifNull(collection_amount, 0) * 100) AS collection, concat(toString(status), ' ', toString(ifNull(collection_amount, 0))) AS says
FROM orders FINAL WHERE business_day < ` + openFrom
)

// ClosedDifference is an order of a closed month of which orders says something else than was booked.
type ClosedDifference struct {
	Place
	Booked, Known         bool   // whether it is there
	BookedVersion         uint64 // as it was last booked
	KnownVersion          uint64
	BookedSays, KnownSays string // status and amount to collect
}

// MonthsDiffering are the closed months, by their first days, that have such orders. It reads every order.
func (a *Archive) MonthsDiffering(ctx context.Context) (months []time.Time, err error) {
	err = a.Each(ctx, `SELECT toStartOfMonth(business_day) AS month FROM (`+booked+` UNION ALL `+known+`) GROUP BY month
HAVING sum(hash) != 0 OR sum(booked) != sum(known) ORDER BY month`+closingSettings, func(rows driver.Rows) error {
		var month time.Time
		err := rows.Scan(&month)
		months = append(months, readPlace(uuid.Nil, month, uuid.Nil).Day)
		return err
	})
	return months, err
}

// DifferingIn lists those of a month, at most limit.
func (a *Archive) DifferingIn(ctx context.Context, month time.Time, limit int) (found []ClosedDifference, err error) {
	const within = " AND business_day >= {month:Date} AND business_day < addMonths({month:Date}, 1)"
	err = a.Each(ctx, `SELECT account_id, business_day, order_id, toBool(sum(booked) > 0), toBool(sum(known) > 0),
	argMaxIf(version, entry, booked > 0), maxIf(version, known > 0), argMaxIf(says, entry, booked > 0), anyIf(says, known > 0)
FROM (`+booked+within+` UNION ALL `+known+within+`) GROUP BY account_id, business_day, order_id HAVING sum(hash) != 0 OR sum(booked) != sum(known)
ORDER BY toUInt128(order_id) LIMIT {limit:UInt32}`+closingSettings, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day time.Time
		var d ClosedDifference
		err := rows.Scan(&account, &day, &order, &d.Booked, &d.Known, &d.BookedVersion, &d.KnownVersion, &d.BookedSays, &d.KnownSays)
		d.Place = readPlace(account, day, order)
		found = append(found, d)
		return err
	}, clickhouse.Named("month", dateOf(month)), clickhouse.Named("limit", limit))
	return found, err
}

// UnbookedLate lists late deliveries of orders of closed months, which had failed or been cancelled, that
// no batch has, at most limit.
func (a *Archive) UnbookedLate(ctx context.Context, limit int) (found []LateDelivery, err error) {
	err = a.Each(ctx, `SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE business_day < `+openFrom+`
	AND (order_id, reported_at) GLOBAL NOT IN (SELECT order_id, assumeNotNull(reported_at) FROM closed_orders WHERE sign = 0 AND `+sealed+`)
	AND (account_id, business_day, order_id) GLOBAL IN (SELECT account_id, business_day, order_id FROM orders FINAL WHERE business_day < `+openFrom+`
		AND status IN ('Failed', 'Cancelled') AND order_id GLOBAL IN (SELECT order_id FROM late_deliveries WHERE business_day < `+openFrom+`))
ORDER BY toUInt128(order_id), reported_at LIMIT {limit:UInt32}`, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var l LateDelivery
		err := rows.Scan(&account, &l.CreatedAt, &order, &l.ReportedAt)
		l.Account, l.Order = delivery.AccountID(account), delivery.OrderID(order)
		l.CreatedAt = readPlace(account, l.CreatedAt, order).Day
		found = append(found, l)
		return err
	}, clickhouse.Named("limit", limit))
	return found, err
}

// Correction is what one INSERT of corrections has in common.
type Correction struct {
	Batch  uuid.UUID
	Posted time.Time // local day on which they are booked
	Cause  string
}

// InsertCorrections adds to a batch, for each order, the reversal of what was booked and what orders says now.
func (a *Archive) InsertCorrections(ctx context.Context, c Correction, orders []delivery.OrderID) error {
	ids := list(orders)
	const head = " SELECT {batch:UUID}, account_id, business_day, order_id, "
	const posted = ", {posted:Date}, toStartOfMonth(business_day), {cause:String}, version, " + factColumns + ", NULL "
	last := "(SELECT order_id, max(entry) AS entry FROM closed_orders WHERE sign = 1 AND " + sealed + " AND order_id IN (" + ids + ") GROUP BY order_id)"
	return a.fill(ctx, "INSERT INTO closed_orders (batch, "+rowColumns+")"+
		head+"entry, toInt8(-1)"+posted+"FROM closed_orders WHERE sign = 1 AND "+sealed+" AND (order_id, entry) GLOBAL IN "+last+
		" AND (order_id, entry) GLOBAL NOT IN (SELECT order_id, entry FROM closed_orders WHERE sign = -1 AND "+sealed+" AND order_id IN ("+ids+"))"+
		" UNION ALL"+head+"toUInt32(last.entry + 1), toInt8(1)"+posted+"FROM (SELECT * FROM orders FINAL WHERE order_id IN ("+ids+") AND business_day < "+openFrom+
		") AS now GLOBAL LEFT JOIN "+last+" AS last USING order_id", c.named()...)
}

// InsertLate adds late deliveries of closed orders to a batch.
func (a *Archive) InsertLate(ctx context.Context, c Correction, late []LateDelivery) error {
	pairs := make([]string, len(late))
	ids := make([]delivery.OrderID, len(late))
	for i, l := range late {
		pairs[i], ids[i] = fmt.Sprintf("('%s', fromUnixTimestamp64Milli(%d))", l.Order, l.ReportedAt.UnixMilli()), l.Order
	}
	return a.fill(ctx, "INSERT INTO closed_orders (batch, "+rowColumns+")"+
		" SELECT {batch:UUID}, account_id, business_day, order_id, toUInt32(0), toInt8(0), {posted:Date}, toStartOfMonth(business_day), {cause:String}, version, "+
		factColumns+", reported_at FROM (SELECT * FROM orders FINAL WHERE order_id IN ("+list(ids)+")) AS given_up GLOBAL INNER JOIN "+
		"(SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE (order_id, reported_at) IN ("+strings.Join(pairs, ", ")+
		")) AS late USING (account_id, business_day, order_id)", c.named()...)
}

func (c *Correction) named() []any {
	return []any{clickhouse.Named("batch", c.Batch.String()), clickhouse.Named("posted", dateOf(c.Posted)), clickhouse.Named("cause", c.Cause)}
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
FROM `+batchRows+` ORDER BY toUInt128(order_id), entry, sign, reported_at`, func(rows driver.Rows) error {
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

// OpenOrders is how many orders up to a day have not ended, of those that are not closed.
func (a *Archive) OpenOrders(ctx context.Context, to time.Time) (n int64, err error) {
	err = a.Each(ctx, `SELECT toInt64(count()) FROM orders FINAL WHERE business_day BETWEEN `+openFrom+` AND {to:Date}
	AND status NOT IN ('Delivered', 'Failed', 'Cancelled')`, func(rows driver.Rows) error { return rows.Scan(&n) }, clickhouse.Named("to", dateOf(to)))
	return n, err
}
