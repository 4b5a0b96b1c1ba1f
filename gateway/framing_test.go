package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestFraming sends what no client library sends. Whatever is ambiguous about
// where a request ends closes the connection, so that nothing behind it is taken
// for a request.
func TestFraming(t *testing.T) {
	s := newScene(t, "")
	auth := "Authorization: Bearer " + s.account.token + "\r\n"
	const orders = "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	const smuggled = "GET /api/vendor/v1/webhook HTTP/1.1\r\nHost: x\r\n\r\n"
	body := orderBody("POS-1", "externalStoreId", `"none"`)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	for name, c := range map[string]struct {
		bytes  string
		status int
		code   string
		closed bool
	}{
		"chunked":                    {orders + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"chunked without token":      {orders + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"chunked to nowhere":         {"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 404, "NOT_FOUND", true},
		"chunked GET":                {"GET /api/vendor/v1/webhook HTTP/1.1\r\nHost: x\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"CL and TE":                  {orders + auth + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"TE and CL":                  {orders + auth + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"CL and TE identity":         {orders + auth + "Content-Length: 2\r\nTransfer-Encoding: identity\r\n\r\n{}" + smuggled, 411, "LENGTH_REQUIRED", true},
		"two lengths":                {orders + auth + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + smuggled, 400, "MALFORMED_REQUEST", true},
		"two equal lengths":          {orders + auth + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + smuggled, 400, "MALFORMED_REQUEST", true},
		"two transfer encodings":     {orders + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"obscured chunked":           {orders + auth + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"chunked in HTTP/1.0":        {"POST /api/vendor/v1/orders HTTP/1.0\r\nHost: x\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 411, "LENGTH_REQUIRED", true},
		"space before the colon":     {orders + auth + "Content-Length : 2\r\n\r\n{}" + smuggled, 400, "MALFORMED_REQUEST", true},
		"signed length":              {orders + auth + "Content-Length: +2\r\n\r\n{}" + smuggled, 400, "MALFORMED_REQUEST", true},
		"list of lengths":            {orders + auth + "Content-Length: 2, 2\r\n\r\n{}" + smuggled, 400, "MALFORMED_REQUEST", true},
		"negative length":            {orders + auth + "Content-Length: -1\r\n\r\n" + smuggled, 400, "MALFORMED_REQUEST", true},
		"enormous length":            {orders + auth + "Content-Length: 99999999999999999999\r\n\r\n", 400, "MALFORMED_REQUEST", true},
		"no HTTP":                    {"hello\r\n\r\n", 400, "MALFORMED_REQUEST", true},
		"TLS to the plain port":      {"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", 400, "MALFORMED_REQUEST", true},
		"no Host":                    {"GET /api/vendor/v1/webhook HTTP/1.1\r\n" + auth + "\r\n", 400, "MALFORMED_REQUEST", true},
		"two Hosts":                  {"GET /api/vendor/v1/webhook HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + auth + "\r\n", 400, "MALFORMED_REQUEST", true},
		"control character in path":  {"GET /api/vendor/v1/web\x01hook HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 400, "MALFORMED_REQUEST", true},
		"unsupported Expect":         {orders + auth + "Expect: 200-maybe\r\n" + length + "\r\n" + body, 400, "MALFORMED_REQUEST", true},
		"two Authorizations":         {orders + auth + auth + length + "\r\n" + body, 401, "TOKEN_INVALID", false},
		"two idempotency keys":       {orders + auth + "X-Idempotency-Key: a\r\nX-Idempotency-Key: b\r\n" + length + "\r\n" + body, 422, "VALIDATION_FAILED", false},
		"empty idempotency key":      {orders + auth + "X-Idempotency-Key:\r\n" + length + "\r\n" + body, 422, "VALIDATION_FAILED", false},
		"scheme in another case":     {orders + "Authorization: bEARER " + s.account.token + "\r\n" + length + "\r\n" + body, 409, "STORE_NOT_CONFIGURED", false},
		"charset given":              {strings.Replace(orders, "json", `json; charset="UTF-8"`, 1) + auth + length + "\r\n" + body, 409, "STORE_NOT_CONFIGURED", false},
		"unknown parameter":          {strings.Replace(orders, "json", "json; version=1", 1) + auth + length + "\r\n" + body, 415, "UNSUPPORTED_MEDIA_TYPE", false},
		"absolute target":            {strings.Replace(orders, "/api", "http://elsewhere/api", 1) + auth + length + "\r\n" + body, 409, "STORE_NOT_CONFIGURED", false},
		"absolute target, no path":   {"GET http://elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", 404, "NOT_FOUND", false},
		"double slash":               {strings.Replace(orders, "/api", "//api", 1) + auth + length + "\r\n" + body, 404, "NOT_FOUND", false},
		"double slash inside":        {strings.Replace(orders, "v1/", "v1//", 1) + auth + length + "\r\n" + body, 404, "NOT_FOUND", false},
		"dot segments":               {strings.Replace(orders, "v1/", "v1/x/../", 1) + auth + length + "\r\n" + body, 404, "NOT_FOUND", false},
		"trailing slash":             {strings.Replace(orders, "orders", "orders/", 1) + auth + length + "\r\n" + body, 404, "NOT_FOUND", false},
		"encoded path":               {strings.Replace(orders, "orders", "%6frders", 1) + auth + length + "\r\n" + body, 404, "NOT_FOUND", false},
		"encoded slash in the path":  {strings.Replace(orders, "v1/orders", "v1%2forders", 1) + auth + length + "\r\n" + body, 404, "NOT_FOUND", false},
		"query":                      {strings.Replace(orders, "orders", "orders?x=/y", 1) + auth + length + "\r\n" + body, 409, "STORE_NOT_CONFIGURED", false},
		"lower-case method":          {strings.Replace(orders, "POST", "post", 1) + auth + length + "\r\n" + body, 405, "METHOD_NOT_ALLOWED", false},
		"HEAD":                       {"HEAD /api/vendor/v1/webhook HTTP/1.1\r\nHost: x\r\n\r\n", 405, "", false},
		"asterisk":                   {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, "NOT_FOUND", false},
		"length on an optional body": {"POST /api/vendor/v1/webhook/test HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 404, "WEBHOOK_NOT_CONFIGURED", false},
		"body of a GET":              {"GET /api/vendor/v1/webhook HTTP/1.1\r\nHost: x\r\n" + auth + length + "\r\n" + body, 404, "WEBHOOK_NOT_CONFIGURED", false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.dial()
			defer conn.Close()
			if _, err := io.WriteString(conn, c.bytes); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			if name == "HEAD" {
				line, err := r.ReadString('\n')
				if err != nil || !strings.Contains(line, " 405 ") {
					t.Errorf("%q, %v", line, err)
				}
				return
			}
			status, header, answered := s.response(r)
			a := readAnswer(parseHeader(status, header), []byte(answered))
			if a.status != c.status || a.code != c.code {
				t.Errorf("got %d %s", a.status, answered)
			}
			if c.closed {
				if rest, _ := io.ReadAll(r); len(rest) > 0 {
					t.Errorf("the connection went on: %q", rest)
				}
				if !strings.Contains(header, "Connection: close") {
					t.Errorf("the close is not announced: %q", header)
				}
				return
			}
			// The connection is in order: the next request is answered.
			if _, err := io.WriteString(conn, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if status, _, _ := s.response(r); status != 404 {
				t.Errorf("next request: %d", status)
			}
		})
	}
}

func TestFraming_PipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := newScene(t, "")
	body := orderBody("POS-1", "externalStoreId", `"none"`)
	one := fmt.Sprintf("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		s.account.token, len(body), body)
	conn := s.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Repeat(one, 3)+"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for _, want := range []int{409, 409, 409, 404} {
		if status, _, answered := s.response(r); status != want {
			t.Errorf("got %d %s, want %d", status, answered, want)
		}
	}
}

func TestFraming_ExpectContinueIsHonoured(t *testing.T) {
	s := newScene(t, "")
	body := orderBody("POS-1")
	req, err := http.NewRequest("POST", s.vendor+"/api/vendor/v1/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.account.token)
	req.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Errorf("%d", resp.StatusCode)
	}
	client.CloseIdleConnections()
}

//rule:decisions/malformed-or-unknown
func TestFraming_SizeLimits(t *testing.T) {
	s := newScene(t, "")
	base := len(orderBody("POS-1", "x", `""`))
	padded := func(size int) string { return orderBody("POS-1", "x", `"`+strings.Repeat("x", size-base)+`"`) }
	if a := s.order(padded(65536), ""); a.status != 201 {
		t.Errorf("64 kB: %d %s", a.status, a.body)
	}
	for _, size := range []int{65537, 200_000, 1 << 20} {
		a, err := s.try(request{method: "POST", url: s.vendor + "/api/vendor/v1/orders", token: s.account.token, body: padded(size)})
		// Far beyond the limit the connection may be closed while the client still
		// writes, which some clients take for a failure before they read.
		if err != nil && size < 1<<20 || err == nil && (a.status != 413 || a.code != "PAYLOAD_TOO_LARGE" || !a.quota()) {
			t.Errorf("%d bytes: %d %s, %v", size, a.status, a.body, err)
		}
	}
}

func TestFraming_StalledRequestsAreDropped(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.VendorAPI.ReadTimeout = 300 * time.Millisecond })
	head := "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + s.account.token + "\r\n"
	for name, bytes := range map[string]string{
		"in the headers":  head,
		"in a short body": head + "Content-Length: 100\r\n\r\n{",
		"in a long body":  head + "Content-Length: 30000\r\n\r\n" + strings.Repeat(" ", 20000),
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.dial()
			defer conn.Close()
			if _, err := io.WriteString(conn, bytes); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			status, header, body := s.response(r)
			if a := readAnswer(parseHeader(status, header), []byte(body)); a.status != 400 || a.code != "MALFORMED_REQUEST" {
				t.Errorf("%d %s", status, body)
			}
			if rest, _ := io.ReadAll(r); len(rest) > 0 {
				t.Errorf("the connection went on: %q", rest)
			}
		})
	}
}

// A spare connection that a client dialled and left alone must not hold an
// answer that nobody asked for.
func TestFraming_SilentConnectionsAreClosedWithoutAWord(t *testing.T) {
	s := newScene(t, "", func(s *settings) { s.VendorAPI.ReadTimeout = 200 * time.Millisecond })
	conn := s.dial()
	defer conn.Close()
	if said, err := io.ReadAll(conn); len(said) > 0 || err != nil {
		t.Errorf("said %q, %v", said, err)
	}
}
