package results

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// leastForRate is how many requests an endpoint must have had before its rate is shown.
const leastForRate = 20

// ScriptFiles are the names of the files of one script. A distributed run has a summary and
// samples for each of its parts.
type ScriptFiles struct {
	// Folder has the files, and result.json is written into it. The other names are relative to it.
	Folder string

	Samples, Summaries []string

	// Dashboard and Log are only linked. They are left out if there are no such files.
	Dashboard, Log string
}

// Options are what the files do not say.
type Options struct {
	Name string // of the script, such as "steady"
	File string // of the script, such as "loadtest/steady.js"

	// Limits are the limits of accounts, by label. An account that is missing has the contract's.
	Limits map[string]Limits

	// FreshAccounts says that the accounts had sent nothing before this run. Of other accounts
	// earlier requests may have filled the windows, so a refusal soon after the beginning is not
	// called wrong.
	FreshAccounts bool

	// RelativeLevels says that k6 and the system share a machine, so a slow empty path means that
	// the machine was slow. Only then may a latency above its threshold be held relative to the
	// empty path. Of any other system a slow network or proxy is part of what is tested.
	RelativeLevels bool
}

// Build makes the result of a script from its files. Files that are missing, empty or wrong
// are failures of the script. An error is returned for a file that exists and cannot be opened
// or read; there is no script then.
func Build(files ScriptFiles, options Options) (*Script, error) {
	script := &Script{
		Name:  options.Name,
		File:  options.File,
		Files: linkedFiles(files),
	}

	samples, err := script.readSamples(files)
	if err != nil {
		return nil, err
	}
	summaries, err := script.readSummaries(files)
	if err != nil {
		return nil, err
	}

	script.checkParts(files, samples, summaries)
	script.describe(summaries)
	script.fill(samples, options)
	script.addBaseline(samples.emptyLatencies(""))
	script.decideLevels(summaries, samples, options.RelativeLevels)
	script.addRamp(summaries, samples)
	script.CollectFailures()

	return script, nil
}

// linkedFiles returns the names of the files that exist.
func linkedFiles(files ScriptFiles) Files {
	var linked Files
	if fileExists(files.Folder, files.Dashboard) {
		linked.Dashboard = files.Dashboard
	}

	if fileExists(files.Folder, files.Log) {
		linked.Log = files.Log
	}

	for _, name := range files.Summaries {
		if fileExists(files.Folder, name) {
			linked.Summaries = append(linked.Summaries, name)
		}
	}

	for _, name := range files.Samples {
		if fileExists(files.Folder, name) {
			linked.Samples = append(linked.Samples, name)
		}
	}

	return linked
}

// fileExists reports whether the folder has a file of this name. An empty name is that of no file.
func fileExists(folder, name string) bool {
	info, err := os.Stat(filepath.Join(folder, name))

	return err == nil && !info.IsDir()
}

// readSamples reads all samples. A file that is missing, and what is wrong with the content of
// one, become problems. A file that exists and cannot be opened or read is an error.
func (s *Script) readSamples(files ScriptFiles) (*sampleSet, error) {
	samples := newSamples()
	if len(files.Samples) == 0 {
		s.AddProblem("k6 wrote no samples")
	}

	for _, name := range files.Samples {
		err := samples.readFile(filepath.Join(files.Folder, name))

		var inaccessible *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			s.AddProblem("k6 wrote no samples: there is no file %s", name)
		case errors.As(err, &inaccessible):
			return nil, fmt.Errorf("read k6's samples: %w", err)
		case err != nil:
			s.AddProblem("k6's samples in %s cannot be read: %v", name, err)
		}
	}

	s.Problems = append(s.Problems, samples.problems...)

	return samples, nil
}

// readSummaries reads all summaries. A file that is missing, is no summary or is that of an aborted
// script becomes a problem. A file that exists and cannot be read is an error.
func (s *Script) readSummaries(files ScriptFiles) ([]summary, error) {
	if len(files.Summaries) == 0 {
		s.AddProblem("the script wrote no summary")
	}

	var summaries []summary
	known := contents{}
	for i, name := range files.Summaries {
		text, err := os.ReadFile(filepath.Join(files.Folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			s.AddProblem("the script wrote no summary: there is no file %s", name)
			continue
		}

		if err != nil {
			return nil, fmt.Errorf("read the script's summary: %w", err)
		}

		var read summary
		if err := json.Unmarshal(text, &read); err != nil {
			s.AddProblem("the script's summary in %s cannot be read: it is no valid JSON of the expected form", name)
			continue
		}

		duplicate := known.add(sha256.Sum256(text), name)
		if duplicate != "" {
			s.AddProblem("%s", duplicate)
		}

		if read.Aborted {
			s.addAborted(i+1, len(files.Summaries))
		}

		summaries = append(summaries, read)
	}

	return summaries, nil
}

// addAborted adds the problem that a part never began. The first part is 1; parts is how many there are.
func (s *Script) addAborted(part, parts int) {
	if parts == 1 {
		s.AddProblem("the script was ended before it began")
		return
	}

	s.AddProblem("part %d was ended before it began", part)
}

// describe copies what the script says of itself. All parts of a run say the same.
func (s *Script) describe(summaries []summary) {
	if len(summaries) == 0 {
		return
	}

	s.Title = summaries[0].Title
	s.Proves = summaries[0].Proves
	s.Cannot = summaries[0].Cannot
}

// fill computes everything that follows from the samples alone.
func (s *Script) fill(samples *sampleSet, options Options) {
	began, ended := samples.span()
	s.Began = began
	s.TookSeconds = ended.Sub(began).Seconds()

	s.Counts = samples.counts
	s.addEndpoints(samples)
	s.Checks = sortedChecks(samples)
	s.Limits = checkLimits(samples, options.Limits, options.FreshAccounts)
	s.Curves = curvesOf(samples)

	for i := range s.Endpoints {
		s.Counts.Requests += s.Endpoints[i].Latency.Count
	}

	s.Orders = samples.orders
	s.Stores = samples.stores
}

// endpointKey identifies a row of endpoints.
type endpointKey struct {
	endpoint uint16 // index into sampleSet.names
	status   int16  // 0: no answer
}

// endpointSamples are the requests of one row.
type endpointSamples struct {
	latencies   []float64 // milliseconds
	inScenarios int       // requests that are not part of setup() or teardown()
	unexpected  int       // see Endpoint.Unexpected
}

// addEndpoints computes the rows of endpoints, the busiest first. Requests to the empty path have no
// row and are only counted.
func (s *Script) addEndpoints(samples *sampleSet) {
	rows := map[endpointKey]*endpointSamples{}
	for i := range samples.requests {
		r := &samples.requests[i]
		if isEmptyPath(samples.names[r.endpoint]) {
			s.Counts.EmptyPath++
			continue
		}

		key := endpointKey{endpoint: r.endpoint, status: r.status}
		if rows[key] == nil {
			rows[key] = &endpointSamples{}
		}

		rows[key].add(r)
	}

	for key, row := range rows {
		s.Endpoints = append(s.Endpoints, row.endpoint(samples.names[key.endpoint], int(key.status), s.TookSeconds))
	}

	slices.SortFunc(s.Endpoints, func(a, b Endpoint) int {
		if a.Latency.Count != b.Latency.Count {
			return cmp.Compare(b.Latency.Count, a.Latency.Count)
		}
		if a.Name != b.Name {
			return strings.Compare(a.Name, b.Name)
		}
		return cmp.Compare(a.Status, b.Status)
	})
}

// addBaseline sets Baseline. empty are the ascending latencies of the empty path, in milliseconds.
func (s *Script) addBaseline(empty []float64) {
	if len(empty) > 0 {
		baseline := percentilesOf(empty)
		s.Baseline = &baseline
	}
}

// add adds a request to the row.
func (e *endpointSamples) add(r *request) {
	e.latencies = append(e.latencies, r.took)
	if r.scenario != 0 {
		e.inScenarios++
	}
	if r.unexpected {
		e.unexpected++
	}
}

// endpoint returns the row as it is shown. seconds is how long the scenarios took.
func (e *endpointSamples) endpoint(name string, status int, seconds float64) Endpoint {
	row := Endpoint{
		Name:       name,
		Status:     status,
		Unexpected: e.unexpected,
		Latency:    percentilesOf(e.latencies),
	}

	hasRate := e.inScenarios >= leastForRate && seconds >= 1
	if hasRate {
		rate := float64(e.inScenarios) / seconds
		row.PerSecond = &rate
	}

	return row
}

// sortedChecks returns the checks by name.
func sortedChecks(samples *sampleSet) []Check {
	var checks []Check
	for _, name := range sortedKeys(samples.checks) {
		checks = append(checks, *samples.checks[name])
	}

	return checks
}

// decideLevels sets Levels. isRelative says whether a latency may be held relative to the empty path,
// see Options.RelativeLevels. A level of one scenario is compared only with the empty path in that
// scenario: in another one the machine may have been busier.
func (s *Script) decideLevels(summaries []summary, samples *sampleSet, isRelative bool) {
	for _, level := range mergeLevels(summaries) {
		var empty []float64
		if isRelative {
			empty = samples.emptyLatencies(scenarioOf(level.Metric))
		}

		s.Levels = append(s.Levels, levelOf(level, empty))
	}
}

// emptyLatencies returns the latencies of the answers from the empty path in a scenario, ascending,
// in milliseconds. An empty name stands for the whole script.
func (s *sampleSet) emptyLatencies(scenario string) []float64 {
	endpoint, wasRequested := s.indexOf[emptyPath]
	scenarioIndex, exists := s.indexOf[scenario]
	if !wasRequested || !exists {
		return nil
	}

	var latencies []float64
	for i := range s.requests {
		r := &s.requests[i]
		isInScenario := scenario == "" || r.scenario == scenarioIndex
		if r.endpoint == endpoint && r.status != 0 && isInScenario {
			latencies = append(latencies, r.took)
		}
	}

	slices.Sort(latencies)

	return latencies
}

// addRamp sets Ramp: the steps and the knee (see Ramp). In a distributed run each k6 offers its
// share of the same rates. So the ceilings of the parts are added up, and the knees that their
// summaries name are not used. In a run of one part the knee must be that of the summary.
func (s *Script) addRamp(summaries []summary, samples *sampleSet) {
	if len(summaries) == 0 {
		return
	}

	whole := summaries[0]
	for _, step := range whole.Steps {
		if !step.isPossible() {
			s.AddProblem("the script's summary has a step of %g orders a second for %g s, so no knee was sought", step.Offered, step.Seconds)
			return
		}
	}

	whole.Ceiling = sumOfCeilings(summaries)
	s.Ramp = rampOf(samples, whole)
	if s.Ramp == nil || len(summaries) > 1 {
		return
	}

	difference := s.Ramp.differsFrom(whole.Knee)
	if difference != "" {
		s.AddProblem("%s", difference)
	}
}

// sumOfCeilings returns the sum of the parts' ceilings; nil if any part has none.
func sumOfCeilings(summaries []summary) *float64 {
	sum := 0.0
	for _, part := range summaries {
		if part.Ceiling == nil {
			return nil
		}
		sum += *part.Ceiling
	}

	return &sum
}

// sortedKeys returns the keys of a map in ascending order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)

	return keys
}
