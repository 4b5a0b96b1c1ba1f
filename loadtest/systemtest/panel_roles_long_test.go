//go:build long

package systemtest

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"testing"
)

// operatorPages and operatorActions are all there are, with {account}, {fleet},
// {store} and {order} in place of the ids.
var (
	operatorPages = []string{
		"/overview", "/overview/live", "/orders", "/orders/{order}", "/orders/{order}/live",
		"/webhooks", "/webhooks/live", "/webhooks/{account}", "/webhooks/{account}/live",
		"/accounts", "/accounts/{account}", "/accounts/{account}/use", "/fleets", "/fleets/{fleet}",
		"/stores", "/stores/{account}/{store}", "/refused-updates", "/dead-letters",
	}
	operatorActions = []string{
		"/webhooks/{account}/url", "/webhooks/{account}/secret", "/webhooks/{account}/test", "/webhooks/{account}/replay",
		"/webhooks/{account}/limits", "/accounts", "/accounts/{account}/name", "/accounts/{account}/state",
		"/accounts/{account}/secret", "/accounts/{account}/limits", "/fleets", "/fleets/{fleet}/fields",
		"/fleets/{fleet}/coverage", "/fleets/{fleet}/state", "/fleets/{fleet}/payment-overdue",
		"/stores/{account}/{store}/confirm", "/stores/{account}/{store}/reject", "/stores/{account}/{store}/migrate",
		"/stores/{account}/{store}/deactivate",
	}
	financePages = []string{
		"/payments", "/payments/ties", "/payments/order-ledger", "/payments/expected-collections", "/payments/fleet-statement",
		"/payments/exceptions", "/payments/control-totals", "/payments/control-totals/lines", "/payments/ties", "/reports/", "/reports/order-ledger.csv",
		"/reports/order-ledger.xlsx", "/reports/control-totals.json", "/reports/closings.json",
		"/payments/months", "/payments/months/2026-10", "/payments/months/unbooked", "/payments/delivery",
	}
)

// everyField is a form that would do something in every action.
func everyField(csrf string) url.Values {
	form := url.Values{
		"url": {"http://127.0.0.1:9/"}, "since": {"2026-01-01T00:00:00"}, "status": {"undelivered"}, "maxInFlight": {"1"},
		"name": {"Ele geçirildi"}, "suspended": {"true"}, "limits.orders.sustained.count": {"1"}, "limits.orders.sustained.seconds": {"60"},
		"limits.orders.sustained.shown": {"600 in 60 s"}, "subRegion": {"X"}, "avgDeliveryMinutes": {"5"}, "coverage": {`{"type":"Polygon","coordinates":[]}`},
		"closingDate": {"2027-01-01"}, "reason": {"VendorRequest"}, "once": {rand.Text()},
	}

	if csrf != "" {
		form.Set("csrf", csrf)
	}

	return form
}

// testRoles: what a role may not do is refused by the server, whatever its pages
// show, also with a proof that is good.
func testRoles(t *testing.T, e *panelEnv) {
	b := e.vendorNamed(t, "Roller")
	order := b.Create(t, nil)
	before := e.state(t, b)
	f := newSession(t, e.Demo.PanelURL, finance, "/payments")
	for _, page := range operatorPages {
		path := e.filled(page, b, order)
		if status, _ := f.send(t, http.MethodGet, path, nil); status != http.StatusForbidden {
			t.Errorf("finance: GET %s answers %d", path, status)
		}
	}

	for _, action := range operatorActions {
		path := e.filled(action, b, order)
		if status, _ := f.send(t, http.MethodPost, path, everyField(f.csrf)); status != http.StatusForbidden {
			t.Errorf("finance: POST %s answers %d", path, status)
		}
	}

	if after := e.state(t, b); after != before {
		t.Errorf("finance changed something: %s became %s", before, after)
	}
	if status, _ := f.send(t, http.MethodGet, "/payments", nil); status != http.StatusOK {
		t.Errorf("finance: its own page answers %d", status)
	}

	o := newSession(t, e.Demo.PanelURL, operator, "/overview")
	for _, path := range financePages {
		if status, _ := o.send(t, http.MethodGet, path, nil); status != http.StatusForbidden {
			t.Errorf("operator: GET %s answers %d", path, status)
		}
	}

	for _, page := range operatorPages {
		path := e.filled(page, b, order)
		if status, _ := o.send(t, http.MethodGet, path, nil); status != http.StatusOK {
			t.Errorf("operator: GET %s answers %d", path, status)
		}
	}

	p := e.signIn(t, finance)
	if p.Has("link", "Accounts") || !p.Has("link", "Payments") {
		t.Error("finance is shown other links than its own")
	}

	p.Visit("/accounts/"+b.AccountID, http.StatusForbidden)
	p.Usable()
}

// testForged: an action without the session's own proof, or from another site,
// does nothing.
func testForged(t *testing.T, e *panelEnv) {
	b := e.vendorNamed(t, "Sahte")
	order := b.Create(t, nil)
	before := e.state(t, b)
	own, other := newSession(t, e.Demo.PanelURL, operator, "/overview"), newSession(t, e.Demo.PanelURL, operator, "/overview")
	for _, action := range operatorActions {
		path := e.filled(action, b, order)
		for name, try := range map[string]struct {
			csrf    string
			headers []string
		}{
			"without the proof":             {"", nil},
			"with another session's":        {other.csrf, nil},
			"with a guess":                  {"x" + own.csrf[1:], nil},
			"from another site":             {own.csrf, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}},
			"from another site, unlabelled": {own.csrf, []string{"Origin", "https://evil.example"}},
		} {
			if status, _ := own.send(t, http.MethodPost, path, everyField(try.csrf), try.headers...); status != http.StatusForbidden {
				t.Errorf("POST %s %s answers %d", path, name, status)
			}
		}

		if status, _ := anonymous(e.Demo.PanelURL).send(t, http.MethodPost, path, everyField(own.csrf)); status != http.StatusSeeOther {
			t.Errorf("POST %s without a session answers %d", path, status)
		}
	}

	if after := e.state(t, b); after != before {
		t.Errorf("a forged request changed something: %s became %s", before, after)
	}

	rename := url.Values{"name": {"Gerçek"}, "csrf": {own.csrf}, "once": {rand.Text()}}
	if status, body := own.send(t, http.MethodPost, "/accounts/"+b.AccountID+"/name", rename); status != http.StatusSeeOther {
		t.Errorf("the same with the session's proof answers %d: %.300s", status, body)
	}
}
