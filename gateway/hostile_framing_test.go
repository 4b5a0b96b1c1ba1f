package main

import (
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
	admin := "PATCH /api/admin/v1/accounts/" + h.account.id + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + adminKey + "\r\n"
	private := framing(admin)
	for name, a := range private { // an empty change is a good one
		if a.status == 422 {
			a.status, a.code = 200, ""
		}
		for i, status := range a.more {
			if status == 422 {
				a.more[i] = 200
			}
		}
		private[name] = a
	}
	t.Run("private", func(t *testing.T) { h.attacks(t, h.private, private) })
	h.nobodyHeard(t)
}

func framing(post string) map[string]attack {
	cl, te := "Content-Length: ", "Transfer-Encoding: "
	return map[string]attack{
		"length negative":                  malformed(post + cl + "-1\r\n\r\n"),
		"length twice":                     malformed(post + cl + "2\r\n" + cl + "3\r\n" + fine),
		"length twice the same":            malformed(post + cl + "2\r\n" + cl + "2\r\n" + fine),
		"length of two numbers, listed":    malformed(post + cl + "2, 2\r\n" + fine),
		"length with space before colon":   malformed(post + "Content-Length : 2\r\n" + fine),
		"length and identity":              noLength(post + cl + "2\r\n" + te + "identity\r\n" + fine),
		"chunked, nearly":                  noLength(post + te + "xchunked\r\n" + chunks),
		"chunked, then identity":           noLength(post + te + "chunked\r\n" + te + "identity\r\n" + chunks),
		"chunked in HTTP/1.0":              noLength(strings.Replace(post, "HTTP/1.1", "HTTP/1.0", 1) + te + "chunked\r\n" + chunks),
		"length in hex":                    malformed(post + cl + "0x2\r\n" + fine),
		"length with exponent":             malformed(post + cl + "2e0\r\n" + fine),
		"length with point":                malformed(post + cl + "2.0\r\n" + fine),
		"length of two numbers":            malformed(post + cl + "2 2\r\n" + fine),
		"length with comma":                malformed(post + cl + "2,\r\n" + fine),
		"length in quotes":                 malformed(post + cl + "\"2\"\r\n" + fine),
		"length is empty":                  malformed(post + "Content-Length:\r\n" + fine),
		"length of minus zero":             malformed(post + cl + "-0\r\n\r\n"),
		"length with plus":                 malformed(post + cl + "+2\r\n" + fine),
		"length with vertical tab":         malformed(post + cl + "\x0b2\r\n" + fine),
		"length with no-break space":       malformed(post + cl + "\u00a02\r\n" + fine),
		"length in Arabic digits":          malformed(post + cl + "٢\r\n" + fine),
		"length of 2^63":                   malformed(post + cl + "9223372036854775808\r\n" + fine),
		"length of 2^64 and two":           malformed(post + cl + "18446744073709551618\r\n" + fine),
		"length twice, in other letters":   malformed(post + "content-length: 2\r\nCONTENT-LENGTH: 3\r\n" + fine),
		"length with spaces around":        understood(post + "Content-Length:   2  \r\n" + fine),
		"length with tabs around":          understood(post + "Content-Length:\t2\t\r\n" + fine),
		"length with zeros before":         understood(post + cl + "002\r\n" + fine),
		"length behind a bare LF":          malformed(post + "X: y\n" + cl + "2\r\n" + fine),
		"length twice behind a bare LF":    malformed(post + "X: y\n" + cl + "2\r\n" + cl + "30\r\n" + fine),
		"length behind a bare CR":          malformed(post + "X: y\r" + cl + "2\r\n" + fine),
		"length with NUL in its name":      malformed(post + "Content-\x00Length: 2\r\n" + fine),
		"length with underscore":           noLengthOpen(post + "Content_Length: 2\r\n\r\n"),
		"no length, no body":               noLengthOpen(post + "\r\n"),
		"chunked with space behind":        noLength(post + te + "chunked \r\n" + chunks),
		"chunked with tab before":          noLength(post + "Transfer-Encoding:\tchunked\r\n" + chunks),
		"chunked with vertical tab":        malformed(post + te + "\x0bchunked\r\n" + chunks),
		"chunked in capitals":              noLength(post + "TRANSFER-ENCODING: CHUNKED\r\n" + chunks),
		"chunked in a list":                noLength(post + te + "gzip, chunked\r\n" + chunks),
		"chunked before identity":          noLength(post + te + "chunked, identity\r\n" + chunks),
		"chunked behind identity":          noLength(post + te + "identity, chunked\r\n" + chunks),
		"chunked twice":                    noLength(post + te + "chunked\r\n" + te + "chunked\r\n" + chunks),
		"chunked in quotes":                noLength(post + te + "\"chunked\"\r\n" + chunks),
		"chunked with parameter":           noLength(post + te + "chunked;q=1\r\n" + chunks),
		"chunked with NUL":                 malformed(post + te + "chunked\x00\r\n" + chunks),
		"encoding is empty":                noLength(post + "Transfer-Encoding:\r\n" + cl + "2\r\n" + fine),
		"encoding is a cow":                noLength(post + te + "cow\r\n" + cl + "2\r\n" + fine),
		"length, then chunked":             noLength(post + cl + "2\r\n" + te + "chunked\r\n" + chunks),
		"chunked, then length":             noLength(post + te + "chunked\r\n" + cl + "4\r\n" + chunks),
		"chunked, length, fold":            malformed(post + te + "\r\n chunked\r\n" + cl + "2\r\n" + chunks),
		"chunk with extension":             noLength(post + te + "chunked\r\n\r\n2;a=\"\r\n\"\r\n{}\r\n0\r\n\r\n"),
		"chunk of a negative size":         noLength(post + te + "chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n"),
		"chunk with trailer":               noLength(post + te + "chunked\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"),
		"chunked with bare LFs":            malformed(strings.ReplaceAll(post+te+"chunked\r\n"+chunks, "\r\n", "\n")),
		"encoding with space before colon": malformed(post + "Transfer-Encoding : chunked\r\n" + cl + "2\r\n" + fine),
		"encoding with underscore":         understood(post + "Transfer_Encoding: chunked\r\n" + cl + "2\r\n" + fine),
		"encoding with NUL in its name":    malformed(post + "Transfer-Encoding\x00: chunked\r\n" + cl + "2\r\n" + fine),
		"encoding behind a bare LF":        malformed(post + "X: y\n" + te + "chunked\r\n" + cl + "2\r\n" + fine),
		"encoding behind a bare CR":        malformed(post + "X: y\r" + te + "chunked\r\n" + cl + "2\r\n" + fine),
		"encoding in a folded line":        malformed(post + "X: y\r\n " + te + "chunked\r\n" + cl + "2\r\n" + fine),
		"bare LFs everywhere":              malformed(strings.ReplaceAll(post+cl+"2\r\n"+fine, "\r\n", "\n")),
		"folded line":                      malformed(post + "X: y\r\n\tz\r\n" + cl + "2\r\n" + fine),
		"folded first line":                malformed(strings.Replace(post, "\r\n", "\r\n ", 1) + cl + "2\r\n" + fine),
		"a body longer than its length":    {bytes: post + cl + "2\r\n" + fine + "}\r\n\r\n", status: 422, code: "VALIDATION_FAILED", closed: true, more: []int{400}},
		"garbage behind":                   {bytes: post + cl + "2\r\n" + fine + "\x00\xff\r\n\r\n", status: 422, code: "VALIDATION_FAILED", closed: true, more: []int{400}},
		"empty lines behind":               understood(post + cl + "2\r\n" + fine + "\r\n\r\n"),
		"three at once":                    {bytes: strings.Repeat(post+cl+"2\r\n"+fine, 3), status: 422, code: "VALIDATION_FAILED", more: []int{422, 422}},
		"a bad one among good ones":        {bytes: strings.Repeat(post+cl+"2\r\n"+fine, 2) + post + cl + "x\r\n" + fine, status: 422, code: "VALIDATION_FAILED", more: []int{422, 400}, closed: true},
	}
}

// noLengthOpen has no body: the connection is in order.
func noLengthOpen(bytes string) attack {
	return attack{bytes: bytes, status: 411, code: "LENGTH_REQUIRED"}
}
