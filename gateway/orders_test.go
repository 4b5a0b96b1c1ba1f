package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

//rule:what-the-service-does/4 order-creation-response/orderId order-creation-response/externalOrderId order-creation-response/status
//rule:order-creation-response/fleet.fleetId order-creation-response/fleet.name order-creation-response/trackingUrl
//rule:order-creation-response/estimatedPickupAt order-states/none-to-searching post-orders/creates-a-delivery-request post-orders/synchronous
//rule:post-orders/response-order-creation-response decisions/success-status decisions/estimatedpickupat-etadropoffat decisions/trackingUrl
func TestCreateOrder_AnswersAsTheSpecSays(t *testing.T) {
	e := newStoreEnv(t, "")
	before := time.Now()
	a := want(t, e.order(orderBody("POS-1"), ""), 201, "", "externalOrderId", "POS-1", "status", "Searching",
		"fleet", map[string]any{"fleetId": e.courier.id, "name": "Kurye"})
	for field, pattern := range map[string]string{
		"orderId":           `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		"trackingUrl":       `^http://127\.0\.0\.1:8090/track/[A-Za-z0-9_-]{40,}$`,
		"estimatedPickupAt": `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+03:00$`,
	} {
		if got, _ := a.data[field].(string); !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("%s = %q", field, got)
		}
	}

	pickup, err := time.Parse(time.RFC3339, e.text(a, "estimatedPickupAt"))
	if err != nil || pickup.Before(before.Add(10*time.Minute-time.Second)) || pickup.After(time.Now().Add(10*time.Minute+time.Second)) {
		t.Errorf("estimatedPickupAt = %v, %v", pickup, err)
	}

	token := strings.TrimPrefix(e.text(a, "trackingUrl"), "http://127.0.0.1:8090/track/")
	if id, err := testSecrets().TrackingKeys.Parse(token); err != nil || id.String() != a.data["orderId"] {
		t.Errorf("the tracking token leads to %v, %v", id, err)
	}
	if a.header.Get("Content-Type") != "application/json" || !a.quota() || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers = %v", a.header)
	}
}

//rule:post-orders/headers-authorization-x-idempotency-key-string-unique post-orders/idempotency-same-key-with-the
//rule:limits-and-idempotency/idempotency-scope-account-key limits-and-idempotency/the-key-s-record-is-looked decisions/success-status
//rule:decisions/several-faults-at-once
func TestCreateOrder_ReplaysSameBytes(t *testing.T) {
	e := newStoreEnv(t, "")
	body := orderBody("POS-1", "readyAt", `"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"`)
	first := want(t, e.order(body, "key-1"), 201, "")
	replayed := func(when string) {
		t.Helper()
		a := e.order(body, "key-1")
		if a.status != 201 || a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" || !a.quota() {
			t.Errorf("%s: %d %s %v", when, a.status, a.body, a.header)
		}
	}

	replayed("at once")
	e.admin("PATCH", "/fleets/"+e.courier.id, `{"suspended":true,"name":"Renamed","avgPickupMinutes":30,"coverage":`+ankaraArea+`}`)
	replayed("after the fleet was suspended, renamed and shrunk")
	e.admin("POST", "/accounts/"+e.account.id+"/stores/s1/deactivate", `{"reason":"VendorRequest"}`)
	replayed("after the store was deactivated")
	for _, other := range []string{
		orderBody("POS-2"), strings.Replace(body, `:`, `: `, 1) /* the same JSON */, orderBody("POS-1", "recipient.name", `"A"`), /* invalid */
	} {
		want(t, e.order(other, "key-1"), 409, "DUPLICATE_ORDER")
	}

	want(t, e.order(`{`, "key-1"), 400, "MALFORMED_REQUEST")
	replayed("after conflicts")
}

//rule:post-orders/headers-authorization-x-idempotency-key-string-unique limits-and-idempotency/without-the-header-uniqueness-of
//rule:decisions/idempotency-header-absent
func TestCreateOrder_KeyThatIsTheOrderID(t *testing.T) {
	e := newStoreEnv(t, "")
	first := e.order(orderBody("POS-1"), "POS-1")
	if a := e.order(orderBody("POS-1"), "POS-1"); a.status != 201 || a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", a.status, a.body)
	}
	want(t, e.order(orderBody("POS-1"), ""), 409, "DUPLICATE_ORDER", "orderId", first.data["orderId"])
}

// The body is the same however it was cut: another client, or the same one
// behind another proxy, repeats the order.
func TestCreateOrder_InChunksAndWhole(t *testing.T) {
	e := newStoreEnv(t, "")
	body := orderBody("POS-1")
	head := "Authorization: Bearer " + e.account.token + "\r\nX-Idempotency-Key: k\r\n"
	first := want(t, e.raw(hostileOrders+head+fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n1;x\r\n%s\r\n0\r\n\r\n", len(body)-1, body[:len(body)-1], body[len(body)-1:])), 201, "")
	if a := want(t, e.order(body, "k"), 201, ""); a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v %s", a.header, a.body)
	}
}

// The key is the same under the IETF draft's name, and in either header with that draft's quotes and
// without.
//
//rule:decisions/idempotency-header-absent
func TestCreateOrder_KeyUnderEitherName(t *testing.T) {
	e := newStoreEnv(t, "")
	send := func(body string, keys ...string) answer {
		r := request{method: "POST", url: e.vendor + ordersPath, token: e.account.token, body: body, header: map[string]string{}}
		for i := 0; i < len(keys); i += 2 {
			r.header[keys[i]] = keys[i+1]
		}
		return e.send(r)
	}

	body := orderBody("POS-1")
	first := want(t, send(body, "Idempotency-Key", `"k-1"`), 201, "")
	for _, keys := range [][]string{
		{"Idempotency-Key", `"k-1"`}, {"Idempotency-Key", "k-1"}, {"X-Idempotency-Key", "k-1"}, {"X-Idempotency-Key", "k-1", "Idempotency-Key", "k-1"},
		{"X-Idempotency-Key", "k-1", "Idempotency-Key", `"k-1"`}, {"X-Idempotency-Key", `"k-1"`},
		{"X-Idempotency-Key", `"k-1"`, "Idempotency-Key", "k-1"}, {"X-Idempotency-Key", `"k-1"`, "Idempotency-Key", `"k-1"`},
	} {
		if a := want(t, send(body, keys...), 201, ""); a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%v: %v %s", keys, a.header, a.body)
		}
	}

	want(t, send(orderBody("POS-2"), "Idempotency-Key", "k-1"), 409, "DUPLICATE_ORDER")
	want(t, send(body, "X-Idempotency-Key", "k-1", "Idempotency-Key", "k-2"), 400, "MALFORMED_REQUEST")
	want(t, send(body, "X-Idempotency-Key", `"k-1"`, "Idempotency-Key", "k-2"), 400, "MALFORMED_REQUEST")
	want(t, send(orderBody("POS-2"), "X-Idempotency-Key", `"k-1"`), 409, "DUPLICATE_ORDER")
	for _, header := range []string{"X-Idempotency-Key", "Idempotency-Key"} {
		for _, bad := range []string{`""`, "a b", `"a b"`, strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`,
			`"`, `"k`, `k"`, `"a"b"`, `"a\b"`, `"a\"`, `"k";p=1`} {
			wantField(t, send(body, header, bad), 422, "VALIDATION_FAILED", header)
		}
	}

	named := send(body, "X-Idempotency-Key", "a b")
	if !strings.Contains(named.body, "character 2 is U+0020") {
		t.Errorf("%s", named.body)
	}

	// Within quotes a quote and a backslash are escaped; without them they are what they are.
	escaped := want(t, send(orderBody("POS-3"), "Idempotency-Key", `"a\"b\\c"`), 201, "")
	if a := want(t, send(orderBody("POS-3"), "X-Idempotency-Key", `a"b\c`), 201, ""); a.body != escaped.body {
		t.Errorf("%s", a.body)
	}

	want(t, send(orderBody("POS-4"), "X-Idempotency-Key", `"`+strings.Repeat("k", 255)+`"`), 201, "")
}

//rule:limits-and-idempotency/idempotency-scope-account-key decisions/idempotency-header-absent
func TestCreateOrder_RefusalsAreNotRemembered(t *testing.T) {
	e := newStoreEnv(t, "")
	want(t, e.order(orderBody("POS-1", "externalStoreId", `"s2"`), "k"), 409, "STORE_NOT_CONFIGURED")
	e.activeStore(e.account, e.courier, "s2")
	if a := want(t, e.order(orderBody("POS-1", "externalStoreId", `"s2"`), "k"), 201, ""); a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%v", a.header)
	}
}

//rule:decisions/payment-that-looks-wrong
func TestCreateOrder_WarnsOfThePayment(t *testing.T) {
	e := newStoreEnv(t, "")
	kind := func(a answer) any {
		warnings, _ := a.data["warnings"].([]any)
		if len(warnings) == 0 {
			return nil
		}
		return warnings[0].(map[string]any)["kind"]
	}

	for want, body := range map[any]string{
		nil:                   orderBody("fine", "orderAmount", "10", "payment.type", `"Cash"`, "payment.collectionAmount", "10.00"),
		"CollectionMissing":   orderBody("missing", "orderAmount", "10", "payment.type", `"Cash"`, "payment.collectionAmount", "-"),
		"CollectionOnPrepaid": orderBody("prepaid", "orderAmount", "10", "payment.type", `"Prepaid"`, "payment.collectionAmount", "10"),
		"CollectionDiffers":   orderBody("differs", "orderAmount", "10", "payment.type", `"Card"`, "payment.collectionAmount", "1000"),
	} {
		first := e.order(body, "key-"+fmt.Sprint(want))
		if again := e.order(body, "key-"+fmt.Sprint(want)); first.status != 201 || kind(first) != want || again.body != first.body {
			t.Errorf("%v: %s, again %s", want, first.body, again.body)
		}
	}
}

// What newcomers do wrong is answered by what to do.
func TestRefusals_SayWhatToDo(t *testing.T) {
	e := newStoreEnv(t, "")
	e.activeStore(e.account, e.courier, "s2")
	want(t, e.order(orderBody("POS-1"), "k"), 201, "")
	read := calling("GET", ordersPath+"/POS-1", "")
	ended := e.created("POS-3")
	want(t, e.fleet(e.courier, "POST", "/jobs/"+ended+"/status", `{"status":"Delivered"}`), 202, "")
	e.playWorker()
	e.await("Delivered", func() bool { return e.stored(ended).Status == delivery.Delivered })
	report := func(body string) answer { return e.fleet(e.courier, "POST", "/jobs/"+ended+"/status", body) }
	longAgo := `"` + time.Now().Add(-30*time.Hour).UTC().Format("2006-01-02T15:04:05Z") + `"`
	utc := `"` + time.Now().Add(5*time.Hour).UTC().Format("2006-01-02T15:04:05Z") + `"`
	for says, a := range map[string]answer{
		"the body is empty":                                              calling("POST", ordersPath, " ")(e),
		"remove it":                                                      calling("POST", ordersPath, "\ufeff"+orderBody("POS-2"))(e),
		"a decimal point, not a comma":                                   calling("POST", ordersPath, `{"orderAmount":249,90}`)(e),
		"orderAmount must be a number, without quotes":                   ordering("orderAmount", `"249.90"`)(e),
		"no blanks, dashes or brackets":                                  ordering("recipient.phone", `"0532 123 45 67"`)(e),
		`not \"text/plain\"`:                                             calling("POST", ordersPath, "x", "Content-Type", "text/plain")(e),
		"an order of store s1, data.orderId names it; it must":           e.order(orderBody("POS-1", "externalStoreId", `"s2"`), ""),
		"not byte for byte the same":                                     e.order(" "+orderBody("POS-1"), "k"),
		"use the orderId that the creation answered":                     read(e),
		"recipient.name must have at least 2 characters (and 1":          ordering("recipient.name", `"x"`, "recipient.phone", `"1"`)(e),
		"clientId is required (and 1 more in data.fields)":               calling("POST", "/api/vendor/v1/token", "{}")(e),
		"courier.name is required (and 2 more in data.fields)":           e.fleet(e.courier, "POST", "/jobs/"+ended+"/accept", "{}"),
		"begin with /api/vendor/v1 and have no slash at":                 calling("GET", ordersPath+"/", "")(e),
		"begin with /api/fleet/v1 or /api/admin/v1":                      e.get(e.private+"/", ""),
		"get one from POST /token":                                       authorized("Bearer x")(e),
		"register one with PUT /webhook":                                 e.as(t, e.newAccount("")).call("POST", "/webhook/test", ""),
		"the order is Delivered; nothing more can be reported":           report(`{"status":"Failed","failureReason":"Other"}`),
		"PaymentRefused or Other":                                        report(`{"status":"Failed","failureReason":"Rain"}`),
		"AwaitingFleetApproval, Active or Deactivated":                   e.fleet(e.courier, "GET", "/stores?status=waiting", ""),
		"+03:00, a local time has no Z":                                  ordering("readyAt", utc)(e),
		"lie in the future; it is read as 20":                            replaying(`{"since":` + utc + `}`)(e),
		"24 hours in the past; it is read as 20":                         report(`{"status":"Delivered","at":` + longAgo + `}`),
		`{"field":"dropoff.longitude","message":"2 and dropoff.latitude`: ordering("dropoff.longitude", "2")(e),
	} {
		if a.status < 400 || !strings.Contains(a.body, says) {
			t.Errorf("%d %s, want %q", a.status, a.body, says)
		}
	}
}

func TestCreateOrder_ManyAtOnceMakeOne(t *testing.T) {
	e := newStoreEnv(t, "")
	answers := make([]answer, 16)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = e.order(orderBody("POS-1"), "key") })
	}

	group.Wait()
	fresh := 0
	for _, a := range answers {
		if a.status != 201 || a.body != answers[0].body {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}

	if fresh != 1 {
		t.Errorf("%d orders were created", fresh)
	}
}

func TestCreateOrder_KeepsNothingOfTheRequestBuffer(t *testing.T) {
	e := newStoreEnv(t, "")
	ids := map[string]string{}
	for i := range 20 {
		name := fmt.Sprintf("POS-%03d", i)
		ids[name] = e.created(name, "recipient.name", fmt.Sprintf(`"Müşteri %03d"`, i))
	}

	for name, id := range ids {
		if order := e.stored(id); order.ExternalOrderID != name || order.Recipient.Name != "Müşteri "+name[4:] {
			t.Errorf("%s: %+v", name, order)
		}
	}
}

// Keys and external ids are an account's own: two vendors who count alike do not
// meet, and see nothing of each other's orders. On one partition nothing but the
// account tells them apart.
//
//rule:order-creation-request/externalOrderId limits-and-idempotency/idempotency-scope-account-key decisions/unknown-order
func TestOrders_AreTheAccountsOwn(t *testing.T) {
	e := newStoreEnv(t, "", func(s *settings) { s.Redis.Partitions = 1 })
	first := want(t, e.order(orderBody("POS-1"), "key"), 201, "")
	for _, body := range []string{orderBody("POS-1"), orderBody("POS-1", "recipient.name", `"Somebody Else"`)} {
		a := want(t, e.as(t, e.freshAccount()).order(body, "key"), 201, "")
		if a.header.Get("Idempotent-Replayed") != "" || a.data["orderId"] == first.data["orderId"] {
			t.Errorf("%s, the first %s", a.body, first.body)
		}
	}

	id, stranger := first.data["orderId"].(string), e.as(t, e.newAccount(""))
	for name, path := range map[string]string{
		"another account's": id,
		"unknown":           delivery.MakeOrderID(0, 1, delivery.OrderDigest(delivery.AccountID{}, "x")).String(),
		"a random UUID":     "7c9e6679-7425-40de-944b-e07fc1f90ae7",
		"no UUID":           "POS-1",
		"encoded slash":     "a%2Fb",
	} {
		for method, end := range map[string]string{"GET": "", "POST": "/cancel"} {
			a := e.raw(method + " /api/vendor/v1/orders/" + path + end + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + stranger.account.token + "\r\nContent-Length: 0\r\n\r\n")
			want(t, a, 404, "ORDER_NOT_FOUND")
			if !a.quota() {
				t.Errorf("%s: %v", name, a.header)
			}
		}
	}

	want(t, e.call("GET", "/orders/"+id, ""), 200, "", "status", "Searching")
}

// The vendor's own id finds no order, not even where it looks like an orderId.
//
//rule:order-creation-response/externalOrderId get-orders-orderid/path-parameter-orderid-the-service
func TestReadOrder_ExternalIDIsNoKey(t *testing.T) {
	e := newStoreEnv(t, "")
	first := e.created("POS-1")
	likeOurs := strings.Replace(first, first[:8], "00000000", 1)
	e.created(likeOurs)
	for _, externalID := range []string{"POS-1", likeOurs} {
		want(t, e.call("GET", "/orders/"+externalID, ""), 404, "ORDER_NOT_FOUND")
		want(t, e.cancel(externalID, ""), 404, "ORDER_NOT_FOUND")
	}
}

//rule:what-the-service-does/5 what-the-service-does/facts-that/order-history-is-returned-inside
//rule:order-status-delivery-state/this-object-is-returned-by order-status-delivery-state/events get-orders-orderid/no-body
//rule:get-orders-orderid/response-order-status-object-including decisions/courier-location-etadropoffat-while-unknown
func TestReadOrder_ShowsTheTimeline(t *testing.T) {
	e := newStoreEnv(t, "")
	id := e.created("POS-1")
	a := want(t, e.call("GET", "/orders/"+id, ""), 200, "", "orderId", id, "status", "Searching",
		"courier", absent, "location", absent, "etaDropoffAt", absent, "failureReason", absent)
	if events := a.list("events"); len(events) != 1 || events[0]["status"] != "Searching" {
		t.Errorf("events = %v", events)
	}
	if !a.quota() || a.header.Get("X-RateLimit-Limit") != "3000" {
		t.Errorf("headers = %v", a.header)
	}
}

//rule:get-orders-orderid/limited-to-one-request-per errors/a-status-query-over-its limits/get-orders-id limits/rules/1
//rule:limits-and-idempotency/headers-on-every-such-response
func TestReadOrder_OncePerTenSeconds(t *testing.T) {
	e := newClockEnv(t).withStore("")
	first, second := e.created("POS-1"), e.created("POS-2")
	want(t, e.call("GET", "/orders/"+first, ""), 200, "")
	e.clock.pass(t, 2500*time.Millisecond)
	a := want(t, e.call("GET", "/orders/"+first, ""), 429, "RATE_LIMITED", "retryAfterSeconds", 8)
	if !strings.Contains(a.message, "webhook") || a.header.Get("Retry-After") != "8" ||
		a.header.Get("X-RateLimit-Limit") != "1" || a.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("%s %v", a.body, a.header)
	}

	want(t, e.call("GET", "/orders/"+second, ""), 200, "")
	e.clock.pass(t, 7500*time.Millisecond)
	want(t, e.call("GET", "/orders/"+first, ""), 200, "")
}

//rule:what-the-service-does/6 post-orders-orderid-cancel/cancels-an-order-before-pickup states/terminal decisions/cancel
//rule:order-states/searching-assigned-pickingup-to-cancelled
func TestCancelOrder_AnswersTheOrder(t *testing.T) {
	e := newStoreEnv(t, "")
	for i, body := range []string{"", `{}`, `{"reason":"CustomerRequest","note":"müşteri vazgeçti"}`, `{"reason":null}`, `{"other":1}`} {
		id := e.created(fmt.Sprint("POS-", i))
		a := want(t, e.cancel(id, body), 200, "", "status", "Cancelled")
		if events := a.list("events"); len(events) != 2 || !a.quota() {
			t.Errorf("events = %v, headers = %v", events, a.header)
		}
		if again := want(t, e.cancel(id, body), 200, ""); again.body != a.body {
			t.Errorf("again: %s", again.body)
		}
	}

	want(t, e.cancel(e.created("POS-9"), `{"reason":"Bored"}`), 422, "VALIDATION_FAILED")
}

//rule:order-states/PickedUp states/cancel-against-pickup-a-pickup
func TestCancelOrder_LosesAgainstAReportedPickup(t *testing.T) {
	e := newStoreEnv(t, "")
	id := e.created("POS-1")
	want(t, e.fleet(e.courier, "POST", "/jobs/"+id+"/status", `{"status":"PickedUp"}`), 202, "")
	if a := want(t, e.cancel(id, ""), 409, "ORDER_NOT_CANCELLABLE"); a.data["status"] == nil || !a.quota() {
		t.Errorf("%s %v", a.body, a.header)
	}
}

//rule:what-the-service-does/facts-that/payment-handling-the-service-stores order-creation-request/orderAmount
//rule:order-creation-request/payment.collectionAmount finance/money-is-a-json-number
func TestCreateOrder_MoneyStaysExact(t *testing.T) {
	e := newStoreEnv(t, "")
	id := e.created("POS-1", "orderAmount", "0.30", "payment.collectionAmount", "9999999.99")
	a := e.fleet(e.courier, "GET", "/jobs/"+id, "")
	var job struct {
		Data struct {
			Payment struct{ OrderAmount, CollectionAmount json.Number }
		}
	}

	if err := json.Unmarshal([]byte(a.body), &job); err != nil {
		t.Fatal(err)
	}
	if p := job.Data.Payment; p.OrderAmount != "0.30" || p.CollectionAmount != "9999999.99" {
		t.Errorf("payment = %+v", p)
	}
}

// A point that is plausible and belongs to another address is the vendor's error,
// which nobody here can see.
//
//rule:errors/the-service-cannot-detect-a
func TestCreateOrder_PlausiblePointOfAnotherAddressPasses(t *testing.T) {
	e := newStoreEnv(t, "")
	e.created("POS-1", "dropoff.text", `"Barbaros Bulvarı 1, Beşiktaş"`, "dropoff.latitude", fmt.Sprint(kadikoy.Latitude), "dropoff.longitude", fmt.Sprint(kadikoy.Longitude))
}

//rule:introduction/all-paths-begin-with-api-vendor-v1 introduction/request-and-response-bodies-are versioning/the-version-is-part-of
func TestVendorRoutes_AreUnderTheVersionAndSpeakJSON(t *testing.T) {
	e := newStoreEnv(t, "")
	for _, r := range vendorRoutes() {
		path, versioned := strings.CutPrefix(r.pattern, "/api/vendor/v1/")
		if !versioned {
			t.Errorf("%s is %s", r.name, r.pattern)
		}

		ask := func(root string) answer {
			return e.send(request{method: r.method, url: e.vendor + root + strings.ReplaceAll(path, "{}", "x"), token: e.account.token})
		}
		if a := ask("/api/vendor/v1/"); a.code == "NOT_FOUND" || a.header.Get("Content-Type") != "application/json" || a.header.Get("Content-Length") == "" {
			t.Errorf("%s: %d %v %s", r.name, a.status, a.header, a.body)
		}

		want(t, ask("/api/vendor/v2/"), 404, "NOT_FOUND")
	}
}
