package results

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// leastForRelative is how many requests a percentile must be of before it is compared with
// that of the empty path.
const leastForRelative = 20

// LevelState says whether a service level was held.
type LevelState string

// The states of a service level.
const (
	LevelHeld LevelState = "held"

	// LevelHeldRelative is the state of a latency above its threshold on a machine that was so
	// slow, or so busy, that the empty path was slow as well.
	LevelHeldRelative LevelState = "held relative to this machine"

	LevelNotHeld     LevelState = "NOT HELD"
	LevelNotMeasured LevelState = "NOT MEASURED"
)

// Level is a service level of a script and what was measured.
type Level struct {
	Metric    string `json:"metric"`    // of k6, such as "http_req_duration{name:POST /orders}"
	Threshold string `json:"threshold"` // of k6, such as "p(95)<50"
	Words     string `json:"words"`     // what the threshold means

	Samples  int      `json:"samples"` // that the value is of
	Value    *float64 `json:"value"`   // null if nothing was measured
	Unit     string   `json:"unit"`
	Measured string   `json:"measured"` // the value in words

	State LevelState `json:"state"`

	// Relative compares the value with the empty path's. It is absent for levels that allow no
	// comparison, and when there were too few requests for one.
	Relative *RelativeLevel `json:"relative,omitempty"`
}

// RelativeLevel compares a latency with the same percentile of the empty path.
type RelativeLevel struct {
	Accepted float64 `json:"accepted"` // the latency may be so many times the empty path's
	Times    float64 `json:"times"`    // it was so many times the empty path's
	Empty    Latency `json:"empty_ms"` // the empty path's
}

// Held reports whether the level was held, by its threshold or relative to the machine.
func (l *Level) Held() bool { return l.State == LevelHeld || l.State == LevelHeldRelative }

// Failure says in a sentence what was not held.
func (l *Level) Failure() string {
	if l.State == LevelNotMeasured {
		return fmt.Sprintf("service level NOT MEASURED: %s (%s of %s)", l.Words, l.Threshold, l.Metric)
	}

	text := fmt.Sprintf("service level NOT HELD: %s (%s of %s): %s", l.Words, l.Threshold, l.Metric, l.Measured)
	if l.Relative != nil {
		text += fmt.Sprintf(", %.1f times the empty path's %v", l.Relative.Times, l.Relative.Empty)
	}

	return text
}

// summary is what a script writes of itself at its end (handleSummary in
// loadtest/lib/levels.js). Whatever else stands in the file, such as what setup() returned, is
// not read, so that no secret of it can get into a result.
type summary struct {
	Title, Proves, Cannot string

	Levels []summaryLevel

	// Of a ramp only.
	Steps         []summaryStep
	Knee, Ceiling *float64
	KneeP99       float64
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

// mergeLevels returns the levels of all parts of a run, in the order in which they first
// occur. A level is held if it is held in every part that measured it, and at least one did.
func mergeLevels(parts []summary) []summaryLevel {
	var merged []summaryLevel
	placeOf := map[[2]string]int{}
	for _, part := range parts {
		for _, level := range part.Levels {
			key := [2]string{level.Metric, level.Threshold}
			place, found := placeOf[key]
			if !found {
				placeOf[key] = len(merged)
				merged = append(merged, level)
				continue
			}

			merged[place] = mergeLevel(merged[place], level)
		}
	}

	return merged
}

// mergeLevel returns the worse of two parts' levels, with the samples of both.
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
	if strings.Contains(a.Threshold, ">") {
		return *a.Value < *b.Value
	}

	return *a.Value > *b.Value
}

// levelOf decides whether a level was held. empty are the ascending latencies of the empty
// path in the same run.
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
		level.State = LevelNotMeasured
	case l.Held:
		level.State = LevelHeld
	case level.Relative != nil && level.Relative.Times <= level.Relative.Accepted:
		level.State = LevelHeldRelative
	default:
		level.State = LevelNotHeld
	}

	return level
}

// relativeLevelOf compares a level's value with the empty path's. It returns nil if the level
// allows no comparison, is not about the latency of requests, or if there were too few requests.
func relativeLevelOf(l summaryLevel, empty []float64) *RelativeLevel {
	q, isPercentile := percentileOf(l.Threshold)
	isLatency := strings.HasPrefix(l.Metric, "http_req_duration") && isPercentile
	enough := l.Samples >= leastForRelative && len(empty) >= leastForRelative
	if l.Relative <= 0 || l.Value == nil || !isLatency || !enough {
		return nil
	}

	base := quantile(empty, q)
	if base <= 0 {
		return nil
	}

	return &RelativeLevel{
		Accepted: l.Relative,
		Times:    *l.Value / base,
		Empty:    Latency(base),
	}
}

var percentileThreshold = regexp.MustCompile(`^(?:p\((\d+(?:\.\d+)?)\)|med) *<=? *\d+(?:\.\d+)?$`)

// percentileOf returns the quantile that a threshold such as "p(95)<50" bounds from above.
func percentileOf(threshold string) (q float64, found bool) {
	match := percentileThreshold.FindStringSubmatch(strings.TrimSpace(threshold))
	if match == nil {
		return 0, false
	}
	if match[1] == "" {
		return 0.5, true
	}

	percent, err := strconv.ParseFloat(match[1], 64)
	if err != nil || percent > 100 {
		return 0, false
	}

	return percent / 100, true
}
