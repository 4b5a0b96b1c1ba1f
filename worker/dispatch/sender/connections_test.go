package sender

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// forEver is for tests that count connections: an endpoint changes its own at a
// moment that is drawn.
const forEver = time.Duration(1 << 61)

// localSender asks the names for this machine's receivers.
func localSender(t *testing.T, a *authority, names *nameServer) *Sender {
	t.Helper()
	var roots *x509.CertPool
	if a != nil {
		roots = a.roots()
	}

	s := New(localOptions())
	s.tls.RootCAs = roots
	s.lifetime = forEver
	s.dialer.Resolver = names.resolver()
	t.Cleanup(s.CloseIdleConnections)

	return s
}

// protocols are those of a sender and a receiver.
var protocols = []struct {
	name, scheme string
	h2           bool
}{{"http", "http", false}, {"https", "https", false}, {"HTTP/2", "https", true}}

// Several endpoints at one host and port, each with as many sends at once, keep
// the connections that they need.
func TestConnections_ManyEndpointsOfOneHostDoNotReconnect(t *testing.T) {
	const endpoints, each, rounds = 10, 5, 4
	for _, c := range protocols {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, authority := listenPipes(), newAuthority(t)
				config, most := authority.vendor(t), int32(endpoints*each)
				if c.scheme == "http" {
					config = nil
				}

				start(t, l, config, c.h2, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					time.Sleep(time.Second) // all of a round are in flight together
				})

				s := pipeSender(t, authority, l)
				s.lifetime = forEver
				everywhere := func(each int) {
					var sends sync.WaitGroup
					for e := range endpoints {
						for range each {
							sends.Go(func() {
								if a := s.post(t, at(c.scheme, l, e)); !a.OK() {
									t.Errorf("endpoint %d: %+v", e, a)
								}
							})
						}
					}

					sends.Wait()
					synctest.Wait() // the connections are kept
				}

				if c.h2 { // the first of each finds out
					most = endpoints
					everywhere(1)
				}

				for range rounds {
					everywhere(each)
				}

				if n := l.accepted.Load(); n != most {
					t.Errorf("%d connections for %d sends, %d at once", n, endpoints*each*rounds, endpoints*each)
				}
			})
		})
	}
}

// A busy endpoint moves: its name has another address from now on. Within a
// connection's life all of it arrives there, and nothing fails on the way.
func TestConnections_ABusyEndpointIsLookedUpAgain(t *testing.T) {
	for _, c := range protocols {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				former, current, authority := listenPipes(), listenPipes(), newAuthority(t)
				config := authority.vendor(t)
				if c.scheme == "http" {
					config = nil
				}

				var reached [2]atomic.Int64
				for i, l := range []*counting{former, current} {
					start(t, l, config.Clone(), c.h2, func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						reached[i].Add(1)
					})
				}

				s := pipeSender(t, authority, former)
				send := func(rounds int) {
					for range rounds {
						for e := range 4 {
							if a := s.post(t, at(c.scheme, former, e)); !a.OK() {
								t.Fatalf("%+v", a)
							}
						}
						time.Sleep(10 * time.Second)
					}
				}

				lives := int(connectionLifetime / (10 * time.Second))
				send(10)
				s.dialName = current.Listener.(*pipes).dial // the name's other address
				send(lives)
				if reached[1].Load() == 0 || former.accepted.Load() > 8 { // each changes once or not at all before it moves
					t.Errorf("%d webhooks at the current address, %d connections to the former", reached[1].Load(), former.accepted.Load())
				}

				before := reached[0].Load()
				send(lives)
				if n := reached[0].Load() - before; n > 0 || former.open.Load() > 0 {
					t.Errorf("after the life of its connections the former address got %d webhooks and has %d connections", n, former.open.Load())
				}
			})
		})
	}
}

// After many lives of many endpoints' connections, with answers that end early,
// late and never, nothing is left behind: a goroutine that were would fail the
// bubble.
func TestConnections_LeakNeitherConnectionsNorGoroutines(t *testing.T) {
	for _, c := range protocols[1:] {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, authority := listenPipes(), newAuthority(t)
				start(t, l, authority.vendor(t), c.h2, misbehave)
				s := pipeSender(t, authority, l)
				var sends sync.WaitGroup
				for e := range 12 {
					sends.Go(func() {
						for range 3 {
							s.post(t, at(c.scheme, l, e))
							time.Sleep(connectionLifetime)
						}
					})
				}

				sends.Wait()
				s.CloseIdleConnections()
				time.Sleep(connectionIdle)
				if there, here := l.open.Load(), s.open.Load(); there != 0 || here != 0 {
					t.Errorf("%d and %d connections are open", there, here)
				}
			})
		})
	}
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
	synctest.Test(t, func(t *testing.T) {
		l, authority := listenPipes(), newAuthority(t)
		start(t, l, authority.vendor(t), true, func(http.ResponseWriter, *http.Request) {})
		s := pipeSender(t, authority, l)
		s.most = 20
		var highest int64
		for e := range 50 {
			if a := s.post(t, at("https", l, e)); !a.OK() {
				t.Fatalf("endpoint %d: %+v", e, a)
			}
			highest = max(highest, s.open.Load())
			synctest.Wait()
		}

		if highest < 20 || highest > 21 {
			t.Errorf("at most %d connections were open", highest)
		}
	})
}

func TestConnections_EachEndpointChangesAtAMomentOfItsOwn(t *testing.T) {
	c := New(publicOptions())
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
	c := New(publicOptions())
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
	synctest.Test(t, func(t *testing.T) {
		gone := listenPipes()
		gone.Close()
		s := pipeSender(t, nil, gone)
		for range 50 {
			for e := range 3 {
				if a := s.post(t, at("http", gone, e)); a.Class != ClassConnect {
					t.Fatalf("%+v", a)
				}
			}
			time.Sleep(connectionLifetime)
		}

		if kept := reflect.ValueOf(s.transport.Load()).Elem().FieldByName("idleConnWait").Len(); kept > 6 {
			t.Errorf("%d entries for 3 endpoints", kept)
		}
	})
}

// Addresses keep their brackets, names their case, and the receiver sees its
// own name: the label is between the worker and its pool.
func TestConnections_ReceiversSeeTheirOwnName(t *testing.T) {
	for _, c := range protocols[1:] {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, authority := listenPipes(), newAuthority(t)
				var host, sni, dialled atomic.Value
				config := authority.issue(t, time.Now().Add(time.Hour), "vendor.test", "xn--fiqs8s.test", "127.0.0.1", "::1")
				start(t, l, config, c.h2, func(_ http.ResponseWriter, r *http.Request) {
					host.Store(r.Host)
					sni.Store(r.TLS.ServerName)
				})

				s := pipeSender(t, authority, l)
				s.lifetime = forEver
				dial := s.dialName
				s.dialName = func(ctx context.Context, network, address string) (net.Conn, error) {
					dialled.Store(address)
					return dial(ctx, network, address)
				}

				for given, want := range map[string]struct{ dialled, host, sni string }{
					"VENDOR.test":  {"vendor.test.:8443", "vendor.test:8443", "vendor.test"},
					"vendor.test.": {"vendor.test.:8443", "vendor.test:8443", "vendor.test"},
					"中国.test":      {"xn--fiqs8s.test.:8443", "xn--fiqs8s.test:8443", "xn--fiqs8s.test"},
					"127.0.0.1":    {"127.0.0.1:8443", "127.0.0.1:8443", ""},
					"[::1]":        {"[::1]:8443", "[::1]:8443", ""},
					"[0:0::1]":     {"[::1]:8443", "[::1]:8443", ""},
				} {
					accepted := l.accepted.Load()
					for range 3 {
						if a := s.post(t, "https://"+given+":8443/h%2Fk?a=b&c=%20#part"); !a.OK() {
							t.Fatalf("%s: %+v", given, a)
						}
					}

					if dialled.Load() != want.dialled || host.Load() != want.host || sni.Load() != want.sni {
						t.Errorf("%s: dialled %v, host %v, server name %q", given, dialled.Load(), host.Load(), sni.Load())
					}
					if n := l.accepted.Load() - accepted; n != 1 {
						t.Errorf("%s: %d connections", given, n)
					}
				}
			})
		})
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

// However many URLs cannot be connected to, nothing is kept of them but for a connection's life, if they have had no
// HTTP/2. Of those that had it http.Transport keeps something, which is bounded; a request that is in flight when
// it is replaced ends as it would have.
func TestConnections_AnyNumberOfDeadURLsIsForgotten(t *testing.T) {
	for _, c := range protocols {
		t.Run(c.name, func(t *testing.T) {
			authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
			arrived, answer := make(chan struct{}), make(chan struct{})
			start(t, l, authority.vendorOf(t, c.scheme), c.h2, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hooks/0" {
					close(arrived)
					<-answer
				}
			})

			s := localSender(t, authority, loopbackNames(t))
			s.maxLabels = 50
			first := s.transport.Load()
			inFlight := make(chan bool)
			go func() { inFlight <- s.post(t, at(c.scheme, l, 0)).OK() }()
			<-arrived

			dead := listen(t, "127.0.0.1:0")
			dead.Close()
			for i := range 120 {
				url := at(c.scheme, dead, i)
				if target, err := s.target(url, time.Now()); err == nil {
					target.isHTTP2.Store(c.h2) // when it was alive
				}

				if s.post(t, url).OK() {
					t.Fatal("a dead URL has answered")
				}
				if len(s.labels) > s.maxLabels {
					t.Fatalf("%d labels are kept", len(s.labels))
				}
			}

			isReplaced := s.transport.Load() != first
			if isReplaced != c.h2 || len(s.labels) > 0 != c.h2 {
				t.Errorf("the transport was replaced: %v, with %d labels", isReplaced, len(s.labels))
			}

			close(answer)
			if !<-inFlight {
				t.Error("the request in flight was cut off")
			}
		})
	}
}

// However many endpoints are healthy, their transport and its idle connections stay.
func TestConnections_AnyNumberOfHealthyURLsKeepsItsTransport(t *testing.T) {
	for _, c := range protocols {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, authority := listenPipes(), newAuthority(t)
				config := authority.vendor(t)
				if c.scheme == "http" {
					config = nil
				}

				start(t, l, config, c.h2, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				s := pipeSender(t, authority, l)
				s.lifetime, s.maxLabels = forEver, 20
				first := s.transport.Load()
				for i := range 3 * s.maxLabels {
					if a := s.post(t, at(c.scheme, l, i)); !a.OK() {
						t.Fatalf("endpoint %d: %+v", i, a)
					}
					synctest.Wait() // the connection is kept
				}

				if s.transport.Load() != first || len(s.labels) > 0 {
					t.Errorf("the transport was replaced, or keeps something of %d labels", len(s.labels))
				}
			})
		})
	}
}

// A receiver of HTTP/2 that could not be reached once, and is healthy again, counts no longer.
func TestConnections_ReceiversThatRecoverDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, authority := listenPipes(), newAuthority(t)
		start(t, l, authority.vendor(t), true, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		s := pipeSender(t, authority, l)
		s.lifetime = forEver
		post := func() bool {
			defer synctest.Wait() // the connection is kept
			return s.post(t, at("https", l, 1)).OK()
		}
		if !post() {
			t.Fatal("no answer")
		}

		s.CloseIdleConnections()
		synctest.Wait()

		dial := s.dialName
		s.dialName = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") }
		if post() {
			t.Fatal("an unreachable receiver has answered")
		}
		if len(s.labels) != 1 {
			t.Fatalf("%d labels are counted after a failure", len(s.labels))
		}

		s.dialName = dial
		if !post() {
			t.Fatal("no answer afterwards")
		}
		if len(s.labels) != 0 {
			t.Errorf("%d labels are counted after a success", len(s.labels))
		}
	})
}

// A receiver may change from HTTP/2 to HTTP/1.1, and back.
func TestConnections_AReceiverMayChangeItsProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t)
		var receivers []*counting
		for _, h2 := range []bool{true, false} {
			l := listenPipes()
			start(t, l, authority.vendor(t), h2, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto)
			})
			receivers = append(receivers, l)
		}

		s := pipeSender(t, authority, receivers[0])
		s.lifetime = forEver
		for i, want := range []string{"HTTP/2.0", "HTTP/1.1", "HTTP/2.0"} {
			s.dialName = receivers[i%2].Listener.(*pipes).dial
			for range 3 {
				if a := s.post(t, at("https", receivers[0], 1)); !a.OK() || string(a.Body) != want {
					t.Errorf("%+v: %s, want %s", a, a.Body, want)
				}
			}
			s.CloseIdleConnections()
			synctest.Wait()
		}

		for _, l := range receivers {
			if n := l.open.Load(); n != 0 {
				t.Errorf("%d connections are open", n)
			}
		}
	})
}

// What receivers leave behind that close each connection is swept.
func TestConnections_ReceiversThatCloseEachConnectionLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listenPipes()
		start(t, l, nil, false, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "1") {
				w.Header().Set("Connection", "close")
			}
		})

		s := pipeSender(t, nil, l)
		for i := range 40 {
			if !s.post(t, at("http", l, i)).OK() {
				t.Fatal("no answer")
			}
		}

		time.Sleep(2 * connectionIdle)
		synctest.Wait()
		if len(s.labels) > 0 || len(s.pool.idle) > 0 || s.open.Load() > 0 {
			t.Errorf("%d labels, %d pools and %d connections are kept", len(s.labels), len(s.pool.idle), s.open.Load())
		}
	})
}
