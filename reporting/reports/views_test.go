package reports

import (
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// People who write SQL have no settings, and may be in another database: the
// views must be right by themselves.
//
//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
func TestViews_AnswerPeopleWhoWriteSQL(t *testing.T) {
	t.Parallel()

	s := samples(150).Example(8)
	e := testserver.SharedClickHouse(t)
	a, database := newArchive(t, e)
	for range 2 { // every row lies there twice until ClickHouse merges them
		noError(t, a.InsertAgain(t.Context(), &archive.Batch{Orders: s.orders, Late: s.late}))
	}

	q := allDays
	for _, r := range All() {
		call := fmt.Sprintf("FROM %s.%s(from='2026-10-01', to='2028-12-31', account='', fleet='', store='')", database, r.View())
		got := strings.TrimSpace(e.Exec(t, "SELECT count() "+call))
		want := map[*Report]int{
			ledger: len(s.ledger(q)), collections: len(s.collections(q)), statement: len(s.statement(q)),
			exceptions: len(s.exceptions(q)), control: len(s.control(q)),
		}[r]
		if got != fmt.Sprint(want) {
			t.Errorf("%s has %s rows, wanted %d", r.View(), got, want)
		}
		if comment := e.Exec(t, fmt.Sprintf("SELECT comment FROM system.tables WHERE database = '%s' AND name = '%s'", database, r.View())); !strings.Contains(comment, "SELECT * FROM "+r.View()+"(from=") {
			t.Errorf("%s says of itself: %q", r.View(), comment)
		}
	}

	for _, r := range All() {
		for _, view := range r.FinanceViews() {
			e.Exec(t, fmt.Sprintf("SELECT count() FROM %s.%s WHERE day BETWEEN '2026-10-01' AND '2028-12-31'", archive.FinanceDatabase(database), view))
		}
		if hasViews := len(r.FinanceViews()) > 0; hasViews == (r == control) {
			t.Errorf("%s has the views %v", r.Name, r.FinanceViews())
		}
	}

	ties := e.Exec(t, fmt.Sprintf("SELECT countIf(ties), countIf(NOT ties) FROM %s.control_totals(from='2026-10-01', to='2028-12-31', account='', fleet='', store='')", database))
	if ties != "2\t0\n" {
		t.Errorf("ties: %q", ties)
	}
}

// The way to one account's month goes through the primary key.
func TestViews_ReadOnlyTheAccountsRows(t *testing.T) {
	t.Parallel()

	readShared(t)
	e, database := testserver.SharedClickHouse(t), shared.database
	account := strings.TrimSpace(e.Exec(t, "SELECT account_id FROM "+database+".orders LIMIT 1"))
	for _, r := range []*Report{ledger, collections, statement, exceptions} {
		explain := e.Exec(t, fmt.Sprintf("EXPLAIN indexes = 1, json = 1 SELECT * FROM %s.%s(from='2026-11-01', to='2026-11-30', account='%s', fleet='', store='') FORMAT TSVRaw", database, r.View(), account))
		if !strings.Contains(explain, `"PrimaryKey"`) {
			t.Fatalf("%s: no primary key in\n%s", r.Name, explain)
		}
		initial, selected := granules(t, explain)
		if selected*10 > initial {
			t.Errorf("%s reads %d of %d granules", r.Name, selected, initial)
		}
	}
}

// granules are those before the first primary key and after it.
func granules(t *testing.T, explain string) (initial, selected int) {
	t.Helper()
	_, index, _ := strings.Cut(explain, `"Type": "PrimaryKey"`)
	for name, target := range map[string]*int{`"Initial Granules": `: &initial, `"Selected Granules": `: &selected} {
		_, text, _ := strings.Cut(index, name)
		if _, err := fmt.Sscan(strings.TrimRight(strings.Fields(text)[0], ","), target); err != nil {
			t.Fatalf("%v in\n%s", err, explain)
		}
	}
	return initial, selected
}

// Files are read by place, too.
//
//rule:finance/columns-are-only-ever-added
func TestReports_KeepTheColumnsThatWereReleased(t *testing.T) {
	t.Parallel()

	for r, released := range map[*Report]string{
		ledger: "orderId externalOrderId externalStoreId storeName taxNumber fleetId fleetName status failureReason createdAt orderedAt pickedUpAt deliveredAt endedAt" +
			" paymentType orderAmount collectionAmount expectedCollection currency cancelReason courierName correctionOf bookedOn booking accountId",
		collections: "day accountId fleetId fleetName externalStoreId storeName deliveredCount cashCount cashExpected cardCount cardExpected prepaidCount prepaidAmount" +
			" cashWithoutAmountCount noPaymentTypeCount noPaymentTypeAmount",
		statement: "month accountId fleetId fleetName externalStoreId storeName created delivered failed cancelled orderAmountDelivered cashExpected cardExpected" +
			" prepaidCount prepaidAmount noPaymentTypeCount noPaymentTypeAmount",
		exceptions: "kind reason accountId orderId externalOrderId externalStoreId storeName fleetId fleetName status failureReason createdAt endedAt reportedAt" +
			" paymentType orderAmount collectionAmount cancelReason courierName",
		control: "line rows created orders delivered failed cancelled orderAmountDelivered cashExpected cardExpected prepaidAmount ties sha256 noPaymentTypeAmount",
	} {
		if keys := strings.Join(keysOf(r), " "); !strings.HasPrefix(keys+" ", released+" ") {
			t.Errorf("%s has the columns %s", r.Name, keys)
		}
	}
}
