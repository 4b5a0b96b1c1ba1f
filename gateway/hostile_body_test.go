package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
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
	h.nobodyHeard(t)
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

// written is a body as it stands.
func written(auth, body string) attack {
	return attack{bytes: posted("POST", ordersPath, auth, body), status: 400, code: "MALFORMED_REQUEST"}
}

// wrote is an order's body with something that a JSON encoder refuses to write.
func wrote(auth, value string) attack {
	return written(auth, strings.Replace(orderBody("X", "packageNote", `"PLACE"`), `"PLACE"`, value, 1))
}

func numbers(auth string) map[string]attack {
	const invalid, elsewhere = "VALIDATION_FAILED", "COORDINATE_MISMATCH"
	table := map[string]attack{
		"amount of minus zero":       altered(auth, "orderAmount", "-0", 201, ""),
		"amount of minus zero point": altered(auth, "orderAmount", "-0.00", 201, ""),
		"amount of 0.1e1":            altered(auth, "orderAmount", "0.1e1", 201, ""),
		"amount of 1E2":              altered(auth, "orderAmount", "1E2", 201, ""),
		"amount of 100 zeros":        altered(auth, "orderAmount", "1."+strings.Repeat("0", 100), 201, ""),
		"amount of 0e999999999":      altered(auth, "orderAmount", "0e999999999", 201, ""),
		"amount of 1e999":            altered(auth, "orderAmount", "1e999", 422, invalid),
		"amount of 1E400":            altered(auth, "orderAmount", "1E400", 422, invalid),
		"amount of 1e-999":           altered(auth, "orderAmount", "1e-999", 422, invalid),
		"amount of 1e2^64":           altered(auth, "orderAmount", "1e18446744073709551617", 422, invalid),
		"amount of thirty digits":    altered(auth, "orderAmount", strings.Repeat("9", 30), 422, invalid),
		"amount of 50000 digits":     altered(auth, "orderAmount", strings.Repeat("9", 50_000), 422, invalid),
		"amount of three decimals":   altered(auth, "orderAmount", "0.001", 422, invalid),
		"amount below zero":          altered(auth, "orderAmount", "-0.01", 422, invalid),
		"amount in quotes":           altered(auth, "orderAmount", `"1"`, 422, invalid),
		"amount is true":             altered(auth, "orderAmount", "true", 422, invalid),
		"amount is a list":           altered(auth, "orderAmount", "[1]", 422, invalid),
		"latitude of 1e999":          altered(auth, "dropoff.latitude", "1e999", 422, elsewhere),
		"latitude of -1e999":         altered(auth, "dropoff.latitude", "-1e999", 422, elsewhere),
		"latitude of minus zero":     altered(auth, "dropoff.latitude", "-0", 422, elsewhere),
		"latitude of 1e-400":         altered(auth, "dropoff.latitude", "1e-400", 422, elsewhere),
		"latitude of 4.09871e1":      altered(auth, "dropoff.latitude", "4.09871e1", 201, ""),
		"latitude of 30 decimals":    altered(auth, "dropoff.latitude", "40.987100000000000000000000000001", 201, ""),
		"longitude turned round":     altered(auth, "dropoff.longitude", "389.0276", 422, elsewhere),
	}
	for _, number := range []string{"+1", "01", "1.", ".5", "0x10", "1_000", "1e", "--1", "-", "NaN", "Infinity", "-Infinity", "1,5", "１", "1e+-1"} {
		table["no number: "+number] = wrote(auth, number)
	}
	return table
}

func texts(auth string) map[string]attack {
	table := map[string]attack{
		"half a surrogate pair":       altered(auth, "packageNote", `"\ud800"`, 201, ""),
		"halves turned round":         altered(auth, "packageNote", `"\udc00\ud800"`, 201, ""),
		"500 emoji":                   altered(auth, "packageNote", `"`+strings.Repeat(`\ud83d\ude00`, 500)+`"`, 201, ""),
		"501 emoji":                   altered(auth, "packageNote", `"`+strings.Repeat(`\ud83d\ude00`, 501)+`"`, 422, "VALIDATION_FAILED"),
		"right to left":               altered(auth, "packageNote", `"\u202e\u2066x\u2069"`, 201, ""),
		"escaped NUL":                 altered(auth, "packageNote", `"a\u0000b"`, 422, "VALIDATION_FAILED"),
		"a text of 60000":             altered(auth, "packageNote", `"`+strings.Repeat("x", 60_000)+`"`, 422, "VALIDATION_FAILED"),
		"a name of white space":       altered(auth, "recipient.name", `"\u00a0\u2003\u3000 \t"`, 422, "INVALID_RECIPIENT"),
		"a phone in Arabic digits":    altered(auth, "recipient.phone", `"٠٥٣٢١٢٣٤٥٦٧"`, 422, "INVALID_PHONE"),
		"a phone with NUL":            altered(auth, "recipient.phone", `"532123456\u0000"`, 422, "INVALID_PHONE"),
		"a phone of 50000":            altered(auth, "recipient.phone", `"`+strings.Repeat("5", 50_000)+`"`, 422, "INVALID_PHONE"),
		"ready in the year 99999":     altered(auth, "readyAt", `"99999-01-01T00:00"`, 422, "VALIDATION_FAILED"),
		"ready on 30 February":        altered(auth, "readyAt", `"2026-02-30T00:00"`, 422, "VALIDATION_FAILED"),
		"ready at second 60":          altered(auth, "readyAt", `"2026-06-30T23:59:60Z"`, 422, "VALIDATION_FAILED"),
		"ready as a number":           altered(auth, "readyAt", "1795000000", 422, "VALIDATION_FAILED"),
		"ready with much behind":      altered(auth, "readyAt", `"2026-06-30T23:59Z`+strings.Repeat("0", 10_000)+`"`, 422, "VALIDATION_FAILED"),
		"a store with NUL":            altered(auth, "externalStoreId", `"s1\u0000"`, 422, "VALIDATION_FAILED"),
		"a store like a key":          altered(auth, "externalStoreId", `"{p0}s"`, 409, "STORE_NOT_CONFIGURED"),
		"script in a note":            altered(auth, "packageNote", `"'\"><script>alert(1)</script>${7*7}{{7*7}}"`, 201, ""),
		"commands of Redis in a note": altered(auth, "packageNote", `"\r\n*1\r\n$8\r\nFLUSHALL\r\n"`, 201, ""),
	}
	for name, value := range map[string]string{
		"invalid UTF-8": "\"\xff\"", "overlong slash": "\"\xc0\xaf\"", "overlong NUL": "\"\xc0\x80\"", "surrogate in UTF-8": "\"\xed\xa0\x80\"",
		"beyond Unicode": "\"\xf4\x90\x80\x80\"", "half a character": "\"\xc5\"", "raw NUL": "\"\x00\"", "raw line break": "\"a\nb\"",
		"raw tab": "\"a\tb\"", "bad escape": `"\x41"`, "short escape": `"\u12"`, "octal escape": `"\101"`, "single quotes": `'a'`, "no end": `"`,
	} {
		table[name] = wrote(auth, value)
	}
	return table
}

func shapes(auth string) map[string]attack {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	table := map[string]attack{
		"a list of 20000":       altered(auth, "unknown", "["+strings.Repeat("1,", 20_000)+"1]", 201, ""),
		"a prototype":           altered(auth, "__proto__", `{"status":"Delivered"}`, 201, ""),
		"a status of one's own": altered(auth, "status", `"Delivered"`, 201, ""),
		"another account":       altered(auth, "accountId", `"00000000-0000-0000-0000-000000000000"`, 201, ""),
		"recipient is a list":   altered(auth, "recipient", `[]`, 422, "VALIDATION_FAILED"),
		"recipient is null":     altered(auth, "recipient", `null`, 422, "VALIDATION_FAILED"),
		"names in another case": {bytes: posted("POST", ordersPath, auth, strings.ToUpper(`{"externalorderid":"x"}`)), status: 422, code: "VALIDATION_FAILED"},
		"names with dots":       {bytes: posted("POST", ordersPath, auth, `{"recipient.name":"x"}`), status: 422, code: "VALIDATION_FAILED"},
		"an empty key":          {bytes: posted("POST", ordersPath, auth, `{"":1}`), status: 422, code: "VALIDATION_FAILED"},
		"5000 keys":             {bytes: posted("POST", ordersPath, auth, "{"+strings.TrimSuffix(many(`"k%d":1,`, 5000), ",")+"}"), status: 422, code: "VALIDATION_FAILED"},
		"65536 bytes":           {bytes: posted("POST", ordersPath, auth, "{}"+strings.Repeat(" ", 65_534)), status: 422, code: "VALIDATION_FAILED"},
		"65537 bytes":           {bytes: posted("POST", ordersPath, auth, "{}"+strings.Repeat(" ", 65_535)), status: 413, code: "PAYLOAD_TOO_LARGE"},
		"duplicate of a key":    written(auth, strings.Replace(orderBody("X"), "{", `{"externalOrderId":"Y",`, 1)),
		"duplicate, escaped":    written(auth, strings.Replace(orderBody("X"), "{", `{"externalOrderI\u0064":"Y",`, 1)),
		"duplicate of unknown":  written(auth, `{"a":1,"a":1}`),
		"duplicate, deep":       written(auth, `{"a":[{"b":1,"b":1}]}`),
		"duplicate among 5000":  written(auth, "{"+many(`"k%d":1,`, 5000)+`"k77":1}`),
		"30000 lists":           written(auth, `{"a":`+deep(30_000)+"}"),
		"30000 lists, open":     written(auth, strings.Repeat("[", 60_000)),
		"10000 objects":         written(auth, strings.Repeat(`{"a":`, 10_000)+"1"+strings.Repeat("}", 10_000)),
	}
	for name, body := range map[string]string{
		"byte order mark": "\ufeff{}", "UTF-16": "\xff\xfe{\x00}\x00", "a list": "[]", "null": "null", "a number": "1", "a text": `"a"`, "true": "true",
		"white space": " \r\n\t ", "NUL": "\x00", "NUL behind": "{}\x00", "two objects": "{}{}", "garbage behind": "{} x", "comment": "{/**/}",
		"trailing comma": `{"a":1,}`, "no quotes": "{a:1}", "open": `{"a":1`, "closed twice": "{}}", "XML": `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]>`,
		"a form": "externalOrderId=x", "YAML": "externalOrderId: x", "form feed": "\f{}", "no-break space": "\u00a0{}",
	} {
		table["no object: "+name] = written(auth, body)
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

func mediaTypes(auth string) map[string]attack {
	typed := func(headers, body string) attack {
		return attack{bytes: fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s%sContent-Length: %d\r\n\r\n%s", ordersPath, headers, auth, len(body), body),
			status: 415, code: "UNSUPPORTED_MEDIA_TYPE"}
	}
	const asJSON = "Content-Type: application/json\r\n"
	bomb := zipped()
	table := map[string]attack{
		"no type":                 typed("", "{}"),
		"empty type":              typed("Content-Type:\r\n", "{}"),
		"zip bomb":                typed(asJSON+"Content-Encoding: gzip\r\n", bomb),
		"zip bomb, deflate":       typed(asJSON+"Content-Encoding: deflate\r\n", bomb),
		"brotli":                  typed(asJSON+"Content-Encoding: br\r\n", "{}"),
		"gzip twice":              typed(asJSON+"Content-Encoding: gzip, gzip\r\n", bomb),
		"identity, then gzip":     typed(asJSON+"Content-Encoding: identity, gzip\r\n", bomb),
		"coding in other letters": typed(asJSON+"content-encoding: GZIP\r\n", bomb),
		"unknown coding":          typed(asJSON+"Content-Encoding: x\r\n", "{}"),
		"zip bomb, not announced": {bytes: posted("POST", ordersPath, auth, bomb), status: 400, code: "MALFORMED_REQUEST"},
		"charset":                 {bytes: strings.Replace(posted("POST", ordersPath, auth, "{}"), "json", `json; charset="UTF-8"`, 1), status: 422, code: "VALIDATION_FAILED"},
		"identity":                {bytes: posted("POST", ordersPath, auth+"Content-Encoding: identity\r\n", "{}"), status: 422, code: "VALIDATION_FAILED"},
	}
	for _, kind := range []string{"text/plain", "text/json", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"application/jsonx", "application/json; charset=utf-16", "application/json; charset=latin1", "application/json, text/plain", "application/ld+json",
		"application /json", "application/json; version=1", "json", "*/*", "application/json; charset", "application/json;charset=utf-8;boundary=x"} {
		table[kind] = typed("Content-Type: "+kind+"\r\n", "{}")
	}
	return table
}

func privateBodies(h *hostile) map[string]attack {
	admin, fleet := "Authorization: Bearer "+adminKey+"\r\n", "Authorization: Bearer "+h.courier.token+"\r\n"
	account := "/api/admin/v1/accounts/" + h.account.id
	refused := func(status int, code, bytes string) attack { return attack{bytes: bytes, status: status, code: code} }
	limits := func(count string) attack {
		return refused(422, "VALIDATION_FAILED", posted("PATCH", account, admin, `{"limits":{"orders":{"burst":{"count":`+count+`,"seconds":10}}}}`))
	}
	coverage := func(geojson string) attack {
		return refused(422, "VALIDATION_FAILED", posted("PATCH", "/api/admin/v1/fleets/"+h.courier.id, admin, `{"coverage":`+geojson+`}`))
	}
	return map[string]attack{
		"limit of 0.1e1":          limits("0.1e1"),
		"limit of 1.0":            limits("1.0"),
		"limit of 1e999":          limits("1e999"),
		"limit of minus zero":     limits("-0"),
		"limit below zero":        limits("-1"),
		"limit of thirty digits":  limits(strings.Repeat("9", 30)),
		"limit of 2^63":           limits("9223372036854775808"),
		"limit of 2^32":           limits("4294967296"),
		"limit in quotes":         limits(`"10"`),
		"limits by dots":          refused(422, "VALIDATION_FAILED", posted("POST", "/api/admin/v1/accounts", admin, `{"name.x":"a"}`)),
		"limit twice":             refused(400, "MALFORMED_REQUEST", posted("PATCH", account, admin, `{"limits":{},"limits":{}}`)),
		"name of control":         refused(422, "VALIDATION_FAILED", posted("PATCH", account, admin, `{"name":"a\u0007b"}`)),
		"suspended in quotes":     refused(422, "VALIDATION_FAILED", posted("PATCH", account, admin, `{"suspended":"false"}`)),
		"area of 1e999":           coverage(`{"type":"Polygon","coordinates":[[[1e999,1],[1,2],[2,2],[1e999,1]]]}`),
		"area beyond the world":   coverage(`{"type":"Polygon","coordinates":[[[181,1],[1,2],[2,2],[181,1]]]}`),
		"area of nulls":           coverage(`{"type":"Polygon","coordinates":[[null,null,null,null]]}`),
		"area too deep":           coverage(`{"type":"Polygon","coordinates":[[[[[[1]]]]]]}`),
		"area in other letters":   coverage(`{"Type":"Polygon","Coordinates":[[[28,40],[29,40],[29,41],[28,40]]]}`),
		"area of 100000 rings":    coverage(`{"type":"Polygon","coordinates":[` + strings.TrimSuffix(strings.Repeat("[],", 100_000), ",") + `]}`),
		"no area":                 coverage(`"x"`),
		"webhook to the metadata": refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"https://169.254.169.254/latest/meta-data"}`)),
		"webhook in a number":     refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"https://2852039166/"}`)),
		"webhook to a file":       refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"file:///etc/passwd"}`)),
		"webhook to Redis":        refused(422, "VALIDATION_FAILED", posted("PUT", account+"/webhook", admin, `{"url":"gopher://127.0.0.1:6379/_FLUSHALL"}`)),
		"positions of garbage":    refused(422, "VALIDATION_FAILED", posted("POST", "/api/fleet/v1/locations", fleet, `[{"orderId":1,"latitude":1e999,"longitude":"x","at":0},null,[]]`)),
		"100000 positions":        refused(422, "VALIDATION_FAILED", posted("POST", "/api/fleet/v1/locations", fleet, "["+strings.TrimSuffix(strings.Repeat("{},", 100_000), ",")+"]")),
		"couriers of 0.5":         refused(422, "VALIDATION_FAILED", posted("PUT", "/api/fleet/v1/availability", fleet, `{"couriers":0.5}`)),
		"couriers below zero":     refused(422, "VALIDATION_FAILED", posted("PUT", "/api/fleet/v1/availability", fleet, `{"couriers":-1}`)),
		"a client like a key":     refused(401, "INVALID_CREDENTIALS", posted("POST", "/api/fleet/v1/token", "", `{"clientId":"flt_{p0}*","clientSecret":"x"}`)),
		"a secret of 60000":       refused(401, "INVALID_CREDENTIALS", posted("POST", "/api/fleet/v1/token", "", `{"clientId":"`+h.courier.clientID+`","clientSecret":"`+strings.Repeat("x", 60_000)+`"}`)),
	}
}
