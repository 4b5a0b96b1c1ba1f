// Package tracing sends spans to an OpenTelemetry collector, so that one order can
// be followed from the vendor's request through the streams to the webhook.
//
// An order's trace id is its order id without the dashes, so nothing is carried
// through streams, records and scripts, and whoever has an order id has the trace. The
// id of the first span, the creation's, is derived as well: all others name it as
// their parent. Whether an order is sampled follows from its id, too. A caller's own
// traceparent becomes a link, or is continued where no order is known.
//
// A span is recorded when it has ended, and dropped when the collector is slow. A nil
// *Tracer is off.
package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"vendorapi/internal/config"
)

// Settings are the keys below "tracing" of a program's configuration.
type Settings struct {
	// Endpoint is the collector's OTLP/HTTP address, http://host:4318 or https://;
	// without a path /v1/traces is added. Empty: tracing is off.
	Endpoint    string  `yaml:"endpoint"`
	SampleRatio float64 `yaml:"sample_ratio"` // which part of all orders is traced, 0 to 1
}

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	u, err := url.Parse(s.Endpoint)
	switch {
	case !(s.SampleRatio >= 0 && s.SampleRatio <= 1): // NaN, too
		return errors.New("tracing.sample_ratio: want 0 to 1")
	case s.Endpoint == "":
		return nil
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "":
		return errors.New("tracing.endpoint: want http://host:4318 or https://, without user, password and query (OTEL_EXPORTER_OTLP_HEADERS holds what the collector wants to see)")
	}

	return nil
}

// queued spans may wait to be sent: the exporter records 10,000 orders at once.
const queued = 16_384

// Tracer records spans of one program.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	// below is the part of all traces that is taken, by the last 48 bits of their ids, in
	// an order's id a digest's: the bits before them are its partition and day.
	below uint64
}

// Open is nil when tracing is off. What the collector does not take is dropped and logged.
func Open(ctx context.Context, s Settings, program, environment string, log *slog.Logger) (*Tracer, error) {
	if s.Endpoint == "" {
		return nil, nil
	}

	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}

	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}

	headers, err := collectorHeaders()
	if err != nil {
		return nil, err
	}

	options := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(u.String())}
	if len(headers) > 0 {
		options = append(options, otlptracehttp.WithHeaders(headers))
	}

	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}

	var last atomic.Int64                                        // Unix seconds
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // at most one line a minute
		now, before := time.Now().Unix(), last.Load()
		if now-before >= 60 && last.CompareAndSwap(before, now) {
			log.Warn("traces are not taken", "error", err)
		}
	}))

	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second), sdktrace.WithMaxQueueSize(queued), sdktrace.WithMaxExportBatchSize(queued/8)),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Record leaves the others out
		sdktrace.WithIDGenerator(generator{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", program), attribute.String("service.namespace", "vendorapi"),
			attribute.String("deployment.environment.name", environment))),
	)

	return &Tracer{provider, provider.Tracer("vendorapi"), uint64(math.Round(s.SampleRatio * (1 << 48)))}, nil
}

// headersVariable holds what the collector wants to see, as name=value, several with commas,
// values percent-encoded. It may be a file, for a key may be in it.
const headersVariable = "OTEL_EXPORTER_OTLP_HEADERS"

// collectorHeaders reads them. Errors show no value.
func collectorHeaders() (map[string]string, error) {
	text, err := config.Variable(headersVariable)
	if err != nil {
		return nil, err
	}

	headers := map[string]string{}
	for _, header := range config.SplitList(text) {
		name, encoded, found := strings.Cut(header, "=")
		value, malformed := url.PathUnescape(strings.TrimSpace(encoded))
		if !found || malformed != nil || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("%s: want name=value, several with commas, percent-encoded", headersVariable)
		}
		headers[strings.TrimSpace(name)] = value
	}

	return headers, nil
}

// Close sends what is queued, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Identity is a span's before it is recorded, for those who send it along.
type Identity struct{ context trace.SpanContext }

// Traceparent is the identity in the form of W3C Trace Context.
func (i Identity) Traceparent() string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), i.context), carrier)
	return carrier["traceparent"]
}

// IDOf is the trace id of an order, in hexadecimal digits.
func IDOf(order [16]byte) string { return trace.TraceID(order).String() }

// OfOrder is a new identity in the trace of an order; all zero: of its own.
func (t *Tracer) OfOrder(order [16]byte) Identity {
	id := trace.TraceID(order)
	if !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	return Identity{t.context(id, newSpanID())}
}

// context is sampled or not, alike in every program with the same ratio.
func (t *Tracer) context(id trace.TraceID, span trace.SpanID) trace.SpanContext {
	var flags trace.TraceFlags
	if binary.BigEndian.Uint64(id[8:])&(1<<48-1) < t.below {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags, Remote: true})
}

// root is an order's first span.
func (t *Tracer) root(order [16]byte) trace.SpanContext {
	sum := sha256.Sum256(append([]byte("root of "), order[:]...))
	return t.context(trace.TraceID(order), trace.SpanID(sum[:8]))
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
	}
	return id
}

// generator gives a span the id that was promised, and other spans a new one.
type generator struct{}

type promisedKey struct{}

// NewIDs implements sdktrace.IDGenerator for a span without parent.
func (generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	promised, _ := ctx.Value(promisedKey{}).(trace.SpanContext)
	return promised.TraceID(), promised.SpanID()
}

// NewSpanID implements sdktrace.IDGenerator for a span with a parent.
func (generator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if promised, ok := ctx.Value(promisedKey{}).(trace.SpanContext); ok {
		return promised.SpanID()
	}
	return newSpanID()
}

// Kind says on which side of a call a span stands.
type Kind = trace.SpanKind

// The kinds.
const (
	Server   = trace.SpanKindServer
	Client   = trace.SpanKindClient
	Consumer = trace.SpanKindConsumer
)

// Span is something that has ended.
type Span struct {
	Name         string
	Kind         Kind
	Order        [16]byte // whose trace it belongs to; all zero: a trace of its own, or Caller's
	First        bool     // marks the one span of an order that all others are below: its creation
	Identity     Identity // what was promised with OfOrder; zero: a new one
	Caller       string   // a traceparent that came with a request; "" or malformed: none
	Began, Ended time.Time
	Failure      string // empty when it went well
	Attributes   []attribute.KeyValue
	Within       []Span // what happened meanwhile; order, identity and caller do not count
}

// Attribute is a name with a value. Names are those of OpenTelemetry's semantic
// conventions, or begin with vendorapi; values are never secrets or a recipient's.
type Attribute = attribute.KeyValue

// Text is an attribute.
func Text(name, value string) attribute.KeyValue { return attribute.String(name, value) }

// Number is a span's attribute.
func Number(name string, value int) attribute.KeyValue { return attribute.Int(name, value) }

// Record queues a span, if its trace is sampled.
func (t *Tracer) Record(s *Span) {
	if t == nil {
		return
	}

	carrier := propagation.MapCarrier{"traceparent": s.Caller}
	caller := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	self, known := s.Identity.context, s.Order != [16]byte{}
	var parent trace.SpanContext
	switch {
	case known && !s.First:
		parent = t.root(s.Order)
	case self.IsValid():
	case known:
		self = t.root(s.Order)
	default:
		parent = caller
	}

	if !self.IsValid() {
		self = t.OfOrder(parent.TraceID()).context
	}

	if !self.IsSampled() {
		return
	}

	var links []trace.Link
	if known && caller.IsValid() {
		links = append(links, trace.Link{SpanContext: caller})
	}

	ctx := trace.ContextWithRemoteSpanContext(context.WithValue(context.Background(), promisedKey{}, self), parent)
	ctx, span := t.start(ctx, s, links...)
	for i := range s.Within {
		_, inner := t.start(context.WithValue(ctx, promisedKey{}, nil), &s.Within[i])
		end(inner, &s.Within[i])
	}

	end(span, s)
}

func (t *Tracer) start(ctx context.Context, s *Span, links ...trace.Link) (context.Context, trace.Span) {
	//nolint:spancheck // the caller ends it
	return t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Began), trace.WithSpanKind(s.Kind), trace.WithAttributes(s.Attributes...),
		trace.WithLinks(links...))
}

func end(span trace.Span, s *Span) {
	if s.Failure != "" {
		span.SetStatus(codes.Error, s.Failure)
	}
	span.End(trace.WithTimestamp(s.Ended))
}
