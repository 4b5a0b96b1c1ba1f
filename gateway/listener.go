package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
)

// guardedListener bounds how many connections are open, in all and from one
// address. fasthttp has such limits, but refuses in plain text; here a refusal
// speaks the envelope like every other answer.
type guardedListener struct {
	net.Listener
	most, mostPerIP int
	speak           bool // TLS: a refusal could only be sent after a handshake
	refused         func()

	mu   sync.Mutex
	open int
	byIP map[netip.Prefix]int
}

func newGuardedListener(l net.Listener, most, mostPerIP int, speak bool, refused func()) *guardedListener {
	return &guardedListener{Listener: l, most: most, mostPerIP: mostPerIP, speak: speak, refused: refused,
		byIP: map[netip.Prefix]int{}}
}

// Accept waits for the next connection within the limits.
func (l *guardedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(c)
		if refusal := l.admit(from); refusal != nil {
			l.refused()
			l.turnAway(c, refusal)
			continue
		}
		return &guardedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
	}
}

// origin is who counts as one: an IPv4 address, or the /64 that an IPv6 host
// chooses its addresses from.
func origin(c net.Conn) netip.Prefix {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{}
	}
	address := peer.Addr().Unmap().WithZone("")
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, _ := address.Prefix(bits) // both are in range
	return prefix
}

func (l *guardedListener) admit(from netip.Prefix) *delivery.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second, Message: "too many connections"}
	}
	if l.mostPerIP > 0 && l.byIP[from] >= l.mostPerIP {
		return &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: time.Second, Message: "too many connections from your address"}
	}
	l.open++
	if l.mostPerIP > 0 {
		l.byIP[from]++
	}
	return nil
}

func (l *guardedListener) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.mostPerIP > 0 {
		if l.byIP[from]--; l.byIP[from] == 0 {
			delete(l.byIP, from)
		}
	}
}

// turnAway answers without reading. The few bytes fit an empty send buffer, so
// this never holds up the next connection.
func (l *guardedListener) turnAway(c net.Conn, refusal *delivery.Error) {
	if l.speak {
		body := appendRefusal(nil, refusal, "")
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s",
			refusal.Code.HTTPStatus(), refusal.Code, waitSeconds(refusal), strconv.Itoa(len(body)), body)
	}
	_ = c.Close() // the peer learns from the answer, or from this
}

// guardedConn gives its place back when it is closed.
type guardedConn struct {
	net.Conn
	leave func()
	heard bool // the first byte of a request has come; the server's goroutine only
	// bounded: the connection ends once left more bytes have come.
	bounded bool
	left    int
}

var errTooMuch = errors.New("more bytes than the body can need")

func (c *guardedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.bounded {
		if c.left -= n; c.left < 0 {
			return 0, errTooMuch
		}
	}
	return n, err
}

// boundReading lets a connection read at most n further bytes; 0 takes the bound
// away. What has come through no listener of ours has none.
func boundReading(c net.Conn, n int) {
	if g := guarded(c); g != nil {
		g.bounded, g.left = n > 0, n
	}
}

// guarded is the connection below what the server works with; nil for one that
// did not come through the listener.
func guarded(c net.Conn) *guardedConn {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	g, _ := c.(*guardedConn)
	return g
}

// noteFirstByte hears from the server when a connection's first byte has come.
func noteFirstByte(c net.Conn, state fasthttp.ConnState) {
	if state != fasthttp.StateActive {
		return
	}
	if g := guarded(c); g != nil {
		g.heard = true
	}
}

func (c *guardedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
