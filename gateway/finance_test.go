package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
)

// finance is how tests that take an account name finance.
var finance = party{id: delivery.FinanceAccount.String(), clientID: delivery.FinanceAccount.ClientID()}

const digest = `"2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"`

// reportBody is an announcement with these members instead of its own; "" leaves one out.
func reportBody(changes ...string) string {
	members := map[string]string{"id": `"closing-2026-10"`, "kind": `"closing"`, "month": `"2026-10"`, "seal": `{"sequence":7,"sha256":` + digest + `}`,
		"files": `[{"target":"erp","name":"2026-10/order-ledger.csv","sha256":` + digest + `}]`, "at": `"2026-11-02T06:00:00+03:00"`}
	for i := 0; i+1 < len(changes); i += 2 {
		members[changes[i]] = changes[i+1]
	}

	var parts []string
	for _, name := range []string{"id", "kind", "month", "seal", "files", "at"} {
		if members[name] != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", name, members[name]))
		}
	}

	return "{" + strings.Join(parts, ",") + "}"
}

func (e *env) announce(changes ...string) answer {
	return e.tryAdmin("POST", "/finance/reports/available", reportBody(changes...))
}

//rule:admin-api/put-finance-webhook admin-api/post-finance-reports-available
func TestFinance_AReportIsAnnouncedOnceForEachID(t *testing.T) {
	e := newEnv(t)
	want(t, e.announce(), 404, "WEBHOOK_NOT_CONFIGURED")
	want(t, e.tryAdmin("GET", "/finance/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	want(t, e.tryAdmin("DELETE", "/finance/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	put := want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://erp.example/a"}`), 200, "", "url", "https://erp.example/a")
	if secret, _ := put.data["secret"].(string); !strings.HasPrefix(secret, "whsec_") || put.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", put.body, put.header)
	}

	want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://erp.example/b"}`), 200, "", "secret", absent) // which is shown once

	const event = "evt_2c8fce20-6377-5a0c-b57b-b8a754445b1d"
	var together sync.WaitGroup
	for range 6 {
		together.Go(func() { want(t, e.announce(), 200, "", "eventId", event) })
	}

	together.Wait()
	want(t, e.announce("kind", `"scheduled"`, "month", "", "seal", "", "files", "[]"), 200, "", "eventId", event) // the first one counts
	other := want(t, e.announce("id", `"s-1"`, "kind", `"scheduled"`, "month", "", "seal", "", "files", "[]"), 200, "").data["eventId"]
	sent := e.attempts(2, accepted)
	for i, wanted := range []struct{ id, data string }{
		{event, strings.Replace(reportBody(), "06:00:00+", "06:00:00.000+", 1)},
		{fmt.Sprint(other), `{"id":"s-1","kind":"scheduled","files":[],"at":"2026-11-02T06:00:00.000+03:00"}`},
	} {
		if d := sent[i].Delivery; d.EventID != wanted.id || d.Type != delivery.ReportAvailable || d.Account != delivery.FinanceAccount || string(d.Data) != wanted.data {
			t.Errorf("%+v %s", d, d.Data)
		}
	}

	want(t, e.tryAdmin("GET", "/finance/webhook", ""), 200, "", "accountId", finance.id, "waitingEvents", 0, "status", "healthy", "secret", absent)
	want(t, e.announce(), 200, "", "eventId", event) // and it is not sent again
	e.take()
	e.health(finance, "waitingEvents", 0)
	want(t, e.tryAdmin("DELETE", "/finance/webhook", ""), 200, "")
	want(t, e.announce(), 404, "WEBHOOK_NOT_CONFIGURED")
}

// What operators do to vendors' receivers they do to finance's.
func TestFinance_ReceiverIsOperatedAsOthers(t *testing.T) {
	e := newEnv(t)
	path := webhookPath(finance)
	want(t, e.tryAdmin("PUT", path, `{"url":"https://erp.example/"}`), 200, "")
	event := e.announce().data["eventId"].(string)
	e.attempts(1, givenUp)
	for body, n := range map[string]int{`{"status":"undelivered"}`: 1, `{"eventIds":["` + event + `"]}`: 1} {
		want(t, e.tryAdmin("POST", path+"/replay", body), 200, "", "replayed", n)
		if got := eventsOf(e.attempts(1, givenUp), finance); len(got) != 1 || got[0] != event {
			t.Errorf("%s: %v", body, got)
		}
	}

	if rotated := e.admin("POST", path+"/rotate", ""); !strings.HasPrefix(fmt.Sprint(rotated.data["secret"]), "whsec_") {
		t.Errorf("%s", rotated.body)
	}
	if _, facts := e.stands(finance); len(facts.Earlier) != 1 || facts.Proven {
		t.Errorf("after a rotation %+v", facts)
	}

	e.admin("POST", path+"/test", "")
	if sent := e.attempts(1, accepted); sent[0].Delivery.Type != delivery.WebhookTest {
		t.Errorf("%+v", sent[0].Delivery)
	}

	want(t, e.tryAdmin("PATCH", path, `{"maxInFlight":3}`), 200, "", "maxInFlight", 3)
	listed := e.admin("GET", "/webhooks", "").list("webhooks")
	if len(listed) != 1 {
		t.Fatalf("%v", listed)
	}

	wantMembers(t, "list", listed[0], "accountId", finance.id, "accountName", "Finance", "url", "https://erp.example/")
	if lines := e.admin("GET", path+"/deliveries?status=undelivered", "").list("deliveries"); len(lines) != 3 || lines[0]["event"] != "report.available" {
		t.Errorf("%v", lines)
	}
}

func TestFinance_IsNoVendor(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount("")
	want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://erp.example/"}`), 200, "")
	if all := e.admin("GET", "/accounts", "").list("accounts"); len(all) != 1 {
		t.Errorf("%v", all)
	}

	account := "/accounts/" + finance.id
	for _, r := range [][3]string{{"GET", account, ""}, {"PATCH", account, `{"suspended":false}`}, {"POST", account + "/credentials", ""}} {
		want(t, e.tryAdmin(r[0], r[1], r[2]), 404, "ACCOUNT_NOT_FOUND")
	}

	for _, secret := range []string{"", "vas_" + strings.Repeat("A", 43), e.account.secret} {
		if a := e.login("vendor", finance.clientID, secret); a.status != 401 && a.status != 422 {
			t.Errorf("%q: %d %s", secret, a.status, a.body)
		}
	}

	for _, key := range []string{e.account.token, e.newFleet("Kurye", istanbul).token, ""} {
		want(t, e.send(request{method: "POST", url: e.private + "/api/admin/v1/finance/reports/available", token: key, body: reportBody()}), 401, "TOKEN_INVALID")
	}

	e.events(0)
}

//rule:webhooks/urls-are-https-and-public
func TestFinance_URLIsGuardedAsVendorsAre(t *testing.T) {
	e := newEnv(t, func(s *settings) { s.Webhook.LocalReceivers = receiversNever })
	for _, url := range []string{"https://10.0.0.1/", "http://erp.example/", "https://127.0.0.1/", "https://erp.internal/", "https://a:b@erp.example/", ""} {
		wantField(t, e.tryAdmin("PUT", "/finance/webhook", fmt.Sprintf(`{"url":%q}`, url)), 422, "VALIDATION_FAILED", "url")
	}
	want(t, e.tryAdmin("GET", "/finance/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
}

func TestFinance_WrongReportsAreRefused(t *testing.T) {
	e := newEnv(t)
	want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://erp.example/"}`), 200, "")
	one := `{"target":"a","name":"b","sha256":` + digest + `}`
	file := func(member, value string) string { return strings.Replace("["+one+","+one+"]", member, value, 1) }
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for field, values := range map[string][]string{
		"id": {"", "null", "7", `""`, `" "`, long(101), `"a\u0000"`}, "kind": {"", `"Closing"`, `"monthly"`, "1"}, "month": {"", `"2026-13"`, `"2026-1"`, `"10-2026"`, `"2026-10-01"`, "202610"},
		"seal": {"7", `"x"`, "[]"}, "files": {"", "null", "{}", `"x"`, "[" + strings.Repeat(one+",", 500) + one + "]"}, "at": {"", `"yesterday"`, "1"},
	} {
		for _, value := range values {
			wantField(t, e.announce(field, value), 422, "VALIDATION_FAILED", field)
		}
	}

	for field, body := range map[string]string{
		"seal.sequence": `{"sha256":` + digest + `}`, "seal.sha256": `{"sequence":1}`,
	} {
		wantField(t, e.announce("seal", body), 422, "VALIDATION_FAILED", field)
	}

	for _, sequence := range []string{"0", "-1", "1.5", "9007199254740992", `"1"`} {
		wantField(t, e.announce("seal", `{"sequence":`+sequence+`,"sha256":`+digest+`}`), 422, "VALIDATION_FAILED", "seal.sequence")
	}

	for _, c := range [][3]string{
		{`"target":"a"`, `"target":` + long(201), "files[0].target"}, {`"target":"a",`, "", "files[0].target"}, {`"name":"b"`, `"name":` + long(256), "files[0].name"},
		{`"name":"b"`, `"name":1`, "files[0].name"}, {digest, `"2C26"`, "files[0].sha256"}, {digest, strings.ToUpper(digest), "files[0].sha256"},
		{"[{", "[7,{", "files[0]"}, {"[{", "[null,{", "files[0].target"},
	} {
		wantField(t, e.announce("files", file(c[0], c[1])), 422, "VALIDATION_FAILED", c[2])
	}

	for _, body := range []string{`[]`, `{"id":"a","id":"b"}`, reportBody() + "x", `{"files":[{"name":"a","name":"b"}]}`, "{"} {
		want(t, e.tryAdmin("POST", "/finance/reports/available", body), 400, "MALFORMED_REQUEST")
	}

	if sent := e.attempts(0, accepted); len(sent) != 0 {
		t.Errorf("%d events", len(sent))
	}

	e.health(finance, "waitingEvents", 0)
	want(t, e.announce("files", file("", "")), 200, "")
}

// An entry says who announced what, and with which result. It names the receiver by its host and a digest of its URL.
func TestFinance_IsInTheAuditTrail(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct {
		method, path, body, action, old, changed, outcome string
	}{
		{"POST", "/reports/available", reportBody(), "report announced", "", `{"id":"closing-2026-10","kind":"closing","month":"2026-10"}`, "WEBHOOK_NOT_CONFIGURED"},
		{"PUT", "/webhook", `{"url":"https://erp.example/x?key=hidden"}`, "webhook registered", "", `{"sha256":"8da2da2c…","url":"https://erp.example/…"}`, ""},
		{"POST", "/reports/available", reportBody(), "report announced", "", `{"id":"closing-2026-10","kind":"closing","month":"2026-10"}`, ""},
		{"DELETE", "/webhook", "", "webhook deleted", `{"sha256":"8da2da2c…","url":"https://erp.example/…"}`, "", ""},
	} {
		e.tryAdmin(c.method, "/finance"+c.path, c.body)
		got, _ := e.lastAudited()
		wanted := audit.Entry{Action: c.action, Old: c.old, New: c.changed, Outcome: c.outcome, Account: delivery.FinanceAccount}
		if (audit.Entry{Action: got.Action, Old: got.Old, New: got.New, Outcome: got.Outcome, Account: got.Account}) != wanted {
			t.Errorf("%+v, want %+v", got, wanted)
		}
	}
}

// An operator's own key changes nothing of finance's receiver, wherever the API has it: who moves it gets finance's
// events. It reads it, and does to vendors' receivers what it did before.
//
//rule:admin-api/put-finance-webhook
func TestFinance_AnOperatorsKeyChangesNothingOfItsReceiver(t *testing.T) {
	e := newEnv(t).withStore("")
	e.g.adminKeys = append(e.g.adminKeys, namedKey("ayse", ayseKey))
	asAyse := func(method, path, body string) answer {
		return e.send(request{method: method, url: e.private + "/api/admin/v1" + path, token: ayseKey, body: body})
	}
	want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"https://erp.example/"}`), 200, "")
	secrets := func() string {
		_, facts := e.stands(finance)
		return fmt.Sprint(facts)
	}

	before := secrets()

	const stolen = `{"url":"https://stolen.example/"}`
	for _, c := range [][3]string{
		{"PUT", "/finance/webhook", stolen}, {"DELETE", "/finance/webhook", ""}, {"POST", "/finance/reports/available", reportBody()},
		{"PUT", webhookPath(finance), stolen}, {"PATCH", webhookPath(finance), `{"maxInFlight":3}`}, {"POST", webhookPath(finance) + "/rotate", ""},
		{"POST", webhookPath(finance) + "/replay", `{"status":"undelivered"}`}, {"POST", webhookPath(finance) + "/test", ""},
	} {
		want(t, asAyse(c[0], c[1], c[2]), 403, "FORBIDDEN")
	}

	want(t, asAyse("GET", "/finance/webhook", ""), 200, "", "url", "https://erp.example/", "waitingEvents", 0)
	if after := secrets(); after != before {
		t.Errorf("finance's endpoint was\n%s\nand is\n%s", before, after)
	}

	want(t, asAyse("PUT", webhookPath(e.account), `{"url":"https://vendor.example/"}`), 200, "")
}
