package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// abreast is how many orders of a source are on their way at once, one after
// the other by one status: at 200 events a second an order moves about every
// third of a second.
const abreast = 64

// source is where the events for some vendors come from: their orders, moved
// along from Assigned to Delivered.
type source struct {
	orders []*order
	next   int
}

// newSource creates the orders for so many events, in turn for the vendors.
func (r *rig) newSource(ctx context.Context, vendors []*vendor, events int) (*source, error) {
	blocks := (events + abreast*eventsPerOrder - 1) / (abreast * eventsPerOrder)
	orders, err := r.createOrders(ctx, vendors, blocks*abreast, time.Now())
	return &source{orders: orders}, err
}

// step is the next order to move by one status.
func (s *source) step() *order {
	block, within := s.next/(abreast*eventsPerOrder), s.next%(abreast*eventsPerOrder)
	s.next++
	return s.orders[block*abreast+within%abreast]
}

// traffic commits events in an open loop: slot after slot at a fixed rate,
// whatever the worker makes of it.
type traffic struct {
	rig  *rig
	rate int // slots per second
	// pattern is repeated; a nil slot passes without an event.
	pattern []*source
}

// evenly is traffic of one source.
func (r *rig) evenly(s *source, rate int) *traffic {
	return &traffic{rig: r, rate: rate, pattern: []*source{s}}
}

// run commits for as long as said, or until stop is closed, and returns when
// the last commit is done.
func (t *traffic) run(ctx context.Context, length time.Duration, stop <-chan struct{}) error {
	group, working := errgroup.WithContext(ctx)
	began := time.Now()
	slots := int(length.Seconds() * float64(t.rate))
	timer := time.NewTimer(0)
	defer timer.Stop()
slots:
	for i := range slots {
		timer.Reset(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(t.rate))))
		select {
		case <-timer.C:
		case <-stop:
			break slots
		case <-working.Done():
			break slots
		}
		source := t.pattern[i%len(t.pattern)]
		if source == nil {
			continue
		}
		o := source.step()
		group.Go(func() error {
			o.moving.Lock() // its last commit may still be under way
			defer o.moving.Unlock()
			return t.rig.commit(working, o.state.Status+1, time.Now(), o)
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("traffic: %w", err)
	}
	return context.Cause(ctx)
}

// awaitAll waits until the vendors have received everything, for at most so
// long: what is lacking by then is lost, and the figures will say so.
func (r *rig) awaitAll(ctx context.Context, vendors []*vendor, patience time.Duration) error {
	over := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if c := sumOf(vendors); c.Received == c.Expected {
			return nil
		}
		if err := r.worker.Check(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitsOf are the waits of what the vendors were sent between two moments.
func waitsOf(vendors []*vendor, from, to time.Time) (waits []wait) {
	for _, v := range vendors {
		waits = append(waits, v.waits(from, to)...)
	}
	return waits
}

// sumOf is what the vendors' endpoints have come to.
func sumOf(vendors []*vendor) (c counts) {
	for _, v := range vendors {
		c.add(v.sum())
	}
	return c
}
