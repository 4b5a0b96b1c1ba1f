package owner

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/worker/dispatch"
)

// proxy stands between a worker and Redis. At first it lets everything pass.
type proxy struct {
	URL    string
	server string
	mu     sync.Mutex
	conns  map[net.Conn]bool
	cut    bool
	frozen chan struct{} // while it is not nil and open, no request passes
	named  []byte        // in the requests that look is called with
	look   func(request []byte) fate
}

// fate is what becomes of a request.
type fate int

const (
	passes   fate = iota
	replyCut      // it reaches Redis, and the connection breaks before the answer
)

// newProxy is for a user's connections; it ends with the test.
func newProxy(t *testing.T, e *testenv.Env, user string) *proxy {
	t.Helper()
	to, err := url.Parse(e.ConfigFor(user).URL)
	testenv.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	p := &proxy{server: to.Host, conns: make(map[net.Conn]bool)}
	to.Host = listener.Addr().String()
	p.URL = to.String()
	t.Cleanup(func() { _ = listener.Close(); p.thaw(); p.cutAll() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()

	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	p.mu.Lock()
	refused := p.cut || err != nil
	p.conns[client] = true
	if err == nil {
		p.conns[server] = true
	}

	p.mu.Unlock()
	if refused {
		p.cutAll()
		return
	}

	end := func() { _ = client.Close(); _ = server.Close() }
	var dropReply bool // guarded by p.mu
	go func() {
		defer end()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			p.mu.Lock()
			drop := dropReply
			p.mu.Unlock()
			if err != nil || drop {
				return
			}

			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	defer end()
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}

		p.mu.Lock()
		named, look := p.named, p.look
		p.mu.Unlock()
		if look != nil && bytes.Contains(buffer[:n], named) && look(buffer[:n]) == replyCut {
			p.mu.Lock()
			dropReply = true
			p.mu.Unlock()
		}

		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen != nil {
			<-frozen
		}

		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

const (
	step = "advance_"
	// readOrders is of a single order; the tokens of all partitions are read with an MGET, too.
	readOrders = "*2\r\n$4\r\nmget"
)

// on has f look at every request that names a command or script, before it passes.
func (p *proxy) on(name string, f func(request []byte) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named, p.look = []byte(name), f
}

// freeze holds all requests, as if the worker's process stood still.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// kill breaks all connections for good, as if the worker's machine had died.
func (p *proxy) kill() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.cutAll()
}

func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// proxied is a worker behind a proxy.
func (e *env) proxied(name string, edits ...func(*dispatch.Settings)) (*Role, *proxy) {
	e.T.Helper()
	p := newProxy(e.T, e.Env, stack.WorkerUser)
	config := e.ConfigFor(stack.WorkerUser)
	config.URL = p.URL
	l, err := ledger.Open(e.T.Context(), config)
	testenv.Must(e.T, err)
	e.T.Cleanup(func() { _ = l.Close() })

	return e.roleOf(l, name, edits...), p
}

// onAccept has f look at the first step that makes an acceptance of Courier a change.
func (p *proxy) onAccept(f func() fate) {
	done := false
	var mu sync.Mutex
	p.on(step, func(request []byte) fate {
		mu.Lock()
		defer mu.Unlock()
		if done || !bytes.Contains(request, []byte(testenv.Courier.Name)) {
			return passes
		}
		done = true
		return f()
	})
}
