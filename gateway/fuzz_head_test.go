package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
)

// FuzzHead holds the reading of a request's head to net/http's: where both take
// it for a request, they see the same one. A proxy in front reads like net/http;
// what it and the gateway read differently is how requests are smuggled.
func FuzzHead(f *testing.F) {
	const line = "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\n"
	for _, seed := range []string{
		"Authorization: Bearer t\r\nX-Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
		"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"Content-Length: 2\n\n{}", "Content-Length: +2\r\n\r\n{}", "Content-Length : 2\r\n\r\n{}", "X: a\r\n Content-Length: 2\r\n\r\n{}",
		"X: a\x00b\r\nContent-Length: 2\r\n\r\n{}", "Transfer-Encoding: chunked \r\n\r\n0\r\n\r\n", "Transfer-Encoding:\x0bchunked\r\n\r\n",
		"X-Idempotency-Key: a\r\nx-idempotency-key: b\r\nContent-Length: 2\r\n\r\n{}", "Authorization:Bearer\tt\r\nContent-Length: 2\r\n\r\n{}",
		"Content-Length: 0x2\r\n\r\n{}", "Content-Length: 2\r\rX: y\r\n\r\n{}", ": x\r\nContent-Length: 2\r\n\r\n{}", "X-Idempotency-Key: \xff\r\nContent-Length: 2\r\n\r\n{}",
	} {
		f.Add(line + seed)
	}

	f.Add("GET http://x/%2e%2e/?q=\x00 HTTP/1.1\r\nHost: y\r\n\r\n")
	f.Add("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		var ctx fasthttp.RequestCtx
		if ctx.Request.Header.Read(bufio.NewReaderSize(strings.NewReader(head), 16384)) != nil {
			return
		}

		x := &requestContext{ctx: &ctx, route: &route{body: requiredBody}}
		framing := x.checkHeaders()
		key, keyErr := x.idempotencyKey("")
		if keyErr == nil && key != "" && delivery.CheckIdempotencyKey("", []byte(key)) != nil {
			t.Errorf("accepted the key %q", key)
		}
		token, tokenErr := bearer(x)
		if tokenErr == nil && (len(token) == 0 || bytes.ContainsAny(token, "\r\n")) {
			t.Errorf("accepted the token %q", token)
		}
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil || framing != nil {
			return
		}

		if len(want.TransferEncoding) > 0 && ctx.Request.Header.ContentLength() == -1 {
			return // its body is FuzzChunks's
		}
		if len(want.TransferEncoding) > 0 || want.ContentLength != int64(max(0, ctx.Request.Header.ContentLength())) {
			t.Errorf("%q: %d bytes, net/http reads %d %v", head, ctx.Request.Header.ContentLength(), want.ContentLength, want.TransferEncoding)
		}
		if method := string(ctx.Method()); method != want.Method {
			t.Errorf("method %q, net/http reads %q", method, want.Method)
		}

		if len(want.Header["Idempotency-Key"]) == 0 {
			checkHeaderRead(t, want.Header, "X-Idempotency-Key", key, keyErr)
		}

		if tokenErr == nil {
			value := want.Header.Get("Authorization")
			if len(want.Header["Authorization"]) != 1 || !strings.HasSuffix(value, string(token)) {
				t.Errorf("token %q, net/http reads %q", token, want.Header["Authorization"])
			}
		}
	})
}

// FuzzChunks holds the reading of a chunked body to net/http's: where the
// connection goes on, both see the same body and the same next request.
func FuzzChunks(f *testing.F) {
	const head = "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, a := range chunked("") {
		f.Add(a.bytes + "GET / HTTP/1.1\r\nHost: y\r\n\r\n")
	}

	f.Fuzz(func(t *testing.T, body string) {
		if len(body) > 4000 {
			return // net/http has other bounds
		}

		var ctx fasthttp.RequestCtx
		r := bufio.NewReaderSize(strings.NewReader(head+body), 16384)
		if err := ctx.Request.Header.Read(r); err != nil {
			t.Fatal(err)
		}
		if err := ctx.Request.ContinueReadBodyStream(r, 65536, false); err != nil {
			t.Fatal(err)
		}

		x := &requestContext{ctx: &ctx, route: &route{body: requiredBody}}
		framing := x.readBody(65536)
		if !x.endChunks() {
			return
		}

		buffered := bufio.NewReader(strings.NewReader(head + body))
		want, err := http.ReadRequest(buffered)
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(want.Body)
		if err != nil || framing == nil && string(read) != string(x.body) {
			t.Errorf("%q: read %q, net/http %q, %v", body, x.body, read, err)
		}

		own, _ := io.ReadAll(r) // neither fails
		rest, _ := io.ReadAll(buffered)
		if string(own) != string(rest) {
			t.Errorf("%q: then %q, net/http %q", body, own, rest)
		}
	})
}

func checkHeaderRead(t *testing.T, want http.Header, name, got string, err error) {
	t.Helper()
	values := want[name]
	switch {
	case err != nil:
	case len(values) > 1, len(values) == 0 && got != "", len(values) == 1 && got != values[0]:
		t.Errorf("%s %q, net/http reads %q", name, got, values)
	}
}

// FuzzRoutes holds the matching of targets to a plain reading of the patterns,
// and the decoding of a segment to net/url's.
func FuzzRoutes(f *testing.F) {
	for _, seed := range []string{"/api/vendor/v1/orders", "/api/vendor/v1/orders/%2e%2e/cancel", "/api/vendor/v1/stores/a%2fb?x=/y",
		"http://h/api/vendor/v1/webhook", "/api/admin/v1/accounts/a/stores/b/confirm", "//api/vendor/v1/orders", "/api/fleet/v1/jobs/%/accept",
		"/api/vendor/v1/orders/;x=1", "/api/vendor/v1/orders#", "*", "https:///api/vendor/v1/token", "/api/vendor/v1/stores/%zz"} {
		f.Add("POST", seed)
		f.Add("PUT", seed)
	}

	all := append(vendorRoutes(), append(adminRoutes(), fleetRoutes()...)...)
	f.Fuzz(func(t *testing.T, method, target string) {
		found, params, allow := all.match([]byte(method), []byte(target))
		if found == nil {
			if strings.Contains(", "+allow+",", ", "+method+",") && method != "" && !strings.Contains(method, ",") {
				t.Errorf("%s %q is not found and allowed: %s", method, target, allow)
			}
			return
		}

		rebuilt := found.pattern
		for i := range strings.Count(found.pattern, "{}") {
			segment := string(params[i])
			if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "/?") {
				t.Errorf("%q gave the parameter %q", target, segment)
			}
			rebuilt = strings.Replace(rebuilt, "{}", segment, 1)
		}

		path, _, _ := strings.Cut(target, "?")
		if found.method != method || !strings.HasSuffix(path, rebuilt) {
			t.Errorf("%s %q matched %s %s", method, target, found.method, found.pattern)
		}
		if path != rebuilt && !strings.HasPrefix(strings.ToLower(path), "http") {
			t.Errorf("%q matched %s", target, found.pattern)
		}
	})
}
