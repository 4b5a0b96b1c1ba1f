//go:build long

package systemtest

import (
	"net/http"
	"strings"
	"testing"
)

// panelOpen is what the panel shows to everybody.
var panelOpen = []string{
	"GET /login", "POST /login", "GET /login.css", "POST /logout", "GET /logout", "GET /favicon.ico", "GET /assets/x/panel.css",
	"GET /track/x", "GET /track/x/live", "GET /track/assets/x/y", "GET /track/a/b/c/d", "POST /track/x",
}

// panelTable are the requests that the panel answers, by who may make them.
func panelTable() map[string][]string {
	table := map[string][]string{"everybody": panelOpen, "somebody": {"GET /"}}
	for _, page := range operatorPages {
		table["operator"] = append(table["operator"], "GET "+page)
	}

	for _, action := range operatorActions {
		table["operator"] = append(table["operator"], "POST "+action)
	}

	for _, page := range financePages {
		table["finance"] = append(table["finance"], "GET "+page)
	}

	return table
}

// testPanelCredentials: what opens an API opens no page, a report token reads
// what finance reads and changes nothing, and every refusal has the same bytes.
// What sessions may is tried with the panel's other tests.
func testPanelCredentials(t *testing.T, e *env) {
	all, _ := e.credentials(t)
	before, err := e.Admin.Do(t.Context(), http.MethodGet, "/accounts/"+e.a.AccountID, nil)
	must(t, err)
	for _, shown := range all {
		if shown.name == "the panel's cookie" {
			continue
		}

		var first *reply
		for _, who := range []string{"somebody", "operator", "finance"} {
			for _, request := range panelTable()[who] {
				method, path, _ := strings.Cut(e.filled(request), " ")
				if shown.name == "a report token" && who == "finance" && path != "/reports/order-ledger.csv" && path != "/payments" {
					continue // finance's pages are tried with the panel's other tests, and ask ClickHouse for much
				}

				got := e.ask(t, method, e.Demo.PanelURL+path, "", shown.headers...)
				switch {
				case shown.name == "a report token" && who == "operator":
					if got.status != http.StatusForbidden || got.code() != "FORBIDDEN" {
						t.Errorf("%s with %s: %d %.200s", request, shown.name, got.status, got.body)
					}
				case shown.name == "a report token":
					if got.status >= 400 {
						t.Errorf("%s with %s: %d %.200s", request, shown.name, got.status, got.body)
					}
				default:
					if got.status != http.StatusUnauthorized || got.code() != "TOKEN_INVALID" {
						t.Errorf("%s with %s: %d %.200s", request, shown.name, got.status, got.body)
					}

					if first == nil {
						first = got
					}

					if string(got.body) != string(first.body) {
						t.Errorf("%s with %s: %s, others %s", request, shown.name, got.body, first.body)
					}
				}
			}
		}
	}

	after, err := e.Admin.Do(t.Context(), http.MethodGet, "/accounts/"+e.a.AccountID, nil)
	must(t, err)
	if string(after.Raw) != string(before.Raw) {
		t.Errorf("a refused request changed the account %s into %s", before.Raw, after.Raw)
	}

	testOpenPages(t, e, all)
}

// testOpenPages: what everybody may see is the same for everybody.
func testOpenPages(t *testing.T, e *env, all []credential) {
	for _, request := range panelOpen {
		method, path, _ := strings.Cut(request, " ")
		if path == "/logout" {
			continue // it is for those who are somebody, and asks for their proof
		}

		nobodys := e.ask(t, method, e.Demo.PanelURL+path, "")
		for _, shown := range all[1:] {
			if got := e.ask(t, method, e.Demo.PanelURL+path, "", shown.headers...); got.status != nobodys.status || len(got.body) != len(nobodys.body) && !strings.Contains(string(got.body), "requestId") {
				t.Errorf("%s with %s: %d, with nothing %d", request, shown.name, got.status, nobodys.status)
			}
		}
	}
}
