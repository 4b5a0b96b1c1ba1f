package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// creationDays are the local days on which an order can have been created.
func creationDays(id delivery.OrderID) (from, to time.Time) {
	from = archive.BusinessDay(time.Unix(int64(id.Day())*24*60*60, 0))
	return from, from.AddDate(0, 0, 1)
}

func dateText(t time.Time) string { return t.In(delivery.Istanbul).Format(time.DateOnly) }

// each runs a query and hands over its rows.
func (p *Pages) each(ctx context.Context, query string, args []any, take func(driver.Rows) error) (err error) {
	// Whatever ends the reading early ends the query, too.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := p.archive.Select(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		if closing := rows.Close(); err == nil && closing != nil && !errors.Is(closing, context.Canceled) {
			err = closing
		}
	}()
	for rows.Next() {
		if err := take(rows); err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
	}
	return rows.Err()
}

// pastOrder is an order as ClickHouse has it.
type pastOrder struct {
	orderRow
	Version uint64
	Ordered time.Time // zero: not given
	Ready   time.Time
	Updated time.Time
}

// scanOrder reads a row of orderColumns. With errUnreadable it has what could be
// read of it, its place in a list at least.
func scanOrder(rows driver.Rows) (*pastOrder, error) {
	var o pastOrder
	var account, order, fleet, status, failure, cancel, payment string
	var created, ordered, ready, ended, updated, amount, collection int64
	err := rows.Scan(&account, &order, &o.Version, &o.External, &o.Store, &o.StoreName, &fleet, &o.FleetName,
		&status, &failure, &cancel, &created, &ordered, &ready, &ended, &updated, &payment, &amount, &collection)
	if err != nil {
		return nil, err
	}
	o.Failure, o.Cancel = delivery.FailureReason(failure), delivery.CancelReason(cancel)
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
		return &o, fmt.Errorf("order %s %w: %w", order, errUnreadable, err)
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

// errUnreadable marks a row that ClickHouse gave and this program does not
// understand, such as one of a newer release or one that no program of this
// service wrote.
var errUnreadable = errors.New("cannot be understood")

// pastPage are the orders of a page that could be read.
type pastPage struct {
	rows   []orderRow
	unread int     // rows that could not
	last   *cursor // the last row, read or not; nil when that was all there is
}

// pageOf reads at most limit rows of a search. One that cannot be understood is
// counted and logged, and hides no other.
func (p *Pages) pageOf(ctx context.Context, s *search, limit int) (page pastPage, err error) {
	fixed, latest, args := s.conditions(limit)
	var first error
	err = p.each(ctx, s.pageSQL(fixed, latest), args, func(rows driver.Rows) error {
		o, err := scanOrder(rows)
		switch {
		case errors.Is(err, errUnreadable):
			page.unread++
			first = cmp.Or(first, err)
		case err != nil:
			return err
		default:
			page.rows = append(page.rows, o.orderRow)
		}
		page.last = &cursor{created: o.Created, order: o.ID}
		return nil
	})
	if len(page.rows)+page.unread < limit {
		page.last = nil
	}
	if page.unread > 0 {
		p.log.Warn("rows of the history cannot be understood", "rows", page.unread, "first", first)
	}
	return page, err
}

// pastOrder reads one order; nil when ClickHouse does not have it, errUnreadable
// when its row cannot be understood.
func (p *Pages) pastOrder(ctx context.Context, id delivery.OrderID) (found *pastOrder, err error) {
	err = p.each(ctx, orderSQL, placeArgs(id), func(rows driver.Rows) error {
		o, err := scanOrder(rows)
		if err == nil {
			found = o
		}
		return err
	})
	return found, err
}

// pastSteps reads what an order went through.
func (p *Pages) pastSteps(ctx context.Context, account delivery.AccountID, id delivery.OrderID) (steps []step, err error) {
	args := append(placeArgs(id), clickhouse.Named("account", account.String()))
	err = p.each(ctx, eventsSQL, args, func(rows driver.Rows) error {
		var s step
		var status, failure, cancel string
		var at int64
		if err := rows.Scan(&s.Version, &status, &at, &failure, &cancel); err != nil {
			return err
		}
		var err error
		if s.Status, err = delivery.ParseStatus(status); err != nil {
			return err
		}
		s.At, s.Failure, s.Cancel = moment(at), delivery.FailureReason(failure), delivery.CancelReason(cancel)
		steps = append(steps, s)
		return nil
	})
	return steps, err
}

// lateDeliveries reads when couriers say to have delivered an order that had
// ended otherwise.
func (p *Pages) lateDeliveries(ctx context.Context, account delivery.AccountID, id delivery.OrderID) (late []time.Time, err error) {
	args := append(placeArgs(id), clickhouse.Named("account", account.String()))
	err = p.each(ctx, lateSQL, args, func(rows driver.Rows) error {
		var at int64
		if err := rows.Scan(&at); err != nil {
			return err
		}
		late = append(late, moment(at))
		return nil
	})
	return late, err
}

// attemptDays is how long after its creation an order's events can still have
// been sent: retries end after a day, and replays with the order's stay in Redis.
const attemptDays = 31

// pastAttempts reads what ClickHouse has of the webhooks of events.
func (p *Pages) pastAttempts(ctx context.Context, account delivery.AccountID, id delivery.OrderID, events []string) (attempts []ledger.AttemptRecord, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	from, _ := creationDays(id)
	args := []any{clickhouse.Named("account", account.String()), clickhouse.Named("from", dateText(from)),
		clickhouse.Named("to", dateText(from.AddDate(0, 0, attemptDays))), clickhouse.Named("events", events)}
	err = p.each(ctx, attemptsSQL, args, func(rows driver.Rows) error {
		a := ledger.AttemptRecord{OrderID: id.String()}
		var at int64
		var number, millis uint32
		var status uint16
		if err := rows.Scan(&a.EventID, &at, &a.State, &number, &status, &a.Error, &millis, &a.Replay, &a.Probe); err != nil {
			return err
		}
		a.At, a.Attempt, a.HTTPStatus, a.Millis = moment(at), int(number), int(status), int64(millis)
		attempts = append(attempts, a)
		return nil
	})
	return attempts, err
}
