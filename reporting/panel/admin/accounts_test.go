package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv"
)

func TestCreateAccount_ShowsTheSecretOnceAndItWorks(t *testing.T) {
	e := newEnv(t)
	name := "Yeni Entegratör " + t.Name()
	a := e.Submit("/accounts", "/accounts", "name", "  "+name).Want(http.StatusOK, "only time")
	v := issuedTo(t, a)
	account := e.account(v)
	if account.Name != name || account.Limits != delivery.DefaultLimits() {
		t.Errorf("%+v", account)
	}
	if a.Value("name") != "" {
		t.Error("the form still holds the name of the account that was created")
	}

	a.Want(200, `href="/accounts/`+v.id+`"`)
	e.as(v) // a token is issued for these credentials
	for _, path := range []string{"/accounts", "/accounts/" + v.id, "/webhooks/" + v.id} {
		e.Get(path).Want(http.StatusOK).Lacks(v.secret)
	}

	if strings.Contains(e.log.String(), v.secret) {
		t.Error("the secret is in the panel's log")
	}
	if a.Header.Get("Cache-Control") != "no-store" {
		t.Error("the secret's page may be stored")
	}
}

// issued reads the credentials that a page shows.
func issuedTo(t *testing.T, a *testenv.Answer) vendor {
	t.Helper()
	codes := secrets(a)
	id, ok := delivery.AccountOfClient(codes[0])
	if !ok || len(codes) != 2 {
		t.Fatalf("%q is no client id and secret", codes)
	}
	return vendor{id.String(), codes[0], codes[1]}
}

func TestRotateClientSecret_ShowsItOnceAndTheOldOneWorks(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Rotasyon")
	page := "/accounts/" + v.id
	stale := e.Get(page).Form(page+"/secret", "", "")
	until := func() string {
		return "works until " + time.Now().Add(24*time.Hour).In(delivery.Istanbul).Format("2 Jan 2006")
	}
	before := until()
	a := e.Submit(page, page+"/secret").Want(http.StatusOK, "only time", "24 hours")
	fresh := issuedTo(t, a)
	if fresh.id != v.id || fresh.secret == v.secret {
		t.Fatalf("%+v", fresh)
	}
	if !strings.Contains(a.Text, before) && !strings.Contains(a.Text, until()) { // two around midnight
		t.Errorf("it does not say %q", before)
	}

	e.as(v)
	e.as(fresh)
	e.Get(page).Lacks(fresh.secret, v.secret)
	// A page from before it must not rotate again: it does not say what there is.
	e.Post(page+"/secret", stale).Want(http.StatusUnprocessableEntity, "changed since")
	e.as(v)
	e.Get(page).Want(http.StatusOK, "One earlier secret still works, until")
	e.Submit(page, page+"/secret").Want(http.StatusOK, "2 earlier secrets still work, the last one until")
	e.as(v)
	e.as(fresh)
	revoked := e.Submit(page, page+"/revoke").Want(http.StatusOK, "only time", "has ended").Lacks("works until", "still work")
	for _, former := range []vendor{v, fresh} {
		if _, err := e.login(former); err == nil || !strings.Contains(err.Error(), string(delivery.CodeInvalidCredentials)) {
			t.Errorf("a revoked secret: %v", err)
		}
	}

	e.as(issuedTo(t, revoked))
	if strings.Contains(e.log.String(), fresh.secret) {
		t.Error("the secret is in the panel's log")
	}
}

//rule:limits-and-idempotency/sustained-excess-in-at-least
func TestSuspendAccount_HoldsAtOnceAndIsTakenBack(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Durdurulan")
	api := e.as(v)
	page := "/accounts/" + v.id
	e.done(e.Press(page, page+"/state", "suspended", "true"), "account-suspended").Want(200, "suspended")
	if !e.account(v).Suspended {
		t.Error("not suspended in the ledger")
	}
	if a := e.ask(api, "/webhook"); a.Code != string(delivery.CodeAccountSuspended) {
		t.Errorf("a suspended account is answered %d %s", a.Status, a.Code)
	}

	e.done(e.Press(page, page+"/state", "suspended", "false"), "account-resumed")
	if a := e.ask(api, "/webhook"); a.Code != string(delivery.CodeWebhookNotConfigured) {
		t.Errorf("a resumed account is answered %d %s", a.Status, a.Code)
	}

	form := e.Get(page).Form(page+"/state", "suspended", "true")
	form.Set("suspended", "perhaps")
	e.Post(page+"/state", form).Want(http.StatusUnprocessableEntity, "suspended")
}

func (e *env) ask(c *client.Client, path string) *client.Answer {
	e.T.Helper()
	a, err := c.Do(e.T.Context(), http.MethodGet, path, nil)
	must(e.T, err)
	return a
}

func TestLimitAccount_GatewayHonoursItAtOnce(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Sınırlı")
	api := e.as(v)
	page := "/accounts/" + v.id
	e.done(e.Submit(page, page+"/limits", "limits.stores.burst.count", "3", "limits.stores.burst.seconds", "3600", "limits.orders.sustained.count", "50"), "account-limited")
	want := delivery.DefaultLimits()
	want.Stores.Burst, want.Orders.Sustained.Count = delivery.Window{Count: 3, Seconds: 3600}, 50
	if got := e.account(v).Limits; got != want {
		t.Fatalf("%+v", got)
	}

	passed := 0
	for e.ask(api, "/webhook").Code != string(delivery.CodeRateLimited) {
		passed++
	}

	if passed != 3 {
		t.Errorf("%d requests passed, want 3", passed)
	}

	// The page shows the use beside each limit, and so does the part that refreshes.
	for _, path := range []string{page, page + "/use"} {
		meters := map[string]string{}
		for _, m := range testenv.All(e.Get(path).Want(200).Tree(), "meter") {
			meters[testenv.Attribute(m, "aria-label")] = testenv.Attribute(m, "value") + " of " + testenv.Attribute(m, "max")
		}

		if got := meters["stores, burst: used now"]; got != "3 of 3" {
			t.Errorf("%s: %q in %v", path, got, meters)
		}
		if got := meters["orders, sustained: used now"]; got != "0 of 50" {
			t.Errorf("%s: %q", path, got)
		}
	}

	e.done(e.Submit(page, page+"/limits", "limits.stores.burst.count", "200"), "account-limited")
	if a := e.ask(api, "/webhook"); a.Code == string(delivery.CodeRateLimited) {
		t.Error("the raised limit does not hold at once")
	}
}

func TestLimitAccount_ChangesTheNumbersOfStores(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Şubeli")
	page := "/accounts/" + v.id
	form := e.Get(page).Want(200, "A new account has 10,000 and 500.").Form(page+"/limits", "", "")
	if form.Get("limits.maxStores") != "10000" || form.Get("limits.maxPendingStores") != "500" {
		t.Errorf("the form shows %v", form)
	}

	e.done(e.Submit(page, page+"/limits", "limits.maxStores", "20000"), "account-limited")

	// What was changed since the page was shown stays, if the form does not change it.
	form.Set("limits.maxPendingStores", "7")
	form.Set("limits.stores.burst.count", "30")
	e.done(e.Post(page+"/limits", form), "account-limited")
	want := delivery.DefaultLimits()
	want.MaxStores, want.MaxPendingStores, want.Stores.Burst.Count = 20_000, 7, 30
	got := e.account(v).Limits
	if got != want {
		t.Errorf("%+v", got)
	}

	e.done(e.Submit(page, page+"/limits"), "unchanged")
}

func TestAccounts_FindsTheTurkishWayAndTheSuspended(t *testing.T) {
	e := newEnv(t)
	quiet, loud := e.newAccount("Ağaçlı IŞIK İstanbul a"), e.newAccount("Ağaçlı IŞIK İstanbul b")
	e.call(http.MethodPatch, "/accounts/"+loud.id, map[string]bool{"suspended": true})
	for _, text := range []string{"ağaçlı ışık", "AĞAÇLI IŞIK", "ağaçlı ışık ISTANBUL", quiet.id, quiet.clientID} {
		a := e.Get("/accounts?text="+url.QueryEscape(text)).Want(200, quiet.id)
		if a.Value("text") != text {
			t.Errorf("%q became %q", text, a.Value("text"))
		}
	}

	e.Get("/accounts?state=suspended&text="+loud.id).Want(200, "/accounts/"+loud.id, "suspended")
	e.Get("/accounts?state=suspended&text="+quiet.id).Want(200, "No account matches this search")
	e.Get("/accounts?text=hiçbiri-böyle-değil").Want(200, "No account matches this search")
}

func TestAccounts_ShowsTheUseOfOrders(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Kullanım " + t.Name())
	e.call(http.MethodPatch, "/accounts/"+v.id, map[string]any{"limits": map[string]any{"orders": map[string]any{ // windows that do not pass
		"sustained": map[string]int{"count": 600, "seconds": 86400}, "burst": map[string]int{"count": 120, "seconds": 3600}}}})
	api := e.as(v)
	for range 4 {
		_, err := api.Do(t.Context(), http.MethodPost, "/orders", map[string]string{})
		must(t, err)
	}

	a := e.Get("/accounts?text=" + v.id).Want(200)
	if got := fmt.Sprint(testenv.Words(testenv.All(a.Tree(), "tbody")[0])); !strings.Contains(got, "4 of 600 in 86,400 s") || !strings.Contains(got, "4 of 120 in 3,600 s") {
		t.Error(got)
	}

	e.Get("/accounts/"+v.id).Want(200, "3,000 in 60 s", "An existing burst limit can be changed but not removed.").Lacks("3000 in 60 s</td>")
}

func TestAccounts_TurnsEventsBetweenTheStatusesOff(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Sessiz")
	page := "/accounts/" + v.id
	e.Get(page).Want(200, "Events between the statuses", "all are sent")
	for _, muted := range [][]delivery.EventType{{delivery.ETAChanged}, delivery.MutableEvents, nil} {
		e.done(e.Submit(page, page+"/events", "mutedEvents", mutedChoice(muted)), "account-events")
		if got := e.account(v).MutedEvents; !slices.Equal(got, muted) {
			t.Errorf("muted %v, want %v", got, muted)
		}
	}

	e.done(e.Submit(page, page+"/events", "mutedEvents", ""), "unchanged")
	e.Submit(page, page+"/events", "mutedEvents", "delivery.status_changed").Want(422, "must be delivery.courier_changed or delivery.eta_changed")
}
