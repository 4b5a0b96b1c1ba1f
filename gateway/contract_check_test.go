package main

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vendorapi/gateway/openapi"
)

func TestDocuments_AreValidWithTheirExamples(t *testing.T) {
	for _, name := range []string{"vendor", "fleet", "admin"} {
		d, err := contractOfAPI(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.operations) < 10 {
			t.Errorf("%s has %d operations", name, len(d.operations))
		}
	}

	if _, err := contractOfAPI("panel"); err == nil {
		t.Error("there is a panel API")
	}

	for what, broken := range map[string]string{
		"an example that breaks its schema": strings.Replace(string(openapi.Vendor), "orderAmount: 249.90", "orderAmount: 249.905", 1),
		"a reference to nothing":            strings.Replace(string(openapi.Vendor), "responses/OrderNotFound'", "responses/Nothing'", 1),
		"OpenAPI 3.0":                       strings.Replace(string(openapi.Vendor), "openapi: 3.1.0", "openapi: 3.0.3", 1),
	} {
		if _, err := parseContract([]byte(broken)); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

// quota is the headers of an answer that was counted.
func quota(more ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "X-Ratelimit-Limit": {"600"}, "X-Ratelimit-Remaining": {"599"}, "X-Ratelimit-Reset": {"1795339860"},
		"Ratelimit": {`"orders-60s";r=599;t=60`}, "Ratelimit-Policy": {`"orders-60s";q=600;w=60`}}
	for i := 0; i+1 < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

const order = `{"externalStoreId":"moda","externalOrderId":"A-1","recipient":{"name":"Ayşe","phone":"05321234567"},` +
	`"dropoff":{"text":"Bahariye Caddesi No: 2","latitude":40.988,"longitude":29.03,"floor":null},"orderAmount":249.90,"unknown":1}`

const created = `{"success":true,"data":{"orderId":"7c9e6679-7425-80de-944b-e07fc1f90ae7","externalOrderId":"A-1","status":"Searching",` +
	`"fleet":{"fleetId":"0e0a9f1c-8f5e-4a43-9e0a-5a0c8ac2f1d3","name":"Kurye"},"trackingUrl":"http://127.0.0.1/track/x","estimatedPickupAt":"2026-11-21T12:40:00.000+03:00"}}`

const duplicate = `{"success":false,"message":"used","data":{"errorCode":"DUPLICATE_ORDER"}}`

// Every way in which an exchange can differ from the document is seen, and an
// exchange as documented passes.
func TestCheck_SeesWhatIsNotDocumented(t *testing.T) {
	asJSON := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	post := func(body string, status int, answer http.Header, said string) exchange {
		return exchange{Method: "POST", Target: "/api/vendor/v1/orders", Header: asJSON, Body: []byte(body), Status: status, Answer: answer, Said: []byte(said)}
	}
	d, err := parseContract(openapi.Vendor)
	if err != nil {
		t.Fatal(err)
	}

	all := maps.Clone(d.unmet)
	for name, c := range map[string]struct {
		exchange exchange
		fault    string // a pattern; empty: there is none
	}{
		"as documented":            {post(order, 201, quota(), created), ""},
		"a replay":                 {post(order, 201, quota("Idempotent-Replayed", "true"), created), ""},
		"a refusal":                {post(order, 409, quota(), duplicate), ""},
		"wrong on purpose":         {post(`{`, 400, http.Header{"Content-Type": {"application/json"}}, `{"success":false,"message":"no","data":{"errorCode":"MALFORMED_REQUEST"}}`), ""},
		"another value":            {post(order, 201, quota("Idempotent-Replayed", "yes"), created), "Idempotent-Replayed"},
		"an unknown header":        {post(order, 201, quota("X-Surprise", "1"), created), "X-Surprise"},
		"a header missing":         {post(order, 201, http.Header{"Content-Type": {"application/json"}}, created), `at '/header': missing properties .*'X-Ratelimit-Limit'`},
		"another type":             {post(order, 201, quota("Content-Type", "text/html"), created), "Content-Type"},
		"an unknown member":        {post(order, 201, quota(), strings.Replace(created, `"status"`, `"surprise":1,"status"`, 1)), "surprise"},
		"an unknown member below":  {post(order, 201, quota(), strings.Replace(created, `"name"`, `"surprise":1,"name"`, 1)), "surprise"},
		"an unknown member above":  {post(order, 201, quota(), strings.Replace(created, `"data"`, `"surprise":1,"data"`, 1)), "surprise"},
		"a member missing":         {post(order, 201, quota(), strings.Replace(created, `"trackingUrl":"http://127.0.0.1/track/x",`, "", 1)), "trackingUrl"},
		"a time without its zone":  {post(order, 201, quota(), strings.Replace(created, ".000+03:00", "Z", 1)), "estimatedPickupAt"},
		"no UUID":                  {post(order, 201, quota(), strings.Replace(created, "7c9e6679-", "", 1)), "orderId"},
		"another status":           {post(order, 200, quota(), created), "createOrder: 200: is not documented"},
		"another code":             {post(order, 409, quota(), strings.Replace(duplicate, "DUPLICATE_ORDER", "STORE_NOT_PENDING", 1)), "STORE_NOT_PENDING"},
		"a code of another status": {post(order, 422, quota(), duplicate), "DUPLICATE_ORDER"},
		"a code's own member":      {post(order, 409, quota(), strings.Replace(duplicate, `"}}`, `","status":"Failed"}}`, 1)), "status"},
		"a success that is none":   {post(order, 409, quota(), strings.Replace(duplicate, "false", "true", 1)), "success"},
		"accepted and too short":   {post(strings.Replace(order, "Ayşe", "A", 1), 201, quota(), created), "recipient/name"},
		"accepted and too exact":   {post(strings.Replace(order, "249.90", "249.905", 1), 201, quota(), created), "orderAmount"},
		"accepted without a field": {post(strings.Replace(order, `"externalOrderId":"A-1",`, "", 1), 201, quota(), created), "externalOrderId"},
		"an answer outside":        {exchange{Method: "GET", Target: "/api/vendor/v1/none", Status: 404, Answer: http.Header{"Content-Type": {"application/json"}}, Said: []byte(`{"success":false,"message":"no","data":{"errorCode":"NOT_FOUND"}}`)}, ""},
		"nothing outside":          {exchange{Method: "GET", Target: "/api/vendor/v1/none", Status: 200, Answer: quota(), Said: []byte(created)}, "is not documented"},
	} {
		d.unmet = maps.Clone(all)
		before := len(d.Unmet())
		got := d.Check(c.exchange)
		if c.fault == "" && got != nil || c.fault != "" && (got == nil || !regexp.MustCompile(c.fault).MatchString(got.Error())) {
			t.Errorf("%s: %v, want %q", name, got, c.fault)
		}
		if met := before - len(d.Unmet()); (met == 1) != (c.fault == "") {
			t.Errorf("%s: %d answers are noted as met", name, met)
		}
	}
}

func TestUnmet_NamesOperationStatusAndCode(t *testing.T) {
	d, err := parseContract(openapi.Vendor)
	if err != nil {
		t.Fatal(err)
	}

	missing := d.Unmet()
	for _, want := range []string{"createOrder: 201", "createOrder: 409 DUPLICATE_ORDER", "createOrder: 409 STORE_NOT_CONFIGURED",
		"getOrder: 401 TOKEN_EXPIRED", "deleteWebhook: 404 WEBHOOK_NOT_CONFIGURED", "-: 431 REQUEST_HEADER_TOO_LARGE"} {
		if !slices.Contains(missing, want) {
			t.Errorf("%s is not among %v", want, missing)
		}
	}
}
