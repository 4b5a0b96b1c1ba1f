//go:build long

package harness

import "testing"

func TestQuantile(t *testing.T) {
	t.Parallel()

	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}

	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := Quantile(hundred, q); got != want {
			t.Errorf("%v: %v", q, got)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		rounds []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1000, 1, 2, 3, 0}, 2}, // one bad round does not count
	} {
		if got := Median(c.rounds); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.rounds, got, c.want)
		}
	}
}
