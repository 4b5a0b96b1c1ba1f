package results

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

const (
	// acceptedShare is the part of a step's orders that has to be accepted.
	acceptedShare = 0.999

	// defaultKneeP99 bounds the p99 of a step, in milliseconds, if the script names no bound.
	defaultKneeP99 = 100

	// leastForStep is how many answers from the empty path a step must have had before their p99 is
	// shown.
	leastForStep = 5

	// limitShare is the part of the accepted orders' p99 from which on the empty path's p99 shows that
	// the orders' time was spent outside the service.
	limitShare = 0.5
)

// Ramp is the result of a script that offers orders in steps, each at a higher rate.
type Ramp struct {
	Steps []Step `json:"steps"`

	// KneeP99 is the p99 in milliseconds beyond which a step breaks.
	KneeP99 float64 `json:"knee_p99_ms"`

	// Knee is the rate of the last step before the first one that breaks, in orders a second. It
	// is null if the first step breaks, and if none does; KneeWords says which.
	Knee      *float64 `json:"knee"`
	KneeWords string   `json:"knee_words"`

	// Bottleneck says what was at its limit in the first step that breaks: the service, or what tests
	// it. It is empty if no step breaks.
	Bottleneck string `json:"bottleneck"`

	// Ceiling is how many orders a second k6 itself could send at most. It is measured in the same
	// run by sending the requests of such orders to the empty path. It is null if that was not done.
	Ceiling *float64 `json:"ceiling"`
}

// Step is one rate of a ramp.
type Step struct {
	Scenario string  `json:"scenario"`
	Rate     float64 `json:"rate"`    // orders offered per second
	Seconds  float64 `json:"seconds"` // how long

	Offered  int `json:"offered"`  // orders that the rate asks for
	Started  int `json:"started"`  // orders that k6 began
	Dropped  int `json:"dropped"`  // orders that k6 gave up because no virtual user was free
	Accepted int `json:"accepted"` // orders that the service accepted

	Unavailable int `json:"unavailable"` // answers 503
	Refused     int `json:"refused"`     // answers 429
	Unanswered  int `json:"unanswered"`  // requests without an answer

	// Latency is the latency of all offered orders. An order that was not accepted counts as the
	// slowest, whether it was never started, not answered or refused. Otherwise a service, or a
	// k6, that does less would look quicker.
	Latency Percentiles `json:"latency"`

	// EmptyP99 is the p99 of the empty path during the step; null if it was requested too rarely.
	EmptyP99 *Latency `json:"empty_p99_ms"`

	// Broken says why the step is beyond what the service can do; empty if it is not.
	Broken string `json:"broken"`
}

// summaryStep is a step in a script's summary.
type summaryStep struct {
	Scenario string
	Offered  float64 // per second
	Seconds  float64
}

// maxStepOrders is more than any step offers.
const maxStepOrders = 10_000_000

// isPossible reports whether k6 can have offered such a step.
func (s *summaryStep) isPossible() bool {
	orders := s.Offered * s.Seconds

	return s.Offered > 0 && s.Seconds > 0 && orders <= maxStepOrders
}

// NearCeiling reports whether the knee lies above half of k6's own ceiling, so that it may be
// k6's limit and not the service's.
func (r *Ramp) NearCeiling() bool {
	return r.Knee != nil && r.Ceiling != nil && *r.Knee > *r.Ceiling/2
}

// rampOf returns the steps and the knee; nil if the script has no steps. Every step of the summary
// must be possible.
func rampOf(s *sampleSet, script summary) *Ramp {
	if len(script.Steps) == 0 {
		return nil
	}

	ramp := &Ramp{KneeP99: script.KneeP99, Ceiling: script.Ceiling}
	if ramp.KneeP99 <= 0 {
		ramp.KneeP99 = defaultKneeP99
	}

	groups := groupByScenario(s)
	for _, step := range script.Steps {
		measured := groups.scenario(step.Scenario)
		ramp.Steps = append(ramp.Steps, stepOf(step, measured, ramp.KneeP99))
	}

	ramp.findKnee()
	ramp.Bottleneck = ramp.bottleneck(groups)

	return ramp
}

// bottleneck says what was at its limit in the first step that breaks; empty if none does.
func (r *Ramp) bottleneck(groups samplesByScenario) string {
	for i := range r.Steps {
		step := &r.Steps[i]
		if step.Broken != "" {
			accepted := groups.scenario(step.Scenario).created
			return step.bottleneck(percentilesOf(accepted), r.KneeP99)
		}
	}

	return ""
}

// bottleneck says what was at its limit in a step that breaks. accepted are the latencies of the orders
// that were accepted, and kneeP99 is in milliseconds.
func (s *Step) bottleneck(accepted Percentiles, kneeP99 float64) string {
	hasAccepted := accepted.Count > 0
	isSlowOutside := hasAccepted && s.EmptyP99 != nil && *s.EmptyP99 >= limitShare*accepted.P99
	isQuick := hasAccepted && float64(accepted.P99) < kneeP99

	switch {
	case isSlowOutside:
		return fmt.Sprintf("in the first step that breaks the empty path took p99 %v, too: k6, the machine or the network is at its limit, not the service",
			*s.EmptyP99)
	case s.Dropped > 0 && isQuick:
		return "k6 had too few virtual users (LONGEST_WAIT)"
	default:
		return "the service is at its limit"
	}
}

// findKnee sets the knee. Only the first step that breaks counts: a later one that happens to hold
// says nothing.
func (r *Ramp) findKnee() {
	r.Knee = nil
	r.KneeWords = "not reached"
	for i := range r.Steps {
		if r.Steps[i].Broken == "" {
			continue
		}

		if i == 0 {
			r.KneeWords = "below the lowest rate"
			return
		}

		knee := r.Steps[i-1].Rate
		r.Knee = &knee
		r.KneeWords = formatRate(knee) + "/s"

		return
	}
}

// differsFrom says how the knee differs from the one that the script computed by itself; empty
// if it does not. Both follow the same rule, so a difference is a fault of one of them.
func (r *Ramp) differsFrom(scriptKnee *float64) string {
	bothNone := r.Knee == nil && scriptKnee == nil
	bothKnown := r.Knee != nil && scriptKnee != nil
	isSame := bothNone || bothKnown && *r.Knee == *scriptKnee
	if isSame {
		return ""
	}

	words := "none"
	if scriptKnee != nil {
		words = formatRate(*scriptKnee) + "/s"
	}

	return fmt.Sprintf("the knee is %s by the samples and %s by the script", r.KneeWords, words)
}

// stepSamples are the samples of one scenario that creates orders.
type stepSamples struct {
	created []float64 // latencies of the requests answered 201, in milliseconds
	empty   []float64 // latencies of the answers from the empty path, in milliseconds

	requests    int // to POST /orders, whatever they were answered
	unavailable int // requests answered 503
	refused     int // requests answered 429
	unanswered  int // requests without an answer

	iterations int // iterations that k6 finished
	resends    int // requests that were sent again
	dropped    int // iterations that k6 could not start in time
}

// samplesByScenario are the samples of all scenarios, by name.
type samplesByScenario map[string]*stepSamples

// scenario returns the samples of a scenario, which are added if they are new.
func (b samplesByScenario) scenario(name string) *stepSamples {
	if b[name] == nil {
		b[name] = &stepSamples{}
	}

	return b[name]
}

// groupByScenario returns what was measured in each scenario.
func groupByScenario(s *sampleSet) samplesByScenario {
	groups := samplesByScenario{}

	for i := range s.requests {
		r := &s.requests[i]
		scenario := s.names[r.scenario]
		switch s.names[r.endpoint] {
		case createOrder:
			groups.scenario(scenario).add(r)
		case emptyPath:
			groups.scenario(scenario).addEmpty(r)
		}
	}

	for _, d := range s.drops {
		groups.scenario(s.names[d.scenario]).dropped += d.count
	}

	for name, count := range s.iterations {
		groups.scenario(name).iterations = count
	}

	for name, count := range s.resends {
		groups.scenario(name).resends = count
	}

	return groups
}

// add adds a request to POST /orders.
func (m *stepSamples) add(r *request) {
	m.requests++

	switch r.status {
	case 201:
		m.created = append(m.created, r.took)
	case 503:
		m.unavailable++
	case 429:
		m.refused++
	case 0:
		m.unanswered++
	}
}

// addEmpty adds a request to the empty path, if it was answered.
func (m *stepSamples) addEmpty(r *request) {
	if r.status != 0 {
		m.empty = append(m.empty, r.took)
	}
}

// stepOf returns the result of one step. kneeP99 is in milliseconds.
func stepOf(planned summaryStep, measured *stepSamples, kneeP99 float64) Step {
	step := Step{
		Scenario:    planned.Scenario,
		Rate:        planned.Offered,
		Seconds:     planned.Seconds,
		Offered:     int(math.Round(planned.Offered * planned.Seconds)),
		Dropped:     measured.dropped,
		Accepted:    len(measured.created),
		Unavailable: measured.unavailable,
		Refused:     measured.refused,
		Unanswered:  measured.unanswered,
	}

	// Each iteration creates one order. An iteration that is interrupted at the end counts for
	// k6 as none, but its request was sent.
	firstTries := measured.requests - measured.resends
	step.Started = max(measured.iterations, firstTries)

	// k6 may schedule one order less than the rate asks for, or more: it depends on rounding whether
	// the last one is still due at the very end of the step.
	scheduled := step.Started + step.Dropped
	if scheduled >= step.Offered-1 {
		step.Offered = scheduled
	}

	latencies := slices.Clone(measured.created)
	for len(latencies) < step.Offered {
		latencies = append(latencies, float64(never))
	}

	step.Latency = percentilesOf(latencies)

	if len(measured.empty) >= leastForStep {
		empty := percentilesOf(measured.empty)
		step.EmptyP99 = &empty.P99
	}

	step.Broken = brokenBy(&step, kneeP99)

	return step
}

// brokenBy returns why a step breaks; empty if it does not. kneeP99 is in milliseconds.
func brokenBy(step *Step, kneeP99 float64) string {
	tooFew := float64(step.Accepted) < acceptedShare*float64(step.Offered)
	tooSlow := float64(step.Latency.P99) > kneeP99

	switch {
	case step.Offered == 0:
		return "no order was offered"
	case tooFew:
		return fmt.Sprintf("only %d of %d orders were accepted", step.Accepted, step.Offered)
	case tooSlow:
		return fmt.Sprintf("p99 is %v", step.Latency.P99)
	default:
		return ""
	}
}

// formatRate returns a rate without superfluous digits.
func formatRate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', -1, 64) }
