package sender

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// record is what a name server answers for a name.
type record struct {
	addresses []netip.Addr
	alias     string // a CNAME, sent before the addresses, which are the alias's then
	code      dnsmessage.RCode
	silent    bool // never answers
	long      bool // answers over TCP only, as when it is too long for UDP
}

func addresses(texts ...string) record {
	var r record
	for _, text := range texts {
		r.addresses = append(r.addresses, netip.MustParseAddr(text))
	}
	return r
}

// nameServer is a real name server on loopback, over UDP and TCP, whose answers
// are up to the test.
type nameServer struct {
	addr string
	mu   sync.Mutex
	// answer is asked for every query; asked counts the earlier ones of the same
	// name and type.
	answer func(name string, asked int) record
	asked  map[string]int
}

func newNameServer(t *testing.T, answer func(name string, asked int) record) *nameServer {
	t.Helper()
	udp, tcp := listenBoth(t)
	n := &nameServer{addr: udp.LocalAddr().String(), answer: answer, asked: map[string]int{}}
	var serving sync.WaitGroup
	serving.Go(func() { n.serveUDP(udp) })
	serving.Go(func() { n.serveTCP(tcp) })
	t.Cleanup(func() { udp.Close(); tcp.Close(); serving.Wait() })

	return n
}

// listenBoth takes a port that is free for UDP and for TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if tcp, err := net.Listen("tcp", udp.LocalAddr().String()); err == nil {
			return udp, tcp
		}
		udp.Close()
	}

	t.Fatal("no port is free for UDP and TCP")

	return nil, nil
}

// resolver asks this server and no other.
func (n *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, n.addr)
	}}
}

func (n *nameServer) serveUDP(conn net.PacketConn) {
	buffer := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if reply := n.reply(buffer[:size], false); reply != nil {
			_, _ = conn.WriteTo(reply, from)
		}
	}
}

func (n *nameServer) serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}

		_ = conn.SetDeadline(time.Now().Add(testserver.Timeout))
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err == nil {
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, query); err == nil {
				reply := n.reply(query, true)
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
			}
		}

		conn.Close()
	}
}

func (n *nameServer) reply(query []byte, tcp bool) []byte {
	var parser dnsmessage.Parser
	head, err := parser.Start(query)
	if err != nil {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}

	n.mu.Lock()
	key := question.Type.String() + question.Name.String()
	r := n.answer(question.Name.String(), n.asked[key])
	n.asked[key]++
	n.mu.Unlock()
	if r.silent {
		return nil
	}

	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: r.code},
		Questions: []dnsmessage.Question{question},
	}

	m.Truncated = r.long && !tcp
	if !m.Truncated {
		m.Answers = resources(question, r)
	}

	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}

	return packed
}

func resources(q dnsmessage.Question, r record) (list []dnsmessage.Resource) {
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
	if r.alias != "" {
		alias := dnsmessage.MustNewName(r.alias)
		list = append(list, dnsmessage.Resource{Header: head, Body: &dnsmessage.CNAMEResource{CNAME: alias}})
		head.Name = alias
	}

	for _, address := range r.addresses {
		switch {
		case q.Type == dnsmessage.TypeA && address.Is4():
			list = append(list, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: address.As4()}})
		case q.Type == dnsmessage.TypeAAAA && !address.Is4():
			list = append(list, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: address.As16()}})
		}
	}

	return list
}

// authority issues certificates.
type authority struct {
	*stack.Authority
	own *stack.RedisTLS
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	ca, err := stack.NewAuthority("Test Authority")
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.Issue(t.TempDir(), time.Time{}, "vendor.test")
	if err != nil {
		t.Fatal(err)
	}

	return &authority{ca, own}
}

func (a *authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	if text, err := os.ReadFile(a.own.CAFile); err != nil || !pool.AppendCertsFromPEM(text) {
		panic(err)
	}
	return pool
}

// issue makes a server's configuration for the names, which may be addresses.
func (a *authority) issue(t testing.TB, until time.Time, names ...string) *tls.Config {
	t.Helper()
	files, err := a.Issue(t.TempDir(), until, names...)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, files)
}

// vendor is the configuration of vendor.test.
func (a *authority) vendor(t testing.TB) *tls.Config { t.Helper(); return serve(t, a.own) }

func serve(t testing.TB, files *stack.RedisTLS) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

// counting is a listener that counts what it accepts, and what is open of it.
type counting struct {
	net.Listener
	accepted atomic.Int32
	open     atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Add(1)
	l.open.Add(1)
	return &counted{Conn: conn, open: &l.open}, nil
}

func listen(t testing.TB, address string) *counting {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &counting{Listener: listener}
}

func (l *counting) port() int { return l.Addr().(*net.TCPAddr).Port }

// raw hands every connection to serve, in a goroutine that ends with the test.
func raw(t testing.TB, l net.Listener, serve func(net.Conn)) {
	t.Helper()
	var serving sync.WaitGroup
	var open sync.Map
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			serving.Go(func() { defer conn.Close(); serve(conn) })
		}
	})

	t.Cleanup(func() {
		l.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		serving.Wait()
	})
}

// start serves h on the listener; with a configuration, over TLS, and HTTP/2 if
// h2 is set.
func start(t testing.TB, l net.Listener, config *tls.Config, h2 bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Listener.Close()
	server.Listener, server.TLS, server.EnableHTTP2 = l, config, h2
	server.Config.ErrorLog = quiet
	if config != nil {
		server.StartTLS()
	} else {
		server.Start()
	}

	t.Cleanup(server.Close)

	return server
}

// pipes is a network within a synctest bubble: no connection of it reaches the
// kernel, so that time passes only when everybody waits for it.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func listenPipes() *counting {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return &counting{Listener: p}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return newBuffered(conn), nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// dial takes the place of net.Dialer's DialContext.
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return newBuffered(client), nil
	case <-p.closed:
		return nil, errors.New("nobody listens")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// buffered takes what is written as the kernel does: nobody waits, with a lock that others want, for the
// other end to read. What arrives waits in it, too.
type buffered struct {
	net.Conn
	out    chan []byte
	closed chan struct{}
	close  func()

	mu       sync.Mutex
	arrived  []byte
	end      error         // of what arrives; nil while it goes on
	changed  chan struct{} // is closed when something of this has changed
	deadline time.Time
	timer    *time.Timer
}

func newBuffered(conn net.Conn) *buffered {
	b := &buffered{Conn: conn, out: make(chan []byte, 1<<12), closed: make(chan struct{}), changed: make(chan struct{})}
	b.close = sync.OnceFunc(func() { close(b.closed) })
	go b.write()
	go b.receive()
	return b
}

// change does something with what reading goes by, and wakes who reads.
func (b *buffered) change(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *buffered) receive() {
	buffer := make([]byte, 16<<10)
	for {
		n, err := b.Conn.Read(buffer)
		b.change(func() { b.arrived, b.end = append(b.arrived, buffer[:n]...), err })
		if err != nil {
			return
		}
	}
}

func (b *buffered) Read(p []byte) (int, error) {
	for {
		b.mu.Lock()
		changed, isLate := b.changed, !b.deadline.IsZero() && !time.Now().Before(b.deadline)
		n, end := 0, b.end
		if !isLate && len(b.arrived) > 0 {
			n = copy(p, b.arrived)
			b.arrived = b.arrived[n:]
		}

		b.mu.Unlock()
		switch {
		case isLate:
			return 0, os.ErrDeadlineExceeded
		case n > 0:
			return n, nil
		case end != nil:
			return 0, end
		}

		select {
		case <-changed:
		case <-b.closed:
			return 0, net.ErrClosed
		}
	}
}

// hasBytesWaiting reports that a Read would not wait.
func (b *buffered) hasBytesWaiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrived) > 0 || b.end != nil
}

func (b *buffered) SetReadDeadline(t time.Time) error {
	b.change(func() {
		b.deadline = t
		if b.timer != nil {
			b.timer.Stop()
			b.timer = nil
		}

		if left := time.Until(t); !t.IsZero() && left > 0 {
			b.timer = time.AfterFunc(left, func() { b.change(func() {}) })
		}
	})

	return nil
}

// write ends with the connection, after what was written before it was closed.
func (b *buffered) write() {
	defer b.Conn.Close()
	for {
		select {
		case p := <-b.out:
			_, _ = b.Conn.Write(p)
		case <-b.closed:
			_ = b.Conn.SetWriteDeadline(time.Now().Add(time.Second))
			for len(b.out) > 0 {
				_, _ = b.Conn.Write(<-b.out)
			}
			return
		}
	}
}

func (b *buffered) Write(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, net.ErrClosed
	case b.out <- bytes.Clone(p):
		return len(p), nil
	}
}

func (b *buffered) Close() error                     { b.close(); return nil }
func (b *buffered) SetWriteDeadline(time.Time) error { return nil }
func (b *buffered) SetDeadline(t time.Time) error    { return b.SetReadDeadline(t) }

// pipeSender is a sender with a worker's usual timeout that reaches l by every name.
func pipeSender(t *testing.T, a *authority, l *counting) *Sender {
	t.Helper()
	options := localOptions()
	options.Timeout = 10 * time.Second
	var roots *x509.CertPool
	if a != nil {
		roots = a.roots()
	}

	s := New(options)
	s.tls.RootCAs = roots
	s.dialName = l.Listener.(*pipes).dial
	t.Cleanup(s.CloseIdleConnections)

	return s
}

// errAllowed ends a dial to an address that the guard has let pass, so that no
// test sends a packet to the internet.
var errAllowed = errors.New("allowed, and not dialled by the test")
