//go:build long

package systemtest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A customer follows the link from the order's acceptance to the door, on a phone
// that speaks Turkish and on a computer that speaks English.
func testTracking(t *testing.T, e *panelEnv) {
	b := e.vendorNamed(t, "Incir Sipariş")
	var made struct{ OrderID, TrackingURL string }
	must(t, b.Call(t.Context(), http.MethodPost, "/orders", b.Order(func(o map[string]any) {
		o["recipient"] = map[string]any{"name": "Gülizar Karaosmanoğlu", "phone": "05327654321"}
		o["dropoff"] = map[string]any{"text": "Bahariye Caddesi No: 77, Kadıköy", "latitude": 40.9880, "longitude": 29.0300,
			"doorNo": "19", "note": "Kapıcıya bırakın"}
	}), &made))

	link, err := url.Parse(made.TrackingURL)
	must(t, err)
	if link.Scheme+"://"+link.Host != e.Demo.PanelURL {
		t.Errorf("the link %s is not the panel's, %s", made.TrackingURL, e.Demo.PanelURL)
	}

	phone, computer := e.visitor(t), e.visitor(t)
	phone.Language("tr-TR,tr;q=0.9")
	phone.Width(390)
	computer.Language("en-GB,en;q=0.9,tr;q=0.5")
	for _, p := range []*Page{phone, computer} {
		p.Visit(link.Path, http.StatusOK)
	}

	phone.Shows("Kurye aranıyor", "Demo Kurye")
	computer.Shows("Looking for a courier", "Demo Kurye")

	e.carry(t, made.OrderID, "Assigned")
	phone.WaitText("Kuryeniz belli oldu", "Mehmet Y.", "Motosiklet")
	computer.WaitText("A courier has your order", "Mehmet Y.", "Motorcycle")
	e.Report(t, made.OrderID, "Delivering", "")
	must(t, e.Fleet.Call(t.Context(), http.MethodPost, "/locations", []map[string]any{{
		"orderId": made.OrderID, "latitude": 40.9850, "longitude": 29.0280, "at": time.Now().Format(time.RFC3339)}}, nil))
	phone.WaitText("Siparişiniz yolda", "Konum:")
	computer.WaitText("On the way to you", "Position:")
	for _, p := range []*Page{phone, computer} {
		html := eval[string](p, "document.documentElement.outerHTML")
		for _, personal := range []string{"Gülizar", "Karaosmano", "7654321", "No: 77", "Kapıcıya", "249", "Yılmaz", "5551112233", b.AccountID, made.OrderID} {
			if strings.Contains(html, personal) {
				t.Errorf("the tracking page shows %q", personal)
			}
		}
		p.Usable()
	}

	phone.Width(390)
	e.Report(t, made.OrderID, "Delivered", "")
	phone.WaitText("Teslim edildi")
	computer.WaitText("Your order has been handed over")
	computer.Visit(link.Path[:len(link.Path)-4]+"AAAA", http.StatusNotFound)
	computer.Shows("We do not know this link")
	computer.Usable()
	phone.Visit("/track/x", http.StatusNotFound)
	phone.Shows("Bu bağlantıyı tanımıyoruz")
}
