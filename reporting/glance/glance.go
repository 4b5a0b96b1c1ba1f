// Package glance shares what many people look at: it is read once for all who ask
// at about the same time, so that many who watch cost what one does.
//
// It owns how old a shared value may be, and that nobody waits for it longer than
// for a value of their own: who goes away is let go, and a read that hangs holds
// up nobody who can do with the last value.
//
// It refuses to know what is read. Values are shared: nobody may change them.
package glance

import (
	"context"
	"sync"
	"time"
)

// Glance is the last value of something. Its fields are set before it is used;
// then it is safe for concurrent use.
type Glance[T any] struct {
	// Read reads the value. It is given a context of its own, which ends after
	// Patience: whoever asked first may go away while others wait.
	Read     func(context.Context) (T, error)
	Patience time.Duration
	// Age is how old a value may be, from the end of its read, to be shown
	// without reading it again.
	Age time.Duration
	// Spare is until which age a value beyond Age is still shown at once, while it
	// is read again for those who ask later; 0: nobody gets a value beyond Age.
	Spare time.Duration

	mu    sync.Mutex
	last  T
	at    time.Time // the end of its read; zero: there is none
	under *reading[T]
}

// reading is a read under way; ended is closed when its value or error is there.
type reading[T any] struct {
	ended chan struct{}
	value T
	err   error
}

// Get is the value as it is now, or was a moment ago. It waits for a read that is
// under way or begins one, no longer than ctx lasts. Errors are the read's, for
// all who waited for it, and the context's; none is remembered.
func (g *Glance[T]) Get(ctx context.Context) (T, error) {
	g.mu.Lock()
	age := time.Since(g.at)
	if !g.at.IsZero() && age <= g.Age {
		defer g.mu.Unlock()
		return g.last, nil
	}
	r := g.under
	if r == nil {
		r = &reading[T]{ended: make(chan struct{})}
		g.under = r
		go g.read(context.WithoutCancel(ctx), r)
	}
	if !g.at.IsZero() && age <= g.Spare {
		defer g.mu.Unlock()
		return g.last, nil
	}
	g.mu.Unlock()
	select {
	case <-r.ended:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// read fills in a reading, and keeps its value unless it was forgotten meanwhile.
func (g *Glance[T]) read(ctx context.Context, r *reading[T]) {
	ctx, cancel := context.WithTimeout(ctx, g.Patience)
	defer cancel()
	r.value, r.err = g.Read(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.under == r {
		if g.under = nil; r.err == nil {
			g.last, g.at = r.value, time.Now()
		}
	}
	close(r.ended)
}

// Forget makes the next Get read anew: something was changed. A read that is under
// way may not have seen it, and is for those alone who wait for it already.
func (g *Glance[T]) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var none T
	g.last, g.at, g.under = none, time.Time{}, nil
}
