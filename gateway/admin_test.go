package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

//rule:private-apis/admin-authorization-bearer-adminkey
func TestAdmin_NeedsItsKey(t *testing.T) {
	e := newStoreEnv(t, "")
	for _, token := range []string{"", adminKey + "x", adminKey[:20], e.account.token, e.courier.token} {
		if a := want(t, e.get(e.private+"/api/admin/v1/accounts", token), 401, "TOKEN_INVALID"); a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%q: %v", token, a.header)
		}
	}

	want(t, e.get(e.vendor+"/api/admin/v1/webhooks", adminKey), 404, "NOT_FOUND") // the vendors' listener
	want(t, e.get(e.private+"/api/admin/v1/accounts", adminKey), 200, "")
	if text := e.get(e.private+"/metrics", "").body; !strings.Contains(text, "\ngateway_admin_key_failures_total 4\n") {
		t.Error("keys that were tried are not counted, or no key at all is, or the right one")
	}
}

// While the admin key is rotated each of several opens, and nothing else does.
func TestAdmin_TakesEachOfSeveralKeys(t *testing.T) {
	keys := testSecrets()
	keys.AdminKey = "the-new-key-of-operators, " + adminKey + ","
	e := newEnv(t).twin(keys)
	for key, status := range map[string]int{
		"the-new-key-of-operators": 200, adminKey: 200, "": 401, ",": 401, " " + adminKey: 200, // blanks belong to the header
		"the-new-key-of-operators, " + adminKey: 401, adminKey + ",": 401,
	} {
		if a := e.get(e.private+"/api/admin/v1/accounts", key); a.status != status {
			t.Errorf("%q: %d, want %d", key, a.status, status)
		}
	}
}

//rule:limits/rules/5 admin-api/post-accounts admin-api/get-accounts admin-api/patch-accounts-id
func TestAdminAccounts_Life(t *testing.T) {
	e := newEnv(t)
	created := e.admin("POST", "/accounts", `{"name":" Çiğköfteci POS ","limits":{"orders":{"sustained":{"count":1200,"seconds":60}}}}`)
	id := e.text(created, "accountId")
	if !strings.HasPrefix(e.text(created, "clientId"), "ven_") || !strings.HasPrefix(e.text(created, "clientSecret"), "vas_") ||
		created.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s", created.body)
	}

	read := want(t, e.admin("GET", "/accounts/"+id, ""), 200, "", "name", "Çiğköfteci POS", "suspended", false, "clientSecret", absent)
	limits := read.data["limits"].(map[string]any)
	if fmt.Sprint(limits["orders"]) != "map[burst:map[count:120 seconds:10] sustained:map[count:1200 seconds:60]]" ||
		fmt.Sprint(limits["token"].(map[string]any)["sustained"]) != "map[count:60 seconds:3600]" || strings.Contains(read.body, "vas_") {
		t.Errorf("%s", read.body)
	}

	changed := e.admin("PATCH", "/accounts/"+id, `{"name":"B","suspended":true,"limits":{"orders":{"burst":{"count":9,"seconds":3}},"cancel":null}}`)
	want(t, changed, 200, "", "name", "B", "suspended", true)
	if fmt.Sprint(changed.data["limits"].(map[string]any)["orders"]) != "map[burst:map[count:9 seconds:3] sustained:map[count:1200 seconds:60]]" {
		t.Errorf("%s", changed.body)
	}

	noted := e.audited()
	if last := noted[len(noted)-1]; last.Account.String() != id || last.Action != "account changed" ||
		last.Old != `{"limits":{"orders":{"burst":{"count":120,"seconds":10}}},"name":"Çiğköfteci POS","suspended":false}` ||
		last.New != `{"limits":{"orders":{"burst":{"count":9,"seconds":3}}},"name":"B","suspended":true}` {
		t.Errorf("noted %+v", last)
	}

	if again := e.admin("PATCH", "/accounts/"+id, `{}`); again.body != changed.body {
		t.Errorf("an empty change changed: %s", again.body)
	}

	want(t, read, 200, "", "mutedEvents", []any{})
	muted := []any{"delivery.courier_changed", "delivery.eta_changed"}
	want(t, e.admin("PATCH", "/accounts/"+id, `{"mutedEvents":["delivery.eta_changed","delivery.courier_changed"]}`), 200, "", "mutedEvents", muted)
	want(t, e.admin("PATCH", "/accounts/"+id, `{"name":"C"}`), 200, "", "mutedEvents", muted)
	want(t, e.admin("GET", "/accounts/"+id, ""), 200, "", "mutedEvents", muted)
	want(t, e.admin("PATCH", "/accounts/"+id, `{"mutedEvents":[]}`), 200, "", "mutedEvents", []any{})
	e.newAccount("")
	if all := e.admin("GET", "/accounts", "").list("accounts"); len(all) != 2 {
		t.Errorf("accounts = %v", all)
	}
}

// Members in another order would make every comparison of two answers fail.
func TestAdminLists_AreTheSameBytesEachTime(t *testing.T) {
	e := newEnv(t)
	e.newAccount("")

	for _, path := range []string{"/accounts", "/webhooks"} {
		first := e.admin("GET", path, "").body
		for range 20 {
			again := e.admin("GET", path, "").body
			if again != first {
				t.Fatalf("GET %s answers %s and then %s", path, first, again)
			}
		}
	}
}

func TestAdminAccounts_AreListedInPages(t *testing.T) {
	e := newEnv(t)
	var want []string
	for i := range 7 {
		name := fmt.Sprintf("İşletme %d", i)
		id := e.named(name).id
		if i%3 == 0 {
			e.admin("PATCH", "/accounts/"+id, `{"suspended":true}`)
		}
		want = append(want, name)
	}

	other := e.named("Başka").id
	list := func(query string) (names []string) {
		for cursor := ""; ; {
			page := e.admin("GET", "/accounts?"+query+"&limit=2&cursor="+cursor, "")
			for _, row := range page.list("accounts") {
				names = append(names, row["name"].(string))
			}

			wantMembers(t, "counts", page.data["counts"].(map[string]any), "all", 8, "excess", 0, "suspended", 3)
			cursor = page.data["cursor"].(string)
			if cursor == "" {
				return names
			}
		}
	}

	for query, wanted := range map[string][]string{
		"": append([]string{"Başka"}, want...), "q=": append([]string{"Başka"}, want...), "q=" + url.QueryEscape("IŞL"): want, "q=" + other: {"Başka"},
		"state=suspended": {want[0], want[3], want[6]}, "state=suspended&q=" + url.QueryEscape("işletme 3"): {want[3]}, "state=excess": nil, "q=xyz": nil,
	} {
		got := list(query)
		if !slices.Equal(got, wanted) {
			t.Errorf("%q: %v, want %v", query, got, wanted)
		}
	}

	wantPagesRefused(t, e, "/accounts")
	wantField(t, e.tryAdmin("GET", "/accounts?state=Suspended", ""), 422, "VALIDATION_FAILED", "state")
	wantField(t, e.tryAdmin("GET", "/accounts?q="+strings.Repeat("x", 201), ""), 422, "VALIDATION_FAILED", "q")
}

//rule:admin-api/post-accounts admin-api/patch-accounts-id
func TestAdminAccounts_Refusals(t *testing.T) {
	e := newEnv(t)
	id := e.newAccount("").id
	limit := func(of, value string) string { return `{"name":"a","limits":{"` + of + `":` + value + `}}` }
	for body, field := range map[string]string{
		`{}`: "name", `{"name":""}`: "name", `{"name":" "}`: "name", `{"name":"` + strings.Repeat("x", 201) + `"}`: "name",
		`{"name":"a\u0000b"}`: "name", `{"name":1}`: "name", `{"name":"a","suspended":"no"}`: "suspended",
		`{"name":"a","mutedEvents":["delivery.status_changed"]}`: "mutedEvents[0]", `{"name":"a","mutedEvents":["delivery.eta_changed","x"]}`: "mutedEvents[1]",
		`{"name":"a","mutedEvents":"delivery.eta_changed"}`: "mutedEvents", `{"name":"a","mutedEvents":[1]}`: "mutedEvents[0]",
		`{"name":"a","limits":1}`: "limits", limit("orders", "[]"): "limits.orders",
		limit("orders", `{"sustained":{"count":0,"seconds":60}}`):                                          "limits.orders.sustained.count",
		limit("orders", `{"sustained":{"count":1000001,"seconds":60}}`):                                    "limits.orders.sustained.count",
		limit("cancel", `{"sustained":{"count":1,"seconds":86401}}`):                                       "limits.cancel.sustained.seconds",
		limit("stores", `{"burst":{"count":1}}`):                                                           "limits.stores.burst.seconds",
		limit("stores", `{"sustained":{"count":1,"seconds":86400},"burst":{"count":1000000,"seconds":1}}`): "limits.stores.burst.count",
		limit("token", `{"sustained":{"count":1.5,"seconds":1}}`):                                          "limits.token.sustained.count",
		limit("orderStatus", `{"sustained":{"count":"1","seconds":1}}`):                                    "limits.orderStatus.sustained.count",
		limit("order", `{"sustained":{"count":1,"seconds":60}}`):                                           "limits.order",
		limit("orders", `{"sustianed":{"count":1,"seconds":60}}`):                                          "limits.orders.sustianed",
		limit("orders", `{"sustained":{"count":1,"seconds":60,"second":1}}`):                               "limits.orders.sustained.second",
		limit("orders.sustained", `{"count":1,"seconds":60}`):                                              "limits.orders.sustained",
		limit("orders", `{"sustained":{"count":99999999999999,"seconds":1.0}}`):                            "limits.orders.sustained.count",
	} {
		wantField(t, e.tryAdmin("POST", "/accounts", body), 422, "VALIDATION_FAILED", field)
	}

	want(t, e.tryAdmin("POST", "/accounts", `{"name":"a","name":"b"}`), 400, "MALFORMED_REQUEST")
	want(t, e.tryAdmin("PATCH", "/accounts/"+id, `{"name":""}`), 422, "VALIDATION_FAILED")
	for _, r := range [][3]string{
		{"GET", "", ""}, {"PATCH", "", `{"suspended":true}`}, {"POST", "/credentials", ""}, {"GET", "/webhook", ""}, {"PATCH", "/webhook", `{"maxInFlight":1}`},
		{"PUT", "/webhook", `{"url":"https://vendor.example/"}`}, {"POST", "/webhook/rotate", ""}, {"POST", "/webhook/test", ""},
		{"GET", "/webhook/deliveries", ""}, {"POST", "/webhook/replay", `{"eventIds":["evt_1"]}`},
	} {
		for _, account := range []string{delivery.NewAccountID().String(), "nobody"} {
			want(t, e.tryAdmin(r[0], "/accounts/"+account+r[1], r[2]), 404, "ACCOUNT_NOT_FOUND")
		}
	}
}

// Every secret that was handed out is good until the time that was promised for
// it, however often the secret is rotated, and by however many at once. There may
// be four earlier ones; revokeOld ends them.
//
//rule:admin-api/post-accounts-id-credentials admin-api/post-fleets-id-credentials
func TestAdmin_RotatedSecretsOverlap(t *testing.T) {
	e := newStoreEnv(t, "")
	for api, c := range map[string]struct {
		path string
		who  party
	}{"vendor": {"/accounts/" + e.account.id, e.account}, "fleet": {"/fleets/" + e.courier.id, e.courier}} {
		secrets := []string{c.who.secret}
		rotated := e.admin("POST", c.path+"/credentials", "")
		until, err := time.Parse(time.RFC3339, rotated.data["previousValidUntil"].(string))
		if err != nil || time.Until(until) < 23*time.Hour || time.Until(until) > 25*time.Hour || rotated.data["clientId"] != c.who.clientID {
			t.Errorf("%s, %v", rotated.body, err)
		}

		secrets = append(secrets, rotated.data["clientSecret"].(string))
		together := make([]answer, 3)
		var all sync.WaitGroup
		for i := range together {
			all.Go(func() { together[i] = e.tryAdmin("POST", c.path+"/credentials", "{}") })
		}

		all.Wait()
		for _, a := range together {
			secrets = append(secrets, want(t, a, 200, "").data["clientSecret"].(string))
		}

		for _, secret := range secrets {
			want(t, e.login(api, c.who.clientID, secret), 200, "")
		}

		want(t, e.tryAdmin("POST", c.path+"/credentials", ""), 409, "TOO_MANY_SECRETS")
		last := e.admin("POST", c.path+"/credentials", `{"revokeOld":true}`)
		if ended, err := time.Parse(time.RFC3339, last.data["previousValidUntil"].(string)); err != nil || time.Until(ended) > 0 {
			t.Errorf("%s, %v", last.body, err)
		}

		for _, secret := range secrets {
			want(t, e.login(api, c.who.clientID, secret), 401, "INVALID_CREDENTIALS")
		}

		want(t, e.login(api, c.who.clientID, last.data["clientSecret"].(string)), 200, "")
		wantField(t, e.tryAdmin("POST", c.path+"/credentials", `{"revokeOld":"yes"}`), 422, "VALIDATION_FAILED", "revokeOld")
	}

	want(t, e.tryAdmin("POST", "/fleets/00000000-0000-8000-8000-000000000000/credentials", ""), 404, "FLEET_NOT_FOUND")
}

//rule:admin-api/post-fleets admin-api/get-fleets admin-api/patch-fleets-id
func TestAdminFleets_Life(t *testing.T) {
	e := newEnv(t)
	fleet := e.newFleet("Kurye", istanbul)
	if !strings.HasPrefix(fleet.clientID, "flt_") {
		t.Errorf("clientId = %s", fleet.clientID)
	}

	got := e.only(e.admin("GET", "/fleets?coverage=true", ""), "fleets")
	wantMembers(t, "new", got, "fleetId", fleet.id, "avgDeliveryMinutes", 25, "avgPickupMinutes", 10, "suspended", false)
	if got["couriers"] != nil || got["coverage"].(map[string]any)["type"] != "Polygon" {
		t.Errorf("%v", got)
	}

	changed := e.admin("PATCH", "/fleets/"+fleet.id, `{"name":"Hızlı","avgDeliveryMinutes":40,"avgPickupMinutes":0,"subRegion":"Yeni","suspended":true,"coverage":`+
		`{"type":"MultiPolygon","coordinates":[[[[32.5,39.7],[33.2,39.7],[33.2,40.1],[32.5,40.1],[32.5,39.7]]]]}}`)
	want(t, changed, 200, "", "name", "Hızlı", "avgDeliveryMinutes", 40, "avgPickupMinutes", 0, "subRegion", "Yeni", "suspended", true)
	e.admin("PATCH", "/fleets/"+fleet.id, `{"suspended":false}`)
	e.fleet(fleet, "PUT", "/availability", `{"couriers":4}`)
	got = e.only(e.admin("GET", "/fleets", ""), "fleets")
	wantMembers(t, "changed", got, "name", "Hızlı", "suspended", false, "couriers", 4)
	if got["coverage"] != nil {
		t.Errorf("%v", got)
	}

	want(t, e.putStore(e.newAccount(""), "s1", storeBody(ankara, fleet.id)), 200, "", "status", "AwaitingFleetApproval") // by the new coverage
}

//rule:admin-api/post-fleets
func TestAdminFleets_Refusals(t *testing.T) {
	e := newEnv(t)
	body := func(name, value string) string {
		fields := map[string]string{"name": `"a"`, "avgDeliveryMinutes": "25", "subRegion": `"x"`, "coverage": istanbul}
		fields[name] = value
		var parts []string
		for name, value := range fields {
			if value != "-" {
				parts = append(parts, fmt.Sprintf("%q:%s", name, value))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}

	for _, c := range [][2]string{
		{"name", "-"}, {"name", "7"}, {"subRegion", "-"}, {"avgDeliveryMinutes", "-"}, {"avgDeliveryMinutes", "0"}, {"avgDeliveryMinutes", "241"},
		{"avgDeliveryMinutes", "2.5"}, {"avgPickupMinutes", "-1"}, {"coverage", "-"}, {"coverage", "null"}, {"coverage", `"everywhere"`},
		{"coverage", `{"type":"Polygon","coordinates":[[[40.9,28.6],[41.2,28.6],[41.2,29.4],[40.9,29.4],[40.9,28.6]]]}`}, // swapped
		{"coverage", `{"type":"Point","coordinates":[29,41]}`}, {"coverage", `{"type":"Polygon","coordinates":[[[28,40],[29,40],[29,41],[28,41]]]}`},
	} {
		wantField(t, e.tryAdmin("POST", "/fleets", body(c[0], c[1])), 422, "VALIDATION_FAILED", c[0])
	}

	for _, id := range []string{delivery.NewFleetID().String(), "none"} {
		want(t, e.tryAdmin("PATCH", "/fleets/"+id, `{"suspended":true}`), 404, "FLEET_NOT_FOUND")
		want(t, e.tryAdmin("POST", "/fleets/"+id+"/payment-overdue", ""), 404, "FLEET_NOT_FOUND")
	}
}

//rule:event-types/fleet.payment_overdue admin-api/post-fleets-id-payment-overdue
func TestAdminFleets_OverdueTellsEveryAccountOfItsStores(t *testing.T) {
	e := newStoreEnv(t, "")
	e.activeStore(e.account, e.courier, "s0")
	e.putStore(e.account, "pending", storeBody(kadikoy, e.courier.id))
	other := e.freshAccount()
	for range 2 { // the answer of the first may have been lost
		want(t, e.tryAdmin("POST", "/fleets/"+e.courier.id+"/payment-overdue", ""), 200, "", "accounts", 2, "stores", 3)
	}

	want(t, e.tryAdmin("POST", "/fleets/"+e.newFleet("Idle", istanbul).id+"/payment-overdue", ""), 200, "", "accounts", 0)
	e.wantEvents(map[party][]delivery.EventType{
		e.account: {delivery.StoreActivated, delivery.StoreActivated, delivery.PaymentOverdue},
		other:     {delivery.StoreActivated, delivery.PaymentOverdue},
	})
}

//rule:admin-api/put-accounts-id-webhook admin-api/post-accounts-id-webhook-rotate admin-api/post-accounts-id-webhook-replay
//rule:decisions/webhook-url-and-secret
func TestAdminWebhook_LifeAndReplay(t *testing.T) {
	e := newStoreEnv(t, "")
	path := webhookPath(e.account)
	put := e.admin("PUT", path, `{"url":"https://hooks.vendor.com/a"}`)
	secret, _ := put.data["secret"].(string)
	if !strings.HasPrefix(secret, "whsec_") || put.data["url"] != "https://hooks.vendor.com/a" || put.data["status"] == "" {
		t.Fatalf("%s", put.body)
	}

	want(t, e.tryAdmin("PUT", path, `{"url":"https://hooks.vendor.com/b"}`), 200, "", "secret", absent, "url", "https://hooks.vendor.com/b")
	if rotated := e.admin("POST", path+"/rotate", ""); rotated.data["secret"] == secret || !strings.HasPrefix(rotated.data["secret"].(string), "whsec_") {
		t.Errorf("%s", rotated.body)
	}

	for range 3 {
		e.admin("POST", path+"/rotate", "")
	}

	want(t, e.tryAdmin("POST", path+"/rotate", ""), 409, "TOO_MANY_SECRETS")
	wantField(t, e.tryAdmin("POST", path+"/rotate", `{"revokeOld":"yes"}`), 422, "VALIDATION_FAILED", "revokeOld")
	e.admin("POST", path+"/rotate", `{"revokeOld":true}`)
	want(t, e.tryAdmin("GET", path+"/deliveries?status=undelivered", ""), 200, "", "deliveries", []any{})
	want(t, e.tryAdmin("GET", path+"/deliveries?status=lost", ""), 422, "VALIDATION_FAILED")
	id := e.created("POS-1")
	e.cancel(id, "")
	order := e.stored(id)
	event := delivery.EventID(order.ID, order.Version)
	want(t, e.tryAdmin("POST", path+"/replay", `{"eventIds":["`+event+`"]}`), 200, "", "replayed", 1)
	want(t, e.tryAdmin("POST", path+"/replay", `{"eventIds":["evt_none"]}`), 404, "EVENT_NOT_FOUND")
	want(t, e.tryAdmin("POST", path+"/replay", `{"eventIds":["`+event+`"],"since":"2026-11-21T12:00:00Z"}`), 422, "VALIDATION_FAILED")
	if a := e.admin("POST", path+"/replay", since(time.Now().Add(-time.Hour))); a.data["replayed"] == nil {
		t.Errorf("%s", a.body)
	}

	for _, body := range []string{`{}`, `{"url":"ftp://vendor.com/"}`, `{"url":1}`} {
		want(t, e.tryAdmin("PUT", path, body), 422, "VALIDATION_FAILED")
	}

	if logs := e.logs.String(); strings.Contains(logs, secret) || strings.Contains(logs, "hooks.vendor.com") || strings.Contains(logs, "Yılmaz") {
		t.Error("the logs contain too much")
	}
}
