//go:build long

package systemtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// unbroken is as wide a word as names of 60 characters have beside the markup.
const unbroken = " WWWWWWWWWWWWWWWWWWWW"

// filled puts ids into a path of the panel.
func (e *panelEnv) filled(path string, b *vendor, order string) string {
	return strings.NewReplacer("{account}", b.AccountID, "{fleet}", e.Demo.Fleet.FleetID,
		"{store}", url.PathEscape(b.Store), "{order}", order).Replace(path)
}

// state is what the actions of an operator could have changed, as JSON.
func (e *panelEnv) state(t *testing.T, b *vendor) string {
	t.Helper()
	var all strings.Builder
	for _, path := range []string{"/accounts", "/fleets?coverage=true"} {
		a, err := e.Admin.Do(t.Context(), http.MethodGet, path, nil)
		must(t, err)
		must(t, a.Err())
		all.Write(a.Data)
	}

	var endpoint struct{ URL, SecretPreviousUntil string }
	must(t, e.Admin.Call(t.Context(), http.MethodGet, "/accounts/"+b.AccountID+"/webhook", nil, &endpoint))
	all.WriteString(endpoint.URL + endpoint.SecretPreviousUntil)
	var store struct{ Status string }
	must(t, b.Call(t.Context(), http.MethodPut, "/stores/"+url.PathEscape(b.Store), map[string]any{}, &store))

	return all.String() + store.Status
}

// testMarkup lets everybody who can write something write markup, and looks at
// every page there is: it stands there as text. On the way every page is held to
// what makes pages usable.
func testMarkup(t *testing.T, e *panelEnv) {
	fleet := e.hostileFleet(t)
	b := e.hostileShop(t, fleet)
	order := e.hostileOrder(t, b, fleet)
	b.down.Store(true) // its answers are markup, too
	e.giveUp(t, b)
	e.awaitEndpoint(t, b, "unreachable")
	ended := e.hostileOrder(t, b, fleet)
	e.hostileEnd(t, fleet, ended)
	await(t, "the orders are in ClickHouse", func() bool {
		return e.ask(t, "SELECT count() FROM delivery.orders FINAL WHERE account_id = '"+b.AccountID+"'") == "2"
	})
	p := e.signIn(t, everybody)
	for _, page := range []struct {
		path  string
		shows bool // the markup is in something that is shown there
	}{
		{"/overview", true}, {"/orders", true}, {"/orders?q=" + url.QueryEscape(markup), true}, {"/orders/{order}", true}, {"/orders/" + ended, true},
		{"/webhooks", true}, {"/webhooks/{account}", true}, {"/webhooks?text=" + url.QueryEscape(markup), true},
		{"/accounts", true}, {"/accounts/{account}", true}, {"/accounts?text=" + url.QueryEscape(markup), true},
		{"/fleets", true}, {"/fleets/" + fleet.FleetID, true}, {"/stores", true}, {"/stores/{account}/{store}", true},
		{"/stores?text=" + url.QueryEscape(markup), true}, {"/refused-updates", true}, {"/dead-letters", false},
		{"/payments", false}, {"/payments/order-ledger", true}, {"/payments/fleet-statement", true}, {"/payments/exceptions", false},
		{"/payments/control-totals/lines", false}, {"/login", false}, {"/login?next=" + url.QueryEscape(markup), false},
		{"/accounts/x?done=" + url.QueryEscape(markup), false},
	} {
		t.Run(page.path, func(t *testing.T) {
			p := p.For(t)
			p.Expect(http.StatusNotFound, http.StatusUnprocessableEntity)
			p.Visit(e.filled(page.path, b, order), statusOf(page.path))
			inert(t, p, page.shows)
			p.Usable()
			inert(t, p, page.shows)
		})
	}

	t.Run("tracking", func(t *testing.T) {
		p := e.visitor(t)
		p.Visit(b.tracking, http.StatusOK)
		inert(t, p, true)
		p.Usable()
	})
}

func statusOf(path string) int {
	if strings.HasPrefix(path, "/accounts/x") {
		return http.StatusNotFound
	}
	return http.StatusOK
}

// inert fails if the markup has become anything but text or a value. What is
// shown may be some seconds old, since readers share it, so it is waited for.
func inert(t *testing.T, p *Page, shown bool) {
	t.Helper()
	// Every detail is opened first.
	const look = `(() => {
		for (const d of document.querySelectorAll('details')) d.open = true;
		const values = [...document.querySelectorAll('input, option')].map(e => e.value + e.text).join();
		return (document.body.textContent + values).includes('<b data-marker');
	})()`

	if shown {
		p.Until("what was written is shown", func() bool { return eval[bool](p, look) })
	}

	if injected := eval[int](p, `document.querySelectorAll('[data-marker], [onclick]').length`); injected > 0 {
		t.Errorf("%s: %d elements were injected", p.Location(), injected)
	}
}

func (e *panelEnv) hostileFleet(t *testing.T) stack.DemoFleet {
	t.Helper()
	var made stack.DemoFleet
	must(t, e.Admin.Call(t.Context(), http.MethodPost, "/fleets", map[string]any{
		"name": "Filo " + markup + unbroken, "subRegion": "Bölge " + markup + unbroken, "avgDeliveryMinutes": 25,
		"coverage": json.RawMessage(`{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.2],[28.5,41.2],[28.5,40.8]]]}`),
	}, &made))
	return made
}

// hostileShop is a shop whose names and ids are markup, and one store that waits
// for its fleet.
func (e *panelEnv) hostileShop(t *testing.T, fleet stack.DemoFleet) *vendor {
	t.Helper()
	b := e.vendorNamed(t, "Hesap "+markup+unbroken)
	for _, id := range []string{"s-" + markup, "w-" + markup} {
		body := stack.StoreBody(fleet.FleetID)
		body["name"] = "Şube " + markup + unbroken
		body["address"] = map[string]any{"text": "Moda Caddesi " + markup, "latitude": 40.9816, "longitude": 29.0258}
		must(t, b.Call(t.Context(), http.MethodPut, "/stores/"+url.PathEscape(id), body, nil))
	}

	b.Store = "s-" + markup
	must(t, e.Admin.Call(t.Context(), http.MethodPost, "/accounts/"+b.AccountID+"/stores/"+url.PathEscape(b.Store)+"/confirm", nil, nil))

	return b
}

func (e *panelEnv) hostileOrder(t *testing.T, b *vendor, fleet stack.DemoFleet) string {
	t.Helper()
	var made struct{ OrderID, TrackingURL string }
	must(t, b.Call(t.Context(), http.MethodPost, "/orders", b.Order(func(o map[string]any) {
		o["externalOrderId"] = o["externalOrderId"].(string) + markup
		o["recipient"] = map[string]any{"name": "Alıcı " + markup, "phone": "05321234567"}
		o["dropoff"] = map[string]any{"text": "Bahariye Caddesi " + markup, "latitude": 40.9880, "longitude": 29.0300,
			"buildingNo": "<b>1", "doorNo": "<b>2", "floor": "<b>3", "note": markup}
		o["packageNote"] = "Not " + markup
	}), &made))

	link, err := url.Parse(made.TrackingURL)
	must(t, err)
	b.tracking = link.Path
	couriers := e.LoginFleet(t, fleet)
	must(t, couriers.Call(t.Context(), http.MethodPost, "/jobs/"+made.OrderID+"/accept", map[string]any{
		"courier": map[string]any{"name": "Kurye " + markup, "phone": "05551112233", "vehicleType": `"><b data-marker>`},
	}, nil))

	return made.OrderID
}

// hostileEnd delivers an order, and reports on the way what cannot be.
func (e *panelEnv) hostileEnd(t *testing.T, fleet stack.DemoFleet, order string) {
	t.Helper()
	couriers := e.LoginFleet(t, fleet)
	for _, status := range []string{"PickedUp", "PickingUp", "Delivered"} {
		must(t, couriers.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/status", map[string]any{"status": status}, nil))
	}
}
