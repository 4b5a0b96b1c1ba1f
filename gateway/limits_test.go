package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

//rule:limits/rules/2 limits-and-idempotency/headers-on-every-such-response
func TestLimits_HeadersCountDown(t *testing.T) {
	e := newStoreEnv(t, `{"orders":{"sustained":{"count":100,"seconds":3600},"burst":{"count":5,"seconds":3600}}}`)
	start := time.Now().Unix()
	for i := range 5 {
		a := want(t, e.order(orderBody(fmt.Sprint("POS-", i)), ""), 201, "")
		if headerInt(a, "X-RateLimit-Limit") != 5 || headerInt(a, "X-RateLimit-Remaining") != 4-i {
			t.Errorf("%d: %v", i, a.header)
		}
		if reset := int64(headerInt(a, "X-RateLimit-Reset")); reset < start+3599 || reset > time.Now().Unix()+3601 {
			t.Errorf("reset = %d, now %d", reset, time.Now().Unix())
		}
	}

	for range 2 { // a refused request frees no place
		if a := want(t, e.order(orderBody("POS-5"), ""), 429, "RATE_LIMITED"); headerInt(a, "X-RateLimit-Remaining") != 0 {
			t.Errorf("%v", a.header)
		}
	}

	c := dialBase(t, e.vendor)
	defer c.Close()
	fmt.Fprintf(c, "GET /api/vendor/v1/webhook HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", e.account.token)
	said, _ := io.ReadAll(c)
	for _, name := range []string{"X-RateLimit-Limit: ", "X-RateLimit-Remaining: ", "X-RateLimit-Reset: "} { // as the spec writes them
		if !strings.Contains(string(said), "\r\n"+name) {
			t.Errorf("no %q in %q", name, said)
		}
	}
}

// The IETF draft's fields tell the same without a clock, and a 429 says which
// limit of which endpoint it is, and when to come again.
//
//rule:limits-and-idempotency/headers-on-every-such-response
func TestLimits_InSecondsAndByName(t *testing.T) {
	e := newClockEnv(t).withStore(`{"orders":{"sustained":{"count":10,"seconds":60},"burst":{"count":2,"seconds":20}},` +
		`"stores":{"sustained":{"count":1,"seconds":10},"burst":{"count":1000,"seconds":10}}}`)
	tells := func(a answer, policy, left string) {
		t.Helper()
		if a.header.Get("RateLimit-Policy") != policy || a.header.Get("RateLimit") != left {
			t.Errorf("RateLimit-Policy %s, RateLimit %s, want %s and %s", a.header.Get("RateLimit-Policy"), a.header.Get("RateLimit"), policy, left)
		}
	}

	first := want(t, e.order(orderBody("POS-0"), ""), 201, "")
	tells(first, `"orders-20s";q=2;w=20`, `"orders-20s";r=1;t=20`)
	e.clock.pass(t, 4500*time.Millisecond)
	tells(e.order(orderBody("POS-1"), ""), `"orders-20s";q=2;w=20`, `"orders-20s";r=0;t=16`) // rounded up
	a := want(t, e.order(orderBody("POS-2"), ""), 429, "RATE_LIMITED", "retryAfterSeconds", 16)
	tells(a, `"orders-20s";q=2;w=20`, `"orders-20s";r=0;t=16`)
	if a.message != "POST /orders: the limit of 2 requests in any 20 seconds is used up; the next one is admitted in 16 s" {
		t.Error(a.message)
	}

	id := first.data["orderId"].(string)
	want(t, e.call("GET", "/orders/"+id, ""), 200, "")
	polled := want(t, e.call("GET", "/orders/"+id, ""), 429, "RATE_LIMITED")
	tells(polled, `"orderStatus-10s";q=1;w=10`, `"orderStatus-10s";r=0;t=10`)
	if !strings.HasPrefix(polled.message, "GET /orders/{orderId}: one order may be read once") {
		t.Error(polled.message)
	}

	bucket := e.call("GET", "/webhook", "").header.Get("RateLimit-Policy")
	if bucket != `"stores";q=1000` {
		t.Errorf("a bucket: %s", bucket)
	}
}

//rule:errors/retry-guidance/RATE_LIMITED limits/rules/3 limits-and-idempotency/429-retry-after-and-data.retryafterseconds-rounded
func TestLimits_RetryAfterIsTrue(t *testing.T) {
	e := newClockEnv(t).withStore(`{"orders":{"sustained":{"count":2,"seconds":20},"burst":{"count":2,"seconds":20}}}`)
	e.created("POS-0")
	e.clock.pass(t, 500*time.Millisecond)
	e.created("POS-1")
	e.clock.pass(t, 4*time.Second)
	if a := want(t, e.order(orderBody("POS-2"), ""), 429, "RATE_LIMITED", "retryAfterSeconds", 16); headerInt(a, "Retry-After") != 16 { // rounded up
		t.Errorf("%v", a.header)
	}

	e.clock.pass(t, 15*time.Second)
	want(t, e.order(orderBody("POS-2"), ""), 429, "RATE_LIMITED")
	e.clock.pass(t, time.Second)
	want(t, e.order(orderBody("POS-2"), ""), 201, "")
}

//rule:limits-and-idempotency/per-account-and-endpoint-an
func TestLimits_NeverMoreThanTheWindowUnderLoad(t *testing.T) {
	e := newStoreEnv(t, `{"orders":{"sustained":{"count":50,"seconds":3600},"burst":{"count":50,"seconds":3600}}}`)
	var created, limited atomic.Int64
	var group sync.WaitGroup
	for client := range 8 {
		group.Go(func() {
			for i := range 10 {
				a := e.order(orderBody(fmt.Sprintf("POS-%d-%d", client, i)), "")
				switch a.status {
				case 201:
					created.Add(1)
				case 429:
					limited.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}

	group.Wait()
	if created.Load() != 50 || limited.Load() != 30 {
		t.Errorf("%d created, %d limited", created.Load(), limited.Load())
	}
}

//rule:limits/rules/5 versioning/limits-are-changed-per-account limits-and-idempotency/limits-are-per-account-changed
func TestLimits_ChangesHoldAtOnceAndResetNothing(t *testing.T) {
	e := newStoreEnv(t, `{"orders":{"sustained":{"count":3,"seconds":3600},"burst":{"count":3,"seconds":3600}}}`)
	for i := range 3 {
		e.created(fmt.Sprint("POS-", i))
	}

	want(t, e.order(orderBody("POS-3"), ""), 429, "RATE_LIMITED")
	e.admin("PATCH", "/accounts/"+e.account.id, `{"limits":{"orders":{"sustained":{"count":5,"seconds":3600},"burst":{"count":5,"seconds":3600}}}}`)
	a := want(t, e.order(orderBody("POS-3"), ""), 201, "")
	if headerInt(a, "X-RateLimit-Limit") != 5 || headerInt(a, "X-RateLimit-Remaining") != 1 {
		t.Errorf("%v", a.header)
	}
}

func TestLimits_EachEndpointItsOwnBucket(t *testing.T) {
	e := newStoreEnv(t, "")
	id := e.created("POS-1")
	for limit, all := range map[int][]answer{
		120:  {e.order(orderBody("POS-2"), "")},
		3000: {e.call("GET", "/orders/"+id, ""), e.call("GET", "/orders/none", "")},
		600:  {e.cancel(id, "")},
		60:   {e.login("vendor", e.account.clientID, e.account.secret)},
	} {
		for _, a := range all {
			if headerInt(a, "X-RateLimit-Limit") != limit {
				t.Errorf("%s: %d %v, want %d", a.asked, a.status, a.header, limit)
			}
		}
	}
}

// A burst of five, and then a place a second.
//
//rule:limits/put-stores-id
func TestPutStore_BurstThenOnePerSecond(t *testing.T) {
	e := newClockEnv(t).withStore(`{"stores":{"sustained":{"count":60,"seconds":60},"burst":{"count":5,"seconds":1}}}`)
	put := func(status int, code string) {
		t.Helper()
		if a := want(t, e.putStore(e.account, "s1", `{}`), status, code); !a.quota() {
			t.Errorf("headers = %v", a.header)
		}
	}

	for range 4 { // the environment's store was the first
		put(200, "")
	}

	put(429, "RATE_LIMITED")
	e.clock.pass(t, time.Second)
	put(200, "")
	put(429, "RATE_LIMITED")
}

//rule:what-the-service-does/1 token/accessToken token/tokenType token/expiresIn post-token/request-clientid-string-clientsecret-string
//rule:post-token/response-envelope-with-data authentication/1 limits/other-constants/token-lifetime
func TestToken_AnswersAsTheSpecSays(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount("")
	a := want(t, e.login("vendor", e.account.clientID, e.account.secret), 200, "", "tokenType", "Bearer", "expiresIn", 3600)
	if a.header.Get("Cache-Control") != "no-store" || headerInt(a, "X-RateLimit-Remaining") != 58 { // the second of the hour
		t.Errorf("%v", a.header)
	}

	e.account.token = e.text(a, "accessToken")
	want(t, e.call("GET", "/webhook", ""), 404, "WEBHOOK_NOT_CONFIGURED")
}

//rule:authentication/3
func TestToken_LimitOfAnHour(t *testing.T) {
	e := newEnv(t)
	account := e.newAccount(`{"token":{"sustained":{"count":3,"seconds":3600}}}`)
	for range 2 {
		want(t, e.login("vendor", account.clientID, account.secret), 200, "")
	}

	if a := want(t, e.login("vendor", account.clientID, account.secret), 429, "RATE_LIMITED"); !a.quota() || headerInt(a, "Retry-After") < 3000 {
		t.Errorf("%v", a.header)
	}
}

// A client that renews five minutes before the end has no gap; one that meets
// TOKEN_EXPIRED renews and sends the same once more.
//
//rule:authentication/3 limits/other-constants/recommended-token-renewal authentication/4 errors/retry-guidance/TOKEN_EXPIRED
func TestToken_RenewalLeavesNoGap(t *testing.T) {
	e := newStoreEnv(t, "")
	good := e.account.token
	for age, code := range map[time.Duration]string{55 * time.Minute: "", time.Hour: "TOKEN_EXPIRED"} {
		var err error
		e.account.token, err = e.g.vendorTokens.Issue(e.account.accountID(), time.Now().Add(-age))
		if err != nil {
			t.Fatal(err)
		}
		if a := e.order(orderBody(age.String()), age.String()); a.code != code {
			t.Fatalf("%d %s", a.status, a.body)
		}

		e.account.token = good
		first := want(t, e.order(orderBody(age.String()), age.String()), 201, "")
		if replayed := first.header.Get("Idempotent-Replayed") != ""; replayed != (code == "") {
			t.Errorf("once more: %v", first.header)
		}
	}
}

// What holds in production differs from the sandbox in no limit; credentials and
// tokens of one are none of the other, and the sandbox's conveniences end.
//
//rule:what-the-service-does/facts-that/sandbox-a-sandbox-environment-exists limits/post-orders limits/get-orders-id limits/post-orders-id-cancel
//rule:limits/put-stores-id limits/post-token limits/rules/4 limits-and-idempotency/cancel-600-60-s limits-and-idempotency/get-3000-60-s-per-account
//rule:limits-and-idempotency/token-60-h admin-api/patch-accounts-id decisions/sandbox webhooks/urls-are-https-and-public
func TestProduction_AndSandbox(t *testing.T) {
	t.Parallel()

	redis := testserver.DedicatedRedis(t, stack.RedisOptions{}) // the shared one has the sandbox's rights
	box := newEnvOn(t, redis, nil).withStore("")
	live := newEnvOn(t, redis, nil, func(s *settings) { s.Environment = delivery.Production }).withStore("")
	for _, e := range []*env{box, live} {
		got := fmt.Sprint(e.admin("GET", "/accounts/"+e.account.id, "").data["limits"])
		const wanted = "map[cancel:map[sustained:map[count:600 seconds:60]] maxPendingStores:500 maxStores:10000 orderStatus:map[sustained:map[count:3000 seconds:60]] " +
			"orders:map[burst:map[count:120 seconds:10] sustained:map[count:600 seconds:60]] " +
			"stores:map[burst:map[count:200 seconds:10] sustained:map[count:60 seconds:60]] token:map[sustained:map[count:60 seconds:3600]]]"
		if got != wanted {
			t.Errorf("%s: %s", e.g.settings.Environment, got)
		}
	}

	want(t, live.as(t, box.account).call("GET", "/webhook", ""), 401, "TOKEN_INVALID")
	want(t, live.login("vendor", box.account.clientID, box.account.secret), 401, "INVALID_CREDENTIALS")
	for _, note := range []string{"SIM:FLEET_UNAVAILABLE", "SIM:FLEET_SUSPENDED", "SIM:FOO"} {
		live.created(note, "packageNote", `"`+note+`"`)
	}

	never := newEnvOn(t, redis, nil, func(s *settings) { s.Webhook.LocalReceivers = receiversNever })
	for _, e := range []*env{live, never.as(t, box.account)} {
		want(t, e.call("PUT", "/webhook", `{"url":"http://127.0.0.1:9000/"}`), 422, "VALIDATION_FAILED")
		want(t, e.tryAdmin("PUT", "/finance/webhook", `{"url":"http://127.0.0.1:9000/"}`), 422, "VALIDATION_FAILED")
	}
}
