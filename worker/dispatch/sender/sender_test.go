package sender

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vendorapi/internal/webhook"
)

// quiet is for servers that would complain of what a test does to them.
var quiet = log.New(io.Discard, "", 0)

// statusBody is about what an order's status weighs on the wire.
var statusBody = []byte(`{"eventId":"evt_01970000-0000-7000-8000-000000000001","event":"delivery.status_changed",` +
	`"occurredAt":"2026-03-01T12:00:00.000+03:00","data":{"orderId":"` + strings.Repeat("0", 36) +
	`","externalOrderId":"A-1000","status":"Delivering","note":"` + strings.Repeat("n", 500) + `"}}`)

// signedHeader is what a webhook carries, in its length at least.
func signedHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"DeliveryVendorAPI-Webhooks/1"}, webhook.HeaderEvent: {"delivery.status_changed"},
		webhook.HeaderAttempt: {"1"}, webhook.HeaderSignature: {"sha256=" + strings.Repeat("0", 64)},
		webhook.HeaderID: {"evt_01970000-0000-7000-8000-000000000001"}, webhook.HeaderTimestamp: {"1772355600"},
		webhook.HeaderStandardSignature: {"v1," + strings.Repeat("A", 43) + "="}, "Idempotency-Key": nil,
	}
}

// post sends a webhook.
func (s *Sender) post(t *testing.T, url string) Answer {
	t.Helper()
	return s.Send(t.Context(), Request{URL: url, Header: signedHeader(), Body: statusBody})
}

// plainSender reaches http receivers on this machine, which vendor.test names.
func plainSender(t *testing.T) *Sender { return localSender(t, nil, loopbackNames(t)) }

// A webhook is a POST to exactly the URL that was registered, over a connection
// that is kept. It carries what it was given and what HTTP needs: nothing is added,
// and nothing of one answer comes back with the next request.
//
//rule:webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to events/the-service-posts-each-event
func TestSend_PostsWhatItWasGivenAndNothingElse(t *testing.T) {
	for h2, proto := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		t.Run(proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, authority := listenPipes(), newAuthority(t)
				var line, header atomic.Value
				start(t, l, authority.vendor(t), h2, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					line.Store(r.Method + " " + r.RequestURI + " " + r.Proto + " " + string(body))
					header.Store(r.Header.Clone())
					for name, value := range map[string]string{"Set-Cookie": "session=1; Path=/", "ETag": `"1"`,
						"Strict-Transport-Security": "max-age=1", "WWW-Authenticate": "Basic"} {
						w.Header().Set(name, value)
					}

					time.Sleep(time.Second) // the bubble's
					_, _ = io.WriteString(w, "stored")
				})

				s := pipeSender(t, authority, l)
				s.lifetime = forEver
				want := asReceived(signedHeader())
				want.Set("Content-Length", strconv.Itoa(len(statusBody)))

				for i := range 3 {
					a := s.post(t, at("https", l, 1)+"/a%20b?key=1&key=2")
					if !a.OK() || a.Status != 200 || string(a.Body) != "stored" || a.Took != time.Second {
						t.Fatalf("%+v", a)
					}
					if want := "POST /hooks/1/a%20b?key=1&key=2 " + proto + " " + string(statusBody); line.Load() != want {
						t.Errorf("received %s, want %s", line.Load(), want)
					}
					if got := header.Load().(http.Header); !reflect.DeepEqual(got, want) {
						t.Errorf("request %d: %v, want %v", i, got, want)
					}
				}

				if n := l.accepted.Load(); n != 1 {
					t.Errorf("%d connections", n)
				}
			})
		})
	}
}

//rule:delivery-rules/1 webhooks/timeout-10-s-only-2xx
func TestSend_OnlyA2xxIsASuccess(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	start(t, l, nil, false, func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscanf(r.URL.Path, "/hooks/%d", &code)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
	})

	s := plainSender(t)
	for _, code := range []int{200, 201, 202, 204, 299, 300, 301, 304, 307, 400, 404, 410, 429, 500, 503} {
		a := s.post(t, at("http", l, code))
		if a.Status != code || a.OK() != (code < 300) || a.RetryAfter != "7" {
			t.Errorf("%d: %+v", code, a)
		}
		if !a.OK() && (a.Class != ClassStatus || !strings.Contains(a.Detail, fmt.Sprint(code))) {
			t.Errorf("%d: %+v", code, a)
		}
	}
}

// An attempt takes its time and no more, whatever it waits for, and says what
// that was.
//
//rule:delivery-rules/1 webhooks/timeout-10-s-only-2xx
func TestSend_GivesUpAtTheTimeout(t *testing.T) {
	dialing := func(ctx context.Context, s *Sender) error {
		return s.guard.control(ctx, "tcp", "93.184.216.34:443", nil)
	}
	for name, c := range map[string]struct {
		url    string
		dial   func(ctx context.Context, s *Sender) error // what happens before a connection; nil: it is there at once
		answer []string                                   // one part a second, and then nothing
		detail string
	}{
		"name servers":      {"https://vendor.test/", func(context.Context, *Sender) error { return nil }, nil, "no answer from the name servers"},
		"a connection":      {"https://vendor.test/", dialing, nil, "no connection"},
		"a TLS handshake":   {"https://vendor.test/", nil, nil, "no TLS handshake"},
		"an answer":         {"http://vendor.test/", nil, nil, "no answer"},
		"half a header":     {"http://vendor.test/", nil, []string{"HTTP/1.1 200 OK\r\nA: b\r\n"}, "no answer"},
		"interim answers":   {"http://vendor.test/", nil, slices.Repeat([]string{"HTTP/1.1 100 Continue\r\n\r\n"}, 8), "no answer"},
		"a trickled header": {"http://vendor.test/", nil, strings.Split("HTTP/1.1 200 OK\r\nA: "+strings.Repeat("x", 100), ""), "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := listenPipes()
				raw(t, l, func(conn net.Conn) {
					if len(c.answer) > 0 {
						_, _ = conn.Read(make([]byte, 64<<10))
					}

					for _, part := range c.answer {
						if _, err := io.WriteString(conn, part); err != nil {
							return
						}
						time.Sleep(time.Second)
					}

					_, _ = io.Copy(io.Discard, conn)
				})

				s := pipeSender(t, nil, l)
				if c.dial != nil {
					s.dialName = func(ctx context.Context, _, _ string) (net.Conn, error) {
						if err := c.dial(ctx, s); err != nil {
							return nil, err
						}
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}

				class := ClassTimeout
				if strings.Contains(c.detail, "name servers") {
					class = ClassDNS
				}

				if a := s.post(t, c.url); a.Class != class || a.Detail != c.detail+" within 10s" || a.Took != s.timeout {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// Once its status is known, an answer may trickle for answerTimeout.
func TestSend_DoesNotWaitForATricklingAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listenPipes()
		start(t, l, nil, false, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "stored")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})

		s, started := pipeSender(t, nil, l), time.Now()
		if a := s.post(t, at("http", l, 1)); !a.OK() || string(a.Body) != "stored" || time.Since(started) != answerTimeout {
			t.Errorf("%+v after %s", a, time.Since(started))
		}
	})
}

func TestSend_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listenPipes()
		raw(t, l, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if a := pipeSender(t, nil, l).Send(ctx, Request{URL: at("http", l, 1), Header: signedHeader(), Body: statusBody}); a.OK() || a.Took != time.Second {
			t.Errorf("%+v", a)
		}
	})
}

//rule:webhooks/every-attempt-is-recorded-time
func TestSend_KeepsTheBeginningOfALongAnswer(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 1<<20)
	l := listen(t, "127.0.0.1:0")
	start(t, l, nil, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(long) })
	if a := plainSender(t).post(t, at("http", l, 1)); !a.OK() || !bytes.Equal(a.Body, long[:answerKept]) {
		t.Fatalf("status %d, %d bytes kept", a.Status, len(a.Body))
	}
}

func TestSend_RepeatsOnAFreshConnectionWhenAKeptOneIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		l := listenPipes()
		start(t, l, nil, false, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			// The second request on a connection finds it closed under its feet, as
			// behind a balancer that has just restarted.
			if requests.Add(1) == 2 {
				if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
					conn.Close()
				}
			}
		})

		s := pipeSender(t, nil, l)
		s.lifetime = forEver

		for i := range 2 {
			if a := s.post(t, at("http", l, 1)); !a.OK() {
				t.Fatalf("request %d: %+v", i, a)
			}
		}

		if n := requests.Load(); n != 3 {
			t.Fatalf("%d requests", n)
		}
		if n := l.accepted.Load(); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// Neither proxies nor anything else comes from the environment; the names are
// those that Go, curl and libraries of other languages know.
func TestSend_AsksNoProxy(t *testing.T) {
	proxy := listen(t, "127.0.0.1:0")
	start(t, proxy, nil, false, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "socks_proxy"} {
		for _, scheme := range []string{"http", "https", "socks5"} {
			t.Setenv(name, scheme+"://"+proxy.Addr().String())
			t.Setenv(strings.ToUpper(name), scheme+"://"+proxy.Addr().String())
		}
	}

	t.Setenv("REQUEST_METHOD", "")
	t.Setenv("NO_PROXY", "")
	authority := newAuthority(t)
	l := listen(t, "127.0.0.1:0")
	start(t, l, authority.vendor(t), true, func(http.ResponseWriter, *http.Request) {})
	plain := listen(t, "127.0.0.1:0")
	start(t, plain, nil, false, func(http.ResponseWriter, *http.Request) {})
	s := localSender(t, authority, loopbackNames(t))
	for _, url := range []string{at("https", l, 1), at("http", plain, 1)} {
		if a := s.post(t, url); !a.OK() || proxy.accepted.Load() != 0 {
			t.Errorf("%s: %+v, %d connections to the proxy", url, a, proxy.accepted.Load())
		}
	}
}

// endless is a receiver that says the same until its connection is closed.
func endless(t *testing.T, start, again string) (url string) {
	return hook(t, "http", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64<<10))
		_, err := io.WriteString(conn, start)
		for text := []byte(again); err == nil; {
			_, err = conn.Write(text)
		}
	})
}

// Whatever a receiver sends, little of it is read and kept.
func TestSend_AnswersWithoutEndAreCutOff(t *testing.T) {
	log.SetOutput(io.Discard) // http.Transport writes what comes unasked to the standard log
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	s := plainSender(t)
	kilobyte := strings.Repeat("x", 1<<10)
	for name, c := range map[string]struct{ start, again, class string }{
		"one header":       {"HTTP/1.1 200 OK\r\nA: ", kilobyte, ""},
		"headers":          {"HTTP/1.1 200 OK\r\n", "A: " + kilobyte + "\r\n", ""},
		"a status line":    {"HTTP/1.1 200 ", kilobyte, ""},
		"line breaks":      {"", "\r\n", ClassAnswer},
		"interim answers":  {"", "HTTP/1.1 103 Early Hints\r\nLink: " + kilobyte + "\r\n\r\n", ClassAnswer},
		"bare interim":     {"", "HTTP/1.1 100 Continue\r\n\r\n", ClassAnswer},
		"a body":           {"HTTP/1.1 200 OK\r\n\r\n", kilobyte, ""},
		"chunks":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "400\r\n" + kilobyte + "\r\n", ""},
		"a chunk's length": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0000000000000000", ""},
		"a declared body":  {"HTTP/1.1 503 Busy\r\nContent-Length: 9223372036854775807\r\n\r\n", kilobyte, ClassStatus},
		"zeroes":           {"", "\x00", ClassAnswer},
		"after the answer": {"HTTP/1.1 204 No Content\r\n\r\n", kilobyte, ""},
	} {
		url := endless(t, c.start, c.again)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := s.post(t, url)
		runtime.ReadMemStats(&after)
		if a.Class != c.class || len(a.Body) > answerKept || len(a.Detail) > 300 || a.Took >= s.timeout {
			t.Errorf("%s: %+.300v", name, fmt.Sprint(a))
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}
