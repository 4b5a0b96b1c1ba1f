package export

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// Results of a turn.
const (
	resultStored = "stored"
	resultFailed = "failed"
)

type metrics struct {
	rows       *prometheus.CounterVec
	turns      *prometheus.CounterVec
	entries    prometheus.Counter
	missing    prometheus.Counter
	panics     prometheus.Counter
	seconds    prometheus.Histogram
	lagEntries prometheus.Gauge
	lagSeconds prometheus.Gauge
	lastStored prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	m := &metrics{
		rows: with.NewCounterVec(prometheus.CounterOpts{Name: "reporting_export_rows_total",
			Help: "Rows stored in ClickHouse, by table; a row that was stored twice counts twice."}, []string{"table"}),
		turns: with.NewCounterVec(prometheus.CounterOpts{Name: "reporting_export_turns_total",
			Help: "Batches of stream entries, by whether they could be stored; failed ones are repeated."}, []string{"result"}),
		entries: with.NewCounter(prometheus.CounterOpts{Name: "reporting_export_entries_total",
			Help: "Stream entries stored and acknowledged."}),
		missing: with.NewCounter(prometheus.CounterOpts{Name: "reporting_export_missing_orders_total",
			Help: "Events whose order was not in Redis any more; each needs a look."}),
		panics: with.NewCounter(prometheus.CounterOpts{Name: "reporting_export_panics_total",
			Help: "Panics that were caught; each is a defect."}),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name:    "reporting_export_turn_seconds",
			Help:    "From reading the orders of a batch to its acknowledgement.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		lagEntries: with.NewGauge(prometheus.GaugeOpts{Name: "reporting_export_lag_entries",
			Help: "Stream entries that are not in ClickHouse yet. The same in every replica."}),
		lagSeconds: with.NewGauge(prometheus.GaugeOpts{Name: "reporting_export_lag_seconds",
			Help: "Age of the oldest stream entry that is not in ClickHouse yet. The same in every replica."}),
		lastStored: with.NewGauge(prometheus.GaugeOpts{Name: "reporting_export_last_stored_timestamp_seconds",
			Help: "When this process last stored a batch in ClickHouse, as a Unix time; 0: not since its start."}),
	}
	for _, result := range []string{resultStored, resultFailed} {
		m.turns.WithLabelValues(result)
	}
	m.stored(&archive.Batch{}) // all tables, from 0
	return m
}

func (m *metrics) stored(b *archive.Batch) {
	m.rows.WithLabelValues("orders").Add(float64(len(b.Orders)))
	m.rows.WithLabelValues("order_events").Add(float64(len(b.Events)))
	m.rows.WithLabelValues("late_deliveries").Add(float64(len(b.Late)))
	m.rows.WithLabelValues("webhook_outcomes").Add(float64(len(b.Outcomes)))
}

// lagInterval is the pause between two readings of the lag.
const lagInterval = 5 * time.Second

// watchLag refreshes the lag until ctx ends. While Redis is unavailable the figures
// keep their last values.
func (e *Exporter) watchLag(ctx context.Context) error {
	ticker := time.NewTicker(lagInterval)
	defer ticker.Stop()
	for {
		lag, err := e.ledger.Streams.Lag(ctx, ledger.RoleExport)
		if err == nil {
			e.metrics.lagEntries.Set(float64(lag.Entries))
			age := 0.0
			if !lag.Oldest.IsZero() {
				age = max(time.Since(lag.Oldest).Seconds(), 0)
			}
			e.metrics.lagSeconds.Set(age)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
