package status

import (
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
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
	role := prometheus.Labels{"role": string(ledger.RoleStatus)}
	m := &metrics{
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_entries_total", ConstLabels: role,
			Help: "Stream entries handled, by what became of them; conflict and failed ones are handed out again.",
		}, []string{"result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_refused_updates_total",
			Help: "Couriers' updates that were no legal move, by reason.",
		}, []string{"reason"}),
		timers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_timers_fired_total",
			Help: "Orders ended by a timer, by failure reason.",
		}, []string{"reason"}),
		stores: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_stores_closed_total",
			Help: "Migrating stores deactivated at the end of their closing day.",
		}),
		retired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_orders_retired_total",
			Help: "Ended orders removed from Redis after the retention.",
		}),
		trimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_stream_entries_trimmed_total",
			Help: "Settled stream entries dropped after the retention.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "worker_panics_total", ConstLabels: role,
			Help: "Panics that were caught; each is a defect.",
		}),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "worker_update_latency_seconds",
			Help:    "From the time a courier's update says it happened to its commit.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300},
		}),
	}
	reg.MustRegister(m.entries, m.refused, m.timers, m.stores, m.retired, m.trimmed, m.panics, m.decision)
	for _, result := range []string{resultIndexed, resultMoved, resultSwapped, resultDropped, resultRefused, resultConflict, resultFailed} {
		m.entries.WithLabelValues(result)
	}
	for _, reason := range []string{reasonIllegalMove, reasonLateDelivery, reasonUnknownOrder} {
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range []delivery.FailureReason{delivery.NoCourierFound, delivery.TimedOut} {
		m.timers.WithLabelValues(string(reason))
	}
	return m
}
