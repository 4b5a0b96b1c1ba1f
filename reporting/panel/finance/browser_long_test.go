//go:build long

package finance

import (
	"net/http"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/browser"
	"vendorapi/internal/testenv/panelenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// wide stores orders with the longest names, ids and amounts that there may be.
func (e *env) wide() {
	e.T.Helper()
	var orders []archive.Order
	for i := range 60 {
		o := e.order(i, local("2026-11-15 12:00:00.000"))
		o.ExternalOrderID = strings.Repeat("SIPARIS", 9) + "X"
		o.ExternalStoreID = strings.Repeat("S", 63) + string(rune('a'+i%7))
		o.StoreName = strings.Repeat("Uzunisimlirestoranlarındanbiri ", 4)
		o.FleetName = "Hızlı ve Güvenilir " + strings.Repeat("Kurye", 12)
		o.OrderAmount = delivery.Money{Minor: delivery.MaxMoneyMinor - int64(i), Set: true}
		if o.Collection.Set {
			o.Collection = delivery.Money{Minor: delivery.MaxMoneyMinor - int64(2*i), Set: true}
		}
		orders = append(orders, o)
	}
	e.store(orders...)
}

// Nothing that finance looks for lies beyond the edge of a screen.
func TestBrowser_ShowsEveryAmount(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.wide()
	p := browser.Start(t).Open(t, e.client.URL)
	p.Visit("/login?next=/payments/control-totals", http.StatusOK)
	p.Fill("User name", "ece")
	p.Fill("Password", panelenv.Password)
	p.Press("Sign in")
	for _, report := range append([]string{""}, reports.Names()...) {
		path := home + "/" + report
		if report == "" {
			path = home
		}
		p.Visit(path+"?"+november, http.StatusOK)
		if report == control.Name {
			p.WaitText("Line by line")
		}
		p.Usable()
	}
}
