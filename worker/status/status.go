// Package status moves orders and stores: it decides about new orders and couriers' updates, ends
// what has waited too long, and shrinks and retires what has ended.
//
// Package delivery decides; the owner of a partition (package owner) reads what has come in, and
// writes every effect and how far it has got with one step of the ledger.
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
	TimerInterval        time.Duration `yaml:"timer_interval"`
	HousekeepingInterval time.Duration `yaml:"housekeeping_interval"`
	ShrinkAfter          time.Duration `yaml:"shrink_after"`
	Retention            time.Duration `yaml:"retention"`
	StreamRetention      time.Duration `yaml:"stream_retention"`
}

const (
	// leastShrinkAfter is the webhooks' retry window, and how long an idempotency key is remembered.
	leastShrinkAfter = 24 * time.Hour
	// leastRetention is the webhooks' retry window and an hour: no event outlives its order.
	leastRetention = 25 * time.Hour
)

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	switch {
	case s.Batch < 1 || s.Batch > 10_000:
		return errors.New("status.batch: want 1 to 10000")
	case s.TimerInterval < 100*time.Millisecond:
		return errors.New("status.timer_interval: want at least 100ms")
	case s.HousekeepingInterval < time.Second:
		return errors.New("status.housekeeping_interval: want at least 1s")
	case s.ShrinkAfter != 0 && s.ShrinkAfter < leastShrinkAfter:
		return errors.New("status.shrink_after: want 0, or at least 24h, the webhooks' retry window")
	case s.Retention < leastRetention:
		return errors.New("status.retention: want at least 25h, the webhooks' retry window and an hour")
	case s.StreamRetention < leastRetention:
		return errors.New("status.stream_retention: want at least 25h, the webhooks' retry window and an hour")
	}
	return nil
}

// Role decides for the partitions that this process owns.
type Role struct {
	ledger   *ledger.Ledger
	settings Settings
	log      *slog.Logger
	metrics  *metrics
	tracer   *tracing.Tracer // nil: tracing is off
	// decide is delivery.Decide, but in tests.
	decide func(*delivery.Order, delivery.Update, time.Time) delivery.Decision
}

// New prepares the role; a nil tracer leaves tracing off.
func New(l *ledger.Ledger, s Settings, tracer *tracing.Tracer, log *slog.Logger, reg prometheus.Registerer) *Role {
	return &Role{
		ledger:   l,
		settings: s,
		tracer:   tracer,
		log:      log.With("role", "status"),
		metrics:  newMetrics(reg),
		decide:   delivery.Decide,
	}
}

// Run does what needs no owner's step, for the partitions that owned lists, until ctx ends: it
// closes stores, shrinks and retires orders, trims streams, and writes the counts of orders per minute.
// It returns nil. Call Flush when the last step was written.
func (r *Role) Run(ctx context.Context, owned func() []int, now func() time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return r.eachOwned(ctx, "closing of stores", r.settings.TimerInterval, owned, now, r.closeStores)
	})
	group.Go(func() error {
		return r.eachOwned(ctx, "housekeeping", r.settings.HousekeepingInterval, owned, now, r.tidy)
	})
	group.Go(func() error { return r.flushMinutes(ctx) })
	return group.Wait()
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

// Flush writes the last counts of orders per minute, also when ctx is over.
func (r *Role) Flush(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	if err := r.ledger.Limits.Flush(end, time.Now()); err != nil {
		r.log.Warn("the last orders per minute are not counted", "error", err)
	}
}

// eachOwned runs task over the partitions, then pauses, until ctx ends. It logs a failure's
// beginning and end.
func (r *Role) eachOwned(ctx context.Context, name string, pause time.Duration, owned func() []int, now func() time.Time,
	task func(ctx context.Context, partition int, now time.Time) error) error {
	failing := false
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		var failure error
		for _, p := range owned() {
			if err := r.protect(func() error { return task(ctx, p, now()) }); err != nil {
				failure = fmt.Errorf("partition %d: %w", p, err)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case failure != nil && !failing:
			r.log.Warn(name+" fails, going on", "error", failure)
		case failure == nil && failing:
			r.log.Info(name + " works again")
		}
		failing = failure != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
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
