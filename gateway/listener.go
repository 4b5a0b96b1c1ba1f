package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
)

// guardedListener answers connections over its limits itself, in the envelope where
// fasthttp would in plain text, and wraps the others.
type guardedListener struct{ *service.Listener }

// newGuardedListener puts limits on a listener. A refusal is written unless secure:
// it could only be sent after a handshake.
func newGuardedListener(l net.Listener, s *listenerSettings, secure bool, refused func()) net.Listener {
	return guardedListener{service.NewListener(l, service.Limits{
		Connections: s.MaxConnections, PerAddress: s.MaxConnectionsPerIP,
		Refused: func(c net.Conn, perAddress bool) {
			refused()
			if !secure {
				writeRefusal(c, perAddress)
			}
		},
	})}
}

// Accept implements net.Listener.
func (l guardedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guardedConn{Conn: c}, nil
}

// writeRefusal answers a connection without reading. The few bytes fit an empty send
// buffer, so this never holds up the next connection.
func writeRefusal(c net.Conn, perAddress bool) {
	refusal := &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second, Message: "too many connections"}
	if perAddress {
		refusal.Code, refusal.Message = delivery.CodeRateLimited, "too many connections from your address"
	}
	body := appendRefusal(nil, refusal, "")
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		refusal.Code.HTTPStatus(), refusal.Code, waitSeconds(refusal), len(body), body)
}

// guardedConn is a connection of a guardedListener. The server's goroutine alone uses
// its fields.
type guardedConn struct {
	net.Conn
	firstByte bool // of a request has come
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

// boundReading lets a connection read at most n further bytes; 0 removes the bound.
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

// noteFirstByte is called by the server at every change of a connection's state.
func noteFirstByte(c net.Conn, state fasthttp.ConnState) {
	if g := guarded(c); g != nil && state == fasthttp.StateActive {
		g.firstByte = true
	}
}
