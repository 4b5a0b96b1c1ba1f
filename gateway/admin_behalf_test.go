package main

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// sent collects the bodies of an account's notices of one type, as a worker
// would send them, until there are as many as wanted.
func (w *world) sent(account party, kind delivery.EventType, wanted int) (bodies []string) {
	w.Helper()
	l := w.ledger()
	if _, _, err := l.SetWebhookURL(w.Context(), accountID(w, account), "https://vendor.example/"); err != nil {
		w.Fatal(err)
	}
	var mu sync.Mutex
	stop := w.feed(ledger.RoleWebhook, func(partition int, batch []ledger.Entry) error {
		leased, err := l.QueueEvents(w.Context(), partition, batch, ledger.Grant{Limit: 100, Share: 100, InFlight: 100, Lease: time.Minute})
		mu.Lock()
		defer mu.Unlock()
		for _, d := range leased.Deliveries {
			if d.Type == kind {
				bodies = append(bodies, string(d.Data))
			}
		}
		return err
	})
	defer stop()
	w.await(string(kind), func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(bodies) >= wanted
	})
	return bodies
}

func TestAdminStores_ConfirmDoesWhatTheFleetDoes(t *testing.T) {
	w := newWorld(t)
	account, fleet := w.newAccount(""), w.newFleet("Kurye", istanbul)
	w.activeStore(account, fleet, "store-1")
	w.putStore(account, "store-2", storeBody(kadikoy, fleet.id))
	path := "/accounts/" + account.id + "/stores/store-2"
	for _, body := range []string{"", "{}", `{"fleetId":null}`, `{"fleetId":"` + fleet.id + `"}`} {
		if a := w.admin("POST", path+"/confirm", body); len(a.data) != 2 || a.data["externalStoreId"] != "store-2" || a.data["status"] != "Active" {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	bodies := w.sent(account, delivery.StoreActivated, 2)
	slices.Sort(bodies)
	if len(bodies) != 2 || strings.Replace(bodies[1], "store-2", "store-1", 1) != bodies[0] {
		t.Errorf("events: %q", bodies)
	}
	if a := w.tryAdmin("POST", path+"/reject", ""); a.status != 409 || a.code != "STORE_NOT_PENDING" {
		t.Errorf("reject of an Active store: %d %s", a.status, a.body)
	}
	if a := w.fleet(fleet, "POST", "/stores/"+account.id+"/store-2/confirm", ""); a.status != 200 || a.data["status"] != "Active" {
		t.Errorf("the fleet after the operator: %d %s", a.status, a.body)
	}
	if logs := w.logs.String(); !strings.Contains(logs, `msg="admin: store confirmed for its fleet" account=`+account.id+" store=store-2") {
		t.Error("the audit log does not tell")
	}
}

func TestAdminStores_RejectSendsTheVendorBack(t *testing.T) {
	w := newWorld(t)
	account, fleet := w.newAccount(""), w.newFleet("Kurye", istanbul)
	w.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	path := "/accounts/" + account.id + "/stores/s1"
	if a := w.admin("POST", path+"/reject", ""); a.data["status"] != "AwaitingFleet" {
		t.Errorf("%s", a.body)
	}
	for _, answer := range []string{"/reject", "/confirm"} {
		if a := w.tryAdmin("POST", path+answer, ""); a.status != 409 || a.code != "STORE_NOT_PENDING" {
			t.Errorf("%s of a store without fleet: %d %s", answer, a.status, a.body)
		}
	}
	if a := w.putStore(account, "s1", `{"fleetId":"`+fleet.id+`"}`); a.data["status"] != "AwaitingFleetApproval" {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.activeStore(account, fleet, "s2")
	w.awaitNotices(notices{account.id: {delivery.StoreActivated}}) // nothing was said of s1
}

// An operator who looks at an old page answers for nobody else.
func TestAdminStores_AnswersForTheFleetThatWasMeant(t *testing.T) {
	w := newWorld(t)
	account, fleet, rival := w.newAccount(""), w.newFleet("Kurye", istanbul), w.newFleet("Rival", istanbul)
	w.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	w.putStore(account, "s1", `{"fleetId":"`+rival.id+`"}`)
	path := "/accounts/" + account.id + "/stores/s1"
	for _, answer := range []string{"/confirm", "/reject"} {
		if a := w.tryAdmin("POST", path+answer, `{"fleetId":"`+fleet.id+`"}`); a.status != 404 || a.code != "STORE_NOT_FOUND" {
			t.Errorf("%s: %d %s", answer, a.status, a.body)
		}
		for _, body := range []string{`{"fleetId":"x"}`, `{"fleetId":7}`, `{"fleetId":""}`, `{"fleetId":"00000000-0000-0000-0000-000000000000"}`} {
			if a := w.tryAdmin("POST", path+answer, body); a.status != 422 || a.code != "VALIDATION_FAILED" {
				t.Errorf("%s %s: %d %s", answer, body, a.status, a.body)
			}
		}
		if a := w.tryAdmin("POST", path+answer, `{`); a.status != 400 {
			t.Errorf("%s: %d %s", answer, a.status, a.body)
		}
		for _, other := range []string{account.id + "/stores/none", delivery.NewAccountID().String() + "/stores/s1", "x/stores/s1"} {
			if a := w.tryAdmin("POST", "/accounts/"+other+answer, ""); a.status != 404 {
				t.Errorf("%s: %d %s", other, a.status, a.body)
			}
		}
	}
	if a := w.admin("POST", path+"/confirm", `{"fleetId":"`+rival.id+`"}`); a.data["status"] != "Active" {
		t.Errorf("%s", a.body)
	}
	w.awaitNotices(notices{account.id: {delivery.StoreActivated}})
}

func TestAdminStores_FleetAndOperatorsConfirmAtOnce(t *testing.T) {
	w := newWorld(t)
	account, fleet := w.newAccount(""), w.newFleet("Kurye", istanbul)
	w.putStore(account, "s1", storeBody(kadikoy, fleet.id))
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			var a answer
			if i%2 == 0 {
				a = w.fleet(fleet, "POST", "/stores/"+account.id+"/s1/confirm", "")
			} else {
				a = w.tryAdmin("POST", "/accounts/"+account.id+"/stores/s1/confirm", "")
			}
			if a.status != 200 || a.data["status"] != "Active" {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	w.awaitNotices(notices{account.id: {delivery.StoreActivated}})
}

func TestAdminWebhook_TestDoesWhatTheVendorsDoes(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	path := "/accounts/" + account.id + "/webhook"
	if a := w.tryAdmin("POST", path+"/test", ""); a.status != 404 || a.code != "WEBHOOK_NOT_CONFIGURED" {
		t.Errorf("without receiver: %d %s", a.status, a.body)
	}
	for _, id := range []string{"nobody", delivery.NewAccountID().String()} {
		if a := w.tryAdmin("POST", "/accounts/"+id+"/webhook/test", ""); a.status != 404 || a.code != "ACCOUNT_NOT_FOUND" {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
	w.admin("PUT", path, `{"url":"https://hooks.vendor.com/a"}`)
	own := w.send(request{method: "POST", url: w.vendor + "/api/vendor/v1/webhook/test", token: account.token})
	a := w.admin("POST", path+"/test", "")
	id, _ := a.data["eventId"].(string)
	if !strings.HasPrefix(id, "evt_") || id == own.data["eventId"] || len(a.data) != 1 {
		t.Errorf("%s, the vendor's own %s", a.body, own.body)
	}
	if bodies := w.sent(account, delivery.WebhookTest, 2); len(bodies) != 2 || bodies[0] != bodies[1] {
		t.Errorf("events: %q", bodies)
	}
	if logs := w.logs.String(); !strings.Contains(logs, `msg="admin: webhook test queued" account=`+account.id+" event="+id) {
		t.Error("the audit log does not tell")
	}
}

// auditLines are the lines of the log that tell what operators changed.
func (w *world) auditLines() (lines []string) {
	for line := range strings.Lines(w.logs.String()) {
		if strings.Contains(line, "admin: ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestAudit_NamesTheOperator(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	url := w.private + "/api/admin/v1/accounts/" + account.id
	for operator, shown := range map[string]string{
		"ece":                   "operator=ece ",
		"Ayşe Yılmaz":           `operator="Ayşe Yılmaz" `,
		" ece ":                 "operator=ece ", // blanks around a header's value are no part of it
		"ece suspended=true":    `operator="ece suspended=true" `,
		`a" account="b`:         `operator="a\" account=\"b" `,
		`a\nmsg="admin: x"`:     `operator="a\\nmsg=\"admin: x\"" `,
		"=":                     `operator="=" `,
		strings.Repeat("ş", 64): "operator=" + strings.Repeat("ş", 64) + " ",
		strings.Repeat("ş", 65): "",
		strings.Repeat("x", 65): "",
		"":                      "",
		"a\tb":                  "", // a tab
		"a\u0085level=ERROR":    "", // a line's end to some
		"a\u2028b":              "", // to others
		"a\u202egnp.exe":        "", // turns the rest of the line round
		"a\u200bb":              "", // takes no room
		"a\u00a0b":              "", // looks like a blank
		"\xff\xfe":              "", // no UTF-8
		"\xe2\x80":              "",
	} {
		before := len(w.auditLines())
		r := request{method: "PATCH", url: url, token: adminKey, body: `{}`, header: map[string]string{"X-Operator": operator}}
		if a := w.send(r); a.status != 200 {
			t.Errorf("%q: %d %s", operator, a.status, a.body)
		}
		lines := w.auditLines()[before:]
		want := `level=INFO msg="admin: account changed" ` + shown + "account=" + account.id + " suspended=false"
		if len(lines) != 1 || !strings.HasSuffix(lines[0], want) {
			t.Errorf("%q: %q, want %q", operator, lines, want)
		}
	}
}

// What Go's client would not send, byte by byte.
func TestAudit_BrokenHeadersNameNobody(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	for headers, shown := range map[string]string{
		"X-Operator: ece\r\nX-Operator: deniz\r\n": "",
		"X-Operator: a\x00b\r\n":                   "",
		"X-Operator: a\x1b[2Kb\r\n":                "",
		"X-Operator: a\rb\r\n":                     "",
		"X-Operator: a\x7fb\r\n":                   "",
		"X-Operator: a\nlevel=ERROR msg=x\r\n":     "",
		"X-Operator: ece\r\n level=ERROR\r\n":      `operator="ece level=ERROR" `, // one value, folded
	} {
		before := w.logs.String()
		c, err := net.Dial("tcp", strings.TrimPrefix(w.private, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write([]byte("PATCH /api/admin/v1/accounts/" + account.id + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + adminKey +
			"\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n" + headers + "\r\n{}")); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 64)
		n, _ := c.Read(answer)
		c.Close()
		added := strings.TrimPrefix(w.logs.String(), before)
		for line := range strings.Lines(added) {
			audit := strings.HasSuffix(line, `level=INFO msg="admin: account changed" `+shown+`account=`+account.id+" suspended=false\n")
			if !strings.HasPrefix(line, "time=") || strings.Contains(line, "admin: ") && !audit {
				t.Errorf("%q (%.20q) is logged as %q", headers, answer[:n], line)
			}
		}
	}
}

// refusals are what operators see of the last minutes, summed up.
func refusals(t *testing.T, l *ledger.Ledger) map[delivery.Code]int64 {
	t.Helper()
	minutes, err := l.Activity(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	sum := map[delivery.Code]int64{}
	for _, m := range minutes {
		for code, n := range m.Refused {
			sum[code] += n
		}
	}
	return sum
}

func TestRefusals_OfTheVendorAPIAreCounted(t *testing.T) {
	s := newScene(t, `{"cancel":{"sustained":{"count":1,"seconds":3600}}}`)
	order := s.created("POS-1")
	vendor := s.vendor + "/api/vendor/v1"
	for range 2 { // the second is over the limit
		s.cancel(order, "")
	}
	s.order(`{`, "")
	s.order(orderBody("POS-2", "recipient.phone", `"1"`), "")
	s.order(orderBody("POS-1"), "")
	s.get(vendor+"/orders/"+order, "")
	s.get(vendor+"/orders/x", s.account.token)
	s.get(vendor+"/nothing", s.account.token)
	s.send(request{method: http.MethodPut, url: vendor + "/orders", token: s.account.token, body: `{}`})
	s.login("vendor", s.account.clientID, "wrong")
	if status, _, _ := s.raw("GARBAGE\r\n\r\n"); status != 400 {
		t.Errorf("garbage: %d", status)
	}
	// Nobody's business here: what operators and fleets get wrong.
	s.tryAdmin("POST", "/accounts", `{}`)
	s.tryAdmin("GET", "/nothing", "")
	s.get(s.private+"/api/admin/v1/accounts", "wrong")
	s.login("fleet", s.courier.clientID, "wrong")
	s.fleet(s.courier, "GET", "/jobs/x", "")

	want := map[delivery.Code]int64{
		delivery.CodeRateLimited: 1, delivery.CodeMalformedRequest: 2, delivery.CodeInvalidPhone: 1,
		delivery.CodeDuplicateOrder: 1, delivery.CodeTokenInvalid: 1, delivery.CodeOrderNotFound: 1, delivery.CodeNotFound: 1,
		delivery.CodeMethodNotAllowed: 1, delivery.CodeInvalidCredentials: 1,
	}
	// They are written at an orderly end, and every replica sees all of them.
	again, keys := s.g.settings, testSecrets()
	s.stop()
	next := startGateway(t, again, keys)
	next.awaitReady()
	got := refusals(t, next.ledger())
	for code := range want {
		if got[code] != want[code] {
			t.Errorf("%s: %d, want %d", code, got[code], want[code])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
