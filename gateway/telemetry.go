package main

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
)

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
			calls.note(operation, began, time.Now(), err)
		}
	}
}

type callsKey struct{}

// scriptCalls are the calls of one request.
type scriptCalls struct {
	mu    sync.Mutex
	spans []tracing.Span
}

func (c *scriptCalls) note(operation string, began, ended time.Time, err error) {
	span := tracing.Span{Name: "redis " + operation, Kind: tracing.Client, Began: began, Ended: ended,
		Attributes: []tracing.Attribute{tracing.Text("db.system.name", "redis"), tracing.Text("db.operation.name", operation)}}
	if err != nil {
		span.Failure = "the script failed"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, span)
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
	if id := x.ctx.Response.Header.PeekBytes(headerRequestID); len(id) > 0 {
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
