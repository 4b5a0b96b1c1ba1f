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
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func testSettings() Settings {
	return Settings{
		Batch: 256, ClaimAfter: time.Minute, Concurrency: 256, PerEndpoint: 32,
		Timeout: 2 * time.Second, Lease: 6 * time.Second, LocalReceivers: "auto",
	}
}

func rootsOf(server *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return roots
}

func header(event string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "X-Service-Event": {event}, "Idempotency-Key": nil}
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

func TestSend_FollowsNoRedirect(t *testing.T) {
	var reached atomic.Int32
	target := receive(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	server := receive(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
	})
	s := newSender(guard{local: true}, testSettings(), nil)
	a := s.send(t.Context(), server.URL, header("a"), []byte("{}"))
	if a.ok() || a.status != 307 || reached.Load() != 0 {
		t.Fatalf("%+v, target reached %d times", a, reached.Load())
	}
}

func TestSend_RefusesAddressesAfterTheLookUp(t *testing.T) {
	var reached atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer server.Close()
	var connections atomic.Int32
	server.Config.ConnState = func(net.Conn, http.ConnState) { connections.Add(1) }
	port := server.Listener.Addr().(*net.TCPAddr).Port
	s := newSender(guard{}, testSettings(), rootsOf(server))
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.0.0.2", "[fe80::1]"} {
		a := s.send(t.Context(), fmt.Sprintf("https://%s:%d/", host, port), header("a"), nil)
		if a.class != classRefused {
			t.Errorf("%s: %+v", host, a)
		}
	}
	// Numbers in other notations are names that nobody has.
	for _, host := range []string{"2130706433", "0x7f000001", "0x7f.1", "127.1", "017700000001"} {
		a := s.send(t.Context(), fmt.Sprintf("https://%s:%d/", host, port), header("a"), nil)
		if a.ok() || a.status != 0 {
			t.Errorf("%s: %+v", host, a)
		}
	}
	if reached.Load() != 0 || connections.Load() != 0 {
		t.Fatalf("%d requests on %d connections came through", reached.Load(), connections.Load())
	}
}

func TestSend_AsksNoProxy(t *testing.T) {
	var asked atomic.Int32
	proxy := receive(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	server := receive(t, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	s := newSender(guard{local: true}, testSettings(), nil)
	if a := s.send(t.Context(), server.URL, header("a"), nil); !a.ok() || asked.Load() != 0 {
		t.Fatalf("%+v, proxy asked %d times", a, asked.Load())
	}
}

func TestSend_TellsWhatFailed(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := closed.Addr().String()
	closed.Close()
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of being distrusted
	stranger.StartTLS()
	defer stranger.Close()
	plain := receive(t, func(http.ResponseWriter, *http.Request) {})
	hangUp := receive(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	s := newSender(guard{local: true}, testSettings(), nil)
	for _, c := range []struct{ url, class string }{
		{"http://" + refusing, classConnect},
		{"https://name.invalid/", classDNS},
		{stranger.URL, classTLS},
		{strings.Replace(plain.URL, "http:", "https:", 1), classTLS},
		{hangUp.URL, classConnect},
		{"http://10.255.255.1/", classRefused},
		{"ftp://127.0.0.1/", classURL},
	} {
		a := s.send(t.Context(), c.url, header("a"), nil)
		if a.class != c.class || a.status != 0 || a.detail == "" {
			t.Errorf("%s: %+v", c.url, a)
		}
		if strings.Contains(a.detail, "->") {
			t.Errorf("%s tells the worker's own address: %s", c.url, a.detail)
		}
	}
}

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

func TestSend_TimesOutWhenNobodyShakesHands(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	settings := testSettings()
	settings.Timeout = 150 * time.Millisecond
	s := newSender(guard{local: true}, settings, nil)
	if a := s.send(t.Context(), "https://"+silent.Addr().String(), header("a"), nil); a.class != classTimeout {
		t.Fatalf("%+v", a)
	}
}

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
	signed, err := headers(someDelivery(1, time.Now()), time.Now(), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
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
	if a := s.send(ctx, server.URL, header("a"), []byte("{}")); a.ok() || a.took > time.Second {
		t.Fatalf("%+v", a)
	}
}
