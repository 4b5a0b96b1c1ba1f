//go:build long

package systemtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/panel/admin"
	financepages "vendorapi/reporting/panel/finance"
	"vendorapi/reporting/reports"
)

// wideOrders have the longest names, ids and amounts that there may be.
func wideOrders(account delivery.AccountID, fleet delivery.FleetID, created time.Time) (orders []archive.Order) {
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

	e := archiveenv.New(t)
	must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: wideOrders(e.Vendor.Account, e.Fleet.ID,
		time.Date(2026, 11, 15, 12, 0, 0, 0, delivery.Istanbul))}))
	p := openPage(t, startBrowser(t), serveFinance(e))
	p.Visit("/login?next=/payments/control-totals", http.StatusOK)
	submitSignIn(p, "ece", authenv.Password)
	for _, report := range append([]string{""}, reports.Names()...) {
		p.Visit(strings.TrimSuffix("/payments/"+report, "/")+"?from=2026-11-01&to=2026-11-30", http.StatusOK)
		if report == "control-totals" {
			p.WaitText("Line by line")
		}
		p.Usable()
	}
}

// serveFinance serves finance's pages alone, without a gateway.
func serveFinance(e *archiveenv.System) string {
	e.T.Helper()
	l := e.OpenAs(stack.ReportingUser)
	gate := authenv.Gate(e.T, l)
	frame := layout.New(gate, l, "sandbox", authenv.Log)
	nowhere, err := admin.NewClient(admin.Settings{URL: "http://127.0.0.1:1"}, strings.Repeat("k", 16))
	must(e.T, err)
	mux := http.NewServeMux()
	financepages.New(frame, e.Archive, closing.New(l, e.Archive, archiveenv.BooksKeys, authenv.Log), nowhere).Routes(mux)
	frame.Routes(mux)
	for _, path := range []string{"/login", "/login.css"} {
		mux.Handle(path, gate.Handler())
	}

	return testenv.Serve(e.T, mux).URL
}

// A month is closed by two people in their browsers, on pages that fit a phone.
func TestMonths_AreClosedInTheBrowser(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	orders := slices.DeleteFunc(wideOrders(e.Vendor.Account, e.Fleet.ID, time.Date(2026, 10, 15, 12, 0, 0, 0, delivery.Istanbul)),
		func(o archive.Order) bool { return !o.Status.Terminal() })
	must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: orders}))
	origin := serveFinance(e)
	const october, note = "/payments/months/2026-10", "Uzunbirsözcükolmadandahauzunbirsözcükolan <b>not</b> and some more words"
	cem, defne := openPage(t, startBrowser(t), origin), openPage(t, startBrowser(t), origin)
	for user, p := range map[string]*Page{"cem": cem, "defne": defne} {
		p.Visit("/login?next=/payments/months", http.StatusOK)
		submitSignIn(p, user, authenv.Password)
		p.WaitText("October 2026 can be the first to close")
	}

	usable := func(p *Page, path string) {
		p.Visit(path, http.StatusOK)
		p.Usable()
	}

	usable(cem, "/payments/months")
	usable(cem, "/payments/months/2026-12")
	usable(cem, october)
	e.Consume(ledger.RoleExport)
	cem.Fill("Note: why what is not so is right all the same; empty if everything is so", note)
	cem.Press("Hold October 2026")
	cem.WaitText("The month is held.")
	usable(cem, october)
	usable(defne, october)
	defne.Press("Close October 2026")
	defne.WaitText("The month is closed.")
	usable(defne, october)
	orders[0].Version++
	orders[0].Collection.Minor -= 100
	must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: orders[:1]}))
	usable(cem, "/payments/months/unbooked")
	usable(cem, "/payments/months")
	usable(cem, "/payments/delivery")
}
