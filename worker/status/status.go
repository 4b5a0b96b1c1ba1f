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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/service"
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

// Validate names the keys whose value is out of range.
func (s *Settings) Validate() error {
	return errors.Join(
		config.Demand(s.Batch >= 1 && s.Batch <= 10_000, "status.batch: want 1 to 10000"),
		config.Demand(s.TimerInterval >= 100*time.Millisecond, "status.timer_interval: want at least 100ms"),
		config.Demand(s.HousekeepingInterval >= time.Second, "status.housekeeping_interval: want at least 1s"),
		config.Demand(s.ShrinkAfter >= leastShrinkAfter,
			"status.shrink_after: want at least 24h, the webhooks' retry window"),
		config.Demand(s.Retention >= leastRetention, "status.retention: want at least 25h, the webhooks' retry window and an hour"),
		config.Demand(s.StreamRetention >= leastRetention, "status.stream_retention: want at least 25h, the webhooks' retry window and an hour"))
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
	// accountsInterval is the constant of this name; tests set more.
	accountsInterval time.Duration
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

		accountsInterval: accountsInterval,
	}
}

// Run does what needs no owner's step, for the partitions that owned lists, until ctx ends: it
// closes stores, shrinks and retires orders, trims streams, and writes the counts of orders per minute.
// Call Flush when the last step was written.
func (r *Role) Run(ctx context.Context, owned func() []int, now func() time.Time) {
	var tasks sync.WaitGroup
	repeat := func(name string, every time.Duration, task func(context.Context) error) {
		tasks.Go(func() {
			service.Repeat(ctx, r.log, every, name+" fails, going on", name+" works again", task)
		})
	}

	repeat("closing of stores", r.settings.TimerInterval, func(ctx context.Context) error {
		// One read tells in which partitions there is something to do, which is rare.
		due, err := r.ledger.Stores.WithDue(ctx, owned(), now())
		return errors.Join(err, r.each(due, func(partition int) error { return r.closeStores(ctx, partition, now()) }))
	})

	h := &housekeeping{Role: r, owned: owned, now: now}
	repeat("housekeeping", housekeepingLook, h.look)
	tasks.Go(func() { // the ledger keeps this process's figures after a failure
		service.Repeat(ctx, r.log, limits.FlushMinutesEvery, "orders per minute cannot be counted; they are added later", "",
			func(ctx context.Context) error { return r.ledger.Limits.Flush(ctx, r.ledger.Now()) })
	})

	tasks.Wait()
}

// each does a task for each partition, also after one for which it fails or panics. It returns
// the last failure.
func (r *Role) each(partitions []int, task func(partition int) error) (failure error) {
	for _, p := range partitions {
		if err := service.Protect(r.metrics.panics, func() error { return task(p) }); err != nil {
			failure = fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return failure
}

// Flush writes the last counts of orders per minute.
func (r *Role) Flush(ctx context.Context) {
	if err := r.ledger.Limits.Flush(ctx, r.ledger.Now()); err != nil {
		r.log.Warn("the last orders per minute are not counted", "error", err)
	}
}
