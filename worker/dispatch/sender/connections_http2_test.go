package sender

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is a receiver's end of an HTTP/2 connection, frame by frame: it does
// what the test says and nothing by itself, except to acknowledge settings and
// pings.
type frames struct {
	*http2.Framer
	conn   net.Conn
	nth    int // of its listener's connections, from 1
	encode *hpack.Encoder
	block  bytes.Buffer
}

// http2Frames serves each connection with handle, which is told every request
// when all of it has been read.
func http2Frames(t *testing.T, l *counting, config *tls.Config, handle func(f *frames, stream uint32, path string)) {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	raw(t, l, func(conn net.Conn) {
		nth := int(l.accepted.Load())
		secured := tls.Server(conn, config)
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(secured, preface); err != nil {
			return
		}

		f := &frames{Framer: http2.NewFramer(secured, secured), conn: secured, nth: nth}
		f.encode = hpack.NewEncoder(&f.block)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		f.serve(handle)
	})
}

func (f *frames) serve(handle func(f *frames, stream uint32, path string)) {
	paths := map[uint32]string{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}

		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			paths[frame.StreamID] = frame.PseudoValue("path")
			if frame.StreamEnded() {
				handle(f, frame.StreamID, paths[frame.StreamID])
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				handle(f, frame.StreamID, paths[frame.StreamID])
			}
		}
	}
}

func (f *frames) answer(stream uint32, status string, end bool, headers ...string) {
	f.block.Reset()
	_ = f.encode.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	for i := 0; i+1 < len(headers); i += 2 {
		_ = f.encode.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: end})
}

// A receiver that restarts says so, in the middle of requests that it has not
// looked at. None of them fails, and none is sent twice.
func TestHTTP2_AReceiverThatGoesAwayCostsNothing(t *testing.T) {
	authority := newAuthority(t)
	l := listen(t, "127.0.0.1:0")
	var handled atomic.Int32
	http2Frames(t, l, authority.vendor(t), func(f *frames, stream uint32, _ string) {
		if f.nth == 1 && stream > 21 { // the eleventh and later ones were not looked at
			_ = f.WriteGoAway(21, http2.ErrCodeNo, nil)
			return
		}
		handled.Add(1)
		f.answer(stream, "204", true)
	})

	s := localSender(t, authority, loopbackNames(t))
	if a := s.post(t, at("https", l, 1)); !a.OK() {
		t.Fatalf("%+v", a)
	}

	var sends sync.WaitGroup
	for range 40 {
		sends.Go(func() {
			if a := s.post(t, at("https", l, 1)); !a.OK() {
				t.Errorf("%+v", a)
			}
		})
	}

	sends.Wait()
	if n := handled.Load(); n != 41 {
		t.Errorf("%d requests were handled", n)
	}
}

// A receiver, or the balancer in front of it, that is killed says nothing; its
// connection is there until somebody uses it, and is replaced then. A fresh one
// that breaks is not tried without end. Usually a send is one request and one
// dial; http.Transport may make it two while it takes a broken connection away.
func TestHTTP2_AConnectionThatBreaksIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		breaks      func(nth int, stream uint32) bool
		class       string
		least, most int32 // connections for three sends
	}{
		"the first, when it is used again": {func(nth int, stream uint32) bool { return nth == 1 && stream > 1 }, "", 2, 4},
		"all":                              {func(int, uint32) bool { return true }, ClassConnect, 3, 6},
	} {
		t.Run(name, func(t *testing.T) {
			authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
			http2Frames(t, l, authority.vendor(t), func(f *frames, stream uint32, _ string) {
				if c.breaks(f.nth, stream) {
					f.conn.Close()
					return
				}
				f.answer(stream, "204", true)
			})

			s := localSender(t, authority, loopbackNames(t))
			for i := range 3 {
				if a := s.post(t, at("https", l, 1)); a.Class != c.class || (a.Class == "") != (a.Detail == "") {
					t.Errorf("send %d: %+v", i, a)
				}
			}

			if n := l.accepted.Load(); n < c.least || n > c.most {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// freezer forwards connections until it is told to keep quiet about those it has:
// they stay open and nothing comes through, as when a firewall has forgotten them.
type freezer struct {
	*counting
	mu     sync.Mutex
	frozen chan struct{} // closed: what was open by then is dead
}

func newFreezer(t *testing.T, to *counting) *freezer {
	z := &freezer{counting: listenPipes(), frozen: make(chan struct{})}
	raw(t, z.counting, func(conn net.Conn) {
		z.mu.Lock()
		frozen := z.frozen
		z.mu.Unlock()
		there, err := to.Listener.(*pipes).dial(t.Context(), "", "")
		if err != nil {
			return
		}
		defer there.Close()

		go forward(there, conn, frozen)
		forward(conn, there, frozen)
	})

	return z
}

func forward(to, from net.Conn, frozen chan struct{}) {
	defer to.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}

		select {
		case <-frozen:
		default:
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

func (z *freezer) freeze() {
	z.mu.Lock()
	defer z.mu.Unlock()
	close(z.frozen)
	z.frozen = make(chan struct{})
}

// Pings find out that a connection is dead soon enough for the attempt to
// succeed on another; meanwhile it holds up no other endpoint of the host.
func TestHTTP2_ADeadConnectionIsFoundByPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, authority := listenPipes(), newAuthority(t)
		start(t, l, authority.vendor(t), true, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})
		z := newFreezer(t, l)
		s := pipeSender(t, authority, z.counting)
		if a := s.post(t, at("https", l, 1)); !a.OK() {
			t.Fatalf("%+v", a)
		}

		z.freeze()
		var sends sync.WaitGroup
		for range 8 {
			sends.Go(func() {
				if a := s.post(t, at("https", l, 1)); !a.OK() || a.Took != s.timeout*3/4 {
					t.Errorf("over the dead connection: %+v", a)
				}
			})
		}

		synctest.Wait()
		if a := s.post(t, at("https", l, 2)); !a.OK() || a.Took != 0 {
			t.Errorf("another endpoint meanwhile: %+v", a)
		}

		sends.Wait()
	})
}

// An endpoint that reads no bodies and answers nothing uses up its connection:
// the window of all its streams is empty. Another endpoint at the same host and
// port does not notice.
func TestHTTP2_AStalledEndpointDoesNotStallItsNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, authority := listenPipes(), newAuthority(t)
		var stalled atomic.Int32
		http2Frames(t, l, authority.vendor(t), func(f *frames, stream uint32, path string) {
			if strings.HasSuffix(path, "/1") {
				stalled.Add(1) // and its window is never updated
				return
			}
			_ = f.WriteWindowUpdate(0, 1<<20)
			f.answer(stream, "204", true)
		})

		s := pipeSender(t, authority, l)
		large := bytes.Repeat([]byte("x"), 15<<10)
		var sends sync.WaitGroup
		for range 32 {
			sends.Go(func() {
				if a := s.Send(t.Context(), Request{URL: at("https", l, 1), Header: signedHeader(), Body: large}); a.Class != ClassTimeout {
					t.Errorf("%+v", a)
				}
			})
		}

		synctest.Wait()
		if n := stalled.Load(); n < 4 || n >= 32 {
			t.Errorf("%d requests came through to the stalled endpoint", n)
		}

		for i := range 20 {
			if a := s.Send(t.Context(), Request{URL: at("https", l, 2), Header: signedHeader(), Body: large}); !a.OK() || a.Took != 0 {
				t.Fatalf("send %d of the neighbour: %+v", i, a)
			}
		}

		sends.Wait()
	})
}

func TestHTTP2_WhatAReceiverSendsIsBounded(t *testing.T) {
	long := strings.Repeat("x", 15<<10)
	for name, c := range map[string]struct {
		class string
		send  func(f *frames, stream uint32)
	}{
		"interim answers": {ClassAnswer, func(f *frames, stream uint32) {
			for range 100_000 {
				f.answer(stream, "103", false, "link", long[:100])
			}
		}},
		"a header without end": {"", func(f *frames, stream uint32) { f.answer(stream, "200", true, "x", long) }},
		"pings, settings and window updates": {"", func(f *frames, stream uint32) {
			for i := range 2000 {
				_ = f.WritePing(false, [8]byte{byte(i), byte(i >> 8)})
				_ = f.WriteSettings()
				_ = f.WriteWindowUpdate(0, 1)
			}
			f.answer(stream, "204", true)
		}},
		"more than the window holds": {"", func(f *frames, stream uint32) {
			f.answer(stream, "200", false)
			for range 100 {
				if f.WriteData(stream, false, make([]byte, 16<<10)) != nil {
					return
				}
			}
		}},
		"a push": {ClassConnect, func(f *frames, stream uint32) {
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: stream, PromiseID: 2, EndHeaders: true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			authority, l := newAuthority(t), listen(t, "127.0.0.1:0")
			http2Frames(t, l, authority.vendor(t), func(f *frames, stream uint32, _ string) { c.send(f, stream) })
			if a := localSender(t, authority, loopbackNames(t)).post(t, at("https", l, 1)); a.Class != c.class || len(a.Body) > answerKept {
				t.Errorf("%+.200v", fmt.Sprint(a))
			}
		})
	}
}
