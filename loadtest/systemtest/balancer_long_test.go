//go:build long

package systemtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// way is one of the three APIs, with and without the balancer, and the request line of an
// operation of it, which wants a token.
type way struct{ front, gateway, line string }

// startGatewayAndBalancer starts a system whose gateway takes requests with and without the
// balancer: vendors', fleets' and operators'.
func startGatewayAndBalancer(t *testing.T) (*edge, []way) {
	t.Helper()
	fleets := stack.FreeAddr()
	s := startStack(t, stack.Options{Env: []string{"FLEET_API_ADDR=" + fleets, "PROXY_PROTOCOL_FROM=127.0.0.1", "MAX_CONNECTIONS_PER_IP=0"}})
	e := startBalancer(t, s, map[string]string{
		"gateway-1:8086": fleets, "reporting:8090": stack.FreeAddr(), "reporting:8084": stack.FreeAddr(),
	})
	return e, []way{
		{e.frontend["8080"], hostOf(s.Demo.BaseURL), orderLine},
		{e.frontend["8086"], fleets, "GET /api/fleet/v1/jobs HTTP/1.1"},
		{e.frontend["8081"], hostOf(s.Demo.OpsURL), "GET /api/admin/v1/accounts HTTP/1.1"},
	}
}

// rawAnswer is what a client reads that sent bytes of its own.
type rawAnswer struct {
	status int
	header http.Header
	body   string
	code   string // the envelope's error code; "-" for a body that is no envelope
}

// sendRaw sends requests over one connection, the next once the one before is answered, and
// returns the answer to the last one.
func sendRaw(t *testing.T, address, method string, requests ...string) (last rawAnswer) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	r := bufio.NewReader(c)
	for _, request := range requests {
		// The answer may come before everything has been read, and the connection may end with it.
		_, err = io.WriteString(c, request)
		must(t, err)
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%.200q: %v", request, err)
		}

		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		last = rawAnswer{status: resp.StatusCode, header: resp.Header, body: string(body), code: errorCode(body)}
	}

	return last
}

// errorCode is the error code of an answer in the APIs' envelope, empty for a success, and
// "-" for what is no envelope.
func errorCode(body []byte) string {
	var envelope struct {
		Success bool
		Message string
		Data    struct{ ErrorCode string }
	}

	isEnvelope := json.Unmarshal(body, &envelope) == nil && (envelope.Success || envelope.Message != "")
	if !isEnvelope {
		return "-"
	}

	return envelope.Data.ErrorCode
}

// headerLines are header lines of a few bytes each.
func headerLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-%d: y\r\n", i)
	}
	return b.String()
}

// headersOf is a header section, with its request line, of so many bytes.
func headersOf(line string, size int) string {
	const end = "\r\n\r\n"
	head := line + "\r\nHost: x\r\nX: "
	return head + strings.Repeat("y", size-len(head)-len(end)) + end
}

const orderLine = "GET /api/vendor/v1/orders/00000000-0000-4000-8000-000000000000 HTTP/1.1"

// What a vendor's program sends works with the balancer exactly if it works without.
func TestBalancer_TakesWhatAGatewayTakes(t *testing.T) {
	t.Parallel()

	_, ways := startGatewayAndBalancer(t)
	vendors := ways[0]

	get := func(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n" }
	put := func(store string) string {
		return "PUT /api/vendor/v1/stores/" + store + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	}
	for name, request := range map[string]string{
		"a path with Turkish letters":         put("şişli-ığüöç"),
		"a path in Latin-1":                   put("\xfe\xfd"),
		"a path with signs":                   put("a\"<>\\^`{|}b"),
		"a path with percent signs":           put("%c5%9fi%c5%9fli"),
		"a query with Turkish letters":        get("/api/vendor/v1/orders?şube=ğ"),
		"a fragment":                          get("/docs#x"),
		"the absolute form":                   get("http://y/docs/none"),
		"HTTP/1.0":                            "GET /docs/none HTTP/1.0\r\n\r\n",
		"a header with Turkish letters":       orderLine + "\r\nHost: x\r\nX-Şube: y\r\n\r\n",
		"a header's value in Turkish":         orderLine + "\r\nHost: x\r\nX: şube\r\n\r\n",
		"a header with an underscore":         orderLine + "\r\nHost: x\r\nX_Y: z\r\n\r\n",
		"an empty header":                     orderLine + "\r\nHost: x\r\nX:\r\n\r\n",
		"100 lines of headers":                orderLine + "\r\nHost: x\r\n" + headerLines(99) + "\r\n",
		"15.4 kB of headers":                  headersOf(orderLine, 15_800),
		"a POST without a length":             "POST /api/vendor/v1/webhook/test HTTP/1.1\r\nHost: x\r\n\r\n",
		"chunks":                              "POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"a length of 0":                       "POST /api/vendor/v1/webhook/test HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"a method that is not there":          "PROPFIND /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\n\r\n",
		"TRACE":                               "TRACE /docs HTTP/1.1\r\nHost: x\r\n\r\n",
		"an expectation":                      "POST /api/vendor/v1/webhook/test HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
		"a body that is too large":            "POST /api/vendor/v1/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat(" ", 100_000),
		"a token that is too long by a third": orderLine + "\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat("a.", 6000) + "\r\n\r\n",
	} {
		without := sendRaw(t, vendors.gateway, "GET", request)
		for when, requests := range map[string][]string{"first": {request}, "second": {orderLine + "\r\nHost: x\r\n\r\n", request}} {
			with := sendRaw(t, vendors.front, "GET", requests...)
			if without.status != with.status || without.code != with.code {
				t.Errorf("%s: %d %s without the balancer, %d %s with it as the %s request (%.120s)", name, without.status, without.code, with.status, with.code, when, with.body)
			}
		}
	}
}

func TestBalancer_HasTheLimitsOfAGateway(t *testing.T) {
	t.Parallel()

	_, ways := startGatewayAndBalancer(t)
	for _, w := range ways {
		for name, c := range map[string]struct {
			request string
			status  int
		}{
			"the most lines":         {"GET /none HTTP/1.1\r\nHost: x\r\n" + headerLines(255) + "\r\n", 404},
			"a line more":            {w.line + "\r\nHost: x\r\n" + headerLines(256) + "\r\n", 400},
			"1,000 lines":            {w.line + "\r\nHost: x\r\n" + headerLines(999) + "\r\n", 400},
			"as large as can be":     {headersOf("GET /none HTTP/1.1", 16_384), 404},
			"a byte more":            {headersOf("GET /none HTTP/1.1", 16_385), 431},
			"30 kB":                  {headersOf("GET /none HTTP/1.1", 30_000), 431},
			"a path of 15 kB":        {"GET /" + strings.Repeat("a", 15_000) + " HTTP/1.1\r\nHost: x\r\n\r\n", 404},
			"a path of 17 kB":        {"GET /" + strings.Repeat("a", 17_000) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
			"a path with 20 slashes": {"GET " + strings.Repeat("/a", 20) + " HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		} {
			for address, side := range map[string]string{w.gateway: "without", w.front: "with"} {
				a := sendRaw(t, address, "GET", c.request)
				if a.status != c.status || a.code == "-" {
					t.Errorf("%s, %s the balancer: %d %.120s, want %d", name, side, a.status, a.body, c.status)
				}
			}
		}
	}
}

// Clients of the APIs read every answer as JSON, whoever writes it.
func TestBalancer_AnswersInTheEnvelope(t *testing.T) {
	t.Parallel()

	e, ways := startGatewayAndBalancer(t)
	for _, w := range ways {
		for _, request := range []string{
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "GET\r\n\r\n", "* / HTTP/1.1\r\n\r\n", "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: x\r\nX\r\n\r\n", w.line + "\r\nHost: x\r\nX Y: z\r\n\r\n", "GET /x HTTP/1.1\r\n X: y\r\nHost: x\r\n\r\n",
			"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
			"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: two\r\n\r\n",
			"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
		} {
			a := sendRaw(t, w.front, "GET", request)
			if a.status != 400 || a.code != "MALFORMED_REQUEST" || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%q: %d %v %s", request, a.status, a.header, a.body)
			}
		}
	}

	e.Gateway.Kill()
	for _, w := range ways {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			a := sendRaw(t, w.front, method, method+" /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			asPromised := a.status == 503 && a.header.Get("Retry-After") == "1" && a.header.Get("Content-Type") == "application/json"
			hasBody := a.code == "SERVICE_UNAVAILABLE" && !strings.Contains(a.body, "is safe")
			if !asPromised || hasBody != (method != "HEAD") {
				t.Errorf("%s without a gateway: %d %v %s", method, a.status, a.header, a.body)
			}
		}
	}
}
