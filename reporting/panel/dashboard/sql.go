package dashboard

import (
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
)

// All that is asked of ClickHouse stands here. Text of people only ever comes in
// as a parameter. Amounts are kuruş, times are milliseconds since 1970, and
// absent stands for NULL in both: no order has anything near it.
const absent = -1 << 63

// orderColumns are what scanOrder reads.
const orderColumns = `toString(account_id), toString(order_id), version, external_order_id, external_store_id, store_name,
	toString(fleet_id), fleet_name, status, failure_reason, cancel_reason,
	toUnixTimestamp64Milli(created_at), ifNull(toUnixTimestamp64Milli(ordered_at), {absent:Int64}), toUnixTimestamp64Milli(ready_at),
	ifNull(toUnixTimestamp64Milli(ended_at), {absent:Int64}), toUnixTimestamp64Milli(updated_at),
	payment_type, ifNull(toInt64(order_amount * 100), {absent:Int64}), ifNull(toInt64(collection_amount * 100), {absent:Int64})`

// newestFirst puts orders of one millisecond into the order of their ids as
// text, which is the one in which they are merged here.
const newestFirst = `ORDER BY created_at DESC, toUInt128(order_id) DESC`

// foldedStore is what delivery.FoldName makes of a store's name; the last step
// takes away the dot of an İ that was made small the English way.
const foldedStore = `replaceAll(lowerUTF8(translateUTF8(store_name, 'İIı', 'iii')), '\xCC\x87', '')`

// pageSQL finds the orders of a page by the columns that it needs for that, and
// reads the others of these orders only. What never changes of an order is
// judged before its versions are (PREWHERE), the rest by its latest version.
func (s *search) pageSQL(fixed, latest []string) string {
	where := ""
	if len(latest) > 0 {
		where = "WHERE " + strings.Join(latest, " AND ")
	}
	return `SELECT ` + orderColumns + ` FROM orders
WHERE (account_id, business_day, order_id) GLOBAL IN (
	SELECT account_id, business_day, order_id FROM orders
	PREWHERE ` + strings.Join(fixed, " AND ") + ` ` + where + `
	` + newestFirst + ` LIMIT {limit:UInt32})
` + newestFirst
}

// conditions are those of the search, for pageSQL, with their parameters. The
// business days come first: they say which partitions are read at all.
func (s *search) conditions(limit int) (fixed, latest []string, args []any) {
	add := func(list *[]string, condition string, named ...any) {
		*list = append(*list, condition)
		args = append(args, named...)
	}
	until := s.until
	if s.after != nil {
		until = s.after.created // what follows is older
	}
	add(&fixed, "business_day BETWEEN {from:Date} AND {to:Date}",
		clickhouse.Named("from", dateText(s.since)), clickhouse.Named("to", dateText(until)))
	add(&fixed, "created_at >= fromUnixTimestamp64Milli({since:Int64})", clickhouse.Named("since", s.since.UnixMilli()))
	if !s.account.IsZero() {
		add(&fixed, "account_id = {account:UUID}", clickhouse.Named("account", s.account.String()))
	}
	if s.after != nil {
		add(&fixed, `(created_at < fromUnixTimestamp64Milli({after:Int64})
		OR created_at = fromUnixTimestamp64Milli({after:Int64}) AND toUInt128(order_id) < toUInt128({after_order:UUID}))`,
			clickhouse.Named("after", s.after.created.UnixMilli()), clickhouse.Named("after_order", s.after.order.String()))
	}
	if s.text != "" {
		text := "external_order_id = {text:String} OR external_store_id = {text:String} OR position(" + foldedStore + ", {folded:String}) > 0"
		if prefix := s.prefix(); prefix != "" {
			text += " OR startsWith(toString(order_id), {prefix:String})"
			args = append(args, clickhouse.Named("prefix", prefix))
		}
		add(&latest, "("+text+")", clickhouse.Named("text", s.text), clickhouse.Named("folded", delivery.FoldName(s.text)))
	}
	if s.open {
		add(&latest, "status NOT IN ('Delivered', 'Failed', 'Cancelled')")
	} else if s.status != 0 {
		add(&latest, "status = {status:String}", clickhouse.Named("status", s.status.String()))
	}
	args = append(args, clickhouse.Named("limit", limit), clickhouse.Named("absent", int64(absent)))
	return fixed, latest, args
}

// One order. Its id carries the day of its creation in UTC, and the local day is
// that or the next.
const (
	orderSQL = `SELECT ` + orderColumns + ` FROM orders
PREWHERE business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY version DESC LIMIT 1`

	eventsSQL = `SELECT version, status, toUnixTimestamp64Milli(at), failure_reason, cancel_reason FROM order_events
PREWHERE account_id = {account:UUID} AND business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY sequence LIMIT 100`

	lateSQL = `SELECT toUnixTimestamp64Milli(reported_at) FROM late_deliveries FINAL
PREWHERE account_id = {account:UUID} AND business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY reported_at LIMIT 20`

	// The table is sorted by account, day and event, so that what is read is as
	// little as the order has.
	attemptsSQL = `SELECT event_id, toUnixTimestamp64Milli(at), state, attempt, http_status, error, milliseconds, replay, probe
FROM webhook_outcomes
PREWHERE account_id = {account:UUID} AND day BETWEEN {from:Date} AND {to:Date} AND event_id IN {events:Array(String)}
ORDER BY at DESC LIMIT 500`
)

// placeArgs say where an order's rows lie.
func placeArgs(id delivery.OrderID) []any {
	from, to := creationDays(id)
	return []any{clickhouse.Named("from", dateText(from)), clickhouse.Named("to", dateText(to)),
		clickhouse.Named("order", id.String()), clickhouse.Named("absent", int64(absent))}
}
