//go:build long

package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/panelenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/closing"
	financepages "vendorapi/reporting/panel/finance"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

// wideOrders have the longest names, ids and amounts that there may be.
func wideOrders(account delivery.AccountID, fleet delivery.FleetID) (orders []archive.Order) {
	created := time.Date(2026, 11, 15, 12, 0, 0, 0, delivery.Istanbul)
	for i := range 60 {
		external := strings.Repeat("SIPARIS", 9) + "X"
		o := archive.Order{
			Account: account, Version: 1<<32 | 7, ExternalOrderID: external, ExternalStoreID: strings.Repeat("S", 63) + string(rune('a'+i%7)),
			StoreName: strings.Repeat("Uzunisimlirestoranlarındanbiri ", 4), TaxNumber: "1234567890",
			Fleet: fleet, FleetName: "Hızlı ve Güvenilir " + strings.Repeat("Kurye", 12),
			Status: delivery.Delivered, CreatedAt: created, OrderedAt: created, ReadyAt: created, AssignedAt: created, PickedUpAt: created,
			UpdatedAt: created, DeliveredAt: created.Add(time.Hour), EndedAt: created.Add(time.Hour), PaymentType: delivery.PaymentType(i % 4),
			OrderAmount: delivery.Money{Minor: delivery.MaxMoneyMinor - int64(i), Set: true},
			ID:          delivery.MakeOrderID(i%16, delivery.DayOf(created), delivery.OrderDigest(account, fmt.Sprint(i))),
		}
		if o.PaymentType == delivery.Cash || o.PaymentType == delivery.Card || i%11 == 0 {
			o.Collection = delivery.Money{Minor: delivery.MaxMoneyMinor - int64(2*i), Set: true}
		}
		switch {
		case i%13 == 5:
			o.Status, o.Failure, o.DeliveredAt = delivery.Failed, delivery.TimedOut, time.Time{}
		case i%17 == 3:
			o.Status, o.DeliveredAt = delivery.Cancelled, time.Time{}
		case i%19 == 4:
			o.Status, o.EndedAt, o.DeliveredAt = delivery.Searching, time.Time{}, time.Time{}
		}
		orders = append(orders, o)
	}
	return orders
}

// Nothing that finance looks for lies beyond the edge of a screen.
func TestFinance_ShowsEveryAmount(t *testing.T) {
	t.Parallel()
	e := testenv.NewArchive(t)
	must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: wideOrders(e.Vendor.Account, e.Fleet.ID)}))
	l := e.OpenAs(stack.ReportingUser)
	gate := panelenv.Gate(t, l)
	frame := layout.New(gate, l, "sandbox", panelenv.Log)
	pages := financepages.New(frame, e.Archive, closing.New(l, e.Archive, panelenv.Log), nil)
	mux := http.NewServeMux()
	pages.Routes(mux)
	frame.Routes(mux)
	for _, path := range []string{"/login", "/login.css"} {
		mux.Handle(path, gate.Handler())
	}
	p := openPage(t, startBrowser(t), testenv.Serve(t, mux).URL)
	p.Visit("/login?next=/payments/control-totals", http.StatusOK)
	submitSignIn(p, "ece", panelenv.Password)
	for _, report := range append([]string{""}, reports.Names()...) {
		p.Visit(strings.TrimSuffix("/payments/"+report, "/")+"?from=2026-11-01&to=2026-11-30", http.StatusOK)
		if report == "control-totals" {
			p.WaitText("Line by line")
		}
		p.Usable()
	}
}
