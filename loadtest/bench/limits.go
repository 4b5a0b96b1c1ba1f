package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"vendorapi/loadtest/harness"
)

// limit is what is accepted of one line. Exactly one of AtLeast and AtMost is
// set.
type limit struct {
	// Of is "ratio" or "measured": which median is judged.
	Of      string   `json:"of"`
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
	// AnyMachine marks a figure that does not depend on the machine or on the
	// length of the run, so that a quick run can judge it, too.
	AnyMachine bool `json:"any_machine,omitempty"`
	// Why says where the figure comes from.
	Why string `json:"why"`
}

const (
	ofRatio    = "ratio"
	ofMeasured = "measured"
)

func (l *limit) check() error {
	switch {
	case l.Of != ofRatio && l.Of != ofMeasured:
		return fmt.Errorf("of: want %q or %q", ofRatio, ofMeasured)
	case (l.AtLeast == nil) == (l.AtMost == nil):
		return errors.New("want either at_least or at_most")
	case strings.TrimSpace(l.Why) == "":
		return errors.New("why: missing")
	}
	return nil
}

func (l *limit) String() string {
	sign, bound := ">=", l.AtLeast
	if bound == nil {
		sign, bound = "<=", l.AtMost
	}
	return fmt.Sprintf("%s %s %s", l.Of, sign, harness.Number(*bound))
}

// holds reports whether a median is within the limit.
func (l *limit) holds(median float64) bool {
	if l.AtLeast != nil {
		return median >= *l.AtLeast
	}
	return median <= *l.AtMost
}

// readLimits reads a file of limits by line. Unknown keys and a limit that says
// nothing are errors, so that a slip does not switch a guard off.
func readLimits(path string) (map[string]limit, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("accepted figures: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var limits map[string]limit
	if err := decoder.Decode(&limits); err != nil {
		return nil, fmt.Errorf("accepted figures %s: %w", path, err)
	}
	if len(limits) == 0 {
		return nil, fmt.Errorf("accepted figures %s: there are none", path)
	}
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		l := limits[key]
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("accepted figures %s: %s: %w", path, key, err)
		}
	}
	return limits, nil
}

// Verdicts of a line.
const (
	passed  = "ok"
	failed  = "MISSED"
	unasked = "" // no limit, or one that a quick run cannot judge
)

// judgedLine is a line with its medians and the verdict, as it is written to
// the JSON.
type judgedLine struct {
	Key      string    `json:"key"`
	Title    string    `json:"title"`
	Unit     string    `json:"unit"`
	Baseline string    `json:"baseline,omitempty"`
	Measured *spread   `json:"measured"`
	Base     *spread   `json:"base,omitempty"`
	Ratio    *spread   `json:"ratio,omitempty"`
	Limit    *limit    `json:"limit,omitempty"`
	Verdict  string    `json:"verdict,omitempty"`
	Rounds   []float64 `json:"rounds"` // measured, round by round
	Bases    []float64 `json:"base_rounds,omitempty"`
}

// judge compares every line with its limit. The error names each line that
// misses it, each that proves nothing, and, when whole, each limit that no line
// answers to.
func judge(lines []line, limits map[string]limit, quick, whole bool) ([]judgedLine, error) {
	var judged []judgedLine
	var faults []error
	unanswered := maps.Clone(limits)
	for i := range lines {
		l := &lines[i]
		if err := l.check(); err != nil {
			faults = append(faults, err)
			delete(unanswered, l.key) // said already
			continue
		}
		j := judgedLine{
			Key: l.key, Title: l.title, Unit: l.unit, Baseline: l.baseline, Rounds: l.measured, Bases: l.base,
			Measured: spreadOf(l.measured), Base: spreadOf(l.base), Ratio: spreadOf(l.ratios()),
		}
		if accepted, ok := limits[l.key]; ok {
			delete(unanswered, l.key)
			j.Limit = &accepted
			faults = append(faults, j.judge(quick))
		}
		judged = append(judged, j)
	}
	if whole {
		for _, key := range slices.Sorted(maps.Keys(unanswered)) {
			faults = append(faults, fmt.Errorf("%s: has a limit and was not measured", key))
		}
	}
	return judged, errors.Join(faults...)
}

// judge sets the verdict; the error is that of a miss.
func (j *judgedLine) judge(quick bool) error {
	figure := j.Measured
	if j.Limit.Of == ofRatio {
		figure = j.Ratio
	}
	if figure == nil {
		return fmt.Errorf("%s: has a limit of its ratio and no ratio", j.Key)
	}
	if quick && !j.Limit.AnyMachine {
		j.Verdict = unasked
		return nil
	}
	if j.Limit.holds(figure.Median) {
		j.Verdict = passed
		return nil
	}
	j.Verdict = failed
	return fmt.Errorf("%s: %s is beyond the accepted %s", j.Key, harness.Number(figure.Median), j.Limit)
}
