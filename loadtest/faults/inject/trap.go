package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Moment is when a trap springs, seen from the request that it waits for.
type Moment int

// The moments.
const (
	Before Moment = iota // the request has been sent and never arrives
	Within               // a part of it arrives
	After                // it arrives and takes effect, the answer never comes back
	Late                 // it arrives after Lateness, when whoever sent it has long given up
)

// String is the moment in a report.
func (m Moment) String() string { return [...]string{"before", "within", "after", "late"}[m] }

// Lateness is how long a request is on its way that is Late: longer than a lease
// in the suite's settings and longer than any client waits.
const Lateness = 4500 * time.Millisecond

// effect is how long a request is given to take effect before what follows a
// trap After is done: far more than a script and its fsync take.
const effect = 50 * time.Millisecond

// Trap waits on a proxy for a request that contains some bytes. When one goes by,
// it is dealt with as the moment has it; but for Late, no answer to anybody
// passes the proxy from then on.
type Trap struct {
	marker []byte
	moment Moment
	proxy  *Proxy
	sprung chan struct{} // closed when the request has gone by
	gone   chan struct{} // closed when the trap was taken away before
}

// Set places a trap, in place of an earlier one. Markers are what cannot be in
// the way of another request: a function's name in Redis, a path.
func (p *Proxy) Set(marker string, moment Moment) *Trap {
	t := &Trap{marker: []byte(marker), moment: moment, proxy: p, sprung: make(chan struct{}), gone: make(chan struct{})}
	p.replaceTrap(t)
	return t
}

// replaceTrap tells who waits at the trap before that it will not spring.
func (p *Proxy) replaceTrap(t *Trap) {
	if before := p.trap.Swap(t); before != nil {
		close(before.gone)
	}
}

// ErrTaken says that a trap was taken away, by Heal or another trap, before its
// request came by.
var ErrTaken = errors.New("the trap was taken away")

// Await returns once the request has gone by, and, for After, has taken effect.
// Everything of the program's stays held back; who called now kills the program,
// kills the server or calls Release. An error says that ctx ended before, or is
// ErrTaken; the trap is then gone.
func (t *Trap) Await(ctx context.Context) error {
	select {
	case <-t.sprung:
	case <-t.gone:
		return ErrTaken
	case <-ctx.Done():
		if t.proxy.trap.CompareAndSwap(t, nil) {
			return fmt.Errorf("no request with %q: %w", t.marker, context.Cause(ctx))
		}
		select {
		case <-t.sprung: // just now
		case <-t.gone:
			return ErrTaken
		}
	}
	if t.moment == Within || t.moment == After {
		time.Sleep(effect)
	}
	return nil
}

// Release closes every connection of the proxy, so that what was held back is
// lost for good, and lets new ones pass.
func (t *Trap) Release() error {
	p := t.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	p.muted.Store(false) // not before: no answer to the old ones may pass; nor after: new ones would lose theirs
	return p.restart()
}

// spring takes the trap away and holds back what the server answers. It is false
// when another connection was faster.
func (t *Trap) spring() bool {
	if !t.proxy.trap.CompareAndSwap(t, nil) {
		return false
	}
	if t.moment != Late {
		t.proxy.muted.Store(true) // before the request goes on, so that its answer cannot pass
	}
	return true
}

// spyToxic reads what a program sends. Harm is done by it and by gateToxic alone:
// taking one of toxiproxy's own out of a busy connection can take many seconds,
// in which the way stays shut.
type spyToxic struct {
	Proxy string `json:"proxy"`
}

// Pipe passes chunks on until a trap springs or the proxy is deaf; a marker may lie across two of
// them.
func (s *spyToxic) Pipe(stub *toxics.ToxicStub) {
	p := proxyOf(s.Proxy)
	var seen []byte       // the end of what has passed
	dead := stub.Closed() // what follows a request that was held back would make no sense
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if dead = dead || p.deaf.Load(); dead {
				continue
			}
			if t := p.trap.Load(); t == nil {
				seen = seen[:0]
			} else if seen = append(seen, c.Data...); bytes.Contains(seen, t.marker) && t.spring() {
				dead = t.pass(stub, c)
				continue
			} else {
				seen = append(seen[:0], seen[max(0, len(seen)-len(t.marker)):]...)
			}
			if forward(stub, c) {
				return
			}
		}
	}
}

// forward passes a chunk on, however long that takes. It is true when the toxic is
// interrupted meanwhile, and must return: the chunk has been passed on, or nobody
// takes it any more and the link is closed. A stream with a hole would be read as
// something that was never sent.
func forward(stub *toxics.ToxicStub, c *stream.StreamChunk) (interrupted bool) {
	select {
	case stub.Output <- c:
		return false
	case <-stub.Interrupt:
		if !handOn(stub, c) {
			stub.Close()
		}
		return true
	}
}

// pass lets through what the moment allows of the chunk with the marker.
func (t *Trap) pass(stub *toxics.ToxicStub, c *stream.StreamChunk) (dead bool) {
	if t.moment == Late {
		// The sender's end may be closed by now; the server's is not, before this
		// has been passed on.
		close(t.sprung)
		time.Sleep(Lateness)
		return !handOn(stub, c)
	}
	defer close(t.sprung)
	switch t.moment {
	case Within:
		c.Data = c.Data[:(len(c.Data)+1)/2]
		handOn(stub, c)
		return true
	case After:
		return !handOn(stub, c)
	default:
		return true
	}
}

// handOn passes a chunk on, unless nobody takes it: the link behind a toxic ends
// without a word when the server has closed its side.
func handOn(stub *toxics.ToxicStub, c *stream.StreamChunk) bool {
	select {
	case stub.Output <- c:
		return true
	case <-time.After(time.Second):
		return false
	}
}

// gateToxic stands in the way of what a server answers.
type gateToxic struct {
	Proxy string `json:"proxy"`
}

// Pipe passes chunks on while the proxy is not muted, late if it is slow. A connection that lost one
// is of no use any more: it is dead until it is closed.
func (g *gateToxic) Pipe(stub *toxics.ToxicStub) {
	p := proxyOf(g.Proxy)
	dead := stub.Closed()
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			p.delay.Load().await(c.Timestamp)
			if dead = dead || p.muted.Load(); !dead && forward(stub, c) {
				return
			}
		}
	}
}

// proxyOf is the proxy that made a toxic.
func proxyOf(number string) *Proxy {
	p, ok := proxies.Load(number)
	if !ok {
		return new(Proxy) // it was closed: nothing is held back
	}
	return p.(*Proxy)
}
