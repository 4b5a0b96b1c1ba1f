package tracing

import (
	"encoding/binary"
	"fmt"
	"math"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler takes a part of all traces, by the last 48 bits of their ids. In an
// order's id these are a digest's; the bits before them, by which OpenTelemetry's
// own sampler would go, are its partition and day, alike for all orders of a day.
type sampler struct{ below uint64 }

func newSampler(ratio float64) sampler { return sampler{uint64(math.Round(ratio * (1 << 48)))} }

// takes is the same in every program with the same ratio.
func (s sampler) takes(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])&(1<<48-1) < s.below
}

// ShouldSample implements sdktrace.Sampler.
func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	result := sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	if s.takes(p.TraceID) {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

// Description implements sdktrace.Sampler.
func (s sampler) Description() string {
	return fmt.Sprintf("the last 48 bits below %d", s.below)
}
