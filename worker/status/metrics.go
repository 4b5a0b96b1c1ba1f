package status

import (
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

// Results of an entry.
const (
	resultIndexed  = "indexed"
	resultMoved    = "moved"
	resultSwapped  = "swapped"
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
	panics   prometheus.Counter
	decision prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	role := service.NewMetrics(reg, prometheus.Labels{"role": string(ledger.RoleStatus)})
	all := service.NewMetrics(reg, nil)
	return &metrics{
		entries: role.Counters("worker_entries_total",
			"Stream entries handled, by what became of them; conflict ones are decided again, failed ones are dead letters.", "result",
			resultIndexed, resultMoved, resultSwapped, resultDropped, resultRefused, resultConflict, resultFailed),
		refused: all.Counters("worker_refused_updates_total", "Couriers' updates that were no legal move, by reason.", "reason",
			reasonIllegalMove, reasonLateDelivery, reasonUnknownOrder),
		timers: all.Counters("worker_timers_fired_total", "Orders ended by a timer, by failure reason.", "reason",
			string(delivery.NoCourierFound), string(delivery.TimedOut)),
		stores:  all.Counter("worker_stores_closed_total", "Migrating stores deactivated at the end of their closing day."),
		retired: all.Counter("worker_orders_retired_total", "Ended orders removed from Redis after the retention."),
		trimmed: all.Counter("worker_stream_entries_trimmed_total", "Settled stream entries dropped after the retention."),
		panics:  role.Counter("worker_panics_total", "Panics that were caught; each is a defect."),
		decision: all.Histogram("worker_update_latency_seconds", "From the time a courier's update says it happened to its commit.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300),
	}
}
