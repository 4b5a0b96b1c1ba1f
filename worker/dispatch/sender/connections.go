package sender

import (
	"bufio"
	"context"
	"crypto/tls"
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
	// connectionLifetime is when an endpoint's name is looked up again: a busy one may have moved.
	connectionLifetime = 5 * time.Minute
	// connectionIdle is well below connectionLifetime (see label).
	connectionIdle = time.Minute
	// The most idle and open connections of a process, as multiples of webhook.concurrency.
	idleShare = 2
	openShare = 4
	// sessionsKept bounds the remembered TLS sessions, one for each host.
	sessionsKept = 1024

	maxHeaderBytes = 64 << 10

	// maxLabels bounds the labels without a usable connection in one transport, which never forgets a
	// host that it could not connect to: some 600 bytes each, 40 MB in all. Then a new transport
	// takes over.
	maxLabels = 65_536
)

// Options are what a Sender is made with.
type Options struct {
	// Concurrency is how many requests are in flight at most. The bounds of open and idle connections
	// are multiples of it.
	Concurrency int
	// Timeout is how long a request may take, from the look-up of its name to the answer's status.
	Timeout time.Duration

	// LocalReceivers allows http and this machine's loopback addresses, for development.
	LocalReceivers bool
	// OwnPorts are the loopback ports that stay refused, because what listens there may trust whoever
	// is on this machine.
	OwnPorts []uint16
}

// A Sender makes single requests without redirects, cookies and proxies. Many goroutines may use it at
// once. It keeps each URL's connections apart: an endpoint that never answers takes nothing from others on
// its host. pool and http.Transport file connections by the URL's host, so a label of the URL stands before
// it (target), which connect removes. It changes after connectionLifetime; what belongs to the former label
// ends when idle.
type Sender struct {
	options Options

	// pool has the connections of HTTP/1.1, and transport those of HTTP/2. An earlier transport ends with
	// its requests and, after connectionIdle, with its connections.
	pool      pool
	transport atomic.Pointer[http.Transport]

	guard  guard
	dialer net.Dialer
	// dialName is dialer.DialContext, but in tests.
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
	// labels are those for which the transport wanted a connection, but has had none since then. It keeps
	// memory for each.
	labels    map[string]struct{}
	maxLabels int // the most labels; maxLabels, but tests lower it
}

// target is where the requests of an endpoint go until its label changes.
type target struct {
	url   *url.URL // its Host is <label>.<host>:<port>
	host  string   // for the Host header
	path  string   // with the query
	until time.Time

	isHTTP2 atomic.Bool // the receiver has chosen it, so that http.Transport has its connections
}

func (t *target) method() string { return http.MethodPost }

// New returns a sender. CloseIdleConnections ends what it keeps.
func New(o Options) *Sender {
	g := guard{local: o.LocalReceivers, own: o.OwnPorts}
	s := &Sender{
		guard:    g,
		options:  o,
		timeout:  o.Timeout,
		lifetime: connectionLifetime,
		started:  time.Now(),
		seed:     maphash.MakeSeed(),
		most:     int64(openShare * o.Concurrency),
		labels:   make(map[string]struct{}), maxLabels: maxLabels,
		dialer: net.Dialer{
			ControlContext:  g.control,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
			// Asks the name servers itself: a look-up holds no thread.
			Resolver: &net.Resolver{PreferGo: true},
		},
		tls: receiversTLS(),
	}

	s.pool = pool{maxIdle: idleShare * o.Concurrency, perURL: o.Concurrency, timeout: connectionIdle}
	s.dialName = s.dialer.DialContext
	s.transport.Store(s.newTransport())

	return s
}

// CloseIdleConnections closes the connections that no request uses.
func (s *Sender) CloseIdleConnections() {
	s.pool.closeIdle()
	s.transport.Load().CloseIdleConnections()
}

// OpenConnections returns how many connections to receivers are open.
func (s *Sender) OpenConnections() int64 { return s.open.Load() }

func (s *Sender) target(raw string, now time.Time) (*target, error) {
	s.mu.RLock()
	t := s.targets[raw]
	s.mu.RUnlock()
	if t != nil && now.Before(t.until) {
		return t, nil
	}

	u, err := s.guard.parseURL(raw)
	if err != nil {
		return nil, err
	}

	t = &target{url: u, host: u.Host, path: u.RequestURI()}
	var label string
	label, t.until = s.label(raw, now)
	u.Host = joinHost(label+"."+u.Hostname(), u.Port())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.targets == nil || now.After(s.forgetAt) {
		s.targets, s.forgetAt = map[string]*target{}, now.Add(s.lifetime)
	}

	s.targets[raw] = t

	return t, nil
}

// unsettled adds to labels one for which the transport got no connection. If there are maxLabels already, a
// new transport takes over and labels starts empty; requests in flight end in the transport in
// which they began. Endpoints whose connections can be reused do not count, however many they are.
func (s *Sender) unsettled(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.labels) >= s.maxLabels {
		clear(s.labels)
		former := s.transport.Swap(s.newTransport())
		former.CloseIdleConnections()
	}

	s.labels[label] = struct{}{}
}

// settled removes from labels one that has got a connection: with it the transport frees what it kept for
// the label.
func (s *Sender) settled(label string) {
	s.mu.RLock()
	_, noted := s.labels[label]
	s.mu.RUnlock()
	if !noted {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.labels, label)
}

// label names the connections of an endpoint's URL, without a dot, and until when. URLs change it at
// different times, so that not all reconnect at once. Each has two in turns: http.Transport never
// forgets a host that it could not connect to. Endpoints with the same label would only share
// connections.
func (s *Sender) label(raw string, now time.Time) (label string, until time.Time) {
	sum := maphash.String(s.seed, raw)
	shift := time.Duration(sum % uint64(s.lifetime))
	period := (now.Sub(s.started) + shift) / s.lifetime
	until = s.started.Add((period+1)*s.lifetime - shift)
	return strconv.FormatUint(sum, 36) + "-" + strconv.Itoa(int(period%2)), until
}

// dialHTTP2 gives http.Transport the connection that was dialled for a request, or dials another one.
func (s *Sender) dialHTTP2(ctx context.Context, _, address string) (net.Conn, error) {
	label, _, _ := strings.Cut(address, ".")
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		if dialled := x.dialled.Swap(nil); dialled != nil {
			s.settled(label)
			return dialled, nil
		}
	}

	c, multiplexed, err := s.connect(ctx, true, address)
	if c != nil {
		c.Close()
		err = errNotHTTP2
	}

	if err != nil {
		s.unsettled(label)
		return nil, err
	}

	s.settled(label)

	return multiplexed, nil
}

// connect connects to <label>.<host>:<port> within the time of an attempt. With TLS the handshake offers
// HTTP/2 and verifies the host. It returns a connection of HTTP/1.1, or of HTTP/2, or an error.
func (s *Sender) connect(ctx context.Context, secure bool, address string) (*connection, *tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	host, port, err := net.SplitHostPort(withPort(address, secure))
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", address, err)
	}

	_, host, _ = strings.Cut(host, ".")

	reached(ctx, resolving)
	conn, err := s.dialName(ctx, "tcp", net.JoinHostPort(absolute(host), port))
	if err != nil {
		return nil, nil, err
	}

	reached(ctx, connected)
	socket := socketOf(conn)
	conn = s.count(conn)
	if !secure {
		return &connection{Conn: conn, socket: socket}, nil, nil
	}

	reached(ctx, handshaking)
	config := s.tls.Clone()
	config.ServerName = host
	under := &below{Conn: conn, reader: bufio.NewReaderSize(conn, readBuffer)}
	secured := tls.Client(under, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, nil, &handshakeError{err}
	}

	reached(ctx, connected)
	if secured.ConnectionState().NegotiatedProtocol == "h2" {
		under.isFree = true
		return nil, secured, nil // http.Transport wants this type for HTTP/2
	}

	return &connection{Conn: secured, below: under, socket: socket}, nil, nil
}

// withPort adds the scheme's port to an address that has none.
func withPort(address string, secure bool) string {
	if strings.LastIndexByte(address, ':') > strings.LastIndexByte(address, ']') {
		return address
	}

	port := "80"
	if secure {
		port = "443"
	}
	return address + ":" + port
}

// handshakeError is a failure between the TCP connection and the first request.
type handshakeError struct{ error }

func (e *handshakeError) Unwrap() error { return e.error }

// absolute ends a domain's name with a dot, so that it is not looked up in the search domains of
// the worker's network. A single label, such as localhost, stays what it is.
func absolute(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || strings.IndexByte(host, '.') < 0 {
		return host
	}
	return host + "."
}

type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// count bounds the open connections: pool bounds only the idle ones of HTTP/1.1.
func (s *Sender) count(conn net.Conn) net.Conn {
	if s.open.Add(1) > s.most && s.closing.CompareAndSwap(false, true) {
		go func() {
			defer s.closing.Store(false)
			s.CloseIdleConnections()
		}()
	}
	return &counted{Conn: conn, open: &s.open}
}
