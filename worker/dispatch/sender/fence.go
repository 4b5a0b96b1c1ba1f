package sender

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
)

// errNotBegun is why nothing of a request is written: its MayBegin has forbidden it.
var errNotBegun = errors.New("the request may not begin")

// mayBegin reports whether the request may begin now. If not, the request ends, so that http.Transport
// neither takes another connection for it nor dials one.
func (x *exchange) mayBegin() bool {
	if x.isAllowed == nil || x.isAllowed() {
		return true
	}
	x.isNotBegun.Store(true)
	x.cancel()
	return false
}

// How MayBegin is asked as the last thing before a request's first byte.
//
// Over HTTP/1.1 the connection itself asks, in the Write that begins the request (watched). A refusal is
// that Write's error, and http.Transport closes the connection.
//
// Over HTTP/2 a connection cannot tell the requests that it carries, since it is below TLS. So MayBegin is
// asked twice:
//
//   - When the request has its connection. A refusal cancels its context, which http.Transport looks at
//     once more under the lock of the connection's writer, before it writes anything of the request. The
//     connection and its other requests go on.
//   - Under that lock, when the first field of the request's header is being encoded. This is the last
//     thing before its frames are written, after the request has waited for a stream and for the writer.
//     Nothing can be taken back there, so a refusal breaks the connection below TLS, and the Write of these
//     frames fails. It cuts off the other requests on it. They are of the same URL, and nothing is known of
//     them then (Answer.NotBegun).
//
// Between that and the kernel there is the encryption of a record, and no more.

// wroteHeaderField is httptrace.ClientTrace.WroteHeaderField. http.Transport calls it with the lock of
// an HTTP/2 connection's writer, before it writes the header.
func (x *exchange) wroteHeaderField(string, []string) {
	conn := x.multiplexed.Load()
	if conn == nil || x.hasBegun.Swap(true) {
		return
	}
	if !x.mayBegin() {
		conn.isBroken.Store(true)
	}
}

// isCutOff reports that nothing is known of a request that has failed, because it was not begun, or
// because another one on its connection was not.
func (x *exchange) isCutOff() bool {
	conn := x.multiplexed.Load()
	return x.isNotBegun.Load() || conn != nil && conn.isBroken.Load()
}

// breakable is a connection below TLS that can be made to write nothing more.
type breakable struct {
	net.Conn
	isBroken atomic.Bool
}

func (b *breakable) Write(p []byte) (int, error) {
	if b.isBroken.Load() {
		return 0, errNotBegun
	}
	return b.Conn.Write(p)
}

// breakableBelow returns the connection below TLS; nil for one without TLS.
func breakableBelow(conn net.Conn) *breakable {
	secured, isTLS := conn.(*tls.Conn)
	if !isTLS {
		return nil
	}
	below, _ := secured.NetConn().(*breakable)
	return below
}
