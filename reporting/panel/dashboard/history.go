package dashboard

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/layout"
)

//go:embed sql/*.sql
var queries embed.FS

func query[T any](ctx context.Context, a *archive.Archive, args map[string]any, scan func(driver.Rows) (T, error), files ...string) (all []T, err error) {
	sql := ""
	for _, name := range files {
		text, err := queries.ReadFile("sql/" + name + ".sql")
		if err != nil {
			return nil, err
		}
		sql += string(text)
	}
	var named []any
	for name, value := range args {
		named = append(named, clickhouse.Named(name, value))
	}
	err = a.Each(ctx, sql, func(rows driver.Rows) error {
		row, err := scan(rows)
		if err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		all = append(all, row)
		return nil
	}, named...)
	return all, err
}

// creationDays are the local days of the creation: that of the id, which is in UTC, or the next.
func creationDays(id delivery.OrderID) (from, to time.Time) {
	from = archive.BusinessDay(time.Unix(int64(id.Day())*24*60*60, 0))
	return from, from.AddDate(0, 0, 1)
}

func orderArgs(account delivery.AccountID, id delivery.OrderID) map[string]any {
	from, to := creationDays(id)
	return map[string]any{"account": account.String(), "from": layout.ISODay(from), "to": layout.ISODay(to), "order": id.String()}
}

// pastOrder is what ClickHouse has of an order, with its last change only.
type pastOrder struct {
	orderRow
	// unreadable is why the row cannot be understood: it may be of a newer release.
	unreadable error
}

var errUnreadable = errors.New("cannot be understood")

func scanOrder(rows driver.Rows) (*pastOrder, error) {
	order := new(delivery.Order)
	o := &pastOrder{orderRow: orderRow{Order: order}}
	var last delivery.Change
	var account, id, fleet uuid.UUID
	var status, payment string
	var ordered *time.Time
	var amount, collection *int64
	err := rows.Scan(&account, &id, &order.Version, &order.ExternalOrderID, &order.ExternalStoreID, &o.StoreName, &fleet, &order.Fleet.Name,
		&status, (*string)(&last.Failure), (*string)(&last.Cancel), &order.CreatedAt, &ordered, &order.ReadyAt, &last.At, &payment, &amount, &collection)
	if err != nil {
		return nil, err
	}
	if ordered != nil {
		order.OrderedAt = *ordered
	}
	order.OrderAmount, order.Payment.CollectionAmount = lira(amount), lira(collection)
	order.ID, order.Account, order.Fleet.ID = delivery.OrderID(id), delivery.AccountID(account), delivery.FleetID(fleet)
	var faults [3]error
	_, faults[0] = delivery.ParseOrderID(id.String())
	order.Status, faults[1] = delivery.ParseStatus(status)
	if payment != "" {
		order.Payment.Type, faults[2] = delivery.ParsePaymentType(payment)
	}
	if err := errors.Join(faults[:]...); err != nil {
		o.unreadable = fmt.Errorf("order %s %w: %w", id, errUnreadable, err)
	}
	last.Version, last.Status = order.Version, order.Status
	order.Changes = []delivery.Change{last}
	return o, nil
}

func lira(kurus *int64) delivery.Money {
	if kurus == nil {
		return delivery.Money{}
	}
	return delivery.Money{Minor: *kurus, Set: true}
}

type pastPage struct {
	rows   []orderRow
	unread int     // rows that could not
	last   *cursor // the last row, read or not; nil when there are no more
}

// pageOf reads at most limit rows. Those that cannot be understood are counted and logged.
func (p *Pages) pageOf(ctx context.Context, s *search, limit int) (page pastPage, err error) {
	after := s.after
	if after == nil {
		after = &cursor{created: s.until}
	}
	orders, err := query(ctx, p.archive, map[string]any{
		"from": layout.ISODay(s.since), "to": layout.ISODay(after.created), "since": s.since.UnixMilli(),
		"account": s.query.Get("account"), "after": after.created.UnixMilli(), "after_order": after.order.String(),
		"text": s.text, "folded": delivery.FoldName(s.text), "prefix": s.prefix(), "status": s.query.Get("status"), "limit": limit,
	}, scanOrder, "columns", "orders")
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
		page.last = cursorOf(orders[n-1].Order)
	}
	if page.unread > 0 {
		p.Log.Warn("rows of the history cannot be understood", "rows", page.unread, "first", first)
	}
	return page, err
}

// pastOrder is nil when ClickHouse does not have it; errUnreadable as in pastOrder.
func (p *Pages) pastOrder(ctx context.Context, id delivery.OrderID) (*pastOrder, error) {
	found, err := query(ctx, p.archive, orderArgs(delivery.AccountID{}, id), scanOrder, "columns", "order")
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], found[0].unreadable
}

func (p *Pages) pastChanges(ctx context.Context, o *delivery.Order) ([]delivery.Change, error) {
	return query(ctx, p.archive, orderArgs(o.Account, o.ID), func(rows driver.Rows) (c delivery.Change, err error) {
		var status string
		if err := rows.Scan(&c.Version, &status, &c.At, (*string)(&c.Failure), (*string)(&c.Cancel)); err != nil {
			return c, err
		}
		c.Status, err = delivery.ParseStatus(status)
		return c, err
	}, "events")
}

// attemptDays is how long after its creation events of an order can have been sent.
const attemptDays = 31

func (p *Pages) pastAttempts(ctx context.Context, o *delivery.Order, steps []delivery.Change) ([]ledger.AttemptRecord, error) {
	var events []string
	for _, s := range steps {
		if delivery.Sequence(s.Version) > 1 { // the creation sends no webhook
			events = append(events, delivery.EventID(o.ID, s.Version))
		}
	}
	if len(events) == 0 {
		return nil, nil
	}
	from, _ := creationDays(o.ID)
	args := map[string]any{"account": o.Account.String(), "from": layout.ISODay(from), "to": layout.ISODay(from.AddDate(0, 0, attemptDays)), "events": events}
	return query(ctx, p.archive, args, func(rows driver.Rows) (ledger.AttemptRecord, error) {
		a := ledger.AttemptRecord{OrderID: o.ID.String()}
		var number, millis uint32
		var status uint16
		err := rows.Scan(&a.EventID, &a.At, &a.State, &number, &status, &a.Error, &millis, &a.Replay, &a.Probe)
		a.Attempt, a.HTTPStatus, a.Millis = int(number), int(status), int64(millis)
		return a, err
	}, "attempts")
}
