package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestHostile_Heads: request lines, targets, hosts and headers of every odd kind.
//
//rule:decisions/malformed-or-unknown
func TestHostile_Heads(t *testing.T) {
	h := newHostile(t)
	auth := "Authorization: Bearer " + h.account.token + "\r\n"
	t.Run("line", func(t *testing.T) { h.attacks(t, h.vendor, requestLines(auth)) })
	t.Run("target", func(t *testing.T) { h.attacks(t, h.vendor, targets(auth)) })
	t.Run("header", func(t *testing.T) { h.attacks(t, h.vendor, headers(h, auth)) })
	t.Run("private", func(t *testing.T) { h.attacks(t, h.private, privateHeads(h)) })
	h.nothingSmuggled(t)
}

const hookPath = "/api/vendor/v1/webhook"

func requestLines(auth string) []attack {
	rest := "\r\nHost: x\r\n" + auth + "\r\n"
	return slices.Concat(
		each(malformed, "", "\r\n\r\n", "GET "+hookPath, strings.Repeat("\x00", 64)),
		each(malformed, "", rest,
			"GET "+hookPath+" HTTP/0.9", "GET "+hookPath+" HTTP/2.0", "GET "+hookPath+" HTTP/11", "GET "+hookPath+" http/1.1", "GET "+hookPath+" HTTP/01.1",
			"GET "+hookPath+" RTSP/1.0", "GET "+hookPath+" HTTP/1.1 ", "GET "+hookPath+" HTTP/1.1 HTTP/1.1", " "+hookPath+" HTTP/1.1",
			"G\x00T "+hookPath+" HTTP/1.1", "GET: "+hookPath+" HTTP/1.1", "G\xc3\x8aT "+hookPath+" HTTP/1.1", "GET  "+hookPath+"  HTTP/1.1",
			"GET\t"+hookPath+"\tHTTP/1.1", "GET "+hookPath+" x HTTP/1.1", "GET "+hookPath+"\rx HTTP/1.1", "GET "+hookPath+"\x00 HTTP/1.1",
			"GET "+hookPath+"\x7f HTTP/1.1", "GET HTTP/1.1", "GET"),
		each(notFound, "", rest,
			"GET "+hookPath+" HTTP/1.0\r\nConnection: keep-alive", "GET "+hookPath+" HTTP/1.1\r\nX-HTTP-Method-Override: DELETE",
			"\r\n\r\nGET "+hookPath+" HTTP/1.1"),
		each(malformed, "", "",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-OpenSSH_9.9\r\n\r\n", "EHLO example.com\r\n\r\n",
			"*1\r\n$8\r\nFLUSHALL\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n\r\n\r\n"),
		each(notAllowed, "", rest,
			strings.Repeat("G", 5000)+" "+hookPath+" HTTP/1.1", "TRACE "+hookPath+" HTTP/1.1", "CONNECT "+hookPath+" HTTP/1.1",
			"PROPFIND "+hookPath+" HTTP/1.1", "get "+hookPath+" HTTP/1.1", "OPTIONS "+hookPath+" HTTP/1.1", "PATCH "+hookPath+" HTTP/1.1"),
		each(tooLarge, "", rest, strings.Repeat("G", 100_000)+" "+hookPath+" HTTP/1.1", "GET /"+strings.Repeat("a", 100_000)+" HTTP/1.1"),
		each(noRoute, "", rest, "CONNECT example.com:443 HTTP/1.1", "GET /"+strings.Repeat("a", 15_000)+" HTTP/1.1"),
		each(notFound, "", "", "GET "+hookPath+" HTTP/1.1\nHost: x\r\n"+auth+"\r\n"),
		[]attack{
			{bytes: "GET " + hookPath + " HTTP/1.0" + rest, status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
			{bytes: "GET " + hookPath + " HTTP/1.2" + rest, status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
		},
	)
}

func targets(auth string) []attack {
	rest := " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"
	unknown := func(target string) attack {
		return attack{bytes: "GET " + target + rest, status: 404, code: "ORDER_NOT_FOUND"}
	}
	none := func(target string) attack { return noRoute("GET " + target + rest) }
	const orders = "/api/vendor/v1/orders/"
	return slices.Concat(
		each(noRoute, "", rest, "OPTIONS *"),
		each(none, "", "",
			"http://elsewhere", "/"+hookPath, "/api/vendor/v1//webhook", "/api/vendor/v1/x/../webhook", "/api/vendor/v1/%77ebhook", "/api/vendor/v1%2fwebhook",
			"/../../../../etc/passwd", orders, "/"+strings.Repeat("a/", 2000), strings.Repeat("/", 2000), "file:///etc/passwd", "/api/admin/v1/accounts", "/api/fleet/v1/jobs",
			"/metrics", "/debug/pprof/heap", "/API/vendor/v1/webhook", "/api/vendor/v2/webhook"),
		each(none, hookPath, "", "/", "#x"),
		each(malformed, "", rest,
			"GET /api/vendor/v1/web\x01hook", "GET "+"javascript:alert(1)", "GET "+"example.com:80", "GET "+"*", "GET "+"api/vendor/v1/webhook"),
		each(none, orders, "", "../webhook", "x/..", "."),
		each(unknown, orders, "",
			"%2e%2e%2fwebhook", "%252e%252e%252fwebhook", "%c0%ae%c0%ae%c0%afwebhook", "..\\webhook", "..;x=1", "%2e%2e", "x%2fcancel", "%00", "%0d%0aX-Injected:%20yes",
			"şişli", "\xff\xfe", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "%7b00000000-0000-8000-8000-000000000000%7d",
			"urn:uuid:00000000-0000-8000-8000-000000000000", "00000000-0000-8fff-bfff-000000000000", strings.Repeat("0", 10_000), "*", "%7bp0%7do"),
		each(malformed, orders, "", "%", "%zz%u0041"),
		each(notFound, "", rest, "GET "+hookPath+"?%zz&&==&a[]=%00&\xff", "GET http://y"+hookPath, "GET http://u:p@y"+hookPath),
		[]attack{
			{bytes: "PUT /api/vendor/v1/stores/a%0d%0ab HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 422, code: "VALIDATION_FAILED"},
			{bytes: "PUT /api/vendor/v1/stores/%00 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 422, code: "VALIDATION_FAILED"},
			{bytes: "PUT /api/vendor/v1/stores/%ff HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 422, code: "VALIDATION_FAILED"},
			{bytes: "PUT /api/vendor/v1/stores/%f HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 400, code: "MALFORMED_REQUEST"},
		},
	)
}

func headers(h *hostile, auth string) []attack {
	get := "GET " + hookPath + " HTTP/1.1\r\n"
	hosted := get + "Host: x\r\n" + auth
	order := hostileOrders + auth + "Content-Length: 2\r\n"
	unauthorized := func(value string) attack {
		return attack{bytes: get + "Host: x\r\nAuthorization: " + value + "\r\n\r\n", status: 401, code: "TOKEN_INVALID"}
	}
	return slices.Concat(
		each(notFound, get, "\r\n\r\n", "Host: x\r\nAuthorization: Bearer  "+h.account.token, "Host: x\r\nAUTHORIZATION: bEARER "+h.account.token),
		each(unauthorized, "", "",
			"Bearer "+h.account.token+"\r\n"+auth[:len(auth)-2], "Bearer x\r\n"+auth[:len(auth)-2], "Bearer "+h.account.token+"\r\nauthorization: Bearer x", "",
			"Bearer\t"+h.account.token, "\r\nCookie: access_token="+h.account.token,
			"\r\nX-Authorization: Bearer "+h.account.token+"\r\nProxy-Authorization: Bearer "+h.account.token, h.account.token, "Bearer",
			"Bearer "+h.account.token+", Bearer "+h.account.token, "Bearer "+h.account.token+"A", "Bearer \""+h.account.token+"\"",
			"Bearer "+strings.Repeat("a.", 7000), "Basic dmVuZG9yOnNlY3JldA=="),
		each(understood, order, "",
			"X-Idempotency-Key: a\r\nX-Idempotency-Key: b\r\n\r\n{}", "X-Idempotency-Key:\r\n\r\n{}", "X-Idempotency-Key: "+strings.Repeat("k", 256)+"\r\n\r\n{}",
			"X-Idempotency-Key: a b\r\n\r\n{}", "X-Idempotency-Key: \xc5\x9f\r\n\r\n{}", "Expect: 100-continue\r\n\r\n{}", "EXPECT: 100-CONTINUE\r\n\r\n{}"),
		each(notFound, hosted, "",
			"Content-Length: 2\r\n\r\n{}", "X: \xff\xfe\r\n\r\n", many("X-%d: y\r\n", 254)+"\r\n",
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n", "Connection: Authorization\r\n\r\n",
			"Range: bytes=0-0,-1,0-18446744073709551615\r\n\r\n", "X-Forwarded-For: 127.0.0.1, ' OR 1=1\r\nForwarded: for=127.0.0.1\r\n\r\n",
			"X-Original-URL: /api/admin/v1/accounts\r\nX-Rewrite-URL: /metrics\r\n\r\n", "Cookie: a=b; c; =; \"\r\n\r\n", "Expect: 100-continue\r\n\r\n"),
		each(notFound, hosted, chunks, "Transfer-Encoding: chunked\r\n"),
		each(notFound, "", "", "POST "+hookPath+"/test HTTP/1.1\r\nHost: x\r\n"+auth+"\r\n"),
		each(malformed, get+auth, "", "\r\n"),
		each(malformed, get, "", "Host: x\r\nHost: x\r\n"+auth+"\r\n", "Host: x\r\nhost: y\r\n"+auth+"\r\n", "Host:\r\n"+auth+"\r\n"),
		each(notFound, get, "", "Host: evil.example\r\nX-Forwarded-Host: evil.example\r\n"+auth+"\r\n"),
		each(malformed, hosted, "",
			": x\r\n\r\n", "X\r\n\r\n", "X Y: z\r\n\r\n", "X : y\r\n\r\n", "X\t: y\r\n\r\n", "X\x00: y\r\n\r\n", "X\x01: y\r\n\r\n", "X\xff: y\r\n\r\n", "X(y): z\r\n\r\n",
			"X: a\x00b\r\n\r\n", "X: a\x01b\r\n\r\n", "X: a\x7fb\r\n\r\n", "X: a\rb\r\n\r\n"),
		each(malformed, order, "", "X-Idempotency-Key: a\r\n b\r\n\r\n{}", "Expect: 101-upgrade\r\n\r\n{}", "Expect: 100-continue, 200-ok\r\n\r\n{}"),
		each(malformed, get, "\r\n\r\n", "Host: x\r\nAuthorization: Bearer\r\n "+h.account.token),
		each(tooLarge, hosted, "\r\n\r\n", "X: "+strings.Repeat("y", 20_000), "X: "+strings.Repeat("y", 1<<20)),
		each(tooLarge, hosted, "", many("X-%d: y\r\n", 20_000)+"\r\n", strings.Repeat("X", 20_000)+": y\r\n\r\n"),
		each(malformed, hosted, "\r\n", many("X-%d: y\r\n", 255), many("X-%d: y\r\n", 1500), strings.Repeat("X:\r\n", 255)),
		each(malformed, order, "", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n{}"),
		[]attack{
			{bytes: strings.Replace(get, hookPath, hookPath+"?access_token="+h.account.token, 1) + "Host: x\r\n\r\n", status: 401, code: "TOKEN_INVALID"},
			{bytes: strings.Replace(get, hookPath, "http://"+h.account.token+"@x"+hookPath, 1) + "Host: x\r\n\r\n", status: 401, code: "TOKEN_INVALID"},
			{bytes: "HEAD " + hookPath + " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", status: 405},
			{bytes: "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + chunks, status: 404, code: "NOT_FOUND"},
			{bytes: "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n" + chunks, status: 404, code: "NOT_FOUND", closed: true},
			{bytes: "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\n", status: 404, code: "NOT_FOUND", closed: true},
			{bytes: hostileOrders + "Transfer-Encoding: chunked\r\n" + chunks, status: 401, code: "TOKEN_INVALID"},
			{bytes: hostileOrders + "Transfer-Encoding: chunked\r\n\r\nx", status: 401, code: "TOKEN_INVALID", closed: true},
			{bytes: strings.Replace(hostileOrders, "json", "xml", 1) + auth + "Transfer-Encoding: chunked\r\n" + chunks, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
			{bytes: hostileOrders + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400, code: "MALFORMED_REQUEST"},
			{bytes: hosted + "Connection: close\r\n\r\n", status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
			{bytes: hosted + "Connection: keep-alive, CLOSE\r\n\r\n", status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true}, understood0(order, "Expect: 100-continue\r\n"),
			{bytes: hostileOrders + auth + "Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n" + strings.Repeat(" ", 300_000), status: 413, code: "PAYLOAD_TOO_LARGE", closed: true},
			{bytes: hostileOrders + auth + "Content-Length: 10000000\r\n\r\n" + strings.Repeat(" ", 300_000), status: 413, code: "PAYLOAD_TOO_LARGE", closed: true},
			{bytes: hostileOrders + auth + "Content-Length: 70000\r\n\r\n" + strings.Repeat(" ", 70_000), status: 413, code: "PAYLOAD_TOO_LARGE"},
		},
	)
}

func understood0(order, header string) attack {
	return attack{bytes: strings.Replace(order, "Content-Length: 2", "Content-Length: 0", 1) + header + "\r\n", status: 400, code: "MALFORMED_REQUEST"}
}

func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func privateHeads(h *hostile) []attack {
	rest := " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n"
	none := func(target string) attack { return noRoute("GET " + target + rest) }
	missing := func(target string) attack {
		return attack{bytes: "GET " + target + rest, status: 404, code: "ACCOUNT_NOT_FOUND"}
	}
	return slices.Concat(
		each(none, "", "", "/api/admin/v1/accounts/../fleets", "/x/../metrics", "//metrics", "/debug/pprof/heap", "/debug%2fpprof/heap", "/api/vendor/v1/webhook"),
		each(missing, "", "", "/api/admin/v1/accounts/%2e%2e%2ffleets", "/api/admin/v1/accounts/'%20OR%201=1"),
		each(notAllowed, "", rest, "TRACE /api/admin/v1/accounts"),
		each(noRoute, "", rest, "CONNECT example.com:443"),
		each(malformed, "", "\r\n\r\n", "GET /api/admin/v1/accounts HTTP/1.1\r\nAuthorization: Bearer "+adminKey),
		each(malformed, "", "", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		each(tooLarge, "", "\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("y", 100_000)),
		[]attack{
			{bytes: "GET /api/admin/v1/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a" + strings.TrimPrefix(rest, " HTTP/1.1\r\nHost: x"), status: 401, code: "TOKEN_INVALID"},
			{bytes: "GET /api/admin/v1/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.account.token + "\r\n\r\n", status: 401, code: "TOKEN_INVALID"},
			{bytes: "GET /api/fleet/v1/jobs/a%0d%0ab HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.courier.token + "\r\n\r\n", status: 404, code: "ORDER_NOT_FOUND"},
			{bytes: "GET /api/fleet/v1/jobs?cursor=-1.%00.zz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.courier.token + "\r\n\r\n", status: 422, code: "VALIDATION_FAILED"},
			{bytes: "GET /api/fleet/v1/jobs?cursor=99999999999999999999.1.00 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.courier.token + "\r\n\r\n", status: 422, code: "VALIDATION_FAILED"},
		},
	)
}

// What was sent never comes back, so that no page of a browser can read a token
// out of an answer.
func TestHostile_NothingIsEchoed(t *testing.T) {
	e := newEnv(t)
	for _, bytes := range []string{
		"TRACE " + hookPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer marker\r\n\r\n",
		"GET /marker<script> HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET " + hookPath + " HTTP/1.1\r\nHost: marker\r\nHost: marker\r\n\r\n",
		"marker\r\n\r\n",
	} {
		a := e.raw(bytes)
		if said := a.body + fmt.Sprint(a.header); strings.Contains(said, "marker") || a.status < 400 {
			t.Errorf("%q was answered %d %s", bytes, a.status, said)
		}
	}
}
