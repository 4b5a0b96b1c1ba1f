// Package owner shares the partitions between the workers: each partition has one owner, which alone
// decides about its orders and sends its webhooks.
//
// An owner reads what has come into its partitions, decides, and writes each partition's effects with
// one step of the ledger, which compares the owner's token and says how far it has got. So nothing is
// decided twice, and what a dead owner has not written its successor reads again. A worker whose
// token somebody has replaced can write nothing more, and begins no send.
//
//	           +------------------------- Run -------------------------+
//	tokens --> | sharing: what to take, what to give up                 |
//	streams -> | loop: read -> orders -> decide -> advance -> send      | --> events, vendors
//	           +--------------------------------------------------------+
package owner

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

const (
	// pollEvery is how often the list of workers is read, which says when the tokens must be.
	pollEvery = 100 * time.Millisecond
	beatEvery = 500 * time.Millisecond
	// forgetAfter is when the name of a worker that is gone is removed.
	forgetAfter = 10 * time.Minute
)

// Role owns partitions in one process.
type Role struct {
	ledger   *ledger.Ledger
	status   *status.Role
	webhooks *dispatch.Role
	worker   string
	batch    int
	timers   time.Duration
	log      *slog.Logger
	taken    prometheus.Counter

	Now   func() time.Time // earlier, but in tests
	ahead atomic.Int64     // how far this machine's clock is ahead of Redis's, ns

	// lookSoon is set when a partition is lost, so that the next poll reads the tokens.
	lookSoon atomic.Bool

	// first is whether this worker was the first of those alive at the last poll; false before
	// it (IsFirst).
	first atomic.Bool

	mu   sync.Mutex
	held map[int]*loop
}

// New prepares the role. name is the worker's in logs. In each step it takes at most batch entries
// of a partition's streams, and looks at timers every so often.
func New(l *ledger.Ledger, s *status.Role, w *dispatch.Role, settings status.Settings, name string, log *slog.Logger, reg prometheus.Registerer) *Role {
	r := &Role{ledger: l, status: s, webhooks: w, worker: name + " " + rand.Text()[:8], batch: settings.Batch, timers: settings.TimerInterval,
		log: log.With("role", "owner"), held: make(map[int]*loop)}
	r.Now = r.earlier
	all := service.NewMetrics(reg, nil)
	all.GaugeFunc("worker_partitions_owned", "Partitions that this worker owns.", func() float64 { return float64(len(r.Owned())) })
	r.taken = all.Counter("worker_partitions_taken_total", "Partitions that this worker has become the owner of.")
	return r
}

// IsFirst reports whether this worker is the one among those alive that does what only one of them has
// to do. It is false until the role has seen the others. While workers come and go, two may think
// so, or none.
func (r *Role) IsFirst() bool { return r.first.Load() }

// Owned lists the partitions that this process owns.
func (r *Role) Owned() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.held))
}

// earlier is a time that has come by this machine's clock and by Redis's: what is ended is ended for
// good, so one clock that is ahead must not do it.
func (r *Role) earlier() time.Time { return time.Now().Add(-time.Duration(max(r.ahead.Load(), 0))) }

// Run owns its share of the partitions until ctx ends, then gives all up. It returns nil then, and
// never because Redis is unavailable.
func (r *Role) Run(ctx context.Context) error {
	var group sync.WaitGroup
	// On a single Redis one read waits for all partitions; in a cluster each is a slot of its own.
	loops := []*loop{newLoop(r)}
	for r.ledger.Cluster() && len(loops) < r.ledger.Partitions() {
		loops = append(loops, newLoop(r))
	}
	for _, l := range loops {
		group.Go(func() { l.run(ctx) })
	}
	group.Go(func() { r.share(ctx, loops) })
	group.Go(func() { r.status.Run(ctx, r.Owned, r.Now) })
	group.Wait()
	r.status.Flush(ctx)
	r.webhooks.Close()
	return nil
}

// share takes and gives up partitions until ctx ends.
func (r *Role) share(ctx context.Context, loops []*loop) {
	s, beat := sharing{worker: r.worker}, time.Time{}
	service.Repeat(ctx, r.log, pollEvery, "sharing the partitions fails, going on", "sharing the partitions works again",
		func(ctx context.Context) error { return r.poll(ctx, &s, loops, &beat) })
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := r.ledger.Ownership.Forget(end, r.worker); err != nil {
		r.log.Warn("the other workers see in some seconds that this one is gone", "error", err)
	}
}

func (r *Role) poll(ctx context.Context, s *sharing, loops []*loop, beat *time.Time) error {
	if now := time.Now(); now.Sub(*beat) >= beatEvery {
		if err := r.ledger.Ownership.Beat(ctx, r.worker); err != nil {
			return err
		}
		*beat = now
		sent := time.Now() // not when the answer came: a delay would count as a clock that is ahead
		server, err := r.ledger.Lifecycle.ServerTime(ctx)
		if err != nil {
			return err
		}
		r.ahead.Store(int64(sent.Sub(server)))
	}
	workers, released, err := r.ledger.Ownership.Workers(ctx)
	if err != nil {
		return err
	}
	lost := r.lookSoon.Swap(false)
	if !s.shouldLook(workers, released, time.Now()) && !lost {
		return nil
	}

	// A look that fails, or after which something was taken or given up, is followed by another.
	s.lookAgain = true
	tokens, err := r.ledger.Ownership.Tokens(ctx)
	if err != nil {
		return err
	}
	s.observe(tokens, workers, time.Now())
	r.first.Store(s.isFirst())
	if gone := s.gone(forgetAfter); len(gone) > 0 {
		err = r.ledger.Ownership.Forget(ctx, gone...)
	}
	held := make(map[int]bool)
	for _, p := range r.Owned() {
		held[p] = true
	}
	take, giveUp := s.plan(held)
	s.lookAgain = len(take) > 0 || giveUp > 0
	taking, done := outlasting(ctx)
	defer done()
	for _, p := range take {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		taken := time.Now()
		owned, failure := r.ledger.Ownership.Take(taking, p, tokens[p], r.worker)
		switch {
		case failure == nil:
			r.hold(ctx, loops[p%len(loops)], owned, taken)
		case !errors.Is(failure, ledger.ErrNotOwner):
			err = failure
		}
	}
	leaving := make(map[*loop][]int)
	for _, p := range r.Owned()[:min(giveUp, len(r.Owned()))] {
		if l := r.loopOf(p); l != nil {
			leaving[l] = append(leaving[l], p)
		}
	}
	for l, partitions := range leaving {
		l.giveUp(ctx, partitions)
	}
	return err
}

// outlasting is a context that ends endTimeout after ctx: what is begun ends. Of a write whose outcome is
// unknown a partition cannot be given up in order, and waits for takeoverAfter.
func outlasting(ctx context.Context) (context.Context, func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(endTimeout, end) })
	return longer, func() { stop(); end() }
}

func (r *Role) hold(ctx context.Context, l *loop, o *ledger.Owned, taken time.Time) {
	r.mu.Lock()
	r.held[o.Partition] = l
	r.mu.Unlock()
	r.taken.Inc()
	r.log.Info("partition taken", "partition", o.Partition)
	l.add(ctx, o, taken)
}

func (r *Role) loopOf(partition int) *loop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[partition]
}

func (r *Role) dropped(partition int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, partition)
	r.lookSoon.Store(true)
}

// announceRelease lets the other workers read the tokens at once. Without it they see within
// lookEvery that partitions are free.
func (r *Role) announceRelease(ctx context.Context) {
	if err := r.ledger.Ownership.Released(ctx); err != nil {
		r.log.Warn("the other workers see a little later that partitions are free", "error", err)
	}
}
