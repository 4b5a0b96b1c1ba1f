package main

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

// Fleets reach their API on their own listener and nothing else of the private one.
func TestFleetListener_ServesNothingButTheFleetAPI(t *testing.T) {
	e := newStoreEnv(t, "", func(s *settings) { s.FleetAPI.Addr = "127.0.0.1:0" })
	token := e.courier.token
	for path, status := range map[string]int{
		"/api/fleet/v1/jobs?status=Searching": 200, "/api/fleet/v1/openapi.yaml": 200, "/docs": 200,
		"/api/admin/v1/openapi.yaml": 404, "/docs/admin": 404, "/api/admin/v1/accounts": 404,
		"/metrics": 404, "/healthz": 404, "/readyz": 404, "/debug/pprof/": 404, "/api/vendor/v1/orders/x": 404,
	} {
		code := ""
		if status == 404 {
			code = "NOT_FOUND"
		}
		want(t, e.get(e.fleets+path, token), status, code)
	}

	want(t, e.get(e.private+"/api/admin/v1/accounts", adminKey), 200, "")
	want(t, e.get(e.private+"/api/fleet/v1/jobs?status=Searching", token), 200, "")
}

// However many requests of fleets wait for Redis, an operator comes in.
func TestInFlight_OperatorsHavePlacesOfTheirOwn(t *testing.T) {
	e := newStoreEnv(t, "", func(s *settings) { s.PrivateAPI.MaxInFlight = 1 })
	if !e.g.privateLimiter.enter() {
		t.Fatal("no place for the first request")
	}
	want(t, e.fleet(e.courier, "GET", "/jobs?status=Searching", ""), 503, "SERVICE_UNAVAILABLE")
	want(t, e.get(e.private+"/api/admin/v1/accounts", adminKey), 200, "")
	e.g.privateLimiter.leave()
}

// Behind a balancer the limits by address are those of its clients.
func TestProxyProtocol_CountsTheClientsOfABalancer(t *testing.T) {
	e := newEnv(t, func(s *settings) {
		s.VendorAPI.ProxyProtocolFrom, s.VendorAPI.MaxConnectionsPerIP = []string{"127.0.0.0/8"}, 1
	})
	ask := func(header string) int {
		conn := dialBase(t, e.vendor)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, header+"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
		a, err := readAnswerFrom(bufio.NewReader(conn), "GET")
		if err != nil {
			return 0
		}
		return a.status
	}

	const first, second = "PROXY TCP4 192.0.2.1 198.51.100.1 40000 443\r\n", "PROXY TCP4 192.0.2.2 198.51.100.1 40000 443\r\n"
	for i, c := range []struct {
		header string
		want   int
	}{{first, 404}, {first, 429}, {second, 404}, {"PROXY TCP4 nobody\r\n", 0}, {"", 404}, {"", 429}} {
		if got := ask(c.header); got != c.want {
			t.Errorf("connection %d: %d, want %d", i, got, c.want)
		}
	}

	if text := e.get(e.private+"/metrics", "").body; !strings.Contains(text, `gateway_proxy_headers_malformed_total{listener="vendor_api"} 1`) {
		t.Error("the malformed header is not counted")
	}

	// Of others it is no request.
	alone := newEnvOn(t, e.redis, nil)
	conn := dialBase(t, alone.vendor)
	defer conn.Close()
	fmt.Fprint(conn, first+"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	if a, err := readAnswerFrom(bufio.NewReader(conn), "GET"); err != nil || a.status != 400 {
		t.Errorf("%d, %v", a.status, err)
	}
}
