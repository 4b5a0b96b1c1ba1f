// Package status moves orders and stores: it consumes new orders and couriers' updates, fires
// timers, and retires what has ended.
//
// Package delivery decides; one script of the ledger writes every effect with the acknowledgement
// of its cause. After a crash an entry is settled or handed out again. Replicas share the entries;
// timers and housekeeping run in all, since each commit compares the version.
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

// Settings are the keys below "status" of configs/worker.yaml, where each is explained.
type Settings struct {
	Batch                int           `yaml:"batch"`
	ClaimAfter           time.Duration `yaml:"claim_after"`
	TimerInterval        time.Duration `yaml:"timer_interval"`
	HousekeepingInterval time.Duration `yaml:"housekeeping_interval"`
	Retention            time.Duration `yaml:"retention"`
	StreamRetention      time.Duration `yaml:"stream_retention"`
}

// leastRetention is the webhooks' retry window and an hour: no event outlives its order.
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
	// decide is delivery.Decide, but in tests.
	decide func(*delivery.Order, delivery.Update, time.Time) delivery.Decision
	// serverTime is the clock of Redis, but in tests.
	serverTime func(context.Context) (time.Time, error)
}

// New prepares the role. consumer is unique among the replicas, the same after a restart.
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

// flushMinutes adds this process's figures to the ledger's, which keeps them after a failure.
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

const lastFlush = 2 * time.Second

// flushLast adds the rest when ctx is over.
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

// everyPartition runs task over all partitions, then pauses, until ctx ends. It logs a failure's
// beginning and end.
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

// oncePerPartition goes on after a failure, and returns the last one.
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

// agreedTime has come by this machine's clock and by Redis's: what a timer ends is ended for good,
// so one clock that is ahead must not do it. In a cluster any node is asked.
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
