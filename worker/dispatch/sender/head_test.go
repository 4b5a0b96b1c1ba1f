package sender

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"
)

// saying is a receiver that reads a request, answers it with exactly these bytes and hangs up.
func saying(t *testing.T, config *tls.Config, answer string) *counting {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	raw(t, l, func(conn net.Conn) {
		if config != nil {
			conn = tls.Server(conn, config)
		}
		_, _ = conn.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	})

	return l
}

// oddRests are what may follow a status line that net/http reads, so that it refuses the answer.
var oddRests = map[string]string{
	"another coding":                "Transfer-Encoding: identity\r\nConnection: close\r\n\r\nok",
	"chunked twice":                 "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"a line without a colon":        "Content-Length: 0\r\nPowered by POS\r\n\r\n",
	"a line that begins with one":   ": 1\r\n\r\n",
	"two different lengths":         "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
	"a length that is no number":    "Content-Length: yok\r\n\r\nok",
	"a negative length":             "Content-Length: -1\r\n\r\nok",
	"a length too large to hold":    "Content-Length: 99999999999999999999\r\n\r\nok",
	"a name with a blank":           "X Powered: POS\r\n\r\n",
	"a name that is no ASCII":       "Şube: 1\r\n\r\n",
	"a control character":           "X: \x01\r\n\r\n",
	"a NUL":                         "X\x00: 1\r\n\r\n",
	"a header above the limit":      "X: " + strings.Repeat("x", 2*maxHeaderBytes) + "\r\n\r\n",
	"many headers above the limit":  strings.Repeat("X: "+strings.Repeat("x", 100)+"\r\n", 2000) + "\r\n",
	"nothing":                       "",
	"an end in a header":            "Content-Len",
	"an end between headers":        "Content-Length: 0\r\n",
	"an end in a line without name": "Powered",
}

// A receiver that has answered a status is judged by it, whatever is wrong with the rest; the
// connection is not used again.
//
//rule:delivery-rules/1 webhooks/timeout-10-s-only-2xx
func TestSend_TheStatusLineDecides(t *testing.T) {
	authority := newAuthority(t)
	for name, rest := range oddRests {
		for line, status := range map[string]int{
			"HTTP/1.1 200 OK\r\n": 200, "HTTP/1.0 204\r\n": 204, "HTTP/1.1  202  Alındı\n": 202, "HTTP/1.1 302 Found\r\n": 302,
			"HTTP/1.1 500 Error\r\n": 500, "HTTP/1.1 410 Gone\r\n": 410,
			"HTTP/1.1 103 Early Hints\r\nRetry-After: 8\r\n\r\nHTTP/1.1 201 Created\r\n": 201,
		} {
			for scheme, config := range map[string]*tls.Config{"http": nil, "https": authority.vendor(t)} {
				t.Run(name+"/"+strconv.Itoa(status)+"/"+scheme, func(t *testing.T) {
					l := saying(t, config, line+"Retry-After: 7\r\n"+rest)
					s := localSender(t, authority, loopbackNames(t))
					for sent := range int32(2) {
						a := s.post(t, at(scheme, l, 1))
						if a.Status != status || a.OK() != (status < 300) || a.RetryAfter != "7" || a.Took <= 0 {
							t.Errorf("%+v", a)
						}
						if !a.OK() && (a.Class != ClassStatus || !strings.HasPrefix(a.Detail, strconv.Itoa(status))) {
							t.Errorf("%s: %s", a.Class, a.Detail)
						}
						if n := l.accepted.Load(); n != sent+1 {
							t.Errorf("%d connections for %d requests", n, sent+1)
						}
					}
				})
			}
		}
	}
}

// A Retry-After is used wherever it stands among lines that cannot be read.
func TestSend_ReadsRetryAfterBesideWhatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct{ fields, want string }{
		"before":               {"Retry-After: 30\r\nPowered by POS\r\n\r\n", "30"},
		"behind":               {"Powered by POS\r\nRetry-After: 30\r\n\r\n", "30"},
		"in lower case":        {"Powered by POS\r\nretry-after:30\r\n\r\n", "30"},
		"behind a long line":   {strings.Repeat("x", 5000) + "\r\nRetry-After: 30\r\n\r\n", "30"},
		"twice":                {"Powered by POS\r\nRetry-After: 30\r\nRetry-After: 60\r\n\r\n", "30"},
		"in the body":          {"Powered by POS\r\n\r\nRetry-After: 30\r\n\r\n", ""},
		"of another name":      {"Powered by POS\r\nX-Retry-After: 30\r\n\r\n", ""},
		"cut off":              {"Powered by POS\r\nRetry-After: 30", ""},
		"in a value":           {"Powered by POS\r\nX: Retry-After: 30\r\n\r\n", ""},
		"without a name":       {"Powered by POS\r\nRetry-After 30\r\n\r\n", ""},
		"with lone line feeds": {"Powered by POS\nRetry-After: 30\n\n", "30"},
	} {
		t.Run(name, func(t *testing.T) {
			l := saying(t, nil, "HTTP/1.1 503 Busy\r\n"+c.fields)
			if a := plainSender(t).post(t, at("http", l, 1)); a.Status != 503 || a.RetryAfter != c.want {
				t.Errorf("%+v", a)
			}
		})
	}
}

// An answer without a status is recorded as one that cannot be read, with its first characters.
func TestSend_SaysThatAnAnswerCannotBeRead(t *testing.T) {
	authority := newAuthority(t)
	for name, c := range map[string]struct{ answer, detail string }{
		"another protocol":    {"SSH-2.0-OpenSSH_9.6\r\n", `but with "SSH-2.0-OpenSSH_9.6"`},
		"a page":              {"<html>\r\n<body>ok</body></html>", `but with "<html>"`},
		"bytes":               {"\xfe\xfe\xfe\r\n\r\n", `but with "\xfe\xfe\xfe"`},
		"a long line":         {strings.Repeat("ş\xfe", 40_000) + "\r\n\r\n", `but with "ş\xfeş\xfe`},
		"a long version":      {"HTTP/1.1" + strings.Repeat("1", 2*maxHeaderBytes), `but with "HTTP/1.1111`},
		"a status cut off":    {"HTTP/1.1 20", `but with "HTTP/1.1 20"`},
		"an interim cut off":  {"HTTP/1.1 100 Continue", `but with "HTTP/1.1 100 Continue"`},
		"four digits":         {"HTTP/1.1 2000 OK\r\n\r\n", `but with "HTTP/1.1 2000 OK"`},
		"no number":           {"HTTP/1.1 OK\r\n\r\n", `but with "HTTP/1.1 OK"`},
		"a sign":              {"HTTP/1.1 +20 OK\r\nBroken\r\n\r\n", `but with "HTTP/1.1 +20 OK"`},
		"another version":     {"HTTP/one 200 OK\r\n\r\n", `but with "HTTP/one 200 OK"`},
		"no version":          {"200 OK\r\n\r\n", `but with "200 OK"`},
		"only interim":        {"HTTP/1.1 100 Continue\r\n\r\n", "it has no status line of HTTP"},
		"half a 1xx":          {"HTTP/1.1 100 Continue\r\nX: 1", "but with"},
		"an empty line":       {"\r\n", "it has no status line of HTTP"},
		"a byte order mark":   {"\ufeffHTTP/1.1 200 OK\r\n\r\n", `but with "\ufeffHTTP/1.1 200 OK"`},
		"a blank before it":   {" HTTP/1.1 200 OK\r\n\r\n", `but with " HTTP/1.1 200 OK"`},
		"a tab before it":     {"\tHTTP/1.1 200 OK\r\n\r\n", `but with "\tHTTP/1.1 200 OK"`},
		"control characters":  {"\x1b[31mHTTP/1.1 200 OK\x07\r\n\r\n", `but with "\x1b[31mHTTP/1.1 200 OK\a"`},
		"bidirectional marks": {"\u202eHTTP/1.1 200 OK\r\n\r\n", `but with "\u202eHTTP/1.1 200 OK"`},
	} {
		for scheme, config := range map[string]*tls.Config{"http": nil, "https": authority.vendor(t)} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				l := saying(t, config, c.answer)
				a := localSender(t, authority, loopbackNames(t)).post(t, at(scheme, l, 1))
				if a.Class != ClassAnswer || a.Status != 0 || !strings.HasPrefix(a.Detail, "the answer cannot be read: ") ||
					!strings.Contains(a.Detail, c.detail) || len(a.Detail) > 200 {
					t.Errorf("%s: %s (%d)", a.Class, a.Detail, a.Status)
				}

				if n := l.accepted.Load(); n != 1 {
					t.Errorf("it was sent %d times", n)
				}
			})
		}
	}
}

// An empty line before the status line is a body's end too many.
func TestSend_TakesAnEmptyLineBeforeTheStatusLine(t *testing.T) {
	l := saying(t, nil, "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	if a := plainSender(t).post(t, at("http", l, 1)); !a.OK() || a.Status != 200 {
		t.Errorf("%+v", a)
	}
}

// Whoever hangs up without a word has not answered.
func TestSend_NoAnswerIsNoAnswerThatCannotBeRead(t *testing.T) {
	l := saying(t, nil, "")
	if a := plainSender(t).post(t, at("http", l, 1)); a.Class != ClassConnect || a.Detail != "the connection was closed" {
		t.Errorf("%+v", a)
	}
}

// A status line that the connection's end cuts off behind its status decides too.
func TestSend_AStatusLineWithoutItsEndDecides(t *testing.T) {
	for line, status := range map[string]int{
		"HTTP/1.1 200 OK": 200, "HTTP/1.1 200": 200, "HTTP/1.1 200 OK\r": 200, "HTTP/1.1 503 Bus": 503,
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Created":  201,
		"HTTP/1.1 200 " + strings.Repeat("x", 2*maxHeaderBytes): 200,
	} {
		l := saying(t, nil, line)
		if a := plainSender(t).post(t, at("http", l, 1)); a.Status != status || a.OK() != (status < 300) {
			t.Errorf("%.40q: %+v", line, a)
		}
	}
}

// The status of the request before decides nothing for the one that follows on its connection.
func TestSend_TheStatusBeforeDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listenPipes()
		raw(t, l, func(conn net.Conn) {
			for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 503 Busy\r\nBroken\r\n\r\n"} {
				if _, err := conn.Read(make([]byte, 64<<10)); err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer)
			}
			_, _ = io.Copy(io.Discard, conn)
		})

		s := pipeSender(t, nil, l)
		for i, status := range []int{200, 503} {
			if a := s.post(t, at("http", l, 1)); a.Status != status {
				t.Errorf("request %d: %+v", i, a)
			}
			synctest.Wait()
		}

		if n := l.accepted.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// HTTP/2 leaves no status of an answer that breaks its rules.
func TestHTTP2_SaysThatAnAnswerCannotBeRead(t *testing.T) {
	long := strings.Repeat("x", 3<<10)
	for name, send := range map[string]func(f *frames, stream uint32){
		"a name in upper case":    func(f *frames, stream uint32) { f.answer(stream, "200", true, "X-Powered-By", "POS") },
		"a control character":     func(f *frames, stream uint32) { f.answer(stream, "200", true, "x", "\x01") },
		"no status":               func(f *frames, stream uint32) { f.answer(stream, "", true) },
		"a status without number": func(f *frames, stream uint32) { f.answer(stream, "tamam", true) },
		"fields above the limit": func(f *frames, stream uint32) {
			f.answer(stream, "200", true, slices.Repeat([]string{"x", long}, 30)...) // indexed: few bytes
		},
	} {
		t.Run(name, func(t *testing.T) {
			authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
			http2Frames(t, l, authority.vendor(t), func(f *frames, stream uint32, _ string) { send(f, stream) })
			a := localSender(t, authority, loopbackNames(t)).post(t, at("https", l, 1))
			if a.Class != ClassAnswer || !strings.HasPrefix(a.Detail, "the answer cannot be read: ") {
				t.Errorf("%s: %s", a.Class, a.Detail)
			}
		})
	}

	t.Run("a refused stream", func(t *testing.T) {
		authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
		http2Frames(t, l, authority.vendor(t), func(f *frames, stream uint32, _ string) { _ = f.WriteRSTStream(stream, http2.ErrCodeInternal) })
		if a := localSender(t, authority, loopbackNames(t)).post(t, at("https", l, 1)); a.Class != ClassConnect {
			t.Errorf("%s: %s", a.Class, a.Detail)
		}
	})
}

// However the bytes of a head arrive, it says the same.
func TestAnswerHead_IsTheSameInPieces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"HTTP/1.1 200 OK\r\n", "HTTP/1.1 103 Hints\n", "HTTP/1.1 503\r\n", "Retry-After: 7\r\n", "retry-after :8\n", "\r\n", "\n",
			"X: y\r\n", "no field\n", strings.Repeat("x", 300), ":", "\x00",
		}), 0, 8).Draw(rt, "text"), "")

		var whole, pieces answerHead
		whole.read([]byte(text))

		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
			pieces.read([]byte(rest[:n]))
			rest = rest[n:]
		}

		status, retryAfter, beginning := whole.answered()
		pieceStatus, pieceRetryAfter, pieceBeginning := pieces.answered()
		if status != pieceStatus || retryAfter != pieceRetryAfter || beginning != pieceBeginning {
			rt.Errorf("%d %q %q, in pieces %d %q %q", status, retryAfter, beginning, pieceStatus, pieceRetryAfter, pieceBeginning)
		}
	})
}
