package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
)

func TestCrowd_HoldsItsBound(t *testing.T) {
	for _, c := range []struct {
		name                string
		bound, come, inside int
	}{
		{"within", 3, 2, 2},
		{"full", 3, 3, 3},
		{"beyond", 3, 9, 3},
		{"none at all", 0, 1000, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			var crowd crowd
			crowd.bound(c.bound, prometheus.NewCounter(prometheus.CounterOpts{}))
			let := 0
			for range c.come {
				if crowd.enter() {
					let++
				}
			}
			if let != c.inside {
				t.Errorf("%d of %d were let in, want %d", let, c.come, c.inside)
			}
			for range let {
				crowd.leave()
			}
			if left := crowd.inside.Load(); left != 0 {
				t.Errorf("%d stay inside", left)
			}
		})
	}
}

// Beyond max_in_flight a request is refused at once, with what a client needs to
// come back, and leaves no trace; the private listener has places of its own.
func TestCrowd_RefusesBeyondMaxInFlight(t *testing.T) {
	const most = 2
	s := newScene(t, "", func(s *settings) { s.VendorAPI.MaxInFlight = most })
	for range most {
		if !s.g.vendorCrowd.enter() {
			t.Fatal("no place for the first requests")
		}
	}
	for _, r := range []request{
		{method: "POST", url: s.vendor + "/api/vendor/v1/orders", token: s.account.token, body: orderBody("A-1"), header: map[string]string{"X-Idempotency-Key": "A-1"}},
		{method: "POST", url: s.vendor + "/api/vendor/v1/orders", token: s.account.token, body: `{"broken`},
		{method: "GET", url: s.vendor + "/api/vendor/v1/orders/" + delivery.NewAccountID().String(), token: s.account.token},
		{method: "POST", url: s.vendor + "/api/vendor/v1/token", body: fmt.Sprintf(`{"clientId":%q,"clientSecret":%q}`, s.account.clientID, s.account.secret)},
	} {
		a := s.send(r)
		if a.status != 503 || a.code != "SERVICE_UNAVAILABLE" || a.header.Get("Retry-After") != "1" || a.data["retryAfterSeconds"] != 1.0 || a.closed {
			t.Errorf("%s %s: %d %s, Retry-After %q, closed %v", r.method, r.url, a.status, a.body, a.header.Get("Retry-After"), a.closed)
		}
	}
	// Who is not known is told so, and costs no place.
	if a := s.send(request{method: "GET", url: s.vendor + "/api/vendor/v1/orders/x", token: "x"}); a.status != 401 {
		t.Errorf("a stranger: %d %s", a.status, a.body)
	}
	if a := s.get(s.private+"/api/fleet/v1/jobs?status=Searching", s.courier.token); a.status != 200 {
		t.Errorf("the fleet: %d %s", a.status, a.body)
	}
	if text := s.get(s.private+"/metrics", "").body; !strings.Contains(text, `gateway_shed_total{listener="vendor_api"} 4`) ||
		strings.Contains(text, `gateway_ledger_errors_total{endpoint="orders"} 1`) {
		t.Error("the metrics tell of a broken Redis or not of 4 requests turned away")
	}
	for range most {
		s.g.vendorCrowd.leave()
	}
	if a := s.order(orderBody("A-1"), "A-1"); a.status != 201 || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the same order afterwards: %d %s", a.status, a.body)
	}
	if inside := s.g.vendorCrowd.inside.Load(); inside != 0 {
		t.Errorf("%d places are not given back", inside)
	}
}

// A client that sends its body byte by byte keeps nobody out.
func TestCrowd_SlowBodiesHoldNoPlace(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.VendorAPI.MaxInFlight = 1 })
	body := orderBody("slow")
	c := s.dial()
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		s.account.token, len(body), body[:10]); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if a := s.order(orderBody(fmt.Sprintf("quick-%d", i)), ""); a.status != 201 {
			t.Fatalf("order %d beside a slow one: %d %s", i, a.status, a.body)
		}
	}
	if _, err := io.WriteString(c, body[10:]); err != nil {
		t.Fatal(err)
	}
	if status, _, text := s.response(bufio.NewReader(c)); status != 201 {
		t.Errorf("the slow order: %d %s", status, text)
	}
}

func BenchmarkCrowd(b *testing.B) {
	var crowd crowd
	crowd.bound(1024, prometheus.NewCounter(prometheus.CounterOpts{}))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if crowd.enter() {
				crowd.leave()
			}
		}
	})
}
