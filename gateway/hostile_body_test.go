package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestHostile_Bodies: JSON that no good client writes, to an order, and bodies
// that are no JSON, or not what they say they are.
//
//rule:decisions/malformed-or-unknown
func TestHostile_Bodies(t *testing.T) {
	h := newHostile(t)
	auth := "Authorization: Bearer " + h.account.token + "\r\n"
	t.Run("number", func(t *testing.T) { h.attacks(t, h.vendor, numbers(auth)) })
	t.Run("text", func(t *testing.T) { h.attacks(t, h.vendor, texts(auth)) })
	t.Run("shape", func(t *testing.T) { h.attacks(t, h.vendor, shapes(auth)) })
	t.Run("type", func(t *testing.T) { h.attacks(t, h.vendor, mediaTypes(auth)) })
	t.Run("private", func(t *testing.T) { h.attacks(t, h.private, privateBodies(h)) })
	h.nothingSmuggled(t)
}

// posted is a request with a JSON body.
func posted(method, path, auth, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", method, path, auth, len(body), body)
}

const ordersPath = "/api/vendor/v1/orders"

// altered is an order with one member changed, or added.
func altered(auth, path, value string, status int, code string) attack {
	id := fmt.Sprintf("X-%x", sha256.Sum256([]byte(path+value)))[:40]
	return attack{bytes: posted("POST", ordersPath, auth, orderBody(id, path, value)), status: status, code: code}
}

// alteredEach is altered for every value.
func alteredEach(auth, path string, status int, code string, values ...string) (all []attack) {
	for _, value := range values {
		all = append(all, altered(auth, path, value, status, code))
	}
	return all
}

// written is a body as it stands.
func written(auth, body string) attack {
	return attack{bytes: posted("POST", ordersPath, auth, body), status: 400, code: "MALFORMED_REQUEST"}
}

// wrote is an order's body with something that a JSON encoder refuses to write.
func wrote(auth, value string) attack {
	return written(auth, strings.Replace(orderBody("X", "packageNote", `"PLACE"`), `"PLACE"`, value, 1))
}

func numbers(auth string) []attack {
	const invalid, elsewhere = "VALIDATION_FAILED", "COORDINATE_MISMATCH"
	table := slices.Concat(
		alteredEach(auth, "orderAmount", 201, "", "-0", "-0.00", "0.1e1", "1E2", "1."+strings.Repeat("0", 100), "0e999999999"),
		alteredEach(auth, "orderAmount", 422, invalid,
			"1e999", "1E400", "1e-999", "1e18446744073709551617", strings.Repeat("9", 30), strings.Repeat("9", 50_000), "0.001", "-0.01", `"1"`, "true", "[1]"),
		alteredEach(auth, "dropoff.latitude", 422, elsewhere, "1e999", "-1e999", "-0", "1e-400"),
		alteredEach(auth, "dropoff.latitude", 201, "", "4.09871e1", "40.987100000000000000000000000001"),
		alteredEach(auth, "dropoff.longitude", 422, elsewhere, "389.0276"),
	)

	for _, number := range []string{"+1", "01", "1.", ".5", "0x10", "1_000", "1e", "--1", "-", "NaN", "Infinity", "-Infinity", "1,5", "１", "1e+-1"} {
		table = append(table, wrote(auth, number))
	}

	return table
}

func texts(auth string) []attack {
	table := slices.Concat(
		alteredEach(auth, "packageNote", 201, "",
			`"\ud800"`, `"\udc00\ud800"`, `"`+strings.Repeat(`\ud83d\ude00`, 500)+`"`, `"\u202e\u2066x\u2069"`, `"'\"><script>alert(1)</script>${7*7}{{7*7}}"`,
			`"\r\n*1\r\n$8\r\nFLUSHALL\r\n"`),
		alteredEach(auth, "packageNote", 422, "VALIDATION_FAILED", `"`+strings.Repeat(`\ud83d\ude00`, 501)+`"`, `"a\u0000b"`, `"`+strings.Repeat("x", 60_000)+`"`),
		alteredEach(auth, "recipient.name", 422, "INVALID_RECIPIENT", `"\u00a0\u2003\u3000 \t"`),
		alteredEach(auth, "recipient.phone", 422, "INVALID_PHONE", `"٠٥٣٢١٢٣٤٥٦٧"`, `"532123456\u0000"`, `"`+strings.Repeat("5", 50_000)+`"`),
		alteredEach(auth, "readyAt", 422, "VALIDATION_FAILED",
			`"99999-01-01T00:00"`, `"2026-02-30T00:00"`, `"2026-06-30T23:59:60Z"`, "1795000000", `"2026-06-30T23:59Z`+strings.Repeat("0", 10_000)+`"`),
		alteredEach(auth, "externalStoreId", 422, "VALIDATION_FAILED", `"s1\u0000"`),
		alteredEach(auth, "externalStoreId", 409, "STORE_NOT_CONFIGURED", `"{p0}s"`),
	)

	for _, value := range []string{
		"\"\xff\"", "\"\xc0\xaf\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
		"\"\xf4\x90\x80\x80\"", "\"\xc5\"", "\"\x00\"", "\"a\nb\"",
		"\"a\tb\"", `"\x41"`, `"\u12"`, `"\101"`, `'a'`, `"`,
	} {
		table = append(table, wrote(auth, value))
	}

	return table
}

func shapes(auth string) []attack {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	table := slices.Concat(
		alteredEach(auth, "unknown", 201, "", "["+strings.Repeat("1,", 20_000)+"1]"),
		alteredEach(auth, "__proto__", 201, "", `{"status":"Delivered"}`),
		alteredEach(auth, "status", 201, "", `"Delivered"`),
		alteredEach(auth, "accountId", 201, "", `"00000000-0000-0000-0000-000000000000"`),
		alteredEach(auth, "recipient", 422, "VALIDATION_FAILED", `[]`, `null`),
		[]attack{
			{bytes: posted("POST", ordersPath, auth, strings.ToUpper(`{"externalorderid":"x"}`)), status: 422, code: "VALIDATION_FAILED"},
			{bytes: posted("POST", ordersPath, auth, `{"recipient.name":"x"}`), status: 422, code: "VALIDATION_FAILED"},
			{bytes: posted("POST", ordersPath, auth, `{"":1}`), status: 422, code: "VALIDATION_FAILED"},
			{bytes: posted("POST", ordersPath, auth, "{"+strings.TrimSuffix(many(`"k%d":1,`, 5000), ",")+"}"), status: 422, code: "VALIDATION_FAILED"},
			{bytes: posted("POST", ordersPath, auth, "{}"+strings.Repeat(" ", 65_534)), status: 422, code: "VALIDATION_FAILED"},
			{bytes: posted("POST", ordersPath, auth, "{}"+strings.Repeat(" ", 65_535)), status: 413, code: "PAYLOAD_TOO_LARGE"},
			written(auth, strings.Replace(orderBody("X"), "{", `{"externalOrderId":"Y",`, 1)),
			written(auth, strings.Replace(orderBody("X"), "{", `{"externalOrderI\u0064":"Y",`, 1)), written(auth, `{"a":1,"a":1}`), written(auth, `{"a":[{"b":1,"b":1}]}`),
			written(auth, "{"+many(`"k%d":1,`, 5000)+`"k77":1}`), written(auth, `{"a":`+deep(30_000)+"}"), written(auth, strings.Repeat("[", 60_000)),
			written(auth, strings.Repeat(`{"a":`, 10_000)+"1"+strings.Repeat("}", 10_000)),
		},
	)

	for _, body := range []string{
		"\ufeff{}", "\xff\xfe{\x00}\x00", "[]", "null", "1", `"a"`, "true",
		" \r\n\t ", "\x00", "{}\x00", "{}{}", "{} x", "{/**/}",
		`{"a":1,}`, "{a:1}", `{"a":1`, "{}}", `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]>`,
		"externalOrderId=x", "externalOrderId: x", "\f{}", "\u00a0{}",
	} {
		table = append(table, written(auth, body))
	}

	return table
}

// zipped is ten megabytes of zeros in ten kilobytes.
func zipped() string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, 10<<20)) // neither fails on a buffer
	_ = w.Close()
	return b.String()
}

func mediaTypes(auth string) []attack {
	typed := func(headers, body string) attack {
		return attack{bytes: fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s%sContent-Length: %d\r\n\r\n%s", ordersPath, headers, auth, len(body), body),
			status: 415, code: "UNSUPPORTED_MEDIA_TYPE"}
	}

	const asJSON = "Content-Type: application/json\r\n"
	bomb := zipped()
	table := slices.Concat(
		[]attack{
			typed("", "{}"), typed("Content-Type:\r\n", "{}"), typed(asJSON+"Content-Encoding: gzip\r\n", bomb), typed(asJSON+"Content-Encoding: deflate\r\n", bomb),
			typed(asJSON+"Content-Encoding: br\r\n", "{}"), typed(asJSON+"Content-Encoding: gzip, gzip\r\n", bomb), typed(asJSON+"Content-Encoding: identity, gzip\r\n", bomb),
			typed(asJSON+"content-encoding: GZIP\r\n", bomb), typed(asJSON+"Content-Encoding: x\r\n", "{}"),
			{bytes: posted("POST", ordersPath, auth, bomb), status: 400, code: "MALFORMED_REQUEST"},
			{bytes: strings.Replace(posted("POST", ordersPath, auth, "{}"), "json", `json; charset="UTF-8"`, 1), status: 422, code: "VALIDATION_FAILED"},
			{bytes: posted("POST", ordersPath, auth+"Content-Encoding: identity\r\n", "{}"), status: 422, code: "VALIDATION_FAILED"},
		},
	)

	for _, kind := range []string{"text/plain", "text/json", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"application/jsonx", "application/json; charset=utf-16", "application/json; charset=latin1", "application/json, text/plain", "application/ld+json",
		"application /json", "application/json; version=1", "json", "*/*", "application/json; charset", "application/json;charset=utf-8;boundary=x"} {
		table = append(table, typed("Content-Type: "+kind+"\r\n", "{}"))
	}

	return table
}

func privateBodies(h *hostile) []attack {
	admin, fleet := "Authorization: Bearer "+adminKey+"\r\n", "Authorization: Bearer "+h.courier.token+"\r\n"
	account := "/api/admin/v1/accounts/" + h.account.id
	refused := func(status int, code, bytes string) attack { return attack{bytes: bytes, status: status, code: code} }
	limits := func(count string) attack {
		return refused(422, "VALIDATION_FAILED", posted("PATCH", account, admin, `{"limits":{"orders":{"burst":{"count":`+count+`,"seconds":10}}}}`))
	}
	coverage := func(geojson string) attack {
		return refused(422, "VALIDATION_FAILED", posted("PATCH", "/api/admin/v1/fleets/"+h.courier.id, admin, `{"coverage":`+geojson+`}`))
	}

	return slices.Concat(
		each(limits, "", "", "0.1e1", "1.0", "1e999", "-0", "-1", strings.Repeat("9", 30), "9223372036854775808", "4294967296", `"10"`),
		each(coverage, "", "",
			`{"type":"Polygon","coordinates":[[[1e999,1],[1,2],[2,2],[1e999,1]]]}`, `{"type":"Polygon","coordinates":[[[181,1],[1,2],[2,2],[181,1]]]}`,
			`{"type":"Polygon","coordinates":[[null,null,null,null]]}`, `{"type":"Polygon","coordinates":[[[[[[1]]]]]]}`,
			`{"Type":"Polygon","Coordinates":[[[28,40],[29,40],[29,41],[28,40]]]}`,
			`{"type":"Polygon","coordinates":[`+strings.TrimSuffix(strings.Repeat("[],", 100_000), ",")+`]}`, `"x"`),
		[]attack{
			refused(422, "VALIDATION_FAILED", posted("POST", "/api/admin/v1/accounts", admin, `{"name.x":"a"}`)),
			refused(400, "MALFORMED_REQUEST", posted("PATCH", account, admin, `{"limits":{},"limits":{}}`)),
			refused(422, "VALIDATION_FAILED", posted("PATCH", account, admin, `{"name":"a\u0007b"}`)),
			refused(422, "VALIDATION_FAILED", posted("PATCH", account, admin, `{"suspended":"false"}`)),
			refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"https://169.254.169.254/latest/meta-data"}`)),
			refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"https://2852039166/"}`)),
			refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"file:///etc/passwd"}`)),
			refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"gopher://127.0.0.1:6379/_FLUSHALL"}`)),
			refused(422, "VALIDATION_FAILED", posted("POST", "/api/fleet/v1/locations", fleet, "["+strings.TrimSuffix(strings.Repeat("{},", 100_000), ",")+"]")),
			refused(422, "VALIDATION_FAILED", posted("PUT", "/api/fleet/v1/availability", fleet, `{"couriers":0.5}`)),
			refused(422, "VALIDATION_FAILED", posted("PUT", "/api/fleet/v1/availability", fleet, `{"couriers":-1}`)),
			refused(401, "INVALID_CREDENTIALS", posted("POST", "/api/fleet/v1/token", "", `{"clientId":"flt_{p0}*","clientSecret":"x"}`)),
			refused(401, "INVALID_CREDENTIALS", posted("POST", "/api/fleet/v1/token", "", `{"clientId":"`+h.courier.clientID+`","clientSecret":"`+strings.Repeat("x", 3000)+`"}`)),
			refused(413, "PAYLOAD_TOO_LARGE", posted("POST", "/api/fleet/v1/token", "", `{"clientId":"`+h.courier.clientID+`","clientSecret":"`+strings.Repeat("x", 60_000)+`"}`)),
		},
	)
}
