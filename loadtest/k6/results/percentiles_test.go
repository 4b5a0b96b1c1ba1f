package results

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The figures are k6's: TrendSink.P of k6 v1.8.1 gives the same of the same values.
func TestPercentilesOf(t *testing.T) {
	t.Parallel()

	inf := math.Inf(1)

	for name, c := range map[string]struct {
		values []float64
		want   Percentiles
	}{
		"nothing":   {values: nil, want: Percentiles{}},
		"one value": {values: []float64{7}, want: Percentiles{Count: 1, P50: 7, P90: 7, P95: 7, P99: 7, P999: 7, Max: 7}},
		"between two": {
			values: []float64{20, 10},
			want:   Percentiles{Count: 2, P50: 15, P90: 19, P95: 19.5, P99: 19.9, P999: 19.99, Max: 20},
		},
		"eleven": {
			values: []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
			want:   Percentiles{Count: 11, P50: 5, P90: 9, P95: 9.5, P99: 9.9, P999: 9.99, Max: 10},
		},
		"one of three was not accepted": {
			values: []float64{inf, 1, 2},
			want:   Percentiles{Count: 3, P50: 2, P90: never, P95: never, P99: never, P999: never, Max: never},
		},
		"none was accepted": {
			values: []float64{inf, inf},
			want:   Percentiles{Count: 2, P50: never, P90: never, P95: never, P99: never, P999: never, Max: never},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := percentilesOf(c.values)

			if !almostEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// almostEqual allows for rounding.
func almostEqual(a, b Percentiles) bool {
	as := []Latency{a.P50, a.P90, a.P95, a.P99, a.P999, a.Max}
	bs := []Latency{b.P50, b.P90, b.P95, b.P99, b.P999, b.Max}
	for i := range as {
		if as[i] != bs[i] && math.Abs(float64(as[i]-bs[i])) > 1e-9 {
			return false
		}
	}

	return a.Count == b.Count
}

// Whatever is missing makes no percentile better, and none is no number.
func TestPercentilesOf_MissingCountAsSlowest(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 30000), 1, 200).Draw(t, "values")
		missing := rapid.IntRange(0, 200).Draw(t, "missing")
		whole := percentilesOf(slices.Clone(values))

		padded := slices.Clone(values)
		for range missing {
			padded = append(padded, math.Inf(1))
		}

		got := percentilesOf(padded)

		before := []Latency{whole.P50, whole.P90, whole.P95, whole.P99, whole.P999, whole.Max}
		after := []Latency{got.P50, got.P90, got.P95, got.P99, got.P999, got.Max}
		for i := range before {
			isNumber := !math.IsNaN(float64(after[i]))
			if !isNumber || after[i] < before[i]-1e-9 {
				t.Fatalf("figure %d went from %v to %v by %d missing values", i, before[i], after[i], missing)
			}
			if i > 0 && after[i] < after[i-1]-1e-9 {
				t.Fatalf("figure %d is %v, the one before it %v", i, after[i], after[i-1])
			}
		}

		if got.Count != len(values)+missing {
			t.Fatalf("the count is %d", got.Count)
		}
	})
}

func TestLatency_SurvivesJSON(t *testing.T) {
	t.Parallel()

	want := Percentiles{Count: 2, P50: 1.25, P90: never, Max: never}

	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}

	var got Percentiles
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}

	if got != want {
		t.Errorf("got %+v, want %+v by %s", got, want, text)
	}
}

// The summary in testdata holds what k6 itself computed of the samples beside it.
func TestPercentilesOf_AgreesWithK6(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("testdata", "ramp.summary.json"))
	if err != nil {
		t.Fatal(err)
	}

	var summary struct {
		Metrics map[string]struct{ Values map[string]float64 }
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		t.Fatal(err)
	}

	samples, err := readSampleFiles(filepath.Join("testdata", "ramp.samples.json.gz"))
	if err != nil {
		t.Fatal(err)
	}

	var latencies []float64
	for i := range samples.requests {
		latencies = append(latencies, samples.requests[i].took)
	}

	got := percentilesOf(latencies)

	k6 := summary.Metrics["http_req_duration"].Values
	want := Percentiles{
		Count: int(k6["count"]),
		P50:   Latency(k6["med"]),
		P90:   Latency(k6["p(90)"]),
		P95:   Latency(k6["p(95)"]),
		P99:   Latency(k6["p(99)"]),
		P999:  got.P999, // k6 was not asked for it
		Max:   Latency(k6["max"]),
	}
	if want.Count == 0 || !almostEqual(got, want) {
		t.Errorf("got %+v, k6 has %+v", got, want)
	}
}
