// Package sender is the HTTP client of the webhooks. Its one operation, Sender.Send, posts a request to a
// URL that somebody outside has chosen, and says what came of it. It promises:
//
//   - One request. Redirects are not followed, cookies are not kept, and no proxy is asked, whatever the
//     environment says. A request is sent twice only if its kept connection was at fault: once more, on a
//     new connection.
//   - Guarded addresses. Only public addresses are dialled, whatever a name resolves to. They are checked
//     after the look-up, at every connection. Options can allow this machine, for development.
//   - Connections for each URL. An endpoint that never answers takes nothing from others, on the same host
//     too. A connection is used for some five minutes, so that a name that has moved is looked up again.
//   - The status line decides. What follows it, however ill-formed, turns no success into a failure, and no
//     failure into a success.
//   - Bounded reading. Of an answer little is read and less is kept, in bounded time.
//
// A request goes over HTTP/2 if the receiver offers it, and over HTTP/1.1 otherwise:
//
//	Send -- Request --> exchange --> http.Transport --> guard --> TLS --> watched --> receiver
//	Send <-- Answer --- exchange <-- http.Transport <------------------- answerHead <----+
package sender

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
	// answerKept is how many bytes of an answer are read for its record, which has at most
	// delivery.MaxForeignAnswer characters of them (decisions, "Webhooks").
	answerKept = 2 << 10
	// answerDrained is how much more is read to keep the connection.
	answerDrained = 32 << 10
	// answerTimeout bounds the reading of the body; the status alone decides.
	answerTimeout = 2 * time.Second
)

// Classes of failures.
const (
	ClassDNS     = "dns"
	ClassConnect = "connect"
	ClassTLS     = "tls"
	ClassTimeout = "timeout"
	ClassStatus  = "status"
	ClassAnswer  = "answer" // something came, and it has no status
	ClassRefused = "refused address"
	ClassURL     = "url"
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
	// isAllowed is the request's MayBegin, cancel ends the request, and isNotBegun is set once isAllowed
	// has returned false. See mayBegin.
	isAllowed  func() bool
	cancel     context.CancelFunc
	isNotBegun atomic.Bool

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

	// multiplexed is below the connection of HTTP/2 that the request was given last; nil for none.
	multiplexed atomic.Pointer[breakable]
	// hasBegun is set once the request's header is being written to it.
	hasBegun atomic.Bool

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
			conn.starting.Store(x)
		}
		x.conn.Store(conn)
		x.isReused.Store(info.Reused)
		x.answerBegun.Store(false)
		x.answerIsOld.Store(false)
		x.multiplexed.Store(breakableBelow(info.Conn))
		x.hasBegun.Store(false)
		if x.multiplexed.Load() != nil {
			x.mayBegin()
		}
	}
	trace.WroteHeaderField = x.wroteHeaderField
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

// A Request is one webhook.
type Request struct {
	URL string
	// Header is sent as it is spelled, and is not nil. Nothing may change it before Send returns.
	Header http.Header
	Body   []byte

	// MayBegin is asked whether the request may begin: before anything is done for it, and again as the last
	// thing before its first byte is written, on whichever connection, the repetition included. So what forbids the
	// request while its name is looked up, its connection dialled or its handshake made keeps it from
	// leaving. It must not block. Nil allows it.
	MayBegin func() bool
}

// An Answer is what came of one request: a status, or a failure with its class.
type Answer struct {
	Status     int    // 0 if there was none
	Body       []byte // its first 2 kB
	RetryAfter string // the header's value

	// Took is the time from the look-up of the name to the status, or to the failure.
	Took time.Duration

	Class  string // empty for a 2xx
	Detail string // says what failed; it may quote a little of what the receiver has sent

	// NotBegun is set if MayBegin has forbidden the request: nothing of it was sent, and nothing else is set.
	// There are two exceptions, in which it is unknown whether the receiver has the request: MayBegin has
	// forbidden the repetition of a request whose kept connection was at fault, or it has forbidden another
	// request at the last moment, which has cost this one its connection of HTTP/2. In no case has the
	// receiver failed.
	NotBegun bool
}

// OK reports that the receiver has answered a 2xx.
func (a Answer) OK() bool { return a.Class == "" && !a.NotBegun }

// Send posts a request and waits for the status of its answer, at most for the sender's timeout. If ctx
// ends before, so does the request; then it is unknown whether it has arrived.
func (s *Sender) Send(ctx context.Context, request Request) Answer {
	if request.MayBegin != nil && !request.MayBegin() {
		return Answer{NotBegun: true}
	}
	started := time.Now()
	target, err := s.target(request.URL, started)
	if err != nil {
		return Answer{Class: ClassURL, Detail: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	x := &exchange{isAllowed: request.MayBegin, cancel: cancel}
	ctx = httptrace.WithClientTrace(context.WithValue(ctx, exchangeKey{}, x), x.traced(target.trace))
	resp, err := s.roundTrip(target.request(ctx, request.Header, request.Body))
	// The repetition is no attempt of its own: the receiver is not to blame for a connection that
	// its restart closed, and may get an event twice.
	if ctx.Err() == nil && x.shouldRepeat(err) {
		if resp != nil {
			resp.Body.Close()
		}
		x.wantsNew = true
		resp, err = s.roundTrip(target.request(ctx, request.Header, request.Body))
	}
	took := time.Since(started)
	if err != nil && x.isCutOff() {
		return Answer{NotBegun: true}
	}
	if err != nil {
		return s.refused(ctx, x, err, took)
	}
	defer resp.Body.Close()

	a := judged(resp.StatusCode, resp.Header.Get("Retry-After"))
	a.Took = took
	if resp.ContentLength != 0 {
		defer time.AfterFunc(answerTimeout, cancel).Stop()
		a.Body = readAnswer(resp.Body)
	}
	return a
}

// judged is an answer as its status decides.
func judged(status int, retryAfter string) Answer {
	a := Answer{Status: status, RetryAfter: retryAfter}
	if status < 200 || status > 299 {
		a.Class, a.Detail = ClassStatus, strconv.Itoa(status)
	}
	if status >= 300 && status <= 399 {
		a.Detail += ", redirects are not followed"
	}
	return a
}

// refused returns the result of a request whose answer net/http refused or never got. A status that was
// read decides as usual, unless the attempt's time ended before the answer's head did.
func (s *Sender) refused(ctx context.Context, x *exchange, err error, took time.Duration) Answer {
	status, retryAfter, beginning := x.head()
	if status != 0 && !isTimeout(ctx, err) {
		a := judged(status, retryAfter)
		a.Took = took
		return a
	}

	class, detail := s.classify(ctx, x.phase.Load(), err)
	if class == ClassConnect && (x.answerBegun.Load() || breaksHTTP2(err)) {
		class, detail = ClassAnswer, unreadable(beginning)
	}
	return Answer{Class: class, Detail: detail, Took: took}
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
func (s *Sender) classify(ctx context.Context, phase uint32, err error) (class, detail string) {
	var (
		refused   refusedAddress
		name      *net.DNSError
		handshake *handshakeError
		operation *net.OpError
	)
	switch {
	case errors.As(err, &refused):
		return ClassRefused, refused.Error()
	case errors.As(err, &name) && name.IsTimeout:
		return timedOut(resolving, s.timeout)
	case errors.As(err, &name):
		return ClassDNS, name.Err
	case isTimeout(ctx, err):
		return timedOut(phase, s.timeout)
	case errors.As(err, &handshake):
		if certificate, ok := errors.AsType[*tls.CertificateVerificationError](handshake); ok {
			return ClassTLS, certificate.Err.Error()
		}
		return ClassTLS, "handshake failed: " + sanitizeError(handshake)
	case errors.As(err, &operation) && operation.Op == "remote error":
		// In TLS 1.3 a server's alert may follow the client's handshake.
		return ClassTLS, "handshake failed: " + sanitizeError(err)
	}
	return ClassConnect, sanitizeError(err)
}

// timedOut is what a send was waiting for when its time was over.
func timedOut(phase uint32, after time.Duration) (class, detail string) {
	class, what := ClassTimeout, "answer"
	switch phase {
	case resolving:
		class, what = ClassDNS, "answer from the name servers"
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
