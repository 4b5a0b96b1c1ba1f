package service

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vendorapi/internal/ledger"
	"vendorapi/internal/version"
)

// NewRegistry is a registry that already holds the Go runtime's and the process's own
// metrics, and what was built.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vendorapi_build_info", Help: "Always 1; the labels say what is running.",
			ConstLabels: prometheus.Labels{"version": version.Release(), "revision": version.Revision(), "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
	)

	return reg
}

// Metrics makes a program's own metrics and registers them.
type Metrics struct{ promauto.Factory }

// NewMetrics registers in reg; every metric has the constant labels, if any.
func NewMetrics(reg prometheus.Registerer, labels prometheus.Labels) Metrics {
	return Metrics{promauto.With(prometheus.WrapRegistererWith(labels, reg))}
}

// Counter has no labels.
func (m Metrics) Counter(name, help string) prometheus.Counter {
	return m.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters has one label. The series of known values are there from the start, so
// that the first of a kind is an increase, too.
func (m Metrics) Counters(name, help, label string, known ...string) *prometheus.CounterVec {
	counters := m.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range known {
		counters.WithLabelValues(value)
	}
	return counters
}

// Gauge has no labels.
func (m Metrics) Gauge(name, help string) prometheus.Gauge {
	return m.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// GaugeFunc is read when it is asked for.
func (m Metrics) GaugeFunc(name, help string, read func() float64) {
	m.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// Histogram has no labels; buckets are upper bounds.
func (m Metrics) Histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return m.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// ObserveScripts measures round trips that call Redis scripts, each under the operation that made it.
// Calls that share a round trip are measured as one: those of renew_tokens, which an owner sends with
// its steps, count as advance. An observer allocates nothing.
func ObserveScripts(reg prometheus.Registerer) func(operation string) ledger.CallObserver {
	seconds := NewMetrics(reg, nil).NewHistogramVec(prometheus.HistogramOpts{
		Name:    "vendorapi_redis_script_duration_seconds",
		Help:    "From sending a call of a Redis script to its answer, repetitions included.",
		Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 3},
	}, []string{"script"})

	return func(operation string) ledger.CallObserver {
		// A script that is never called has no series.
		observer := sync.OnceValue(func() prometheus.Observer { return seconds.WithLabelValues(operation) })
		return func(_ context.Context, began time.Time, _ error) { observer().Observe(time.Since(began).Seconds()) }
	}
}
