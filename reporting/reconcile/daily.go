package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
)

// Settings are the keys below "reconcile" of configs/reporting.yaml, which explains them.
type Settings struct {
	At   string `yaml:"at"`
	Days int    `yaml:"days"`
}

const (
	clockLayout = "15:04"
	// dailyTimeout is longer than an exporter needs after most outages.
	dailyTimeout = 10 * time.Minute
)

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	if _, err := time.Parse(clockLayout, s.At); err != nil {
		return fmt.Errorf("reconcile.at: %q is no time such as 03:30", s.At)
	}
	if s.Days < 1 || s.Days > 31 {
		return errors.New("reconcile.days: want 1 to 31")
	}
	return nil
}

// Daily compares the last days at its start and then every day. It repairs nothing: a
// difference is a defect that somebody should see first.
type Daily struct {
	reconciler *Reconciler
	settings   Settings
	log        *slog.Logger

	found, unbalanced int // what the gauges show

	differences, totals, succeeded prometheus.Gauge
	runs                           *prometheus.CounterVec
}

// NewDaily prepares it.
func NewDaily(l *ledger.Ledger, a *archive.Archive, s Settings, log *slog.Logger, reg prometheus.Registerer) *Daily {
	metrics := service.NewMetrics(reg, nil)
	return &Daily{reconciler: New(l, a), settings: s, log: log.With("role", "reconcile"),
		differences: metrics.Gauge("reporting_reconcile_differences",
			"Orders on which Redis and ClickHouse differed at the last daily comparison; each is a defect."),
		totals: metrics.Gauge("reporting_reconcile_totals_untied",
			"Sums of reports that did not balance at the last daily comparison; each is a defect."),
		succeeded: metrics.Gauge("reporting_reconcile_last_completed_timestamp_seconds",
			"When a daily comparison last came to its end, whatever it found; 0: not since the start."),
		runs: metrics.Counters("reporting_reconcile_runs_total",
			"Daily comparisons by result; a failed one could not compare.", "result", "tied", "differs", "failed"),
	}
}

// Run compares until ctx ends, and returns nil then.
func (d *Daily) Run(ctx context.Context) error {
	for {
		d.compare(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(d.settings.next(time.Now()))):
		}
	}
}

// next is the first moment after now that has the settings' local time.
func (s *Settings) next(now time.Time) time.Time {
	clock, _ := time.Parse(clockLayout, s.At) // Validate has parsed it
	y, m, day := now.In(delivery.Istanbul).Date()
	at := time.Date(y, m, day, clock.Hour(), clock.Minute(), 0, 0, delivery.Istanbul)
	if !at.After(now) {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

func (d *Daily) compare(ctx context.Context, now time.Time) {
	today := archive.BusinessDay(now)
	scope := Scope{From: today.AddDate(0, 0, -d.settings.Days), To: today.AddDate(0, 0, -1), Timeout: dailyTimeout}
	differences, totals, orders := 0, 0, 0
	err := d.reconciler.Run(ctx, scope, func(day *Day) {
		differences, totals, orders = differences+len(day.Differences), totals+len(day.Totals), orders+day.Compared
		for i := range day.Differences {
			d.log.Error("ClickHouse differs from Redis; `reporting reconcile --fix` repairs it", "difference", day.Differences[i].String())
		}
		for _, t := range day.Totals {
			d.log.Error("a report does not balance", "day", day.Day.Format(time.DateOnly), "what", t)
		}
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil { // what was found before the failure is shown; what was known is kept
		differences, totals = max(d.found, differences), max(d.unbalanced, totals)
	}
	d.found, d.unbalanced = differences, totals
	d.differences.Set(float64(differences))
	d.totals.Set(float64(totals))
	if err != nil {
		d.runs.WithLabelValues("failed").Inc()
		d.log.Error("the daily comparison failed", "error", err)
		return
	}
	d.succeeded.SetToCurrentTime()
	result := "tied"
	if differences+totals > 0 {
		result = "differs"
	}
	d.runs.WithLabelValues(result).Inc()
	d.log.Info("compared Redis with ClickHouse", "result", result, "from", scope.From.Format(time.DateOnly),
		"to", scope.To.Format(time.DateOnly), "orders", orders, "differences", differences)
}
