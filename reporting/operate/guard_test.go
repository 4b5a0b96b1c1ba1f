package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/frame"
)

// filled puts real ids into a route's pattern.
func filled(pattern string, v vendor, fleet delivery.FleetID) string {
	return strings.NewReplacer("{account}", v.id, "{fleet}", fleet.String(), "{store}", "s1").Replace(pattern)
}

func TestRoutes_AreForOperatorsOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	v, fleet := s.newAccount("Roller"), s.newFleet("Roller filosu")
	s.putStore(v, "s1", "Şube", fleet)
	s.register(v, "https://vendor.example/")
	finance := s.browser("ayse")
	stranger := s.stranger()
	before := s.account(v).Revision
	for pattern := range s.pages.shown() {
		path := filled(pattern, v, fleet)
		finance.get(path).want(http.StatusForbidden, "needs the role operator").without("Roller filosu")
		if a := stranger.get(path).want(http.StatusSeeOther); !strings.HasPrefix(a.Header.Get("Location"), "/login") {
			t.Errorf("a stranger at %s is led to %s", path, a.Header.Get("Location"))
		}
	}
	for pattern := range s.pages.actions() {
		path := filled(pattern, v, fleet)
		form := url.Values{"suspended": {"true"}, "name": {"x"}, "reason": {"VendorRequest"}}
		finance.post(path, form).want(http.StatusForbidden)
		stranger.post(path, form).want(http.StatusSeeOther)
	}
	if s.account(v).Revision != before || s.fleet(fleet).Suspended || s.store(v, "s1").State != delivery.AwaitingFleetApproval {
		t.Error("something was changed")
	}
}

func TestActions_NeedThePagesProof(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	v, fleet := s.newAccount("Kanıt"), s.newFleet("Kanıt filosu")
	s.putStore(v, "s1", "Şube", fleet)
	b := s.browser("deniz")
	proof := b.get("/accounts").form("/accounts", "", "").Get("csrf")
	again := s.stranger()
	again.signIn("deniz")
	other := again.get("/accounts").form("/accounts", "", "").Get("csrf")
	for pattern := range s.pages.actions() {
		path := filled(pattern, v, fleet)
		for name, form := range map[string]url.Values{"without": {}, "with another session's": {"csrf": {other}}, "with an empty": {"csrf": {""}}} {
			if a := b.post(path, form); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s proof: %d", path, name, a.StatusCode)
			}
		}
		if a := b.post(path, url.Values{"csrf": {proof}}, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s from another site: %d", path, a.StatusCode)
		}
	}
	if s.fleet(fleet).Suspended || s.store(v, "s1").State != delivery.AwaitingFleetApproval || s.account(v).Suspended {
		t.Error("something was changed")
	}
}

func TestActions_NameTheOperatorInTheAuditLog(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Denetim")
	page := "/accounts/" + v.id
	b.press(page, page+"/state", "suspended", "true").wantDone(b, "account-suspended")
	log, err := os.ReadFile(system.Gateway.LogPath())
	must(t, err)
	if !strings.Contains(string(log), `msg="admin: account changed" operator=deniz account=`+v.id+" suspended=true") {
		t.Error("the gateway's log does not name who did it")
	}
}

func TestActions_GatewayAwayKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := newSceneAt(t, "http://127.0.0.1:1") // nobody listens there
	b := s.browser("deniz")
	v, fleet := s.newAccount("Kapı kapalı"), s.newFleet("Kapı kapalı filo")
	s.activeStore(v, "s1", "Şube", fleet)
	s.register(v, "https://vendor.example/")
	account, webhook, store, area := "/accounts/"+v.id, "/webhooks/"+v.id, frame.StorePath(v.account(), "s1", ""), "/fleets/"+fleet.String()
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
			a := b.submit(c.page, c.action, c.field, c.typed).want(http.StatusServiceUnavailable, "The gateway does not answer", `role="alert"`)
			if got := a.value(c.field); got != c.typed {
				t.Errorf("%s: %q became %q", c.action, c.typed, got)
			}
		}
	}
	b.submit(account, account+"/secret").want(http.StatusServiceUnavailable, "The gateway does not answer").without("only time")
}

func TestOnce_ManyAtOnceAreOneDeed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	form := b.get("/accounts").form("/accounts", "", "")
	form.Set("name", "Aynı anda "+t.Name())
	var all sync.WaitGroup
	secrets := make([]vendor, 8)
	for i := range secrets {
		all.Go(func() { secrets[i] = issued(t, b.post("/accounts", form)) })
	}
	all.Wait()
	for _, v := range secrets {
		if v != secrets[0] {
			t.Errorf("%d different answers: %v", len(secrets), secrets)
			break
		}
	}
	// Another content under the same number is another deed.
	form.Set("name", "Başka bir "+t.Name())
	if v := issued(t, b.post("/accounts", form).want(200)); v == secrets[0] {
		t.Error("another form got the first one's answer")
	}
}

func TestOnce_FormWithoutItsNumberIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	v, fleet := s.newAccount("Numarasız"), s.newFleet("Numarasız filo")
	s.putStore(v, "s1", "Şube", fleet)
	b := s.browser("deniz")
	proof := b.get("/accounts").form("/accounts", "", "").Get("csrf")
	for pattern := range s.pages.actions() {
		for _, form := range []url.Values{{}, {"once": {""}}} {
			form.Set("csrf", proof)
			form.Set("name", "x")
			form.Set("suspended", "true")
			b.post(filled(pattern, v, fleet), form).want(http.StatusBadRequest, "MALFORMED_REQUEST")
		}
	}
	if s.account(v).Suspended || s.account(v).Name != "Numarasız" || s.fleet(fleet).Suspended || s.store(v, "s1").State != delivery.AwaitingFleetApproval {
		t.Error("something was changed")
	}
}

func TestForms_ThatAreNotUTF8AreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet := s.newAccount("Okunur ad"), s.newFleet("Okunur filo")
	for _, action := range []string{"/accounts/" + v.id + "/name", "/fleets/" + fleet.String() + "/fields"} {
		page := action[:strings.LastIndex(action, "/")]
		b.submit(page, action, "name", "\xff\xfe").want(http.StatusBadRequest, "MALFORMED_REQUEST", "not UTF-8")
		form := b.get(page).form(action, "", "")
		form.Set("\xff", "x")
		b.post(action, form).want(http.StatusBadRequest, "not UTF-8")
	}
	if s.account(v).Name != "Okunur ad" || s.fleet(fleet).Name != "Okunur filo" {
		t.Error("something was changed")
	}
}

func TestOnce_PanicEndsTheDeed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	form, first := s.pages.sent.begin(formKey{1})
	if !first {
		t.Fatal("not the first")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.pages.carryOut(func(http.ResponseWriter, *http.Request) error { panic("broken") }, form, formKey{1}, nil, nil)
	}()
	<-form.ended
	if _, first := s.pages.sent.begin(formKey{1}); form.err == nil || !first {
		t.Errorf("%v, may be sent again: %v", form.err, first)
	}
}

func TestOnce_IsBounded(t *testing.T) {
	t.Parallel()
	var s sentForms
	for i := range mostSentForms + 10 {
		if _, first := s.begin(formKey{byte(i), byte(i >> 8), byte(i >> 16)}); !first {
			t.Fatal("not the first")
		}
	}
	if len(s.last) != mostSentForms {
		t.Error(len(s.last))
	}
}

// What vendors, couriers and receivers write stands on pages as text.
func TestPages_ShowMarkupAsText(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	for i, evil := range []string{
		`"><xss onload=alert(1)>`, `'><xss>`, `</textarea></title></option><xss>`, `<script>xss()</script>`, `<!--<xss>`, `]]><xss>`, `javascript:xss()`, `&lt;xss&gt;`, "{{.CSRF}}<xss>", `"hx-get="/xss" x="`, `\"><xss>`, "`<xss>", `<svg><xss/>`,
	} {
		v, fleet := s.newAccount(evil), s.newFleet(evil)
		s.call(http.MethodPatch, "/fleets/"+fleet.String(), map[string]string{"subRegion": evil})
		s.putStore(v, evil, evil, fleet)
		s.activeStore(v, "active", evil, fleet)
		r := s.receiver(500, strings.Repeat(evil, 3))
		s.register(v, r.URL+"/?"+url.QueryEscape(evil)+`'"`)
		s.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
		s.await("the attempt", func() bool { return strings.Contains(b.get("/webhooks/"+v.id).text, "answer-evt") })
		q := url.QueryEscape(evil)
		for path, shown := range map[string]bool{
			"/webhooks?text=" + v.id: true, "/webhooks/live?text=" + v.id: true, "/webhooks?text=" + q: false, "/webhooks?state=" + q: false, "/webhooks?page=" + q: false,
			"/webhooks/" + v.id: true, "/webhooks/" + v.id + "/live": true, "/webhooks/" + v.id + "?status=" + q + "&page=" + q: false,
			"/accounts?text=" + v.id: true, "/accounts?text=" + q: false, "/accounts/" + v.id: true, "/accounts/" + v.id + "/use": false,
			"/fleets?text=" + fleet.String(): true, "/fleets?text=" + q: false, "/fleets/" + fleet.String(): true,
			"/stores?account=" + v.id: true, "/stores?text=" + q: false, "/stores?account=" + q: false, "/stores?fleet=" + q + "&state=" + q: false,
			frame.StorePath(v.account(), evil, ""): true, "/accounts?done=" + q: false,
		} {
			status := http.StatusOK
			for _, filter := range []string{"state", "page", "status", "account", "fleet"} {
				if strings.Contains(path, filter+"="+q) {
					status = http.StatusUnprocessableEntity
				}
			}
			a := b.get(path).want(status)
			harmless(t, fmt.Sprint(i, " ", path), a)
			if shown && !strings.Contains(words(a.tree()), strings.Join(strings.Fields(evil), " ")) {
				t.Errorf("%s does not show %q", path, evil)
			}
		}
		for action, field := range map[string]string{"/accounts": "name", "/fleets": "coverage"} {
			form := b.get(action).form(action, "", "")
			form.Set(field, evil+"\x01")
			harmless(t, action, b.post(action, form).want(http.StatusUnprocessableEntity))
		}
	}
}

// harmless finds markup that is not the panel's own.
func harmless(t *testing.T, what string, a answer) {
	t.Helper()
	for n := range a.tree().Descendants() {
		for _, attr := range n.Attr {
			if strings.HasPrefix(attr.Key, "on") || attr.Key == "style" || strings.HasPrefix(attr.Key, "hx-get") && strings.Contains(attr.Val, "/xss") ||
				(attr.Key == "href" || attr.Key == "src" || attr.Key == "action") && !strings.HasPrefix(attr.Val, "/") && !strings.HasPrefix(attr.Val, "#") {
				t.Errorf("%s: <%s %s=%q>", what, n.Data, attr.Key, attr.Val)
			}
		}
		if n.Data == "xss" || n.Data == "script" && (n.FirstChild != nil || !strings.HasPrefix(attribute(n, "src"), "/assets/")) || n.Data == "style" {
			t.Errorf("%s: <%s>", what, n.Data)
		}
	}
}
