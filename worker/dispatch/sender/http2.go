package sender

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"golang.org/x/net/http2"
)

// errNotHTTP2 is why http.Transport gets no connection: the receiver offers HTTP/1.1 alone.
var errNotHTTP2 = errors.New("the receiver offers no HTTP/2")

// newTransport returns the client of HTTP/2. It is given no other connections.
func (s *Sender) newTransport() *http.Transport {
	return &http.Transport{
		Proxy: nil,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errNotHTTP2
		},
		DialTLSContext:         s.dialHTTP2,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           idleShare * s.options.Concurrency,
		MaxIdleConnsPerHost:    s.options.Concurrency,
		IdleConnTimeout:        connectionIdle,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		// Finds a dead connection within three quarters of an attempt's time, and bounds the memory
		// that a receiver can use.
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:               s.options.Timeout / 2,
			PingTimeout:                   s.options.Timeout / 4,
			WriteByteTimeout:              s.options.Timeout / 2,
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
		},
	}
}

// sendHTTP2 sends a request by http.Transport, and repeats it once if its kept connection was at fault. The error is
// nil or errNotHTTP2.
func (s *Sender) sendHTTP2(ctx context.Context, cancel context.CancelFunc, x *exchange, t *target, request Request, started time.Time) (Answer, error) {
	x.cancel = cancel
	defer func() {
		if unused := x.dialled.Swap(nil); unused != nil {
			unused.Close()
		}
	}()

	ctx = httptrace.WithClientTrace(ctx, x.trace())
	resp, err := s.transport.Load().RoundTrip(t.request(ctx, request.Header, request.Body))
	isStale := err != nil && x.phase.Load() == kept && !x.answerBegun.Load()
	if isStale && ctx.Err() == nil {
		resp, err = s.transport.Load().RoundTrip(t.request(ctx, request.Header, request.Body))
	}

	took := time.Since(started)
	if err != nil && x.isCutOff() {
		return Answer{NotBegun: true}, nil
	}

	if errors.Is(err, errNotHTTP2) {
		return Answer{}, errNotHTTP2
	}

	if err != nil {
		return s.failure(ctx, x, err, took), nil
	}
	defer resp.Body.Close()

	a := judged(resp.StatusCode, resp.Header.Get("Retry-After"))
	a.Took = took
	if resp.ContentLength != 0 {
		defer time.AfterFunc(answerTimeout, cancel).Stop()
		a.Body = readAnswer(resp.Body)
	}

	return a, nil
}

// failure returns the result of a request that got no connection, or no answer over HTTP/2.
func (s *Sender) failure(ctx context.Context, x *exchange, err error, took time.Duration) Answer {
	class, detail := s.classify(ctx, x.phase.Load(), err)
	if class == ClassConnect && (x.answerBegun.Load() || breaksHTTP2(err)) {
		class, detail = ClassAnswer, unreadable("")
	}
	return Answer{Class: class, Detail: detail, Took: took}
}

// trace returns how http.Transport tells the exchange about the request.
func (x *exchange) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			x.answerBegun.Store(false)
			x.hasBegun.Store(false)
			x.multiplexed.Store(belowOf(info.Conn))
			x.mayBegin()
		},
		WroteHeaderField:     x.wroteHeaderField,
		GotFirstResponseByte: func() { x.answerBegun.Store(true) },
	}
}

func (t *target) request(ctx context.Context, header http.Header, body []byte) *http.Request {
	// This kind of body is known to http.Transport, which writes it together with the header.
	r, _ := http.NewRequestWithContext(ctx, t.method(), "", bytes.NewReader(body)) // nothing of this is refused
	r.URL, r.Host, r.Header = t.url, t.host, header
	return r
}

// breaksHTTP2 reports that the answer's fields break a rule of HTTP/2.
func breaksHTTP2(err error) bool {
	stream, ok := errors.AsType[http2.StreamError](err)
	return ok && stream.Code == http2.ErrCodeProtocol
}
