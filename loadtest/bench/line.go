package main

import (
	"fmt"
	"math"
	"slices"

	"vendorapi/loadtest/harness"
)

// line is one row of the table: a figure and its baseline, both measured once
// in every round.
type line struct {
	key      string // its name in floors.json
	title    string // what was measured
	unit     string // of measured and of base
	baseline string // what base is; empty: there is no baseline
	measured []float64
	base     []float64
}

// ratios are measured to base, round by round, so that what slows a whole round
// down cancels out. A baseline of 0 has no ratio.
func (l *line) ratios() []float64 {
	var ratios []float64
	for i := range min(len(l.measured), len(l.base)) {
		if l.base[i] != 0 {
			ratios = append(ratios, l.measured[i]/l.base[i])
		}
	}
	return ratios
}

// check refuses a line whose figures are missing or are no numbers: such a line
// proves nothing.
func (l *line) check() error {
	if len(l.measured) == 0 {
		return fmt.Errorf("%s: nothing was measured", l.key)
	}
	if l.baseline != "" && len(l.base) != len(l.measured) {
		return fmt.Errorf("%s: %d figures and %d of the baseline", l.key, len(l.measured), len(l.base))
	}
	for _, v := range slices.Concat(l.measured, l.base) {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return fmt.Errorf("%s: a figure is %v", l.key, v)
		}
	}
	return nil
}

// spread is what several rounds come to.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf is nil of no figures.
func spreadOf(rounds []float64) *spread {
	if len(rounds) == 0 {
		return nil
	}
	return &spread{Median: harness.Median(rounds), Min: slices.Min(rounds), Max: slices.Max(rounds)}
}
