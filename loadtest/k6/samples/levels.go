package samples

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Plan is what a script says of itself: options.ext.loadtest, see
// loadtest/lib/levels.js.
type Plan struct {
	Title  string
	Proves string
	Levels []Level
}

// Level is one service level.
type Level struct {
	Metric    string // such as "http_req_duration{name:POST /orders}"
	Threshold string // such as "p(99)<50"
	Words     string
	Measured  string // for people, such as "4.1 ms"
	Held      bool
}

// ReadPlan reads the output of `k6 inspect`.
func ReadPlan(inspected []byte) (Plan, error) {
	var options struct {
		Ext        struct{ Loadtest *Plan }
		Thresholds map[string][]string
	}
	if err := json.Unmarshal(inspected, &options); err != nil {
		return Plan{}, fmt.Errorf("k6 inspect: %w", err)
	}
	plan := options.Ext.Loadtest
	if plan == nil || plan.Title == "" || plan.Proves == "" {
		return Plan{}, fmt.Errorf("k6 inspect: the script says neither its title nor what it proves")
	}
	told := 0
	levels := plan.Levels[:0]
	for _, l := range plan.Levels {
		told++
		if l.Words != "" { // without words it is shown by k6 and judged by nobody
			levels = append(levels, l)
		}
	}
	plan.Levels = levels
	for _, thresholds := range options.Thresholds {
		told -= len(thresholds)
	}
	if told != 0 {
		return Plan{}, fmt.Errorf("k6 inspect: the script has thresholds that are no service levels in words")
	}
	return *plan, nil
}

// Measure fills in what the run measured: summary is the file that
// `k6 run --summary-export` wrote. A level that k6 did not measure was not held.
func (p *Plan) Measure(summary []byte) error {
	var run struct {
		Metrics map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(summary, &run); err != nil {
		return fmt.Errorf("k6's summary: %w", err)
	}
	for i := range p.Levels {
		l := &p.Levels[i]
		l.Measured, l.Held = "not measured", false
		metric := run.Metrics[l.Metric]
		var broken map[string]bool // k6 writes true for a threshold that was crossed
		if err := json.Unmarshal(orNull(metric["thresholds"]), &broken); err != nil {
			return fmt.Errorf("k6's summary: thresholds of %s: %w", l.Metric, err)
		}
		crossed, told := broken[l.Threshold]
		if !told {
			continue
		}
		l.Held, l.Measured = !crossed, measured(l, metric)
	}
	return nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// Held reports whether every service level was.
func (p *Plan) Held() bool {
	for _, l := range p.Levels {
		if !l.Held {
			return false
		}
	}
	return true
}

// measured is the value that the threshold speaks of, with its unit.
func measured(l *Level, metric map[string]json.RawMessage) string {
	aggregate := l.Threshold[:max(0, strings.IndexAny(l.Threshold, "<>=!"))]
	_, isRate := metric["passes"]
	if isRate {
		aggregate = "value"
	}
	value, err := strconv.ParseFloat(string(metric[strings.TrimSpace(aggregate)]), 64)
	switch {
	case err != nil:
		return string(orNull(metric[aggregate]))
	case isRate:
		return strconv.FormatFloat(value*100, 'f', percentDigits(value), 64) + " %"
	case strings.HasPrefix(l.Metric, "http_req_"):
		return millis(value)
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// percentDigits: 99.99 % must not be read as 100 %.
func percentDigits(part float64) int {
	if part == 0 || part == 1 {
		return 0
	}
	return 3
}

func millis(ms float64) string {
	digits := 1
	if ms >= 100 {
		digits = 0
	}
	return strconv.FormatFloat(ms, 'f', digits, 64) + " ms"
}
