package sender

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// surpluses are what a receiver may write behind a whole answer.
var surpluses = map[string]struct{ answer, surplus string }{
	"a body behind 204":       {"HTTP/1.1 204 No Content\r\n\r\n", "hello"},
	"a body behind no body":   {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "<html>\r\n</html>\r\n"},
	"a body that is too long": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "okok"},
	"a line break":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n"},
	"a chunk too many":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "0\r\n\r\n"},
	"a second answer":         {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n"},
	"half a second answer":    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 Err"},
}

// quietUnsolicited silences http.Transport, which writes what comes unasked to the standard log.
func quietUnsolicited(t *testing.T) {
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
}

// Whatever arrives behind an answer before the next request is written, the next event is
// delivered. The connection over which the surplus arrived is replaced. A surplus that looks like
// an answer is left to TestPool_TakesNothingBehindASurplus: one that arrives at the moment when the request is written
// cannot be told from an answer to it.
func TestSend_ASurplusBeforeTheNextRequestIsNoAnswerToIt(t *testing.T) {
	quietUnsolicited(t)
	authority := newAuthority(t)
	for name, c := range surpluses {
		if strings.HasPrefix(c.surplus, "HTTP/") {
			continue
		}

		for _, scheme := range []string{"http", "https"} {
			t.Run(name+"/"+scheme, func(t *testing.T) {
				l := listen(t, "127.0.0.1:0")
				s := localSender(t, authority, loopbackNames(t))

				postAroundSurplus(t, s, l, authority.vendorOf(t, scheme), c.answer, c.surplus, func() {})
			})

			t.Run(name+"/"+scheme+" over pipes", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, authority := listenPipes(), newAuthority(t)
					s := pipeSender(t, authority, l)
					s.lifetime = forEver

					postAroundSurplus(t, s, l, authority.vendorOf(t, scheme), c.answer, c.surplus, synctest.Wait)

					if n := l.accepted.Load(); n != 2 {
						t.Errorf("%d connections", n)
					}
				})
			})
		}
	}
}

// vendorOf is how a vendor serves a scheme: nil for http.
func (a *authority) vendorOf(t *testing.T, scheme string) *tls.Config {
	t.Helper()
	if scheme == "http" {
		return nil
	}
	return a.vendor(t)
}

// postAroundSurplus posts three times to a receiver on l that writes a surplus behind its first
// answer. Between the first two it calls settled, in which the sender may notice the surplus.
// config is nil without TLS.
func postAroundSurplus(t *testing.T, s *Sender, l *counting, config *tls.Config, answer, surplus string, settled func()) {
	t.Helper()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}

	answered, written := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	raw(t, l, func(conn net.Conn) {
		if config != nil {
			conn = tls.Server(conn, config)
		}

		for readRequest(conn) {
			_, _ = io.WriteString(conn, answer)
			if requests.Add(1) == 1 {
				<-answered
				_, _ = io.WriteString(conn, surplus)
				close(written)
			}
		}
	})

	release := sync.OnceFunc(func() { close(answered) })
	defer release() // also when the first request has failed

	for i := range 3 {
		if a := s.post(t, at(scheme, l, 1)); !a.OK() || a.Status > 204 {
			t.Fatalf("request %d: %+v", i, a)
		}
		if i == 0 {
			release()
			<-written
			settled()
		}
	}
}

// A surplus that reaches the service only behind its next request fails no attempt, unless it
// looks like an answer to it.
func TestSend_ASurplusBehindTheNextRequestIsNoAnswerToIt(t *testing.T) {
	quietUnsolicited(t)
	for name, c := range surpluses {
		if strings.HasPrefix(c.surplus, "HTTP/") {
			continue
		}

		for way, join := range map[string]bool{"in one segment": true, "in two segments": false} {
			t.Run(name+"/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var requests atomic.Int32
					l := listenPipes()
					raw(t, l, func(conn net.Conn) {
						for readRequest(conn) {
							isSecond := requests.Add(1) == 2
							if isSecond && join {
								_, _ = io.WriteString(conn, c.surplus+c.answer)
								continue
							}

							if isSecond {
								_, _ = io.WriteString(conn, c.surplus)
								time.Sleep(time.Second) // the bubble's: until all else waits
							}

							_, _ = io.WriteString(conn, c.answer)
						}
					})

					s := pipeSender(t, nil, l)
					s.lifetime = forEver

					for i := range 3 {
						if a := s.post(t, at("http", l, 1)); !a.OK() {
							t.Fatalf("request %d: %+v", i, a)
						}
						synctest.Wait()
					}

					if n := requests.Load(); n > 4 {
						t.Errorf("%d requests", n)
					}
				})
			})
		}
	}
}

// A kept connection on which something has arrived since its last answer, or which has been closed, is not used.
func TestPool_TakesNothingBehindASurplus(t *testing.T) {
	for name, c := range surpluses {
		t.Run(name, func(t *testing.T) {
			l := listen(t, "127.0.0.1:0")
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			receiver, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer receiver.Close()

			socket := socketOf(client)
			conn := &connection{Conn: client, socket: socket}
			p := pool{maxIdle: 1, perURL: 1, timeout: time.Hour}
			p.put("url", conn)
			defer p.closeIdle()

			_, _ = io.WriteString(receiver, c.surplus)
			for !socket.hasBytesWaiting() {
				runtime.Gosched() // until the kernel has handed it over
			}

			if p.take("url") != nil {
				t.Error("it was taken")
			}
		})
	}
}

// A receiver that breaks off its answers in the same way on each connection is not asked
// without end: a failure on a new connection is a failure.
func TestSend_RepeatsOnceForARemainder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		l := listenPipes()
		raw(t, l, func(conn net.Conn) {
			for readRequest(conn) {
				answer := "garbage\r\n\r\n"
				if requests.Add(1) == 1 {
					answer = "HTTP/1.1 204 No Content\r\n\r\n"
				}
				_, _ = io.WriteString(conn, answer)
			}
		})

		s := pipeSender(t, nil, l)
		s.lifetime = forEver

		if a := s.post(t, at("http", l, 1)); !a.OK() {
			t.Fatalf("the first: %+v", a)
		}

		synctest.Wait()
		if a := s.post(t, at("http", l, 1)); a.Class != ClassAnswer || !strings.Contains(a.Detail, `"garbage"`) {
			t.Errorf("the second: %+v", a)
		}
		if n := requests.Load(); n != 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// A repeated request goes to a new connection, though others are kept that may be as bad.
func TestSend_RepeatsOnANewConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns = 3
		together := make(chan struct{})
		l := listenPipes()
		raw(t, l, func(conn net.Conn) {
			for first := true; readRequest(conn); first = false {
				answer := "surplus"
				if first {
					<-together
					answer = ""
				}
				_, _ = io.WriteString(conn, answer+"HTTP/1.1 204 No Content\r\n\r\n")
			}
		})

		s := pipeSender(t, nil, l)
		s.lifetime = forEver
		for range conns {
			go func() {
				if a := s.post(t, at("http", l, 1)); !a.OK() {
					t.Errorf("%+v", a)
				}
			}()
		}

		synctest.Wait()
		close(together)
		synctest.Wait()

		if a := s.post(t, at("http", l, 1)); !a.OK() {
			t.Errorf("%+v", a)
		}
		if n := l.accepted.Load(); n != conns+1 {
			t.Errorf("%d connections", n)
		}
	})
}

// What net/http refuses before the status line is no failure either, in however many segments
// the answer comes.
func TestSend_TheStatusLineDecidesBehindAnotherSegment(t *testing.T) {
	for name, pieces := range map[string][]string{
		"an empty line":             {"\r\n"},
		"an empty line in pieces":   {"\r", "\n"},
		"a line feed":               {"\n"},
		"two empty lines":           {"\r\n", "\r\n"},
		"an interim answer":         {"HTTP/1.1 100 Continue\r\n\r\n"},
		"a bad field of an interim": {"HTTP/1.1 100 Continue\r\nPowered by POS\r\n\r\n"},
		"a bad field in pieces":     {"HTTP/1.1 100 Continue\r\n", "Powered by POS\r\n", "\r\n"},
		"a bad field far before it": {"HTTP/1.1 103 Early Hints\r\nPowered by POS\r\n" + strings.Repeat("Link: </a.css>\r\n", 1000) + "\r\n"},
		"half a status line":        {"HTTP/1.1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rest := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
				if name == "half a status line" {
					rest = strings.TrimPrefix(rest, pieces[0])
				}

				l := listenPipes()
				raw(t, l, func(conn net.Conn) {
					for readRequest(conn) {
						for _, piece := range append(pieces, rest) {
							_, _ = io.WriteString(conn, piece)
							time.Sleep(time.Second) // the bubble's: until all else waits
						}
					}
				})

				s := pipeSender(t, nil, l)
				s.lifetime = forEver

				for range 2 {
					if a := s.post(t, at("http", l, 1)); !a.OK() || a.Status != 200 {
						t.Errorf("%+v", a)
					}
					synctest.Wait()
				}
			})
		})
	}
}

// readRequest reads a webhook from a connection to its end; false for the connection's end.
func readRequest(conn net.Conn) bool {
	var received strings.Builder
	buffer := make([]byte, 4<<10)
	for !strings.HasSuffix(received.String(), string(statusBody)) {
		n, err := conn.Read(buffer)
		received.Write(buffer[:n])
		if err != nil {
			return false
		}
	}

	return true
}
