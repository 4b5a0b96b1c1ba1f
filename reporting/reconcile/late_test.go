package reconcile

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
)

// failedAndDelivered returns an order that failed, and that a courier reported as delivered afterwards.
func (s *env) failedAndDelivered(created time.Time) *delivery.Order {
	s.T.Helper()
	o := s.Vendor.Order("", created)
	s.Move(o, delivery.Assigned, created.Add(time.Minute))
	s.Change(o.ID, delivery.Change{Status: delivery.Failed, At: created.Add(time.Hour), Failure: delivery.TimedOut})
	s.Reach(o, delivery.Delivered, created.Add(2*time.Hour))
	s.Decide()
	s.AwaitExported()

	return o
}

// wantOne fails the test unless exactly one difference was found, which is of an order and says something.
func (s *env) wantOne(found []string, o *delivery.Order, says string) {
	s.T.Helper()
	text := one(s.T, found, o.ID.String())
	if len(found) != 1 || !strings.Contains(text, says) {
		s.T.Errorf("found %q, want one that says %q", found, says)
	}
}

// addLate stores a late delivery that no courier has reported.
func (s *env) addLate(o *delivery.Order, at time.Time) {
	s.T.Helper()
	late := archive.LateDelivery{Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID, ReportedAt: at}
	testenv.Must(s.T, s.Archive.InsertAgain(s.T.Context(), &archive.Batch{Late: []archive.LateDelivery{late}}))
}

func TestReconcile_FindsAndRepairsMissingLateDeliveries(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.failedAndDelivered(s.today.Add(13 * time.Hour))
	s.requireEqual()
	s.spoil("ALTER TABLE late_deliveries DELETE WHERE true")

	found, _ := s.compare(Scope{})
	s.wantOne(found, o, "is not in ClickHouse")

	fixed, _ := s.compare(Scope{Fix: true})
	s.wantOne(fixed, o, "(fixed)")
	s.requireEqual()
	s.Want("late deliveries", "count(), any(order_id) FROM "+s.Database+".late_deliveries FINAL", "1\t"+o.ID.String())
}

// The order has left Redis, the courier's report has not.
func TestReconcile_FindsMissingLateDeliveriesOfRetiredOrders(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.failedAndDelivered(s.today.Add(13 * time.Hour))
	s.RetireAll(s.AwaitExported)
	s.requireEqual()
	s.spoil("ALTER TABLE late_deliveries DELETE WHERE true")

	found, _ := s.compare(Scope{})

	s.wantOne(found, o, "is not in ClickHouse")
}

func TestReconcile_FindsLateDeliveriesThatNobodyReported(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.failedAndDelivered(s.today.Add(13 * time.Hour))
	s.addLate(o, s.today.Add(16*time.Hour))

	for _, scope := range []Scope{{}, {Fix: true}} {
		found, _ := s.compare(scope)
		s.wantOne(found, o, "no courier has reported")
		if strings.Contains(strings.Join(found, "\n"), "fixed") {
			t.Errorf("%+v: it was removed: %q", scope, found)
		}
	}

	removed, _ := s.compare(Scope{Fix: true, RemoveUnknown: true})
	s.wantOne(removed, o, "(fixed)")
	s.requireEqual()
	s.Want("late deliveries", "count() FROM "+s.Database+".late_deliveries FINAL", "1")

	// More than anybody reports are not compared, and the day does not balance.
	s.spoil(`INSERT INTO TABLE late_deliveries (account_id, business_day, order_id, reported_at)
SELECT account_id, business_day, order_id, reported_at + toIntervalSecond(1 + number) FROM DB.late_deliveries CROSS JOIN numbers(100001) AS n`)
	_, totals := s.compare(Scope{From: s.today, To: s.today})
	if len(totals) != 1 || !strings.HasPrefix(totals[0], "its late deliveries were not compared: ") {
		t.Errorf("with 100,001 late deliveries: %q", totals)
	}
}

// Redis keeps the newest refused updates only. Where it has dropped some, a missing report proves nothing.
func TestReconcile_BelievesLateDeliveriesWhoseReportsMayBeDropped(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.failedAndDelivered(s.today.Add(13 * time.Hour))
	s.EachKey("f", "redis.call('DEL', k) for i = 1, 10000 do redis.call('XADD', k, '*', 'u', 'nonsense') end")

	s.requireEqual()

	s.addLate(o, time.Now().AddDate(0, 0, 2)) // later than what is kept
	found, _ := s.compare(Scope{})
	s.wantOne(found, o, "no courier has reported")
}

// What closing a month freezes is compared with the digest that is noted here.
func TestReconcile_NotesTheDigestOfWhatWasCompared(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.failedAndDelivered(s.today.Add(13 * time.Hour))
	s.compare(Scope{Account: s.Vendor.Account})
	noted, err := Comparisons(t.Context(), s.Ledger, s.today, s.today)
	testenv.Must(t, err)
	if noted[0].Clean != nil || noted[0].Open != nil {
		t.Errorf("a look at one account counts as one at the day: %+v", noted[0])
	}

	s.requireEqual()

	rows, err := s.Archive.DigestRows(t.Context(), s.today, s.today)
	testenv.Must(t, err)
	noted, err = Comparisons(t.Context(), s.Ledger, s.today, s.today.AddDate(0, 0, 1))
	testenv.Must(t, err)
	isDuringTheDay := archive.BusinessDay(time.Now()).Equal(s.today.AddDate(0, 0, 1)) // unless midnight came between
	if isDuringTheDay && noted[1].Clean != nil {
		t.Errorf("a look during the day counts as one at the whole day: %+v", noted[1].Clean)
	}
	if len(rows) != 1 || rows[0].Orders.Rows != 11 || rows[0].Late.Rows != 1 || noted[0].Clean == nil || noted[0].Clean.Digest != rows[0].Orders {
		t.Errorf("noted %+v, stored is %+v", noted[0].Clean, rows)
	}
}

// Somebody who can write to ClickHouse shows the right row while the day is compared, and another one before and
// after it.
func TestReconcile_NotesNoDigestOfWhatItHasNotSeen(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.Delivered(s.today.Add(13 * time.Hour))
	s.AwaitExported()
	s.stop()
	falsify := "ALTER TABLE orders UPDATE external_order_id = 'falsified' WHERE order_id = '" + o.ID.String() + "'"
	restore := strings.Replace(falsify, "falsified", o.ExternalOrderID, 1)
	s.spoil(falsify)
	p := s.NewProxy("")
	var once sync.Once
	p.Guard(func(statement string) bool {
		if isWalk(statement) {
			s.spoil(restore)
		}
		return true
	}, func(statement string) bool {
		if isWalk(statement) {
			once.Do(func() { s.spoil(falsify) })
		}
		return true
	})

	s.reconciler = New(s.Ledger, p.Archive)

	found, totals := s.compare(Scope{From: s.today, To: s.today})

	rows, err := s.Archive.DigestRows(t.Context(), s.today, s.today)
	testenv.Must(t, err)
	noted, err := Comparisons(t.Context(), s.Ledger, s.today, s.today)
	testenv.Must(t, err)
	if len(found)+len(totals) > 0 || noted[0].Clean == nil {
		t.Fatalf("the right row was not shown: %q %q, %+v", found, totals, noted[0])
	}
	if noted[0].Clean.Digest == rows[0].Orders {
		t.Errorf("what is stored counts as compared: %+v", noted[0].Clean)
	}

	s.Want("the falsified row", fmt.Sprintf("external_order_id FROM %s.orders FINAL WHERE order_id = '%s'", s.Database, o.ID), "falsified")
}
