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
//	streams -> | loop, turn by turn: read -> plan -> commit -> send     | --> events, vendors
//	           +--------------------------------------------------------+
package owner

import (
	"cmp"
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
	"vendorapi/internal/ledger/partitions"
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
	// endTimeout is how long an owner that ends may take to write what it has begun, and to give its
	// partitions up.
	endTimeout = 2 * time.Second
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

	endTimeout time.Duration // the constant of this name; tests set more

	Now   func() time.Time // earlier, but in tests
	ahead atomic.Int64     // how far this machine's clock is ahead of Redis's, ns

	// lookSoon is set when a partition is lost, so that the next poll reads the tokens.
	lookSoon atomic.Bool

	// hasOthers is whether other workers were alive at the last look.
	hasOthers atomic.Bool

	// withoutShare is whether this worker claims nothing beside others: it is not ready.
	withoutShare atomic.Bool

	// first is whether this worker was the first of those alive at the last poll; false before
	// it (IsFirst).
	first atomic.Bool

	mu       sync.Mutex
	held     map[int]*loop
	taking   map[int]bool // partitions of an errand
	failedAt failedAt
}

// failedAt are the partitions that this worker cannot work on, or could not a short time ago. It leaves them
// to others. One such partition may be damaged itself; who has failed at several is taken to be the cause, and
// claims nothing.
type failedAt struct {
	until map[int]time.Time // when it may claim the partition again
	pause time.Duration     // the last one
}

const (
	firstPause   = 30 * time.Second
	longestPause = 10 * time.Minute
	// failsAtMost is at how many partitions a worker may fail that still has its share.
	failsAtMost = 1
)

// New prepares the role. name is the worker's in logs. In each step it takes at most batch entries
// of a partition's streams, and looks at timers every so often.
func New(l *ledger.Ledger, s *status.Role, w *dispatch.Role, settings status.Settings, name string, log *slog.Logger, reg prometheus.Registerer) *Role {
	r := &Role{ledger: l, status: s, webhooks: w, worker: name + " " + rand.Text()[:8], batch: settings.Batch, timers: settings.TimerInterval,
		log: log.With("role", "owner"), held: make(map[int]*loop), taking: make(map[int]bool), failedAt: failedAt{until: make(map[int]time.Time)}, endTimeout: endTimeout}
	r.Now = r.earlier
	all := service.NewMetrics(reg, nil)
	all.GaugeFunc("worker_partitions_owned", "Partitions that this worker owns.", func() float64 { return float64(len(r.Owned())) })
	all.GaugeFunc("worker_without_share", "1 while this worker claims no partitions beside others: its user of Redis lacks rights, or it fails at several partitions.", func() float64 {
		if r.withoutShare.Load() {
			return 1
		}
		return 0
	})

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

	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.endTimeout)
	defer cancel()
	r.status.Flush(end)
	r.webhooks.Close()

	return nil
}

// share takes and gives up partitions until ctx ends.
func (r *Role) share(ctx context.Context, loops []*loop) {
	s := &sharer{
		Role:    r,
		sharing: sharing{worker: r.worker},
		loops:   loops,
		busy:    make(map[*loop]bool),
		ended:   make(chan errandEnd, len(loops)),
	}

	service.Repeat(ctx, r.log, pollEvery, "sharing the partitions fails, going on", "sharing the partitions works again", s.poll)

	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.endTimeout)
	defer cancel()
	if err := r.ledger.Ownership.Forget(end, r.worker); err != nil {
		r.log.Warn("the other workers see in some seconds that this one is gone", "error", err)
	}

	for len(s.busy) > 0 {
		s.end(<-s.ended)
	}
}

// sharer is what share knows from one poll to the next.
type sharer struct {
	*Role
	sharing
	loops []*loop

	count    int64     // of beats
	beatenAt time.Time // when it last beat, or found that it may not
	// works is set by a look that has read tokens and taken what was due. Without it the worker does not
	// beat: who cannot take has no share.
	works   bool
	failure error // of the last look
	unfit   bool  // the user of Redis lacks rights

	busy  map[*loop]bool // each has one errand
	ended chan errandEnd
}

// poll beats, and takes and gives up what is due.
func (s *sharer) poll(ctx context.Context) error {
	if now := time.Now(); now.Sub(s.beatenAt) >= beatEvery {
		if err := s.beat(ctx); err != nil {
			return err
		}
		s.beatenAt = now
	}

	workers, released, err := s.ledger.Ownership.Workers(ctx)
	if err != nil {
		return err
	}

	lost := s.lookSoon.Swap(false)
	if !s.shouldLook(workers, released, time.Now()) && !lost {
		return s.failure
	}

	// A look that fails, or after which something was taken or given up, is followed by another.
	s.lookAgain = true
	tokens, missing := s.ledger.Ownership.Tokens(ctx)
	if len(tokens) == 0 {
		s.works, s.failure = false, missing
		return missing
	}

	s.observe(s.ledger.Partitions(), tokens, workers, time.Now())
	s.first.Store(s.isFirst())
	s.hasOthers.Store(len(s.alive()) > 1)
	if gone := s.gone(forgetAfter); len(gone) > 0 {
		err = s.ledger.Ownership.Forget(ctx, gone...)
	}

	take, giveUp := s.plan(s.claimed(), s.standing(), s.avoided())
	s.lookAgain = len(take)+len(giveUp) > 0
	failure := s.send(ctx, tokens, take, giveUp)
	hadFailed := !s.works
	s.works = failure == nil
	if s.works && hadFailed {
		s.beatenAt = time.Time{} // the others may know at once
	}

	s.failure = cmp.Or(failure, err, missing)

	return s.failure
}

// beat tells the others that this worker is alive, if it may own, and compares its clock with Redis's.
func (s *sharer) beat(ctx context.Context) error {
	sent := time.Now() // not when the answer came: a delay would count as a clock that is ahead
	server, err := s.ledger.ServerTime(ctx)
	if err != nil {
		return err
	}

	s.ahead.Store(int64(sent.Sub(server)))

	if s.works && s.standing() != standsBack {
		s.count++
		err = s.ledger.Ownership.Beat(ctx, s.Role.worker, s.count)
	} else {
		err = s.ledger.Ownership.CheckRights(ctx)
	}

	wasUnfit := s.unfit
	s.unfit = errors.Is(err, partitions.ErrForbidden) || partitions.Refused(err)
	switch {
	case s.unfit && !wasUnfit:
		s.log.Error("this worker owns nothing while others live: its user of Redis lacks rights of configs/redis-users.acl", "error", err)
	case wasUnfit && err == nil:
		s.log.Info("this worker has all rights now")
	}

	s.withoutShare.Store(s.standing() != ready && s.hasOthers.Load())
	if s.unfit {
		return nil
	}

	return err
}

// standing is what this worker may claim.
func (s *sharer) standing() standing {
	switch {
	case s.unfit:
		return unfit
	case len(s.avoided()) > failsAtMost:
		return standsBack
	default:
		return ready
	}
}

// claimed are the partitions that are owned or being taken.
func (s *sharer) claimed() map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	claimed := maps.Clone(s.taking)
	for p := range s.held {
		claimed[p] = true
	}
	return claimed
}

// errand is what one loop takes and gives up. It runs beside the polls: in a cluster it may wait for a
// master that does not answer, which must hold up no other master's partitions.
type errand struct {
	loop   *loop
	take   map[int]partitions.Stored
	giveUp []int
}

type errandEnd struct {
	*errand
	err error
}

// errandWait is how long a poll waits for the errands that it has sent.
const errandWait = time.Second

// send lets the loops take and give up partitions, and returns an error of those that have ended.
func (s *sharer) send(ctx context.Context, tokens map[int]partitions.Stored, take, giveUp []int) error {
	errands := make(map[*loop]*errand)
	errandOf := func(l *loop) *errand {
		if errands[l] == nil {
			errands[l] = &errand{loop: l, take: make(map[int]partitions.Stored)}
		}
		return errands[l]
	}

	for _, p := range take {
		l := s.loops[p%len(s.loops)]
		errandOf(l).take[p] = tokens[p]
	}

	for _, p := range giveUp {
		if l := s.loopOf(p); l != nil {
			e := errandOf(l)
			e.giveUp = append(e.giveUp, p)
		}
	}

	wait := time.Duration(0)
	for l, e := range errands {
		if s.busy[l] {
			continue
		}

		wait = errandWait
		s.busy[l] = true
		s.mu.Lock()
		for p := range e.take {
			s.taking[p] = true
		}

		s.mu.Unlock()
		go func() { s.ended <- errandEnd{e, s.run(ctx, e)} }()
	}

	return s.awaitErrands(wait)
}

// awaitErrands waits until all errands have ended, but for no longer than given.
func (s *sharer) awaitErrands(longest time.Duration) (failure error) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for len(s.busy) > 0 {
		select {
		case e := <-s.ended:
			s.end(e)
			failure = cmp.Or(failure, e.err)
		case <-timer.C:
			return failure
		}
	}

	return failure
}

func (s *sharer) end(e errandEnd) {
	delete(s.busy, e.loop)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range e.take {
		delete(s.taking, p)
	}
}

// run takes and gives up. It returns the last failure; that another worker was faster is none.
func (r *Role) run(ctx context.Context, e *errand) (failure error) {
	taking, done := r.outlasting(ctx)
	defer done()
	for _, p := range slices.Sorted(maps.Keys(e.take)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		taken := time.Now()
		owned, err := r.ledger.Ownership.Take(taking, p, e.take[p], r.worker)
		if err == nil {
			r.hold(ctx, e.loop, owned, taken)
			continue
		}

		if errors.Is(err, partitions.ErrNotOwner) {
			continue
		}

		if partitions.Refused(err) && r.hasOthers.Load() {
			r.standBack(p, err)
		}

		failure = cmp.Or(err, failure)
	}

	if len(e.giveUp) > 0 {
		e.loop.giveUp(ctx, e.giveUp)
	}

	return failure
}

// standBack leaves a partition that this worker has failed at to others for a while, longer each time.
func (r *Role) standBack(partition int, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, f := time.Now(), &r.failedAt
	if now.Before(f.until[partition]) {
		return
	}

	var last time.Time
	for p, until := range f.until {
		if until.After(last) {
			last = until
		}
		if now.Sub(until) > longestPause {
			delete(f.until, p)
		}
	}

	switch {
	case now.Before(last): // it has failed at another one a short time ago
	case now.Sub(last) > longestPause:
		f.pause = firstPause
	default:
		f.pause = min(2*f.pause, longestPause)
	}

	f.until[partition] = now.Add(f.pause)
	r.log.Error("this worker fails at a partition, which it leaves to others for a while; it claims nothing if it fails at several",
		"partition", partition, "for", f.pause, "error", cause)
}

// avoided are the partitions that this worker leaves to others now.
func (r *Role) avoided() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, avoided := time.Now(), make(map[int]bool)
	for p, until := range r.failedAt.until {
		if now.Before(until) {
			avoided[p] = true
		}
	}
	return avoided
}

// outlasting is a context that ends endTimeout after ctx: what is begun ends. Of a write whose outcome is
// unknown a partition cannot be given up in order, and waits for takeoverAfter.
func (r *Role) outlasting(ctx context.Context) (context.Context, func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(r.endTimeout, end) })
	return longer, func() { stop(); end() }
}

// hold lets the loop begin with a partition that was taken.
func (r *Role) hold(ctx context.Context, l *loop, o *partitions.Owned, taken time.Time) {
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
