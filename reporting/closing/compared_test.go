package closing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/reconcile"
)

// uncompared says which days of a month do not count as compared with Redis.
func (e *env) uncompared(m Month) string {
	e.T.Helper()
	days, err := e.books.uncompared(e.T.Context(), m, nil)
	testenv.Must(e.T, err)
	return days.String()
}

func (e *env) reconcile(day time.Time) {
	e.T.Helper()
	scope := reconcile.Scope{From: day, To: day}
	testenv.Must(e.T, reconcile.New(e.Ledger, e.Archive).Run(e.T.Context(), scope, func(*reconcile.Day) {}))
}

// What was compared with Redis is what a hold finds: an amount that is changed afterwards, a difference
// that was found, and orders that had left Redis are no comparison.
func TestChecklist_WantsWhatWasCompared(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	yesterday := archive.BusinessDay(time.Now()).AddDate(0, 0, -1)
	m := MonthOf(yesterday)
	number := yesterday.Format("2")
	order := e.Delivered(yesterday.Add(12 * time.Hour))
	e.Consume(ledger.RoleExport)
	_, err := export.Rebuild(t.Context(), e.Ledger, e.Archive, yesterday, func(export.Rebuilt) {})
	testenv.Must(t, err)

	says := func(what, part string, holds bool) {
		t.Helper()
		detail := " " + strings.ReplaceAll(e.uncompared(m), ";", " ;") + " "
		_, listed, _ := strings.Cut(detail, part+":")
		listed, _, _ = strings.Cut(listed, ";")
		if strings.Contains(listed+" ", " "+number+" ") != holds {
			t.Errorf("%s: %q", what, detail)
		}
	}

	change := func(kurus int64) {
		t.Helper()
		row := archive.OrderOf(order, nil)
		row.Collection = delivery.Money{Minor: kurus, Set: true}
		testenv.Must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: []archive.Order{row}}))
	}

	says("before any comparison", "not compared", true)
	e.reconcile(yesterday)
	says("compared", "not compared", false)
	says("compared", "with differences", false)
	says("compared", "changed since", false)

	change(1)
	says("an amount was changed after the comparison", "changed since", true)
	e.reconcile(yesterday)
	says("the change was found", "with differences", true)

	e.RetireAll(func() { e.Consume(ledger.RoleExport) })
	e.reconcile(yesterday)
	says("the order has left Redis", "with differences", true)
}

// A courier may report a late delivery long after its day was compared with Redis: what counts is what both have when
// the month is held.
func TestChecklist_ComparesLateDeliveries(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.AddDate(0, 0, 10).Add(30*time.Minute), delivery.Failed, 900) // still the 10th in UTC
	e.store(o)
	at := o.EndedAt.Add(time.Hour)
	says := func(what string, holds bool) {
		t.Helper()
		detail := e.uncompared(october)
		isListed := strings.Contains(detail+";", "with differences: 11;")
		if isListed != holds || !holds && strings.Contains(detail, "with differences") {
			t.Errorf("%s: %q", what, detail)
		}
	}

	says("none", false)

	e.storeLate(&o, at)
	says("one that nobody has reported", true)

	e.refuseLate(&o, at)
	says("and that a courier has", false)

	e.refuseLate(&o, at.Add(time.Minute))
	says("a report that is not stored", true)

	e.storeLate(&o, at.Add(time.Minute))
	says("and that is", false)

	// So many that somebody has made them up are not compared, and no day counts.
	e.ClickHouse.Exec(t, fmt.Sprintf(`INSERT INTO %s.late_deliveries (account_id, business_day, order_id, reported_at)
SELECT '%s', '2025-10-11', '%s', toDateTime64('2025-10-12 00:00:00', 3, 'Etc/GMT-3') + number FROM numbers(100001)`, e.Database, o.Account, o.ID))
	if detail := e.uncompared(october); !strings.Contains(detail+" ", "with differences: 1 2 3 ") || !strings.Contains(detail, " 30 31") {
		t.Errorf("with 100,001 late deliveries: %q", detail)
	}
}
