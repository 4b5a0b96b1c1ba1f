package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
)

// writeRefusal answers a connection over a limit without reading, in the envelope where
// fasthttp would in plain text. The few bytes fit an empty send buffer, so this never
// holds up the next connection.
func writeRefusal(c net.Conn, perAddress bool) {
	refusal := &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second, Message: "too many connections"}
	if perAddress {
		refusal.Code, refusal.Message = delivery.CodeRateLimited, "too many connections from your address"
	}

	body := refusal.AppendEnvelope(nil, "")
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nRetry-After: %d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		refusal.Code.HTTPStatus(), refusal.Code, refusal.WaitSeconds(), len(body), body)
}

// guardedConn is a connection within the limits. The server's goroutine alone uses its fields,
// except for lingers: a shutdown closes connections, too.
type guardedConn struct {
	net.Conn
	firstByte bool // of a request has come
	// bounded: the connection ends once left more bytes have come.
	bounded bool
	left    int

	// lingers makes Close read on for a moment: the request that was answered may not have been read
	// to its end.
	lingers    atomic.Bool
	lingerTime time.Duration // how long Close reads on at most
}

const (
	lingerBytes = 256 << 10   // read at most before the connection is closed
	lingerTime  = time.Second // waited at most for them
)

// Close closes the connection. If unread bytes are waiting, the kernel sends a reset instead of a
// normal end, and the reset can overtake the answer: a client that still sends, or a balancer,
// would not learn why it was refused. So Close ends the answer first, and then reads the rest.
func (c *guardedConn) Close() error {
	lingers := c.lingers.Swap(false)
	half, canEndAnswer := c.Conn.(interface{ CloseWrite() error })
	if lingers && canEndAnswer && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(c.lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // whatever comes, the connection is closed
	}
	return c.Conn.Close()
}

// linger is called where part of a request may not have been read. If the server closes the
// connection after its answer, the rest is read first.
func linger(c net.Conn) {
	if g := guarded(c); g != nil {
		g.lingers.Store(true)
	}
}

var errTooMuch = errors.New("more bytes than the body can need")

func (c *guardedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.bounded {
		c.left -= n
		if c.left < 0 {
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

// noteState is called by the server at every change of a connection's state.
func noteState(c net.Conn, state fasthttp.ConnState) {
	g := guarded(c)
	if g == nil {
		return
	}

	if state == fasthttp.StateActive {
		g.firstByte = true
	}

	if state == fasthttp.StateIdle { // the connection is kept: the whole request has been read
		g.lingers.Store(false)
	}
}

// plainLines reports whether every line of a header section ends in CR LF and
// begins with a name without white space. The server also takes a lone LF for an end,
// folded lines, and "X Y" for a name (RFC 9112, sections 2.2, 5.1 and 5.2), where a
// proxy in front may see other headers, a length among them.
func plainLines(section []byte) bool {
	for line := range bytes.Lines(section) {
		name, _, _ := bytes.Cut(line, []byte{':'})
		if !bytes.HasSuffix(line, []byte("\r\n")) || bytes.ContainsAny(name, " \t") {
			return false
		}
	}
	return true
}

// A chunked request may take maxOverhead times its largest body on the wire: a chunk
// of one byte takes six (RFC 9112, section 7.1.1). Of an unwanted body maxUnwanted is
// read to keep the connection.
const (
	maxOverhead = 8
	maxUnwanted = 256 << 10
)

// readChunks reads a chunked body without its trailers.
func (x *requestContext) readChunks(limit int) error {
	body := bytes.NewBuffer(x.body[:0])
	stream := x.ctx.RequestBodyStream()
	_, err := body.ReadFrom(io.LimitReader(stream, int64(limit)+1))
	x.body = body.Bytes()
	switch {
	case len(x.body) > limit:
		x.body = x.body[:0]
		return oversize(limit)
	case err != nil || !ended(stream, x.trailers()):
		x.ctx.SetConnectionClose()
		return delivery.Refuse(delivery.CodeMalformedRequest, "the chunked body is malformed, is cut into too many bytes of framing, or ended or stalled before its last chunk")
	case len(x.body) > 0:
		return x.checkContentType()
	}

	return nil
}

// endChunks reads what is left of a chunked body once the request is answered, and
// reports whether the next request may follow. None may behind trailers: the server
// takes a lone LF for the end of a trailer line, which a proxy in front may not do.
func (x *requestContext) endChunks() bool {
	if x.ctx.Response.ConnectionClose() {
		return false
	}
	stream := x.ctx.RequestBodyStream()
	n, err := io.CopyN(io.Discard, stream, maxUnwanted)
	boundReading(x.ctx.Conn(), 0)
	return n < maxUnwanted && errors.Is(err, io.EOF) && !x.trailers() && ended(stream, false)
}

func (x *requestContext) trailers() bool { return len(x.ctx.Request.Header.PeekTrailerKeys()) > 0 }

// ended reports whether a chunked body that has been read came to its end. The server
// also takes the end of the connection between two chunks for it, and a lone LF in
// place of the empty trailer section. What it really read is in fields of its stream
// that only reflection reaches.
func ended(body io.Reader, trailers bool) bool {
	stream := reflect.ValueOf(body).Elem()
	if !stream.FieldByName("eof").Bool() {
		return false
	}
	buffer := stream.FieldByName("reader").Elem()
	read := buffer.FieldByName("buf").Bytes()[:buffer.FieldByName("r").Int()]
	return trailers || bytes.HasSuffix(read, []byte("\r\n"))
}

// inFlightLimiter bounds the requests in flight, nearly all of them waiting for Redis.
// A longer queue would serve nobody sooner and everybody later.
type inFlightLimiter struct {
	most   int64 // 0: no bound
	inside atomic.Int64
	shed   prometheus.Counter // nil: not counted
}

// enter reports whether it got a place. The caller must call leave after true, and only then.
// A request that gets none is counted as refused.
func (c *inFlightLimiter) enter() bool {
	if c.tryEnter() {
		return true
	}
	if c.shed != nil {
		c.shed.Inc()
	}
	return false
}

// tryEnter is enter for a request that may get a place elsewhere: it counts no refusal.
func (c *inFlightLimiter) tryEnter() bool {
	if c.inside.Add(1) <= c.most || c.most == 0 {
		return true
	}
	c.inside.Add(-1)
	return false
}

func (c *inFlightLimiter) leave() { c.inside.Add(-1) }

// errOverloaded is the answer to one who got none. Nothing was counted or written.
var errOverloaded = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
	Message: "the service is busy; sending the same request again is safe"}

const (
	// maxLogins bounds the logins in work at a gateway that does not remember their secrets, and
	// apart from them the right ones for which the places of requests have no room.
	maxLogins = 32
	// maxAdmin is how many requests of operators are in work; no other kind takes their places.
	maxAdmin = 64
)

func (g *gateway) limiterOf(x *requestContext) *inFlightLimiter {
	switch {
	case x.vendor:
		return g.vendorLimiter
	case x.route.access == adminOnly:
		return g.adminLimiter
	}
	return g.privateLimiter
}

// maxFleetInFlight is how many requests of one fleet are in flight at a gateway, so
// that no fleet keeps the others, or operators, out when Redis is slow.
const maxFleetInFlight = 64

func (g *gateway) fleetLimiter(id delivery.FleetID) *inFlightLimiter {
	if c, there := g.fleetLimiters.Load(id); there {
		return c.(*inFlightLimiter)
	}
	c, _ := g.fleetLimiters.LoadOrStore(id, &inFlightLimiter{most: maxFleetInFlight, shed: g.privateLimiter.shed})
	return c.(*inFlightLimiter)
}

// enterFleet gets a place for a fleet's request and counts it in the fleet's limit of requests a
// second. The caller leaves the limiter that is returned without an error.
func (g *gateway) enterFleet(x *requestContext) (*inFlightLimiter, error) {
	c := g.fleetLimiter(x.fleet)
	if !c.enter() {
		return nil, errOverloaded
	}

	if err := x.ledger.Fleets.Admit(g.work, x.ledger.Fleets.Snapshot().Fleet(x.fleet), x.now); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}
