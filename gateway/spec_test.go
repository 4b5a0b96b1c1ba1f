package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Sentences of the specification that no other test holds.

//rule:introduction/all-paths-begin-with-api-vendor-v1 introduction/request-and-response-bodies-are versioning/the-version-is-part-of
func TestVendorRoutes_AreUnderTheVersionAndSpeakJSON(t *testing.T) {
	s := newScene(t, "")
	for _, r := range vendorRoutes() {
		path, versioned := strings.CutPrefix(r.pattern, "/api/vendor/v1/")
		if !versioned {
			t.Errorf("%s is %s", r.name, r.pattern)
		}
		ask := func(root string) answer {
			return s.send(request{method: r.method, url: s.vendor + root + strings.ReplaceAll(path, "{}", "x"), token: s.account.token})
		}
		if a := ask("/api/vendor/v1/"); a.code == "NOT_FOUND" || a.header.Get("Content-Type") != "application/json" || a.header.Get("Content-Length") == "" {
			t.Errorf("%s: %d %v %s", r.name, a.status, a.header, a.body)
		}
		if a := ask("/api/vendor/v2/"); a.status != 404 || a.code != "NOT_FOUND" {
			t.Errorf("%s of another version: %d %s", r.name, a.status, a.body)
		}
	}
}

// The vendor's own id finds no order, not even where it looks like one of ours.
//
//rule:order-creation-response/externalOrderId get-orders-orderid/path-parameter-orderid-the-service
func TestReadOrder_ExternalIDIsNoKey(t *testing.T) {
	s := newScene(t, "")
	first := s.created("POS-1")
	for _, externalID := range []string{"POS-1", strings.Replace(first, first[:8], "00000000", 1)} {
		if externalID != "POS-1" {
			s.created(externalID)
		}
		for _, a := range []answer{s.get(s.vendor+"/api/vendor/v1/orders/"+externalID, s.account.token), s.cancel(externalID, "")} {
			if a.status != 404 || a.code != "ORDER_NOT_FOUND" {
				t.Errorf("%s: %d %s", externalID, a.status, a.body)
			}
		}
	}
}

//rule:what-the-service-does/facts-that/payment-handling-the-service-stores order-creation-request/dropoff.text
//rule:order-creation-request/dropoff.latitude order-creation-request/dropoff.longitude order-creation-request/dropoff.buildingNo
//rule:order-creation-request/dropoff.doorNo order-creation-request/dropoff.floor order-creation-request/dropoff.note
//rule:order-creation-request/packageNote order-creation-request/orderAmount order-creation-request/payment.type
//rule:order-creation-request/payment.collectionAmount order-status-delivery-state/courier.name order-status-delivery-state/courier.phone
//rule:order-status-delivery-state/courier.vehicleType fleet-api/post-jobs-orderid-accept fleet-api/get-jobs-orderid decisions/fleet-option-status
func TestFleetJobs_CarryEveryFieldForTheCourier(t *testing.T) {
	s := newScene(t, "")
	defer s.worker()()
	id := s.created("POS-1", "dropoff.text", `"Moda Cad. 12, zil 3"`, "dropoff.buildingNo", `"12"`, "dropoff.doorNo", `"5"`, "dropoff.floor", `"2"`,
		"dropoff.note", `"arka kapı"`, "packageNote", `"kırılacak"`, "orderAmount", "349.90", "payment.type", `"Cash"`, "payment.collectionAmount", "300.00")
	job := s.fleet(s.courier, "GET", "/jobs/"+id, "")
	for _, want := range []string{
		`"text":"Moda Cad. 12, zil 3"`, `"buildingNo":"12"`, `"doorNo":"5"`, `"floor":"2"`, `"note":"arka kapı"`, `"packageNote":"kırılacak"`,
		`"latitude":40.9871`, `"longitude":29.0276`, `"type":"Cash"`, `"orderAmount":349.90`, `"collectionAmount":300.00`,
	} {
		if !strings.Contains(job.body, want) {
			t.Errorf("no %s in %s", want, job.body)
		}
	}
	vehicle := strings.Repeat("ü", 32)
	accept := `{"courier":{"name":"Mehmet Yılmaz","phone":"5551112233","vehicleType":"` + vehicle + `"}}`
	if a := s.fleet(s.courier, "POST", "/jobs/"+id+"/accept", accept); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.await("the courier", func() bool {
		return strings.Contains(s.fleet(s.courier, "GET", "/jobs/"+id, "").body, vehicle)
	})
	shown := s.get(s.vendor+"/api/vendor/v1/orders/"+id, s.account.token)
	courier, _ := shown.data["courier"].(map[string]any)
	if courier["name"] != "Mehmet Y." || courier["phone"] != "5551112233" || courier["vehicleType"] != vehicle {
		t.Errorf("the vendor sees %s", shown.body)
	}
}

// A point that is plausible and belongs to another address is the vendor's error,
// which nobody here can see.
//
//rule:errors/the-service-cannot-detect-a
func TestCreateOrder_PlausiblePointOfAnotherAddressPasses(t *testing.T) {
	s := newScene(t, "")
	s.created("POS-1", "dropoff.text", `"Barbaros Bulvarı 1, Beşiktaş"`, "dropoff.latitude", fmt.Sprint(kadikoy.Latitude), "dropoff.longitude", fmt.Sprint(kadikoy.Longitude))
}

//rule:authentication/3 limits/other-constants/recommended-token-renewal
func TestToken_RenewedFiveMinutesBeforeItsEndLeavesNoGap(t *testing.T) {
	s := newScene(t, "")
	old, err := s.g.vendorTokens.Issue(accountID(t, s.account), time.Now().Add(-55*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	renewed := s.login("vendor", s.account.clientID, s.account.secret)
	if renewed.status != 200 {
		t.Fatalf("%d %s", renewed.status, renewed.body)
	}
	for name, token := range map[string]string{"old": old, "new": renewed.data["accessToken"].(string)} {
		if a := s.get(s.vendor+"/api/vendor/v1/webhook", token); a.status != 404 || a.code != "WEBHOOK_NOT_CONFIGURED" {
			t.Errorf("the %s token: %d %s", name, a.status, a.body)
		}
	}
}

// What the spec advises after TOKEN_EXPIRED: renew, and send the same once more.
//
//rule:authentication/4 errors/retry-guidance/TOKEN_EXPIRED
func TestToken_ExpiredOneIsRenewedAndTheOrderSentOnceMore(t *testing.T) {
	s := newScene(t, "")
	var err error
	good := s.account.token
	if s.account.token, err = s.g.vendorTokens.Issue(accountID(t, s.account), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if a := s.order(orderBody("POS-1"), "key"); a.status != 401 || a.code != "TOKEN_EXPIRED" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.account.token = good
	first := s.order(orderBody("POS-1"), "key")
	if first.status != 201 || first.header.Get("Idempotent-Replayed") != "" || headerInt(first, "X-RateLimit-Remaining") != 119 {
		t.Errorf("once more: %d %s %v", first.status, first.body, first.header)
	}
	if again := s.order(orderBody("POS-1"), "key"); again.status != 201 || again.body != first.body {
		t.Errorf("and again: %d %s", again.status, again.body)
	}
}

// Where waiting helps, Retry-After says how long; any other refusal says nothing
// of the kind, because sending again would be refused again.
//
//rule:errors/retry-guidance/FLEET_UNAVAILABLE errors/retry-guidance/any-other
func TestErrors_RetryAfterStandsWhereWaitingHelps(t *testing.T) {
	s := newScene(t, "")
	for _, row := range specErrors {
		t.Run(row.name, func(t *testing.T) {
			w := *s.world
			w.TB = t
			a := row.do(&scene{world: &w, account: s.freshAccount(), courier: s.courier})
			helps := a.code == "RATE_LIMITED" || a.code == "FLEET_UNAVAILABLE"
			if got := a.header.Get("Retry-After"); (got != "") != helps {
				t.Errorf("%s with Retry-After %q", a.code, got)
			}
			if _, told := a.data["retryAfterSeconds"]; told && !helps {
				t.Errorf("%s", a.body)
			}
		})
		s.admin("PATCH", "/fleets/"+s.courier.id, `{"suspended":false}`)
		s.fleet(s.courier, "PUT", "/availability", `{"couriers":5}`)
	}
}

// A change made at one gateway holds at the other within a second, whatever it is
// of; each step leaves what the next one needs.
//
//rule:fleets-and-operators/a-change-by-an-operator
func TestChanges_HoldOnEveryGatewayWithinASecond(t *testing.T) {
	s := newScene(t, "")
	twin := startGateway(t, s.g.settings, testSecrets())
	twin.awaitReady()
	other := &scene{world: twin, account: s.account, courier: s.courier}
	n := 0
	order := func() string {
		n++
		return other.order(orderBody(fmt.Sprint("POS-", n)), "").code
	}
	for _, step := range []struct {
		name   string
		change func()
		seen   func() bool
	}{
		{"availability", func() { s.fleet(s.courier, "PUT", "/availability", `{"couriers":0}`) }, func() bool { return order() == "FLEET_UNAVAILABLE" }},
		{"availability again", func() { s.fleet(s.courier, "PUT", "/availability", `{"couriers":1}`) }, func() bool { return order() == "" }},
		{"coverage", func() { s.admin("PATCH", "/fleets/"+s.courier.id, `{"coverage":`+ankaraArea+`}`) }, func() bool { return order() == "DROPOFF_OUT_OF_COVERAGE" }},
		{"coverage again", func() { s.admin("PATCH", "/fleets/"+s.courier.id, `{"coverage":`+istanbul+`}`) }, func() bool { return order() == "" }},
		{"a store's end", func() {
			s.admin("POST", "/accounts/"+s.account.id+"/stores/s1/deactivate", `{"reason":"VendorRequest"}`)
		}, func() bool { return order() == "STORE_NOT_CONFIGURED" }},
		{"a store's confirmation", func() { s.activeStore(s.account, s.courier, "s1") }, func() bool { return order() == "" }},
		{"the account's suspension", func() { s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":true}`) }, func() bool { return order() == "ACCOUNT_SUSPENDED" }},
		{"the suspension's end", func() { s.admin("PATCH", "/accounts/"+s.account.id, `{"suspended":false}`) }, func() bool { return order() == "" }},
		{"limits", func() {
			s.admin("PATCH", "/accounts/"+s.account.id, `{"limits":{"orders":{"sustained":{"count":1,"seconds":60}}}}`)
		}, func() bool { return order() == "RATE_LIMITED" }},
	} {
		step.change()
		changed := time.Now()
		var lastTried time.Time // of those that the change did not reach
		twin.await(step.name, func() bool {
			tried := time.Now()
			if step.seen() {
				return true
			}
			lastTried = tried
			time.Sleep(50 * time.Millisecond) // or the limit is reached first
			return false
		})
		if took := lastTried.Sub(changed); took > time.Second {
			t.Errorf("%s took %v", step.name, took)
		}
	}
}

//rule:what-the-service-does/facts-that/sandbox-a-sandbox-environment-exists limits/post-orders limits/get-orders-id limits/post-orders-id-cancel
//rule:limits/put-stores-id limits/post-token limits/rules/4 limits-and-idempotency/cancel-600-60-s limits-and-idempotency/get-3000-60-s-per-account
//rule:limits-and-idempotency/token-60-h admin-api/patch-accounts-id
func TestDefaultLimits_AreTheSpecsInBothEnvironments(t *testing.T) {
	settings := testSettings(t)
	settings.Redis.URL = startRedis(t).URL
	for _, environment := range []string{sandbox, production} {
		settings.Environment = environment
		w := startGateway(t, settings, testSecrets())
		w.awaitReady()
		account := w.newAccount("")
		got := fmt.Sprint(w.admin("GET", "/accounts/"+account.id, "").data["limits"])
		const none = "burst:map[count:0 seconds:0] "
		const want = "map[cancel:map[" + none + "sustained:map[count:600 seconds:60]] orderStatus:map[" + none + "sustained:map[count:3000 seconds:60]] " +
			"orders:map[burst:map[count:120 seconds:10] sustained:map[count:600 seconds:60]] " +
			"stores:map[burst:map[count:200 seconds:10] sustained:map[count:60 seconds:60]] token:map[" + none + "sustained:map[count:60 seconds:3600]]]"
		if got != want {
			t.Errorf("%s: %s", environment, got)
		}
		w.stop()
	}
}

// Keys and external ids are an account's own: two vendors who count alike do not
// meet.
//
//rule:order-creation-request/externalOrderId limits-and-idempotency/idempotency-scope-account-key
func TestCreateOrder_KeysAndExternalIDsAreTheAccountsOwn(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.Redis.Partitions = 1 }) // or the partition would tell them apart
	first := s.order(orderBody("POS-1"), "key")
	for name, body := range map[string]string{
		"the same body": orderBody("POS-1"), "another body": orderBody("POS-1", "recipient.name", `"Somebody Else"`),
	} {
		other := &scene{world: s.world, account: s.freshAccount(), courier: s.courier}
		a := other.order(body, "key")
		if first.status != 201 || a.status != 201 || a.header.Get("Idempotent-Replayed") != "" || a.data["orderId"] == first.data["orderId"] {
			t.Errorf("%s: %d %s, the first %d %s", name, a.status, a.body, first.status, first.body)
		}
	}
}

// On one partition nothing but the account tells two vendors' orders apart.
//
//rule:decisions/unknown-order
func TestReadOrder_OfANeighbourOnThePartitionIsUnknown(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.Redis.Partitions = 1 })
	id, stranger := s.created("POS-1"), s.newAccount("")
	url := s.vendor + "/api/vendor/v1/orders/" + id
	for _, r := range []request{{method: "GET", url: url}, {method: "POST", url: url + "/cancel"}} {
		r.token = stranger.token
		if a := s.send(r); a.status != 404 || a.code != "ORDER_NOT_FOUND" {
			t.Errorf("%s: %d %s", r.method, a.status, a.body)
		}
	}
	if a := s.get(url, s.account.token); a.status != 200 || a.data["status"] != "Searching" {
		t.Errorf("the owner sees %d %s", a.status, a.body)
	}
}
