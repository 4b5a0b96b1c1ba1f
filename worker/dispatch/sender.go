package dispatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	userAgent = "DeliveryVendorAPI-Webhooks/1"
	// answerKept is how many bytes of an answer are read for its record, which has at most
	// delivery.MaxForeignAnswer characters of them (decisions, "Webhooks").
	answerKept = 2 << 10
	// answerDrained is how much more is read to keep the connection.
	answerDrained = 32 << 10
	// answerTimeout bounds the reading of the body; the status alone decides.
	answerTimeout = 2 * time.Second
)

// Classes of a failed attempt.
const (
	classDNS     = "dns"
	classConnect = "connect"
	classTLS     = "tls"
	classTimeout = "timeout"
	classStatus  = "status"
	classAnswer  = "answer" // something came, and it has no status
	classRefused = "refused address"
	classURL     = "url"
)

// Phases of the connection that is dialled for a send.
const (
	kept        uint32 = iota // none is: it has been given one that was there
	resolving                 // its name is being looked up
	connecting                // to an address that the guard allows
	handshaking               // for TLS
	connected
)

// An exchange is what is known of a send before its answer: how far its connection is, and
// what arrived. http.Transport tells it from goroutines of its own.
type exchange struct {
	phase atomic.Uint32

	// conn is the connection that the request was given last; nil for none, or for HTTP/2,
	// whose frames only net/http reads.
	conn atomic.Pointer[watched]
	// isReused is set if that connection has had a request before.
	isReused atomic.Bool
	// answerBegun is set once a byte of an answer has arrived on that connection. A request
	// without an answer may be repeated on a new one, since the kept one may have been stale.
	answerBegun atomic.Bool
	// answerIsOld is set if the bytes that net/http took for the answer arrived before the request
	// was written: on a reused connection they belong to the answer before.
	answerIsOld atomic.Bool

	// wantsNew makes the request refuse every kept connection: http.Transport closes each one that
	// is refused, and dials in the end. It changes only between requests.
	wantsNew bool
}

// exchangeKey is of a send's context: what is dialled on its behalf finds its exchange by it.
type exchangeKey struct{}

// reached notes the phase of the connection that ctx's send waits for.
func reached(ctx context.Context, phase uint32) {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		x.phase.Store(phase)
	}
}

// traced adds to a target's trace what the exchange has to learn.
func (x *exchange) traced(trace httptrace.ClientTrace) *httptrace.ClientTrace {
	trace.GotConn = func(info httptrace.GotConnInfo) {
		conn, _ := info.Conn.(*watched)
		if conn != nil {
			conn.head.begin(x.beginning(info.Reused))
		}
		x.conn.Store(conn)
		x.isReused.Store(info.Reused)
		x.answerBegun.Store(false)
		x.answerIsOld.Store(false)
	}
	trace.GotFirstResponseByte = func() {
		x.answerBegun.Store(true)
		conn := x.conn.Load()
		x.answerIsOld.Store(conn != nil && !conn.head.isAnswering())
	}
	return &trace
}

// beginning returns the state in which a connection is given to the request.
func (x *exchange) beginning(isReused bool) headState {
	switch {
	case !isReused:
		return headStatusLine
	case x.wantsNew:
		return headRemains
	}
	return headBeforeRequest
}

// shouldRepeat reports whether to send the request once more because its kept connection was at
// fault: the receiver had closed it, or what was read there was not the answer to this request,
// with or without an error. http.Transport repeats a request itself only in some of these cases.
func (x *exchange) shouldRepeat(err error) bool {
	isStale := err != nil && x.phase.Load() == kept && !x.answerBegun.Load()
	if isStale {
		return true
	}
	if !x.isReused.Load() || !x.answerBegun.Load() {
		return false
	}
	if x.answerIsOld.Load() {
		return true
	}

	// Remains that arrived behind the request are known only by having no status line. HTTP/2,
	// without a watched connection, has no remains.
	status, _, _ := x.head()
	return err != nil && status == 0 && x.conn.Load() != nil
}

// head returns what can be read of an answer that net/http refuses; a zero status for nothing.
func (x *exchange) head() (status int, retryAfter, beginning string) {
	conn := x.conn.Load()
	if conn == nil {
		return 0, "", ""
	}
	return conn.head.answered()
}

func (t *target) request(ctx context.Context, header http.Header, body []byte) *http.Request {
	// This kind of body is known to http.Transport, which writes it together with the header.
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(body)) // nothing of this is refused
	r.URL, r.Host, r.Header = t.url, t.host, header
	return r
}

// answer is what came of one request: a status, or a failure with its class.
type answer struct {
	status     int
	body       []byte // its first 2 kB
	retryAfter string
	took       time.Duration
	class      string // empty for a 2xx
	detail     string
}

func (a answer) ok() bool { return a.class == "" }

func (s *sender) send(ctx context.Context, url string, header http.Header, body []byte) answer {
	started := time.Now()
	target, err := s.target(url, started)
	if err != nil {
		return answer{class: classURL, detail: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	x := new(exchange)
	ctx = httptrace.WithClientTrace(context.WithValue(ctx, exchangeKey{}, x), x.traced(target.trace))
	resp, err := s.RoundTrip(target.request(ctx, header, body))
	// The repetition is no attempt of its own: the receiver is not to blame for a connection that
	// its restart closed, and may get an event twice.
	if ctx.Err() == nil && x.shouldRepeat(err) {
		if resp != nil {
			resp.Body.Close()
		}
		x.wantsNew = true
		resp, err = s.RoundTrip(target.request(ctx, header, body))
	}
	took := time.Since(started)
	if err != nil {
		return s.refused(ctx, x, err, took)
	}
	defer resp.Body.Close()

	a := judged(resp.StatusCode, resp.Header.Get("Retry-After"))
	a.took = took
	if resp.ContentLength != 0 {
		defer time.AfterFunc(answerTimeout, cancel).Stop()
		a.body = readAnswer(resp.Body)
	}
	return a
}

// judged is an answer as its status decides.
func judged(status int, retryAfter string) answer {
	a := answer{status: status, retryAfter: retryAfter}
	if status < 200 || status > 299 {
		a.class, a.detail = classStatus, strconv.Itoa(status)
	}
	if status >= 300 && status <= 399 {
		a.detail += ", redirects are not followed"
	}
	return a
}

// refused returns the result of a request whose answer net/http refused or never got. A status that was
// read decides as usual, unless the attempt's time ended before the answer's head did.
func (s *sender) refused(ctx context.Context, x *exchange, err error, took time.Duration) answer {
	status, retryAfter, beginning := x.head()
	if status != 0 && !isTimeout(ctx, err) {
		a := judged(status, retryAfter)
		a.took = took
		return a
	}

	class, detail := s.classify(ctx, x.phase.Load(), err)
	if class == classConnect && (x.answerBegun.Load() || breaksHTTP2(err)) {
		class, detail = classAnswer, unreadable(beginning)
	}
	return answer{class: class, detail: detail, took: took}
}

// breaksHTTP2 reports that the answer's fields break a rule of HTTP/2.
func breaksHTTP2(err error) bool {
	stream, ok := errors.AsType[http2.StreamError](err)
	return ok && stream.Code == http2.ErrCodeProtocol
}

// isTimeout reports that the attempt's time is over, or a shorter time of the network's.
func isTimeout(ctx context.Context, err error) bool {
	var network net.Error
	return errors.Is(context.Cause(ctx), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &network) && network.Timeout()
}

var answerBuffers = sync.Pool{New: func() any { return new([answerKept]byte) }}

// readAnswer keeps the beginning and drains a bounded rest. Its failure changes nothing.
func readAnswer(body io.Reader) (kept []byte) {
	buffer := answerBuffers.Get().(*[answerKept]byte)
	defer answerBuffers.Put(buffer)
	n, err := io.ReadFull(body, buffer[:])
	if n > 0 {
		kept = bytes.Clone(buffer[:n])
	}
	if err == nil {
		_, _ = io.CopyN(io.Discard, body, answerDrained)
	}
	return kept
}

// classify discloses nothing to vendors about the network of the worker.
func (s *sender) classify(ctx context.Context, phase uint32, err error) (class, detail string) {
	var (
		refused   refusedAddress
		name      *net.DNSError
		handshake *handshakeError
		operation *net.OpError
	)
	switch {
	case errors.As(err, &refused):
		return classRefused, refused.Error()
	case errors.As(err, &name) && name.IsTimeout:
		return timedOut(resolving, s.timeout)
	case errors.As(err, &name):
		return classDNS, name.Err
	case isTimeout(ctx, err):
		return timedOut(phase, s.timeout)
	case errors.As(err, &handshake):
		if certificate, ok := errors.AsType[*tls.CertificateVerificationError](handshake); ok {
			return classTLS, certificate.Err.Error()
		}
		return classTLS, "handshake failed: " + sanitizeError(handshake)
	case errors.As(err, &operation) && operation.Op == "remote error":
		// In TLS 1.3 a server's alert may follow the client's handshake.
		return classTLS, "handshake failed: " + sanitizeError(err)
	}
	return classConnect, sanitizeError(err)
}

// timedOut is what a send was waiting for when its time was over.
func timedOut(phase uint32, after time.Duration) (class, detail string) {
	class, what := classTimeout, "answer"
	switch phase {
	case resolving:
		class, what = classDNS, "answer from the name servers"
	case connecting:
		what = "connection"
	case handshaking:
		what = "TLS handshake"
	}
	return class, fmt.Sprintf("no %s within %s", what, after)
}

// sanitizeError leaves out a connection's addresses and the names of system calls.
func sanitizeError(err error) string {
	var (
		call      *os.SyscallError
		operation *net.OpError
	)
	switch {
	case errors.As(err, &call):
		return call.Err.Error()
	case errors.As(err, &operation):
		return operation.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	}
	return strings.TrimPrefix(err.Error(), "net/http: HTTP/1.x transport connection broken: ")
}
