package service

import (
	"net"
	"net/netip"
	"sync"
)

// Limits bound how many connections of a listener are open at once.
type Limits struct {
	Connections int // in all
	PerAddress  int // from one Network; 0: no limit
	// Exempt addresses count in all only; optional.
	Exempt func(netip.Addr) bool
	// Refused gets a connection over a limit, and which of the two it is, before
	// it is closed; it must not block. Optional.
	Refused func(c net.Conn, perAddress bool)
	// Wrap makes what Accept returns of a connection. Optional.
	Wrap func(net.Conn) net.Conn
}

// Listener is a listener with limits.
type Listener struct {
	net.Listener
	limits Limits

	mu        sync.Mutex
	open      int
	byNetwork map[netip.Prefix]int
}

// NewListener puts limits on a listener.
func NewListener(l net.Listener, limits Limits) *Listener {
	return &Listener{Listener: l, limits: limits, byNetwork: map[netip.Prefix]int{}}
}

// Network is what counts as one address: an IPv4 address, or the /64 that an IPv6
// host chooses its addresses from. It is not valid for an invalid address.
func Network(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, _ := address.Prefix(bits) // both are in range
	return prefix
}

// Origin is the network that a connection comes from.
func Origin(c net.Conn) netip.Prefix { return Network(peer(c)) }

// peer is not valid for a connection without an IP address.
func peer(c net.Conn) netip.Addr {
	peer, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return peer.Addr().Unmap().WithZone("")
}

// Accept waits for the next connection within the limits.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		var from netip.Prefix
		if address := peer(c); l.limits.PerAddress > 0 && (l.limits.Exempt == nil || !l.limits.Exempt(address)) {
			from = Network(address)
		}

		ok, perAddress := l.enter(from)
		if ok {
			c = &countedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}
			if l.limits.Wrap != nil {
				c = l.limits.Wrap(c)
			}
			return c, nil
		}

		if l.limits.Refused != nil {
			l.limits.Refused(c, perAddress)
		}

		_ = c.Close() // the peer learns from that
	}
}

// enter counts a connection unless that is too many, and reports whether they are too
// many from one network. The zero network counts in all only.
func (l *Listener) enter(from netip.Prefix) (ok, perAddress bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open >= l.limits.Connections:
		return false, false
	case from.IsValid() && l.byNetwork[from] >= l.limits.PerAddress:
		return false, true
	}

	l.open++
	l.byNetwork[from]++

	return true, false
}

func (l *Listener) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.byNetwork[from]--
	if l.byNetwork[from] == 0 {
		delete(l.byNetwork, from)
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// CloseWrite lets a server end its side first, so that a client that still sends
// receives the answer and no reset.
func (c *countedConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
