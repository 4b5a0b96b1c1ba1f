package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func headerInt(a answer, name string) int {
	n, err := strconv.Atoi(a.header.Get(name))
	if err != nil {
		return -1
	}
	return n
}

//rule:limits/rules/2 limits-and-idempotency/headers-on-every-such-response
func TestLimits_HeadersCountDown(t *testing.T) {
	s := newScene(t, `{"orders":{"sustained":{"count":100,"seconds":60},"burst":{"count":5,"seconds":10}}}`)
	start := time.Now().Unix()
	for i := range 5 {
		a := s.order(orderBody(fmt.Sprint("POS-", i)), "")
		if a.status != 201 || headerInt(a, "X-RateLimit-Limit") != 5 || headerInt(a, "X-RateLimit-Remaining") != 4-i {
			t.Errorf("%d: %d %v", i, a.status, a.header)
		}
		if reset := int64(headerInt(a, "X-RateLimit-Reset")); reset < start+9 || reset > time.Now().Unix()+11 {
			t.Errorf("reset = %d, now %d", reset, time.Now().Unix())
		}
	}
	a := s.order(orderBody("POS-5"), "")
	if a.status != 429 || headerInt(a, "X-RateLimit-Remaining") != 0 {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if a := s.order(orderBody("POS-5"), ""); a.status != 429 {
		t.Errorf("a refused request freed a place: %d", a.status)
	}
}

//rule:limits/rules/2
func TestLimits_NamesAsTheSpecWritesThem(t *testing.T) {
	s := newScene(t, "")
	_, header, _ := s.raw("GET /api/vendor/v1/webhook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.account.token + "\r\n\r\n")
	for _, name := range []string{"X-RateLimit-Limit: ", "X-RateLimit-Remaining: ", "X-RateLimit-Reset: "} {
		if !strings.Contains(header, "\r\n"+name) {
			t.Errorf("no %q in %q", name, header)
		}
	}
}

//rule:errors/retry-guidance/RATE_LIMITED limits/rules/3 limits-and-idempotency/429-retry-after-and-data.retryafterseconds-rounded
func TestLimits_RetryAfterIsTrue(t *testing.T) {
	s := newScene(t, `{"orders":{"sustained":{"count":2,"seconds":2},"burst":{"count":2,"seconds":2}}}`)
	for i := range 2 {
		s.created(fmt.Sprint("POS-", i))
	}
	a := s.order(orderBody("POS-2"), "")
	wait := headerInt(a, "Retry-After")
	if a.status != 429 || wait < 1 || wait > 2 {
		t.Fatalf("%d %s %v", a.status, a.body, a.header)
	}
	time.Sleep(time.Duration(wait) * time.Second) // what a client that obeys does
	if a := s.order(orderBody("POS-2"), ""); a.status != 201 {
		t.Errorf("after waiting: %d %s", a.status, a.body)
	}
}

//rule:limits-and-idempotency/per-account-and-endpoint-an
func TestLimits_NeverMoreThanTheWindowUnderLoad(t *testing.T) {
	s := newScene(t, `{"orders":{"sustained":{"count":50,"seconds":3600},"burst":{"count":50,"seconds":3600}}}`)
	var created, limited atomic.Int64
	var group sync.WaitGroup
	for client := range 8 {
		group.Go(func() {
			for i := range 20 {
				switch a := s.order(orderBody(fmt.Sprintf("POS-%d-%d", client, i)), ""); a.status {
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
	if created.Load() != 50 || limited.Load() != 110 {
		t.Errorf("%d created, %d limited", created.Load(), limited.Load())
	}
}

//rule:limits/rules/5 versioning/limits-are-changed-per-account limits-and-idempotency/limits-are-per-account-changed
func TestLimits_ChangesHoldAtOnceAndResetNothing(t *testing.T) {
	s := newScene(t, `{"orders":{"sustained":{"count":3,"seconds":3600},"burst":{"count":3,"seconds":3600}}}`)
	for i := range 3 {
		s.created(fmt.Sprint("POS-", i))
	}
	if a := s.order(orderBody("POS-3"), ""); a.status != 429 {
		t.Fatalf("%d", a.status)
	}
	s.admin("PATCH", "/accounts/"+s.account.id, `{"limits":{"orders":{"sustained":{"count":5,"seconds":3600},"burst":{"count":5,"seconds":3600}}}}`)
	a := s.order(orderBody("POS-3"), "")
	if a.status != 201 || headerInt(a, "X-RateLimit-Limit") != 5 || headerInt(a, "X-RateLimit-Remaining") != 1 {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
}

func TestLimits_EachEndpointItsOwnBucket(t *testing.T) {
	s := newScene(t, "")
	id := s.created("POS-1")
	for name, c := range map[string]struct {
		do    func() answer
		limit int
	}{
		"orders":  {func() answer { return s.order(orderBody("POS-2"), "") }, 120},
		"status":  {func() answer { return s.get(s.vendor+"/api/vendor/v1/orders/"+id, s.account.token) }, 3000},
		"cancel":  {func() answer { return s.cancel(id, "") }, 600},
		"token":   {func() answer { return s.login("vendor", s.account.clientID, s.account.secret) }, 60},
		"unknown": {func() answer { return s.get(s.vendor+"/api/vendor/v1/orders/none", s.account.token) }, 3000},
	} {
		if a := c.do(); headerInt(a, "X-RateLimit-Limit") != c.limit {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
	}
}

//rule:what-the-service-does/1 token/accessToken token/tokenType token/expiresIn post-token/request-clientid-string-clientsecret-string
//rule:post-token/response-envelope-with-data authentication/1 limits/other-constants/token-lifetime
func TestToken_AnswersAsTheSpecSays(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	a := w.login("vendor", account.clientID, account.secret)
	if a.status != 200 || a.data["tokenType"] != "Bearer" || a.data["expiresIn"] != 3600.0 || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if headerInt(a, "X-RateLimit-Remaining") != 58 { // the second of the hour
		t.Errorf("%v", a.header)
	}
	if a := w.get(w.vendor+"/api/vendor/v1/webhook", a.data["accessToken"].(string)); a.status != 404 || a.code != "WEBHOOK_NOT_CONFIGURED" {
		t.Errorf("the token does not open: %d %s", a.status, a.body)
	}
}

//rule:authentication/3
func TestToken_LimitOfAnHour(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount(`{"token":{"sustained":{"count":3,"seconds":3600}}}`)
	for range 2 {
		if a := w.login("vendor", account.clientID, account.secret); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := w.login("vendor", account.clientID, account.secret)
	if a.status != 429 || a.code != "RATE_LIMITED" || !a.quota() || headerInt(a, "Retry-After") < 3000 {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
}

//rule:limits-and-idempotency/redis_rate
func TestToken_GuessingNeverLocksTheOwnerOut(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount("")
	refused := 0
	for range 30 {
		switch a := w.login("vendor", account.clientID, "wrong"); {
		case a.status == 401 && a.code == "INVALID_CREDENTIALS":
		case a.status == 429 && a.code == "RATE_LIMITED" && headerInt(a, "Retry-After") >= 1:
			refused++
		default:
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if refused == 0 {
		t.Error("guessing is never slowed down")
	}
	if a := w.login("vendor", account.clientID, account.secret); a.status != 200 || headerInt(a, "X-RateLimit-Remaining") != 58 {
		t.Errorf("the right secret: %d %s %v", a.status, a.body, a.header)
	}
	if a := w.login("vendor", account.clientID, strings.Repeat("x", 5000)); a.status != 401 && a.status != 429 {
		t.Errorf("a long secret: %d %s", a.status, a.body)
	}
}

//rule:what-the-service-does/facts-that/sandbox-a-sandbox-environment-exists decisions/sandbox
func TestToken_OfTheOtherEnvironmentIsRefused(t *testing.T) {
	s := testSettings(t)
	redis := startRedis(t)
	s.Redis.URL = redis.URL
	box := startGateway(t, s, testSecrets())
	box.awaitReady()
	account := box.newAccount("")
	s.Environment = production
	live := startGateway(t, s, testSecrets())
	live.awaitReady()
	if a := live.get(live.vendor+"/api/vendor/v1/webhook", account.token); a.status != 401 || a.code != "TOKEN_INVALID" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := live.login("vendor", account.clientID, account.secret); a.status != 401 || a.code != "INVALID_CREDENTIALS" {
		t.Errorf("a sandbox credential in production: %d %s", a.status, a.body)
	}
}
