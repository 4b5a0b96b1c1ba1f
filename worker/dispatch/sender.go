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
)

const (
	userAgent = "DeliveryVendorAPI-Webhooks/1"
	// answerKept is how many bytes of an answer are read for its record, which has at most
	// delivery.MaxForeignAnswer characters of them (design section 7).
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

// phaseKey is of a send's context: what is dialled on its behalf finds its phase by it.
type phaseKey struct{}

// reached notes the phase of the connection that ctx's send waits for.
func reached(ctx context.Context, phase uint32) {
	if p, ok := ctx.Value(phaseKey{}).(*atomic.Uint32); ok {
		p.Store(phase)
	}
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
	phase := new(atomic.Uint32)
	ctx = httptrace.WithClientTrace(context.WithValue(ctx, phaseKey{}, phase), target.trace)
	resp, err := s.RoundTrip(target.request(ctx, header, body))
	// A kept connection may be stale, which a receiver's restart ends: the request may be repeated.
	// http.Transport does that itself for HTTP/1.1 only.
	if err != nil && phase.Load() == kept && ctx.Err() == nil {
		resp, err = s.RoundTrip(target.request(ctx, header, body))
	}
	took := time.Since(started)
	if err != nil {
		class, detail := s.classify(ctx, phase.Load(), err)
		return answer{class: class, detail: detail, took: took}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, took: took, retryAfter: resp.Header.Get("Retry-After")}
	if a.status < 200 || a.status > 299 {
		a.class, a.detail = classStatus, strconv.Itoa(a.status)
		if a.status >= 300 && a.status <= 399 {
			a.detail += ", redirects are not followed"
		}
	}
	if resp.ContentLength != 0 {
		defer time.AfterFunc(answerTimeout, cancel).Stop()
		a.body = readAnswer(resp.Body)
	}
	return a
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
		network   net.Error
		operation *net.OpError
	)
	switch {
	case errors.As(err, &refused):
		return classRefused, refused.Error()
	case errors.As(err, &name) && name.IsTimeout:
		return timedOut(resolving, s.timeout)
	case errors.As(err, &name):
		return classDNS, name.Err
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
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
