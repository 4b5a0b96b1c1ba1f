package status

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/service"
)

// Results of an entry.
const (
	resultIndexed  = "indexed"
	resultMoved    = "moved"
	resultSwapped  = "swapped"
	resultRevised  = "revised"
	resultDropped  = "dropped"
	resultRefused  = "refused"
	resultConflict = "conflict"
	resultFailed   = "failed"
)

type metrics struct {
	entries  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	timers   *prometheus.CounterVec
	stores   prometheus.Counter
	retired  prometheus.Counter
	trimmed  prometheus.Counter
	kept     *prometheus.GaugeVec
	nextPast prometheus.Gauge
	panics   prometheus.Counter
	decision prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	role := service.NewMetrics(reg, prometheus.Labels{"role": string(ledger.RoleStatus)})
	all := service.NewMetrics(reg, nil)
	return &metrics{
		entries: role.Counters("worker_entries_total",
			"Stream entries handled, by what became of them; conflict ones are decided again, failed ones are dead letters.", "result",
			resultIndexed, resultMoved, resultSwapped, resultRevised, resultDropped, resultRefused, resultConflict, resultFailed),
		refused: all.Counters("worker_refused_updates_total", "Couriers' updates that were no legal move, by reason.", "reason",
			reasonIllegalMove, reasonLateDelivery, reasonUnknownOrder),
		timers: all.Counters("worker_timers_fired_total", "Orders ended by a timer, by failure reason.", "reason",
			string(delivery.NoCourierFound), string(delivery.TimedOut)),
		stores:  all.Counter("worker_stores_closed_total", "Migrating stores deactivated at the end of their closing day."),
		retired: all.Counter("worker_orders_retired_total", "Ended orders removed from Redis after the retention."),
		trimmed: all.Counter("worker_stream_entries_trimmed_total", "Settled stream entries dropped after the retention."),
		kept: all.NewGaugeVec(prometheus.GaugeOpts{Name: "worker_orders_kept",
			Help: "Orders in the partitions that this worker owns: live ones, which have not ended, and ended ones before the end of their retention."}, []string{"state"}),
		nextPast: all.Gauge("worker_orders_next_past_retention_timestamp_seconds",
			"When the next ended order of the partitions that this worker owns is past its retention, and is removed; 0: none has ended."),
		panics: role.Counter("worker_panics_total", "Panics that were caught; each is a defect."),
		decision: all.Histogram("worker_update_latency_seconds", "From the time a courier's update says it happened to its commit.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300),
	}
}

// States of the orders that are kept.
const (
	keptLive  = "live"
	keptEnded = "ended"
)

// showKept shows what is kept, and when the next of it goes; zero: none has ended.
func (m *metrics) showKept(kept orders.Kept, next time.Time) {
	m.kept.WithLabelValues(keptLive).Set(float64(kept.Live))
	m.kept.WithLabelValues(keptEnded).Set(float64(kept.Ended))
	seconds := 0.0
	if !next.IsZero() {
		seconds = float64(next.Unix())
	}
	m.nextPast.Set(seconds)
}
