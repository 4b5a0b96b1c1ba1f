package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/testenv/testserver"
)

func TestInFlight_HoldsItsBound(t *testing.T) {
	for _, c := range []struct {
		bound        int64
		come, inside int
	}{{3, 2, 2}, {3, 3, 3}, {3, 9, 3}, {0, 1000, 1000}} {
		limiter := &inFlightLimiter{most: c.bound, shed: prometheus.NewCounter(prometheus.CounterOpts{})}
		let := 0
		for range c.come {
			if limiter.enter() {
				let++
			}
		}

		if let != c.inside {
			t.Errorf("%d of %d were let in, want %d", let, c.come, c.inside)
		}

		for range let {
			limiter.leave()
		}

		if left := limiter.inside.Load(); left != 0 {
			t.Errorf("%d stay inside", left)
		}
	}
}

// Beyond max_in_flight a request is refused at once, with what a client needs to
// come back, and leaves no trace; the private listener has places of its own.
func TestInFlight_RefusesBeyondMaxInFlight(t *testing.T) {
	const most = 2
	e := newStoreEnv(t, "", func(s *settings) { s.VendorAPI.MaxInFlight = most })
	for range most {
		if !e.g.vendorLimiter.enter() {
			t.Fatal("no place for the first requests")
		}
	}

	for _, a := range []answer{
		e.order(orderBody("A-1"), "A-1"), e.order(`{"broken`, ""), e.call("GET", "/orders/7c9e6679-7425-80de-944b-e07fc1f90ae7", ""),
	} {
		want(t, a, 503, "SERVICE_UNAVAILABLE", "retryAfterSeconds", 1)
		if a.header.Get("Retry-After") != "1" || a.closed {
			t.Errorf("%s: %v, closed %v", a.asked, a.header, a.closed)
		}
	}

	want(t, e.get(e.vendor+"/api/vendor/v1/orders/x", "x"), 401, "TOKEN_INVALID") // who is not known gets 401, and costs no place
	want(t, e.fleet(e.courier, "GET", "/jobs?status=Searching", ""), 200, "")
	if text := e.get(e.private+"/metrics", "").body; !strings.Contains(text, `gateway_shed_total{listener="vendor_api"} 3`) ||
		len(ledgerFailures(text)) > 0 {
		t.Error("the metrics count a broken Redis, or not 3 refused requests")
	}

	for range most {
		e.g.vendorLimiter.leave()
	}

	if a := want(t, e.order(orderBody("A-1"), "A-1"), 201, ""); a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the same order afterwards: %v", a.header)
	}

	e.await("every place given back", func() bool { return e.g.vendorLimiter.inside.Load() == 0 })
}

// A client that sends its body byte by byte keeps nobody out.
func TestInFlight_SlowBodiesHoldNoPlace(t *testing.T) {
	e := newStoreEnv(t, everyLimit(), func(s *settings) { s.VendorAPI.MaxInFlight, s.VendorAPI.ReadTimeout = 1, testserver.Timeout })
	slow := posted("POST", ordersPath, "Authorization: Bearer "+e.account.token+"\r\n", orderBody("slow"))
	c := dialBase(t, e.vendor)
	defer c.Close()
	if _, err := io.WriteString(c, slow[:len(slow)-100]); err != nil {
		t.Fatal(err)
	}

	for i := range 10 {
		want(t, e.order(orderBody(fmt.Sprintf("quick-%d", i)), ""), 201, "")
	}

	if _, err := io.WriteString(c, slow[len(slow)-100:]); err != nil {
		t.Fatal(err)
	}
	if a, err := readAnswerFrom(bufio.NewReader(c), "POST"); err != nil || a.status != 201 {
		t.Errorf("the slow order: %d %s, %v", a.status, a.body, err)
	}
}

func BenchmarkInFlight(b *testing.B) {
	limiter := &inFlightLimiter{most: 1024, shed: prometheus.NewCounter(prometheus.CounterOpts{})}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if limiter.enter() {
				limiter.leave()
			}
		}
	})
}
