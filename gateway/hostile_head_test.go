package main

import (
	"fmt"
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
	h.nobodyHeard(t)
}

const hookPath = "/api/vendor/v1/webhook"

func requestLines(auth string) map[string]attack {
	rest := "\r\nHost: x\r\n" + auth + "\r\n"
	return map[string]attack{
		"HTTP/0.9":                      malformed("GET " + hookPath + "\r\n\r\n"),
		"HTTP/0.9 in words":             malformed("GET " + hookPath + " HTTP/0.9" + rest),
		"HTTP/1.0":                      {bytes: "GET " + hookPath + " HTTP/1.0" + rest, status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
		"HTTP/1.0 kept alive":           notFound("GET " + hookPath + " HTTP/1.0\r\nConnection: keep-alive" + rest),
		"HTTP/1.2":                      {bytes: "GET " + hookPath + " HTTP/1.2" + rest, status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
		"HTTP/2.0":                      malformed("GET " + hookPath + " HTTP/2.0" + rest),
		"HTTP/11":                       malformed("GET " + hookPath + " HTTP/11" + rest),
		"HTTP/1.1 in small letters":     malformed("GET " + hookPath + " http/1.1" + rest),
		"HTTP/01.1":                     malformed("GET " + hookPath + " HTTP/01.1" + rest),
		"version of another protocol":   malformed("GET " + hookPath + " RTSP/1.0" + rest),
		"version with space behind":     malformed("GET " + hookPath + " HTTP/1.1 " + rest),
		"two versions":                  malformed("GET " + hookPath + " HTTP/1.1 HTTP/1.1" + rest),
		"HTTP/2 preface":                malformed("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"an answer":                     malformed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		"SSH":                           malformed("SSH-2.0-OpenSSH_9.9\r\n\r\n"),
		"SMTP":                          malformed("EHLO example.com\r\n\r\n"),
		"Redis":                         malformed("*1\r\n$8\r\nFLUSHALL\r\n\r\n"),
		"TLS":                           malformed("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n\r\n\r\n"),
		"zeros":                         malformed(strings.Repeat("\x00", 64) + "\r\n\r\n"),
		"empty method":                  malformed(" " + hookPath + " HTTP/1.1" + rest),
		"method with NUL":               malformed("G\x00T " + hookPath + " HTTP/1.1" + rest),
		"method with colon":             malformed("GET: " + hookPath + " HTTP/1.1" + rest),
		"method with high bytes":        malformed("G\xc3\x8aT " + hookPath + " HTTP/1.1" + rest),
		"method of 5000 letters":        notAllowed(strings.Repeat("G", 5000) + " " + hookPath + " HTTP/1.1" + rest),
		"method of 100000 letters":      tooLarge(strings.Repeat("G", 100_000) + " " + hookPath + " HTTP/1.1" + rest),
		"TRACE":                         notAllowed("TRACE " + hookPath + " HTTP/1.1" + rest),
		"CONNECT to another host":       nowhere("CONNECT example.com:443 HTTP/1.1" + rest),
		"CONNECT to a path":             notAllowed("CONNECT " + hookPath + " HTTP/1.1" + rest),
		"PROPFIND":                      notAllowed("PROPFIND " + hookPath + " HTTP/1.1" + rest),
		"method in small letters":       notAllowed("get " + hookPath + " HTTP/1.1" + rest),
		"OPTIONS":                       notAllowed("OPTIONS " + hookPath + " HTTP/1.1" + rest),
		"PATCH":                         notAllowed("PATCH " + hookPath + " HTTP/1.1" + rest),
		"method by header":              notFound("GET " + hookPath + " HTTP/1.1\r\nX-HTTP-Method-Override: DELETE" + rest),
		"two spaces":                    malformed("GET  " + hookPath + "  HTTP/1.1" + rest),
		"tabs for spaces":               malformed("GET\t" + hookPath + "\tHTTP/1.1" + rest),
		"space in the target":           malformed("GET " + hookPath + " x HTTP/1.1" + rest),
		"CR in the target":              malformed("GET " + hookPath + "\rx HTTP/1.1" + rest),
		"NUL in the target":             malformed("GET " + hookPath + "\x00 HTTP/1.1" + rest),
		"DEL in the target":             malformed("GET " + hookPath + "\x7f HTTP/1.1" + rest),
		"no target":                     malformed("GET HTTP/1.1" + rest),
		"one word":                      malformed("GET" + rest),
		"bare LF behind the line":       notFound("GET " + hookPath + " HTTP/1.1\nHost: x\r\n" + auth + "\r\n"),
		"empty lines before":            notFound("\r\n\r\nGET " + hookPath + " HTTP/1.1" + rest),
		"a target of 15000 characters":  nowhere("GET /" + strings.Repeat("a", 15_000) + " HTTP/1.1" + rest),
		"a target of 100000 characters": tooLarge("GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1" + rest),
	}
}

func targets(auth string) map[string]attack {
	rest := " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"
	unknown := func(target string) attack {
		return attack{bytes: "GET " + target + rest, status: 404, code: "ORDER_NOT_FOUND"}
	}
	none := func(target string) attack { return nowhere("GET " + target + rest) }
	const orders = "/api/vendor/v1/orders/"
	return map[string]attack{
		"asterisk, OPTIONS":       nowhere("OPTIONS *" + rest),
		"absolute, no path":       none("http://elsewhere"),
		"double slash":            none("/" + hookPath),
		"double slash inside":     none("/api/vendor/v1//webhook"),
		"dot segments":            none("/api/vendor/v1/x/../webhook"),
		"trailing slash":          none(hookPath + "/"),
		"encoded letter":          none("/api/vendor/v1/%77ebhook"),
		"encoded slash in it":     none("/api/vendor/v1%2fwebhook"),
		"control character":       malformed("GET /api/vendor/v1/web\x01hook" + rest),
		"traversal":               none(orders + "../webhook"),
		"traversal to the top":    none("/../../../../etc/passwd"),
		"traversal, encoded":      unknown(orders + "%2e%2e%2fwebhook"),
		"traversal, twice":        unknown(orders + "%252e%252e%252fwebhook"),
		"traversal, overlong":     unknown(orders + "%c0%ae%c0%ae%c0%afwebhook"),
		"traversal, backslashes":  unknown(orders + "..\\webhook"),
		"traversal, parameters":   unknown(orders + "..;x=1"),
		"traversal at the end":    none(orders + "x/.."),
		"dot":                     none(orders + "."),
		"dots, encoded":           unknown(orders + "%2e%2e"),
		"empty id":                none(orders),
		"encoded slash":           unknown(orders + "x%2fcancel"),
		"encoded NUL":             unknown(orders + "%00"),
		"encoded line break":      unknown(orders + "%0d%0aX-Injected:%20yes"),
		"half an encoding":        unknown(orders + "%"),
		"wrong encoding":          unknown(orders + "%zz%u0041"),
		"raw UTF-8":               unknown(orders + "şişli"),
		"raw bytes":               unknown(orders + "\xff\xfe"),
		"zero UUID":               unknown(orders + "00000000-0000-0000-0000-000000000000"),
		"all ones":                unknown(orders + "ffffffff-ffff-ffff-ffff-ffffffffffff"),
		"UUID in braces":          unknown(orders + "%7b00000000-0000-8000-8000-000000000000%7d"),
		"UUID as URN":             unknown(orders + "urn:uuid:00000000-0000-8000-8000-000000000000"),
		"a partition too many":    unknown(orders + "00000000-0000-8fff-bfff-000000000000"),
		"an id of 10000":          unknown(orders + strings.Repeat("0", 10_000)),
		"glob":                    unknown(orders + "*"),
		"a Redis key":             unknown(orders + "%7bp0%7do"),
		"deep":                    none("/" + strings.Repeat("a/", 2000)),
		"slashes":                 none(strings.Repeat("/", 2000)),
		"query garbage":           notFound("GET " + hookPath + "?%zz&&==&a[]=%00&\xff" + rest),
		"fragment":                none(hookPath + "#x"),
		"absolute form":           notFound("GET http://y" + hookPath + rest),
		"absolute, own user":      notFound("GET http://u:p@y" + hookPath + rest),
		"absolute, other scheme":  none("file:///etc/passwd"),
		"absolute, javascript":    malformed("GET " + "javascript:alert(1)" + rest),
		"authority form":          malformed("GET " + "example.com:80" + rest),
		"asterisk":                malformed("GET " + "*" + rest),
		"no slash":                malformed("GET " + "api/vendor/v1/webhook" + rest),
		"admin API":               none("/api/admin/v1/accounts"),
		"fleet API":               none("/api/fleet/v1/jobs"),
		"metrics":                 none("/metrics"),
		"profiles":                none("/debug/pprof/heap"),
		"other case":              none("/API/vendor/v1/webhook"),
		"version 2":               none("/api/vendor/v2/webhook"),
		"store with encoded line": {bytes: "PUT /api/vendor/v1/stores/a%0d%0ab HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 422, code: "VALIDATION_FAILED"},
		"store with NUL":          {bytes: "PUT /api/vendor/v1/stores/%00 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 422, code: "VALIDATION_FAILED"},
		"store not in UTF-8":      {bytes: "PUT /api/vendor/v1/stores/%ff HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 422, code: "VALIDATION_FAILED"},
		"store wrongly encoded":   {bytes: "PUT /api/vendor/v1/stores/%f HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" + auth + "\r\n{}", status: 400, code: "MALFORMED_REQUEST"},
	}
}

func headers(h *hostile, auth string) map[string]attack {
	get := "GET " + hookPath + " HTTP/1.1\r\n"
	hosted := get + "Host: x\r\n" + auth
	order := hostileOrders + auth + "Content-Length: 2\r\n"
	unauthorized := func(value string) attack {
		return attack{bytes: get + "Host: x\r\nAuthorization: " + value + "\r\n\r\n", status: 401, code: "TOKEN_INVALID"}
	}
	return map[string]attack{
		"two blanks before a token":    notFound(get + "Host: x\r\nAuthorization: Bearer  " + h.account.token + "\r\n\r\n"),
		"scheme in capitals":           notFound(get + "Host: x\r\nAUTHORIZATION: bEARER " + h.account.token + "\r\n\r\n"),
		"the same token twice":         unauthorized("Bearer " + h.account.token + "\r\n" + auth[:len(auth)-2]),
		"a bad token first":            unauthorized("Bearer x\r\n" + auth[:len(auth)-2]),
		"a bad token last":             unauthorized("Bearer " + h.account.token + "\r\nauthorization: Bearer x"),
		"no token":                     unauthorized(""),
		"scheme and tab":               unauthorized("Bearer\t" + h.account.token),
		"token in a cookie":            unauthorized("\r\nCookie: access_token=" + h.account.token),
		"token in another header":      unauthorized("\r\nX-Authorization: Bearer " + h.account.token + "\r\nProxy-Authorization: Bearer " + h.account.token),
		"token in the query":           {bytes: strings.Replace(get, hookPath, hookPath+"?access_token="+h.account.token, 1) + "Host: x\r\n\r\n", status: 401, code: "TOKEN_INVALID"},
		"token as a user":              {bytes: strings.Replace(get, hookPath, "http://"+h.account.token+"@x"+hookPath, 1) + "Host: x\r\n\r\n", status: 401, code: "TOKEN_INVALID"},
		"two keys":                     understood(order + "X-Idempotency-Key: a\r\nX-Idempotency-Key: b\r\n\r\n{}"),
		"empty key":                    understood(order + "X-Idempotency-Key:\r\n\r\n{}"),
		"a HEAD":                       {bytes: "HEAD " + hookPath + " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", status: 405},
		"a GET with a body":            notFound(hosted + "Content-Length: 2\r\n\r\n{}"),
		"a chunked GET":                noLength(hosted + "Transfer-Encoding: chunked\r\n" + chunks),
		"chunks without a token":       noLength(hostileOrders + "Transfer-Encoding: chunked\r\n" + chunks),
		"chunks to nowhere":            {bytes: "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + chunks, status: 404, code: "NOT_FOUND", closed: true},
		"no length where none is due":  notFound("POST " + hookPath + "/test HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"),
		"no Host":                      malformed(get + auth + "\r\n"),
		"the same Host twice":          malformed(get + "Host: x\r\nHost: x\r\n" + auth + "\r\n"),
		"two Hosts":                    malformed(get + "Host: x\r\nhost: y\r\n" + auth + "\r\n"),
		"empty Host":                   malformed(get + "Host:\r\n" + auth + "\r\n"),
		"another Host":                 notFound(get + "Host: evil.example\r\nX-Forwarded-Host: evil.example\r\n" + auth + "\r\n"),
		"no name":                      malformed(hosted + ": x\r\n\r\n"),
		"no colon":                     malformed(hosted + "X\r\n\r\n"),
		"space in a name":              malformed(hosted + "X Y: z\r\n\r\n"),
		"space before a colon":         malformed(hosted + "X : y\r\n\r\n"),
		"tab before a colon":           malformed(hosted + "X\t: y\r\n\r\n"),
		"NUL in a name":                malformed(hosted + "X\x00: y\r\n\r\n"),
		"control in a name":            malformed(hosted + "X\x01: y\r\n\r\n"),
		"high byte in a name":          malformed(hosted + "X\xff: y\r\n\r\n"),
		"brackets in a name":           malformed(hosted + "X(y): z\r\n\r\n"),
		"NUL in a value":               malformed(hosted + "X: a\x00b\r\n\r\n"),
		"control in a value":           malformed(hosted + "X: a\x01b\r\n\r\n"),
		"DEL in a value":               malformed(hosted + "X: a\x7fb\r\n\r\n"),
		"CR in a value":                malformed(hosted + "X: a\rb\r\n\r\n"),
		"high bytes in a value":        notFound(hosted + "X: \xff\xfe\r\n\r\n"),
		"folded key":                   malformed(order + "X-Idempotency-Key: a\r\n b\r\n\r\n{}"),
		"folded token":                 malformed(get + "Host: x\r\nAuthorization: Bearer\r\n " + h.account.token + "\r\n\r\n"),
		"key of 256 characters":        understood(order + "X-Idempotency-Key: " + strings.Repeat("k", 256) + "\r\n\r\n{}"),
		"key with a space":             understood(order + "X-Idempotency-Key: a b\r\n\r\n{}"),
		"key of high bytes":            understood(order + "X-Idempotency-Key: \xc5\x9f\r\n\r\n{}"),
		"no scheme":                    unauthorized(h.account.token),
		"scheme alone":                 unauthorized("Bearer"),
		"two tokens in a line":         unauthorized("Bearer " + h.account.token + ", Bearer " + h.account.token),
		"token with a tail":            unauthorized("Bearer " + h.account.token + "A"),
		"token with a quote":           unauthorized("Bearer \"" + h.account.token + "\""),
		"token of 14000 characters":    unauthorized("Bearer " + strings.Repeat("a.", 7000)),
		"Basic":                        unauthorized("Basic dmVuZG9yOnNlY3JldA=="),
		"100 headers":                  notFound(hosted + many("X-%d: y\r\n", 100) + "\r\n"),
		"a header of 20000":            tooLarge(hosted + "X: " + strings.Repeat("y", 20_000) + "\r\n\r\n"),
		"a header of a megabyte":       tooLarge(hosted + "X: " + strings.Repeat("y", 1<<20) + "\r\n\r\n"),
		"20000 headers":                tooLarge(hosted + many("X-%d: y\r\n", 20_000) + "\r\n"),
		"a name of 20000":              tooLarge(hosted + strings.Repeat("X", 20_000) + ": y\r\n\r\n"),
		"upgrade to HTTP/2":            notFound(hosted + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
		"upgrade to WebSocket":         notFound(hosted + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n"),
		"Connection names a header":    notFound(hosted + "Connection: Authorization\r\n\r\n"),
		"Connection: close":            {bytes: hosted + "Connection: close\r\n\r\n", status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
		"Connection: CLOSE, kept":      {bytes: hosted + "Connection: keep-alive, CLOSE\r\n\r\n", status: 404, code: "WEBHOOK_NOT_CONFIGURED", closed: true},
		"a range":                      notFound(hosted + "Range: bytes=0-0,-1,0-18446744073709551615\r\n\r\n"),
		"forwarded for":                notFound(hosted + "X-Forwarded-For: 127.0.0.1, ' OR 1=1\r\nForwarded: for=127.0.0.1\r\n\r\n"),
		"another path by header":       notFound(hosted + "X-Original-URL: /api/admin/v1/accounts\r\nX-Rewrite-URL: /metrics\r\n\r\n"),
		"cookies":                      notFound(hosted + "Cookie: a=b; c; =; \"\r\n\r\n"),
		"Expect without a body":        notFound(hosted + "Expect: 100-continue\r\n\r\n"),
		"Expect with length 0":         understood0(order, "Expect: 100-continue\r\n"),
		"Expect with a body":           understood(order + "Expect: 100-continue\r\n\r\n{}"),
		"Expect in capitals":           understood(order + "EXPECT: 100-CONTINUE\r\n\r\n{}"),
		"Expect with chunks":           noLength(hostileOrders + auth + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
		"Expect, chunks and length":    noLength(order + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n{}"),
		"Expect something else":        malformed(order + "Expect: 101-upgrade\r\n\r\n{}"),
		"Expect two things":            malformed(order + "Expect: 100-continue, 200-ok\r\n\r\n{}"),
		"Expect with a huge body":      {bytes: hostileOrders + auth + "Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n" + strings.Repeat(" ", 300_000), status: 413, code: "PAYLOAD_TOO_LARGE", closed: true},
		"a huge body, announced":       {bytes: hostileOrders + auth + "Content-Length: 10000000\r\n\r\n" + strings.Repeat(" ", 300_000), status: 413, code: "PAYLOAD_TOO_LARGE", closed: true},
		"an oversize body, sent whole": {bytes: hostileOrders + auth + "Content-Length: 70000\r\n\r\n" + strings.Repeat(" ", 70_000), status: 413, code: "PAYLOAD_TOO_LARGE"},
	}
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

func privateHeads(h *hostile) map[string]attack {
	rest := " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n"
	none := func(target string) attack { return nowhere("GET " + target + rest) }
	missing := func(target string) attack {
		return attack{bytes: "GET " + target + rest, status: 404, code: "ACCOUNT_NOT_FOUND"}
	}
	return map[string]attack{
		"traversal":            none("/api/admin/v1/accounts/../fleets"),
		"encoded traversal":    missing("/api/admin/v1/accounts/%2e%2e%2ffleets"),
		"metrics by a detour":  none("/x/../metrics"),
		"metrics, two slashes": none("//metrics"),
		"profiles":             none("/debug/pprof/heap"),
		"profiles, encoded":    none("/debug%2fpprof/heap"),
		"the vendors' API":     none("/api/vendor/v1/webhook"),
		"id with a quote":      missing("/api/admin/v1/accounts/'%20OR%201=1"),
		"two keys":             {bytes: "GET /api/admin/v1/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a" + strings.TrimPrefix(rest, " HTTP/1.1\r\nHost: x"), status: 401, code: "TOKEN_INVALID"},
		"a vendor's token":     {bytes: "GET /api/admin/v1/accounts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.account.token + "\r\n\r\n", status: 401, code: "TOKEN_INVALID"},
		"TRACE of the key":     notAllowed("TRACE /api/admin/v1/accounts" + rest),
		"CONNECT":              nowhere("CONNECT example.com:443" + rest),
		"no Host":              malformed("GET /api/admin/v1/accounts HTTP/1.1\r\nAuthorization: Bearer " + adminKey + "\r\n\r\n"),
		"HTTP/2 preface":       malformed("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"a huge header":        tooLarge("GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\n"),
		"job with line break":  {bytes: "GET /api/fleet/v1/jobs/a%0d%0ab HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.courier.token + "\r\n\r\n", status: 404, code: "ORDER_NOT_FOUND"},
		"cursor garbage":       {bytes: "GET /api/fleet/v1/jobs?cursor=-1.%00.zz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.courier.token + "\r\n\r\n", status: 422, code: "VALIDATION_FAILED"},
		"huge cursor":          {bytes: "GET /api/fleet/v1/jobs?cursor=99999999999999999999.1.00 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.courier.token + "\r\n\r\n", status: 422, code: "VALIDATION_FAILED"},
	}
}

// What was sent never comes back, so that no page of a browser can read a token
// out of an answer.
func TestHostile_NothingIsEchoed(t *testing.T) {
	e := newEnv(t)
	for _, bytes := range []string{
		"TRACE " + hookPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tell-tale\r\n\r\n",
		"GET /tell-tale<script> HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET " + hookPath + " HTTP/1.1\r\nHost: tell-tale\r\nHost: tell-tale\r\n\r\n",
		"tell-tale\r\n\r\n",
	} {
		a := e.raw(bytes)
		if said := a.body + fmt.Sprint(a.header); strings.Contains(said, "tell-tale") || a.status < 400 {
			t.Errorf("%q was answered %d %s", bytes, a.status, said)
		}
	}
}
