package dispatch

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// at is the URL of an endpoint of a receiver that vendor.test names.
func at(scheme string, l *counting, endpoint int) string {
	return fmt.Sprintf("%s://vendor.test:%d/hooks/%d", scheme, l.port(), endpoint)
}

// loopbackNames answers every name with 127.0.0.1.
func loopbackNames(t *testing.T) *nameServer {
	return newNameServer(t, func(string, int) record { return addresses("127.0.0.1") })
}

func localSender(t *testing.T, a *authority, names *nameServer) *sender {
	t.Helper()
	settings := testSettings()
	settings.Timeout = 20 * time.Second // many handshakes at once, beside other tests
	s := newSender(guard{local: true}, settings, a.roots())
	s.transport.dialer.Resolver = names.resolver()
	t.Cleanup(s.transport.CloseIdleConnections)
	return s
}

// everywhere sends so many webhooks at once to each of so many endpoints.
func everywhere(t *testing.T, s *sender, l *counting, scheme string, endpoints, each int) {
	t.Helper()
	var sends sync.WaitGroup
	for e := range endpoints {
		for range each {
			sends.Go(func() {
				if a := s.send(t.Context(), at(scheme, l, e), signedHeader(), statusBody); !a.ok() {
					t.Errorf("endpoint %d: %+v", e, a)
				}
			})
		}
	}
	sends.Wait()
}

// Twenty endpoints at one host and port, each with ten sends at once, keep what
// they need and little more: http.Transport may dial for a send that another's
// connection comes free for.
func TestConnections_ManyEndpointsOfOneHostDoNotReconnect(t *testing.T) {
	const endpoints, each, rounds = 20, 10, 5
	authority := newAuthority(t)
	for _, c := range []struct {
		scheme string
		h2     bool
		most   int32
	}{{"http", false, endpoints * each}, {"https", false, endpoints * each}, {"https", true, endpoints}} {
		t.Run(fmt.Sprintf("%s, HTTP/2 %v", c.scheme, c.h2), func(t *testing.T) {
			l := listen(t, "127.0.0.1:0")
			config := authority.issue(t, time.Now().Add(time.Hour), "vendor.test")
			if c.scheme == "http" {
				config = nil
			}
			var protocol atomic.Value
			start(t, l, config, c.h2, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				protocol.Store(r.Proto)
				time.Sleep(20 * time.Millisecond) // so that all of a round are under way together
			})
			s := localSender(t, authority, loopbackNames(t))
			if c.h2 { // the first of each finds out; HTTP/1.1 needs no such luck
				everywhere(t, s, l, c.scheme, endpoints, 1)
			}
			for range rounds {
				everywhere(t, s, l, c.scheme, endpoints, each)
			}
			if n := l.accepted.Load(); n > c.most*3/2 {
				t.Errorf("%d connections for %d sends, at most %d at once", n, endpoints*each*rounds, endpoints*each)
			}
			if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[c.h2]; protocol.Load() != want {
				t.Errorf("spoken: %v", protocol.Load())
			}
			t.Logf("%d connections", l.accepted.Load())
		})
	}
}

// A busy endpoint moves: its name has another address from now on. Within a
// connection's life all of it arrives there, and nothing fails on the way.
func TestConnections_ABusyEndpointIsLookedUpAgain(t *testing.T) {
	authority := newAuthority(t)
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			former := listen(t, "127.0.0.1:0")
			current := listen(t, fmt.Sprintf("127.0.0.2:%d", former.port()))
			var reached [2]atomic.Int64
			config := authority.issue(t, time.Now().Add(time.Hour), "vendor.test")
			for i, l := range []*counting{former, current} {
				start(t, l, config.Clone(), h2, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					reached[i].Add(1)
				})
			}
			var moved atomic.Bool
			names := newNameServer(t, func(string, int) record {
				if moved.Load() {
					return addresses("127.0.0.2")
				}
				return addresses("127.0.0.1")
			})
			s := localSender(t, authority, names)
			s.transport.lifetime, s.transport.IdleConnTimeout = 200*time.Millisecond, 100*time.Millisecond
			stop := make(chan struct{})
			var sending sync.WaitGroup
			for e := range 4 {
				sending.Go(func() { keepSending(t, s, at("https", former, e%2), stop) })
			}
			waitFor(t, "the former address to be busy", func() bool { return reached[0].Load() > 50 })
			moved.Store(true)
			time.Sleep(300 * time.Millisecond)
			before := reached[0].Load()
			waitFor(t, "the current address to be busy", func() bool { return reached[1].Load() > 50 })
			if n := reached[0].Load() - before; n > 0 {
				t.Errorf("%d webhooks went to the former address after the life of its connections", n)
			}
			waitFor(t, "the former connections to end", func() bool { return former.open.Load() == 0 })
			close(stop)
			sending.Wait()
			t.Logf("%d and %d webhooks, %d and %d connections", reached[0].Load(), reached[1].Load(), former.accepted.Load(), current.accepted.Load())
		})
	}
}

func keepSending(t *testing.T, s *sender, url string, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			if a := s.send(t.Context(), url, signedHeader(), statusBody); !a.ok() {
				t.Errorf("%s: %+v", url, a)
				return
			}
		}
	}
}

// After many lives of many endpoints' connections, with answers that end early,
// late and never, nothing is left behind.
func TestConnections_LeakNeitherConnectionsNorGoroutines(t *testing.T) {
	authority := newAuthority(t)
	before := runtime.NumGoroutine()
	t.Run("sends", func(t *testing.T) {
		for _, h2 := range []bool{false, true} {
			l := listen(t, "127.0.0.1:0")
			start(t, l, authority.issue(t, time.Now().Add(time.Hour), "vendor.test"), h2, misbehave)
			s := localSender(t, authority, loopbackNames(t))
			s.timeout, s.transport.lifetime, s.transport.IdleConnTimeout = 100*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
			var sends sync.WaitGroup
			for e := range 30 {
				sends.Go(func() {
					for range 10 {
						s.send(t.Context(), at("https", l, e), signedHeader(), statusBody)
					}
				})
			}
			sends.Wait()
			s.transport.CloseIdleConnections()
			waitFor(t, "all connections to end", func() bool { return l.open.Load() == 0 && s.transport.open.Load() == 0 })
			t.Logf("HTTP/2 %v: %d connections", h2, l.accepted.Load())
		}
	})
	waitFor(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// misbehave answers every endpoint in its own way.
func misbehave(w http.ResponseWriter, r *http.Request) {
	var endpoint int
	fmt.Sscanf(r.URL.Path, "/hooks/%d", &endpoint)
	switch endpoint % 6 {
	case 0:
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "stored")
	case 1: // never
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case 2: // without reading, and more than anybody wants
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 1<<14))
	case 3: // in the middle of the answer
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "sto")
		panic(http.ErrAbortHandler)
	case 4:
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusServiceUnavailable)
	case 5: // a status, and then nothing
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// http.Transport does not bound the connections of HTTP/2; the worker does.
func TestConnections_AreBounded(t *testing.T) {
	authority := newAuthority(t)
	l := listen(t, "127.0.0.1:0")
	start(t, l, authority.issue(t, time.Now().Add(time.Hour), "vendor.test"), true, func(http.ResponseWriter, *http.Request) {})
	s := localSender(t, authority, loopbackNames(t))
	s.transport.most = 20
	var highest int64
	for e := range 200 {
		if a := s.send(t.Context(), at("https", l, e), signedHeader(), statusBody); !a.ok() {
			t.Fatalf("endpoint %d: %+v", e, a)
		}
		highest = max(highest, s.transport.open.Load())
	}
	if highest < 15 || highest > 40 {
		t.Errorf("at most %d connections were open", highest)
	}
}

func TestConnections_EachEndpointChangesAtAMomentOfItsOwn(t *testing.T) {
	c := newConnections(guard{}, testSettings(), nil)
	now, quarter := time.Now(), c.lifetime/4
	var changes [4]int
	for e := range 1000 {
		url := fmt.Sprintf("https://vendor.example/hooks/%d", e)
		label, until := c.label(url, now)
		left := until.Sub(now)
		if left <= 0 || left > c.lifetime || strings.Contains(label, ".") {
			t.Fatalf("%s for %s", label, left)
		}
		changes[min(left/quarter, 3)]++
		if same, _ := c.label(url, until.Add(-1)); same != label {
			t.Errorf("changed too early")
		}
		if next, _ := c.label(url, until); next == label {
			t.Errorf("not changed in time")
		}
	}
	if connectionIdle > c.lifetime/2 {
		t.Errorf("a label comes back after %s, its connections may be idle for %s", c.lifetime, connectionIdle)
	}
	for _, n := range changes {
		if n < 180 || n > 320 {
			t.Errorf("changes by quarter of a life: %v", changes)
		}
	}
}

func TestConnections_ForgetEndpointsThatAreNoLongerUsed(t *testing.T) {
	c := newConnections(guard{}, testSettings(), nil)
	now := time.Now()
	for e := range 1000 {
		if _, err := c.target(fmt.Sprintf("https://vendor.example/hooks/%d", e), now.Add(time.Duration(e)*c.lifetime/100)); err != nil {
			t.Fatal(err)
		}
		if len(c.targets) > 102 {
			t.Fatalf("%d remembered", len(c.targets))
		}
	}
}

// http.Transport keeps an entry for every host that it could not connect to.
func TestConnections_DeadEndpointsLeaveNothingBehind(t *testing.T) {
	gone := listen(t, "127.0.0.1:0")
	gone.Close()
	s := localSender(t, newAuthority(t), loopbackNames(t))
	s.transport.lifetime, s.transport.IdleConnTimeout = time.Millisecond, 100*time.Microsecond
	for range 200 {
		for e := range 3 {
			if a := s.send(t.Context(), at("http", gone, e), signedHeader(), statusBody); a.class != classConnect {
				t.Fatalf("%+v", a)
			}
		}
		time.Sleep(time.Millisecond)
	}
	kept := reflect.ValueOf(s.transport.Transport).Elem().FieldByName("idleConnWait").Len()
	if kept > 6 {
		t.Errorf("%d entries for 3 endpoints", kept)
	}
}

// Addresses keep their brackets, names their case, and the receiver sees its
// own name: the label is between the worker and its pool.
func TestConnections_ReceiversSeeTheirOwnName(t *testing.T) {
	authority := newAuthority(t)
	names := newNameServer(t, func(string, int) record { return addresses("127.0.0.1", "::1") })
	for _, h2 := range []bool{false, true} {
		l := listen(t, "[::]:0")
		var host, sni atomic.Value
		config := authority.issue(t, time.Now().Add(time.Hour), "vendor.test", "xn--fiqs8s.test", "127.0.0.1", "::1")
		start(t, l, config, h2, func(_ http.ResponseWriter, r *http.Request) {
			host.Store(r.Host)
			sni.Store(r.TLS.ServerName)
		})
		s := localSender(t, authority, names)
		for given, want := range map[string]struct{ host, sni string }{
			"VENDOR.test": {"vendor.test", "vendor.test"}, "vendor.test.": {"vendor.test", "vendor.test"},
			"中国.test": {"xn--fiqs8s.test", "xn--fiqs8s.test"}, "127.0.0.1": {"127.0.0.1", ""},
			"[::1]": {"[::1]", ""}, "[0:0::1]": {"[::1]", ""},
		} {
			accepted := l.accepted.Load()
			for range 3 {
				url := fmt.Sprintf("https://%s:%d/h%%2Fk?a=b&c=%%20#part", given, l.port())
				if a := s.send(t.Context(), url, signedHeader(), statusBody); !a.ok() {
					t.Fatalf("%s: %+v", url, a)
				}
			}
			if got := host.Load(); got != fmt.Sprintf("%s:%d", want.host, l.port()) || sni.Load() != want.sni {
				t.Errorf("%s: host %v, server name %q", given, got, sni.Load())
			}
			if n := l.accepted.Load() - accepted; n != 1 {
				t.Errorf("%s, HTTP/2 %v: %d connections", given, h2, n)
			}
		}
	}
}

func TestConnections_NamesAreLookedUpAsTheyAre(t *testing.T) {
	for host, want := range map[string]string{
		"vendor.example": "vendor.example.", "localhost": "localhost", "127.0.0.1": "127.0.0.1", "::1": "::1",
	} {
		if got := absolute(host); got != want {
			t.Errorf("%s: %s", host, got)
		}
	}
}
