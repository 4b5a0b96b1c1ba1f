package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// refusal is one row of the spec's error table or of the decisions' own table.
type refusal struct {
	name   string
	do     func(s *env) answer
	status int
	code   string
	// field is the first of data.fields; "" where there are none.
	field string
	// bare answers carry no quota: nobody was authenticated, or the path is no
	// endpoint.
	bare bool
}

func ordering(changes ...string) func(*env) answer {
	return func(s *env) answer { return s.order(orderBody("POS-1", changes...), "") }
}

func ordered(body, key string) func(*env) answer {
	return func(s *env) answer { return s.order(body, key) }
}

func storing(body string) func(*env) answer {
	return func(s *env) answer { return s.putStore(s.account, "s9", body) }
}

func calling(method, path, body string, header ...string) func(*env) answer {
	return func(s *env) answer {
		r := request{method: method, url: s.vendor + path, token: s.account.token, body: body, header: map[string]string{}}
		for i := 0; i+1 < len(header); i += 2 {
			r.header[header[i]] = header[i+1]
		}
		return s.send(r)
	}
}

func authorized(value string) func(*env) answer {
	return func(s *env) answer {
		return s.send(request{method: "POST", url: s.vendor + "/api/vendor/v1/orders", body: orderBody("POS-1"),
			header: map[string]string{"Authorization": value}})
	}
}

// specErrors is the spec's error table, every row.
var specErrors = []refusal{
	{name: "expired token", status: 401, code: "TOKEN_EXPIRED", bare: true, do: func(s *env) answer {
		old, err := s.g.vendorTokens.Issue(s.account.accountID(), time.Now().Add(-time.Hour-time.Second))
		if err != nil {
			s.Fatal(err)
		}
		return authorized("Bearer " + old)(s)
	}},
	{name: "store not registered", status: 409, code: "STORE_NOT_CONFIGURED", do: ordering("externalStoreId", `"none"`)},
	{name: "store without fleet", status: 409, code: "STORE_NOT_CONFIGURED", do: func(s *env) answer {
		s.putStore(s.account, "s2", storeBody(kadikoy, ""))
		return ordering("externalStoreId", `"s2"`)(s)
	}},
	{name: "store not active", status: 409, code: "STORE_NOT_CONFIGURED", do: func(s *env) answer {
		s.putStore(s.account, "s2", storeBody(kadikoy, s.courier.id))
		return ordering("externalStoreId", `"s2"`)(s)
	}},
	{name: "external order id used", status: 409, code: "DUPLICATE_ORDER", do: func(s *env) answer {
		id := s.created("POS-1")
		a := ordering("recipient.name", `"Somebody Else"`)(s)
		if a.data["orderId"] != id {
			s.Errorf("data.orderId = %v, want %s", a.data["orderId"], id)
		}
		return a
	}},
	{name: "same key, other body", status: 409, code: "DUPLICATE_ORDER", do: func(s *env) answer {
		s.order(orderBody("POS-1"), "key")
		return s.order(orderBody("POS-2"), "key")
	}},
	{name: "recipient.name too short", status: 422, code: "INVALID_RECIPIENT", field: "recipient.name", do: ordering("recipient.name", `"A"`)},
	{name: "recipient.phone not 10 digits", status: 422, code: "INVALID_PHONE", field: "recipient.phone", do: ordering("recipient.phone", `"+90532123456"`)},
	{name: "dropoff.text too short", status: 422, code: "INVALID_ADDRESS", field: "dropoff.text", do: ordering("dropoff.text", `"Moda 12"`)},
	{name: "outside Turkey", status: 422, code: "COORDINATE_MISMATCH", field: "dropoff.latitude", do: ordering("dropoff.latitude", "52.52", "dropoff.longitude", "13.4")},
	{name: "swapped coordinates", status: 422, code: "COORDINATE_MISMATCH", field: "dropoff.latitude", do: ordering("dropoff.latitude", "29.0276", "dropoff.longitude", "40.9871")},
	{name: "outside the fleet's coverage", status: 422, code: "DROPOFF_OUT_OF_COVERAGE",
		do: ordering("dropoff.latitude", fmt.Sprint(ankara.Latitude), "dropoff.longitude", fmt.Sprint(ankara.Longitude))},
	{name: "readyAt too far", status: 422, code: "READY_AT_TOO_FAR", field: "readyAt", do: func(s *env) answer {
		return ordering("readyAt", `"`+time.Now().Add(4*time.Hour+time.Minute).Format(time.RFC3339)+`"`)(s)
	}},
	{name: "fleet suspended", status: 423, code: "FLEET_SUSPENDED", do: func(s *env) answer {
		s.admin("PATCH", "/fleets/"+s.courier.id, `{"suspended":true}`)
		return ordering()(s)
	}},
	{name: "limit exceeded", status: 429, code: "RATE_LIMITED", do: func(s *env) answer {
		s.admin("PATCH", "/accounts/"+s.account.id, `{"limits":{"orders":{"sustained":{"count":1,"seconds":60}}}}`)
		s.created("POS-1")
		return ordering()(s)
	}},
	{name: "no courier", status: 503, code: "FLEET_UNAVAILABLE", do: func(s *env) answer {
		s.fleet(s.courier, "PUT", "/availability", `{"couriers":0}`)
		a := ordering()(s)
		if a.header.Get("Retry-After") != "60" {
			s.Errorf("Retry-After = %q", a.header.Get("Retry-After"))
		}
		return a
	}},
}

// decidedErrors are those that the decisions add to the spec.
var decidedErrors = []refusal{
	{name: "no JSON", status: 400, code: "MALFORMED_REQUEST", do: ordered(`{"a":`, "")},
	{name: "no object", status: 400, code: "MALFORMED_REQUEST", do: ordered(`[]`, "")},
	{name: "empty body", status: 400, code: "MALFORMED_REQUEST", do: calling("POST", "/api/vendor/v1/orders", "", "Content-Length", "0")},

	{name: "recipient missing", status: 422, code: "VALIDATION_FAILED", field: "recipient.name", do: ordering("recipient", "-")},
	{name: "key in another case", status: 422, code: "VALIDATION_FAILED", field: "externalOrderId", do: ordering("externalOrderId", "-", "externalorderid", `"x"`)},
	{name: "no token", status: 401, code: "TOKEN_INVALID", bare: true, do: authorized("")},
	{name: "phone wins over address", status: 422, code: "INVALID_PHONE", field: "recipient.phone", do: ordering("recipient.phone", `"1"`, "dropoff.text", `"x"`)},
	{name: "address wins over coordinates", status: 422, code: "INVALID_ADDRESS", field: "dropoff.text", do: ordering("dropoff.text", `"x"`, "dropoff.latitude", "1")},
	{name: "coordinates win over other fields", status: 422, code: "COORDINATE_MISMATCH", field: "dropoff.latitude", do: ordering("dropoff.latitude", "1", "payment.type", `"x"`)},
	{name: "fields win over the store", status: 422, code: "INVALID_PHONE", field: "recipient.phone", do: ordering("recipient.phone", `"1"`, "externalStoreId", `"none"`)},
	{name: "store wins over uniqueness", status: 409, code: "STORE_NOT_CONFIGURED", do: func(s *env) answer {
		s.created("POS-1")
		return ordering("externalStoreId", `"none"`)(s)
	}},
	{name: "key too long", status: 422, code: "VALIDATION_FAILED", field: "X-Idempotency-Key", do: ordered(orderBody("POS-1"), strings.Repeat("k", 256))},
	{name: "key with a space", status: 422, code: "VALIDATION_FAILED", field: "X-Idempotency-Key", do: ordered(orderBody("POS-1"), "a b")},

	{name: "unknown path", status: 404, code: "NOT_FOUND", bare: true, do: calling("GET", "/api/vendor/v1/orders/1/events", "")},
	{name: "root", status: 404, code: "NOT_FOUND", bare: true, do: calling("GET", "/", "")},
	{name: "no fleet discovery", status: 404, code: "NOT_FOUND", bare: true, do: calling("GET", "/api/vendor/v1/fleets", "")},
	{name: "no bulk status", status: 405, code: "METHOD_NOT_ALLOWED", bare: true, do: calling("GET", "/api/vendor/v1/orders", "")},
	{name: "store cannot be read", status: 405, code: "METHOD_NOT_ALLOWED", bare: true, do: calling("GET", "/api/vendor/v1/stores/s1", "")},
	{name: "OPTIONS", status: 405, code: "METHOD_NOT_ALLOWED", bare: true, do: calling("OPTIONS", "/api/vendor/v1/orders", "")},
	{name: "no length", status: 411, code: "LENGTH_REQUIRED", do: func(s *env) answer {
		return s.raw("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.account.token + "\r\n\r\n")
	}},
	{name: "length and chunks", status: 400, code: "MALFORMED_REQUEST", do: func(s *env) answer {
		return s.raw(posted("POST", ordersPath, "Transfer-Encoding: chunked\r\nAuthorization: Bearer "+s.account.token+"\r\n", "2\r\n{}\r\n0\r\n\r\n"))
	}},
	{name: "too large in chunks", status: 413, code: "PAYLOAD_TOO_LARGE", do: func(s *env) answer {
		return s.raw(hostileOrders + "Authorization: Bearer " + s.account.token + "\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n" + strings.Repeat(" ", 65537) + "\r\n0\r\n\r\n")
	}},
	{name: "too large", status: 413, code: "PAYLOAD_TOO_LARGE", do: ordering("packageNote", `"`+strings.Repeat("x", 65536)+`"`)},
	{name: "another content type", status: 415, code: "UNSUPPORTED_MEDIA_TYPE", do: calling("POST", "/api/vendor/v1/orders", orderBody("POS-1"), "Content-Type", "text/plain")},
	{name: "headers too large", status: 431, code: "REQUEST_HEADER_TOO_LARGE", bare: true, do: calling("GET", "/api/vendor/v1/webhook", "", "X-Large", strings.Repeat("x", 20000))},

	{name: "wrong secret", status: 401, code: "INVALID_CREDENTIALS", bare: true, do: func(s *env) answer { return s.login("vendor", s.account.clientID, "wrong") }},
	{name: "unknown client", status: 401, code: "INVALID_CREDENTIALS", bare: true, do: func(s *env) answer { return s.login("vendor", "nobody", "wrong") }},
	{name: "credentials missing", status: 422, code: "VALIDATION_FAILED", field: "clientId", bare: true, do: calling("POST", "/api/vendor/v1/token", `{}`)},
	{name: "credentials of another type", status: 422, code: "VALIDATION_FAILED", field: "clientSecret", bare: true, do: calling("POST", "/api/vendor/v1/token", `{"clientSecret":1,"clientId":"x"}`)},
	{name: "token of an unknown account", status: 401, code: "TOKEN_INVALID", bare: true, do: func(s *env) answer {
		unknown, err := s.g.vendorTokens.Issue(delivery.NewAccountID(), time.Now())
		if err != nil {
			s.Fatal(err)
		}
		return authorized("Bearer " + unknown)(s)
	}},
	{name: "account suspended", status: 403, code: "ACCOUNT_SUSPENDED", do: func(s *env) answer {
		s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":true}`)
		return ordering()(s)
	}},
	{name: "account suspended, new token", status: 403, code: "ACCOUNT_SUSPENDED", do: func(s *env) answer {
		s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":true}`)
		return s.login("vendor", s.account.clientID, s.account.secret)
	}},
	{name: "too many earlier secrets", status: 409, code: "TOO_MANY_SECRETS", bare: true, do: func(s *env) answer {
		for range 4 {
			s.admin("POST", "/accounts/"+s.account.id+"/credentials", "")
		}
		return s.tryAdmin("POST", "/accounts/"+s.account.id+"/credentials", "")
	}},
	{name: "unknown order", status: 404, code: "ORDER_NOT_FOUND", do: calling("GET", "/api/vendor/v1/orders/7c9e6679-7425-80de-944b-e07fc1f90ae7", "")},
	{name: "order id that is no UUID", status: 404, code: "ORDER_NOT_FOUND", do: calling("GET", "/api/vendor/v1/orders/POS-1", "")},
	{name: "order id that is not encoded", status: 400, code: "MALFORMED_REQUEST", do: func(s *env) answer {
		return s.raw("GET /api/vendor/v1/orders/%zz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.account.token + "\r\n\r\n")
	}},
	{name: "cancel of an unknown order", status: 404, code: "ORDER_NOT_FOUND", do: calling("POST", "/api/vendor/v1/orders/POS-1/cancel", "")},
	{name: "cancel note too long", status: 422, code: "VALIDATION_FAILED", field: "note", do: func(s *env) answer {
		return s.cancel(s.created("POS-1"), `{"note":"`+strings.Repeat("x", 257)+`"}`)
	}},
	{name: "cancel too late", status: 409, code: "ORDER_NOT_CANCELLABLE", do: func(s *env) answer {
		id := s.created("POS-1")
		s.fleet(s.courier, "POST", "/jobs/"+id+"/status", `{"status":"PickedUp"}`)
		return s.cancel(id, "")
	}},

	{name: "store fields missing", status: 422, code: "VALIDATION_FAILED", field: "name", do: storing(`{}`)},
	{name: "store phone wrong", status: 422, code: "INVALID_PHONE", field: "phone", do: storing(strings.Replace(storeBody(kadikoy, ""), "02161234567", "123", 1))},
	{name: "store outside Turkey", status: 422, code: "COORDINATE_MISMATCH", field: "address.latitude", do: storing(storeBody(delivery.Point{Latitude: 52.5, Longitude: 13.4}, ""))},
	{name: "taxNumber wrong", status: 422, code: "VALIDATION_FAILED", field: "taxNumber", do: storing(strings.Replace(storeBody(kadikoy, ""), "1234567890", "123456789", 1))},
	{name: "fleetId no UUID", status: 422, code: "VALIDATION_FAILED", field: "fleetId", do: storing(storeBody(kadikoy, "kurye"))},
	{name: "fleet unknown", status: 422, code: "FLEET_NOT_AVAILABLE", do: storing(storeBody(kadikoy, delivery.NewFleetID().String()))},
	{name: "fleet does not serve the address", status: 422, code: "FLEET_NOT_AVAILABLE", do: func(s *env) answer { return storing(storeBody(ankara, s.courier.id))(s) }},
	{name: "too many stores", status: 409, code: "TOO_MANY_STORES", do: func(s *env) answer {
		s.admin("PATCH", "/accounts/"+s.account.id, `{"limits":{"maxStores":1}}`)
		return storing(storeBody(kadikoy, ""))(s)
	}},
	{name: "store id too long", status: 422, code: "VALIDATION_FAILED", field: "externalStoreId", do: calling("PUT", "/api/vendor/v1/stores/"+strings.Repeat("x", 65), storeBody(kadikoy, ""))},
	{name: "store malformed", status: 400, code: "MALFORMED_REQUEST", do: storing(`{`)},

	{name: "no webhook", status: 404, code: "WEBHOOK_NOT_CONFIGURED", do: calling("GET", "/api/vendor/v1/webhook", "")},
	{name: "no webhook to delete", status: 404, code: "WEBHOOK_NOT_CONFIGURED", do: calling("DELETE", "/api/vendor/v1/webhook", "")},
	{name: "no webhook to test", status: 404, code: "WEBHOOK_NOT_CONFIGURED", do: calling("POST", "/api/vendor/v1/webhook/test", "")},
	{name: "webhook being removed", status: 409, code: "WEBHOOK_BEING_REMOVED", do: func(s *env) answer {
		s.removeWithWaiting()
		return s.call("PUT", "/webhook", `{"url":"https://second.example/"}`)
	}},
	{name: "webhook url missing", status: 422, code: "VALIDATION_FAILED", field: "url", do: calling("PUT", "/api/vendor/v1/webhook", `{}`)},
	{name: "webhook url private", status: 422, code: "VALIDATION_FAILED", field: "url", do: calling("PUT", "/api/vendor/v1/webhook", `{"url":"https://10.0.0.1/"}`)},
	{name: "no webhook to replay to", status: 404, code: "WEBHOOK_NOT_CONFIGURED", do: replaying(`{"since":"` + ago(time.Hour) + `"}`)},
	{name: "replay malformed", status: 400, code: "MALFORMED_REQUEST", do: replaying(`{"since":`)},
	{name: "replay cannot be read", status: 405, code: "METHOD_NOT_ALLOWED", bare: true, do: calling("GET", "/api/vendor/v1/webhook/replay", "")},

	{name: "sandbox: no courier", status: 503, code: "FLEET_UNAVAILABLE", do: ordering("packageNote", `"SIM:FLEET_UNAVAILABLE"`)},
	{name: "sandbox: suspended", status: 423, code: "FLEET_SUSPENDED", do: ordering("packageNote", `"SIM:FLEET_SUSPENDED please"`)},
}

// wrongFields are the members of an order with values that they cannot have.
var wrongFields = map[string][]string{
	"recipient.name":           {"-", "null"},
	"recipient":                {"[]"},
	"recipient.phone":          {"-", "5321234567"},
	"dropoff.text":             {"-"},
	"dropoff.latitude":         {"-"},
	"dropoff.longitude":        {`"29.02"`},
	"externalOrderId":          {"-", `"` + strings.Repeat("ş", 65) + `"`},
	"packageNote":              {`"` + strings.Repeat("ş", 501) + `"`, `"SIM:FAIL=Nonsense"`, `"sim:fail=Other"`, `"SIM:FOO"`, `"SIM:HOLD=assigned"`},
	"payment.type":             {`"cash"`},
	"payment.collectionAmount": {"-1"},
	"orderAmount":              {"10000000", "1.005", `"1.00"`},
	"readyAt":                  {`"tomorrow"`},
}

// wrongReplays are bodies without a time to replay from.
var wrongReplays = []string{
	`{}`, `{"since":null}`, `{"since":1753000000}`, `{"since":"yesterday"}`, `{"since":"` + ago(24*time.Hour+2*time.Minute) + `"}`,
	`{"since":"` + ago(-24*time.Hour) + `"}`, `{"eventIds":["evt_1"]}`,
}

// refusals are all of them.
func refusals() (all []refusal) {
	for field, values := range wrongFields {
		for _, value := range values {
			all = append(all, refusal{name: field + " " + value, status: 422, code: "VALIDATION_FAILED", field: field, do: ordering(field, value)})
		}
	}

	for _, body := range wrongReplays {
		all = append(all, refusal{name: "replay " + body, status: 422, code: "VALIDATION_FAILED", field: "since", do: replaying(body)})
	}
	return slices.Concat(all, specErrors, decidedErrors)
}

//rule:introduction/request-and-response-bodies-are what-the-service-does/4 what-the-service-does/facts-that/fleet-discovery-is-returned-inside
//rule:what-the-service-does/facts-that/order-history-is-returned-inside what-the-service-does/facts-that/there-is-no-bulk-or
//rule:response-envelope/success response-envelope/data response-envelope/message response-envelope/error-detail-inside-data-errorcode
//rule:order-creation-request/externalStoreId order-creation-request/externalOrderId order-creation-request/dropoff.latitude
//rule:order-creation-request/dropoff.longitude store-states/orders-are-accepted-only-for post-token/request-clientid-string-clientsecret-string
//rule:post-orders/headers-authorization-x-idempotency-key-string-unique post-orders/validation-failures-and-their-codes authentication/2
//rule:authentication/4 authentication/7 errors/error-responses-use-the-envelope errors/TOKEN_EXPIRED errors/STORE_NOT_CONFIGURED
//rule:errors/DUPLICATE_ORDER errors/INVALID_RECIPIENT errors/INVALID_PHONE errors/INVALID_ADDRESS errors/COORDINATE_MISMATCH
//rule:errors/DROPOFF_OUT_OF_COVERAGE errors/READY_AT_TOO_FAR errors/FLEET_SUSPENDED errors/RATE_LIMITED errors/FLEET_UNAVAILABLE
//rule:errors/retry-guidance/FLEET_UNAVAILABLE limits/rules/2 limits/rules/3 private-apis/private-listener-json-the-same
//rule:finance/money-is-a-json-number decisions/put-with-fleetid decisions/malformed-or-unknown decisions/several-faults-at-once
//rule:decisions/authentication decisions/unknown-order decisions/duplicate-order decisions/cancel decisions/sandbox
//rule:errors/retry-guidance/any-other
//rule:decisions/missing-recipient.name-phone-dropoff.text-or-coordinates decisions/must-not-be-added-because
func TestErrors_EveryRowThroughHTTP(t *testing.T) {
	e := newStoreEnv(t, "")
	for _, row := range refusals() {
		t.Run(row.name, func(t *testing.T) { row.check(e.as(t, e.freshAccount())) })
		e.admin("PATCH", "/fleets/"+e.courier.id, `{"suspended":false}`)
		e.fleet(e.courier, "PUT", "/availability", `{"couriers":5}`)
	}
}

func (row refusal) check(e *env) {
	a := row.do(e)
	wantField(e, a, row.status, row.code, row.field)
	if a.quota() == row.bare {
		e.Errorf("quota headers: %v", a.header)
	}

	for header, there := range map[string]bool{
		"WWW-Authenticate": row.status == 401, "Allow": row.status == 405,
		// Where waiting helps; any other refusal would only be repeated.
		"Retry-After": row.code == "RATE_LIMITED" || row.code == "FLEET_UNAVAILABLE" || row.code == "WEBHOOK_BEING_REMOVED",
	} {
		if (a.header.Get(header) != "") != there {
			e.Errorf("%s = %q", header, a.header.Get(header))
		}
	}

	if wait := a.data["retryAfterSeconds"]; a.header.Get("Retry-After") != strings.TrimPrefix(fmt.Sprint(wait), "<nil>") {
		e.Errorf("%s, Retry-After %s", a.body, a.header.Get("Retry-After"))
	}
	if strings.Contains(e.logs.String(), e.account.token) || strings.Contains(e.logs.String(), e.account.secret) {
		e.Error("a credential is in the logs")
	}
}

//rule:limits-and-idempotency/every-request-of-an-authenticated
func TestErrors_RefusedBodiesConsumeTheLimit(t *testing.T) {
	e := newStoreEnv(t, "")
	for name, refuse := range map[string]func(*env) answer{
		"malformed":        ordered(`{`, ""),
		"a rule is broken": ordering("recipient.phone", `"1"`),
		"bad key":          ordered(orderBody("POS-1"), "a b"),
		"too large":        ordering("packageNote", `"`+strings.Repeat("x", 65536)+`"`),
		"content type":     calling("POST", "/api/vendor/v1/orders", "x", "Content-Type", "text/plain"),
		"no store":         ordering("externalStoreId", `"none"`),
		"replay": func(s *env) answer {
			s.order(orderBody("POS-1"), "key")
			return s.order(orderBody("POS-1"), "key")
		},
	} {
		account := e.newAccount(`{"orders":{"sustained":{"count":2,"seconds":3600}}}`)
		e.activeStore(account, e.courier, "s1")
		own := e.as(t, account)
		for range 2 {
			if a := refuse(own); a.status == 429 && name != "replay" {
				t.Fatalf("%s: %d %s", name, a.status, a.body)
			}
		}

		if a := want(t, ordering()(own), 429, "RATE_LIMITED"); a.header.Get("X-RateLimit-Limit") != "2" || a.header.Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("%s: %v", name, a.header)
		}

		want(t, refuse(own), 429, "RATE_LIMITED")
	}
}
