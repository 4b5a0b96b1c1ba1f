// Package harness is what the load tests and benchmarks share: how figures are summarized, written and kept as JSON;
// what processes use; the machine that it was measured on; a load generator.
package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// WriteJSON writes what a run has found to a file and prints where.
func WriteJSON(path string, what any, out io.Writer) error {
	content, err := json.MarshalIndent(what, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}

	if err == nil {
		err = os.WriteFile(path, append(content, '\n'), 0o644)
	}

	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}

	fmt.Fprintln(out, "figures:", path)

	return nil
}

// Median is between the two middle ones of an even number of figures; NaN of none.
func Median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Quantile is by the nearest rank, q from 0 to 1; NaN of no figures.
func Quantile(figures []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Number writes a figure with three digits or more, thousands set apart.
func Number(v float64) string {
	switch {
	case v >= 999.5:
		return Grouped(int64(math.Round(v)))
	case v >= 99.95 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Grouped sets thousands apart.
func Grouped[N int | int64](n N) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + " " + digits[at:]
	}
	return digits
}
