package results

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The files in testdata were written by k6 v1.8.1: a ramp of three steps of a second against a
// server that becomes slow after 90 orders, with five virtual users. The summary also holds
// what setup() returned, a secret.
var rampFiles = ScriptFiles{
	Folder:    "testdata",
	Samples:   []string{"ramp.samples.json.gz"},
	Summaries: []string{"ramp.summary.json"},
	Dashboard: "ramp.html",
	Log:       "ramp.log",
}

func buildRamp(t *testing.T) *Script {
	t.Helper()
	script, err := Build(rampFiles, Options{Name: "ramp", File: "loadtest/ramp.js", RelativeLevels: true})
	if err != nil {
		t.Fatal(err)
	}

	return script
}

func TestBuild(t *testing.T) {
	t.Parallel()

	script := buildRamp(t)

	if len(script.Failures) != 0 || script.Title != "Ramp to saturation" || script.Cannot == "" {
		t.Errorf("failures %q, title %q, cannot %q", script.Failures, script.Title, script.Cannot)
	}
	if script.TookSeconds < 3 || script.TookSeconds > 6 {
		t.Errorf("it took %v s", script.TookSeconds)
	}

	created := script.endpoint(createOrder, 201)
	refused := script.endpoint(createOrder, 429)
	token := script.endpoint("POST /token", 200)
	if created == nil || created.Latency.Count != 107 || created.PerSecond == nil || *created.PerSecond != 107/script.TookSeconds {
		t.Errorf("orders: %+v", created)
	}
	if refused == nil || refused.Latency.Count != 1 || refused.PerSecond != nil {
		t.Errorf("refused: %+v", refused)
	}
	if token == nil || token.PerSecond != nil {
		t.Errorf("tokens, of setup only: %+v", token)
	}
	if script.Baseline == nil || script.Baseline.Count != 23 || script.endpoint(emptyPath, 404) != nil {
		t.Errorf("baseline: %+v", script.Baseline)
	}

	counts := script.Counts
	if counts.Requests != 109 || counts.EmptyPath != 23 || counts.Iterations != 107 || counts.Dropped != 35 || counts.OrdersAccepted != 107 || counts.AllocatedVUs != 15 {
		t.Errorf("counts: %+v", counts)
	}
	if len(script.Orders["1"]) != 107 || script.Stores["1"] != 1 {
		t.Errorf("%d orders, stores %v", len(script.Orders["1"]), script.Stores)
	}

	ramp := script.Ramp
	if ramp.Knee == nil || *ramp.Knee != 40 || *ramp.Ceiling != 900.5 || !strings.Contains(ramp.Steps[2].Broken, "were accepted") {
		t.Errorf("ramp: %+v", ramp)
	}
	if script.Files.Dashboard != "" || script.Files.Log != "" || len(script.Files.Samples) != 1 {
		t.Errorf("files: %+v", script.Files)
	}

	want := "held: 3 s, 109 requests, POST /orders 201 p99 "
	headline := script.Headline()
	if !strings.HasPrefix(headline, want) || !strings.Contains(headline, "2 of 2 service levels held") {
		t.Errorf("the headline is %q", headline)
	}
}

// The busiest endpoint comes first; of equally busy ones the order is that of the names and statuses.
func TestBuild_SortsEndpoints(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	addRequests(t, samples, "POST /token", "1", 200)
	addRequests(t, samples, createOrder, "1", 503, 201)
	addRequests(t, samples, "GET /orders/{id}", "1", 200, 200)
	script := &Script{}

	script.fill(samples, Options{})

	var rows []string
	for i := range script.Endpoints {
		rows = append(rows, script.Endpoints[i].answers())
	}

	want := []string{"GET /orders/{id} 200", "POST /orders 201", "POST /orders 503", "POST /token 200"}
	if !slices.Equal(rows, want) {
		t.Errorf("endpoints: %q", rows)
	}
}

// Only what k6 calls unexpected has failed: a script may ask for lost answers.
func TestEndpointSamples_CountsFailures(t *testing.T) {
	t.Parallel()

	row := endpointSamples{}
	row.add(&request{status: 0})
	row.add(&request{status: 0, unexpected: true})
	row.add(&request{status: 503, unexpected: true})

	endpoint := row.endpoint(createOrder, 0, 10)

	if endpoint.Unexpected != 2 || endpoint.Latency.Count != 3 {
		t.Errorf("endpoint: %+v", endpoint)
	}
}

// The rate is that of the scenarios' time, to which setup() and teardown() do not belong.
func TestEndpointSamples_LeavesSetupOutOfTheRate(t *testing.T) {
	t.Parallel()

	row := endpointSamples{}
	for range leastForRate {
		row.add(&request{status: 201, scenario: 1})
		row.add(&request{status: 201, scenario: 0})
	}

	endpoint := row.endpoint(createOrder, 201, 10)

	if *endpoint.PerSecond != leastForRate/10.0 || endpoint.Latency.Count != 2*leastForRate {
		t.Errorf("%v per second, %d requests", *endpoint.PerSecond, endpoint.Latency.Count)
	}
}

// A few requests, or those of less than a second, are no rate.
func TestEndpointSamples_Rate(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		inScenarios int
		seconds     float64
		want        string
	}{
		"enough":    {inScenarios: 20, seconds: 4, want: "5"},
		"too few":   {inScenarios: 19, seconds: 4, want: "-"},
		"too short": {inScenarios: 20, seconds: 0.9, want: "-"},
	} {
		row := endpointSamples{latencies: []float64{1}, inScenarios: c.inScenarios}

		got := formatRatio(row.endpoint(createOrder, 201, c.seconds).PerSecond)
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The sum of some ceilings is not that of all.
func TestSumOfCeilings(t *testing.T) {
	t.Parallel()

	known := summary{Ceiling: pointerTo(900)}

	sum := sumOfCeilings([]summary{known, known})
	if sum == nil || *sum != 1800 {
		t.Errorf("the sum is %v", sum)
	}

	sum = sumOfCeilings([]summary{known, {}})
	if sum != nil {
		t.Errorf("the sum is %v, though one is not known", *sum)
	}
}

// What k6 sends to find its own ceiling is no load on the service.
func TestBuild_LeavesTheCeilingOut(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	addRequests(t, samples, createOrder, "1", 201)
	addRequests(t, samples, emptyPath, "1", 404, 0)
	addRequests(t, samples, ceilingPath, "1", 404, 404, 404)
	script := &Script{}

	script.fill(samples, Options{})

	if script.Counts.Requests != 1 || script.Counts.EmptyPath != 5 || len(script.Endpoints) != 1 {
		t.Errorf("counts %+v, endpoints %+v", script.Counts, script.Endpoints)
	}
	if script.Curves.Requests[0] != 1 || len(samples.emptyLatencies("")) != 1 {
		t.Errorf("curves %+v, empty path %v", script.Curves, samples.emptyLatencies(""))
	}
}

// The ramp's p95 is excused only where k6 and the system share a machine.
func TestBuild_HoldsLevelsRelativelyOnlyIfAsked(t *testing.T) {
	t.Parallel()

	script, err := Build(rampFiles, Options{Name: "ramp"})
	if err != nil {
		t.Fatal(err)
	}

	level := script.Levels[0]
	if level.State != levelNotHeld || level.Relative != nil {
		t.Errorf("the level is %+v", level)
	}
}

// The server refused one order for no reason. That is certain only of an account whose past is
// known.
func TestBuild_ChecksLimits(t *testing.T) {
	t.Parallel()

	script, err := Build(rampFiles, Options{Name: "ramp", FreshAccounts: true, RelativeLevels: true})
	if err != nil {
		t.Fatal(err)
	}

	want := []string{
		"limit not exact: POST /orders, 600 in 60 s: 107 admitted within it, 1 refused with room left",
		"limit not exact: POST /orders, 120 in 10 s: 107 admitted within it, 1 refused with room left",
	}
	if !slices.Equal(script.Failures, want) {
		t.Errorf("failures: %q", script.Failures)
	}
}

// Whatever k6 and the scripts leave, what setup() returned stays out of the results.
func TestBuild_KeepsSecretsOut(t *testing.T) {
	t.Parallel()

	const secret = "planted-secret"
	text, err := os.ReadFile(filepath.Join("testdata", "ramp.summary.json"))
	if err != nil || !strings.Contains(string(text), secret) {
		t.Fatalf("the summary holds no secret: %v", err)
	}

	run := &Run{Target: TargetOf("https://user:" + secret + "@api.example.com/base?token=" + secret + "#" + secret), Scripts: []*Script{buildRamp(t)}}
	path := filepath.Join(t.TempDir(), "result.json")

	if err := run.WriteFile(path); err != nil {
		t.Fatal(err)
	}

	page, junit := writePageAndJUnit(t, run)

	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for name, content := range map[string]string{"result.json": string(stored), "the page": page, "the JUnit file": junit} {
		if strings.Contains(content, secret) {
			t.Errorf("%s holds the secret", name)
		}
	}

	if run.Target != "https://api.example.com/base" {
		t.Errorf("the target is %s", run.Target)
	}
}

func TestBuild_FailsWithoutFiles(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "invalid.json"), `{"title": 5`)
	writeFile(t, filepath.Join(folder, "no-levels.json"), `{"title": "Title", "metrics": {"http_reqs": {"values": {"count": 2}}}}`)
	writeFile(t, filepath.Join(folder, "samples.json"), sampleLines)
	writeFile(t, filepath.Join(folder, "wrong.json"), `{"metric":"vus","data":5}`+"\n"+sampleLines)
	samples, summaries := []string{"samples.json"}, []string{"no-levels.json"}

	for name, c := range map[string]struct {
		files ScriptFiles
		want  []string
	}{
		"nothing": {
			files: ScriptFiles{},
			want:  []string{"k6 wrote no samples", "the script wrote no summary", "nothing was sent"},
		},
		"files that are missing": {
			files: ScriptFiles{Samples: []string{"a.json"}, Summaries: []string{"b.json"}},
			want: []string{
				"k6 wrote no samples: there is no file a.json", "the script wrote no summary: there is no file b.json",
				"nothing was sent",
			},
		},
		"no summary": {
			files: ScriptFiles{Samples: samples},
			want:  []string{"the script wrote no summary", "check failed: an order is accepted: 1 of 2 answers were something else"},
		},
		"an invalid summary": {
			files: ScriptFiles{Samples: samples, Summaries: []string{"invalid.json"}},
			want: []string{
				"the script's summary in invalid.json cannot be read: it is no valid JSON of the expected form",
				"check failed: an order is accepted: 1 of 2 answers were something else",
			},
		},
		"no levels": {
			files: ScriptFiles{Samples: samples, Summaries: summaries},
			want:  []string{"the script has no service levels", "check failed: an order is accepted: 1 of 2 answers were something else"},
		},
		"wrong samples": {
			files: ScriptFiles{Samples: []string{"wrong.json"}, Summaries: summaries},
			want: []string{
				"k6's samples in wrong.json cannot be read: line 1: vus: json: cannot unmarshal number into Go struct field",
				"nothing was sent",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c.files.Folder = folder

			script, err := Build(c.files, Options{Name: "x"})
			if err != nil {
				t.Fatal(err)
			}

			asExpected := slices.EqualFunc(script.Failures, c.want, strings.HasPrefix)
			if !asExpected || script.Passed() {
				t.Errorf("failures:\n%s\nwant:\n%s", strings.Join(script.Failures, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// A folder where a file should be is no result of k6's.
func TestBuild_ReportsWhatCannotBeRead(t *testing.T) {
	t.Parallel()

	if _, err := Build(ScriptFiles{Folder: "testdata", Samples: []string{"."}, Summaries: []string{"ramp.summary.json"}}, Options{}); err == nil {
		t.Error("a folder was read as samples")
	}
	if _, err := Build(ScriptFiles{Folder: "testdata", Samples: []string{"ramp.samples.json.gz"}, Summaries: []string{"."}}, Options{}); err == nil {
		t.Error("a folder was read as a summary")
	}
}

// The parts of a distributed run are one script: the ceilings add up, and the knees that the
// parts saw for themselves are not compared.
func TestBuild_MergesParts(t *testing.T) {
	t.Parallel()

	files := rampParts(t)
	firstSummary := filepath.Join(files.Folder, files.Summaries[0])
	text, err := os.ReadFile(firstSummary)
	if err != nil {
		t.Fatal(err)
	}

	writeFile(t, firstSummary, strings.Replace(string(text), `"knee":40`, `"knee":80`, 1))

	script, err := Build(files, Options{Name: "ramp", RelativeLevels: true})
	if err != nil {
		t.Fatal(err)
	}

	if len(script.Problems) != 0 || *script.Ramp.Ceiling != 1801 || script.Counts.Requests != 218 {
		t.Errorf("problems %q, ceiling %v, counts %+v", script.Problems, *script.Ramp.Ceiling, script.Counts)
	}
	if len(script.Levels) != 2 || script.Levels[1].Samples != 2 {
		t.Errorf("levels: %+v", script.Levels)
	}
}

// The summary's steps and knee are checked against the samples.
func TestBuild_FailsByWrongSteps(t *testing.T) {
	t.Parallel()

	summary, err := os.ReadFile(filepath.Join("testdata", "ramp.summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := os.ReadFile(filepath.Join("testdata", "ramp.samples.json.gz"))
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct{ old, changed, want string }{
		"another knee": {
			old: `"knee":40`, changed: `"knee":80`,
			want: "the knee is 40/s by the samples and 80/s by the script",
		},
		"no knee": {
			old: `"knee":40`, changed: `"knee":null`,
			want: "the knee is 40/s by the samples and none by the script",
		},
		"a step without a rate": {
			old: `"offered":80,"seconds":1}`, changed: `"offered":0,"seconds":1}`,
			want: "the script's summary has a step of 0 orders a second for 1 s, so no knee was sought",
		},
		"a step without end": {
			old: `"offered":80,"seconds":1}`, changed: `"offered":80,"seconds":1e9}`,
			want: "the script's summary has a step of 80 orders a second for 1e+09 s, so no knee was sought",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			writeFile(t, filepath.Join(folder, "summary.json"), strings.Replace(string(summary), c.old, c.changed, 1))
			writeFile(t, filepath.Join(folder, "samples.json.gz"), string(samples))
			files := ScriptFiles{Folder: folder, Samples: []string{"samples.json.gz"}, Summaries: []string{"summary.json"}}

			script, err := Build(files, Options{RelativeLevels: true})
			if err != nil {
				t.Fatal(err)
			}

			if !slices.Equal(script.Failures, []string{c.want}) {
				t.Errorf("failures: %q", script.Failures)
			}
		})
	}
}
