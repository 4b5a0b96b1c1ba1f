//go:build long

package systemtest

import (
	"net/http"
	"strings"
	"testing"
)

// The panel in a real Chromium, as operators, finance and customers use it, with
// all programs behind it.
func TestPanel(t *testing.T) {
	t.Parallel()

	e := newPanelEnv(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *panelEnv)
	}{
		{"SignIn", testSignIn},
		{"FindsAnOrder", testFindsAnOrder},
		{"EndpointBecomesUnreachableAndHealthyAgain", testEndpointComesBack},
		{"LimitHoldsAtOnce", testLimitHolds},
		{"ReportsSayWhatClickHouseSays", testReports},
		{"TrackingFollowsADelivery", testTracking},
		{"RolesHoldOnTheServer", testRoles},
		{"ForgedRequestsAreRefused", testForged},
		{"MarkupStaysText", testMarkup},
		{"DocumentationObeysItsPolicy", testDocumentation},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, e) })
	}
}

func testSignIn(t *testing.T, e *panelEnv) {
	p := e.visitor(t)
	p.Visit("/overview", http.StatusOK) // leads to the sign-in page
	if !strings.HasPrefix(p.Location(), "/login") {
		t.Errorf("without a session the overview is at %s", p.Location())
	}

	p.Usable()
	p.Expect(http.StatusUnauthorized)
	submitSignIn(p, operator.name, "wrong")
	p.HasStatus(http.StatusUnauthorized)
	p.Shows("User name or password is wrong.")
	p.Usable()
	submitSignIn(p, "nobody", operator.password)
	p.HasStatus(http.StatusUnauthorized)
	submitSignIn(p, operator.name, operator.password)
	p.HasStatus(http.StatusOK)
	if p.Location() != "/overview" {
		t.Errorf("after signing in the page is %s", p.Location())
	}

	p.Press("Sign out")
	p.Visit("/accounts", http.StatusOK)
	if !strings.HasPrefix(p.Location(), "/login") {
		t.Errorf("after signing out the accounts are at %s", p.Location())
	}
}

func testFindsAnOrder(t *testing.T, e *panelEnv) {
	b := e.vendorNamed(t, "Çınar Adisyon")
	id := b.Create(t, func(o map[string]any) { o["externalOrderId"] = "BUL-2026" })
	e.carry(t, id, "Assigned")
	p := e.signIn(t, operator)
	search := "Order id, external order id, store id, or part of the store's name"
	for _, text := range []string{"BUL-2026", id} {
		p.Visit("/orders", http.StatusOK)
		p.Fill(search, text)
		p.Press("Search")
		p.Until("the order is found", func() bool { return strings.Contains(p.Text("main"), "BUL-2026") })
	}

	p.Visit("/orders", http.StatusOK)
	p.Fill(search, "BUL-9999")
	p.Press("Search")
	p.Shows("No order matches this search")
	p.Visit("/orders/"+id, http.StatusOK)
	p.Shows("Order BUL-2026", "Çınar Adisyon", "Moda Şubesi", "Assigned")
	p.WaitText("webhook delivered", "HTTP 204")
	e.Report(t, id, "PickingUp", "")
	p.WaitText("PickingUp") // without loading the page again
	p.Visit("/orders/00000000-0000-8000-8000-000000000000", http.StatusNotFound)
}

func testEndpointComesBack(t *testing.T, e *panelEnv) {
	b := e.vendorNamed(t, "Defne Kasa")
	p := e.signIn(t, operator)
	page := "/webhooks/" + b.AccountID
	p.Visit(page, http.StatusOK)
	p.WaitText("healthy")
	b.down.Store(true)
	id := b.Create(t, nil)
	e.carry(t, id, "Assigned")
	p.WaitText("failing", "503")
	e.giveUp(t, b)
	p.WaitText("unreachable")
	p.Visit("/webhooks", http.StatusOK)
	p.Until("the unreachable endpoint stands first", func() bool {
		first := p.Text("tbody tr")
		return strings.Contains(first, "Defne Kasa") && strings.Contains(first, "unreachable")
	})

	p.Visit("/overview", http.StatusOK)
	p.Until("the overview names it", func() bool { return strings.Contains(p.Text("main"), "Defne Kasa") })

	b.down.Store(false)
	p.Visit(page, http.StatusOK)
	p.Press("Send a test event")
	p.Shows("A test event is queued")
	p.WaitText("healthy")
	p.Press("All that were given up")
	p.Shows("The events are queued again")
	await(t, "the given up event arrives after all", func() bool {
		return b.received.Counts().Events["store.activated"] > 0
	})
	// One event by the button in its row, long before its next attempt is due.
	row := `tr:has(button[value*="` + strings.ReplaceAll(id, "-", "") + `"])`
	p.PressIn(row, eval[string](p, "document.querySelector('"+row+" button').getAttribute('aria-label')"))
	await(t, "the order's event arrives", func() bool { return len(b.received.Timeline(id)) == 1 })
	p.WaitText("again") // the attempt of the replay in the log
	p.Press("Rotate the secret")
	p.Shows("This is the only time that the secret is shown.", "whsec_")
	if asked := p.Confirmed(); len(asked) != 1 {
		t.Errorf("rotating asked %q", asked)
	}
}

func testLimitHolds(t *testing.T, e *panelEnv) {
	v := e.Vendor(t, nil)
	p := e.signIn(t, operator)
	p.Visit("/accounts/"+v.AccountID, http.StatusOK)
	p.Shows("600 in 60 s") // the default
	send := func() int {
		a, err := v.Do(t.Context(), http.MethodPost, "/orders", v.Order(nil))
		must(t, err)
		return a.Status
	}

	for range 3 {
		if status := send(); status != http.StatusCreated {
			t.Fatalf("within the default limit an order is answered %d", status)
		}
	}

	p.Fill("orders, sustained, requests", "4")
	p.Press("Save the limits")
	p.Shows("The limits are changed")
	if first, second := send(), send(); first != http.StatusCreated || second != http.StatusTooManyRequests {
		t.Errorf("with a limit of 4 the 4th order is answered %d and the 5th %d", first, second)
	}

	p.Visit("/accounts/"+v.AccountID, http.StatusOK)
	p.WaitText("4 of 4")
	p.Fill("orders, sustained, requests", "0")
	p.Expect(http.StatusUnprocessableEntity)
	p.Press("Save the limits")
	p.HasStatus(http.StatusUnprocessableEntity)
	if send() != http.StatusTooManyRequests {
		t.Error("a refused change of the limit changed it")
	}
}

// testDocumentation: the viewer shows what can be called, and nothing is asked of
// another host or refused by the policy, which is checked at a page's end.
func testDocumentation(t *testing.T, e *panelEnv) {
	vendor := openPage(t, e.Browser, e.Demo.BaseURL)
	vendor.Visit("/docs", http.StatusOK)
	vendor.WaitText("Create an order", "delivery.status_changed")
	vendor.Follow("Error codes")
	vendor.WaitText("DUPLICATE_ORDER")
	vendor.Usable()
	private := openPage(t, e.Browser, e.Demo.OpsURL)
	private.Visit("/docs", http.StatusOK)
	private.WaitText("Take a job")
	private.Follow("Admin API")
	private.WaitText("Announce an overdue balance")
}
