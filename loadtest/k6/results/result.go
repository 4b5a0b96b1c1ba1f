package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// schemaVersion is the version of result.json. It is raised when an older program would
// misread a newer file.
const schemaVersion = 1

// OwnSystems is the target of a run that starts a system for each script.
const OwnSystems = "its own systems"

// Run is the result of one load test, as it is stored in result.json.
type Run struct {
	Began       time.Time `json:"began"`
	TookSeconds float64   `json:"took_seconds"`

	// Target is OwnSystems or a deployment's base URL, as TargetOf returns it.
	Target string `json:"target"`

	Machine harness.Machine `json:"machine"`
	K6      string          `json:"k6"` // version

	// Generator says where k6 ran, such as "on the same processors as the system".
	Generator string `json:"generator"`

	// Interrupted says why not all scripts were played; empty if all were.
	Interrupted string `json:"interrupted"`

	Scripts []*Script `json:"scripts"`
}

// TargetOf returns a base URL without what could be secret: user, query and fragment.
func TargetOf(baseURL string) string {
	parsed, err := url.Parse(baseURL)
	if err != nil {
		return "a deployment whose URL cannot be read"
	}

	clean := url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}

	return clean.String()
}

// Passed reports whether all scripts were played, at least one, and every one of them passed.
func (r *Run) Passed() bool {
	if r.Interrupted != "" || len(r.Scripts) == 0 {
		return false
	}

	return !slices.ContainsFunc(r.Scripts, func(s *Script) bool { return !s.Passed() })
}

// storedRun is a Run as it stands in the file.
type storedRun struct {
	Schema int  `json:"schema"`
	Passed bool `json:"passed"` // for those who read the file; it is not read back

	*Run
}

// WriteFile writes the run to a file, which ReadFile reads.
func (r *Run) WriteFile(path string) error {
	content, err := json.MarshalIndent(storedRun{Schema: schemaVersion, Passed: r.Passed(), Run: r}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}

	return nil
}

// ReadFile reads a run that WriteFile wrote. A file of another schema is an error.
func ReadFile(path string) (*Run, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	run, err := decodeRun(content)
	if err != nil {
		return nil, fmt.Errorf("read the result in %s: %w", path, err)
	}

	return run, nil
}

// decodeRun returns the run of a result.json. It checks what the page relies on.
func decodeRun(content []byte) (*Run, error) {
	// The version comes first: a file of another one may have other types.
	var version struct{ Schema int }
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, err
	}
	if version.Schema != schemaVersion {
		return nil, fmt.Errorf("the file has schema %d, and this program reads schema %d", version.Schema, schemaVersion)
	}

	stored := storedRun{Run: &Run{}}
	if err := json.Unmarshal(content, &stored); err != nil {
		return nil, err
	}

	for _, script := range stored.Scripts {
		if script == nil {
			return nil, errors.New("a script is null")
		}
		if script.Curves != nil && !script.Curves.isValid() {
			return nil, fmt.Errorf("the curves of script %s have buckets that do not fit together", script.Name)
		}
	}

	return stored.Run, nil
}

// Script is what one script did and found.
type Script struct {
	Name   string `json:"name"`
	File   string `json:"file"` // of the script, such as "loadtest/steady.js"
	Title  string `json:"title"`
	Proves string `json:"proves"`
	Cannot string `json:"cannot"` // what it cannot prove

	Began       time.Time `json:"began"`
	TookSeconds float64   `json:"took_seconds"`

	// Interrupted says why the script was ended before its time; empty if it was not. The driver sets
	// it. The rest is what was measured until then.
	Interrupted string `json:"interrupted"`

	Levels    []Level    `json:"levels"`
	Checks    []Check    `json:"checks"`
	Limits    []LimitRow `json:"limits"`
	Endpoints []Endpoint `json:"endpoints"`
	Counts    Counts     `json:"counts"`

	// Baseline is the latency of the empty path; null if it gave no answer.
	Baseline *Percentiles `json:"baseline"`

	Ramp   *Ramp   `json:"ramp"`   // null for a script without steps
	Curves *Curves `json:"curves"` // null if nothing was sent

	// The driver sets these. Programs are k6, the driver and, if the driver started it, the system.
	// OthersCores is how many processors other programs kept busy; null: unknown.
	Webhooks    *Webhooks         `json:"webhooks"` // null: not looked at
	Programs    []harness.Watched `json:"programs"`
	OthersCores *float64          `json:"others_cores"`

	// Notes are what the driver did to the system while the script ran, such as killing a program.
	Notes []string `json:"notes"`

	// Problems are what went wrong with k6 or its files. Failures are why the script failed,
	// the problems included; CollectFailures sets them.
	Problems []string `json:"problems"`
	Failures []string `json:"failures"`

	Files Files `json:"files"`

	// Orders are the orders that were accepted, and Stores the number of stores that were
	// registered, both by account label. They are for the comparison with webhooks and are not
	// stored.
	Orders map[string][]Order `json:"-"`
	Stores map[string]int     `json:"-"`
}

// Files are the names of the files that k6 left in the folder of result.json; empty if it did not.
type Files struct {
	Dashboard string   `json:"dashboard"`
	Log       string   `json:"log"`
	Summaries []string `json:"summaries"`
	Samples   []string `json:"samples"`
}

// Check is a check of a script, such as "an order is accepted", and how often it held.
type Check struct {
	Name   string `json:"name"`
	Passes int    `json:"passes"`
	Fails  int    `json:"fails"`
}

// Endpoint describes the requests to one endpoint that were answered with one status.
type Endpoint struct {
	Name   string `json:"name"`
	Status int    `json:"status"` // 0: no answer

	// Unexpected counts the requests that failed: there was no answer, or a 5xx that the script
	// had not asked for.
	Unexpected int `json:"unexpected"`

	Latency Percentiles `json:"latency"`

	// PerSecond is the rate over the time of the scenarios. It is null for endpoints that the
	// scenarios requested too rarely for a rate to mean something.
	PerSecond *float64 `json:"per_second"`
}

// Counts are totals of a script.
type Counts struct {
	Requests   int `json:"requests"`   // without those to the empty path
	EmptyPath  int `json:"empty_path"` // requests to the empty path, those to find k6's ceiling included
	Iterations int `json:"iterations"`
	Dropped    int `json:"dropped"` // iterations that k6 could not start in time

	ActiveVUs    int `json:"active_vus"`    // the most virtual users that were busy at once
	AllocatedVUs int `json:"allocated_vus"` // the most virtual users that k6 had at once

	OrdersAccepted int     `json:"orders_accepted"`
	Refused        int     `json:"refused"`        // answers 429
	Resends        int     `json:"resends"`        // requests that were sent again
	SecondsWaited  float64 `json:"seconds_waited"` // by all virtual users together, for limits and lost answers

	BytesSent     int64 `json:"bytes_sent"`
	BytesReceived int64 `json:"bytes_received"`
}

// How webhooks were checked.
const (
	WebhooksByReceiver = "receiver"    // the driver's receivers got them
	WebhooksByAttempts = "attempts"    // the service was asked for its attempts
	WebhooksNotChecked = "not checked" // Why says why
)

// Webhooks are the webhooks that arrived, compared with the orders.
type Webhooks struct {
	How string `json:"how"`           // one of the constants above
	Why string `json:"why,omitempty"` // why they were not checked

	Stores int `json:"stores"` // stores whose events were expected
	Orders int `json:"orders"` // orders whose events were expected

	Expected   int `json:"expected"`   // events that had to arrive
	Received   int `json:"received"`   // events that arrived, each counted once
	Duplicates int `json:"duplicates"` // arrivals of events that had arrived before

	// Delay is the time from an event's occurrence to its arrival. Its count is 0 if the arrivals
	// were not seen.
	Delay Percentiles `json:"delay"`

	Problems []string `json:"problems"` // differences between the webhooks and the orders
}

// WebhooksOf returns the result of a check. how is WebhooksByReceiver or WebhooksByAttempts; orders
// and stores are the numbers of those whose events were expected.
func WebhooksOf(how string, check receiver.Check, orders, stores int) *Webhooks {
	return &Webhooks{
		How:        how,
		Stores:     stores,
		Orders:     orders,
		Expected:   check.Expected,
		Received:   check.Received,
		Duplicates: check.Duplicates,
		Delay:      percentilesOf(slices.Clone(check.Delays)),
		Problems:   slices.Clone(check.Problems),
	}
}

// checked reports whether webhooks were compared with the orders. w may be nil: they were not.
func (w *Webhooks) checked() bool { return w != nil && w.How != WebhooksNotChecked }

// Sentence says what was checked of the webhooks, and the result. w may be nil: nothing was checked.
func (w *Webhooks) Sentence() string {
	if !w.checked() {
		if w == nil || w.Why == "" {
			return "Webhooks were not checked."
		}
		return "Webhooks were not checked: " + w.Why + "."
	}

	source := "by the driver's receivers"
	if w.How == WebhooksByAttempts {
		source = "by the attempts that the service lists"
	}

	text := fmt.Sprintf("Webhooks, checked %s: %d of %d expected events arrived, and %d came more than once.",
		source, w.Received, w.Expected, w.Duplicates)
	if w.Orders > 0 {
		text += fmt.Sprintf(" Compared: stores %d; orders %d, every status after Searching with the order's history.", w.Stores, w.Orders)
	} else {
		text += fmt.Sprintf(" Compared: stores %d; no order left Searching, so none has webhooks.", w.Stores)
	}

	if w.Delay.Count > 0 {
		text += fmt.Sprintf(" From occurrence to arrival: p50 %v, p99 %v.", w.Delay.P50, w.Delay.P99)
	}

	return text
}

// AddProblem adds something that went wrong, formatted as by fmt.Sprintf. It is a failure of the
// script once CollectFailures is called.
func (s *Script) AddProblem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// Passed reports whether the script has no failures. CollectFailures must have been called.
func (s *Script) Passed() bool { return len(s.Failures) == 0 }

// maxWebhookFailures is how many problems of webhooks are listed as failures; one more failure
// says how many others there are.
const maxWebhookFailures = 5

// CollectFailures sets Failures from the rest of the result. It must be called again after
// something was added.
func (s *Script) CollectFailures() {
	s.Failures = nil
	if s.Interrupted != "" {
		s.Failures = append(s.Failures, s.interruption())
	}

	s.Failures = append(s.Failures, s.runFailures()...)

	for i := range s.Levels {
		level := &s.Levels[i]
		if !level.Held() {
			s.Failures = append(s.Failures, level.failure())
		}
	}

	for i := range s.Limits {
		row := &s.Limits[i]
		if !row.Held {
			s.Failures = append(s.Failures, row.failure())
		}
	}

	for _, check := range s.Checks {
		if check.Fails > 0 {
			s.Failures = append(s.Failures, check.failure())
		}
	}

	if s.Webhooks.checked() {
		s.Failures = append(s.Failures, s.Webhooks.failures()...)
	}

	for _, program := range s.boundedPrograms() {
		failure := memoryFailure(program)
		if failure != "" {
			s.Failures = append(s.Failures, failure)
		}
	}
}

// The memory of the gateway and of the worker at the end may be memoryFactor times that after a
// third of the time, and memorySpare more. In the first third caches and pools fill, so shorter
// scripts than leastForMemory show nothing. Redis keeps orders, and may grow.
const (
	leastForMemory = 10 * time.Minute
	memoryFactor   = 1.5
	memorySpare    = 32 << 20 // bytes
)

// boundedPrograms returns the programs whose memory is checked; none of a short script.
func (s *Script) boundedPrograms() []*harness.Watched {
	if s.TookSeconds < leastForMemory.Seconds() {
		return nil
	}

	var bounded []*harness.Watched
	for i := range s.Programs {
		program := &s.Programs[i]
		if program.Name == "gateway" || program.Name == "worker" {
			bounded = append(bounded, program)
		}
	}

	return bounded
}

// memoryFailure says in a sentence that a program's memory grew too much; empty if it did not.
func memoryFailure(program *harness.Watched) string {
	accepted := memoryFactor*float64(program.AfterThird) + memorySpare
	if float64(program.Now) <= accepted {
		return ""
	}

	return fmt.Sprintf("the memory of the %s grew from %d MB after a third of the time to %d MB at the end",
		program.Name, program.AfterThird/1e6, program.Now/1e6)
}

// interruption says in a sentence that the script was interrupted.
func (s *Script) interruption() string { return "interrupted: " + s.Interrupted }

// runFailures returns why the run as a whole proves nothing. Any other problem, and an interruption,
// explains why there are no service levels, so their absence is named only if there is none.
func (s *Script) runFailures() []string {
	failures := slices.Clone(s.Problems)
	isExplained := s.Interrupted != "" || len(failures) > 0
	if len(s.Levels) == 0 && !isExplained {
		failures = append(failures, "the script has no service levels")
	}

	if s.Counts.Requests == 0 {
		failures = append(failures, "nothing was sent")
	}

	return failures
}

// failure says in a sentence what was not held.
func (c *Check) failure() string {
	return fmt.Sprintf("check failed: %s: %d of %d answers were something else", c.Name, c.Fails, c.Passes+c.Fails)
}

// failure says in a sentence what was not held.
func (r *LimitRow) failure() string {
	text := fmt.Sprintf("limit not exact: %s, %s: %d admitted within it", r.Bucket, r.Limit(), r.Most)
	if r.WronglyRefused != nil {
		text += fmt.Sprintf(", %d refused with room left", *r.WronglyRefused)
	}

	return text
}

// failures returns the problems as sentences, at most maxWebhookFailures of them.
func (w *Webhooks) failures() []string {
	var failures []string
	for i, problem := range w.Problems {
		if i == maxWebhookFailures {
			failures = append(failures, fmt.Sprintf("webhooks: … and %d more", len(w.Problems)-i))
			break
		}
		failures = append(failures, "webhooks: "+problem)
	}

	return failures
}

// Headline returns the result of a script in one line. The latency in it is that of accepted
// orders, or else of the busiest endpoint, and never of several endpoints or statuses together.
func (s *Script) Headline() string {
	outcome := "held"
	if !s.Passed() {
		outcome = "FAILED"
	}

	held := 0
	for i := range s.Levels {
		if s.Levels[i].Held() {
			held++
		}
	}

	text := fmt.Sprintf("%s: %.0f s, %d requests", outcome, s.TookSeconds, s.Counts.Requests)
	e := s.headlineEndpoint()
	if e != nil {
		text += fmt.Sprintf(", %s p99 %v", e.answers(), e.Latency.P99)
	}

	text += fmt.Sprintf(", %d of %d service levels held", held, len(s.Levels))
	if s.Webhooks.checked() {
		text += fmt.Sprintf(", %d of %d webhooks", s.Webhooks.Received, s.Webhooks.Expected)
	}

	return text
}

// headlineEndpoint returns the endpoint of the headline; nil if nothing was requested.
func (s *Script) headlineEndpoint() *Endpoint {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.Name == createOrder && e.Status == 201 {
			return e
		}
	}

	if len(s.Endpoints) > 0 {
		return &s.Endpoints[0]
	}

	return nil
}

// answers returns the endpoint with its status, such as "POST /orders 201" or "POST /orders without an answer".
func (e *Endpoint) answers() string {
	if e.Status == 0 {
		return e.Name + " without an answer"
	}

	return fmt.Sprintf("%s %d", e.Name, e.Status)
}
