//go:build long

package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// expected is an order as the test knows it: what was asked of it, never what it
// has read back but the versions, which nobody knows before.
type expected struct {
	id         delivery.OrderID
	account    delivery.AccountID
	external   string
	created    time.Time
	payment    delivery.PaymentType
	amount     delivery.Money
	collection delivery.Money
	steps      []step
	late       []time.Time
	reported   bool // a late delivery, since the last restore
	saved      int  // steps at the time of the backup; -1: there is none
	retired    bool
}

type step struct {
	status  delivery.Status
	at      time.Time
	failure delivery.FailureReason
	cancel  delivery.CancelReason
	version uint64
}

func (o *expected) status() delivery.Status {
	if len(o.steps) == 0 {
		return delivery.Searching
	}
	return o.steps[len(o.steps)-1].status
}

func (o *expected) version() uint64 {
	if n := len(o.steps); n > 0 {
		return o.steps[n-1].version
	}
	return delivery.FirstVersion(o.created)
}

const clockOfRows = "2006-01-02 15:04:05.000"

func shownTime(t time.Time) string {
	if t.IsZero() {
		return `\N`
	}
	return t.In(delivery.Istanbul).Format(clockOfRows)
}

func shownMoney(m delivery.Money) string {
	if !m.Set {
		return `\N`
	}
	return fmt.Sprintf("%d.%02d", m.Minor/100, m.Minor%100)
}

func line(cells ...any) string { return strings.TrimSuffix(fmt.Sprintln(cells...), "\n") }

// orderRow is the row of orders that there must be.
func (o *expected) orderRow() string {
	var picked, delivered, ended, updated time.Time
	var failure delivery.FailureReason
	var cancel delivery.CancelReason
	updated = o.created
	for _, s := range o.steps {
		updated = s.at
		switch s.status {
		case delivery.PickedUp:
			picked = s.at
		case delivery.Delivered:
			delivered, ended = s.at, s.at
		case delivery.Failed, delivery.Cancelled:
			ended, failure, cancel = s.at, s.failure, s.cancel
		}
	}

	expected := delivery.Money{Set: true}
	if o.status() == delivery.Delivered && o.payment != delivery.Prepaid && o.payment != delivery.PaymentUnknown {
		expected.Minor = o.collection.Minor
	}

	day := o.created.In(delivery.Istanbul).Format(time.DateOnly)

	return line(o.id, day, o.version(), o.external, o.status(), "f="+string(failure), "c="+string(cancel), shownTime(o.created),
		shownTime(picked), shownTime(delivered), shownTime(ended), shownTime(updated), "p="+o.payment.String(),
		shownMoney(o.amount), shownMoney(o.collection), shownMoney(expected))
}

const orderColumns = `order_id, business_day, version, external_order_id, status, concat('f=', failure_reason), concat('c=', cancel_reason), created_at,
	picked_up_at, delivered_at, ended_at, updated_at, concat('p=', payment_type), order_amount, collection_amount, expected_collection`

// eventRows are the rows of order_events that there must be.
func (o *expected) eventRows() []string {
	rows := []string{line(o.id, 1, delivery.FirstVersion(o.created), delivery.Searching, shownTime(o.created), "f=", "c=")}
	for i, s := range o.steps {
		rows = append(rows, line(o.id, i+2, s.version, s.status, shownTime(s.at), "f="+string(s.failure), "c="+string(s.cancel)))
	}
	return rows
}

const eventColumns = `order_id, sequence, version, status, at, concat('f=', failure_reason), concat('c=', cancel_reason)`

// moves makes up what happens next to an order.
func (o *expected) moves(target int, at time.Time) delivery.Update {
	u := delivery.Update{Order: o.id, Kind: delivery.KindStatus, At: at, Courier: testenv.Courier}
	switch {
	case target <= int(delivery.Delivered):
		u.Status = delivery.Status(target)
	default:
		u.Status, u.Failure = delivery.Failed, delivery.OtherFailure
	}
	return u
}

// lines cuts an answer into rows, sorted, with blanks for tabs.
func lines(answer string) []string {
	if answer == "" {
		return nil
	}
	rows := strings.Split(strings.TrimSuffix(strings.ReplaceAll(answer, "\t", " "), "\n"), "\n")
	slices.Sort(rows)
	return rows
}
