package main

import (
	"context"
	"crypto/tls"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
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
	shedAccounts prometheus.Counter
	bodies       *prometheus.GaugeVec
	shedBodies   *prometheus.CounterVec
	slow         *prometheus.CounterVec
	keyFailures  prometheus.Counter
	proxyHeaders *prometheus.CounterVec
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
		refusals: r.Counters("gateway_refusals_total", "Answers other than success by errorCode.", "error_code"),
		limited:  r.Counters("gateway_limited_total", "Requests answered 429 by endpoint.", "endpoint"),
		ledgerErrors: r.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_ledger_errors_total", Help: "Requests that the ledger failed, by endpoint and cause: redis (unavailable, or refuses to write), unconfirmed (by its replicas), contended (others changed the same record at every try), starting (not connected yet)."}, []string{"endpoint", "cause"}),
		connections:  r.Counters("gateway_connections_refused_total", "Connections over a limit, by listener.", "listener"),
		proxyHeaders: r.Counters("gateway_proxy_headers_malformed_total", "Connections of trusted proxies closed because of their PROXY header, by listener.", "listener"),
		shed:         r.Counters("gateway_shed_total", "Requests answered 503 because max_in_flight others were in work, by listener.", "listener"),
		shedAccounts: r.Counter("gateway_account_shed_total", "Requests answered 503 because others of the same account had all its places for a second."),
		bodies: r.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gateway_body_bytes", Help: "Bytes reserved for bodies above 4 kB, from before they are read until their requests are answered, by listener."}, []string{"listener"}),
		shedBodies:  r.Counters("gateway_body_shed_total", "Requests answered 503 because there was no room for their body, by listener.", "listener"),
		slow:        r.Counters("gateway_slow_requests_total", "Requests that took longer than slow_request, by endpoint.", "endpoint"),
		keyFailures: r.Counter("gateway_admin_key_failures_total", "Requests to the admin API with a wrong key."),
	}

	for _, code := range delivery.Codes() { // so that the first of a kind is an increase, too
		m.refusals.WithLabelValues(string(code))
	}

	m.unknown, m.unparsed = m.meter("unknown"), m.meter("unparsed")

	return m
}

// measureFleets shows how up to date the fleets are; zeros while there is no ledger.
func (g *gateway) measureFleets() {
	r := service.NewMetrics(g.Registry, nil)
	r.GaugeFunc("gateway_fleets_age_seconds", "Since the fleets' suspensions, revocations and couriers were last read or found unchanged.", func() float64 {
		l := g.Ledger()
		if l == nil {
			return 0
		}
		return l.Fleets.Age().Seconds()
	})

	r.GaugeFunc("gateway_fleets_unreadable", "Fleets of which something cannot be read from Redis.", func() float64 {
		l := g.Ledger()
		if l == nil {
			return 0
		}
		return float64(l.Fleets.Unreadable())
	})
}

// meter is what one endpoint counts.
type meter struct {
	name     string
	all      *metrics
	requests *prometheus.CounterVec
	latency  prometheus.Observer
	limited  prometheus.Counter
	failed   map[ledgerCause]prometheus.Counter // by the ledger
}

// ledgerCause says why the ledger could not do what a request asked for.
type ledgerCause string

const (
	causeRedis       ledgerCause = "redis"       // it is unavailable, or refuses to write
	causeUnconfirmed ledgerCause = "unconfirmed" // by Redis's replicas
	causeContended   ledgerCause = "contended"   // others changed the same record at every try; Redis is well
	causeStarting    ledgerCause = "starting"    // the gateway is not connected yet
)

var ledgerCauses = []ledgerCause{causeRedis, causeUnconfirmed, causeContended, causeStarting}

// ledgerCauseOf is the cause of an error that wraps delivery.ErrUnavailable; empty for others.
func ledgerCauseOf(err error) ledgerCause {
	switch {
	case !errors.Is(err, delivery.ErrUnavailable):
		return ""
	case errors.Is(err, errStarting):
		return causeStarting
	case errors.Is(err, ledger.ErrConflict):
		return causeContended
	case errors.Is(err, ledger.ErrUnconfirmed):
		return causeUnconfirmed
	}

	return causeRedis
}

func (m *metrics) meter(endpoint string) *meter {
	failed := make(map[ledgerCause]prometheus.Counter, len(ledgerCauses))
	for _, cause := range ledgerCauses {
		failed[cause] = m.ledgerErrors.WithLabelValues(endpoint, string(cause))
	}

	return &meter{
		name:     endpoint,
		all:      m,
		requests: m.requests.MustCurryWith(prometheus.Labels{"endpoint": endpoint}),
		latency:  m.latency.WithLabelValues(endpoint),
		limited:  m.limited.WithLabelValues(endpoint),
		failed:   failed,
	}
}

// bodyBudget returns the budget of a listener, none of whose bytes are kept for operators.
func (m *metrics) bodyBudget(listener string, maxBytes int) *bodyBudget {
	return &bodyBudget{
		maxBytes: maxBytes,
		reserved: m.bodies.WithLabelValues(listener),
		refused:  m.shedBodies.WithLabelValues(listener),
	}
}

func (m *metrics) measure(rs routes) routes {
	for i := range rs {
		rs[i].meter = m.meter(rs[i].name)
	}
	return rs
}

func (m *meter) answered(status int, took time.Duration) {
	m.requests.WithLabelValues(statusLabels[status]).Inc()
	m.latency.Observe(took.Seconds())
}

// refused counts a refusal. cause is that of a failure of the ledger, else empty.
func (m *meter) refused(e *delivery.Error, cause ledgerCause) {
	m.all.refusals.WithLabelValues(string(e.Code)).Inc()
	if e.Code == delivery.CodeRateLimited {
		m.limited.Inc()
	}
	if cause != "" {
		m.failed[cause].Inc()
	}
}

// statusLabels spares every answer an allocation.
var statusLabels = func() (labels [600]string) {
	for status := range labels {
		labels[status] = strconv.Itoa(status)
	}
	return labels
}()

// observeScript measures the calls of one Redis script, and while tracing is on
// notes each with the request that it was made for.
func (g *gateway) observeScript(operation string) ledger.CallObserver {
	measure := g.scripts(operation)
	if g.Tracer == nil {
		return measure
	}

	return func(ctx context.Context, began time.Time, err error) {
		measure(ctx, began, err)
		if calls, ok := ctx.Value(callsKey{}).(*scriptCalls); ok {
			span := tracing.Span{Name: "redis " + operation, Kind: tracing.Client, Began: began, Ended: time.Now(),
				Attributes: []tracing.Attribute{tracing.Text("db.system.name", "redis"), tracing.Text("db.operation.name", operation)}}
			if err != nil {
				span.Failure = "the script failed"
			}
			calls.mu.Lock()
			defer calls.mu.Unlock()
			calls.spans = append(calls.spans, span)
		}
	}
}

type callsKey struct{}

// scriptCalls are the calls of one request.
type scriptCalls struct {
	mu    sync.Mutex
	spans []tracing.Span
}

// context is what a request's calls of the ledger are made with.
func (g *gateway) context(x *requestContext) context.Context {
	if g.Tracer == nil {
		return g.work
	}
	if x.calls == nil {
		x.calls = new(scriptCalls)
	}
	return context.WithValue(g.work, callsKey{}, x.calls)
}

// about is what every line of the log about a failed request carries; never what a body
// or header says.
func (g *gateway) about(x *requestContext, requestID string, rest ...any) []any {
	line := x.subject("request_id", requestID, "endpoint", x.meter.name)
	if g.Tracer != nil && !x.order.IsZero() {
		line = append(line, "trace_id", tracing.IDOf(x.order))
	}
	return append(line, rest...)
}

// logSlow says of a request that took long where its time went, in a line a second at most.
func (g *gateway) logSlow(x *requestContext, took time.Duration) {
	g.metrics.slow.WithLabelValues(x.meter.name).Inc()
	unlogged, due := g.slow.due(time.Now())
	if !due {
		return
	}

	ended := x.began.Add(took)
	read, entered := x.read, x.entered
	if read.IsZero() {
		read = ended
	}

	if entered.IsZero() {
		entered = ended
	}

	g.Log.Warn("slow request", g.about(x, string(x.ctx.Response.Header.Peek(headerRequestID)),
		"status", x.ctx.Response.StatusCode(),
		"ms", took.Milliseconds(),
		"body_ms", read.Sub(x.began).Milliseconds(),
		"place_ms", entered.Sub(read).Milliseconds(),
		"work_ms", ended.Sub(entered).Milliseconds(), // nearly all of it waiting for Redis
		"unlogged", unlogged)...)
}

// subject appends what the request is about, as far as it is known, to a line.
func (x *requestContext) subject(line ...any) []any {
	if !x.account.IsZero() {
		line = append(line, "account", x.account)
	}

	if !x.fleet.IsZero() {
		line = append(line, "fleet", x.fleet)
	}

	if x.store != "" {
		line = append(line, "store", x.store)
	}

	if !x.order.IsZero() {
		line = append(line, "order", x.order)
	}

	return line
}

// trace records an answered request, in the trace of its order if it has one.
func (g *gateway) trace(x *requestContext) {
	status := x.ctx.Response.StatusCode()
	span := tracing.Span{Kind: tracing.Server, Began: x.began, Ended: time.Now(), Order: x.order, First: x.first,
		Caller: string(x.ctx.Request.Header.Peek("traceparent")), Name: x.meter.name,
		Attributes: []tracing.Attribute{tracing.Text("http.request.method", string(x.ctx.Method())), tracing.Number("http.response.status_code", status)}}
	if x.route != nil {
		span.Name = x.route.method + " " + x.route.pattern
		span.Attributes = append(span.Attributes, tracing.Text("http.route", x.route.pattern))
	}

	if !x.account.IsZero() {
		span.Attributes = append(span.Attributes, tracing.Text("vendorapi.account", x.account.String()))
	}

	if !x.order.IsZero() {
		span.Attributes = append(span.Attributes, tracing.Text("vendorapi.order", x.order.String()))
	}

	if id := x.ctx.Response.Header.Peek(headerRequestID); len(id) > 0 {
		span.Attributes = append(span.Attributes, tracing.Text("vendorapi.request_id", string(id)))
	}

	if status >= 500 {
		span.Failure = "answered with a failure"
	}

	if x.calls != nil {
		x.calls.mu.Lock()
		span.Within = x.calls.spans
		x.calls.mu.Unlock()
	}

	g.Tracer.Record(&span)
}

// showExpiry shows until when a listener's certificate is good.
func (g *gateway) showExpiry(listener string, secure *tls.Config) {
	service.NewMetrics(g.Registry, prometheus.Labels{"listener": listener}).GaugeFunc("gateway_certificate_expiry_timestamp_seconds",
		"When the certificate that a listener shows ends, as a Unix time; absent without TLS.", func() float64 {
			certificate, err := secure.GetCertificate(nil)
			if err != nil || certificate.Leaf == nil {
				return 0
			}
			return float64(certificate.Leaf.NotAfter.Unix())
		})
}
