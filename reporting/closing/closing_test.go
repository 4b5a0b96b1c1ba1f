package closing

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/reports"
)

var names = []string{"order-ledger", "expected-collections", "fleet-statement", "exceptions"}

// A month is closed by two people; what becomes known of it later does not change it.
func TestClose_AMonthStaysWhatItWas(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	at := october.AddDate(0, 0, 20).Add(12 * time.Hour)
	delivered, failed := e.order(at, delivery.Delivered, 25000), e.order(at, delivery.Failed, 9900)
	failed.Collection.Minor = 9800
	// One ends in the next month.
	late := e.order(october.Next().Add(-10*time.Minute), delivery.Delivered, 5000)
	e.store(delivered, failed, late, e.order(october.AddDate(0, -1, 3), delivery.Delivered, 100), e.order(october.Next().Add(time.Hour), delivery.Delivered, 700))

	before := map[string]string{}
	for _, name := range names {
		before[name] = e.csv(name, october, reports.Booked, "")
	}

	e.close(october)
	require := func(when string) {
		t.Helper()
		for _, name := range names {
			if got := e.csv(name, october, reports.Booked, ""); got != before[name] {
				t.Errorf("%s: %s was\n%s\nand is\n%s", when, name, before[name], got)
			}
		}
	}

	require("closed")

	// Names, a late delivery, a higher version, and one more order.
	renamed := delivered
	renamed.StoreName = "Moda Sahil"
	corrected := delivered
	corrected.Version++
	corrected.Collection.Minor += 100
	e.store(renamed, corrected, e.order(at, delivery.Delivered, 333))
	e.reportLate(&failed, failed.EndedAt.Add(time.Hour))
	require("known better")

	booked, left, err := correct(t.Context(), e.books, Automatic, "")
	testenv.Must(t, err)
	if len(booked) != 1 || booked[0].Cause != CauseLate || booked[0].PossiblyCollected != 9800 || len(left) != 2 {
		t.Fatalf("booked %+v, left %v", booked, left)
	}
	if v := e.verify(); len(v.Findings) > 0 || len(v.Pending) != 2 {
		t.Errorf("%v\n%v", v.Findings, v.Pending)
	}

	booked, left, err = correct(t.Context(), e.books, "ece", "told by the fleet", left[0].Order, left[1].Order)
	testenv.Must(t, err)
	if len(booked) != 2 || len(left) != 0 {
		t.Fatalf("booked %+v, left %v", booked, left)
	}

	require("corrected by a person")

	november := october.Next()
	wantContains(t, "November's exceptions", e.csv("exceptions", november, reports.Booked, ""), "LateDelivery", failed.ID.String(), "2025-10,2025-11-03")
	ledger := e.csv("order-ledger", november, reports.Booked, "")
	wantContains(t, "November's ledger", ledger, "-250.00,-250.00,-250.00,TRY,,,2025-10,2025-11-03,reversal", "250.00,251.00,251.00,TRY,,,2025-10,2025-11-03,correction")
	wantContains(t, "November's collections", e.csv("expected-collections", november, reports.Booked, ""), ",1,4.33,0,0.00", ",2025-10\n", "2025-11-01")

	e.close(november)
	if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 || v.Closings != 3 {
		t.Errorf("%v\n%v", v.Findings, v.Pending)
	}

	// As it was known, before the corrections and after them.
	known := e.csv("order-ledger", october, reports.Known, "")
	if got := e.csv("order-ledger", october, reports.Known, "2025-11-03"); strings.ReplaceAll(known, "Moda Sahil", "Moda") != got {
		t.Errorf("as of the day of the corrections:\n%s\nknown:\n%s", got, known)
	}
}
