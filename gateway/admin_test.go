package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// try calls the admin API and lets the caller judge.
func (w *world) tryAdmin(method, path, body string) answer {
	w.Helper()
	return w.send(request{method: method, url: w.private + "/api/admin/v1" + path, token: adminKey, body: body})
}

//rule:private-apis/admin-authorization-bearer-adminkey
func TestAdmin_NeedsItsKey(t *testing.T) {
	w := newWorld(t)
	account, fleet := w.newAccount(""), w.newFleet("Kurye", istanbul)
	for name, token := range map[string]string{
		"none": "", "wrong": adminKey + "x", "shorter": adminKey[:20], "a vendor's": account.token, "a fleet's": fleet.token,
	} {
		for _, path := range []string{"/accounts", "/fleets"} {
			a := w.get(w.private+"/api/admin/v1"+path, token)
			if a.status != 401 || a.code != "TOKEN_INVALID" || a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	}
}

//rule:limits/rules/5 admin-api/post-accounts admin-api/get-accounts admin-api/patch-accounts-id
func TestAdminAccounts_Life(t *testing.T) {
	w := newWorld(t)
	created := w.admin("POST", "/accounts", `{"name":" Çiğköfteci POS ","limits":{"orders":{"sustained":{"count":1200,"seconds":60}}}}`)
	id := created.data["accountId"].(string)
	if !strings.HasPrefix(created.data["clientId"].(string), "ven_") || !strings.HasPrefix(created.data["clientSecret"].(string), "vas_") ||
		created.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s", created.body)
	}
	read := w.admin("GET", "/accounts/"+id, "")
	limits := read.data["limits"].(map[string]any)
	if read.data["name"] != "Çiğköfteci POS" || read.data["suspended"] != false || strings.Contains(read.body, "vas_") ||
		fmt.Sprint(limits["orders"]) != "map[burst:map[count:120 seconds:10] sustained:map[count:1200 seconds:60]]" ||
		fmt.Sprint(limits["token"].(map[string]any)["sustained"]) != "map[count:60 seconds:3600]" {
		t.Errorf("%s", read.body)
	}
	changed := w.admin("PATCH", "/accounts/"+id, `{"name":"B","suspended":true,"limits":{"orders":{"burst":{"count":9,"seconds":3}},"cancel":null}}`)
	if changed.data["name"] != "B" || changed.data["suspended"] != true ||
		fmt.Sprint(changed.data["limits"].(map[string]any)["orders"]) != "map[burst:map[count:9 seconds:3] sustained:map[count:1200 seconds:60]]" {
		t.Errorf("%s", changed.body)
	}
	if again := w.admin("PATCH", "/accounts/"+id, `{}`); again.body != changed.body {
		t.Errorf("an empty change changed: %s", again.body)
	}
	w.newAccount("")
	if all := w.admin("GET", "/accounts", "").data["accounts"].([]any); len(all) != 2 {
		t.Errorf("accounts = %v", all)
	}
}

//rule:admin-api/post-accounts admin-api/patch-accounts-id
func TestAdminAccounts_Refusals(t *testing.T) {
	w := newWorld(t)
	id := w.newAccount("").id
	for body, field := range map[string]string{
		`{}`:           "name",
		`{"name":""}`:  "name",
		`{"name":" "}`: "name",
		`{"name":"` + strings.Repeat("x", 201) + `"}`: "name",
		`{"name":"a\u0000b"}`:                         "name",
		`{"name":1}`:                                  "name",
		`{"name":"a","suspended":"no"}`:               "suspended",
		`{"name":"a","limits":1}`:                     "limits",
		`{"name":"a","limits":{"orders":[]}}`:         "limits.orders",
		`{"name":"a","limits":{"orders":{"sustained":{"count":0,"seconds":60}}}}`:                                          "limits.orders.sustained.count",
		`{"name":"a","limits":{"orders":{"sustained":{"count":1000001,"seconds":60}}}}`:                                    "limits.orders.sustained.count",
		`{"name":"a","limits":{"cancel":{"sustained":{"count":1,"seconds":86401}}}}`:                                       "limits.cancel.sustained.seconds",
		`{"name":"a","limits":{"stores":{"burst":{"count":1}}}}`:                                                           "limits.stores.burst.seconds",
		`{"name":"a","limits":{"stores":{"sustained":{"count":1,"seconds":86400},"burst":{"count":1000000,"seconds":1}}}}`: "limits.stores.burst.count",
		`{"name":"a","limits":{"token":{"sustained":{"count":1.5,"seconds":1}}}}`:                                          "limits.token.sustained.count",
		`{"name":"a","limits":{"orderStatus":{"sustained":{"count":"1","seconds":1}}}}`:                                    "limits.orderStatus.sustained.count",
		`{"name":"a","limits":{"orders":{"sustained":{"count":99999999999999,"seconds":1.0}}}}`:                            "limits.orders.sustained.count",
	} {
		a := w.tryAdmin("POST", "/accounts", body)
		fields, ok := a.data["fields"].([]any)
		if a.status != 422 || !ok || fields[0].(map[string]any)["field"] != field {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := w.tryAdmin("POST", "/accounts", `{"name":"a","name":"b"}`); a.status != 400 {
		t.Errorf("repeated key: %d", a.status)
	}
	if a := w.tryAdmin("PATCH", "/accounts/"+id, `{"name":""}`); a.status != 422 {
		t.Errorf("empty name: %d", a.status)
	}
	unknown := delivery.NewAccountID().String()
	for _, r := range [][3]string{
		{"GET", "", ""}, {"PATCH", "", `{"suspended":true}`}, {"POST", "/credentials", ""},
		{"PUT", "/webhook", `{"url":"https://vendor.example/"}`}, {"POST", "/webhook/rotate", ""},
		{"GET", "/webhook/deliveries", ""}, {"POST", "/webhook/replay", `{"eventIds":["evt_1"]}`},
	} {
		for _, account := range []string{unknown, "nobody"} {
			if a := w.tryAdmin(r[0], "/accounts/"+account+r[1], r[2]); a.status != 404 || a.code != "ACCOUNT_NOT_FOUND" {
				t.Errorf("%s %s: %d %s", r[0], r[1], a.status, a.body)
			}
		}
	}
}

//rule:admin-api/post-accounts-id-credentials
func TestAdminAccounts_RotatedSecretsOverlap(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	rotated := w.admin("POST", "/accounts/"+account.id+"/credentials", "")
	until, err := time.Parse(time.RFC3339, rotated.data["previousValidUntil"].(string))
	if err != nil || time.Until(until) < 23*time.Hour || time.Until(until) > 25*time.Hour {
		t.Errorf("previousValidUntil = %v, %v", until, err)
	}
	second := rotated.data["clientSecret"].(string)
	for name, secret := range map[string]string{"old": account.secret, "new": second} {
		if a := w.login("vendor", account.clientID, secret); a.status != 200 {
			t.Errorf("the %s secret: %d %s", name, a.status, a.body)
		}
	}
	w.admin("POST", "/accounts/"+account.id+"/credentials", "")
	if a := w.login("vendor", account.clientID, account.secret); a.status != 401 {
		t.Errorf("the secret before the last: %d", a.status)
	}
}

func TestAdminAccounts_SuspensionHoldsAtOnce(t *testing.T) {
	s := newScene(t, "")
	s.created("POS-1")
	s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":true}`)
	for _, r := range [][3]string{
		{"POST", "/orders", orderBody("POS-2")}, {"POST", "/orders", `{`}, {"GET", "/orders/x", ""},
		{"PUT", "/stores/s1", `{}`}, {"GET", "/webhook", ""},
	} {
		a := s.send(request{method: r[0], url: s.vendor + "/api/vendor/v1" + r[1], token: s.account.token, body: r[2]})
		if a.status != 403 || a.code != "ACCOUNT_SUSPENDED" || !a.quota() {
			t.Errorf("%s %s: %d %s", r[0], r[1], a.status, a.body)
		}
	}
	s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":false}`)
	s.created("POS-2")
}

//rule:admin-api/post-fleets admin-api/get-fleets admin-api/patch-fleets-id
func TestAdminFleets_Life(t *testing.T) {
	w := newWorld(t)
	fleet := w.newFleet("Kurye", istanbul)
	if !strings.HasPrefix(fleet.clientID, "flt_") {
		t.Errorf("clientId = %s", fleet.clientID)
	}
	list := w.admin("GET", "/fleets?coverage=true", "")
	got := list.data["fleets"].([]any)[0].(map[string]any)
	if got["fleetId"] != fleet.id || got["avgDeliveryMinutes"] != 25.0 || got["avgPickupMinutes"] != 10.0 || got["suspended"] != false ||
		got["couriers"] != nil || got["coverage"].(map[string]any)["type"] != "Polygon" {
		t.Errorf("%v", got)
	}
	changed := w.admin("PATCH", "/fleets/"+fleet.id, `{"name":"Hızlı","avgDeliveryMinutes":40,"avgPickupMinutes":0,"subRegion":"Yeni","suspended":true,"coverage":`+
		`{"type":"MultiPolygon","coordinates":[[[[32.5,39.7],[33.2,39.7],[33.2,40.1],[32.5,40.1],[32.5,39.7]]]]}}`)
	if d := changed.data; d["name"] != "Hızlı" || d["avgDeliveryMinutes"] != 40.0 || d["avgPickupMinutes"] != 0.0 || d["subRegion"] != "Yeni" || d["suspended"] != true {
		t.Errorf("%s", changed.body)
	}
	w.admin("PATCH", "/fleets/"+fleet.id, `{"suspended":false}`)
	w.fleet(fleet, "PUT", "/availability", `{"couriers":4}`)
	got = w.admin("GET", "/fleets", "").data["fleets"].([]any)[0].(map[string]any)
	if got["name"] != "Hızlı" || got["suspended"] != false || got["couriers"] != 4.0 || got["coverage"] != nil {
		t.Errorf("%v", got)
	}
	if a := w.putStore(w.newAccount(""), "s1", storeBody(ankara, fleet.id)); a.data["status"] != "AwaitingFleetApproval" {
		t.Errorf("the new coverage: %d %s", a.status, a.body)
	}
}

//rule:admin-api/post-fleets
func TestAdminFleets_Refusals(t *testing.T) {
	w := newWorld(t)
	body := func(changes ...string) string {
		fields := map[string]string{"name": `"a"`, "avgDeliveryMinutes": "25", "subRegion": `"x"`, "coverage": istanbul}
		for i := 0; i+1 < len(changes); i += 2 {
			fields[changes[i]] = changes[i+1]
		}
		var parts []string
		for name, value := range fields {
			if value != "-" {
				parts = append(parts, fmt.Sprintf("%q:%s", name, value))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	for _, c := range [][3]string{
		{"name", "-", "name"}, {"avgDeliveryMinutes", "-", "avgDeliveryMinutes"}, {"coverage", "-", "coverage"},
		{"subRegion", "-", "subRegion"}, {"coverage", "null", "coverage"}, {"avgDeliveryMinutes", "0", "avgDeliveryMinutes"},
		{"avgDeliveryMinutes", "241", "avgDeliveryMinutes"}, {"avgPickupMinutes", "-1", "avgPickupMinutes"},
		{"avgDeliveryMinutes", "2.5", "avgDeliveryMinutes"}, {"name", "7", "name"},
		{"coverage", `"everywhere"`, "coverage"}, {"coverage", `{"type":"Point","coordinates":[29,41]}`, "coverage"},
		{"coverage", `{"type":"Polygon","coordinates":[[[28,40],[29,40],[29,41],[28,41]]]}`, "coverage"},
	} {
		a := w.tryAdmin("POST", "/fleets", body(c[0], c[1]))
		fields, ok := a.data["fields"].([]any)
		if a.status != 422 || !ok || fields[0].(map[string]any)["field"] != c[2] {
			t.Errorf("%s %s: %d %s", c[0], c[1], a.status, a.body)
		}
	}
	unknown := delivery.NewFleetID().String()
	for _, r := range [][3]string{{"PATCH", "", `{"suspended":true}`}, {"POST", "/payment-overdue", ""}} {
		for _, id := range []string{unknown, "none"} {
			if a := w.tryAdmin(r[0], "/fleets/"+id+r[1], r[2]); a.status != 404 || a.code != "FLEET_NOT_FOUND" {
				t.Errorf("%s %s: %d %s", r[0], r[1], a.status, a.body)
			}
		}
	}
	huge := body("coverage", `"`+strings.Repeat("x", 2<<20)+`"`)
	if a, err := w.try(request{method: "POST", url: w.private + "/api/admin/v1/fleets", token: adminKey, body: huge}); err == nil && a.status != 413 {
		t.Errorf("more than 2 MB: %d", a.status)
	}
}

//rule:event-types/fleet.payment_overdue admin-api/post-fleets-id-payment-overdue
func TestAdminFleets_OverdueTellsEveryAccountOfItsStores(t *testing.T) {
	s := newScene(t, "")
	s.activeStore(s.account, s.courier, "s0")
	s.putStore(s.account, "pending", storeBody(kadikoy, s.courier.id))
	other := s.freshAccount()
	a := s.admin("POST", "/fleets/"+s.courier.id+"/payment-overdue", "")
	if a.data["accounts"] != 2.0 || a.data["stores"] != 3.0 {
		t.Errorf("%s", a.body)
	}
	if a := s.admin("POST", "/fleets/"+s.newFleet("Idle", istanbul).id+"/payment-overdue", ""); a.data["accounts"] != 0.0 {
		t.Errorf("a fleet without stores: %s", a.body)
	}
	s.awaitNotices(notices{
		s.account.id: {delivery.StoreActivated, delivery.StoreActivated, delivery.PaymentOverdue},
		other.id:     {delivery.StoreActivated, delivery.PaymentOverdue},
	})
}

//rule:admin-api/put-accounts-id-webhook admin-api/post-accounts-id-webhook-rotate admin-api/post-accounts-id-webhook-replay
//rule:decisions/webhook-url-and-secret
func TestAdminWebhook_LifeAndReplay(t *testing.T) {
	s := newScene(t, "")
	path := "/accounts/" + s.account.id + "/webhook"
	put := s.admin("PUT", path, `{"url":"https://hooks.vendor.com/a"}`)
	secret, _ := put.data["secret"].(string)
	if !strings.HasPrefix(secret, "whsec_") || put.data["url"] != "https://hooks.vendor.com/a" || put.data["status"] == "" {
		t.Fatalf("%s", put.body)
	}
	if again := s.admin("PUT", path, `{"url":"https://hooks.vendor.com/b"}`); again.data["secret"] != nil || again.data["url"] != "https://hooks.vendor.com/b" {
		t.Errorf("moved: %s", again.body)
	}
	if rotated := s.admin("POST", path+"/rotate", ""); rotated.data["secret"] == secret || !strings.HasPrefix(rotated.data["secret"].(string), "whsec_") {
		t.Errorf("%s", rotated.body)
	}
	if a := s.admin("GET", path+"/deliveries?status=undelivered", ""); len(a.data["deliveries"].([]any)) != 0 {
		t.Errorf("%s", a.body)
	}
	if a := s.tryAdmin("GET", path+"/deliveries?status=lost", ""); a.status != 422 {
		t.Errorf("%d %s", a.status, a.body)
	}
	id := s.created("POS-1")
	s.cancel(id, "")
	order, _ := delivery.ParseOrderID(id)
	stored, err := s.ledger().Order(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	event := delivery.EventID(order, stored.Version)
	if a := s.admin("POST", path+"/replay", `{"eventIds":["`+event+`"]}`); a.data["replayed"] != 1.0 {
		t.Errorf("%s", a.body)
	}
	if a := s.admin("POST", path+"/replay", `{"since":"`+time.Now().Add(-time.Hour).Format(time.RFC3339)+`"}`); a.data["replayed"] == nil {
		t.Errorf("%s", a.body)
	}
	for body, status := range map[string]int{
		`{"eventIds":["evt_none"]}`: 404, `{}`: 422, `{"eventIds":[]}`: 422, `{"eventIds":[1]}`: 422, `{"eventIds":"x"}`: 422,
		`{"eventIds":["` + event + `"],"since":"2026-11-21T12:00:00Z"}`:          422,
		`{"since":"` + time.Now().Add(-25*time.Hour).Format(time.RFC3339) + `"}`: 422,
		`{"since":"` + time.Now().Add(time.Hour).Format(time.RFC3339) + `"}`:     422,
		`{"since":"yesterday"}`: 422,
	} {
		if a := s.tryAdmin("POST", path+"/replay", body); a.status != status {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, body := range []string{`{}`, `{"url":"ftp://vendor.com/"}`, `{"url":1}`} {
		if a := s.tryAdmin("PUT", path, body); a.status != 422 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if logs := s.logs.String(); strings.Contains(logs, secret) || strings.Contains(logs, "hooks.vendor.com") || strings.Contains(logs, "Yılmaz") {
		t.Error("the logs tell too much")
	}
}
