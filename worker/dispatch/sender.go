package dispatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	userAgent = "DeliveryVendorAPI-Webhooks/1"
	// answerKept is how much of an answer is recorded (design section 7).
	answerKept = 2 << 10
	// answerDrained is how much more is read to keep the connection; a longer
	// answer costs its sender the connection.
	answerDrained = 32 << 10
	// answerPatience is how long an answer's body may take once its status is
	// known; the status alone decides.
	answerPatience = 2 * time.Second
	maxHeaderBytes = 64 << 10
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

// sender makes single requests. It follows no redirect, keeps no cookie and
// asks no proxy: it uses the transport alone.
type sender struct {
	guard     guard
	transport *http.Transport
	timeout   time.Duration
}

func newSender(g guard, s Settings, roots *x509.CertPool) *sender {
	dialer := &net.Dialer{
		Timeout: s.Timeout,
		Control: g.control,
		// The system's resolver would read 0x7f.1 as a number; this one asks
		// the name server. The guard judges what comes of it either way.
		Resolver: &net.Resolver{PreferGo: true},
	}
	return &sender{
		guard:   g,
		timeout: s.Timeout,
		transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout:    s.Timeout,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
			MaxIdleConns:           s.Concurrency,
			MaxIdleConnsPerHost:    s.PerEndpoint,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}
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

// send posts body to url and waits for the answer, for at most the timeout.
func (s *sender) send(ctx context.Context, url string, header http.Header, body []byte) answer {
	started := time.Now()
	target, err := s.guard.parseURL(url)
	if err != nil {
		return answer{class: classURL, detail: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return answer{class: classURL, detail: "not a URL"}
	}
	req.Header = header
	resp, err := s.transport.RoundTrip(req)
	took := time.Since(started)
	if err != nil {
		class, detail := s.classify(err)
		return answer{class: class, detail: detail, took: took}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, took: took, retryAfter: resp.Header.Get("Retry-After")}
	if a.status < 200 || a.status > 299 {
		a.class, a.detail = classStatus, statusDetail(a.status)
	}
	patience := time.AfterFunc(answerPatience, cancel)
	defer patience.Stop()
	a.body = readAnswer(resp.Body)
	return a
}

// readAnswer keeps the beginning and reads a bounded rest, so that the
// connection can be used again. What goes wrong here changes nothing: the
// status has been received.
func readAnswer(body io.Reader) []byte {
	kept, err := io.ReadAll(io.LimitReader(body, answerKept))
	if err == nil {
		_, _ = io.CopyN(io.Discard, body, answerDrained)
	}
	return kept
}

func statusDetail(status int) string {
	if status >= 300 && status <= 399 {
		return fmt.Sprintf("%d, redirects are not followed", status)
	}
	return fmt.Sprintf("%d", status)
}

// classify names what failed, in words that tell a vendor nothing about the
// network the worker stands in.
func (s *sender) classify(err error) (class, detail string) {
	var (
		refused     *refusedAddress
		name        *net.DNSError
		network     net.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
		operation   *net.OpError
	)
	switch {
	case errors.As(err, &refused):
		return classRefused, refused.Error()
	case errors.As(err, &name):
		return classDNS, name.Err
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return classTimeout, fmt.Sprintf("no answer within %s", s.timeout)
	case errors.As(err, &certificate):
		return classTLS, certificate.Err.Error()
	case errors.As(err, &record), errors.As(err, &alert), errors.Is(err, http.ErrSchemeMismatch):
		return classTLS, "handshake failed: " + err.Error()
	case errors.As(err, &operation):
		return classConnect, operation.Err.Error()
	}
	return classConnect, err.Error()
}
