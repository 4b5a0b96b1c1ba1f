package dispatch

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func testSettings() Settings {
	return Settings{
		Batch: 256, ClaimAfter: time.Minute, Concurrency: 256, PerEndpoint: 32, BreakerFailures: 5,
		Timeout: 2 * time.Second, Lease: 6 * time.Second, LocalReceivers: "auto",
	}
}

// quiet is for servers that would complain of what a test does to them.
var quiet = log.New(io.Discard, "", 0)

func rootsOf(server *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return roots
}

func header(event string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "X-Service-Event": {event}, "Idempotency-Key": nil}
}

// signedHeader is what a webhook carries, in its length at least.
func signedHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {userAgent}, "X-Service-Event": {"delivery.status_changed"},
		"X-Service-Attempt": {"1"}, "X-Service-Signature": {"sha256=" + strings.Repeat("0", 64)},
		"Webhook-Id": {"evt_01970000-0000-7000-8000-000000000001"}, "Webhook-Timestamp": {"1772355600"},
		"Webhook-Signature": {"v1," + strings.Repeat("A", 43) + "="}, "Idempotency-Key": nil,
	}
}

func receive(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func TestSend_PostsTheBytesAndKeepsTheConnection(t *testing.T) {
	var connections atomic.Int32
	var proto, body, agent, leaked atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		proto.Store(r.Proto)
		body.Store(string(raw))
		agent.Store(r.Header.Get("X-Service-Event"))
		leaked.Store(r.Header.Get("Idempotency-Key") + r.Header.Get("Accept-Encoding"))
		fmt.Fprint(w, "stored")
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	s := newSender(guard{local: true}, testSettings(), rootsOf(server))
	for range 5 {
		a := s.send(t.Context(), server.URL+"/hook", header("a"), []byte(`{"x":1}`))
		if !a.ok() || a.status != 200 || string(a.body) != "stored" || a.took <= 0 {
			t.Fatalf("%+v", a)
		}
	}
	if proto.Load() != "HTTP/2.0" || body.Load() != `{"x":1}` || agent.Load() != "a" || leaked.Load() != "" {
		t.Fatalf("received %v %v %v %v", proto.Load(), body.Load(), agent.Load(), leaked.Load())
	}
	if n := connections.Load(); n != 1 {
		t.Fatalf("%d connections", n)
	}
}

//rule:delivery-rules/1 webhooks/timeout-10-s-only-2xx
func TestSend_OnlyA2xxIsASuccess(t *testing.T) {
	server := receive(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
	})
	s := newSender(guard{local: true}, testSettings(), nil)
	for _, code := range []int{200, 201, 202, 204, 299, 300, 301, 304, 307, 400, 404, 410, 429, 500, 503} {
		a := s.send(t.Context(), fmt.Sprintf("%s/%d", server.URL, code), header("a"), nil)
		if a.status != code || a.ok() != (code < 300) || a.retryAfter != "7" {
			t.Errorf("%d: %+v", code, a)
		}
		if !a.ok() && (a.class != classStatus || !strings.Contains(a.detail, fmt.Sprint(code))) {
			t.Errorf("%d: %+v", code, a)
		}
	}
}

//rule:delivery-rules/1 webhooks/timeout-10-s-only-2xx
func TestSend_GivesUpAtTheTimeout(t *testing.T) {
	release := make(chan struct{})
	server := receive(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	settings := testSettings()
	settings.Timeout = 150 * time.Millisecond
	s := newSender(guard{local: true}, settings, nil)
	a := s.send(t.Context(), server.URL, header("a"), []byte("{}"))
	if a.class != classTimeout || a.took < settings.Timeout || a.took > 10*settings.Timeout {
		t.Fatalf("%+v", a)
	}
}

//rule:webhooks/every-attempt-is-recorded-time
func TestSend_KeepsTheBeginningOfALongAnswer(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 1<<20)
	server := receive(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(long) })
	s := newSender(guard{local: true}, testSettings(), nil)
	a := s.send(t.Context(), server.URL, header("a"), nil)
	if !a.ok() || !bytes.Equal(a.body, long[:answerKept]) {
		t.Fatalf("status %d, %d bytes kept", a.status, len(a.body))
	}
}

func TestSend_DoesNotWaitForATricklingAnswer(t *testing.T) {
	server := receive(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "stored")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	settings := testSettings()
	settings.Timeout, settings.Lease = time.Minute, 2*time.Minute
	s := newSender(guard{local: true}, settings, nil)
	started := time.Now()
	a := s.send(t.Context(), server.URL, header("a"), nil)
	if !a.ok() || string(a.body) != "stored" || time.Since(started) > 3*answerPatience {
		t.Fatalf("%+v after %s", a, time.Since(started))
	}
}

func TestSend_RepeatsOnAFreshConnectionWhenAKeptOneIsDead(t *testing.T) {
	var requests atomic.Int32
	server := receive(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		// The second request on a connection finds it closed under its feet, as
		// behind a balancer that has just restarted.
		if requests.Add(1) == 2 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}
	})
	s := newSender(guard{local: true}, testSettings(), nil)
	signed := signedHeader()
	for i := range 2 {
		if a := s.send(t.Context(), server.URL, signed.Clone(), []byte("{}")); !a.ok() {
			t.Fatalf("request %d: %+v", i, a)
		}
	}
	if n := requests.Load(); n != 3 {
		t.Fatalf("%d requests", n)
	}
}

func TestSend_EndsWithItsContext(t *testing.T) {
	server := receive(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	s := newSender(guard{local: true}, testSettings(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a := s.send(ctx, server.URL, header("a"), []byte("{}")); a.ok() || a.took > s.timeout-100*time.Millisecond {
		t.Fatalf("%+v", a)
	}
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
	start(t, l, authority.issue(t, time.Now().Add(time.Hour), "vendor.test"), true, func(http.ResponseWriter, *http.Request) {})
	plain := listen(t, "127.0.0.1:0")
	start(t, plain, nil, false, func(http.ResponseWriter, *http.Request) {})
	s := localSender(t, authority, loopbackNames(t))
	for _, url := range []string{at("https", l, 1), at("http", plain, 1)} {
		if a := s.send(t.Context(), url, signedHeader(), statusBody); !a.ok() || proxy.accepted.Load() != 0 {
			t.Errorf("%s: %+v, %d connections to the proxy", url, a, proxy.accepted.Load())
		}
	}
}

// A request carries what it was given and what HTTP needs: nothing is added,
// and nothing of one answer comes back with the next request.
func TestSend_AddsNothingAndRemembersNothing(t *testing.T) {
	authority := newAuthority(t)
	for _, h2 := range []bool{false, true} {
		l := listen(t, "127.0.0.1:0")
		var got atomic.Value
		start(t, l, authority.issue(t, time.Now().Add(time.Hour), "vendor.test"), h2, func(w http.ResponseWriter, r *http.Request) {
			got.Store(r.Header.Clone())
			w.Header().Set("Set-Cookie", "session=1; Path=/")
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Strict-Transport-Security", "max-age=1")
			w.Header().Set("WWW-Authenticate", "Basic")
		})
		s := localSender(t, authority, loopbackNames(t))
		want := signedHeader()
		delete(want, "Idempotency-Key")
		want.Set("Content-Length", strconv.Itoa(len(statusBody)))
		for i := range 3 {
			if a := s.send(t.Context(), at("https", l, i%2), signedHeader(), statusBody); !a.ok() {
				t.Fatalf("%+v", a)
			}
			if header := got.Load().(http.Header); !reflect.DeepEqual(header, want) {
				t.Errorf("HTTP/2 %v, request %d: %v, want %v", h2, i, header, want)
			}
		}
	}
}

// endless is a receiver that says the same until its connection is closed.
func endless(t *testing.T, start, again string) (url string) {
	l := listen(t, "127.0.0.1:0")
	raw(t, l, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64<<10))
		_, err := io.WriteString(conn, start)
		for text := []byte(again); err == nil; {
			_, err = conn.Write(text)
		}
	})
	return hookAt("http", l.port())
}

// Whatever a receiver sends, little of it is read and kept.
func TestSend_AnswersWithoutEndAreCutOff(t *testing.T) {
	log.SetOutput(io.Discard) // http.Transport writes what comes unasked to the standard log
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	s := newSender(guard{local: true}, testSettings(), nil)
	s.transport.dialer.Resolver = loopbackNames(t).resolver()
	kilobyte := strings.Repeat("x", 1<<10)
	for name, c := range map[string]struct{ start, again, class string }{
		"one header":       {"HTTP/1.1 200 OK\r\nA: ", kilobyte, classConnect},
		"headers":          {"HTTP/1.1 200 OK\r\n", "A: " + kilobyte + "\r\n", classConnect},
		"a status line":    {"HTTP/1.1 200 ", kilobyte, classConnect},
		"interim answers":  {"", "HTTP/1.1 103 Early Hints\r\nLink: " + kilobyte + "\r\n\r\n", classConnect},
		"bare interim":     {"", "HTTP/1.1 100 Continue\r\n\r\n", classConnect},
		"a body":           {"HTTP/1.1 200 OK\r\n\r\n", kilobyte, ""},
		"chunks":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "400\r\n" + kilobyte + "\r\n", ""},
		"a chunk's length": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0000000000000000", ""},
		"a declared body":  {"HTTP/1.1 503 Busy\r\nContent-Length: 9223372036854775807\r\n\r\n", kilobyte, classStatus},
		"zeroes":           {"", "\x00", classConnect},
		"after the answer": {"HTTP/1.1 204 No Content\r\n\r\n", kilobyte, ""},
	} {
		url := endless(t, c.start, c.again)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := s.send(t.Context(), url, signedHeader(), statusBody)
		runtime.ReadMemStats(&after)
		if a.class != c.class || len(a.body) > answerKept || len(a.detail) > 300 || a.took >= s.timeout {
			t.Errorf("%s: %+.300v", name, fmt.Sprint(a))
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

// A receiver that trickles a header gets the attempt's time and no more.
func TestSend_TricklingHeadersTimeOut(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	raw(t, l, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 64<<10))
		for _, c := range []byte("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<10)) {
			if _, err := conn.Write([]byte{c}); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	settings := testSettings()
	settings.Timeout = 200 * time.Millisecond
	s := newSender(guard{local: true}, settings, nil)
	a := s.send(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/", l.port()), signedHeader(), statusBody)
	if a.class != classTimeout || a.took > 5*settings.Timeout {
		t.Errorf("%+v", a)
	}
}
