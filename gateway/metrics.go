package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
)

// metrics are what operators watch; the endpoint is the only label besides the
// answer, and it never comes from a request.
type metrics struct {
	requests     *prometheus.CounterVec
	latency      *prometheus.HistogramVec
	refusals     *prometheus.CounterVec
	limited      *prometheus.CounterVec
	ledgerErrors *prometheus.CounterVec
	connections  *prometheus.CounterVec
	shed         *prometheus.CounterVec
	// unknown are requests that no route takes, unparsed what is no HTTP.
	unknown, unparsed *meter
}

func newMetrics(registry *prometheus.Registry) *metrics {
	r := service.NewMetrics(registry, nil)
	m := &metrics{
		requests: r.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_requests_total", Help: "Requests by endpoint and HTTP status."}, []string{"endpoint", "code"}),
		latency: r.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gateway_request_seconds", Help: "Time from a request's last header to its answer, by endpoint.",
			Buckets: []float64{.0005, .001, .002, .003, .005, .0075, .01, .025, .05, .1, .25, .5, 1, 3, 10},
		}, []string{"endpoint"}),
		refusals:     r.Counters("gateway_refusals_total", "Answers other than success by errorCode.", "error_code"),
		limited:      r.Counters("gateway_limited_total", "Requests answered 429 by endpoint.", "endpoint"),
		ledgerErrors: r.Counters("gateway_ledger_errors_total", "Requests that failed because Redis was unavailable or refused to write, by endpoint.", "endpoint"),
		connections:  r.Counters("gateway_connections_refused_total", "Connections over a limit, by listener.", "listener"),
		shed:         r.Counters("gateway_shed_total", "Requests answered 503 because max_in_flight others were in work, by listener.", "listener"),
	}
	for _, code := range delivery.Codes() { // so that the first of a kind is an increase, too
		m.refusals.WithLabelValues(string(code))
	}
	m.unknown, m.unparsed = m.meter("unknown"), m.meter("unparsed")
	return m
}

// meter is what one endpoint counts.
type meter struct {
	name     string
	all      *metrics
	requests *prometheus.CounterVec
	latency  prometheus.Observer
	limited  prometheus.Counter
	ledger   prometheus.Counter
}

func (m *metrics) meter(endpoint string) *meter {
	return &meter{
		name:     endpoint,
		all:      m,
		requests: m.requests.MustCurryWith(prometheus.Labels{"endpoint": endpoint}),
		latency:  m.latency.WithLabelValues(endpoint),
		limited:  m.limited.WithLabelValues(endpoint),
		ledger:   m.ledgerErrors.WithLabelValues(endpoint),
	}
}

func (m *metrics) measure(rs routes) routes {
	for i := range rs {
		rs[i].meter = m.meter(rs[i].name)
	}
	return rs.split()
}

func (m *meter) answered(status int, took time.Duration) {
	m.requests.WithLabelValues(statusLabel(status)).Inc()
	m.latency.Observe(took.Seconds())
}

func (m *meter) refused(e *delivery.Error) {
	m.all.refusals.WithLabelValues(string(e.Code)).Inc()
	if e.Code == delivery.CodeRateLimited {
		m.limited.Inc()
	}
	if e.Code == delivery.CodeServiceUnavailable && e != errOverloaded {
		m.ledger.Inc()
	}
}

// statusLabel spares the common answers an allocation.
func statusLabel(status int) string {
	switch status {
	case 200:
		return "200"
	case 201:
		return "201"
	case 422:
		return "422"
	case 429:
		return "429"
	}
	return strconv.Itoa(status)
}
