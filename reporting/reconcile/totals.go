package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// sums are what the control totals say of a day's orders, calculated here, in
// whole kuruş.
type sums struct {
	open                                           int
	orders, delivered, failed, cancelled           int64
	orderAmountDelivered, cash, card, prepaidMinor int64
}

func (s *sums) add(o sums) {
	s.open += o.open
	s.orders += o.orders
	s.delivered += o.delivered
	s.failed += o.failed
	s.cancelled += o.cancelled
	s.orderAmountDelivered += o.orderAmountDelivered
	s.cash += o.cash
	s.card += o.card
	s.prepaidMinor += o.prepaidMinor
}

func (s *sums) addOrder(o *delivery.Order) {
	s.count(o.Status.String(), o.Payment.Type.String(), o.OrderAmount.Minor, o.Payment.CollectionAmount.Minor)
}

// addStored adds an order that only ClickHouse still has.
func (s *sums) addStored(row *archive.Stored) error {
	of, err := row.Sums()
	if err != nil {
		return err
	}
	s.count(of.Status, of.PaymentType, of.OrderAmount.Minor, of.Collection.Minor)
	return nil
}

func (s *sums) count(status, payment string, amount, collection int64) {
	s.orders++
	switch status {
	case delivery.Delivered.String():
		s.delivered++
		s.orderAmountDelivered += amount
		switch payment {
		case delivery.Cash.String():
			s.cash += collection
		case delivery.Card.String():
			s.card += collection
		case delivery.Prepaid.String():
			s.prepaidMinor += amount
		}
	case delivery.Failed.String():
		s.failed++
	case delivery.Cancelled.String():
		s.cancelled++
	default:
		s.open++
	}
}

// totalLine is a line of the control totals. What it has no figure for is nil.
type totalLine struct {
	name                                      string
	orders, delivered, failed, cancelled      *int64
	orderAmountDelivered, cash, card, prepaid *decimal.Decimal
	ties                                      uint8 // 0: it does not
}

// compareTotals compares the sums of the day with the control totals, and asks
// whether these tie. A day with open orders still changes while it is read, so
// that is left for when they have ended.
func (r *Reconciler) compareTotals(ctx context.Context, s *Scope, d *Day, expected *sums) error {
	if expected.open > 0 || d.Moving > 0 || !d.Tied() {
		return nil
	}
	lines, err := r.controlTotals(ctx, d.Day, s.Account)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if line.ties == 0 {
			d.Totals = append(d.Totals, line.name+" does not balance with the orders that ended on the day")
		}
		if line.name == "order-ledger" {
			d.Totals = append(d.Totals, expected.disagree(&line)...)
		}
	}
	return nil
}

// disagree says in which figures the order ledger is not what was calculated.
func (s *sums) disagree(line *totalLine) (found []string) {
	for _, c := range []struct {
		name string
		want int64
		have *int64
	}{
		{"orders", s.orders, line.orders}, {"delivered", s.delivered, line.delivered},
		{"failed", s.failed, line.failed}, {"cancelled", s.cancelled, line.cancelled},
	} {
		if c.have == nil || *c.have != c.want {
			found = append(found, fmt.Sprintf("order-ledger: %s is %s, should be %d", c.name, shown(c.have), c.want))
		}
	}
	for _, c := range []struct {
		name string
		want int64
		have *decimal.Decimal
	}{
		{"order amount of what was delivered", s.orderAmountDelivered, line.orderAmountDelivered},
		{"expected cash", s.cash, line.cash}, {"expected card", s.card, line.card}, {"prepaid", s.prepaidMinor, line.prepaid},
	} {
		if want := decimal.New(c.want, -2); c.have == nil || !c.have.Equal(want) {
			found = append(found, fmt.Sprintf("order-ledger: %s is %s, should be %s", c.name, shown(c.have), want.StringFixed(2)))
		}
	}
	return found
}

func shown[T any](v *T) string {
	if v == nil {
		return "not there"
	}
	return fmt.Sprint(*v)
}

// controlTotals reads the view of that name.
func (r *Reconciler) controlTotals(ctx context.Context, day time.Time, account delivery.AccountID) ([]totalLine, error) {
	only := ""
	if !account.IsZero() {
		only = account.String()
	}
	date := day.Format(time.DateOnly)
	rows, err := r.archive.Select(ctx, fmt.Sprintf(`SELECT line, orders, delivered, failed, cancelled,
		order_amount_delivered, cash_expected, card_expected, prepaid_amount, toUInt8(ifNull(ties, 1) = 1)
		FROM control_totals(from='%s', to='%s', account='%s', fleet='', store='') ORDER BY line_number`, date, date, only))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // what went wrong is known by then
	var lines []totalLine
	for rows.Next() {
		var l totalLine
		err := rows.Scan(&l.name, &l.orders, &l.delivered, &l.failed, &l.cancelled,
			&l.orderAmountDelivered, &l.cash, &l.card, &l.prepaid, &l.ties)
		if err != nil {
			return nil, fmt.Errorf("control totals: %w", err)
		}
		lines = append(lines, l)
	}
	return lines, rows.Err()
}
