package main

import (
	"slices"
	"strings"
	"testing"
)

// The heads and the bodies that the tables are made of.
const (
	hostileOrders = "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	fine          = "\r\n{}"
	chunks        = "\r\n2\r\n{}\r\n0\r\n\r\n"
)

// TestHostile_Framing: whoever reads the end of a request differently than we do
// gets no second request through, in one piece or byte by byte.
func TestHostile_Framing(t *testing.T) {
	h := newHostile(t)
	post := hostileOrders + "Authorization: Bearer " + h.account.token + "\r\n"
	t.Run("vendor", func(t *testing.T) { h.attacks(t, h.vendor, framing(post)) })
	t.Run("bytewise", func(t *testing.T) { h.bytewise(t, framing(post)) })
	t.Run("sizes", func(t *testing.T) { h.attacks(t, h.vendor, chunkedSizes(post+"Transfer-Encoding: chunked\r\n\r\n")) })
	admin := "PATCH /api/admin/v1/accounts/" + h.account.id + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + adminKey + "\r\n"
	private := framing(admin)
	for k, a := range private { // an empty change is a good one
		if a.status == 422 {
			a.status, a.code = 200, ""
		}

		for i, status := range a.more {
			if status == 422 {
				a.more[i] = 200
			}
		}

		private[k] = a
	}

	t.Run("private", func(t *testing.T) { h.attacks(t, h.private, private) })
	h.nothingSmuggled(t)
}

func framing(post string) []attack {
	cl, te := "Content-Length: ", "Transfer-Encoding: "
	return slices.Concat(
		each(malformed, post+cl, "", "-1\r\n\r\n", "-0\r\n\r\n"),
		each(malformed, post+cl, fine,
			"2\r\n"+cl+"3\r\n", "2\r\n"+cl+"2\r\n", "2, 2\r\n", "0x2\r\n", "2e0\r\n", "2.0\r\n", "2 2\r\n", "2,\r\n", "\"2\"\r\n", "+2\r\n", "\x0b2\r\n", "\u00a02\r\n",
			"٢\r\n", "9223372036854775808\r\n", "18446744073709551618\r\n"),
		each(malformed, post, fine,
			"Content-Length : 2\r\n", "Content-Length:\r\n", "content-length: 2\r\nCONTENT-LENGTH: 3\r\n", "X: y\n"+cl+"2\r\n", "X: y\n"+cl+"2\r\n"+cl+"30\r\n",
			"X: y\r"+cl+"2\r\n", "Content-\x00Length: 2\r\n", "Transfer-Encoding : chunked\r\n"+cl+"2\r\n", "Transfer-Encoding\x00: chunked\r\n"+cl+"2\r\n",
			"X: y\n"+te+"chunked\r\n"+cl+"2\r\n", "X: y\r"+te+"chunked\r\n"+cl+"2\r\n", "X: y\r\n "+te+"chunked\r\n"+cl+"2\r\n",
			"X: y\r\n\tz\r\n"+cl+"2\r\n"),
		each(malformed, post+cl, fine, "2\r\n"+te+"identity\r\n"),
		each(malformed, post+te, chunks,
			"xchunked\r\n", "chunked\r\n"+te+"identity\r\n", "gzip, chunked\r\n", "chunked, identity\r\n", "identity, chunked\r\n",
			"chunked\r\n"+te+"chunked\r\n", "\"chunked\"\r\n", "chunked;q=1\r\n", "chunked\r\n"+cl+"4\r\n"),
		each(malformed, "", chunks, strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1)+te+"chunked\r\n"),
		each(understood, post, fine, "Content-Length:   2  \r\n", "Content-Length:\t2\t\r\n", "Transfer_Encoding: chunked\r\n"+cl+"2\r\n"),
		each(understood, post+cl, fine, "002\r\n"),
		each(noLengthOpen, post, "", "Content_Length: 2\r\n\r\n", "\r\n"),
		each(understood, post, chunks, "Transfer-Encoding:\tchunked\r\n", "TRANSFER-ENCODING: CHUNKED\r\n", te+"chunked \r\n", "Expect: 100-continue\r\n"+te+"chunked\r\n"),
		each(malformed, post+te, chunks, "\x0bchunked\r\n", "chunked\x00\r\n", "\r\n chunked\r\n"+cl+"2\r\n"),
		each(malformed, post, fine, "Transfer-Encoding:\r\n"+cl+"2\r\n"),
		each(malformed, post+te, fine, "cow\r\n"+cl+"2\r\n"),
		each(malformed, post+cl, chunks, "2\r\n"+te+"chunked\r\n"),
		chunked(post+te+"chunked\r\n\r\n"),
		each(malformed, "", "", strings.ReplaceAll(post+te+"chunked\r\n"+chunks, "\r\n", "\n"), strings.ReplaceAll(post+cl+"2\r\n"+fine, "\r\n", "\n")),
		each(malformed, "", fine, strings.Replace(post, "\r\n", "\r\n ", 1)+cl+"2\r\n"),
		each(understood, post+cl, "\r\n\r\n", "2\r\n"+fine),
		[]attack{
			{bytes: post + cl + "2\r\n" + fine + "}\r\n\r\n", status: 422, code: "VALIDATION_FAILED", closed: true, more: []int{400}},
			{bytes: post + cl + "2\r\n" + fine + "\x00\xff\r\n\r\n", status: 422, code: "VALIDATION_FAILED", closed: true, more: []int{400}},
			{bytes: strings.Repeat(post+cl+"2\r\n"+fine, 3), status: 422, code: "VALIDATION_FAILED", more: []int{422, 422}},
			{bytes: strings.Repeat(post+cl+"2\r\n"+fine, 2) + post + cl + "x\r\n" + fine, status: 422, code: "VALIDATION_FAILED", more: []int{422, 400}, closed: true},
		},
	)
}

// noLengthOpen has no body: the connection is in order.
func noLengthOpen(bytes string) attack {
	return attack{bytes: bytes, status: 411, code: "LENGTH_REQUIRED"}
}

// chunked is bodies in chunks.
func chunked(head string) []attack {
	const body, end = "2\r\n{}\r\n", "0\r\n\r\n"
	trailers := func(bytes string) attack {
		return attack{bytes: bytes, status: 422, code: "VALIDATION_FAILED", closed: true}
	}
	return slices.Concat(
		each(understood, head, "",
			"1\r\n{\r\n1\r\n}\r\n"+end, "0000002\r\n{}\r\n"+end, body+"00000\r\n\r\n", "2;a=b\r\n{}\r\n"+end, "2;a=\";\"\r\n{}\r\n0;b\r\n\r\n", "2 \r\n{}\r\n"+end,
			"A\r\n{        }\r\n"+end, many("1;x%d\r\n \r\n", 500)+body+end),
		each(malformed, head, "",
			"-2\r\n{}\r\n"+end, "+2\r\n{}\r\n"+end, "0x2\r\n{}\r\n"+end, " 2\r\n{}\r\n"+end, "\r\n"+body+end, ";a\r\n{}\r\n"+end, "2,2\r\n{}\r\n"+end,
			"2\n{}\r\n"+end, "2\r{}\r\n"+end, "2\r\n{}\n"+end, "2\r\n{}"+end, "1\r\n{}\r\n"+end, "3\r\n{}\r\n"+end, "2;a=\"\r\n\"\r\n{}\r\n"+end, "2;a\n\r\n{}\r\n"+end,
			"10000000000000002\r\n{}\r\n"+end, "fffffffffffffffe\r\n{}\r\n"+end, body+"0\n\n", body+"0\r\n\n", body+"-0\r\n\r\n", body+"0\r\n \r\n\r\n",
			body+"0\r\nContent-Length: 9\r\n\r\n", body+"0\r\nTransfer-Encoding: chunked\r\n\r\n", body+"0\r\nHost: y\r\n\r\n", body+"0\r\nX y\r\n\r\n",
			body+"0\r\nX: "+strings.Repeat("y", 20_000)+"\r\n\r\n"),
		each(trailers, head, "", body+"0\r\nX: y\r\n\r\n", body+"0\r\nX: y\n\n", body+"0\r\nX: y\r\n z\r\n\r\n"),
	)
}

// chunkedSizes are around the vendors' 64 kB, and around what their chunks may
// take on the wire.
func chunkedSizes(head string) []attack {
	const body, end = "2\r\n{}\r\n", "0\r\n\r\n"
	return slices.Concat(
		each(understood, head, "", "fffe\r\n"+strings.Repeat(" ", 65_534)+"\r\n"+body+end, strings.Repeat("1\r\n \r\n", 65_534)+body+end),
		each(malformed, head, "", "2;"+strings.Repeat("a", 1<<20)+"\r\n{}\r\n"+end, strings.Repeat("1;extension\r\n \r\n", 60_000)+body+end),
		[]attack{
			{bytes: head + "10000\r\n" + strings.Repeat(" ", 65_536) + "\r\n" + body + end, status: 413, code: "PAYLOAD_TOO_LARGE"},
			{bytes: head + "1000000\r\n" + strings.Repeat(" ", 400_000), status: 413, code: "PAYLOAD_TOO_LARGE", closed: true},
		},
	)
}
