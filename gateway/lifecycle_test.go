package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ops"
	"vendorapi/internal/stack"
)

//rule:limits-and-idempotency/redis-away-503-service_unavailable-with limits-and-idempotency/never-an-order-without-its
func TestGateway_WaitsForRedis(t *testing.T) {
	addr, err := stack.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	s := testSettings(t)
	s.Redis.URL = "redis://" + addr
	w := startGateway(t, s, testSecrets())
	w.await("two tries in the log", func() bool { return strings.Count(w.logs.String(), "waiting for Redis") >= 2 })
	if a := w.get(w.private+"/readyz", ""); a.status != 503 || !strings.Contains(a.body, "waiting for Redis") {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
	if a := w.get(w.private+"/healthz", ""); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	token, err := w.g.vendorTokens.Issue(delivery.NewAccountID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []request{
		{method: "POST", url: w.vendor + "/api/vendor/v1/orders", token: token, body: orderBody("POS-1")},
		{method: "POST", url: w.vendor + "/api/vendor/v1/orders", token: token, body: `{`},
		{method: "GET", url: w.vendor + "/api/vendor/v1/orders/x", token: token},
		{method: "PUT", url: w.vendor + "/api/vendor/v1/stores/s1", token: token, body: storeBody(kadikoy, "")},
		{method: "POST", url: w.vendor + "/api/vendor/v1/token", body: `{"clientId":"x","clientSecret":"y"}`},
		{method: "GET", url: w.private + "/api/admin/v1/accounts", token: adminKey},
	} {
		a := w.send(r)
		if a.status != 503 || a.code != "SERVICE_UNAVAILABLE" || a.header.Get("Retry-After") != "1" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s %s: %d %s %v", r.method, r.url, a.status, a.body, a.header)
		}
	}
	redis, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir(), Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	w.awaitReady()
	w.newAccount("")
	w.stop()
}

//rule:what-the-service-does/facts-that/the-service-never-retries-a limits-and-idempotency/redis-away-503-service_unavailable-with
//rule:limits-and-idempotency/never-an-order-without-its decisions/must-not-be-added-because
func TestGateway_SurvivesAnOutageOfRedis(t *testing.T) {
	s := newScene(t, "")
	first := s.order(orderBody("POS-1"), "key")
	s.redis.Kill()
	a := s.order(orderBody("POS-2"), "")
	if a.status != 503 || a.code != "SERVICE_UNAVAILABLE" || a.header.Get("Retry-After") != "1" || a.data["requestId"] != a.header.Get("X-Request-Id") {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if strings.Contains(a.body, "redis") || strings.Contains(a.body, s.redis.Addr) {
		t.Errorf("the answer tells of our insides: %s", a.body)
	}
	if a := s.get(s.private+"/readyz", ""); a.status != 503 {
		t.Errorf("readyz: %d", a.status)
	}
	if err := s.redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitReady()
	if a := s.order(orderBody("POS-1"), "key"); a.status != 201 || a.body != first.body {
		t.Errorf("the replay after the outage: %d %s", a.status, a.body)
	}
	s.created("POS-2")
	metrics := s.get(s.private+"/metrics", "").body
	if !strings.Contains(metrics, `gateway_ledger_errors_total{endpoint="orders_create"} 1`) {
		t.Error("the outage was not counted")
	}
}

func TestGateway_RefusesAnotherNumberOfPartitions(t *testing.T) {
	w := newWorld(t)
	s := w.g.settings
	s.Redis.Partitions = 8
	g, err := newGateway(t.Context(), s, testSecrets(), w.g.log, ops.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.connect(t.Context()); err == nil || errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

//rule:fleets-and-operators/a-change-by-an-operator
func TestGateway_ReplicasShareEverythingButTheProcess(t *testing.T) {
	s := newScene(t, "")
	twin := startGateway(t, s.g.settings, testSecrets())
	twin.awaitReady()
	other := &scene{world: twin, account: s.account, courier: s.courier}
	first := s.order(orderBody("POS-1"), "key")
	if a := other.order(orderBody("POS-1"), "key"); a.status != 201 || a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the replay on another replica: %d %s", a.status, a.body)
	}
	s.admin("PATCH", "/fleets/"+s.courier.id, `{"suspended":true}`)
	changed := time.Now()
	var lastTried time.Time // of the orders that still got through
	twin.await("the suspension on the other replica", func() bool {
		tried := time.Now()
		if other.order(orderBody("POS-2"), "").code == "FLEET_SUSPENDED" {
			return true
		}
		lastTried = tried
		return false
	})
	if took := lastTried.Sub(changed); took > time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestGateway_ReplayKeepsItsLinkAfterAKeyRotation(t *testing.T) {
	s := newScene(t, "")
	first := s.order(orderBody("POS-1"), "key")
	keys := testSecrets()
	tomorrow := "k2-" + time.Now().UTC().AddDate(0, 0, 1).Format("20060102")
	keys.TrackingKeys = delivery.TrackingKeys{Current: tomorrow, Keys: map[string][]byte{tomorrow: key32('K'), "k1": key32('k')}}
	rotated := startGateway(t, s.g.settings, keys)
	rotated.awaitReady()
	a := (&scene{world: rotated, account: s.account}).order(orderBody("POS-1"), "key")
	if a.status != 201 || a.body != first.body {
		t.Errorf("%d %s, want %s", a.status, a.body, first.body)
	}
}

func TestGateway_LetsRequestsInFlightFinish(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.Shutdown.Delay = 200 * time.Millisecond })
	body := orderBody("POS-1")
	conn := s.dial()
	defer conn.Close()
	half := len(body) / 2
	fmt.Fprintf(conn, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		s.account.token, len(body), body[:half])
	// The server reads the first half before anything else happens.
	s.await("the request to be in flight", func() bool { return s.get(s.vendor+"/x", "").status == 404 })
	stopped := make(chan struct{})
	go func() {
		s.stop()
		close(stopped)
	}()
	s.await("readyz to say so", func() bool {
		a, err := s.try(request{method: "GET", url: s.private + "/readyz"})
		return err == nil && a.status == 503 && strings.Contains(a.body, "shutting down")
	})
	if a, err := s.try(request{method: "GET", url: s.vendor + "/x"}); err == nil && !a.closed {
		t.Errorf("a response while draining keeps the connection: %v", a.header)
	}
	s.await("the listener to close", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.vendor, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case <-stopped:
		t.Fatal("stopped with a request in flight")
	default:
	}
	if _, err := io.WriteString(conn, body[half:]); err != nil {
		t.Fatal(err)
	}
	status, header, answered := s.response(bufio.NewReader(conn))
	if status != 201 || !strings.Contains(header, "Connection: close") {
		t.Errorf("%d %s %s", status, header, answered)
	}
	<-stopped
}

//rule:decisions/malformed-or-unknown
func TestGateway_PanicsAnswer500(t *testing.T) {
	w := newWorld(t)
	const panics, fails = "/api/vendor/v1/webhook", "/api/vendor/v1/orders/7c9e6679-7425-80de-944b-e07fc1f90ae7"
	w.g.vendorRoutes = w.g.metrics.measure(append(routes{
		{method: get, pattern: panics, name: "panic", handle: func(*gateway, *exchange) error { panic("a defect") }},
		{method: get, pattern: fails, name: "fail", handle: func(*gateway, *exchange) error { return errors.New("a secret detail") }},
	}, vendorRoutes()...))
	for path, detail := range map[string]string{panics: "a defect", fails: "a secret detail"} {
		a := w.get(w.vendor+path, "")
		id, _ := a.data["requestId"].(string)
		if a.status != 500 || a.code != "INTERNAL_ERROR" || strings.Contains(a.body, detail) || id == "" || a.header.Get("X-Request-Id") != id {
			t.Errorf("%s: %d %s %v", path, a.status, a.body, a.header)
		}
		if logs := w.logs.String(); !strings.Contains(logs, id) || !strings.Contains(logs, detail) {
			t.Errorf("%s is not in the logs", path)
		}
	}
	if a := w.send(request{method: "GET", url: w.vendor + "/x", header: map[string]string{"X-Request-Id": "forged"}}); a.header.Get("X-Request-Id") != "" {
		t.Errorf("a request id from outside came back: %v", a.header)
	}
}

//rule:make-run/OPS_ADDR private-apis/private-listener-json-the-same
func TestGateway_MetricsNameEndpointsNotPaths(t *testing.T) {
	s := newScene(t, "")
	s.created("POS-1")
	s.order(`{`, "")
	s.get(s.vendor+"/some/path", "")
	a := s.get(s.private+"/metrics", "")
	for _, want := range []string{
		`gateway_requests_total{code="201",endpoint="orders_create"} 1`,
		`gateway_requests_total{code="400",endpoint="orders_create"} 1`,
		`gateway_requests_total{code="404",endpoint="unknown"} 1`,
		`gateway_refusals_total{error_code="MALFORMED_REQUEST"} 1`,
		`gateway_request_seconds_count{endpoint="orders_create"} 2`,
		`gateway_limited_total{endpoint="orders_create"} 0`,
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(a.body, "/some/path") || strings.Contains(a.body, s.account.id) {
		t.Error("metrics tell of requests")
	}
	if a := s.get(s.private+"/debug/pprof/", ""); a.status != 404 {
		t.Errorf("profiles are open: %d", a.status)
	}
	if a := s.get(s.private+"/api/vendor/v1/webhook", s.account.token); a.status != 404 {
		t.Errorf("the Vendor API is on the private listener: %d", a.status)
	}
}

func TestListener_BoundsConnections(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*settings)
		status int
		code   string
	}{
		"in all":           {func(s *settings) { s.VendorAPI.MaxConnections = 2 }, 503, "SERVICE_UNAVAILABLE"},
		"from one address": {func(s *settings) { s.VendorAPI.MaxConnectionsPerIP = 2 }, 429, "RATE_LIMITED"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.change)
			first, second := w.dial(), w.dial()
			defer second.Close()
			for _, conn := range []net.Conn{first, second} {
				fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
				if status, _, _ := w.response(bufio.NewReader(conn)); status != 404 {
					t.Fatalf("%d", status)
				}
			}
			third := w.dial()
			status, header, body := w.response(bufio.NewReader(third))
			third.Close()
			a := readAnswer(parseHeader(status, header), []byte(body))
			if a.status != c.status || a.code != c.code || a.header.Get("Retry-After") != "1" {
				t.Errorf("%d %s %s", status, header, body)
			}
			judgeTurnedAway(t, a)
			first.Close()
			w.await("the place to be free again", func() bool {
				a, err := w.try(request{method: "GET", url: w.vendor + "/x"})
				return err == nil && a.status == 404
			})
			if a := w.get(w.private+"/metrics", ""); !strings.Contains(a.body, `gateway_connections_refused_total{listener="vendor_api"}`) {
				t.Error("refused connections are not counted")
			}
		})
	}
}

func TestRun_StartsServesAndStops(t *testing.T) {
	redis := startRedis(t)
	vendor, err := stack.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	encoded := base64.StdEncoding.EncodeToString(key32('k'))
	for name, value := range map[string]string{
		"GATEWAY_ADDR": vendor, "OPS_ADDR": "127.0.0.1:0", "REDIS_URL": redis.URL, "ENVIRONMENT": sandbox, "ADMIN_KEY": adminKey,
		"TOKEN_KEYS": "t1:" + encoded, "TRACKING_KEYS": "k1:" + encoded, "WEBHOOK_KEYS": "w1:" + encoded,
	} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	logs := new(lockedBuffer)
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"-config", "../configs/gateway.yaml"}, io.Discard, logs) }()
	w := &world{TB: t, logs: logs, vendor: "http://" + vendor}
	w.await("ready", func() bool { return strings.Contains(logs.String(), "msg=ready") })
	if a := w.get(w.vendor+"/x", ""); a.status != 404 || a.code != "NOT_FOUND" {
		t.Errorf("%d %s", a.status, a.body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestRun_RefusesWhatItCannotStartWith(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString(key32('k'))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct{ variable, value, want string }{
		"environment":    {"ENVIRONMENT", "staging", "environment"},
		"no token keys":  {"TOKEN_KEYS", "", "TOKEN_KEYS"},
		"short key":      {"TOKEN_KEYS", "t1:AAAA", "TOKEN_KEYS"},
		"two tracking":   {"TRACKING_KEYS", "a:" + encoded + ",b:" + encoded, "same day"},
		"admin key":      {"ADMIN_KEY", "short", "ADMIN_KEY"},
		"address taken":  {"GATEWAY_ADDR", taken.Addr().String(), "vendor_api"},
		"private taken":  {"OPS_ADDR", taken.Addr().String(), "private_api"},
		"no certificate": {"TLS_CERT_FILE", "/nowhere.pem", "tls_key_file"},
		"log level":      {"LOG_LEVEL", "loud", "log.level"},
		"redis url":      {"REDIS_URL", "http://x", "redis"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range map[string]string{
				"GATEWAY_ADDR": "127.0.0.1:0", "OPS_ADDR": "127.0.0.1:0", "ADMIN_KEY": adminKey, "REDIS_URL": "redis://127.0.0.1:1",
				"TOKEN_KEYS": "t1:" + encoded, "TRACKING_KEYS": "k1:" + encoded, "WEBHOOK_KEYS": "w1:" + encoded,
			} {
				t.Setenv(variable, value)
			}
			t.Setenv(c.variable, c.value)
			err := run(t.Context(), []string{"-config", "../configs/gateway.yaml"}, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), encoded) {
				t.Error("the error shows a key")
			}
		})
	}
	if err := run(t.Context(), []string{"-nonsense"}, io.Discard, new(bytes.Buffer)); err == nil {
		t.Error("an unknown flag")
	}
}
