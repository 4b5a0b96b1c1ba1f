package closing

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// correct books what is named, and wants so many corrections booked and so many left.
func (e *env) correct(booked, left int, named ...delivery.OrderID) {
	e.T.Helper()
	done, rest, err := correct(e.T.Context(), e.books, "ece", "", named...)
	testenv.Must(e.T, err)
	if len(done) != booked || len(rest) != left {
		e.T.Fatalf("booked %+v, left %+v, want %d and %d", done, rest, booked, left)
	}
}

// An order that was not there when its month was closed, and has not ended, is carried over like any other.
func TestCorrect_AnOrderThatHasNotEndedBalances(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	at := october.Add(12 * time.Hour)
	e.store(e.order(at, delivery.Delivered, 100))
	e.close(october)
	o := e.order(at, delivery.Assigned, 250)
	balances := func(when string, p reports.Params) {
		t.Helper()
		balanced, _, err := reports.Balance(t.Context(), e.Archive, p)
		testenv.Must(t, err)
		if !balanced {
			t.Errorf("%s, the control totals of %s to %s do not balance", when, p.From, p.To)
		}
	}

	e.store(o)
	e.correct(1, 0, o.ID)
	november := params(october.Next())
	balances("booked as assigned", november)
	o.Version++
	o.Status, o.EndedAt, o.DeliveredAt = delivery.Delivered, at.Add(time.Hour), at.Add(time.Hour)
	e.store(o)
	e.correct(1, 0, o.ID)
	balances("booked as delivered", november)
	both := november
	both.From = params(october).From
	balances("both months", both)
}

// Beside a row that was falsified or removed nobody can book the order: the correction would take back what
// was never booked, and the books would stay wrong once the row is brought back.
func TestBook_RefusesBesideRowsThatWereChanged(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.close(october)
	o.Collection.Minor++
	e.store(o)

	// What changes between the look and the booking is looked at again first.
	l := e.log()
	c := newCorrector(e.books)
	c.isNamed = true
	found, err := c.find(t.Context(), l, archive.MonthPart(october.Time, time.Time{}))
	testenv.Must(t, err)
	o.Collection.Minor++
	e.store(o)
	err = c.bookFound(t.Context(), l, found)
	if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "has changed while it was corrected") {
		t.Errorf("an order that changed meanwhile: %v", err)
	}

	e.Want("rows that stay of it", "count() FROM "+e.Database+".closed_orders", "1")

	e.correct(1, 0, o.ID)
	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_orders DELETE WHERE sign = -1 SETTINGS mutations_sync = 2")
	e.correct(0, 1, o.ID)
}

// A store's name in booked reports is that of the latest entry of its youngest order, in whatever order rows are read.
func TestBooked_NamesAreThoseOfTheLatestEntry(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	at := october.Add(12 * time.Hour)
	older, o := e.order(at.Add(-time.Hour), delivery.Delivered, 100), e.order(at, delivery.Delivered, 200)
	older.StoreName = "Eski Moda"
	e.store(older, o)
	e.close(october)
	for _, name := range []string{"Zeytin", "Ayva"} {
		o.Collection.Minor++
		o.StoreName = name
		e.store(o)
		e.correct(1, 0, o.ID)
	}

	november, day := october.Next(), dayText(e.clock)
	wantContains(t, "November's statement", e.csv("fleet-statement", november, reports.Booked, ""), ",moda,Ayva,0,0,")
	wantContains(t, "November's collections", e.csv("expected-collections", november, reports.Booked, ""), ",moda,Ayva,0,0,0.02,")
	wantContains(t, "October's statement as it is known", e.csv("fleet-statement", october, reports.Known, day), ",moda,Ayva,2,2,")
	wantContains(t, "October's statement", e.csv("fleet-statement", october, reports.Booked, ""), ",moda,Moda,2,2,")
}

// Late deliveries of an order that is booked by itself are booked once each, by their times.
func TestCorrect_BooksEachLateDeliveryOnce(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Failed, 9900)
	e.store(o)
	late := func(after time.Duration) {
		e.reportLate(&o, o.EndedAt.Add(after))
	}
	late(time.Hour)
	e.close(october)
	e.correct(0, 0)
	late(time.Hour) // exported again
	e.correct(0, 0)
	late(time.Hour + time.Millisecond)
	late(2 * time.Hour)
	v := &Verified{}
	testenv.Must(t, e.books.pending(t.Context(), e.log(), v, func(string) {}))
	want := "order " + o.ID.String() + " of 2025-10-01: a late delivery"
	if !slices.Equal(v.Pending, []string{want, want}) {
		t.Errorf("`month verify` names %q, want twice %s", v.Pending, want)
	}

	e.correct(2, 0)
	e.correct(0, 0)
	if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 {
		t.Errorf("%+v", v)
	}
}

// In a month of which rows were changed nothing explains itself: what differs can be the falsified row.
func TestCorrect_NothingExplainsItselfWhereRowsWereChanged(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	falsified, failed := e.order(october.Add(12*time.Hour), delivery.Delivered, 100), e.order(october.Add(12*time.Hour), delivery.Failed, 9900)
	late := func(o archive.Order) {
		e.reportLate(&o, o.EndedAt.Add(time.Hour))
	}
	e.store(falsified, failed)
	e.close(october)
	other := e.order(october.Next().Add(12*time.Hour), delivery.Failed, 500)
	e.store(other)
	e.close(october.Next())
	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_orders UPDATE collection_amount = 2 WHERE order_id = '"+falsified.ID.String()+"' SETTINGS mutations_sync = 2")
	late(failed)
	e.correct(0, 2)
	late(other) // of another month
	e.correct(1, 2)
}

// An entry that is stored much later than it was decided is as old as the decision: answers as of a day
// stay what they were.
func TestBooks_AnEntryIsAsOldAsItWas(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 100))
	e.close(october)
	asked := dayText(e.clock)
	before := e.csv("order-ledger", october, reports.Known, asked)

	e.clock = e.clock.Add(48 * time.Hour)
	e.ClickHouse.Exec(t, "DELETE FROM "+e.Database+".journal WHERE sequence = 2 SETTINGS lightweight_deletes_sync = 2")
	_, err := e.books.Read(t.Context())
	testenv.Must(t, err)

	if now := e.csv("order-ledger", october, reports.Known, asked); now != before {
		t.Errorf("as of %s it was\n%s\nand is\n%s", asked, before, now)
	}
}

// An order of which somebody writes a row under another account is not the one that Redis confirms.
func TestCorrect_ARowUnderAnotherAccountIsNotConfirmed(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	at := october.AddDate(0, 0, 30)
	held := e.Vendor.Order("", at)
	e.Move(held, delivery.Delivered, at.Add(time.Hour))
	row := archive.OrderOf(e.Read(held.ID), nil)
	testenv.Must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: []archive.Order{row}, Events: archive.EventsOf(e.Read(held.ID))}))
	e.close(october)

	for _, first := range []byte{0x00, 0xff} { // sorted before it, and behind it
		forged := row
		forged.Account[0] = first
		e.store(forged)
	}

	e.correct(0, 2)
}

// A reversal that is not what was booked stays a difference, though the order's last entry is right.
func TestDiffering_FindsAReversalOfSomethingElse(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.close(october)
	o.Collection.Minor++
	e.store(o)
	e.correct(1, 0, o.ID)

	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_orders UPDATE collection_amount = 9 WHERE sign = -1 SETTINGS mutations_sync = 2")

	found, err := e.Archive.Differing(t.Context(), e.log().batches(), archive.MonthPart(october.Time, time.Time{}), 10)
	testenv.Must(t, err)
	if len(found) != 1 {
		t.Errorf("%+v", found)
	}
}

// An amount that no calculation can hold is found like any other, and stops nothing.
func TestVerify_GoesOnBesideAnImpossibleAmount(t *testing.T) {
	t.Parallel()

	e, october := newEnvWithReports(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.close(october)
	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_orders UPDATE collection_amount = 9999999999999999.99, order_amount = -9999999999999999.99 WHERE true SETTINGS mutations_sync = 2")

	v := e.verify()
	verified, findings := e.verifyInTurn()

	if len(v.Findings) == 0 || len(v.Pending) != 1 || len(findings) == 0 || verified != october {
		t.Errorf("%+v\nin turn: %s %v", v, verified, findings)
	}
}

// A person who has to decide sees which amount differs, and that there is a difference where no amount does.
func TestVerify_SaysWhatAnOrderWasAndIs(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 10050)
	e.store(o)
	e.close(october)
	falsify := func(assignment string) {
		e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_orders UPDATE "+assignment+" WHERE true SETTINGS mutations_sync = 2")
	}
	says := func(want string) {
		t.Helper()
		v := e.verify()
		if len(v.Pending) != 1 || !strings.Contains(v.Pending[0], want) {
			t.Errorf("%q, want %s", v.Pending, want)
		}
	}

	falsify("order_amount = 200.5")
	says("booked as (Delivered, Cash, amount 200.50, to collect 100.50), now (Delivered, Cash, amount 100.50, to collect 100.50)")

	falsify("order_amount = NULL, payment_type = ''")
	says("booked as (Delivered, no payment type, amount none, to collect 100.50), now (Delivered, Cash,")

	falsify("order_amount = 100.5, payment_type = 'Cash', external_order_id = 'X'")
	says("booked as (Delivered, Cash, amount 100.50, to collect 100.50), now with other details")
}
