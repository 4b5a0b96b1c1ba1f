package results

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// Latency is a time in milliseconds, from the first byte that was sent to the last byte that
// was received. It is infinite for an order that was not accepted. In JSON infinity is null.
type Latency float64

// never is the latency of what did not happen.
var never = Latency(math.Inf(1))

// String returns a text such as "12.3 ms", or "not accepted".
func (l Latency) String() string {
	if math.IsInf(float64(l), 1) {
		return "not accepted"
	}

	return strconv.FormatFloat(float64(l), 'f', 1, 64) + " ms"
}

// MarshalJSON writes the number of milliseconds, or null.
func (l Latency) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(l), 1) {
		return []byte("null"), nil
	}

	return json.Marshal(float64(l))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Latency) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		*l = never
		return nil
	}

	return json.Unmarshal(text, (*float64)(l))
}

// Percentiles describe the latencies of a number of requests; all zero if there are none.
type Percentiles struct {
	Count int     `json:"count"`
	P50   Latency `json:"p50_ms"`
	P90   Latency `json:"p90_ms"`
	P95   Latency `json:"p95_ms"`
	P99   Latency `json:"p99_ms"`
	P999  Latency `json:"p999_ms"`
	Max   Latency `json:"max_ms"`
}

// percentilesOf returns the percentiles of the values, which are milliseconds. It sorts the slice
// that it is given.
func percentilesOf(values []float64) Percentiles {
	if len(values) == 0 {
		return Percentiles{}
	}

	slices.Sort(values)

	return Percentiles{
		Count: len(values),
		P50:   Latency(quantile(values, 0.5)),
		P90:   Latency(quantile(values, 0.9)),
		P95:   Latency(quantile(values, 0.95)),
		P99:   Latency(quantile(values, 0.99)),
		P999:  Latency(quantile(values, 0.999)),
		Max:   Latency(values[len(values)-1]),
	}
}

// quantile computes a quantile as k6 does, so that k6 and this package never show two
// different p99 of the same requests: it lies at q*(n-1) in the sorted values, and between two
// of them on the straight line. The values must be sorted and not empty.
func quantile(sorted []float64, q float64) float64 {
	position := q * float64(len(sorted)-1)
	below := int(math.Floor(position))
	above := int(math.Ceil(position))

	low, high := sorted[below], sorted[above]
	if low == high {
		return low // even if both are infinite
	}

	return low + (high-low)*(position-float64(below))
}
