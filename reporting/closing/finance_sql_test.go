package closing

import (
	"encoding/csv"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// countAndSum returns the number of rows of a report that was written as plain CSV, and the sum of a column.
func countAndSum(t *testing.T, text, column string) string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	testenv.Must(t, err)
	at := slices.Index(rows[0], column)
	sum := new(big.Rat)
	for _, row := range rows[1:] {
		cell, ok := new(big.Rat).SetString(row[at])
		if !ok {
			t.Fatalf("%s is %q", column, row[at])
		}
		sum.Add(sum, cell)
	}

	return fmt.Sprintf("%d\t%s", len(rows)-1, sum.FloatString(2))
}

// What finance sums with SQL over its views is what the reports say: of a closed month, of an open one
// with corrections, and of both.
func TestFinanceViews_SumsEqualTheReports(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	november := october.Next()
	at := october.Add(12 * time.Hour)
	corrected, failed := e.order(at, delivery.Delivered, 10000), e.order(at, delivery.Failed, 700)
	e.store(corrected, failed, e.order(at, delivery.Delivered, 2500),
		e.order(november.Add(-10*time.Minute), delivery.Delivered, 5000), // it ends in November
		e.order(november.Add(time.Hour), delivery.Delivered, 300))
	e.close(october)
	corrected.Version++
	corrected.Collection.Minor += 50
	e.store(corrected)
	e.reportLate(&failed, failed.EndedAt.Add(time.Hour))
	e.correct(2, 0, corrected.ID)

	finance := archive.FinanceDatabase(e.Database)
	for _, m := range []Month{october, november} {
		period := fmt.Sprintf("day BETWEEN '%s' AND '%s'", m.Format(time.DateOnly), m.Next().AddDate(0, 0, -1).Format(time.DateOnly))
		for _, c := range []struct{ report, column, query string }{
			{"order-ledger", "expectedCollection", "SELECT count(), toDecimalString(sum(expected_collection), 2) FROM %s.booked_orders WHERE %s"},
			{"order-ledger", "orderAmount", "SELECT count(), toDecimalString(sum(order_amount), 2) FROM %s.booked_orders WHERE %s"},
			{"expected-collections", "cashExpected", `SELECT count(), toDecimalString(sum(cash), 2) FROM (
				SELECT sum(cash_expected) AS cash FROM %s.booked_days WHERE %s GROUP BY day, account_id, fleet_id, external_store_id, correction_of
				HAVING sum(delivered) != 0 OR cash != 0)`},
			{"fleet-statement", "created", `SELECT count(), toDecimalString(sum(created), 2) FROM (
				SELECT sum(created) AS created FROM %s.booked_days WHERE %s GROUP BY account_id, fleet_id, external_store_id, correction_of)`},
			{"exceptions", "collectionAmount", "SELECT count(), toDecimalString(sum(collection_amount), 2) FROM %s.booked_exceptions WHERE %s"},
		} {
			want := countAndSum(t, e.csv(c.report, m, reports.Booked, ""), c.column)
			got := strings.TrimSpace(e.ClickHouse.Exec(t, fmt.Sprintf(c.query, finance, period)))
			if got != want {
				t.Errorf("%s of %s, %s: SQL says %q, the report %q", c.report, m, c.column, got, want)
			}
		}

		sealed := strings.TrimSpace(e.ClickHouse.Exec(t, fmt.Sprintf("SELECT count(), countIf(sealed) FROM %s.booked_orders WHERE %s", finance, period)))
		want := map[Month]string{october: "4\t4", november: "3\t2"}[m]
		if sealed != want {
			t.Errorf("%s has %q rows and sealed ones, want %q", m, sealed, want)
		}

		days := strings.TrimSpace(e.ClickHouse.Exec(t, fmt.Sprintf("SELECT toUInt8(min(sealed)), toUInt8(max(sealed)) FROM %s.booked_days WHERE %s", finance, period)))
		want = map[Month]string{october: "1\t1", november: "0\t1"}[m]
		if days != want {
			t.Errorf("of the days of %s the least and the most sealed are %q, want %q", m, days, want)
		}
	}

	// What is known now stands in the live views, where the month that is closed has changed.
	live := strings.TrimSpace(e.ClickHouse.Exec(t, "SELECT count(), toDecimalString(sum(expected_collection), 2) FROM "+finance+".live_orders"))
	if live != "5\t178.50" {
		t.Errorf("live: %q", live)
	}

	// As in REPORTS.md: everything that became known of October is booked.
	unbooked := strings.TrimSpace(e.ClickHouse.Exec(t, fmt.Sprintf(`SELECT
		(SELECT sum(expected_collection) FROM %[1]s.live_orders WHERE day BETWEEN '2025-10-01' AND '2025-10-31')
		- (SELECT sum(expected_collection) FROM %[1]s.booked_orders WHERE day BETWEEN '2025-10-01' AND '2025-10-31' AND correction_of IS NULL)
		- (SELECT sum(expected_collection) FROM %[1]s.booked_orders WHERE correction_of = '2025-10-01')`, finance)))
	if unbooked != "0" {
		t.Errorf("not booked: %s", unbooked)
	}

	late := strings.TrimSpace(e.ClickHouse.Exec(t, "SELECT day, order_id FROM "+finance+".live_exceptions WHERE kind = 'LateDelivery'"))
	if late != "2025-10-01\t"+failed.ID.String() {
		t.Errorf("late deliveries: %q", late)
	}

	// One that is stored twice is one to whoever reads without FINAL.
	e.ClickHouse.Exec(t, "SYSTEM STOP MERGES "+e.Database+".late_deliveries")
	t.Cleanup(func() { e.ClickHouse.Exec(t, "SYSTEM START MERGES "+e.Database+".late_deliveries") })
	open := e.order(november.Add(time.Hour), delivery.Failed, 900)
	e.store(open)
	for range 2 {
		e.storeLate(&open, open.EndedAt.Add(time.Hour))
	}

	for _, view := range []string{"booked_exceptions", "live_exceptions"} {
		n := strings.TrimSpace(e.ClickHouse.Exec(t, "SELECT count() FROM "+finance+"."+view+" WHERE kind = 'LateDelivery' AND order_id = '"+open.ID.String()+"'"))
		if n != "1" {
			t.Errorf("%s has it %s times", view, n)
		}
	}
}
