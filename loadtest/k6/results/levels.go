package results

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"vendorapi/loadtest/harness"
)

const (
	// leastForRelative is how many requests an endpoint and the empty path must each have had
	// before their percentiles are compared.
	leastForRelative = 20

	// mostRelative is how many times its own threshold a latency may be at most, however slow the
	// empty path was.
	mostRelative = 10
)

// LevelState says whether a service level was held.
type LevelState string

// The states of a service level.
const (
	levelHeld LevelState = "held"

	// levelHeldRelative is the state of a latency above its threshold on a machine that was so
	// slow, or so busy, that the empty path was slow as well.
	levelHeldRelative LevelState = "held relative to this machine"

	levelNotHeld     LevelState = "NOT HELD"
	levelNotMeasured LevelState = "NOT MEASURED"
)

// Level is a service level of a script and what was measured.
type Level struct {
	Metric    string `json:"metric"`    // of k6, such as "http_req_duration{name:POST /orders}"
	Threshold string `json:"threshold"` // of k6, such as "p(95)<50"
	Words     string `json:"words"`     // what the threshold means

	Samples  int      `json:"samples"` // from which the value was computed
	Value    *float64 `json:"value"`   // null if nothing was measured
	Unit     string   `json:"unit"`
	Measured string   `json:"measured"` // the value in words

	State LevelState `json:"state"`

	// Relative compares the value with the empty path's. It is absent where that may not count:
	// for levels that allow no comparison, when there were too few requests for one, and against
	// systems that the driver did not start.
	Relative *RelativeLevel `json:"relative,omitempty"`
}

// RelativeLevel compares a latency with the same percentile of the empty path.
type RelativeLevel struct {
	Accepted float64 `json:"accepted"` // how many times the empty path's latency is accepted
	Times    float64 `json:"times"`    // how many times the empty path's latency was measured
	Empty    Latency `json:"empty_ms"` // the empty path's latency

	// AcceptedLatency is Accepted times Empty, but at most ten times the level's own threshold.
	AcceptedLatency Latency `json:"accepted_ms"`
}

// Words returns what was measured and what is accepted, such as "16 times the empty path's 5.0 ms
// (accepted: 20 times, at most 100.0 ms)".
func (r *RelativeLevel) Words() string {
	return fmt.Sprintf("%s times the empty path's %v (accepted: %s times, at most %v)",
		harness.Number(r.Times), r.Empty, harness.Number(r.Accepted), r.AcceptedLatency)
}

// Held reports whether the level was held, by its threshold or relative to the machine.
func (l *Level) Held() bool { return l.State == levelHeld || l.State == levelHeldRelative }

// Class returns the CSS class that the page shows the state in.
func (l *Level) Class() string {
	switch l.State {
	case levelHeld:
		return "held"
	case levelHeldRelative:
		return "relative"
	default:
		return "broken"
	}
}

// failure says in a sentence what was not held.
func (l *Level) failure() string {
	if l.State == levelNotMeasured {
		return fmt.Sprintf("service level NOT MEASURED: %s (%s of %s)", l.Words, l.Threshold, l.Metric)
	}

	text := fmt.Sprintf("service level NOT HELD: %s (%s of %s): %s", l.Words, l.Threshold, l.Metric, l.Measured)
	if l.Relative != nil {
		text += ", " + l.Relative.Words()
	}

	return text
}

// summary is what a script writes of itself at its end (handleSummary in
// loadtest/lib/levels.js). Whatever else stands in the file, such as what setup() returned, is
// not read, so that no secret of it can get into a result.
type summary struct {
	Title, Proves, Cannot string

	Levels []summaryLevel

	// Aborted says that setup() ended the script, so that it measured nothing.
	Aborted bool

	// Segment is the part of the run that this k6 played, such as "0:1/2"; empty for the whole.
	Segment string

	// Metrics are what k6 counted. Of them only the number of requests is read.
	Metrics struct {
		HTTPRequests struct {
			Values struct{ Count float64 }
		} `json:"http_reqs"`
	}

	// Only a script with steps has these; see Ramp.
	Steps         []summaryStep
	Knee, Ceiling *float64 // orders a second; nil: none
	KneeP99       float64  // milliseconds
}

// summaryLevel is a service level in a summary.
type summaryLevel struct {
	Metric, Threshold, Words string

	Samples  int
	Value    *float64
	Unit     string
	Measured string
	Held     bool

	// Relative is how many times the empty path's latency is accepted; 0: no comparison.
	Relative float64
}

// levelKey identifies a level in the summaries of several parts.
type levelKey struct{ metric, threshold string }

// mergeLevels returns the levels of all parts of a run, in the order in which they first
// occur. A level is held if it is held in every part that measured it, and at least one did.
func mergeLevels(parts []summary) []summaryLevel {
	var merged []summaryLevel
	indexOf := map[levelKey]int{} // in merged
	for _, part := range parts {
		for _, level := range part.Levels {
			key := levelKey{metric: level.Metric, threshold: level.Threshold}
			i, found := indexOf[key]
			if !found {
				indexOf[key] = len(merged)
				merged = append(merged, level)
				continue
			}

			merged[i] = mergeLevel(merged[i], level)
		}
	}

	return merged
}

// mergeLevel returns the worse of two parts' levels, with the number of samples of both together. A
// part that measured nothing does not count.
func mergeLevel(a, b summaryLevel) summaryLevel {
	switch {
	case b.Samples == 0:
		return a
	case a.Samples == 0:
		return b
	}

	worse := a
	if isWorse(b, a) {
		worse = b
	}

	worse.Samples = a.Samples + b.Samples

	return worse
}

// isWorse reports whether a meets the threshold less well than b.
func isWorse(a, b summaryLevel) bool {
	if a.Held != b.Held {
		return !a.Held
	}
	if a.Value == nil || b.Value == nil {
		return false
	}

	bound, isEquality := equalityOf(a.Threshold)
	switch {
	case isEquality:
		return math.Abs(*a.Value-bound) > math.Abs(*b.Value-bound)
	case strings.Contains(a.Threshold, ">"):
		return *a.Value < *b.Value
	default:
		return *a.Value > *b.Value
	}
}

// equalityOf returns the bound of a threshold such as "rate==1"; false for any other threshold.
func equalityOf(threshold string) (bound float64, found bool) {
	_, text, hasBound := strings.Cut(threshold, "==")
	if !hasBound {
		return 0, false
	}

	bound, err := strconv.ParseFloat(strings.TrimLeft(text, "= "), 64)

	return bound, err == nil
}

// levelOf returns a level and whether it was held. empty are the ascending latencies of the empty
// path in the same run and in the level's scenario, in milliseconds; without any, the level is held
// by its threshold or not at all.
func levelOf(l summaryLevel, empty []float64) Level {
	level := Level{
		Metric:    l.Metric,
		Threshold: l.Threshold,
		Words:     l.Words,
		Samples:   l.Samples,
		Value:     l.Value,
		Unit:      l.Unit,
		Measured:  l.Measured,
		Relative:  relativeLevelOf(l, empty),
	}

	switch {
	case l.Samples <= 0:
		level.State = levelNotMeasured
	case l.Held:
		level.State = levelHeld
	case level.Relative != nil && *level.Value <= float64(level.Relative.AcceptedLatency):
		level.State = levelHeldRelative
	default:
		level.State = levelNotHeld
	}

	return level
}

// relativeLevelOf compares a level's value with the empty path's. It returns nil if the level
// allows no comparison, is not about the latency of requests, or if there were too few requests.
func relativeLevelOf(l summaryLevel, empty []float64) *RelativeLevel {
	q, bound, isPercentile := percentileOf(l.Threshold)
	isLatency := strings.HasPrefix(l.Metric, "http_req_duration") && isPercentile
	isAllowed := l.Relative > 0 && isLatency
	isMeasured := l.Value != nil && l.Samples >= leastForRelative && len(empty) >= leastForRelative
	if !isAllowed || !isMeasured {
		return nil
	}

	base := quantile(empty, q)
	if base <= 0 {
		return nil
	}

	return &RelativeLevel{
		Accepted:        l.Relative,
		Times:           *l.Value / base,
		Empty:           Latency(base),
		AcceptedLatency: Latency(min(l.Relative*base, mostRelative*bound)),
	}
}

// scenarioOf returns the scenario that a metric such as
// "http_req_duration{name:POST /orders,scenario:peak}" is limited to; empty if it is not.
func scenarioOf(metric string) string {
	_, tags, _ := strings.Cut(metric, "{")
	tags = strings.TrimSuffix(tags, "}")
	for _, tag := range strings.Split(tags, ",") {
		scenario, found := strings.CutPrefix(strings.TrimSpace(tag), "scenario:")
		if found {
			return scenario
		}
	}

	return ""
}

// percentileThreshold matches an upper bound of a percentile or of the median.
var percentileThreshold = regexp.MustCompile(`^(?:p\((\d+(?:\.\d+)?)\)|med) *<=? *(\d+(?:\.\d+)?)$`)

// percentileOf returns the quantile, from 0 to 1, that a threshold such as "p(95)<50" bounds from
// above, and the bound; false for any other threshold.
func percentileOf(threshold string) (q, bound float64, found bool) {
	match := percentileThreshold.FindStringSubmatch(strings.TrimSpace(threshold))
	if match == nil {
		return 0, 0, false
	}

	bound, err := strconv.ParseFloat(match[2], 64)
	if err != nil {
		return 0, 0, false
	}

	if match[1] == "" {
		return 0.5, bound, true
	}

	percent, err := strconv.ParseFloat(match[1], 64)
	if err != nil || percent > 100 {
		return 0, 0, false
	}

	return percent / 100, bound, true
}
