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
	s := newScene(t, "")
	before := time.Now()
	a := s.order(orderBody("POS-1"), "")
	if a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for field, want := range map[string]string{
		"orderId":           `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		"externalOrderId":   `^POS-1$`,
		"status":            `^Searching$`,
		"trackingUrl":       `^http://127\.0\.0\.1:8090/track/[A-Za-z0-9_-]{40,}$`,
		"estimatedPickupAt": `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+03:00$`,
	} {
		if got, _ := a.data[field].(string); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s = %q", field, got)
		}
	}
	fleet := a.data["fleet"].(map[string]any)
	if fleet["fleetId"] != s.courier.id || fleet["name"] != "Kurye" {
		t.Errorf("fleet = %v", fleet)
	}
	pickup, err := time.Parse(time.RFC3339, a.data["estimatedPickupAt"].(string))
	if err != nil || pickup.Before(before.Add(10*time.Minute-time.Second)) || pickup.After(time.Now().Add(10*time.Minute+time.Second)) {
		t.Errorf("estimatedPickupAt = %v, %v", pickup, err)
	}
	token := strings.TrimPrefix(a.data["trackingUrl"].(string), "http://127.0.0.1:8090/track/")
	if id, err := testSecrets().TrackingKeys.Parse(token); err != nil || id.String() != a.data["orderId"] {
		t.Errorf("the tracking token leads to %v, %v", id, err)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
	if !a.quota() || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("headers = %v", a.header)
	}
}

//rule:post-orders/headers-authorization-x-idempotency-key-string-unique post-orders/idempotency-same-key-with-the
//rule:limits-and-idempotency/idempotency-scope-account-key limits-and-idempotency/the-key-s-record-is-looked decisions/success-status
//rule:decisions/several-faults-at-once
func TestCreateOrder_ReplaysSameBytes(t *testing.T) {
	s := newScene(t, "")
	body := orderBody("POS-1", "readyAt", `"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"`)
	first := s.order(body, "key-1")
	if first.status != 201 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	replayed := func(when string) {
		t.Helper()
		a := s.order(body, "key-1")
		if a.status != 201 || a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" || !a.quota() {
			t.Errorf("%s: %d %s %v", when, a.status, a.body, a.header)
		}
	}
	replayed("at once")
	s.admin("PATCH", "/fleets/"+s.courier.id, `{"suspended":true,"name":"Renamed","avgPickupMinutes":30,"coverage":`+ankaraArea+`}`)
	replayed("after the fleet was suspended, renamed and shrunk")
	s.admin("POST", "/accounts/"+s.account.id+"/stores/s1/deactivate", `{"reason":"VendorRequest"}`)
	replayed("after the store was deactivated")
	if a := s.order(orderBody("POS-2"), "key-1"); a.status != 409 || a.code != "DUPLICATE_ORDER" {
		t.Errorf("another body: %d %s", a.status, a.body)
	}
	if a := s.order(strings.Replace(body, `:`, `: `, 1), "key-1"); a.status != 409 || a.code != "DUPLICATE_ORDER" {
		t.Errorf("the same JSON in other bytes: %d %s", a.status, a.body)
	}
	if a := s.order(orderBody("POS-1", "recipient.name", `"A"`), "key-1"); a.status != 409 || a.code != "DUPLICATE_ORDER" {
		t.Errorf("another body that is invalid: %d %s", a.status, a.body)
	}
	if a := s.order(`{`, "key-1"); a.status != 400 {
		t.Errorf("another body that is no JSON: %d %s", a.status, a.body)
	}
	replayed("after conflicts")
}

//rule:post-orders/headers-authorization-x-idempotency-key-string-unique limits-and-idempotency/without-the-header-uniqueness-of
//rule:decisions/idempotency-header-absent
func TestCreateOrder_KeyThatIsTheOrderID(t *testing.T) {
	s := newScene(t, "")
	first := s.order(orderBody("POS-1"), "POS-1")
	if a := s.order(orderBody("POS-1"), "POS-1"); a.status != 201 || a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.order(orderBody("POS-1"), ""); a.status != 409 || a.code != "DUPLICATE_ORDER" || a.data["orderId"] != first.data["orderId"] {
		t.Errorf("without the header: %d %s", a.status, a.body)
	}
}

//rule:limits-and-idempotency/idempotency-scope-account-key decisions/idempotency-header-absent
func TestCreateOrder_RefusalsAreNotRemembered(t *testing.T) {
	s := newScene(t, "")
	if a := s.order(orderBody("POS-1", "externalStoreId", `"s2"`), "k"); a.code != "STORE_NOT_CONFIGURED" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.activeStore(s.account, s.courier, "s2")
	if a := s.order(orderBody("POS-1", "externalStoreId", `"s2"`), "k"); a.status != 201 || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestCreateOrder_ManyAtOnceMakeOne(t *testing.T) {
	s := newScene(t, "")
	const clients = 16
	answers := make([]answer, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { answers[i] = s.order(orderBody("POS-1"), "key") })
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
	s := newScene(t, "")
	ids := map[string]string{}
	for i := range 20 {
		name := fmt.Sprintf("POS-%03d", i)
		ids[name] = s.created(name, "recipient.name", fmt.Sprintf(`"Müşteri %03d"`, i))
	}
	for name, id := range ids {
		parsed, err := delivery.ParseOrderID(id)
		if err != nil {
			t.Fatal(err)
		}
		order, err := s.ledger().Order(t.Context(), parsed)
		if err != nil || order.ExternalOrderID != name || order.Recipient.Name != "Müşteri "+name[4:] {
			t.Errorf("%s: %+v, %v", name, order, err)
		}
	}
}

//rule:what-the-service-does/5 what-the-service-does/facts-that/order-history-is-returned-inside
//rule:order-status-delivery-state/this-object-is-returned-by order-status-delivery-state/events get-orders-orderid/no-body
//rule:get-orders-orderid/response-order-status-object-including decisions/courier-location-etadropoffat-while-unknown
func TestReadOrder_ShowsTheTimeline(t *testing.T) {
	s := newScene(t, "")
	id := s.created("POS-1")
	a := s.get(s.vendor+"/api/vendor/v1/orders/"+id, s.account.token)
	if a.status != 200 || a.data["orderId"] != id || a.data["status"] != "Searching" || !a.quota() {
		t.Fatalf("%d %s", a.status, a.body)
	}
	events := a.data["events"].([]any)
	if len(events) != 1 || events[0].(map[string]any)["status"] != "Searching" {
		t.Errorf("events = %v", events)
	}
	for _, absent := range []string{"courier", "location", "etaDropoffAt", "failureReason"} {
		if _, present := a.data[absent]; present {
			t.Errorf("%s is there while unknown", absent)
		}
	}
	if got := a.header.Get("X-RateLimit-Limit"); got != "3000" {
		t.Errorf("limit = %s", got)
	}
}

//rule:get-orders-orderid/limited-to-one-request-per errors/a-status-query-over-its limits/get-orders-id limits/rules/1
//rule:limits-and-idempotency/headers-on-every-such-response
func TestReadOrder_OncePerTenSeconds(t *testing.T) {
	s := newScene(t, "")
	first, second := s.created("POS-1"), s.created("POS-2")
	url := s.vendor + "/api/vendor/v1/orders/"
	if a := s.get(url+first, s.account.token); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := s.get(url+first, s.account.token)
	if a.status != 429 || a.code != "RATE_LIMITED" || !strings.Contains(a.message, "webhook") {
		t.Errorf("%d %s", a.status, a.body)
	}
	wait := a.data["retryAfterSeconds"].(float64)
	if wait < 1 || wait > 10 || a.header.Get("Retry-After") != fmt.Sprint(wait) {
		t.Errorf("wait %v, Retry-After %s", wait, a.header.Get("Retry-After"))
	}
	if a.header.Get("X-RateLimit-Limit") != "1" || a.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("headers = %v", a.header)
	}
	if a := s.get(url+second, s.account.token); a.status != 200 {
		t.Errorf("another order: %d %s", a.status, a.body)
	}
}

//rule:decisions/unknown-order
func TestReadOrder_OthersOrdersAreUnknown(t *testing.T) {
	s := newScene(t, "")
	id := s.created("POS-1")
	stranger := s.newAccount("")
	for name, path := range map[string]string{
		"another account's": id,
		"unknown":           delivery.MakeOrderID(0, 1, delivery.OrderDigest(delivery.AccountID{}, "x")).String(),
		"a random UUID":     "7c9e6679-7425-40de-944b-e07fc1f90ae7",
		"no UUID":           "POS-1",
		"broken encoding":   "%zz",
		"encoded slash":     "a%2Fb",
	} {
		for _, r := range []request{
			{method: "GET", url: s.vendor + "/api/vendor/v1/orders/PATH", token: stranger.token},
			{method: "POST", url: s.vendor + "/api/vendor/v1/orders/PATH/cancel", token: stranger.token},
		} {
			raw := strings.Replace(r.url, "PATH", path, 1)
			status, header, body := s.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n",
				r.method, strings.TrimPrefix(raw, s.vendor), r.token))
			if status != 404 || !strings.Contains(body, "ORDER_NOT_FOUND") || !strings.Contains(header, "X-RateLimit-Limit: ") {
				t.Errorf("%s, %s: %d %s %s", name, r.method, status, header, body)
			}
		}
	}
}

//rule:what-the-service-does/6 post-orders-orderid-cancel/cancels-an-order-before-pickup states/terminal decisions/cancel
func TestCancelOrder_AnswersTheOrder(t *testing.T) {
	s := newScene(t, "")
	for i, body := range []string{"", `{}`, `{"reason":"CustomerRequest","note":"müşteri vazgeçti"}`, `{"reason":null}`, `{"other":1}`} {
		id := s.created(fmt.Sprint("POS-", i))
		a := s.cancel(id, body)
		if a.status != 200 || a.data["status"] != "Cancelled" || !a.quota() {
			t.Fatalf("%q: %d %s", body, a.status, a.body)
		}
		if events := a.data["events"].([]any); len(events) != 2 {
			t.Errorf("events = %v", events)
		}
		if again := s.cancel(id, body); again.status != 200 || again.body != a.body {
			t.Errorf("again: %d %s", again.status, again.body)
		}
	}
	if a := s.cancel(s.created("POS-9"), `{"reason":"Bored"}`); a.status != 422 || a.code != "VALIDATION_FAILED" {
		t.Errorf("unknown reason: %d %s", a.status, a.body)
	}
}

//rule:order-states/PickedUp states/cancel-against-pickup-a-pickup
func TestCancelOrder_LosesAgainstAReportedPickup(t *testing.T) {
	s := newScene(t, "")
	id := s.created("POS-1")
	if a := s.fleet(s.courier, "POST", "/jobs/"+id+"/status", `{"status":"PickedUp"}`); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := s.cancel(id, "")
	if a.status != 409 || a.code != "ORDER_NOT_CANCELLABLE" || a.data["status"] == nil || !a.quota() {
		t.Errorf("%d %s", a.status, a.body)
	}
}

//rule:what-the-service-does/facts-that/payment-handling-the-service-stores order-creation-request/orderAmount
//rule:order-creation-request/payment.collectionAmount finance/money-is-a-json-number
func TestCreateOrder_MoneyStaysExact(t *testing.T) {
	s := newScene(t, "")
	id := s.created("POS-1", "orderAmount", "0.30", "payment.collectionAmount", "9999999.99")
	a := s.fleet(s.courier, "GET", "/jobs/"+id, "")
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

//rule:decisions/sandbox
func TestCreateOrder_ProductionIgnoresTriggers(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.Environment = production })
	for _, note := range []string{simulateUnavailable, simulateSuspended} {
		s.created(note, "packageNote", `"`+note+`"`)
	}
}
