package export

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
)

// Results of a turn.
const (
	resultStored = "stored"
	resultFailed = "failed"
)

type metrics struct {
	rows, turns                        *prometheus.CounterVec
	entries, missing, panics           prometheus.Counter
	seconds                            prometheus.Histogram
	lagEntries, lagSeconds, lastStored prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := service.NewMetrics(reg, nil)
	return &metrics{
		rows: with.Counters("reporting_export_rows_total",
			"Rows stored in ClickHouse, by table; a row that was stored twice counts twice.", "table", archive.Tables()...),
		turns: with.Counters("reporting_export_turns_total",
			"Batches of stream entries, by whether they could be stored; failed ones are repeated.", "result", resultStored, resultFailed),
		entries: with.Counter("reporting_export_entries_total", "Stream entries stored and acknowledged."),
		missing: with.Counter("reporting_export_missing_orders_total", "Events whose order was not in Redis any more; each needs a look."),
		panics:  with.Counter("reporting_export_panics_total", "Panics that were caught; each is a defect."),
		seconds: with.Histogram("reporting_export_turn_seconds", "From reading the orders of a batch to its acknowledgement.",
			.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		lagEntries: with.Gauge("reporting_export_lag_entries",
			"Stream entries that are not in ClickHouse yet. The same in every replica."),
		lagSeconds: with.Gauge("reporting_export_lag_seconds",
			"Age of the oldest stream entry that is not in ClickHouse yet. The same in every replica."),
		lastStored: with.Gauge("reporting_export_last_stored_timestamp_seconds",
			"When this process last stored a batch in ClickHouse, as a Unix time; 0: not since its start."),
	}
}

func (m *metrics) stored(b *archive.Batch) {
	for i, rows := range []int{len(b.Orders), len(b.Events), len(b.Late), len(b.Outcomes)} {
		m.rows.WithLabelValues(archive.Tables()[i]).Add(float64(rows))
	}
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
