package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

// harmLength is about how long a fault goes on in a round.
const harmLength = 5 * time.Second

// harm is one fault at work in one round, with dice of its own.
type harm struct {
	*rig
	vendors []*vendor
	random  *rand.Rand
	times   atomic.Int64 // how often it has struck
	say     func(format string, args ...any)
}

func (h *harm) struck() { h.times.Add(1) }

// between draws a time.
func (h *harm) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(h.random.Int64N(int64(most-least)))
}

// hold waits for a drawn time.
func (h *harm) hold(ctx context.Context, least, most time.Duration) error {
	return sleep(ctx, h.between(least, most))
}

// repeatedly strikes again and again until the harm has lasted, at least once.
func (h *harm) repeatedly(ctx context.Context, strike func(context.Context) error) error {
	for began := time.Now(); ; {
		if err := strike(ctx); err != nil {
			return err
		}
		if time.Since(began) > harmLength {
			return nil
		}
	}
}

// startPatience is how long a fault waits for a process that it starts again
// before it goes on.
const startPatience = 10 * time.Second

// insist repeats what cannot be done while another fault has taken away what it
// needs, such as a server that does not run.
func (h *harm) insist(ctx context.Context, do func() error) error {
	for over := time.Now().Add(startPatience); ; {
		err := do()
		if err == nil || time.Now().After(over) {
			return err
		}
		if stopped := sleep(ctx, 100*time.Millisecond); stopped != nil {
			return errors.Join(err, stopped)
		}
	}
}

// crash kills a process, leaves it dead for a drawn time and starts it again.
func (h *harm) crash(ctx context.Context, p runnable) error {
	h.kill(p)
	h.struck()
	if err := h.hold(ctx, 0, 800*time.Millisecond); err != nil {
		return err
	}
	return h.revive(ctx, p, startPatience)
}

// crashes is the fault of killing a process at random times.
func crashes(which func(*rig) runnable) func(context.Context, *harm) error {
	return func(ctx context.Context, h *harm) error {
		return h.repeatedly(ctx, func(ctx context.Context) error {
			if err := h.hold(ctx, 100*time.Millisecond, 1500*time.Millisecond); err != nil {
				return err
			}
			return h.crash(ctx, which(h.rig))
		})
	}
}

// trapPatience is how long a trap waits for its request. Clients send some all
// the time, and what they cause follows at once.
const trapPatience = 8 * time.Second

// spring waits for a request at a moment that is drawn. What follows must undo
// it: Release, after the program was killed or by itself. Another fault may need
// the same way meanwhile; then the trap is set again.
func (h *harm) spring(ctx context.Context, p *failpoint.Proxy, markers []string, moments ...failpoint.Moment) (*failpoint.Trap, error) {
	marker, moment := markers[h.random.IntN(len(markers))], moments[h.random.IntN(len(moments))]
	ctx, cancel := context.WithTimeout(ctx, trapPatience)
	defer cancel()
	t := p.Set(marker, moment)
	for err := t.Await(ctx); err != nil; err = t.Await(ctx) {
		if !errors.Is(err, failpoint.ErrRemoved) {
			return nil, err
		}
		if err := h.hold(ctx, 100*time.Millisecond, 400*time.Millisecond); err != nil {
			return nil, err
		}
		t = p.Set(marker, moment)
	}
	h.struck()
	h.say("%s %s", moment, marker)
	return t, nil
}

// crashAt kills a program at the moment of one of its requests.
func (h *harm) crashAt(ctx context.Context, p runnable, way *failpoint.Proxy, markers ...string) error {
	if err := h.hold(ctx, 0, 500*time.Millisecond); err != nil {
		return err
	}
	t, err := h.spring(ctx, way, markers, failpoint.Before, failpoint.After)
	if err != nil {
		return err
	}
	h.kill(p)
	if err := t.Release(); err != nil {
		return err
	}
	if err := h.hold(ctx, 0, 500*time.Millisecond); err != nil {
		return err
	}
	return h.revive(ctx, p, startPatience)
}

// freeze holds a process still and lets it go on.
func (h *harm) freeze(ctx context.Context, p runnable, length time.Duration) error {
	if err := h.insist(ctx, func() error { return h.signal(p, syscall.SIGSTOP) }); err != nil {
		return fmt.Errorf("SIGSTOP: %w", err)
	}
	h.struck()
	err := sleep(ctx, length)
	// It may have been killed by another fault meanwhile.
	_ = h.signal(p, syscall.SIGCONT)
	return err
}

// The processes, for tables.
func gateway(r *rig) runnable    { return r.system.Gateway }
func worker(r *rig) runnable     { return r.system.Worker }
func reporting(r *rig) runnable  { return r.system.Reporting }
func clickHouse(r *rig) runnable { return r.system.ClickHouse }
func redis(r *rig) runnable      { return r.redis }

var _ runnable = (*stack.Redis)(nil)
