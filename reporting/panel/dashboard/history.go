package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// absent stands for NULL in amounts (kuruş) and times (ms since 1970).
const absent = -1 << 63

const (
	orderColumns = `toString(account_id), toString(order_id), version, external_order_id, external_store_id, store_name,
	toString(fleet_id), fleet_name, status, failure_reason, cancel_reason,
	toUnixTimestamp64Milli(created_at), ifNull(toUnixTimestamp64Milli(ordered_at), {absent:Int64}), toUnixTimestamp64Milli(ready_at),
	ifNull(toUnixTimestamp64Milli(ended_at), {absent:Int64}), toUnixTimestamp64Milli(updated_at),
	payment_type, ifNull(toInt64(order_amount * 100), {absent:Int64}), ifNull(toInt64(collection_amount * 100), {absent:Int64})`

	// newestFirst sorts orders of one millisecond by their ids as text, as merge does.
	newestFirst = `ORDER BY created_at DESC, toUInt128(order_id) DESC`

	// foldedStore is what delivery.FoldName makes of a store's name; the last step
	// removes the dot of an İ that was lowered the English way.
	foldedStore = `replaceAll(lowerUTF8(translateUTF8(store_name, 'İIı', 'iii')), '\xCC\x87', '')`

	orderSQL = `SELECT ` + orderColumns + ` FROM orders
PREWHERE business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY version DESC LIMIT 1`

	eventsSQL = `SELECT version, status, toUnixTimestamp64Milli(at), failure_reason, cancel_reason FROM order_events
PREWHERE account_id = {account:UUID} AND business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY sequence LIMIT 100`

	lateSQL = `SELECT toUnixTimestamp64Milli(reported_at) FROM late_deliveries FINAL
PREWHERE account_id = {account:UUID} AND business_day BETWEEN {from:Date} AND {to:Date} AND order_id = {order:UUID}
ORDER BY reported_at LIMIT 20`

	attemptsSQL = `SELECT event_id, toUnixTimestamp64Milli(at), state, attempt, http_status, error, milliseconds, replay, probe
FROM webhook_outcomes
PREWHERE account_id = {account:UUID} AND day BETWEEN {from:Date} AND {to:Date} AND event_id IN {events:Array(String)}
ORDER BY at DESC LIMIT 500`
)

func query[T any](ctx context.Context, a *archive.Archive, sql string, args []any, scan func(driver.Rows) (T, error)) (all []T, err error) {
	err = a.Each(ctx, sql, func(rows driver.Rows) error {
		row, err := scan(rows)
		if err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		all = append(all, row)
		return nil
	}, args...)
	return all, err
}

// creationDays are the local days on which an order can have been created: that of its
// id, which is in UTC, or the next.
func creationDays(id delivery.OrderID) (from, to time.Time) {
	from = archive.BusinessDay(time.Unix(int64(id.Day())*24*60*60, 0))
	return from, from.AddDate(0, 0, 1)
}

func dateText(t time.Time) string { return t.In(delivery.Istanbul).Format(time.DateOnly) }

func orderArgs(account delivery.AccountID, id delivery.OrderID) []any {
	from, to := creationDays(id)
	return []any{clickhouse.Named("account", account.String()), clickhouse.Named("from", dateText(from)), clickhouse.Named("to", dateText(to)),
		clickhouse.Named("order", id.String()), clickhouse.Named("absent", int64(absent))}
}

type pastOrder struct {
	orderRow
	Version uint64
	Ordered time.Time // zero: not given
	Ready   time.Time
	Updated time.Time
	// unreadable is why the row cannot be understood: it may be of a newer release.
	unreadable error
}

var errUnreadable = errors.New("cannot be understood")

func scanOrder(rows driver.Rows) (*pastOrder, error) {
	var o pastOrder
	var account, order, fleet, status, payment string
	var created, ordered, ready, ended, updated, amount, collection int64
	err := rows.Scan(&account, &order, &o.Version, &o.External, &o.Store, &o.StoreName, &fleet, &o.FleetName,
		&status, (*string)(&o.Failure), (*string)(&o.Cancel), &created, &ordered, &ready, &ended, &updated, &payment, &amount, &collection)
	if err != nil {
		return nil, err
	}
	o.Created, o.Ordered, o.Ready, o.Ended, o.Updated = moment(created), moment(ordered), moment(ready), moment(ended), moment(updated)
	o.Amount, o.Collection = lira(amount), lira(collection)
	var faults [5]error
	o.Account, faults[0] = delivery.ParseAccountID(account)
	o.ID, faults[1] = delivery.ParseOrderID(order)
	o.Fleet, faults[2] = delivery.ParseFleetID(fleet)
	o.Status, faults[3] = delivery.ParseStatus(status)
	if payment != "" {
		o.Payment, faults[4] = delivery.ParsePaymentType(payment)
	}
	if err := errors.Join(faults[:]...); err != nil {
		raw, _ := uuid.Parse(order) // ClickHouse writes no other
		o.ID = delivery.OrderID(raw)
		o.unreadable = fmt.Errorf("order %s %w: %w", order, errUnreadable, err)
	}
	return &o, nil
}

func moment(ms int64) time.Time {
	if ms == absent {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func lira(kurus int64) delivery.Money {
	if kurus == absent {
		return delivery.Money{}
	}
	return delivery.Money{Minor: kurus, Set: true}
}

type pastPage struct {
	rows   []orderRow
	unread int     // rows that could not
	last   *cursor // the last row, read or not; nil when there are no more
}

// pageOf reads at most limit rows. Those that cannot be understood are counted and logged.
func (p *Pages) pageOf(ctx context.Context, s *search, limit int) (page pastPage, err error) {
	sql, args := s.pageSQL(limit)
	orders, err := query(ctx, p.archive, sql, args, scanOrder)
	var first error
	for _, o := range orders {
		if o.unreadable != nil {
			page.unread++
			first = cmp.Or(first, o.unreadable)
		} else {
			page.rows = append(page.rows, o.orderRow)
		}
	}
	if n := len(orders); n == limit {
		page.last = &cursor{created: orders[n-1].Created, order: orders[n-1].ID}
	}
	if page.unread > 0 {
		p.log.Warn("rows of the history cannot be understood", "rows", page.unread, "first", first)
	}
	return page, err
}

// pageSQL finds the orders of a page first and reads the other columns of these only. What
// never changes is compared in PREWHERE, before the versions are, the rest in the latest
// version. The business days say which partitions are read.
func (s *search) pageSQL(limit int) (sql string, args []any) {
	var fixed, latest []string
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
	where := ""
	if len(latest) > 0 {
		where = "WHERE " + strings.Join(latest, " AND ")
	}
	args = append(args, clickhouse.Named("limit", limit), clickhouse.Named("absent", int64(absent)))
	return `SELECT ` + orderColumns + ` FROM orders
WHERE (account_id, business_day, order_id) GLOBAL IN (
	SELECT account_id, business_day, order_id FROM orders
	PREWHERE ` + strings.Join(fixed, " AND ") + ` ` + where + `
	` + newestFirst + ` LIMIT {limit:UInt32})
` + newestFirst, args
}

// pastOrder is nil when ClickHouse does not have it; errUnreadable as in pastOrder.
func (p *Pages) pastOrder(ctx context.Context, id delivery.OrderID) (*pastOrder, error) {
	found, err := query(ctx, p.archive, orderSQL, orderArgs(delivery.AccountID{}, id), scanOrder)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], found[0].unreadable
}

func (p *Pages) pastSteps(ctx context.Context, account delivery.AccountID, id delivery.OrderID) ([]step, error) {
	return query(ctx, p.archive, eventsSQL, orderArgs(account, id), func(rows driver.Rows) (s step, err error) {
		var status string
		var at int64
		if err := rows.Scan(&s.Version, &status, &at, (*string)(&s.Failure), (*string)(&s.Cancel)); err != nil {
			return s, err
		}
		s.At = moment(at)
		s.Status, err = delivery.ParseStatus(status)
		return s, err
	})
}

func (p *Pages) lateDeliveries(ctx context.Context, account delivery.AccountID, id delivery.OrderID) ([]time.Time, error) {
	return query(ctx, p.archive, lateSQL, orderArgs(account, id), func(rows driver.Rows) (time.Time, error) {
		var at int64
		err := rows.Scan(&at)
		return moment(at), err
	})
}

// attemptDays is how long after its creation events of an order can have been sent.
const attemptDays = 31

func (p *Pages) pastAttempts(ctx context.Context, account delivery.AccountID, id delivery.OrderID, events []string) ([]ledger.AttemptRecord, error) {
	if len(events) == 0 {
		return nil, nil
	}
	from, _ := creationDays(id)
	args := []any{clickhouse.Named("account", account.String()), clickhouse.Named("from", dateText(from)),
		clickhouse.Named("to", dateText(from.AddDate(0, 0, attemptDays))), clickhouse.Named("events", events)}
	return query(ctx, p.archive, attemptsSQL, args, func(rows driver.Rows) (ledger.AttemptRecord, error) {
		a := ledger.AttemptRecord{OrderID: id.String()}
		var at int64
		var number, millis uint32
		var status uint16
		err := rows.Scan(&a.EventID, &at, &a.State, &number, &status, &a.Error, &millis, &a.Replay, &a.Probe)
		a.At, a.Attempt, a.HTTPStatus, a.Millis = moment(at), int(number), int(status), int64(millis)
		return a, err
	})
}
