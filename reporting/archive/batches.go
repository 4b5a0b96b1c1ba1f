package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
)

const (
	// factColumns are those that closed_orders takes over from orders, besides the key and the version.
	factColumns = `external_order_id, external_store_id, store_name, tax_number, fleet_id, fleet_name, status, failure_reason, cancel_reason,
	created_at, ordered_at, picked_up_at, delivered_at, ended_at, payment_type, order_amount, collection_amount, courier_name, without_courier`

	// rowColumns are those of closed_orders, without the batch.
	rowColumns = `account_id, business_day, order_id, entry, sign, posted_day, correction_of, cause, version, ` + factColumns + `, reported_at`

	// frozenColumns are the columns of closed_orders that orders lacks, with the values of a frozen order.
	frozenColumns = `toUInt32(1) AS entry, toInt8(1) AS sign, business_day AS posted_day,
	toDate(0) AS correction_of, '' AS cause, CAST(NULL, 'Nullable(DateTime64(3, ''Etc/GMT-3''))') AS reported_at`

	// ordersOfDays are the orders of the days from {from:Date} to {to:Date}, as closed_orders has them.
	ordersOfDays = `SELECT ` + rowColumns + `
FROM (SELECT *, ` + frozenColumns + ` FROM orders FINAL WHERE business_day BETWEEN {from:Date} AND {to:Date})`

	// lateOfDays are the late deliveries of these days' orders, as closed_orders has them.
	lateOfDays = `SELECT account_id, business_day, order_id, toUInt32(0) AS entry, toInt8(0) AS sign, business_day AS posted_day,
	toDate(0) AS correction_of, '' AS cause, version, ` + factColumns + `, late.reported_at AS reported_at
FROM
(
	SELECT * FROM orders FINAL WHERE business_day BETWEEN {from:Date} AND {to:Date} AND (account_id, business_day, order_id) GLOBAL IN
		(SELECT account_id, business_day, order_id FROM late_deliveries WHERE business_day BETWEEN {from:Date} AND {to:Date})
) AS ended
GLOBAL INNER JOIN
(
	SELECT account_id, business_day, order_id, reported_at FROM late_deliveries FINAL WHERE business_day BETWEEN {from:Date} AND {to:Date}
) AS late USING (account_id, business_day, order_id)`

	rowsOfDays = ordersOfDays + " UNION ALL " + lateOfDays

	// rowDigest is the SHA-256 of all that a row of closed_orders says. Each value stands behind its
	// length, so that no two rows look alike.
	rowDigest = `SHA256(arrayStringConcat(arrayMap(x -> concat(toString(length(x)), ':', x), [
	toString(account_id), toString(business_day), toString(order_id), toString(entry), toString(sign), toString(posted_day), toString(correction_of),
	toString(cause), toString(version), external_order_id, toString(external_store_id), toString(store_name), toString(tax_number),
	toString(fleet_id), toString(fleet_name), toString(status), toString(failure_reason), toString(cancel_reason),
	toString(toUnixTimestamp64Milli(created_at)), ifNull(toString(toUnixTimestamp64Milli(ordered_at)), ''),
	ifNull(toString(toUnixTimestamp64Milli(picked_up_at)), ''), ifNull(toString(toUnixTimestamp64Milli(delivered_at)), ''),
	ifNull(toString(toUnixTimestamp64Milli(ended_at)), ''), toString(payment_type),
	ifNull(toString(toInt64(CAST(order_amount AS Nullable(Decimal(38, 2))) * 100)), ''), ifNull(toString(toInt64(CAST(collection_amount AS Nullable(Decimal(38, 2))) * 100)), ''),
	toString(courier_name), toString(toUInt8(without_courier)), ifNull(toString(toUnixTimestamp64Milli(reported_at)), '')])))`

	// bounded lets a statement use the disk where memory would grow with the number of rows.
	bounded = ` SETTINGS max_bytes_before_external_sort = 268435456, max_bytes_before_external_group_by = 268435456, max_block_size = 8192`
)

// Digest proves what some rows are.
type Digest struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"`
}

// DayDigest proves what the rows of one local day are. No two sets of rows have the same one, in whatever
// order and parts they are stored.
type DayDigest struct {
	Day    string `json:"day"` // 2026-10-03
	Orders Digest `json:"orders"`
	Late   Digest `json:"late,omitzero"` // of late deliveries
}

// Sum returns the digest of all rows of some days, which are in their order.
func Sum(days []DayDigest) Digest {
	var sum Digest
	for i := range days {
		sum.Rows += days[i].Orders.Rows + days[i].Late.Rows
	}

	text, _ := json.Marshal(days) // numbers and texts only
	digest := sha256.Sum256(text)
	sum.SHA256 = hex.EncodeToString(digest[:])
	return sum
}

// RowDigest is the SHA-256 of all values of one row of closed_orders, or of the row that Freeze would make.
type RowDigest [sha256.Size]byte

// DigestOf computes from the digests of rows what DigestRows computes in ClickHouse. The order of rows does not
// matter; it sorts the slice. Without rows it returns the zero Digest.
func DigestOf(rows []RowDigest) Digest {
	slices.SortFunc(rows, func(a, b RowDigest) int { return bytes.Compare(a[:], b[:]) })

	// ClickHouse digests the rows in parts by their first byte (digestDays); so does this.
	d := &dayDigester{parts: sha256.New()}
	for len(rows) > 0 {
		first := rows[0][0]
		size := slices.IndexFunc(rows, func(r RowDigest) bool { return r[0] != first })
		if size < 0 {
			size = len(rows)
		}

		part := sha256.New()
		for i := range rows[:size] {
			part.Write(rows[i][:])
		}

		d.add("", false, int64(size), string(part.Sum(nil)))
		rows = rows[size:]
	}

	d.finishRows()
	if len(d.days) == 0 {
		return Digest{}
	}

	return d.days[0].Orders
}

// DigestRows returns the digests of what Freeze would copy of the local days from one to another, both
// included. A day without rows has none.
func (a *Archive) DigestRows(ctx context.Context, from, to time.Time) ([]DayDigest, error) {
	return a.digestDays(ctx, rowsOfDays, daysNamed(from, to)...)
}

// MaxLate is the most late deliveries that LateOfDays returns.
const MaxLate = 100_000

// ErrManyLate reports that there are more than MaxLate late deliveries, so that somebody may have made them up.
var ErrManyLate = fmt.Errorf("there are more than %d late deliveries", MaxLate)

// LateOfDays returns the stored late deliveries that Freeze would copy of the local days from one to another, both
// included.
func (a *Archive) LateOfDays(ctx context.Context, from, to time.Time) (late []LateDelivery, err error) {
	query := "SELECT account_id, business_day, order_id, assumeNotNull(reported_at) FROM (" + lateOfDays + ") LIMIT {limit:UInt32}"
	err = a.Each(ctx, query, func(rows driver.Rows) error {
		var account, order uuid.UUID
		var day, reportedAt time.Time
		if err := rows.Scan(&account, &day, &order, &reportedAt); err != nil {
			return err
		}

		late = append(late, LateDelivery{
			Account: delivery.AccountID(account), CreatedAt: localMidnight(day), Order: delivery.OrderID(order), ReportedAt: reportedAt,
		})
		return nil
	}, append(daysNamed(from, to), clickhouse.Named("limit", MaxLate+1))...)
	if err == nil && len(late) > MaxLate {
		return nil, ErrManyLate
	}

	return late, err
}

// DigestBatch returns the digests of a batch's rows, by the days on which their orders were created. Of more rows than
// most, which need not fit into memory, it returns only how many there are, as those of a day without a name.
func (a *Archive) DigestBatch(ctx context.Context, batch uuid.UUID, most int64) ([]DayDigest, error) {
	return a.digestAtMost(ctx, most, "closed_orders WHERE batch = {batch:UUID}", clickhouse.Named("batch", batch.String()))
}

// DigestBatchDay is DigestBatch for the orders of one day. Without rows it is the day alone.
func (a *Archive) DigestBatchDay(ctx context.Context, batch uuid.UUID, day time.Time, most int64) (DayDigest, error) {
	days, err := a.digestAtMost(ctx, most, "closed_orders WHERE batch = {batch:UUID} AND business_day = {day:Date}",
		clickhouse.Named("batch", batch.String()), clickhouse.Named("day", dateOf(day)))
	if err != nil || len(days) == 0 {
		return DayDigest{Day: dateOf(day)}, err
	}
	return days[0], nil
}

func (a *Archive) digestAtMost(ctx context.Context, most int64, rowsOf string, args ...any) ([]DayDigest, error) {
	count, err := a.count(ctx, rowsOf, args...)
	if err != nil {
		return nil, err
	}

	if count > most {
		return []DayDigest{{Orders: Digest{Rows: count}}}, nil
	}
	return a.digestDays(ctx, "SELECT * FROM "+rowsOf, args...)
}

// CountBatch returns how many rows a batch has.
func (a *Archive) CountBatch(ctx context.Context, batch uuid.UUID) (int64, error) {
	return a.count(ctx, "closed_orders WHERE batch = {batch:UUID}", clickhouse.Named("batch", batch.String()))
}

func (a *Archive) count(ctx context.Context, rowsOf string, args ...any) (n int64, err error) {
	err = a.Each(ctx, "SELECT toInt64(count()) FROM "+rowsOf, func(rows driver.Rows) error { return rows.Scan(&n) }, args...)
	return n, err
}

func daysNamed(from, to time.Time) []any {
	return []any{clickhouse.Named("from", dateOf(from)), clickhouse.Named("to", dateOf(to))}
}

// digestDays digests the rows that a SELECT returns. ClickHouse sorts the digests of rows, in parts by
// their first byte, so that its memory is bounded, and returns the digest of each part.
func (a *Archive) digestDays(ctx context.Context, rowsOf string, args ...any) ([]DayDigest, error) {
	// In hex, because arrayStringConcat drops the zero bytes at the end of a fixed string.
	query := `SELECT business_day, toBool(sign = 0) AS is_late, substring(digest, 1, 1) AS part, toInt64(count()),
	SHA256(unhex(arrayStringConcat(arraySort(groupArray(hex(digest))))))
FROM (SELECT business_day, sign, ` + rowDigest + ` AS digest FROM (` + rowsOf + `))
GROUP BY business_day, is_late, part ORDER BY business_day, is_late, part` + bounded

	d := &dayDigester{parts: sha256.New()}
	err := a.Each(ctx, query, func(rows driver.Rows) error {
		var day time.Time
		var isLate bool
		var part, digest string
		var count int64
		if err := rows.Scan(&day, &isLate, &part, &count, &digest); err != nil {
			return err
		}

		d.add(day.Format(time.DateOnly), isLate, count, digest)
		return nil
	}, args...)

	d.finishRows()

	return d.days, err
}

// dayDigester puts the digests of parts together, which come in the order of days, of a day's orders
// before its late deliveries.
type dayDigester struct {
	days   []DayDigest
	isLate bool
	parts  hash.Hash // of the rows that are being added to the last day
}

func (d *dayDigester) add(day string, isLate bool, rows int64, digest string) {
	isNewDay := len(d.days) == 0 || d.days[len(d.days)-1].Day != day
	if isNewDay || isLate != d.isLate {
		d.finishRows()
		d.isLate = isLate
	}

	if isNewDay {
		d.days = append(d.days, DayDigest{Day: day})
	}

	d.current().Rows += rows
	d.parts.Write([]byte(digest))
}

// current returns the digest of the rows that are being added.
func (d *dayDigester) current() *Digest {
	last := &d.days[len(d.days)-1]
	if d.isLate {
		return &last.Late
	}
	return &last.Orders
}

// finishRows is called once all parts of the current rows were added.
func (d *dayDigester) finishRows() {
	if len(d.days) > 0 {
		d.current().SHA256 = hex.EncodeToString(d.parts.Sum(nil))
	}
	d.parts.Reset()
}

// Freeze copies the orders of the local days from one to another, both included, and their late
// deliveries into a batch.
func (a *Archive) Freeze(ctx context.Context, batch uuid.UUID, from, to time.Time) error {
	return a.fill(ctx, closedOrders, "INSERT INTO closed_orders (batch, "+rowColumns+") SELECT {batch:UUID}, "+rowColumns+" FROM ("+rowsOfDays+")",
		append(daysNamed(from, to), clickhouse.Named("batch", batch.String()))...)
}

// dayColumns are those of closed_days behind batch.
var dayColumns = strings.TrimPrefix(closedDays.list("%[1]s"), "batch, ")

// InsertDays stores the sums of a batch, whose rows are there, in closed_days.
func (a *Archive) InsertDays(ctx context.Context, batch uuid.UUID) error {
	return a.fill(ctx, closedDays, "INSERT INTO closed_days (batch, "+dayColumns+") SELECT {batch:UUID}, "+dayColumns+" FROM batch_days(batch={batch:UUID})",
		clickhouse.Named("batch", batch.String()))
}

// fill runs an INSERT … SELECT into a table. It is not repeated after an error, because its rows could then
// be there twice.
func (a *Archive) fill(ctx context.Context, t *table, statement string, args ...any) error {
	settings := a.storingSettings(t)
	maps.Copy(settings, a.readingSettings())
	delete(settings, "readonly")       // the SELECT reads like every other one, but an INSERT writes
	settings["max_insert_threads"] = 1 // several would each keep a block of rows in memory
	return a.exec(clickhouse.Context(ctx, clickhouse.WithSettings(settings)), statement+bounded, args...)
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

// RemoveDays removes the sums of a batch, and leaves its rows.
func (a *Archive) RemoveDays(ctx context.Context, batch uuid.UUID) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"lightweight_deletes_sync": 2}))
	return a.exec(ctx, fmt.Sprintf("DELETE FROM %s %s WHERE batch = '%s'", a.physical(closedDays), a.onCluster(), batch))
}

// DaysDiffering lists days and stores of which closed_days says something else than the batch's rows, at
// most 20.
func (a *Archive) DaysDiffering(ctx context.Context, batch uuid.UUID) (found []string, err error) {
	query := `SELECT DISTINCT concat(toString(booked_day), ', account ', toString(account_id), ', store ', external_store_id) AS place FROM
(
	SELECT booked_day, account_id, external_store_id FROM
	(
		SELECT ` + dayColumns + `, toInt8(1) AS side FROM closed_days WHERE batch = {batch:UUID}
		UNION ALL
		SELECT ` + dayColumns + `, toInt8(-1) AS side FROM batch_days(batch={batch:UUID})
	)
	GROUP BY ` + dayColumns + ` HAVING sum(side) != 0
)
ORDER BY place LIMIT 20` + bounded

	err = a.Each(ctx, query, func(rows driver.Rows) error {
		var text string
		err := rows.Scan(&text)
		found = append(found, text)
		return err
	}, clickhouse.Named("batch", batch.String()))

	return found, err
}

// OpenOrders returns how many orders of the local days from one to another have not ended.
func (a *Archive) OpenOrders(ctx context.Context, from, to time.Time) (n int64, err error) {
	err = a.Each(ctx, `SELECT toInt64(count()) FROM orders FINAL WHERE business_day BETWEEN {from:Date} AND {to:Date}
	AND status NOT IN ('Delivered', 'Failed', 'Cancelled')`, func(rows driver.Rows) error { return rows.Scan(&n) }, daysNamed(from, to)...)
	return n, err
}

// FirstDay returns the local day of the oldest order since the year 2000; zero: there is none.
func (a *Archive) FirstDay(ctx context.Context) (first time.Time, err error) {
	err = a.Each(ctx, "SELECT minOrNull(business_day) FROM orders WHERE business_day >= '2000-01-01' SETTINGS final = 0", func(rows driver.Rows) error {
		var day *time.Time
		err := rows.Scan(&day)
		if day != nil {
			first = localMidnight(*day)
		}
		return err
	})

	return first, err
}
