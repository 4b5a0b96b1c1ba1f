package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// A gateway starts without Redis and waits for it; it survives an outage.
//
//rule:limits-and-idempotency/redis-unavailable-503-service_unavailable-with limits-and-idempotency/never-an-order-without-its
//rule:what-the-service-does/facts-that/the-service-never-retries-a decisions/must-not-be-added-because
func TestGateway_OutlivesRedis(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{Addr: unusedAddr(t, "127.83.71.66")})
	server.Stop()
	s := testSettings(t)
	s.Redis.URL = server.URL
	e := startGateway(t, s, testSecrets())
	e.await("two tries in the log", func() bool { return strings.Count(e.logs.String(), "waiting for Redis") >= 2 })
	if a := e.get(e.private+"/readyz", ""); a.status != 503 || !strings.Contains(a.body, "waiting for Redis") {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
	if a := e.get(e.private+"/healthz", ""); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.awaitReady()
	e.withStore("")

	first := e.order(orderBody("POS-1"), "key")
	server.Kill()
	a := want(t, e.order(orderBody("POS-2"), ""), 503, "SERVICE_UNAVAILABLE")
	if a.header.Get("Retry-After") != "1" || a.data["requestId"] != a.header.Get("X-Request-Id") {
		t.Errorf("%s %v", a.body, a.header)
	}
	if strings.Contains(a.body, "redis") || strings.Contains(a.body, server.URL) {
		t.Errorf("the answer shows internals: %s", a.body)
	}

	// The failed request was sent to Redis once.
	const calls = `vendorapi_redis_script_duration_seconds_count{script="create_order"} 2`
	if !strings.Contains(e.get(e.private+"/metrics", "").body, calls+"\n") {
		t.Errorf("two requests did not make two calls: no line %q", calls)
	}

	if a := e.get(e.private+"/readyz", ""); a.status != 503 {
		t.Errorf("readyz: %d", a.status)
	}

	e.wantLogLines(first.data["orderId"].(string))
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.awaitReady()
	if a := e.order(orderBody("POS-1"), "key"); a.status != 201 || a.body != first.body {
		t.Errorf("the replay after the outage: %d %s", a.status, a.body)
	}

	e.created("POS-2")
	if !strings.Contains(strings.Join(ledgerFailures(e.get(e.private+"/metrics", "").body), "\n"), `{cause="redis",endpoint="orders_create"} `) {
		t.Error("the outage was not counted")
	}
}

// wantLogLines: a line about a request that failed says what an operator looks for,
// and nothing that belongs to the vendor or the recipient.
func (e *env) wantLogLines(orderID string) {
	e.Helper()
	for path, about := range map[string]string{"/orders": "", "/orders/" + orderID: orderID} {
		line := ""
		e.await("a line of the log about "+path, func() bool { // at most one a second
			a := e.call("GET", path, "")
			if about == "" {
				a = e.order(orderBody("A-2"), "")
			}

			want(e, a, 503, "SERVICE_UNAVAILABLE")
			for l := range strings.Lines(e.logs.String()) {
				isSlow := strings.Contains(l, `msg="slow request"`) // on a busy machine there is a second line
				if strings.Contains(l, "request_id="+a.header.Get("X-Request-Id")) && !isSlow {
					line = l
				}
			}

			return line != ""
		})

		for _, part := range []string{"level=ERROR", "endpoint=orders_", "account=" + e.account.id, about} {
			if !strings.Contains(line, part) {
				e.Errorf("%s: %s is missing in %s", path, part, line)
			}
		}

		if strings.Contains(line, " order=") != (about != "") {
			e.Errorf("%s: %s", path, line)
		}
	}

	for _, private := range []string{e.account.token, e.account.secret, adminKey, "5321234567", "Caferağa", "recipient"} {
		if strings.Contains(e.logs.String(), private) {
			e.Errorf("the log contains %q", private)
		}
	}
}

func TestGateway_RefusesAnotherNumberOfPartitions(t *testing.T) {
	e := newEnv(t)
	s := e.g.settings
	s.Redis.Partitions = 8
	g, err := newGateway(t.Context(), s, testSecrets(), e.g.Log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.connect(t.Context(), s.ledgerConfig(testSecrets(), e.g.Log)); err == nil || errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// What is changed at one gateway comes to hold at the other, whatever it is of,
// and a replay is the same everywhere. Each step leaves what the next one needs.
//
//rule:fleets-and-operators/a-change-by-an-operator
func TestGateway_ReplicasShareEverythingButTheProcess(t *testing.T) {
	e := newStoreEnv(t, everyLimit())
	other := e.twin(testSecrets())
	first := e.order(orderBody("POS-0"), "key")
	if a := other.order(orderBody("POS-0"), "key"); a.status != 201 || a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the replay on another replica: %d %s", a.status, a.body)
	}

	account, fleet := "/accounts/"+e.account.id, "/fleets/"+e.courier.id
	n := 0
	for _, step := range []struct {
		change func()
		code   string // of an order at the other gateway afterwards
	}{
		{func() { e.fleet(e.courier, "PUT", "/availability", `{"couriers":0}`) }, "FLEET_UNAVAILABLE"},
		{func() { e.fleet(e.courier, "PUT", "/availability", `{"couriers":1}`) }, ""},
		{func() { e.admin("PATCH", fleet, `{"suspended":true}`) }, "FLEET_SUSPENDED"},
		{func() { e.admin("PATCH", fleet, `{"suspended":false}`) }, ""},
		{func() { e.admin("PATCH", fleet, `{"coverage":`+ankaraArea+`}`) }, "DROPOFF_OUT_OF_COVERAGE"},
		{func() { e.admin("PATCH", fleet, `{"coverage":`+istanbul+`}`) }, ""},
		{func() { e.admin("POST", account+"/stores/s1/deactivate", `{"reason":"VendorRequest"}`) }, "STORE_NOT_CONFIGURED"},
		{func() { e.activeStore(e.account, e.courier, "s1") }, ""},
		{func() { e.admin("PATCH", account, `{"suspended":true}`) }, "ACCOUNT_SUSPENDED"},
		{func() { e.admin("PATCH", account, `{"suspended":false}`) }, ""},
		{func() {
			e.admin("PATCH", account, `{"limits":{"orders":{"sustained":{"count":1,"seconds":3600},"burst":{"count":1,"seconds":3600}}}}`)
		}, "RATE_LIMITED"},
	} {
		step.change()
		other.await(fmt.Sprintf("%q at the other gateway", step.code), func() bool {
			n++
			return other.order(orderBody(fmt.Sprint("POS-", n)), "").code == step.code
		})
	}
}

func TestGateway_ReplayKeepsItsLinkAfterAKeyRotation(t *testing.T) {
	e := newStoreEnv(t, "")
	first := e.order(orderBody("POS-1"), "key")
	keys := testSecrets()
	tomorrow := "k2-" + time.Now().UTC().AddDate(0, 0, 1).Format("20060102")
	keys.TrackingKeys = delivery.TrackingKeys{Current: tomorrow, Keys: map[string][]byte{tomorrow: key32('K'), "k1": key32('k')}}
	if a := e.twin(keys).order(orderBody("POS-1"), "key"); a.status != 201 || a.body != first.body {
		t.Errorf("%d %s, want %s", a.status, a.body, first.body)
	}
}

// Other tests set more for these.
func TestNewGateway_HasItsRealLimits(t *testing.T) {
	g, err := newGateway(t.Context(), testSettings(t), testSecrets(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(g.close)

	if g.accounts.wait != placeWait || g.lastFlush != lastFlush || g.lingerTime != lingerTime {
		t.Errorf("a request waits %s for a place, the end %s for the last counts, a connection lingers for %s",
			g.accounts.wait, g.lastFlush, g.lingerTime)
	}
}

func TestGateway_LetsRequestsInFlightFinish(t *testing.T) {
	e := newStoreEnv(t, "", func(s *settings) {
		s.Shutdown.Delay, s.Shutdown.Timeout = 200*time.Millisecond, testserver.Timeout
		s.VendorAPI.ReadTimeout = testserver.Timeout
	})

	body := orderBody("POS-1")
	conn := dialBase(t, e.vendor)
	defer conn.Close()
	half := len(body) / 2
	fmt.Fprintf(conn, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		e.account.token, len(body))
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") { // the request is in work
		t.Fatalf("%q, %v", line, err)
	}

	fmt.Fprint(conn, body[:half])
	stopped := make(chan struct{})
	go func() {
		e.stop()
		close(stopped)
	}()

	e.await("readyz to say so", func() bool {
		a, err := e.try(request{method: "GET", url: e.private + "/readyz"})
		return err == nil && a.status == 503 && strings.Contains(a.body, "shutting down")
	})

	if a, err := e.try(request{method: "GET", url: e.vendor + "/x"}); err == nil && !a.closed {
		t.Errorf("a response while draining keeps the connection: %v", a.header)
	}

	e.await("the listener to close", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(e.vendor, "http://"))
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

	_, _ = r.ReadString('\n') // the end of 100 Continue
	if a, err := readAnswerFrom(r, "POST"); err != nil || a.status != 201 || !a.closed {
		t.Errorf("%d %s %v, %v", a.status, a.body, a.header, err)
	}

	<-stopped
}

// Ended before it began: whatever fails at the start must not leave a
// server behind that waits for connections for ever.
func TestShutDown_BeforeServingEndsTheServers(t *testing.T) {
	t.Parallel()

	g, err := newGateway(t.Context(), testSettings(t), testSecrets(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	fronts, err := g.listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.shutDown(fronts); err != nil {
		t.Fatal(err)
	}

	for _, f := range fronts {
		if err := f.serve(); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

//rule:make-run/OPS_ADDR private-apis/private-listener-json-the-same
func TestGateway_MetricsNameEndpointsNotPaths(t *testing.T) {
	e := newStoreEnv(t, "")
	e.created("POS-1")
	e.order(`{`, "")
	e.get(e.vendor+"/some/path", "")
	text := e.get(e.private+"/metrics", "").body
	for _, line := range []string{
		`gateway_requests_total{code="201",endpoint="orders_create"} 1`,
		`gateway_requests_total{code="400",endpoint="orders_create"} 1`,
		`gateway_requests_total{code="404",endpoint="unknown"} 1`,
		`gateway_refusals_total{error_code="MALFORMED_REQUEST"} 1`,
		`gateway_request_seconds_count{endpoint="orders_create"} 2`,
		`gateway_limited_total{endpoint="orders_create"} 0`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s", line)
		}
	}

	if strings.Contains(text, "/some/path") || strings.Contains(text, e.account.id) {
		t.Error("the metrics count requests")
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
			e := newEnvWithoutRedis(t, c.change)
			first, second := dialBase(t, e.vendor), dialBase(t, e.vendor)
			defer second.Close()
			for _, conn := range []net.Conn{first, second} {
				fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
				if a, err := readAnswerFrom(bufio.NewReader(conn), "GET"); err != nil || a.status != 404 {
					t.Fatalf("%d, %v", a.status, err)
				}
			}

			third := dialBase(t, e.vendor)
			a, err := readAnswerFrom(bufio.NewReader(third), "GET")
			third.Close()
			want(t, a, c.status, c.code)
			if err != nil || a.header.Get("Retry-After") != "1" {
				t.Errorf("%v, %v", a.header, err)
			}

			checkRejected(t, a)
			first.Close()
			e.await("the place to be free again", func() bool {
				a, err := e.try(request{method: "GET", url: e.vendor + "/x"})
				return err == nil && a.status == 404
			})

			if a := e.get(e.private+"/metrics", ""); !strings.Contains(a.body, `gateway_connections_refused_total{listener="vendor_api"}`) {
				t.Error("refused connections are not counted")
			}
		})
	}
}
