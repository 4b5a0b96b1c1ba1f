// Package failpoint damages a running system from outside. A Proxy loses, delays and cuts what a program and a server
// send each other; a Trap acts at the moment of one request. CutSince and TearTail damage a Redis's append-only file,
// a Shim falsifies its clock and its disk.
package failpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/stack"
)

// Proxy passes connections on to one server. NewProxy makes one.
type Proxy struct {
	Addr  string       // host:port at which the program connects
	Heals atomic.Int64 // how often Heal or Release has let answers pass again

	upstream  atomic.Pointer[string]
	trap      atomic.Pointer[Trap]
	noAnswers atomic.Bool // what the server answers is dropped
	noRequest atomic.Bool // what the program sends is dropped

	delay atomic.Pointer[delay]

	mu       sync.Mutex
	listener net.Listener // nil: connections are refused
	conns    map[net.Conn]bool
}

// A delay makes answers later by a time that is drawn between by-jitter and by+jitter.
type delay struct{ by, jitter time.Duration }

// NewProxy returns a proxy that passes connections on to upstream (host:port), which need not listen yet. Refuse ends it.
func NewProxy(upstream string) (*Proxy, error) {
	p := &Proxy{Addr: stack.FreeAddr(), conns: make(map[net.Conn]bool)}
	p.upstream.Store(&upstream)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, p.listen()
}

// listen accepts connections, unless the proxy does so already. The caller holds p.mu.
func (p *Proxy) listen() error {
	if p.listener != nil {
		return nil
	}

	l, err := stack.Listen(p.Addr)
	if err != nil {
		return fmt.Errorf("proxy to %s: %w", *p.upstream.Load(), err)
	}

	p.listener = l
	go func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			go p.serve(client)
		}
	}()

	return nil
}

// serve passes on what client and the server send each other, until one of them closes its connection.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", *p.upstream.Load())
	if err != nil {
		return
	}

	p.mu.Lock()
	if p.listener == nil {
		p.mu.Unlock()
		server.Close()
		return
	}

	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()

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

// closeAll closes all connections, on both sides. The caller holds p.mu.
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

// Redirect passes connections on to another server from now on, and closes those to the one before.
func (p *Proxy) Redirect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream.Store(&upstream)
	p.closeAll()
}

// Swallow drops every byte in both directions until Heal, as a partition does: neither side sees an error.
func (p *Proxy) Swallow() {
	p.noRequest.Store(true)
	p.Mute()
}

// Mute drops every answer until Heal; requests still arrive and take effect.
func (p *Proxy) Mute() { p.noAnswers.Store(true) }

// Delay makes every answer later by the given time, plus or minus jitter, until Heal.
func (p *Proxy) Delay(by, jitter time.Duration) { p.delay.Store(&delay{by, jitter}) }

// Heal undoes everything. It closes the connections that may have lost bytes.
func (p *Proxy) Heal() error {
	p.Heals.Add(1) // before an answer passes
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
	var tail []byte // the end of what has passed: a marker may lie across two reads
	copyChunks(client, func(chunk []byte) bool {
		if p.noRequest.Load() {
			return false
		}

		t := p.trap.Load()
		if t == nil {
			tail = tail[:0]
		} else {
			tail = append(tail, chunk...)
			if bytes.Contains(tail, t.marker) {
				isFirst := p.trap.CompareAndSwap(t, nil) // another connection may have been faster
				if isFirst {
					return t.pass(server, chunk)
				}
			}

			tail = append(tail[:0], tail[max(0, len(tail)-len(t.marker)):]...)
		}

		_, err := server.Write(chunk)

		return err == nil
	})
}

// passAnswers copies what the server answers, until one answer is held back.
func (p *Proxy) passAnswers(client, server net.Conn) {
	copyChunks(server, func(chunk []byte) bool {
		if d := p.delay.Load(); d != nil {
			time.Sleep(d.by - d.jitter + rand.N(2*d.jitter+1))
		}

		if p.noAnswers.Load() {
			return false
		}

		_, err := client.Write(chunk)
		return err == nil
	})
}

// copyChunks reads from a connection until it ends, and calls pass with each chunk. The chunk is valid during the call only.
// Once pass has returned false, the rest is read and dropped.
func copyChunks(from net.Conn, pass func(chunk []byte) bool) {
	buffer := make([]byte, 32<<10)
	more := true
	for more {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		more = pass(buffer[:n])
	}

	_, _ = io.Copy(io.Discard, from) // until one side closes
}

// Moment is when a trap acts, relative to the request that it waits for.
type Moment string

// The moments.
const (
	Before Moment = "before" // the request has been sent and never arrives
	Within Moment = "within" // half of it arrives
	After  Moment = "after"  // it arrives and takes effect, the answer is lost
	Late   Moment = "late"   // it arrives after Lateness, when its sender has given up
	Held   Moment = "held"   // it arrives once Pass is called
)

// Lateness is the delay of a Late request: longer than a partition keeps an owner that is silent, and than any client waits.
const Lateness = 4500 * time.Millisecond

// Trap waits for the first request that contains some bytes. Except for Late and Held, no answer passes the proxy from
// then on.
type Trap struct {
	marker []byte
	moment Moment
	proxy  *Proxy
	ended  chan struct{} // closed when the request has passed, or is held, or the trap was removed before
	err    error         // ErrRemoved, set before ended is closed

	request []byte        // what is held, set before ended is closed
	passed  chan struct{} // closed by Pass
}

// Set sets a trap and returns it. An earlier trap of the proxy is removed. The marker must occur in no other request: it is,
// for example, a path, or the name of a function in Redis.
func (p *Proxy) Set(marker string, moment Moment) *Trap {
	t := &Trap{
		marker: []byte(marker),
		moment: moment,
		proxy:  p,
		ended:  make(chan struct{}),
		passed: make(chan struct{}),
	}
	p.setTrap(t)

	return t
}

// setTrap replaces the trap, by none if t is nil. The Await of the trap before returns ErrRemoved.
func (p *Proxy) setTrap(t *Trap) {
	before := p.trap.Swap(t)
	if before != nil {
		before.err = ErrRemoved
		close(before.ended)
	}
}

// ErrRemoved is returned by Await when Heal or another trap took the trap's place.
var ErrRemoved = errors.New("the trap was removed")

// Await returns when the request has passed and, for Within and After, had time to take effect. The caller then kills
// one side and calls Release. A request that is Held has not passed: the caller calls Pass. After an error, the end of ctx
// or ErrRemoved, the trap is gone.
func (t *Trap) Await(ctx context.Context) error {
	select {
	case <-t.ended:
	case <-ctx.Done():
		if t.proxy.trap.CompareAndSwap(t, nil) {
			return fmt.Errorf("no request with %q: %w", t.marker, context.Cause(ctx))
		}
		<-t.ended // it has been triggered or removed just now
	}

	if t.err == nil && (t.moment == Within || t.moment == After) {
		const effect = 50 * time.Millisecond // far more than a script and its fsync take
		time.Sleep(effect)
	}

	return t.err
}

// Release closes the proxy's connections, so that what was held back is lost, and lets new ones pass.
func (t *Trap) Release() error {
	p := t.proxy
	p.Heals.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAll()
	p.noAnswers.Store(false)

	return p.listen()
}

// Request returns the bytes around the marker of a request that is Held; nil for another moment. Await must have returned nil.
func (t *Trap) Request() []byte { return t.request }

// Pass lets a request go on that is Held. It must be called once only.
func (t *Trap) Pass() { close(t.passed) }

// pass writes as much of the chunk as the moment allows and reports whether the connection goes on. Except for Late and
// Held, it holds back the server's answers.
func (t *Trap) pass(server net.Conn, chunk []byte) bool {
	if t.moment == Held {
		t.request = bytes.Clone(chunk)
		close(t.ended)
		<-t.passed
		_, err := server.Write(chunk)
		return err == nil
	}

	if t.moment == Late {
		close(t.ended)
		time.Sleep(Lateness)
		_, err := server.Write(chunk)
		return err == nil
	}

	t.proxy.noAnswers.Store(true) // before the request is passed on
	defer close(t.ended)
	if t.moment == Within {
		chunk = chunk[:(len(chunk)+1)/2]
	}

	if t.moment != Before {
		_, _ = server.Write(chunk) // the connection is lost either way
	}

	return false
}
