package systemtest

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apiRoute is an endpoint of the gateway, under the name that its metrics have.
type apiRoute struct {
	name, method, path, body string
}

// The gateway's routes by API, all there are; testTablesAreComplete holds them to
// what the running gateway says of itself. The body passes the first checks.
var apiRoutes = map[string][]apiRoute{
	"vendor": {
		{"orders_create", "POST", "/orders", "{}"},
		{"orders_read", "GET", "/orders/{order}", ""},
		{"orders_cancel", "POST", "/orders/{order}/cancel", "{}"},
		{"stores_put", "PUT", "/stores/{store}", "{}"},
		{"webhook_put", "PUT", "/webhook", "{}"},
		{"webhook_read", "GET", "/webhook", ""},
		{"webhook_delete", "DELETE", "/webhook", ""},
		{"webhook_test", "POST", "/webhook/test", "{}"},
		{"webhook_replay", "POST", "/webhook/replay", "{}"},
	},
	"fleet": {
		{"fleet_stores_list", "GET", "/stores", ""},
		{"fleet_stores_confirm", "POST", "/stores/{account}/{store}/confirm", "{}"},
		{"fleet_stores_reject", "POST", "/stores/{account}/{store}/reject", "{}"},
		{"fleet_jobs_list", "GET", "/jobs", ""},
		{"fleet_jobs_read", "GET", "/jobs/{order}", ""},
		{"fleet_jobs_accept", "POST", "/jobs/{order}/accept", "{}"},
		{"fleet_jobs_status", "POST", "/jobs/{order}/status", "{}"},
		{"fleet_jobs_courier", "PUT", "/jobs/{order}/courier", "{}"},
		{"fleet_locations", "POST", "/locations", "[]"},
		{"fleet_availability", "PUT", "/availability", "{}"},
	},
	"admin": {
		{"admin_accounts_create", "POST", "/accounts", "{}"},
		{"admin_accounts_list", "GET", "/accounts", ""},
		{"admin_accounts_read", "GET", "/accounts/{account}", ""},
		{"admin_accounts_change", "PATCH", "/accounts/{account}", "{}"},
		{"admin_credentials_rotate", "POST", "/accounts/{account}/credentials", "{}"},
		{"admin_webhook_put", "PUT", "/accounts/{account}/webhook", "{}"},
		{"admin_webhook_read", "GET", "/accounts/{account}/webhook", ""},
		{"admin_webhook_change", "PATCH", "/accounts/{account}/webhook", "{}"},
		{"admin_webhook_rotate", "POST", "/accounts/{account}/webhook/rotate", "{}"},
		{"admin_webhook_deliveries", "GET", "/accounts/{account}/webhook/deliveries", ""},
		{"admin_webhook_replay", "POST", "/accounts/{account}/webhook/replay", "{}"},
		{"admin_webhook_test", "POST", "/accounts/{account}/webhook/test", "{}"},
		{"admin_webhooks_list", "GET", "/webhooks", ""},
		{"admin_stores_confirm", "POST", "/accounts/{account}/stores/{store}/confirm", "{}"},
		{"admin_stores_reject", "POST", "/accounts/{account}/stores/{store}/reject", "{}"},
		{"admin_stores_migrate", "POST", "/accounts/{account}/stores/{store}/migrate", "{}"},
		{"admin_stores_deactivate", "POST", "/accounts/{account}/stores/{store}/deactivate", "{}"},
		{"admin_fleets_create", "POST", "/fleets", "{}"},
		{"admin_fleets_list", "GET", "/fleets", ""},
		{"admin_fleets_change", "PATCH", "/fleets/{fleet}", "{}"},
		{"admin_fleets_credentials", "POST", "/fleets/{fleet}/credentials", "{}"},
		{"admin_fleets_overdue", "POST", "/fleets/{fleet}/payment-overdue", "{}"},
		{"admin_finance_webhook_put", "PUT", "/finance/webhook", "{}"},
		{"admin_finance_webhook_read", "GET", "/finance/webhook", ""},
		{"admin_finance_announce", "POST", "/finance/reports/available", "{}"},
		{"admin_finance_webhook_delete", "DELETE", "/finance/webhook", ""},
	},
}

// tokenRoutes are for everybody: who asks there shows a secret, not a token.
var tokenRoutes = map[string]apiRoute{
	"vendor": {"token", "POST", "/token", "{}"},
	"fleet":  {"fleet_token", "POST", "/token", "{}"},
}

// openRoutes are the documentation, which is for everybody on its listener and
// discloses nothing about anyone.
var openRoutes = map[string][]apiRoute{
	"public":  {{"docs_page", "GET", "/docs", ""}, {"docs_file", "GET", "/docs/errors", ""}, {"docs_openapi", "GET", "/api/vendor/v1/openapi.yaml", ""}},
	"private": {{"private_docs_page", "GET", "/docs", ""}, {"private_docs_file", "GET", "/docs/admin", ""}, {"private_docs_openapi", "GET", "/api/admin/v1/openapi.yaml", ""}},
}

// noRoutes are names of the metrics for what no route takes.
var noRoutes = []string{"unknown", "unparsed"}

// root is where an API is.
func (e *env) root(api string) string {
	if api == "vendor" {
		return e.Demo.BaseURL + "/api/vendor/v1"
	}
	return e.Demo.OpsURL + "/api/" + api + "/v1"
}

// metricLine is a sample with its endpoint and, where it has one, its code.
var metricLine = regexp.MustCompile(`(?m)^(gateway_request_seconds_count|gateway_requests_total)\{(?:code="(\d+)",)?endpoint="([a-z_]+)"\} (\S+)`)

// answered returns, for every endpoint that the running gateway has, which codes it
// has answered so far.
func (e *env) answered(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	page := e.ask(t, http.MethodGet, e.Demo.OpsURL+"/metrics", "")
	for _, line := range metricLine.FindAllSubmatch(page.body, -1) {
		endpoint := string(line[3])
		found[endpoint] = append(found[endpoint], string(line[2]))
	}
	return found
}

// A route that is in no table fails here: they are compared with what the running
// gateway measures.
func testTablesAreComplete(t *testing.T, e *env) {
	want := slices.Clone(noRoutes)
	for api, routes := range apiRoutes {
		for _, r := range routes {
			want = append(want, r.name)
			if api != "admin" && crossings[r.name] == nil {
				t.Errorf("%s is not tried from another account or fleet", r.name)
			}
		}
	}

	for _, r := range tokenRoutes {
		want = append(want, r.name)
	}

	for _, routes := range openRoutes {
		for _, r := range routes {
			want = append(want, r.name)
		}
	}

	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(e.answered(t))); !slices.Equal(got, want) {
		t.Errorf("the gateway has the endpoints\n%v\nthe tables have\n%v", got, want)
	}
}

// signIn is the cookie of somebody who has signed in to the panel.
func (e *env) signIn(t *testing.T, user, password string) *http.Cookie {
	t.Helper()
	form := url.Values{"user": {user}, "password": {password}}.Encode()
	r := e.ask(t, http.MethodPost, e.Demo.PanelURL+"/login", form, "Content-Type", "application/x-www-form-urlencoded")
	found := (&http.Response{Header: r.header}).Cookies()
	if r.status != http.StatusSeeOther || len(found) == 0 {
		t.Fatalf("%s: signing in answers %d", user, r.status)
	}
	return found[0]
}

// credential is what somebody shows.
type credential struct {
	name    string
	headers []string
}

func bearer(name, token string) credential {
	return credential{name, []string{"Authorization", "Bearer " + token}}
}

// credentials are of everybody, in the order in which they may be repeated; own
// names the API they open.
func (e *env) credentials(t *testing.T) (all []credential, own map[string]string) {
	t.Helper()
	cookie := e.signIn(t, e.Demo.Panel.User, e.Demo.Panel.Password)
	return []credential{
		{"nobody's", nil},
		{"the panel's cookie", []string{"Cookie", cookie.String()}},
		bearer("a vendor's token", e.a.Bearer),
		bearer("a fleet's token", e.Fleet.Bearer),
		bearer("the admin key", e.Demo.AdminKey),
		bearer("a report token", e.Demo.ReportsToken),
		bearer("a session's id", cookie.Value),
		bearer("a client secret", e.a.ClientSecret),
		bearer("a fleet's secret", e.Demo.Fleet.ClientSecret),
		bearer("a webhook secret", e.a.secret),
	}, map[string]string{"a vendor's token": "vendor", "a fleet's token": "fleet", "the admin key": "admin"}
}

// What opens one API opens no other, and every refusal of an API has the same
// bytes, whatever was asked for.
func testCredentials(t *testing.T, e *env) {
	all, own := e.credentials(t)
	for api, routes := range apiRoutes {
		for _, shown := range all {
			var first *reply
			if own[shown.name] == api {
				continue
			}

			for _, r := range routes {
				got := e.ask(t, r.method, e.root(api)+e.filled(r.path), r.body, shown.headers...)
				if got.status != http.StatusUnauthorized || got.code() != "TOKEN_INVALID" || got.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s %s with %s: %d %s", r.method, r.path, shown.name, got.status, got.body)
				}
				if first == nil {
					first = got
				}
				alike(t, r.name+" with "+shown.name, got, first)
			}
		}
	}

	for api, r := range tokenRoutes {
		var first *reply
		for _, shown := range all {
			got := e.ask(t, r.method, e.root(api)+r.path, r.body, shown.headers...)
			if first == nil {
				first = got
			}
			if got.status != http.StatusUnprocessableEntity {
				t.Errorf("%s of the %s API with %s: %d %s", r.path, api, shown.name, got.status, got.body)
			}
			alike(t, r.name+" with "+shown.name, got, first)
		}
	}

	answered := e.answered(t)
	for _, routes := range apiRoutes {
		for _, r := range routes {
			if !slices.Contains(answered[r.name], "401") {
				t.Errorf("%s %s does not lead to %s", r.method, r.path, r.name)
			}
		}
	}
}

// What listens on the private address only is as unknown on the public one as any
// path, with the right credential too, and in any spelling.
func testPrivateRoutes(t *testing.T, e *env) {
	all, own := e.credentials(t)
	unknown := e.ask(t, http.MethodGet, e.Demo.BaseURL+"/unknown", "")
	if unknown.status != http.StatusNotFound || unknown.code() != "NOT_FOUND" {
		t.Fatalf("an unknown path: %d %s", unknown.status, unknown.body)
	}

	unknownPrivate := e.ask(t, http.MethodGet, e.Demo.OpsURL+"/unknown", "") // names the APIs of that listener
	for _, shown := range all {
		for _, api := range []string{"fleet", "admin"} {
			if own[shown.name] != api {
				continue
			}
			public := e.Demo.BaseURL + "/api/" + api + "/v1"
			for _, r := range append(slices.Clone(apiRoutes[api]), tokenRoutes["fleet"]) {
				got := e.ask(t, r.method, public+e.filled(r.path), r.body, shown.headers...)
				alike(t, "on the public listener "+r.name, got, unknown)
			}
		}

		if own[shown.name] == "vendor" {
			for _, r := range append(slices.Clone(apiRoutes["vendor"]), tokenRoutes["vendor"]) {
				got := e.ask(t, r.method, e.Demo.OpsURL+"/api/vendor/v1"+e.filled(r.path), r.body, shown.headers...)
				alike(t, "on the private listener "+r.name, got, unknownPrivate)
			}
		}
	}

	admin := []string{"Authorization", "Bearer " + e.Demo.AdminKey}
	for _, path := range []string{
		"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/vars", "/reports/", "/",
		"//api/admin/v1/accounts", "/api/vendor/v1/../../admin/v1/accounts", "/api/vendor/v1/%2e%2e/%2e%2e/admin/v1/accounts",
		"/api/vendor/v1/..%2f..%2fadmin/v1/accounts", "/api/vendor/v1/orders/..;/..;/..;/admin/v1/accounts", "/api/admin/v1/accounts/",
		"/API/ADMIN/V1/ACCOUNTS", "/api/vendor/v1%2f..%2f..%2fadmin%2fv1%2faccounts",
	} {
		alike(t, "on the public listener "+path, e.ask(t, http.MethodGet, e.Demo.BaseURL+path, "", admin...), unknown)
	}

	// The documents of the private APIs are on the private listener only, and what
	// is documented is not what is somebody's.
	for _, r := range openRoutes["private"][1:] {
		alike(t, "on the public listener "+r.name, e.ask(t, r.method, e.Demo.BaseURL+r.path, ""), unknown)
	}

	for origin, routes := range map[string][]apiRoute{e.Demo.BaseURL: openRoutes["public"], e.Demo.OpsURL: openRoutes["private"]} {
		for _, r := range routes {
			got := e.ask(t, r.method, origin+r.path, "")
			for _, secret := range []string{e.a.ClientSecret, e.a.secret, e.Demo.AdminKey, e.a.AccountID, e.Demo.Fleet.FleetID} {
				if got.status != http.StatusOK || bytes.Contains(got.body, []byte(secret)) {
					t.Errorf("%s: %d, or it has %s", r.name, got.status, secret)
				}
			}
		}
	}

	for name, header := range map[string]string{"Host": "127.0.0.1:8081", "X-Original-URL": "/api/admin/v1/accounts", "X-Rewrite-URL": "/metrics", "X-Forwarded-Host": "private"} {
		alike(t, "with the header "+name, e.ask(t, http.MethodGet, e.Demo.BaseURL+"/unknown", "", append(admin, name, header)...), unknown)
	}

	// Profiles show memory, where secrets are: nobody gets them unless they were
	// switched on.
	for _, ops := range []string{e.Demo.OpsURL, e.Worker.OpsURL(), e.Reporting.OpsURL(), e.Demo.PanelURL} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/trace?seconds=1"} {
			got := e.ask(t, http.MethodGet, ops+path, "", admin...)
			if got.status != http.StatusNotFound || bytes.Contains(got.body, []byte("goroutine")) {
				t.Errorf("%s%s: %d %.100s", ops, path, got.status, strings.TrimSpace(string(got.body)))
			}
		}
	}
}
