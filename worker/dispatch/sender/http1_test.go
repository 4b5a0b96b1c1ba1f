package sender

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A connection is used again exactly when it is certain where the answer on it has ended.
func TestConnection_IsKeptBehindAnAnswerWhoseEndIsKnown(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	long := strings.Repeat("x", answerKept+answerDrained)
	for name, c := range map[string]struct {
		answer string
		body   string
		isKept bool
	}{
		"no body":                       {ok + "Content-Length: 0\r\n\r\n", "", true},
		"204":                           {"HTTP/1.1 204 No Content\r\n\r\n", "", true},
		"204 with a length":             {"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n", "", true},
		"304":                           {"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", "", true},
		"a length":                      {ok + "Content-Length: 2\r\n\r\nok", "ok", true},
		"a length twice":                {ok + "Content-Length: 2\r\ncontent-length: 2\r\n\r\nok", "ok", true},
		"lone line feeds":               {"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "ok", true},
		"an interim answer":             {"HTTP/1.1 103 Hints\r\nContent-Length: 9\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok", "ok", true},
		"a long body":                   {ok + "Content-Length: 34000\r\n\r\n" + long[:34000], long[:answerKept], true},
		"a body that is not drained":    {ok + "Content-Length: 40000\r\n\r\n" + strings.Repeat("x", 40000), long[:answerKept], false},
		"chunks":                        {ok + "Transfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", "ok", true},
		"Chunks":                        {ok + "transfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", true},
		"chunks with a trailer":         {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", "ok", false},
		"chunks that are wrong":         {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", "ok", false},
		"chunks and a length":           {ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", false},
		"chunks of another coding":      {ok + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "", false},
		"two lengths":                   {ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", "", false},
		"a length with a sign":          {ok + "Content-Length: +2\r\n\r\nok", "", false},
		"a length and something":        {ok + "Content-Length: 2, 2\r\n\r\nok", "", false},
		"a name with a blank":           {ok + "Content-Length: 2\r\nX : 1\r\n\r\nok", "", false},
		"a folded field":                {ok + "X: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok", "", false},
		"a length that is cut off":      {ok + "Content-Length: 2" + strings.Repeat(" ", maxHeadLine) + "3\r\n\r\nok", "", false},
		"close":                         {ok + "Content-Length: 2\r\nConnection: close\r\n\r\nok", "ok", false},
		"Close among others":            {ok + "Content-Length: 2\r\nConnection: x, Close\r\n\r\nok", "ok", false},
		"HTTP/1.0":                      {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		"another version":               {"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		"another protocol":              {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "", false},
		"a surplus":                     {ok + "Content-Length: 2\r\n\r\nokok", "ok", false},
		"another answer":                {ok + "Content-Length: 0\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", "", false},
		"no end but the connection's":   {ok + "\r\nok", "ok", false},
		"a body behind a malformed one": {ok + "Powered by POS\r\nContent-Length: 2\r\n\r\nok", "", false},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, authority := listenPipes(), newAuthority(t)
					config := authority.vendorOf(t, scheme)
					raw(t, l, func(conn net.Conn) {
						if config != nil {
							conn = tls.Server(conn, config)
						}

						for readRequest(conn) {
							_, _ = io.WriteString(conn, c.answer)
							if strings.Contains(c.answer, "\r\n\r\nok") && !strings.Contains(c.answer, "ength") {
								return // the end of the body
							}
						}
					})

					s := pipeSender(t, authority, l)
					s.lifetime = forEver
					want := 1
					if !c.isKept {
						want = 3
					}

					for range 3 {
						a := s.post(t, at(scheme, l, 1))
						if a.Status == 0 || string(a.Body) != c.body {
							t.Errorf("%d: %.100q", a.Status, a.Body)
						}
						synctest.Wait()
					}

					if n := int(l.accepted.Load()); n != want {
						t.Errorf("%d connections, want %d", n, want)
					}
				})
			})
		}
	}
}

// Behind a whole answer, a surplus in another record of TLS may have been received together with it. It is not
// taken for the next answer.
func TestConnection_ARecordBehindTheAnswerIsNoAnswer(t *testing.T) {
	authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
	config := authority.vendor(t)
	var requests atomic.Int32
	raw(t, l, func(conn net.Conn) {
		joined := &joiner{Conn: conn}
		secured := tls.Server(joined, config)
		for readRequest(secured) {
			requests.Add(1)
			joined.isJoining = true
			_, _ = io.WriteString(secured, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.WriteString(secured, "HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n")
			joined.flush()
		}
	})

	s := localSender(t, authority, loopbackNames(t))

	for range 3 {
		if a := s.post(t, at("https", l, 1)); !a.OK() {
			t.Errorf("%+v", a)
		}
	}

	if requests.Load() != 3 || l.accepted.Load() != 3 {
		t.Errorf("%d requests over %d connections", requests.Load(), l.accepted.Load())
	}
}

// joiner writes in one segment what is written to it while it is joining.
type joiner struct {
	net.Conn
	isJoining bool
	joined    []byte
}

func (j *joiner) Write(p []byte) (int, error) {
	if !j.isJoining {
		return j.Conn.Write(p)
	}
	j.joined = append(j.joined, p...)
	return len(p), nil
}

func (j *joiner) flush() {
	j.isJoining = false
	_, _ = j.Conn.Write(j.joined)
	j.joined = nil
}

// A receiver may answer before it has read the request, and hang up. Its status decides.
func TestConnection_AnAnswerBeforeTheRequestWasReadDecides(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, authority := listenPipes(), newAuthority(t)
				config := authority.vendorOf(t, scheme)
				raw(t, l, func(conn net.Conn) {
					if config != nil {
						conn = tls.Server(conn, config)
					}
					_, _ = conn.Read(make([]byte, 1))
					_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
					_ = conn.Close()
				})

				s := pipeSender(t, authority, l)

				request := Request{URL: at(scheme, l, 1), Header: signedHeader(), Body: make([]byte, 4<<20)}
				if a := s.Send(t.Context(), request); a.Status != http.StatusRequestEntityTooLarge {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// A header that would end the request's head, or begin another field, is not sent.
func TestConnection_SendsNoHeaderThatBreaksTheHead(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	var requests atomic.Int32
	start(t, l, nil, false, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	s := plainSender(t)
	for range 2 { // the second time on a kept connection
		for _, header := range []http.Header{{"X": {"a\r\nY: b"}}, {"X": {"a\n"}}, {"X\r\nY": {"b"}}, {"": {"b"}}, {"X": {"\x00"}}} {
			a := s.Send(t.Context(), Request{URL: at("http", l, 1), Header: header})
			if a.Class != ClassConnect || !strings.Contains(a.Detail, "header is invalid") {
				t.Errorf("%q: %+v", header, a)
			}
		}

		if a := s.post(t, at("http", l, 1)); !a.OK() {
			t.Errorf("%+v", a)
		}
	}

	if n := requests.Load(); n != 2 || l.accepted.Load() != 1 {
		t.Errorf("%d requests over %d connections", n, l.accepted.Load())
	}
}
