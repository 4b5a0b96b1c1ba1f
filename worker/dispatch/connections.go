package dispatch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connectionLifetime is how long an endpoint's connections are used. After
	// that its name is looked up again, so that a busy endpoint which has moved
	// is not sent to its old address for ever.
	connectionLifetime = 5 * time.Minute
	// connectionIdle is how long a connection is kept without a request; well
	// below connectionLifetime (see label).
	connectionIdle = time.Minute
	// idleShare and openShare bound the connections of a process, as multiples
	// of the sends that it may have in flight: those without a request, and all.
	idleShare = 2
	openShare = 4
	// sessionsKept is how many hosts' TLS sessions are remembered: for receivers
	// that close after every answer, and once in connectionLifetime for all.
	sessionsKept = 1024

	maxHeaderBytes = 64 << 10
)

// connections keeps each endpoint's connections to itself: endpoints on the same host share none,
// so one that stops reading or never answers takes nothing from the others, neither in HTTP/1.1 nor
// in HTTP/2. That is done by the key under which http.Transport files connections, the host in the
// URL: in front of the real one stands a label of the endpoint's own (see target), which dial takes
// off again. The label changes after connectionLifetime; what belongs to the former one is no
// longer found and ends when it has been idle.
type connections struct {
	*http.Transport
	guard  guard
	dialer net.Dialer
	// dialName is dialer.DialContext; tests put a network of their own in its place.
	dialName func(ctx context.Context, network, address string) (net.Conn, error)
	tls      *tls.Config
	timeout  time.Duration
	lifetime time.Duration
	started  time.Time
	seed     maphash.Seed

	most    int64 // connections that may be open
	open    atomic.Int64
	closing atomic.Bool

	mu       sync.RWMutex
	targets  map[string]*target // by URL
	forgetAt time.Time
}

// target is where the requests of an endpoint go until its label changes.
type target struct {
	url   *url.URL // its Host is <label>.<host>:<port>
	host  string   // for the Host header
	until time.Time
}

func newConnections(g guard, s Settings, roots *x509.CertPool) *connections {
	c := &connections{
		guard:    g,
		timeout:  s.Timeout,
		lifetime: connectionLifetime,
		started:  time.Now(),
		seed:     maphash.MakeSeed(),
		most:     int64(openShare * s.Concurrency),
		dialer: net.Dialer{
			ControlContext:  g.control,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
			// Asks the name servers itself: a look-up holds no thread.
			Resolver: &net.Resolver{PreferGo: true},
		},
		tls: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            roots,
			NextProtos:         []string{"h2", "http/1.1"},
			ClientSessionCache: tls.NewLRUClientSessionCache(sessionsKept),
		},
	}
	c.dialName = c.dialer.DialContext
	c.Transport = &http.Transport{
		Proxy:                  nil,
		DialContext:            c.dial,
		DialTLSContext:         c.dialTLS,
		ForceAttemptHTTP2:      true,
		HTTP2:                  http2Config(s.Timeout),
		MaxIdleConns:           idleShare * s.Concurrency,
		MaxIdleConnsPerHost:    s.Concurrency,
		IdleConnTimeout:        connectionIdle,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return c
}

// http2Config finds a dead connection within three quarters of an attempt's time, so that there is
// some left for a fresh one, and bounds what a receiver can make the worker hold in memory.
func http2Config(timeout time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		SendPingTimeout:               timeout / 2,
		PingTimeout:                   timeout / 4,
		WriteByteTimeout:              timeout / 2,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
		MaxReceiveBufferPerConnection: 1 << 20,
	}
}

// target reads an endpoint's URL, or remembers it.
func (c *connections) target(raw string, now time.Time) (*target, error) {
	c.mu.RLock()
	t := c.targets[raw]
	c.mu.RUnlock()
	if t != nil && now.Before(t.until) {
		return t, nil
	}
	u, err := c.guard.parseURL(raw)
	if err != nil {
		return nil, err
	}
	t = &target{url: u, host: u.Host}
	var label string
	label, t.until = c.label(raw, now)
	u.Host = joinHost(label+"."+u.Hostname(), u.Port())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.targets == nil || now.After(c.forgetAt) {
		c.targets, c.forgetAt = map[string]*target{}, now.Add(c.lifetime)
	}
	c.targets[raw] = t
	return t, nil
}

// label names an endpoint's connections and says how long. It contains no dot. Every endpoint
// changes at a moment of its own, so that not all reconnect at once. Each has two labels in turns:
// when one comes back, its connections have long been idle for too long. More would never be
// forgotten by http.Transport, which keeps an entry for every host that it could not connect to.
// Endpoints with the same label would only share connections.
func (c *connections) label(raw string, now time.Time) (label string, until time.Time) {
	sum := maphash.String(c.seed, raw)
	shift := time.Duration(sum % uint64(c.lifetime))
	period := (now.Sub(c.started) + shift) / c.lifetime
	until = c.started.Add((period+1)*c.lifetime - shift)
	return strconv.FormatUint(sum, 36) + "-" + strconv.Itoa(int(period%2)), until
}

// dial connects to an address of the form <label>.<host>:<port>, within the
// time of an attempt; what is dialled outlives the request that asked for it.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, _, err := c.connect(ctx, network, address)
	return conn, err
}

// dialTLS is dial with a handshake that offers HTTP/2 and verifies the host.
func (c *connections) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, host, err := c.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	reached(ctx, handshaking)
	config := c.tls.Clone()
	config.ServerName = host
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &handshakeError{err}
	}
	reached(ctx, connected)
	return secured, nil
}

// handshakeError is whatever went wrong between the TCP connection and the first request.
type handshakeError struct{ cause error }

func (e *handshakeError) Error() string { return e.cause.Error() }
func (e *handshakeError) Unwrap() error { return e.cause }

func (c *connections) connect(ctx context.Context, network, address string) (conn net.Conn, host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", fmt.Errorf("dial %s: %w", address, err)
	}
	_, host, _ = strings.Cut(host, ".")
	reached(ctx, resolving)
	conn, err = c.dialName(ctx, network, net.JoinHostPort(absolute(host), port))
	if err != nil {
		return nil, "", err
	}
	reached(ctx, connected)
	return c.count(conn), host, nil
}

// absolute ends a domain's name with a dot: vendors' names are looked up as they are and never as
// names of the network that the worker stands in, which the search domains of a cluster would try
// first. A single label, such as the sandbox's localhost, stays what it is.
func absolute(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || strings.IndexByte(host, '.') < 0 {
		return host
	}
	return host + "."
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// count bounds the open connections: http.Transport itself bounds only those of HTTP/1.1 that have
// no request. The bound is beyond what the sends in flight need, so it costs idle connections only.
func (c *connections) count(conn net.Conn) net.Conn {
	if c.open.Add(1) > c.most && c.closing.CompareAndSwap(false, true) {
		go func() {
			defer c.closing.Store(false)
			c.CloseIdleConnections()
		}()
	}
	return &counted{Conn: conn, open: &c.open}
}
