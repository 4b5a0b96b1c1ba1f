package failpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Moment is when a trap acts, relative to the request that it waits for.
type Moment string

// The moments.
const (
	Before Moment = "before" // the request has been sent and never arrives
	Within Moment = "within" // half of it arrives
	After  Moment = "after"  // it arrives and takes effect, the answer is lost
	Late   Moment = "late"   // it arrives after Lateness, when its sender has given up
)

// Lateness is the delay of a Late request: longer than a partition keeps an owner that is silent, and than any client waits.
const Lateness = 4500 * time.Millisecond

// Trap waits for the first request that contains some bytes. Except for Late, no answer passes the proxy from then on.
type Trap struct {
	marker    []byte
	moment    Moment
	proxy     *Proxy
	triggered chan struct{} // closed when the request has passed
	removed   chan struct{} // closed when the trap was removed before
}

// Set replaces an earlier trap. The marker must occur in no other request: a function's name in Redis, a path.
func (p *Proxy) Set(marker string, moment Moment) *Trap {
	t := &Trap{[]byte(marker), moment, p, make(chan struct{}), make(chan struct{})}
	p.setTrap(t)
	return t
}

func (p *Proxy) setTrap(t *Trap) {
	if before := p.trap.Swap(t); before != nil {
		close(before.removed)
	}
}

// ErrRemoved is returned by Await when Heal or another trap took the trap's place.
var ErrRemoved = errors.New("the trap was removed")

// Await returns when the request has passed and, for Within and After, had time to take effect. The caller then kills
// one side and calls Release. After an error, the end of ctx or ErrRemoved, the trap is gone.
func (t *Trap) Await(ctx context.Context) error {
	ended := ctx.Done()
	for {
		select {
		case <-t.triggered:
			if t.moment == Within || t.moment == After {
				const effect = 50 * time.Millisecond // far more than a script and its fsync take
				time.Sleep(effect)
			}
			return nil
		case <-t.removed:
			return ErrRemoved
		case <-ended:
			if t.proxy.trap.CompareAndSwap(t, nil) {
				return fmt.Errorf("no request with %q: %w", t.marker, context.Cause(ctx))
			}
			ended = nil // it has been triggered or removed just now
		}
	}
}

// Release closes the proxy's connections, so that what was held back is lost, and lets new ones pass.
func (t *Trap) Release() error {
	p := t.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAll()
	p.noAnswers.Store(false)
	return p.listen()
}

// take removes the trap and holds back the server's answers. It is false when another connection was faster.
func (t *Trap) take() bool {
	if !t.proxy.trap.CompareAndSwap(t, nil) {
		return false
	}
	if t.moment != Late {
		t.proxy.noAnswers.Store(true) // before the request is passed on
	}
	return true
}

// pass writes as much of the chunk as the moment allows and reports whether the connection goes on.
func (t *Trap) pass(server net.Conn, chunk []byte) bool {
	if t.moment == Late {
		close(t.triggered)
		time.Sleep(Lateness)
		_, err := server.Write(chunk)
		return err == nil
	}
	defer close(t.triggered)
	if t.moment == Within {
		chunk = chunk[:(len(chunk)+1)/2]
	}
	if t.moment != Before {
		_, _ = server.Write(chunk) // the connection is lost either way
	}
	return false
}
