package operate

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
)

func TestCreateAccount_ShowsTheSecretOnceAndItWorks(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	name := "Yeni Entegratör " + t.Name()
	a := b.submit("/accounts", "/accounts", "name", "  "+name).want(http.StatusOK, "only time")
	v := issued(t, a)
	account := s.account(v)
	if account.Name != name || account.Limits != delivery.DefaultLimits() {
		t.Errorf("%+v", account)
	}
	if a.value("name") != "" {
		t.Error("the form still holds the name of the account that was created")
	}
	a.want(200, `href="/accounts/`+v.id+`"`)
	s.as(v) // a token is issued for these credentials
	for _, path := range []string{"/accounts", "/accounts/" + v.id, "/webhooks/" + v.id} {
		b.get(path).want(http.StatusOK).without(v.secret)
	}
	if strings.Contains(s.log.String(), v.secret) {
		t.Error("the secret is in the panel's log")
	}
	if a.Header.Get("Cache-Control") != "no-store" {
		t.Error("the secret's page may be stored")
	}
}

// issued reads the credentials that a page shows.
func issued(t *testing.T, a answer) vendor {
	t.Helper()
	var codes []string
	for _, section := range all(a.tree(), "section") {
		if attribute(section, "class") == "secret" {
			for _, code := range all(section, "code") {
				codes = append(codes, words(code))
			}
		}
	}
	if len(codes) != 2 {
		t.Fatalf("%d codes: %s", len(codes), a.brief())
	}
	id, ok := delivery.AccountOfClient(codes[0])
	if !ok {
		t.Fatalf("%q is no client id", codes[0])
	}
	return vendor{id.String(), codes[0], codes[1]}
}

func TestCreateAccount_RefusedKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	for _, name := range []string{"", "   ", strings.Repeat("ş", 201), "a\nb"} {
		form := b.get("/accounts").form("/accounts", "", "")
		form.Set("name", name)
		a := b.post("/accounts", form).want(http.StatusUnprocessableEntity, "VALIDATION_FAILED")
		if a.fault("name") == "" {
			t.Errorf("%q: no fault beside the field: %s", name, a.brief())
		}
		if got := a.value("name"); got != name && got != strings.ReplaceAll(name, "\n", "") {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestAccounts_TwiceTheSameFormIsDoneOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	form := b.get("/accounts").form("/accounts", "", "")
	form.Set("name", "Bir kere "+t.Name())
	first, second := b.post("/accounts", form).want(200), b.post("/accounts", form).want(200)
	if issued(t, first) != issued(t, second) {
		t.Error("a second account was created")
	}
	if n := strings.Count(b.get("/accounts?text="+url.QueryEscape("Bir kere "+t.Name())).text, `<th scope="row">`); n != 1 {
		t.Errorf("%d accounts", n)
	}
	// What is remembered of it later says only that it was done.
	s.pages.sent.mu.Lock()
	for _, sent := range s.pages.sent.last {
		sent.answer = nil
	}
	s.pages.sent.mu.Unlock()
	b.post("/accounts", form).wantDone(b, "sent-before")
}

func TestRotateClientSecret_ShowsItOnceAndTheOldOneWorks(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Rotasyon")
	page := "/accounts/" + v.id
	stale := b.get(page).form(page+"/secret", "", "")
	a := b.submit(page, page+"/secret").want(http.StatusOK, "only time", "24 hours")
	fresh := issued(t, a)
	if fresh.id != v.id || fresh.secret == v.secret {
		t.Fatalf("%+v", fresh)
	}
	until := time.Now().Add(24 * time.Hour).In(delivery.Istanbul).Format("2 Jan 2006 15:")
	a.want(200, "works until "+until[:len(until)-3])
	s.as(v)
	s.as(fresh)
	b.get(page).without(fresh.secret, v.secret)
	// A page from before it must not rotate again: that would end the secret in use.
	b.post(page+"/secret", stale).want(http.StatusUnprocessableEntity, "changed since")
	s.as(v)
	if strings.Contains(s.log.String(), fresh.secret) {
		t.Error("the secret is in the panel's log")
	}
}

//rule:limits-and-idempotency/sustained-excess-in-at-least
func TestSuspendAccount_HoldsAtOnceAndIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Durdurulan")
	api := s.as(v)
	page := "/accounts/" + v.id
	b.press(page, page+"/state", "suspended", "true").wantDone(b, "account-suspended").want(200, "suspended")
	if !s.account(v).Suspended {
		t.Error("not suspended in the ledger")
	}
	if a := s.ask(api, "/webhook"); a.Code != string(delivery.CodeAccountSuspended) {
		t.Errorf("a suspended account is answered %d %s", a.Status, a.Code)
	}
	b.press(page, page+"/state", "suspended", "false").wantDone(b, "account-resumed")
	if a := s.ask(api, "/webhook"); a.Code != string(delivery.CodeWebhookNotConfigured) {
		t.Errorf("a resumed account is answered %d %s", a.Status, a.Code)
	}
	form := b.get(page).form(page+"/state", "suspended", "true")
	form.Set("suspended", "perhaps")
	b.post(page+"/state", form).want(http.StatusUnprocessableEntity, "suspended")
}

func (s *scene) ask(c *client.Client, path string) *client.Answer {
	s.Helper()
	a, err := c.Do(s.Context(), http.MethodGet, path, nil)
	must(s, err)
	return a
}

func TestRenameAccount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Eski")
	page := "/accounts/" + v.id
	b.submit(page, page+"/name", "name", "Yeni İsim").wantDone(b, "account-renamed").want(200, "Yeni İsim")
	if got := s.account(v).Name; got != "Yeni İsim" {
		t.Error(got)
	}
	a := b.submit(page, page+"/name", "name", "").want(http.StatusUnprocessableEntity)
	if a.fault("name") != "must have 1 to 200 characters" || a.value("name") != "" {
		t.Errorf("%q, %q", a.fault("name"), a.value("name"))
	}
}

func TestLimitAccount_GatewayHonoursItAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Sınırlı")
	api := s.as(v)
	page := "/accounts/" + v.id
	b.submit(page, page+"/limits", "limits.stores.burst.count", "3", "limits.orders.sustained.count", "50").wantDone(b, "account-limited")
	want := delivery.DefaultLimits()
	want.Stores.Burst.Count, want.Orders.Sustained.Count = 3, 50
	if got := s.account(v).Limits; got != want {
		t.Fatalf("%+v", got)
	}
	passed := 0
	for s.ask(api, "/webhook").Code != string(delivery.CodeRateLimited) {
		passed++
	}
	if passed != 3 {
		t.Errorf("%d requests passed, want 3", passed)
	}
	// The page shows the use beside each limit, and so does the part that refreshes.
	for _, path := range []string{page, page + "/use"} {
		meters := map[string]string{}
		for _, m := range all(b.get(path).want(200).tree(), "meter") {
			meters[attribute(m, "aria-label")] = attribute(m, "value") + " of " + attribute(m, "max")
		}
		if got := meters["stores, burst: used now"]; got != "3 of 3" {
			t.Errorf("%s: %q in %v", path, got, meters)
		}
		if got := meters["orders, sustained: used now"]; got != "0 of 50" {
			t.Errorf("%s: %q", path, got)
		}
	}
	b.submit(page, page+"/limits", "limits.stores.burst.count", "200").wantDone(b, "account-limited")
	s.await("requests to pass again", func() bool { return s.ask(api, "/webhook").Code != string(delivery.CodeRateLimited) })
}

func TestLimitAccount_Refusals(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Yanlış sınır")
	page := "/accounts/" + v.id
	for _, c := range []struct{ field, typed, fault string }{
		{"limits.orders.sustained.count", "0", "must be a whole number from 1 to 1000000"},
		{"limits.orders.sustained.count", "", "must be a number"},
		{"limits.orders.burst.seconds", "86401", "must be a whole number from 1 to 86400"},
		{"limits.stores.burst.count", "many", "must be a number"},
		{"limits.token.sustained.seconds", "1.5", "must be a number"},
		{"limits.token.sustained.seconds", "007", "must be a number"},
		{"limits.cancel.sustained.count", "99999999999999999999", "must be a number"},
		{"limits.cancel.burst.count", "5", ""}, // without its seconds
	} {
		a := b.submit(page, page+"/limits", c.field, c.typed, "limits.orderStatus.sustained.count", "77").want(http.StatusUnprocessableEntity)
		if got := a.fault(c.field); got != c.fault {
			t.Errorf("%s %q: %q, want %q", c.field, c.typed, got, c.fault)
		}
		if got := a.value(c.field); got != c.typed {
			t.Errorf("%s %q became %q", c.field, c.typed, got)
		}
		if got := a.value("limits.orderStatus.sustained.count"); got != "77" {
			t.Errorf("the other field became %q", got)
		}
	}
	if got := s.account(v).Limits; got != delivery.DefaultLimits() {
		t.Errorf("%+v", got)
	}
}

func TestLimitAccount_ChangesOnlyWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("İki operatör")
	page := "/accounts/" + v.id
	form := b.get(page).form(page+"/limits", "", "")
	s.call(http.MethodPatch, "/accounts/"+v.id, map[string]any{"limits": map[string]any{"orders": map[string]any{"burst": map[string]int{"count": 7, "seconds": 10}}}})
	form.Set("limits.cancel.burst.count", "9")
	form.Set("limits.cancel.burst.seconds", "3")
	b.post(page+"/limits", form).wantDone(b, "account-limited")
	want := delivery.DefaultLimits()
	want.Orders.Burst.Count, want.Cancel.Burst = 7, delivery.Window{Count: 9, Seconds: 3}
	if got := s.account(v).Limits; got != want {
		t.Errorf("%+v", got)
	}
	b.submit(page, page+"/limits").wantDone(b, "unchanged")
}

func TestAccounts_FindsTheTurkishWayAndPutsTheNoticeableFirst(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	quiet, loud := s.newAccount("Ağaçlı IŞIK İstanbul a"), s.newAccount("Ağaçlı IŞIK İstanbul b")
	s.call(http.MethodPatch, "/accounts/"+loud.id, map[string]bool{"suspended": true})
	for _, text := range []string{"ağaçlı ışık", "AĞAÇLI IŞIK", "ışık istanbul", "IŞIK ISTANBUL", quiet.id, quiet.clientID} {
		a := b.get("/accounts?text="+url.QueryEscape(text)).want(200, quiet.id)
		if at, other := strings.Index(a.text, "/accounts/"+loud.id), strings.Index(a.text, "/accounts/"+quiet.id); at > other {
			t.Errorf("%s: the suspended account comes later", text)
		}
		if a.value("text") != text {
			t.Errorf("%q became %q", text, a.value("text"))
		}
	}
	b.get("/accounts?text=hiçbiri-böyle-değil").want(200, "No account is like this")
}

func TestAccounts_ShowsTheUseOfOrders(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	v := s.newAccount("Kullanım " + t.Name())
	api := s.as(v)
	for range 4 {
		_, err := api.Do(t.Context(), http.MethodPost, "/orders", map[string]string{})
		must(t, err)
	}
	a := s.browser("deniz").get("/accounts?text=" + v.id).want(200)
	if got := fmt.Sprint(words(all(a.tree(), "tbody")[0])); !strings.Contains(got, "4 of 600 in 60 s") || !strings.Contains(got, "4 of 120 in 10 s") {
		t.Error(got)
	}
}

func TestNoticeableFirst_ExcessThenSuspendedThenByName(t *testing.T) {
	t.Parallel()
	since := time.Now()
	accounts := []*delivery.Account{{Name: "a"}, {Name: "b", Suspended: true}, {Name: "c"}, {Name: "d", ExcessSince: since}, {Name: "e", ExcessSince: since, Suspended: true}, {Name: "f", Suspended: true}}
	slices.SortStableFunc(accounts, noticeableFirst)
	var names string
	for _, a := range accounts {
		names += a.Name
	}
	if names != "debfac" {
		t.Error(names)
	}
}
