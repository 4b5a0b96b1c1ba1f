package main

import (
	"fmt"
	"strings"
	"testing"
)

// A line about a request that failed says what an operator looks for, and nothing
// that belongs to the vendor or the recipient.
func TestLog_OfAFailedRequestNamesRequestAccountAndOrder(t *testing.T) {
	s := newScene(t, "")
	orders := s.vendor + "/api/vendor/v1/orders"
	created := s.send(request{method: "POST", url: orders, token: s.account.token, body: orderBody("A-1")})
	if created.status != 201 {
		t.Fatalf("%d %s", created.status, created.body)
	}
	id, _ := created.data["orderId"].(string)
	s.redis.Stop()
	for name, r := range map[string]struct {
		request request
		order   string
	}{
		"creation": {request{method: "POST", url: orders, token: s.account.token, body: orderBody("A-2")}, ""},
		"reading":  {request{method: "GET", url: orders + "/" + id, token: s.account.token}, id},
	} {
		line := ""
		s.await("a line of the log about "+name, func() bool { // at most one a second
			a := s.send(r.request)
			if a.status != 503 || a.header.Get("X-Request-Id") == "" {
				t.Fatalf("%s: %d %s", name, a.status, a.body)
			}
			for l := range strings.Lines(s.logs.String()) {
				if strings.Contains(l, "request_id="+a.header.Get("X-Request-Id")) {
					line = l
				}
			}
			return line != ""
		})
		for _, want := range []string{"level=ERROR", "endpoint=orders_", "account=" + s.account.id} {
			if !strings.Contains(line, want) {
				t.Errorf("%s: %s is missing in %s", name, want, line)
			}
		}
		if strings.Contains(line, " order=") != (r.order != "") || !strings.Contains(line, r.order) {
			t.Errorf("%s: %s", name, line)
		}
	}
	for _, private := range []string{s.account.token, s.account.secret, adminKey, "5321234567", "Bahariye", "recipient"} {
		if strings.Contains(s.logs.String(), private) {
			t.Errorf("the log tells %q", private)
		}
	}
}

func TestSettings_TracingIsOffAndJudged(t *testing.T) {
	s := testSettings(t)
	if s.Tracing.Endpoint != "" || s.Tracing.SampleRatio != 1 {
		t.Errorf("as delivered: %+v", s.Tracing)
	}
	for _, wrong := range []string{"collector:4318", "grpc://collector:4317"} {
		s.Tracing.Endpoint = wrong
		if err := s.Validate(); err == nil || !strings.Contains(fmt.Sprint(err), "tracing.endpoint") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
