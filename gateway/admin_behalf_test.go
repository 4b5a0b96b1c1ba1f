package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/delivery"
)

func TestAdminStores_ConfirmDoesWhatTheFleetDoes(t *testing.T) {
	e := newStoreEnv(t, "")
	e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id))
	path := "/accounts/" + e.account.id + "/stores/s2"
	for _, body := range []string{"", "{}", `{"fleetId":null}`, `{"fleetId":"` + e.courier.id + `"}`} {
		if a := want(t, e.tryAdmin("POST", path+"/confirm", body), 200, "", "externalStoreId", "s2", "status", "Active"); len(a.data) != 2 {
			t.Errorf("%s: %s", body, a.body)
		}
	}

	want(t, e.tryAdmin("POST", path+"/reject", ""), 409, "STORE_NOT_PENDING")
	want(t, e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/s2/confirm", ""), 200, "", "status", "Active")
	if !strings.Contains(e.logs.String(), `msg="admin: store confirmed for its fleet" operator=ADMIN_KEY account=`+e.account.id+" store=s2") {
		t.Error("the audit log lacks it")
	}

	var bodies []string
	for _, d := range e.events(2, e.account) {
		bodies = append(bodies, string(d.Data))
	}

	slices.Sort(bodies)
	if len(bodies) != 2 || strings.Replace(bodies[1], "s2", "s1", 1) != bodies[0] {
		t.Errorf("events: %q", bodies)
	}
}

func TestAdminStores_RejectSendsTheVendorBack(t *testing.T) {
	e := newStoreEnv(t, "")
	e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id))
	path := "/accounts/" + e.account.id + "/stores/s2"
	want(t, e.tryAdmin("POST", path+"/reject", `{"reason":"Çok uzak"}`), 200, "", "status", "AwaitingFleet")
	want(t, e.tryAdmin("POST", path+"/reject", ""), 409, "STORE_NOT_PENDING", "status", "AwaitingFleet")
	want(t, e.tryAdmin("POST", path+"/confirm", ""), 409, "STORE_NOT_PENDING")
	want(t, e.putStore(e.account, "s2", `{"fleetId":"`+e.courier.id+`"}`), 200, "", "status", "AwaitingFleetApproval")
	e.wantEvents(map[party][]delivery.EventType{e.account: {delivery.StoreActivated, delivery.StoreRejected}}) // of s1 and s2
}

// An operator who looks at an old page answers for nobody else.
func TestAdminStores_AnswersForTheFleetThatWasMeant(t *testing.T) {
	e := newStoreEnv(t, "")
	rival := e.newFleet("Rival", istanbul)
	e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id))
	e.putStore(e.account, "s2", `{"fleetId":"`+rival.id+`"}`)
	path := "/accounts/" + e.account.id + "/stores/s2"
	for _, answer := range []string{"/confirm", "/reject"} {
		want(t, e.tryAdmin("POST", path+answer, `{"fleetId":"`+e.courier.id+`"}`), 404, "STORE_NOT_FOUND")
		for _, body := range []string{`{"fleetId":"x"}`, `{"fleetId":7}`, `{"fleetId":""}`, `{"fleetId":"00000000-0000-0000-0000-000000000000"}`} {
			want(t, e.tryAdmin("POST", path+answer, body), 422, "VALIDATION_FAILED")
		}
		want(t, e.tryAdmin("POST", path+answer, `{`), 400, "MALFORMED_REQUEST")
		want(t, e.tryAdmin("POST", "/accounts/"+e.account.id+"/stores/none"+answer, ""), 404, "STORE_NOT_FOUND")
		want(t, e.tryAdmin("POST", "/accounts/"+delivery.NewAccountID().String()+"/stores/s2"+answer, ""), 404, "STORE_NOT_FOUND")
		want(t, e.tryAdmin("POST", "/accounts/x/stores/s2"+answer, ""), 404, "ACCOUNT_NOT_FOUND")
	}

	want(t, e.tryAdmin("POST", path+"/confirm", `{"fleetId":"`+rival.id+`"}`), 200, "", "status", "Active")
	e.wantEvents(map[party][]delivery.EventType{e.account: {delivery.StoreActivated, delivery.StoreActivated}})
}

func TestAdminStores_FleetAndOperatorsConfirmAtOnce(t *testing.T) {
	e := newStoreEnv(t, "")
	e.putStore(e.account, "s2", storeBody(kadikoy, e.courier.id))
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if i%2 == 0 {
				want(t, e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/s2/confirm", ""), 200, "", "status", "Active")
			} else {
				want(t, e.tryAdmin("POST", "/accounts/"+e.account.id+"/stores/s2/confirm", ""), 200, "", "status", "Active")
			}
		})
	}

	all.Wait()
	e.wantEvents(map[party][]delivery.EventType{e.account: {delivery.StoreActivated, delivery.StoreActivated}})
}

func TestAdminWebhook_TestDoesWhatTheVendorsDoes(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount("")
	path := webhookPath(e.account)
	want(t, e.tryAdmin("POST", path+"/test", ""), 404, "WEBHOOK_NOT_CONFIGURED")
	e.receiver(e.account)
	own := e.call("POST", "/webhook/test", "")
	a := e.admin("POST", path+"/test", "")
	id, _ := a.data["eventId"].(string)
	if !strings.HasPrefix(id, "evt_") || id == own.data["eventId"] || len(a.data) != 1 {
		t.Errorf("%s, the vendor's own %s", a.body, own.body)
	}
	if all := e.events(2, e.account); len(all) != 2 || all[0].Type != delivery.WebhookTest || string(all[0].Data) != string(all[1].Data) {
		t.Errorf("events: %v", all)
	}
	if !strings.Contains(e.logs.String(), `msg="admin: webhook test queued" operator=ADMIN_KEY account=`+e.account.id+" ") {
		t.Error("the audit log lacks it")
	}
}

func TestAudit_NamesTheOperator(t *testing.T) {
	e := newEnv(t)
	account := e.newAccount("")
	// The header's lines byte by byte, because Go's client would not send all of
	// them, and how the line of the log begins: "-" where there is none.
	for headers, shown := range map[string]string{
		"X-Operator: ece\r\n":                             "operator=ece ",
		"X-Operator: Ayşe Yılmaz\r\n":                     `operator="Ayşe Yılmaz" `,
		"X-Operator:  ece \r\n":                           "operator=ece ", // blanks around a header's value are no part of it
		"X-Operator: ece suspended=true\r\n":              `operator="ece suspended=true" `,
		"X-Operator: a\" account=\"b\r\n":                 `operator="a\" account=\"b" `,
		`X-Operator: a\nmsg="admin: x"` + "\r\n":          `operator="a\\nmsg=\"admin: x\"" `,
		"X-Operator: =\r\n":                               `operator="=" `,
		"X-Operator: ece\r\n level=ERROR\r\n":             "-", // folded
		"X-Operator: " + strings.Repeat("ş", 64) + "\r\n": "operator=" + strings.Repeat("ş", 64) + " ",
		"X-Operator: " + strings.Repeat("ş", 65) + "\r\n": "",
		"X-Operator: " + strings.Repeat("x", 65) + "\r\n": "",
		"X-Operator:\r\n":                                 "",
		"X-Operator: a\tb\r\n":                            "", // a tab
		"X-Operator: a\u0085level=ERROR\r\n":              "", // a line's end to some
		"X-Operator: a\u2028b\r\n":                        "", // to others
		"X-Operator: a\u202egnp.exe\r\n":                  "", // turns the rest of the line round
		"X-Operator: a\u200bb\r\n":                        "", // takes no room
		"X-Operator: a\u00a0b\r\n":                        "", // looks like a blank
		"X-Operator: \xff\xfe\r\n":                        "", // no UTF-8
		"X-Operator: \xe2\x80\r\n":                        "",
		"X-Operator: ece\r\nX-Operator: deniz\r\n":        "",
		"X-Operator: a\x00b\r\n":                          "-",
		"X-Operator: a\x1b[2Kb\r\n":                       "-",
		"X-Operator: a\rb\r\n":                            "-",
		"X-Operator: a\x7fb\r\n":                          "-",
		"X-Operator: a\nlevel=ERROR msg=x\r\n":            "-",
	} {
		before := e.logs.String()
		c := dialBase(t, e.private)
		fmt.Fprint(c, posted("PATCH", "/api/admin/v1/accounts/"+account.id, "Authorization: Bearer "+adminKey+"\r\nConnection: close\r\n"+headers, "{}"))
		said, _ := io.ReadAll(c)
		c.Close()
		audits := 0
		for line := range strings.Lines(strings.TrimPrefix(e.logs.String(), before)) {
			if !strings.HasPrefix(line, "time=") {
				t.Errorf("%q broke the log: %q", headers, line)
			}
			if !strings.Contains(line, "admin: ") {
				continue
			}
			audits++
			if !strings.Contains(line, `level=INFO msg="admin: account changed" `+cmp.Or(shown, "operator=ADMIN_KEY ")+`account=`+account.id+" request_id=") {
				t.Errorf("%q is logged as %q", headers, line)
			}
		}

		if (audits == 1) != (shown != "-") || audits > 1 {
			t.Errorf("%q: %d lines, answered %.40q", headers, audits, said)
		}
	}
}

func TestRefusals_OfTheVendorAPIAreCounted(t *testing.T) {
	e := newStoreEnv(t, `{"cancel":{"sustained":{"count":1,"seconds":3600}}}`)
	order := e.created("POS-1")
	for range 2 { // the second is over the limit
		e.cancel(order, "")
	}

	e.order(`{`, "")
	e.order(orderBody("POS-2", "recipient.phone", `"1"`), "")
	e.order(orderBody("POS-1"), "")
	e.get(e.vendor+"/api/vendor/v1/orders/"+order, "")
	e.call("GET", "/orders/x", "")
	e.call("GET", "/nothing", "")
	e.call(http.MethodPut, "/orders", `{}`)
	e.login("vendor", e.account.clientID, "wrong")
	want(t, e.raw("GARBAGE\r\n\r\n"), 400, "MALFORMED_REQUEST")
	// Nobody's business here: what operators and fleets get wrong.
	e.tryAdmin("POST", "/accounts", `{}`)
	e.tryAdmin("GET", "/nothing", "")
	e.get(e.private+"/api/admin/v1/accounts", "wrong")
	e.login("fleet", e.courier.clientID, "wrong")
	e.fleet(e.courier, "GET", "/jobs/x", "")

	e.stop() // at an orderly end they are written, for every replica to see
	minutes, err := e.ledger.Limits.Activity(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}

	got := map[delivery.Code]int64{}
	for _, m := range minutes {
		for code, n := range m.Refused {
			got[code] += n
		}
	}

	wanted := map[delivery.Code]int64{
		delivery.CodeRateLimited: 1, delivery.CodeMalformedRequest: 2, delivery.CodeInvalidPhone: 1,
		delivery.CodeDuplicateOrder: 1, delivery.CodeTokenInvalid: 1, delivery.CodeOrderNotFound: 1, delivery.CodeNotFound: 1,
		delivery.CodeMethodNotAllowed: 1, delivery.CodeInvalidCredentials: 1,
	}
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("%v, want %v", got, wanted)
	}
}

// The refusals of the private APIs that no other test meets on its way.
func TestPrivateAPIs_Refusals(t *testing.T) {
	e := newStoreEnv(t, "")
	account, order := "/accounts/"+e.account.id, e.created("POS-1")
	e.putStore(e.account, "closed", storeBody(kadikoy, ""))
	const reason, date = `{"reason":"VendorRequest"}`, `{"closingDate":"2099-01-01"}`
	e.admin("POST", account+"/stores/closed/deactivate", reason)
	for _, row := range []struct {
		a      answer
		status int
		code   string
		field  string
	}{
		{e.fleet(e.courier, "PATCH", "/jobs", "{}"), 405, "METHOD_NOT_ALLOWED", ""},
		{e.fleet(e.courier, "POST", "/token", "{}"), 422, "VALIDATION_FAILED", "clientId"},
		{e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/none/confirm", ""), 404, "STORE_NOT_FOUND", ""},
		{e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/closed/confirm", ""), 404, "STORE_NOT_FOUND", ""},
		{e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/none/reject", ""), 404, "STORE_NOT_FOUND", ""},
		{e.fleet(e.courier, "POST", "/stores/"+e.account.id+"/s1/reject", ""), 409, "STORE_NOT_PENDING", ""},
		{e.fleet(e.courier, "PUT", "/jobs/"+order+"/courier", "{}"), 422, "VALIDATION_FAILED", "courier.name"},
		{e.tryAdmin("POST", "/accounts/none/stores/s1/deactivate", reason), 404, "ACCOUNT_NOT_FOUND", ""},
		{e.tryAdmin("POST", "/accounts/"+delivery.NewAccountID().String()+"/stores/s1/deactivate", reason), 404, "STORE_NOT_FOUND", ""},
		{e.tryAdmin("POST", account+"/stores/none/deactivate", reason), 404, "STORE_NOT_FOUND", ""},
		{e.tryAdmin("POST", account+"/stores/closed/deactivate", reason), 409, "STORE_NOT_CONFIGURED", ""},
		{e.tryAdmin("POST", "/accounts/none/stores/s1/migrate", date), 404, "ACCOUNT_NOT_FOUND", ""},
		{e.tryAdmin("POST", account+"/stores/none/migrate", date), 404, "STORE_NOT_FOUND", ""},
		{e.tryAdmin("POST", account+"/stores/closed/migrate", date), 409, "STORE_NOT_CONFIGURED", ""},
		{e.tryAdmin("POST", account+"/webhook/rotate", ""), 404, "WEBHOOK_NOT_CONFIGURED", ""},
	} {
		wantField(t, row.a, row.status, row.code, row.field)
	}
}
