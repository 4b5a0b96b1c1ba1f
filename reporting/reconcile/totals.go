package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// The figures of the control totals. Amounts, from amountDelivered on, are in kuruş.
const (
	orders = iota
	delivered
	failed
	cancelled
	amountDelivered
	cash
	card
	prepaid
	figureCount
)

var figureNames = [figureCount]string{"orders", "delivered", "failed", "cancelled",
	"order amount of what was delivered", "expected cash", "expected card", "prepaid"}

// sums are the figures of a day's orders.
type sums struct {
	open    int // orders that have not ended
	figures [figureCount]int64
}

func (s *sums) add(o sums) {
	s.open += o.open
	for i := range s.figures {
		s.figures[i] += o.figures[i]
	}
}

func (s *sums) addOrder(o *delivery.Order) {
	s.count(archive.Sums{Status: o.Status.String(), PaymentType: o.Payment.Type.String(),
		OrderAmount: o.OrderAmount, Collection: o.Payment.CollectionAmount})
}

// addStored adds an order that only ClickHouse still has.
func (s *sums) addStored(row *archive.Stored) error {
	of, err := row.Sums()
	if err == nil {
		s.count(of)
	}
	return err
}

func (s *sums) count(of archive.Sums) {
	s.figures[orders]++
	switch of.Status {
	case delivery.Delivered.String():
		s.figures[delivered]++
		s.figures[amountDelivered] += of.OrderAmount.Minor
		switch of.PaymentType {
		case delivery.Cash.String():
			s.figures[cash] += of.Collection.Minor
		case delivery.Card.String():
			s.figures[card] += of.Collection.Minor
		case delivery.Prepaid.String():
			s.figures[prepaid] += of.OrderAmount.Minor
		}
	case delivery.Failed.String():
		s.figures[failed]++
	case delivery.Cancelled.String():
		s.figures[cancelled]++
	default:
		s.open++
	}
}

// controlTotals are the lines of the view, with -1 for a figure that it lacks.
const controlTotals = `SELECT line, toBool(ifNull(ties, 1) = 1), arrayMap(x -> toInt64(ifNull(x, -1)), [
	toInt64(orders), toInt64(delivered), toInt64(failed), toInt64(cancelled),
	toInt64(order_amount_delivered * 100), toInt64(cash_expected * 100), toInt64(card_expected * 100), toInt64(prepaid_amount * 100)])
FROM control_totals(from='%[1]s', to='%[1]s', account='%[2]s', fleet='', store='') ORDER BY line_number`

// compareTotals compares the sums of the day with the control totals, and checks that these
// balance, once all of the day's orders have ended.
func (r *Reconciler) compareTotals(ctx context.Context, s *Scope, d *Day, expected *sums) error {
	if expected.open > 0 || d.Moving > 0 || !d.Balanced() {
		return nil
	}
	account := ""
	if !s.Account.IsZero() {
		account = s.Account.String()
	}
	return r.archive.Each(ctx, fmt.Sprintf(controlTotals, d.Day.Format(time.DateOnly), account), func(rows driver.Rows) error {
		var name string
		var balanced bool
		var figures []int64
		if err := rows.Scan(&name, &balanced, &figures); err != nil {
			return err
		}
		if !balanced {
			d.Totals = append(d.Totals, name+" does not balance with the orders that ended on the day")
		}
		if name != "order-ledger" {
			return nil
		}
		for i, want := range expected.figures {
			if figures[i] != want {
				d.Totals = append(d.Totals, fmt.Sprintf("order-ledger: %s is %s, should be %s", figureNames[i], figureText(i, figures[i]), figureText(i, want)))
			}
		}
		return nil
	})
}

func figureText(figure int, n int64) string {
	switch {
	case n < 0:
		return "not there"
	case figure >= amountDelivered:
		return fmt.Sprintf("%d.%02d", n/100, n%100)
	}
	return fmt.Sprint(n)
}
