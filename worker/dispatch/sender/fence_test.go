package sender

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// fence is what a request's MayBegin asks.
type fence struct {
	hasFallen atomic.Bool
	asked     atomic.Int32
}

func (f *fence) mayBegin() bool {
	f.asked.Add(1)
	return !f.hasFallen.Load()
}

// postWithin sends a webhook that the fence may forbid.
func (s *Sender) postWithin(t *testing.T, f *fence, url string) Answer {
	t.Helper()
	return s.Send(t.Context(), Request{URL: url, Header: signedHeader(), Body: statusBody, MayBegin: f.mayBegin})
}

// A request that may not begin does not leave, though it was allowed until its connection was dialled or
// secured. It is no failure of the receiver, which gets it when it may begin.
func TestMayBegin_HoldsBackWhatIsBeingConnected(t *testing.T) {
	for _, c := range protocols {
		for _, moment := range []string{"before it", "dial", "handshake"} {
			if c.scheme == "http" && moment == "handshake" {
				continue
			}

			t.Run(c.name+"/"+moment, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var requests atomic.Int32
					var f fence
					// Falls the first time, and rises when the test says so.
					var fall sync.Once
					reach := func(reached string) {
						if reached == moment {
							fall.Do(func() { f.hasFallen.Store(true) })
						}
					}

					l, authority := listenPipes(), newAuthority(t)
					config := authority.vendorOf(t, c.scheme)
					if config != nil {
						config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
							reach("handshake")
							return nil, nil
						}
					}

					start(t, l, config, c.h2, func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						requests.Add(1)
					})

					s := pipeSender(t, authority, l)
					s.lifetime = forEver
					dial := s.dialName
					s.dialName = func(ctx context.Context, network, address string) (net.Conn, error) {
						reach("dial")
						return dial(ctx, network, address)
					}

					reach("before it")
					a := s.postWithin(t, &f, at(c.scheme, l, 1))
					if !a.NotBegun || a.OK() || a.Status != 0 || a.Class != "" || a.Detail != "" {
						t.Errorf("%+v", a)
					}

					synctest.Wait()
					dials := int32(1)
					if moment == "before it" {
						dials = 0
					}

					if requests.Load() != 0 || l.accepted.Load() != dials {
						t.Errorf("%d requests left, over %d connections", requests.Load(), l.accepted.Load())
					}

					f.hasFallen.Store(false)
					for range 2 {
						if a := s.postWithin(t, &f, at(c.scheme, l, 1)); !a.OK() {
							t.Errorf("afterwards: %+v", a)
						}
					}

					if n := requests.Load(); n != 2 {
						t.Errorf("%d requests afterwards", n)
					}
				})
			})
		}
	}
}

// The repetition on a new connection is asked for, too.
func TestMayBegin_HoldsBackTheRepetition(t *testing.T) {
	for _, c := range protocols[:2] {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				var f fence
				l, authority := listenPipes(), newAuthority(t)
				start(t, l, authority.vendorOf(t, c.scheme), false, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if requests.Add(1) == 1 {
						return
					}

					f.hasFallen.Store(true)
					if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
						conn.Close()
					}
				})

				s := pipeSender(t, authority, l)
				s.lifetime = forEver

				if a := s.postWithin(t, &f, at(c.scheme, l, 1)); !a.OK() {
					t.Fatalf("the first: %+v", a)
				}
				if a := s.postWithin(t, &f, at(c.scheme, l, 1)); !a.NotBegun || a.Class != "" {
					t.Errorf("the second: %+v", a)
				}

				synctest.Wait()
				if n := requests.Load(); n != 2 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// A request that is held back costs no connection.
func TestMayBegin_UsesUpNoOtherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns = 3
		together := make(chan struct{})
		l := listenPipes()
		start(t, l, nil, false, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-together
		})

		s := pipeSender(t, nil, l)
		s.lifetime = forEver
		for range conns {
			go s.post(t, at("http", l, 1))
		}

		synctest.Wait()
		close(together)
		synctest.Wait()

		asked := 0
		a := s.Send(t.Context(), Request{URL: at("http", l, 1), Header: signedHeader(), MayBegin: func() bool {
			asked++
			return asked == 1
		}})

		synctest.Wait()

		if !a.NotBegun || asked != 2 {
			t.Errorf("asked %d times: %+v", asked, a)
		}
		if l.accepted.Load() != conns || l.open.Load() != conns {
			t.Errorf("%d connections were dialled, %d are left", l.accepted.Load(), l.open.Load())
		}
	})
}

// A request whose connection of HTTP/2 is ready may have to wait for the others on it. It is asked for once
// more when it is its turn, and does not leave. Those that were on their way fail no receiver.
func TestMayBegin_HoldsBackWhatWaitsToBeWritten(t *testing.T) {
	authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
	var hasArrived atomic.Bool
	start(t, l, authority.vendor(t), true, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "held back" {
			hasArrived.Store(true)
		}
	})

	s := localSender(t, authority, loopbackNames(t))
	s.lifetime = forEver
	var gate atomic.Pointer[gate]
	dial := s.dialName
	s.dialName = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &gatedConn{Conn: conn, gate: &gate}, err
	}

	var f fence
	url := at("https", l, 1)
	if a := s.postWithin(t, &f, url); !a.OK() {
		t.Fatalf("the first: %+v", a)
	}

	// The second is being written, and holds up the third, which has its connection by then.
	shut := newGate()
	gate.Store(shut)
	var sends sync.WaitGroup
	sends.Go(func() {
		if a := s.postWithin(t, &f, url); a.Class != "" {
			t.Errorf("the second: %+v", a)
		}
	})

	<-shut.reached
	hasConnection, hasEnded := make(chan struct{}), make(chan struct{})
	asked := 0
	third := Request{URL: url, Header: signedHeader(), Body: []byte("held back"), MayBegin: func() bool {
		asked++
		if asked == 2 {
			close(hasConnection)
		}
		return f.mayBegin()
	}}

	sends.Go(func() {
		defer close(hasEnded)
		if a := s.Send(t.Context(), third); !a.NotBegun {
			t.Errorf("the third: %+v", a)
		}
	})

	select {
	case <-hasConnection:
	case <-hasEnded: // it should not have
	}

	f.hasFallen.Store(true)
	gate.Store(nil)
	close(shut.open)
	sends.Wait()

	if asked != 3 {
		t.Errorf("the third was asked for %d times", asked)
	}

	f.hasFallen.Store(false)
	if a := s.postWithin(t, &f, url); !a.OK() {
		t.Errorf("afterwards: %+v", a)
	}
	if hasArrived.Load() {
		t.Error("the third has arrived")
	}
}

// gate holds up what is written to a gatedConn.
type gate struct {
	reached, open chan struct{}
	reach         func()
}

func newGate() *gate {
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	g.reach = sync.OnceFunc(func() { close(g.reached) })
	return g
}

type gatedConn struct {
	net.Conn
	gate *atomic.Pointer[gate]
}

func (c *gatedConn) Write(p []byte) (int, error) {
	if g := c.gate.Load(); g != nil {
		g.reach()
		<-g.open
	}
	return c.Conn.Write(p)
}
