// Package sender is the HTTP client of the webhooks. Its one operation, Sender.Send, posts a request to a
// URL that somebody outside has chosen, and returns the answer. It promises:
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
//	Send --> pool, or connect: guard, TLS --> connection, HTTP/1.1 ------> receiver
//	                                     \--> http.Transport, HTTP/2 -----> receiver
//
// HTTP/1.1 is spoken by this package itself, in the goroutine of Send: net/http takes three times as much of the
// processor for it, and refuses answers whose status is plain.
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
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
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

// An exchange is what is known of a send before its answer. http.Transport tells it about HTTP/2 from
// goroutines of its own.
type exchange struct {
	// isAllowed is the request's MayBegin, and isNotBegun is set once it has returned false. See mayBegin.
	isAllowed  func() bool
	isNotBegun atomic.Bool

	phase atomic.Uint32

	// What follows is of HTTP/2. cancel ends the request; nil over HTTP/1.1.
	cancel context.CancelFunc
	// dialled is a connection for the request that http.Transport has not asked for yet.
	dialled atomic.Pointer[tls.Conn]
	// multiplexed is below the connection that the request was given last; nil for none.
	multiplexed atomic.Pointer[below]
	// hasBegun is set once the request's header is being written to it.
	hasBegun atomic.Bool
	// answerBegun is set once something of an answer has arrived on it.
	answerBegun atomic.Bool
}

// exchangeKey is of a send's context: what is dialled on its behalf finds its exchange by it.
type exchangeKey struct{}

// reached notes the phase of the connection that ctx's send waits for.
func reached(ctx context.Context, phase uint32) {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		x.phase.Store(phase)
	}
}

// A Request is one webhook.
type Request struct {
	URL string
	// Header is sent as it is spelled, and is not nil. Nothing may change it before Send returns.
	Header http.Header
	Body   []byte

	// MayBegin is asked whether the request may begin: before anything is done for it, and again as the last
	// thing before its first byte is written, on whichever connection, the repetition included. So what
	// forbids the request while its name is looked up, its connection dialled or its handshake made keeps it
	// from leaving. It must not block. Nil allows it.
	MayBegin func() bool
}

// An Answer is the result of one request: a status, or a failure with its class.
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

	x := &exchange{isAllowed: request.MayBegin}
	deadline := started.Add(s.timeout)

	if c := s.pool.take(target.url.Host); c != nil {
		o := s.useConnection(ctx, x, target, request, c, deadline)
		// The repetition is no attempt of its own: the receiver is not to blame for a connection that
		// its restart closed, and may get an event twice.
		isConnectionsFault := o.hasNoStatus() && !x.isNotBegun.Load()
		hasTime := ctx.Err() == nil && time.Now().Before(deadline)
		if !isConnectionsFault || !hasTime {
			return s.answer(ctx, x, o, started)
		}
	}

	ctx, cancel := context.WithDeadline(context.WithValue(ctx, exchangeKey{}, x), deadline)
	defer cancel()
	if target.isHTTP2.Load() {
		answer, err := s.sendHTTP2(ctx, cancel, x, target, request, started)
		if !errors.Is(err, errNotHTTP2) {
			return answer
		}
		target.isHTTP2.Store(false) // the receiver has changed
	}

	c, multiplexed, err := s.connect(ctx, target.url.Scheme == "https", target.url.Host)
	if err != nil {
		return s.failure(ctx, x, err, time.Since(started))
	}

	if multiplexed != nil {
		target.isHTTP2.Store(true)
		x.dialled.Store(multiplexed)
		answer, _ := s.sendHTTP2(ctx, cancel, x, target, request, started)
		return answer
	}

	return s.answer(ctx, x, s.useConnection(ctx, x, target, request, c, deadline), started)
}

// useConnection sends a request over a connection, which is kept or closed then.
func (s *Sender) useConnection(ctx context.Context, x *exchange, t *target, request Request, c *connection, deadline time.Time) outcome {
	o := c.roundTrip(ctx, x, t, request, deadline)
	if o.isKept {
		s.pool.put(t.url.Host, c)
	} else {
		c.Close()
	}
	return o
}

// hasNoStatus reports that a request has brought no status: the receiver had closed its connection, or what was
// read there was not the answer to it.
func (o *outcome) hasNoStatus() bool {
	return o.answer.Status == 0 && !errors.Is(o.err, errInvalidHeader)
}

// answer returns what an outcome means.
func (s *Sender) answer(ctx context.Context, x *exchange, o outcome, started time.Time) Answer {
	took := time.Since(started)
	if x.isNotBegun.Load() {
		return Answer{NotBegun: true}
	}

	// A status decides, unless the attempt's time ended before the answer's head did.
	hasStatus := o.answer.Status != 0
	if hasStatus && (o.err == nil || !isTimeout(ctx, o.err)) {
		o.answer.Took = took
		if !o.statusAt.IsZero() {
			o.answer.Took = o.statusAt.Sub(started)
		}
		return o.answer
	}

	class, detail := s.classify(ctx, x.phase.Load(), o.err)
	if class == ClassConnect && o.hasBegun {
		class, detail = ClassAnswer, unreadable(o.beginning)
	}

	return Answer{Class: class, Detail: detail, Took: took}
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
	case isAlert(err): // in TLS 1.3 a server's may follow the client's handshake
		return ClassTLS, "handshake failed: " + sanitizeError(err)
	}

	return ClassConnect, sanitizeError(err)
}

// isAlert reports that the receiver has sent an alert of TLS.
func isAlert(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "remote error"
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

	return err.Error()
}
