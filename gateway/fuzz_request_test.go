package main

import (
	"bytes"
	"net"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
)

// fuzzedRoutes are asked with whatever a fuzzer makes up, by everyone who may.
// Their order is part of the committed corpus: new ones go to the end.
var fuzzedRoutes = []struct{ caller, method, path string }{
	{"vendor", post, "/api/vendor/v1/orders"},
	{"vendor", get, "/api/vendor/v1/orders/{}"},
	{"vendor", post, "/api/vendor/v1/orders/{}/cancel"},
	{"vendor", put, "/api/vendor/v1/stores/{}"},
	{"vendor", post, "/api/vendor/v1/token"},
	{"vendor", put, "/api/vendor/v1/webhook"},
	{"vendor", post, "/api/vendor/v1/webhook/replay"},
	{"fleet", get, "/api/fleet/v1/stores?status={}"},
	{"fleet", get, "/api/fleet/v1/stores?cursor={}"},
	{"fleet", get, "/api/fleet/v1/jobs?cursor={}"},
	{"fleet", post, "/api/fleet/v1/jobs/{}/accept"},
	{"fleet", post, "/api/fleet/v1/jobs/{}/status"},
	{"fleet", put, "/api/fleet/v1/jobs/{}/courier"},
	{"fleet", post, "/api/fleet/v1/locations"},
	{"fleet", post, "/api/fleet/v1/stores/{account}/{}/confirm"},
	{"fleet", put, "/api/fleet/v1/availability"},
	{"admin", patch, "/api/admin/v1/accounts/{other}"},
	{"admin", get, "/api/admin/v1/accounts/{}"},
	{"admin", put, "/api/admin/v1/accounts/{account}/webhook"},
	{"admin", patch, "/api/admin/v1/accounts/{account}/webhook"},
	{"admin", post, "/api/admin/v1/accounts/{account}/webhook/replay"},
	{"admin", get, "/api/admin/v1/accounts/{account}/webhook/deliveries?status={}"},
	{"admin", post, "/api/admin/v1/accounts/{account}/stores/{}/confirm"},
	{"admin", post, "/api/admin/v1/accounts/{account}/stores/s1/migrate"},
	{"admin", post, "/api/admin/v1/accounts/{account}/stores/s1/deactivate"},
	{"admin", patch, "/api/admin/v1/fleets/{fleet}"},
	{"admin", get, "/api/admin/v1/webhooks?status={}"},
	{"admin", put, "/api/admin/v1/finance/webhook"},
	{"admin", post, "/api/admin/v1/finance/reports/available"},
}

// FuzzRequest asks every route that reads anything, against a real Redis: a
// request is done, or refused with an envelope and a code, and never fails.
func FuzzRequest(f *testing.F) {
	s := newStoreEnv(f, strings.ReplaceAll(everyLimit(), "100000", "1000000"))
	tokens := map[string]string{"vendor": s.account.token, "fleet": s.courier.token, "admin": adminKey}
	order, other := s.created("POS-1"), s.newAccount("").id
	for i, seed := range fuzzedBodies(s) {
		f.Add(uint8(i), order, seed, "key")
	}

	for i := range fuzzedRoutes {
		f.Add(uint8(i), "%00%2f..;\xff", `{"a":1e999}`, "\x00")
	}

	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	f.Fuzz(func(t *testing.T, number uint8, param, body, key string) {
		r := fuzzedRoutes[int(number)%len(fuzzedRoutes)]
		path := strings.NewReplacer("{account}", s.account.id, "{other}", other, "{fleet}", s.courier.id, "{}", param).Replace(r.path)
		var ctx fasthttp.RequestCtx
		ctx.Init(&fasthttp.Request{}, address, nil)
		h := &ctx.Request.Header
		h.SetMethod(r.method)
		h.SetRequestURI(path)
		h.SetContentType("application/json")
		h.Set("Authorization", "Bearer "+tokens[r.caller])
		h.Set("X-Idempotency-Key", key)
		h.Set("X-Operator", key)
		h.SetContentLength(len(body))
		ctx.Request.SetBodyStream(strings.NewReader(body), len(body))
		if r.caller == "vendor" {
			s.g.serve(&ctx, s.g.vendorRoutes, s.g.settings.VendorAPI.MaxBodyBytes, true)
		} else {
			s.g.serve(&ctx, s.g.privateRoutes, s.g.settings.PrivateAPI.MaxBodyBytes, false)
		}

		checkFuzzedAnswer(t, &ctx, r.method+" "+path)
	})
}

// checkFuzzedAnswer demands an envelope in UTF-8 that fits its status, and no
// failure of the service.
func checkFuzzedAnswer(t *testing.T, ctx *fasthttp.RequestCtx, asked string) {
	t.Helper()
	status, body := ctx.Response.StatusCode(), ctx.Response.Body()
	a := readAnswer(&http.Response{StatusCode: status}, bytes.Clone(body))
	if a.data == nil || !utf8.Valid(body) || (a.code == "") != (status < 300) || a.code == "INTERNAL_ERROR" || a.code == "SERVICE_UNAVAILABLE" {
		t.Fatalf("%q: %d %s", asked, status, body)
	}
	if refused := status == 401 || status == 403 || status == 415; refused && a.code != "INVALID_CREDENTIALS" {
		t.Fatalf("%q did not come to its handler: %d %s", asked, status, body)
	}
}

// fuzzedBodies are good requests, in the order of fuzzedRoutes.
func fuzzedBodies(s *env) []string {
	courier := `{"courier":{"name":"Mehmet Yıldız","phone":"+905321112233","vehicleType":"Motorcycle"},"at":"2026-11-21T12:30:00+03:00"}`
	return []string{
		orderBody("POS-2"), "", `{"reason":"Other","note":"n"}`, storeBody(kadikoy, s.courier.id),
		`{"clientId":"` + s.account.clientID + `","clientSecret":"` + s.account.secret + `"}`,
		`{"url":"https://vendor.example/hook"}`, `{"since":"2026-11-21T12:30:00Z"}`, "", "", courier,
		`{"status":"Failed","failureReason":"Other","location":{"latitude":41,"longitude":29},"etaDropoffAt":"2026-11-21T12:30+03"}`,
		courier, `[{"orderId":"x","latitude":41,"longitude":29,"at":"2026-11-21T12:30:00Z"},{}]`, `{}`, `{"couriers":3}`,
		`{"name":"V","limits":{"orders":{"burst":{"count":1000000,"seconds":1}}}}`, "", `{"url":"http://127.0.0.1:1/"}`,
		`{"paused":true}`, `{"eventIds":["evt_1"]}`, "", `{"fleetId":"` + s.courier.id + `"}`, `{"closingDate":"2026-12-01"}`,
		`{"reason":"VendorRequest"}`, `{"avgDeliveryMinutes":25,"coverage":` + istanbul + `}`, "",
		`{"url":"https://erp.example/"}`, reportBody(),
	}
}
