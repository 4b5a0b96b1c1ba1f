package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"

	"vendorapi/internal/config"
)

// Networks are those of peers that are trusted, such as balancers.
type Networks []netip.Prefix

// ParseNetworks reads addresses and networks, of which a text may hold several with commas.
func ParseNetworks(texts []string) (Networks, error) {
	var networks Networks
	for _, text := range config.SplitList(strings.Join(texts, ",")) {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a network", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}

		networks = append(networks, network)
	}

	return networks, nil
}

// Contain reports whether one of the networks has the address.
func (n Networks) Contain(address netip.Addr) bool {
	return slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(address) })
}

// proxyHeaderTimeout is long for a balancer, which sends the header with the first packet.
const proxyHeaderTimeout = 5 * time.Second

// proxyListener gives a connection the address that a PROXY header (versions 1 and 2) of a
// trusted peer names. A header is waited for outside Accept, so it holds up no other.
type proxyListener struct {
	net.Listener
	malformed func()
	timeout   time.Duration // of a header; proxyHeaderTimeout outside tests
	accepted  chan acceptance
	closed    context.Context
	close     context.CancelFunc
}

type acceptance struct {
	conn net.Conn
	err  error
}

// NewProxyListener believes the PROXY headers of trusted peers, and of nobody else, whose
// header is then no request. malformed is called before a connection is closed because of
// its header. Without trusted peers it is the listener itself.
func NewProxyListener(l net.Listener, trusted Networks, malformed func()) net.Listener {
	return newProxyListener(l, trusted, malformed, proxyHeaderTimeout)
}

func newProxyListener(l net.Listener, trusted Networks, malformed func(), timeout time.Duration) net.Listener {
	if len(trusted) == 0 {
		return l
	}

	p := &proxyListener{Listener: l, malformed: malformed, timeout: timeout, accepted: make(chan acceptance)}
	p.closed, p.close = context.WithCancel(context.Background())
	go func() {
		for p.closed.Err() == nil {
			c, err := l.Accept()
			if err == nil && trusted.Contain(peer(c)) {
				go p.readHeader(c)
				continue
			}
			p.hand(acceptance{c, err})
		}
	}()

	return p
}

// readHeader leaves a connection its own address when it has no header or that of a
// balancer's own check.
func (p *proxyListener) readHeader(c net.Conn) {
	proxied := &proxiedConn{Conn: c, reader: bufio.NewReader(c), remote: c.RemoteAddr()}
	header, err := proxyproto.ReadHeaderTimeout(c, proxied.reader, p.timeout)
	if err != nil && !errors.Is(err, proxyproto.ErrNoProxyProtocol) {
		p.malformed()
		_ = c.Close() // the peer learns from that
		return
	}

	if err == nil && header.Command.IsProxy() && header.SourceAddr != nil {
		proxied.remote = header.SourceAddr
	}

	p.hand(acceptance{conn: proxied})
}

func (p *proxyListener) hand(a acceptance) {
	select {
	case p.accepted <- a:
	case <-p.closed.Done():
		if a.conn != nil {
			_ = a.conn.Close() // nobody serves it any more
		}
	}
}

// Accept implements net.Listener.
func (p *proxyListener) Accept() (net.Conn, error) {
	select {
	case a := <-p.accepted:
		return a.conn, a.err
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *proxyListener) Close() error {
	p.close()
	return p.Listener.Close()
}

// proxiedConn reads on behind its header.
type proxiedConn struct {
	net.Conn
	reader *bufio.Reader
	remote net.Addr
}

func (c *proxiedConn) Read(b []byte) (int, error) { return c.reader.Read(b) }

// RemoteAddr is the client's.
func (c *proxiedConn) RemoteAddr() net.Addr { return c.remote }

// CloseWrite is that of the connection below.
func (c *proxiedConn) CloseWrite() error { return closeWrite(c.Conn) }
