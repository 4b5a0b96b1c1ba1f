package admin

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/layout"
)

// filled puts real ids into a route's pattern.
func filled(pattern string, v vendor, fleet delivery.FleetID) string {
	return strings.NewReplacer("{account}", v.id, "{fleet}", fleet.String(), "{store}", "s1").Replace(pattern)
}

// patterns are the paths of a method's routes.
func (e *env) patterns(method string) (paths []string) {
	for route := range e.pages.routes() {
		if path, is := strings.CutPrefix(route, method+" "); is {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestRoutes_AreForOperatorsOnly(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Roller"), e.newFleet("Roller filosu")
	e.putStore(v, "s1", "Şube", fleet)
	e.register(v, "https://vendor.example/")
	finance := e.browser("ayse")
	stranger := e.stranger()
	before := e.account(v).Revision
	for _, pattern := range e.patterns("GET") {
		path := filled(pattern, v, fleet)
		finance.Get(path).Want(http.StatusForbidden, "needs the role operator").Lacks("Roller filosu")
		if a := stranger.Get(path).Want(http.StatusSeeOther); !strings.HasPrefix(a.Header.Get("Location"), "/login") {
			t.Errorf("a stranger at %s is led to %s", path, a.Header.Get("Location"))
		}
	}

	for _, pattern := range e.patterns("POST") {
		path := filled(pattern, v, fleet)
		form := url.Values{"suspended": {"true"}, "name": {"x"}, "reason": {"VendorRequest"}}
		finance.Post(path, form).Want(http.StatusForbidden)
		stranger.Post(path, form).Want(http.StatusSeeOther)
	}

	if e.account(v).Revision != before || e.fleet(fleet).Suspended || e.store(v, "s1").State != delivery.AwaitingFleetApproval {
		t.Error("something was changed")
	}
}

func TestActions_NeedThePagesProof(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Kanıt"), e.newFleet("Kanıt filosu")
	e.putStore(v, "s1", "Şube", fleet)
	proof := e.Get("/accounts").Form("/accounts", "", "").Get("csrf")
	again := e.stranger()
	authenv.SignIn(again, "deniz")
	other := again.Get("/accounts").Form("/accounts", "", "").Get("csrf")
	for _, pattern := range e.patterns("POST") {
		path := filled(pattern, v, fleet)
		for name, form := range map[string]url.Values{"without": {}, "with another session's": {"csrf": {other}}, "with an empty": {"csrf": {""}}} {
			if a := e.Post(path, form); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s proof: %d", path, name, a.StatusCode)
			}
		}

		if a := e.Post(path, url.Values{"csrf": {proof}}, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s from another site: %d", path, a.StatusCode)
		}
	}

	if e.fleet(fleet).Suspended || e.store(v, "s1").State != delivery.AwaitingFleetApproval || e.account(v).Suspended {
		t.Error("something was changed")
	}
}

func TestActions_NameTheOperatorInTheAuditLog(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Denetim")
	page := "/accounts/" + v.id
	e.done(e.Press(page, page+"/state", "suspended", "true"), "account-suspended")
	e.await("the gateway's log names who did it", func() bool {
		log, err := os.ReadFile(system.Gateway.Log)
		must(t, err)
		return strings.Contains(string(log), `msg="admin: account changed" operator=deniz account=`+v.id+" ")
	})
}

func TestActions_GatewayAwayKeepsWhatWasTyped(t *testing.T) {
	e := newEnvAt(t, "http://127.0.0.1:1") // nobody listens there
	v, fleet := e.newAccount("Kapı kapalı"), e.newFleet("Kapı kapalı filo")
	e.activeStore(v, "s1", "Şube", fleet)
	e.register(v, "https://vendor.example/")
	account, webhook, store, area := "/accounts/"+v.id, "/webhooks/"+v.id, layout.StorePath(v.account(), "s1", ""), "/fleets/"+fleet.String()
	for _, c := range []struct{ page, action, field, typed string }{
		{"/accounts", "/accounts", "name", "Yeni <ad>"},
		{"/fleets", "/fleets", "coverage", "\n" + ankara},
		{account, account + "/name", "name", "Başka"},
		{account, account + "/limits", "limits.orders.burst.count", "9"},
		{webhook, webhook + "/url", "url", "https://other.example/"},
		{webhook, webhook + "/limits", "maxInFlight", "3"},
		{area, area + "/fields", "name", "Başka"},
		{area, area + "/coverage", "coverage", ankara},
		{store, store + "/migrate", "closingDate", "2099-12-31"},
		{store, store + "/deactivate", "reason", "FleetSuspended"},
	} {
		for range 2 { // what was refused can be sent again
			a := e.Submit(c.page, c.action, c.field, c.typed).Want(http.StatusServiceUnavailable, "The gateway does not answer", `role="alert"`)
			if got := a.Value(c.field); got != c.typed {
				t.Errorf("%s: %q became %q", c.action, c.typed, got)
			}
		}
	}

	e.Submit(account, account+"/secret").Want(http.StatusServiceUnavailable, "The gateway does not answer").Lacks("only time")
}

func TestOnce_TheSameFormManyTimesIsDoneOnce(t *testing.T) {
	e := newEnv(t)
	form := e.Get("/accounts").Form("/accounts", "", "")
	form.Set("name", unique("Aynı anda"))
	var all sync.WaitGroup
	secrets := make([]vendor, 8)
	for i := range secrets {
		all.Go(func() { secrets[i] = issuedTo(t, e.Post("/accounts", form)) })
	}

	all.Wait()
	for _, v := range secrets {
		if v != secrets[0] {
			t.Errorf("%d different answers: %v", len(secrets), secrets)
			break
		}
	}

	if n := strings.Count(e.Get("/accounts?text="+url.QueryEscape(form.Get("name"))).Text, `<th scope="row">`); n != 1 {
		t.Errorf("%d accounts", n)
	}

	// Another content under the same number is another request.
	form.Set("name", "Başka bir "+t.Name())
	if v := issuedTo(t, e.Post("/accounts", form).Want(200)); v == secrets[0] {
		t.Error("another form got the first one's answer")
	}
}

func TestOnce_FormWithoutItsNumberIsRefused(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Numarasız"), e.newFleet("Numarasız filo")
	e.putStore(v, "s1", "Şube", fleet)
	proof := e.Get("/accounts").Form("/accounts", "", "").Get("csrf")
	for _, pattern := range e.patterns("POST") {
		for _, form := range []url.Values{{}, {"once": {""}}} {
			form.Set("csrf", proof)
			form.Set("name", "x")
			form.Set("suspended", "true")
			e.Post(filled(pattern, v, fleet), form).Want(http.StatusBadRequest, "MALFORMED_REQUEST")
		}
	}

	if e.account(v).Suspended || e.account(v).Name != "Numarasız" || e.fleet(fleet).Suspended || e.store(v, "s1").State != delivery.AwaitingFleetApproval {
		t.Error("something was changed")
	}
}

func TestForms_ThatAreNotUTF8AreRefused(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Okunur ad"), e.newFleet("Okunur filo")
	for _, action := range []string{"/accounts/" + v.id + "/name", "/fleets/" + fleet.String() + "/fields"} {
		page := action[:strings.LastIndex(action, "/")]
		e.Submit(page, action, "name", "\xff\xfe").Want(http.StatusBadRequest, "MALFORMED_REQUEST", "not UTF-8")
		form := e.Get(page).Form(action, "", "")
		form.Set("\xff", "x")
		e.Post(action, form).Want(http.StatusBadRequest, "not UTF-8")
	}

	if e.account(v).Name != "Okunur ad" || e.fleet(fleet).Name != "Okunur filo" {
		t.Error("something was changed")
	}
}

// What vendors, couriers and receivers write stands on pages as text.
func TestPages_ShowMarkupAsText(t *testing.T) {
	e := newEnv(t)
	for _, evil := range []string{`"'><xss onload=alert(1)>{{.CSRF}}`, "</textarea></title></option><script>xss()</script>`<!--", `javascript:xss()`, `\"hx-get="/xss" x="&lt;xss&gt;<svg>]]>`} {
		evil += rand.Text()[:6] // an account that is looked for by its name has it alone
		v, fleet := e.newAccount(evil), e.newFleet(evil)
		e.call(http.MethodPatch, "/fleets/"+fleet.String(), map[string]string{"subRegion": evil})
		e.putStore(v, evil, evil, fleet)
		e.activeStore(v, "active", evil, fleet)
		r := e.receiver(500, strings.Repeat(evil, 3))
		e.register(v, r.URL+"/?"+url.QueryEscape(evil)+`'"`)
		e.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
		e.await("the attempt", func() bool { return strings.Contains(e.Get("/webhooks/"+v.id).Text, "answer-evt") })
		q := url.QueryEscape(evil)
		for path, shown := range map[string]bool{
			"/webhooks?text=" + v.id: true, "/webhooks/live?text=" + v.id: true, "/webhooks?text=" + q: false, "/webhooks?state=" + q: false, "/webhooks?after=" + q: false,
			"/webhooks/" + v.id: true, "/webhooks/" + v.id + "/live": true, "/webhooks/" + v.id + "?status=" + q + "&page=" + q: false,
			"/accounts?text=" + v.id: true, "/accounts?text=" + q: false, "/accounts/" + v.id: true, "/accounts/" + v.id + "/use": false,
			"/fleets?text=" + fleet.String(): true, "/fleets?text=" + q: false, "/fleets/" + fleet.String(): true,
			"/stores?account=" + v.id: true, "/stores?text=" + q: false, "/stores?account=" + q: true, "/stores?fleet=" + q + "&state=" + q: false,
			layout.StorePath(v.account(), evil, ""): true, "/accounts?done=" + q: false,
		} {
			status := http.StatusOK // an account may be looked for by its name, whatever that is
			for _, filter := range []string{"state", "page", "after", "status", "fleet"} {
				if strings.Contains(path, filter+"="+q) {
					status = http.StatusUnprocessableEntity
				}
			}

			a := e.Get(path).Want(status).Harmless()
			if shown && !strings.Contains(testenv.Words(a.Tree()), strings.Join(strings.Fields(evil), " ")) {
				t.Errorf("%s does not show %q", path, evil)
			}
		}

		for action, field := range map[string]string{"/accounts": "name", "/fleets": "coverage"} {
			e.Submit(action, action, field, evil+"\x01").Want(http.StatusUnprocessableEntity).Harmless()
		}
	}
}
