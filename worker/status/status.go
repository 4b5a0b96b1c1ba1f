// Package status moves orders and stores: it consumes new orders and the
// couriers' updates, fires the timers, and retires what has ended.
//
// Package delivery decides; the ledger writes every effect together with the
// acknowledgement of what caused it in one script. A crash at any point leaves an
// entry settled or pending, and pending entries are handed out again. A decision
// is made again when another replica's commit came first.
//
// Any number of replicas may run. The consumer group shares a partition's
// entries; timers and housekeeping run everywhere, because each commit compares
// the version and all but one find nothing left to do.
package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/tracing"
)

// Settings are the keys below "status" of the worker's configuration.
type Settings struct {
	// Batch is how many entries of a partition are taken at once, 1 to 10000.
	Batch int `yaml:"batch"`
	// ClaimAfter is how long a silent consumer keeps its entries before another
	// takes them over; at least a second.
	ClaimAfter time.Duration `yaml:"claim_after"`
	// TimerInterval is the pause between two looks at the timers.
	TimerInterval time.Duration `yaml:"timer_interval"`
	// HousekeepingInterval is the pause between two rounds of retiring and trimming.
	HousekeepingInterval time.Duration `yaml:"housekeeping_interval"`
	// Retention is how long an ended order stays in Redis, at least 25 h so
	// that no event can outlive its order.
	Retention time.Duration `yaml:"retention"`
	// StreamRetention is how long settled entries stay in the streams, at least
	// 25 h so that a replay of the last 24 h finds them.
	StreamRetention time.Duration `yaml:"stream_retention"`
}

// leastRetention is the webhook's retry window and an hour of slack.
const leastRetention = 25 * time.Hour

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	switch {
	case s.Batch < 1 || s.Batch > 10_000:
		return errors.New("status.batch: want 1 to 10000")
	case s.ClaimAfter < time.Second:
		return errors.New("status.claim_after: want at least 1s")
	case s.TimerInterval < 100*time.Millisecond:
		return errors.New("status.timer_interval: want at least 100ms")
	case s.HousekeepingInterval < time.Second:
		return errors.New("status.housekeeping_interval: want at least 1s")
	case s.Retention < leastRetention:
		return errors.New("status.retention: want at least 25h, the webhooks' retry window and an hour")
	case s.StreamRetention < leastRetention:
		return errors.New("status.stream_retention: want at least 25h, the webhooks' retry window and an hour")
	}
	return nil
}

// Role is the status role of one process.
type Role struct {
	ledger   *ledger.Ledger
	settings Settings
	consumer string
	log      *slog.Logger
	metrics  *metrics
	tracer   *tracing.Tracer // nil: tracing is off
	// decide is delivery.Decide; a test puts a faulty one in its place to see
	// that a defect in it loses nothing.
	decide func(*delivery.Order, delivery.Update, time.Time) delivery.Decision
	// serverTime is the clock of Redis; a test puts a wrong one in its place.
	serverTime func(context.Context) (time.Time, error)
}

// New prepares the role. consumer names this process within the consumer
// group: unique among the replicas, the same after a restart.
func New(l *ledger.Ledger, s Settings, consumer string, log *slog.Logger, reg prometheus.Registerer) *Role {
	return &Role{
		ledger:     l,
		settings:   s,
		consumer:   consumer,
		log:        log.With("role", "status"),
		metrics:    newMetrics(reg),
		decide:     delivery.Decide,
		serverTime: l.Lifecycle.ServerTime,
	}
}

// Traced makes the role record what it decides; nil leaves it off.
func (r *Role) Traced(t *tracing.Tracer) *Role {
	r.tracer = t
	return r
}

// Run works until ctx ends. It returns nil then, and never because Redis is unavailable.
func (r *Role) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.feed(ctx) })
	group.Go(func() error {
		return r.everyPartition(ctx, "timers", r.settings.TimerInterval, r.fireTimers)
	})
	group.Go(func() error {
		return r.everyPartition(ctx, "housekeeping", r.settings.HousekeepingInterval, r.tidy)
	})
	group.Go(func() error { return r.flushMinutes(ctx) })
	err := group.Wait()
	r.flushLast(ctx)
	return err
}

// flushMinutes adds this process's figures, the orders that it ended, to the ledger's until ctx
// ends. A failure loses nothing: the ledger keeps them for the next time.
func (r *Role) flushMinutes(ctx context.Context) error {
	ticker := time.NewTicker(ledger.FlushMinutesEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			err := r.ledger.Limits.Flush(ctx, now)
			if err != nil && !failing && ctx.Err() == nil {
				r.log.Warn("orders per minute cannot be counted; they are added later", "error", err)
			}
			failing = err != nil
		}
	}
}

// lastFlush bounds how long the end of the role waits for its last figures.
const lastFlush = 2 * time.Second

// flushLast adds what was done since the last flush, ctx being over.
func (r *Role) flushLast(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	if err := r.ledger.Limits.Flush(end, time.Now()); err != nil {
		r.log.Warn("the last orders per minute are not counted", "error", err)
	}
}

func (r *Role) feed(ctx context.Context) error {
	err := r.ledger.Streams.Run(ctx, ledger.Feed{
		Role:       ledger.RoleStatus,
		Consumer:   r.consumer,
		Handle:     r.handle,
		Log:        r.log.Warn,
		Batch:      r.settings.Batch,
		ClaimAfter: r.settings.ClaimAfter,
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status feed: %w", err)
	}
	return errors.New("status feed ended by itself")
}

// everyPartition runs task over all partitions, then pauses, until ctx ends. A
// failure is logged when it begins and when it is over, not every time.
func (r *Role) everyPartition(ctx context.Context, name string, pause time.Duration,
	task func(ctx context.Context, partition int, now time.Time) error) error {
	failing := false
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		failure := r.oncePerPartition(ctx, task)
		switch {
		case ctx.Err() != nil:
			return nil
		case failure != nil && !failing:
			r.log.Warn(name+" fail, going on", "error", failure)
		case failure == nil && failing:
			r.log.Info(name + " work again")
		}
		failing = failure != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// oncePerPartition runs task over all partitions. A failing one does not keep
// the others from their turn; the last failure is returned.
func (r *Role) oncePerPartition(ctx context.Context, task func(ctx context.Context, partition int, now time.Time) error) error {
	now, failure := r.agreedTime(ctx)
	if failure != nil {
		return failure
	}
	for p := 0; p < r.ledger.Partitions() && ctx.Err() == nil; p++ {
		if err := r.protect(func() error { return task(ctx, p, now) }); err != nil {
			failure = fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return failure
}

// agreedTime is a time that has come by this machine's clock and by Redis's. What waits for a time
// is ended for good, so one clock that is ahead must not do it. One that is behind makes it late: a
// worker's until another worker's turn, Redis's for all. In a cluster any node is asked; while one
// is dead, a turn now and then is left out.
func (r *Role) agreedTime(ctx context.Context) (time.Time, error) {
	server, err := r.serverTime(ctx)
	if err != nil {
		return time.Time{}, err
	}
	own := time.Now()
	if server.Before(own) {
		return server, nil
	}
	return own, nil
}

// protect turns a panic into an error: one defective record must not end the process.
func (r *Role) protect(work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			r.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return work()
}
