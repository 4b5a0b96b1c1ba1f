package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Closed keeps every connection busy for Duration: the next request goes when
// the last one is answered. It tells how much the server takes, not how long a
// caller waits.
func Closed(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(false); err != nil {
		return nil, err
	}
	start := time.Now()
	conns, err := dial(ctx, &o, start.Add(o.Duration+Patience))
	if err != nil {
		return nil, err
	}
	defer hangUp(conns)
	defer context.AfterFunc(ctx, func() { hangUp(conns) })()
	var (
		next  atomic.Int64
		mu    sync.Mutex
		whole = newResult()
		group errgroup.Group
	)
	start = time.Now()
	until := start.Add(o.Duration)
	for _, c := range conns {
		group.Go(func() error {
			own := &Result{Latency: newHistogram()}
			if err := drive(c, &o, &next, until, own); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			whole.add(own)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("pace: %w", errors.Join(context.Cause(ctx), err))
	}
	whole.Elapsed = time.Since(start)
	return whole, nil
}

// drive sends one connection's requests.
func drive(c *Conn, o *Options, next *atomic.Int64, until time.Time, r *Result) error {
	var request []byte
	for now := time.Now(); now.Before(until); {
		request = o.Request(request[:0], int(next.Add(1)-1))
		a, err := c.Exchange(request)
		if err != nil {
			return err
		}
		answered := time.Now()
		record(r.Latency, answered.Sub(now))
		r.count(a, o.Want)
		r.Sent += int64(len(request))
		now = answered
	}
	return nil
}

// add takes over what another connection has seen.
func (r *Result) add(other *Result) {
	r.Latency.Merge(other.Latency)
	r.Answered += other.Answered
	r.Strange += other.Strange
	if r.Sample == "" {
		r.Sample = other.Sample
	}
	r.Sent += other.Sent
	r.Received += other.Received
}
