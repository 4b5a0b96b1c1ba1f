// Package cache keeps the last value of something that many people look at, so that all
// who ask at about the same time cost one read. Values are shared: nobody may change them.
package cache

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Cache is the last value of something. Once its fields are set, it is safe for concurrent use.
type Cache[T any] struct {
	// Read reads the value. Its context ends after Timeout, not with the request that began it.
	Read    func(context.Context) (T, error)
	Timeout time.Duration
	// MaxAge is how old a value may be, from the end of its read, to be returned as it is.
	MaxAge time.Duration
	// MaxStale is up to which age an older value is returned while it is read again; 0: none.
	MaxStale time.Duration

	reads singleflight.Group
	mu    sync.Mutex
	last  *stored[T] // nil: there is none
	epoch int        // how often Forget was called
}

type stored[T any] struct {
	value T
	at    time.Time // the end of its read
}

// Get returns the value. It joins a read in progress or begins one, and waits for it as
// long as ctx lasts. Errors are the read's or the context's; none is kept.
func (c *Cache[T]) Get(ctx context.Context) (value T, err error) {
	c.mu.Lock()
	last, epoch := c.last, c.epoch
	c.mu.Unlock()
	if last != nil && time.Since(last.at) <= c.MaxAge {
		return last.value, nil
	}
	read := c.reads.DoChan("", func() (any, error) { return c.read(context.WithoutCancel(ctx), epoch) })
	if last != nil && time.Since(last.at) <= c.MaxStale {
		return last.value, nil
	}
	select {
	case result := <-read:
		value, _ = result.Val.(T) // a nil interface is T's zero value
		return value, result.Err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// read keeps the value unless Forget was called meanwhile.
func (c *Cache[T]) read(ctx context.Context, epoch int) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	value, err := c.Read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && epoch == c.epoch {
		c.last = &stored[T]{value, time.Now()}
	}
	return value, err
}

// Forget makes the next Get read again, because something was changed. A read in progress
// may not have seen the change; it serves only those who already wait for it.
func (c *Cache[T]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = nil
	c.epoch++
	c.reads.Forget("")
}
