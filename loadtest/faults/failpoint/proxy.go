// Package failpoint damages a running system from outside. A Proxy loses, delays and cuts what a program and a server
// send each other; a Trap acts at the moment of one request. CutSince and TearTail damage a Redis's append-only file,
// a Shim falsifies its clock and its disk.
package failpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/stack"
)

// Proxy passes connections on to one server.
type Proxy struct {
	Addr string // where the program connects

	upstream  string
	trap      atomic.Pointer[Trap]
	noAnswers atomic.Bool // what the server answers is dropped
	noRequest atomic.Bool // what the program sends is dropped
	delay     atomic.Pointer[delay]

	mu       sync.Mutex
	listener net.Listener // nil: connections are refused
	conns    map[net.Conn]bool
}

type delay struct{ by, jitter time.Duration }

// NewProxy passes connections on to upstream (host:port), which need not listen yet.
func NewProxy(upstream string) (*Proxy, error) {
	p := &Proxy{Addr: stack.FreeAddr(), upstream: upstream, conns: make(map[net.Conn]bool)}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, p.listen()
}

// listen needs mu.
func (p *Proxy) listen() error {
	if p.listener != nil {
		return nil
	}
	l, err := stack.Listen(p.Addr)
	if err != nil {
		return fmt.Errorf("proxy to %s: %w", p.upstream, err)
	}
	p.listener = l
	go func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			go p.serve(client)
		}
	}()
	return nil
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return
	}
	p.mu.Lock()
	refused := p.listener == nil
	if !refused {
		p.conns[client], p.conns[server] = true, true
	}
	p.mu.Unlock()
	if refused {
		server.Close()
		return
	}
	go func() {
		p.passRequests(server, client)
		server.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	p.passAnswers(client, server)
}

// closeAll needs mu.
func (p *Proxy) closeAll() {
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// Refuse closes every connection and refuses new ones until Heal, as a host whose program has ended. It also ends the
// proxy.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.closeAll()
}

// Swallow drops every byte in both directions until Heal, as a partition does: neither side sees an error.
func (p *Proxy) Swallow() {
	p.noRequest.Store(true)
	p.noAnswers.Store(true)
}

// Mute drops every answer until Heal; requests still arrive and take effect.
func (p *Proxy) Mute() { p.noAnswers.Store(true) }

// Delay makes every answer later by the given time, plus or minus jitter, until Heal.
func (p *Proxy) Delay(by, jitter time.Duration) { p.delay.Store(&delay{by, jitter}) }

// Heal undoes everything. It closes the connections that may have lost bytes.
func (p *Proxy) Heal() error {
	p.setTrap(nil)
	p.delay.Store(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noAnswers.Load() || p.noRequest.Load() {
		p.closeAll()
	}
	// Under the lock: no answer to an old connection passes, no new connection loses one.
	p.noAnswers.Store(false)
	p.noRequest.Store(false)
	return p.listen()
}

// passRequests copies what the program sends until the connection ends or a byte is held back.
func (p *Proxy) passRequests(server, client net.Conn) {
	buffer := make([]byte, 32<<10)
	var tail []byte // the end of what has passed: a marker may lie across two reads
	for {
		n, err := client.Read(buffer)
		chunk := buffer[:n]
		if err != nil {
			return
		}
		if p.noRequest.Load() {
			break
		}
		t := p.trap.Load()
		if t == nil {
			tail = tail[:0]
		} else if tail = append(tail, chunk...); bytes.Contains(tail, t.marker) && t.take() {
			if !t.pass(server, chunk) {
				break
			}
			continue
		} else {
			tail = append(tail[:0], tail[max(0, len(tail)-len(t.marker)):]...)
		}
		if _, err := server.Write(chunk); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, client) // until one side closes
}

// passAnswers copies what the server answers, until one answer is held back.
func (p *Proxy) passAnswers(client, server net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if d := p.delay.Load(); d != nil {
			time.Sleep(d.by - d.jitter + rand.N(2*d.jitter+1))
		}
		if p.noAnswers.Load() {
			break
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			break
		}
	}
	_, _ = io.Copy(io.Discard, server) // until one side closes
}
