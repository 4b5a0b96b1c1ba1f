package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// bodyOf encodes an object as a request's body.
func bodyOf(t *testing.T, object any) string {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// What GET answers can be sent back, whole or its limits alone, and changes nothing.
//
//rule:admin-api/patch-accounts-id
func TestChangeAccount_TakesBackWhatItAnswers(t *testing.T) {
	e := newEnv(t)
	account := e.newAccount("")
	path := "/accounts/" + account.id
	e.admin("PATCH", path, `{"limits":{"cancel":{"burst":{"count":20,"seconds":10}}}}`)

	before := e.admin("GET", path, "").data
	for name, sent := range map[string]any{"whole": before, "limits": map[string]any{"limits": before["limits"]}} {
		after := e.admin("PATCH", path, bodyOf(t, sent)).data
		if !reflect.DeepEqual(after, before) {
			t.Errorf("%s: %v, want %v", name, after, before)
		}
	}

	for _, member := range []string{"accountId", "clientId", "createdAt", "excessSince"} {
		a := e.tryAdmin("PATCH", path, fmt.Sprintf(`{%q:"x"}`, member))
		wantField(t, a, 422, "VALIDATION_FAILED", member)
		if !strings.Contains(a.body, "read-only") {
			t.Errorf("%s: %s", member, a.body)
		}
	}

	wantField(t, e.tryAdmin("POST", "/accounts", bodyOf(t, before)), 422, "VALIDATION_FAILED", "accountId")
}

func TestChangeFleet_TakesBackWhatItAnswers(t *testing.T) {
	e := newEnv(t)
	fleet := e.newFleet("Kurye", istanbul)
	want(t, e.fleet(fleet, "PUT", "/availability", `{"couriers":3}`), 200, "")
	before := e.admin("GET", "/fleets?coverage=true", "").list("fleets")[0]
	e.admin("PATCH", "/fleets/"+fleet.id, bodyOf(t, before))
	after := e.admin("GET", "/fleets?coverage=true", "").list("fleets")[0]
	if !reflect.DeepEqual(after, before) {
		t.Errorf("%v, want %v", after, before)
	}

	for member, value := range map[string]string{"fleetId": `"x"`, "clientId": `"x"`, "couriers": "4"} {
		a := e.tryAdmin("PATCH", "/fleets/"+fleet.id, fmt.Sprintf(`{%q:%s}`, member, value))
		wantField(t, a, 422, "VALIDATION_FAILED", member)
	}
}

func TestChangeWebhook_TakesBackWhatItAnswers(t *testing.T) {
	e := newEnv(t)
	account := e.newAccount("")
	want(t, e.as(t, account).call("PUT", "/webhook", `{"url":"https://example.com/hook"}`), 200, "")
	path := "/accounts/" + account.id + "/webhook"
	e.admin("PATCH", path, `{"maxInFlight":7,"maxPerSecond":9}`)

	before := e.admin("GET", path, "").data
	after := e.admin("PATCH", path, bodyOf(t, before)).data
	if !reflect.DeepEqual(after, before) {
		t.Errorf("%v, want %v", after, before)
	}
}

// A window has both of its numbers; nothing else is taken for "as it is".
func TestChangeAccount_WantsWholeWindows(t *testing.T) {
	e := newEnv(t)
	path := "/accounts/" + e.newAccount("").id
	for _, window := range []string{`{}`, `{"count":null,"seconds":null}`, `{"count":5}`, `{"seconds":5}`} {
		for _, kind := range []string{"sustained", "burst"} {
			a := e.tryAdmin("PATCH", path, `{"limits":{"orders":{"`+kind+`":`+window+`}}}`)
			if a.status != 422 || !strings.HasPrefix(a.firstField(), "limits.orders."+kind+".") {
				t.Errorf("%s %s: %d %s", kind, window, a.status, a.body)
			}
		}
	}

	wantField(t, e.tryAdmin("PATCH", path, `{"limits":{"orders":{"sustained":null}}}`), 422, "VALIDATION_FAILED", "limits.orders.sustained")
}

// A burst leaves with null or zeros, and the answer does not have it any more.
func TestChangeAccount_RemovesABurst(t *testing.T) {
	e := newEnv(t)
	account := e.newAccount("")
	path := "/accounts/" + account.id
	limitOf := func(a answer, endpoint string) map[string]any {
		return a.data["limits"].(map[string]any)[endpoint].(map[string]any)
	}
	for _, endpoint := range []string{"orders", "orderStatus", "cancel", "token"} {
		for _, removal := range []string{`null`, `{"count":0,"seconds":0}`} {
			a := e.admin("PATCH", path, `{"limits":{"`+endpoint+`":{"burst":{"count":20,"seconds":10}}}}`)
			wantMembers(t, endpoint, limitOf(a, endpoint), "burst", map[string]any{"count": 20, "seconds": 10})
			a = e.admin("PATCH", path, `{"limits":{"`+endpoint+`":{"burst":`+removal+`}}}`)
			wantMembers(t, endpoint+" without "+removal, limitOf(a, endpoint), "burst", absent)
			if limitOf(a, endpoint)["sustained"] == nil {
				t.Errorf("%s: the sustained limit is gone: %s", endpoint, a.body)
			}
		}
	}

	for body, field := range map[string]string{
		`{"limits":{"stores":{"burst":null}}}`:                                "limits.stores.burst",
		`{"limits":{"stores":{"burst":{"count":0,"seconds":0}}}}`:             "limits.stores.burst",
		`{"limits":{"orders":{"burst":{"count":0,"seconds":10}}}}`:            "limits.orders.burst.count",
		`{"limits":{"orders":{"burst":{"count":10,"seconds":0}}}}`:            "limits.orders.burst.seconds",
		`{"limits":{"orders":{"burst":{"count":10}}}}`:                        "limits.orders.burst.seconds",
		`{"limits":{"orders":{"burst":7}}}`:                                   "limits.orders.burst",
		`{"limits":{"orders":{"burst":{"count":1,"seconds":1,"minutes":1}}}}`: "limits.orders.burst.minutes",
		`{"limits":{"orders":{"sustained":{"count":0,"seconds":0}}}}`:         "limits.orders.sustained.count",
	} {
		before := e.admin("GET", path, "").body
		wantField(t, e.tryAdmin("PATCH", path, body), 422, "VALIDATION_FAILED", field)
		if after := e.admin("GET", path, "").body; after != before {
			t.Errorf("%s: refused, and %s", body, after)
		}
	}

	// What was admitted under the burst counts on.
	e.account = account
	e.admin("PATCH", path, `{"limits":{"cancel":{"sustained":{"count":5,"seconds":3600},"burst":{"count":4,"seconds":10}}}}`)
	const anyOrder = "7c9e6679-7425-80de-944b-e07fc1f90ae7"
	for range 4 {
		want(t, e.cancel(anyOrder, ""), 404, "ORDER_NOT_FOUND")
	}

	want(t, e.cancel(anyOrder, ""), 429, "RATE_LIMITED")
	e.admin("PATCH", path, `{"limits":{"cancel":{"burst":null}}}`)
	want(t, e.cancel(anyOrder, ""), 404, "ORDER_NOT_FOUND")
	want(t, e.cancel(anyOrder, ""), 429, "RATE_LIMITED")
}

// A misspelt member of an operator's request is refused, and the message says which ones there are;
// of every route that takes a body.
func TestAdmin_BodiesAreClosed(t *testing.T) {
	e := newStoreEnv(t, "")
	tokens := map[access]string{adminOnly: adminKey}
	asked := 0
	for _, p := range e.endpoints(t) {
		if p.access != adminOnly || p.body == noBody {
			continue
		}

		asked++
		url := strings.ReplaceAll(p.url, "/api/admin/v1/accounts/"+accountIn(p.url), "/api/admin/v1/accounts/"+e.account.id)
		a := e.send(request{method: p.method, url: url, token: tokens[p.access], body: `{"suspend":true}`})
		if a.status != 422 || !strings.Contains(a.body, `{"field":"suspend","message":"is unknown; there are `) {
			t.Errorf("%s %s: %d %s", p.method, p.pattern, a.status, a.body)
		}
	}

	if asked < 15 {
		t.Errorf("only %d routes were asked", asked)
	}

	for path, c := range map[string]struct{ body, field, known string }{
		"/accounts/" + e.account.id: {`{"limits":{"order":{}}}`, "limits.order", "orders, orderStatus, cancel, stores, token"},
		"/fleets/" + e.courier.id:   {`{"name":"x","avgDeliveryMins":1}`, "avgDeliveryMins", "avgDeliveryMinutes"},
	} {
		a := e.tryAdmin("PATCH", path, c.body)
		wantField(t, a, 422, "VALIDATION_FAILED", c.field)
		if !strings.Contains(a.body, c.known) {
			t.Errorf("%s names no %s: %s", path, c.known, a.body)
		}
	}

	a := e.tryAdmin("POST", "/finance/reports/available", `{"id":"x","kind":"scheduled","at":"2026-11-21T12:00:00Z","files":[{"target":"t","name":"n","sha":"x"}]}`)
	if a.status != 422 || !strings.Contains(a.body, `"files[0].sha"`) {
		t.Errorf("a misspelt member of a file: %d %s", a.status, a.body)
	}

	// Vendors and fleets may send more than is read.
	want(t, e.call("PUT", "/webhook", `{"url":"https://vendor.example/hook","more":1}`), 200, "")
	want(t, e.fleet(e.courier, "PUT", "/availability", `{"couriers":1,"more":1}`), 200, "")
}

// accountIn is the account's id in a URL; empty for none.
func accountIn(url string) string {
	_, after, _ := strings.Cut(url, "/accounts/")
	id, _, _ := strings.Cut(after, "/")
	return id
}
