package results

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// fullRun is a run with every part filled in: a ramp by k6, and a script of which everything
// failed.
func fullRun(t *testing.T) *Run {
	t.Helper()
	ramp := buildRamp(t)
	ramp.Webhooks = WebhooksOf(WebhooksByReceiver, receiver.Check{Expected: 1, Received: 1}, 0, 1)
	ramp.Notes = []string{"after 6 s gateway was killed"}
	ramp.Programs = []harness.Watched{{Name: "gateway", Cores: 0.254, Begin: 20e6, AfterThird: 25e6, Now: 30e6, Peak: 40e6}}
	ramp.OthersCores = pointerTo(0.5)
	ramp.Files.Dashboard = "ramp.html"
	ramp.Files.Log = "ramp.log"
	ramp.CollectFailures()

	return &Run{
		Began:       start,
		TookSeconds: 61.4,
		Target:      OwnSystems,
		Machine:     harness.Machine{CPU: "two cores of something", Cores: 2, Commit: "abc123", Date: start},
		K6:          "v1.8.1",
		Generator:   "k6, the receivers and the system share these processors.",
		Scripts:     []*Script{ramp, failedScript()},
	}
}

func failedScript() *Script {
	wrongly := 3
	script := &Script{
		Name: "burst", File: "loadtest/burst.js", Title: "Bursts <at> the limits", Proves: "limits are exact", Cannot: "that they are fair",
		Began: start, TookSeconds: 63,
		Levels: []Level{
			{Metric: "checks", Threshold: "rate==1", Words: "every answer is as the contract says", Samples: 9, Measured: "90 %", State: levelNotHeld},
			{Metric: "refused", Threshold: "count==0", Words: "no vendor is refused", State: levelNotMeasured},
			{
				Metric: "http_req_duration", Threshold: "p(95)<50", Words: "orders are quick", Samples: 100, Measured: "80 ms",
				State: levelHeldRelative, Relative: &RelativeLevel{Accepted: 20, Times: 16, Empty: 5, AcceptedLatency: 100},
			},
		},
		Checks: []Check{{Name: "an order is accepted", Passes: 9, Fails: 1}},
		Limits: []LimitRow{
			{Bucket: createOrder, Count: 120, Seconds: 10, Most: 121, Accounts: 1, Admitted: 121, Refused: 9, WronglyRefused: &wrongly},
			{Bucket: "GET /orders/{id}", Count: 3000, Seconds: 60, Most: 9, Accounts: 1, Admitted: 9, Held: true},
		},
		Endpoints: []Endpoint{
			{Name: "GET /orders/{id}", Status: 200, Latency: Percentiles{Count: 100, P99: 5}, PerSecond: pointerTo(1.6)},
			{Name: createOrder, Status: 0, Unexpected: 2, Latency: Percentiles{Count: 2, P99: 30000}},
		},
		Counts:   Counts{Requests: 102, Iterations: 3, OrdersAccepted: 9},
		Webhooks: WebhooksOf(WebhooksByAttempts, receiver.Check{Expected: 40, Received: 39, Duplicates: 2, Delays: []float64{3, 5}, Problems: receiver.Problems{"order o-1: lost"}}, 9, 2),
		Problems: []string{"k6 ended with status 107"},
	}

	script.CollectFailures()

	return script
}

func TestScript_CollectFailures(t *testing.T) {
	t.Parallel()

	script := failedScript()

	script.CollectFailures()

	want := []string{
		"k6 ended with status 107",
		"service level NOT HELD: every answer is as the contract says (rate==1 of checks): 90 %",
		"service level NOT MEASURED: no vendor is refused (count==0 of refused)",
		"limit not exact: POST /orders, 120 in 10 s: 121 admitted within it, 3 refused with room left",
		"check failed: an order is accepted: 1 of 10 answers were something else",
		"webhooks: order o-1: lost",
	}
	if !slices.Equal(script.Failures, want) {
		t.Errorf("failures:\n%s", strings.Join(script.Failures, "\n"))
	}
}

// What was measured until the interruption is judged as well, but need not be whole.
func TestScript_CollectFailures_OfAnInterruptedScript(t *testing.T) {
	t.Parallel()

	script := &Script{Interrupted: "the gateway ended", Counts: Counts{Requests: 5}, Checks: []Check{{Name: "an order is accepted", Passes: 9, Fails: 1}}}

	script.CollectFailures()

	want := []string{"interrupted: the gateway ended", "check failed: an order is accepted: 1 of 10 answers were something else"}
	if !slices.Equal(script.Failures, want) || script.Passed() {
		t.Errorf("failures: %q", script.Failures)
	}
}

func TestScript_CollectFailures_LimitsWebhookProblems(t *testing.T) {
	t.Parallel()

	check := receiver.Check{}
	for i := range 25 {
		check.Problems.Add("order o-%d: lost", i)
	}

	script := &Script{Webhooks: WebhooksOf(WebhooksByReceiver, check, 25, 0)}

	script.CollectFailures()

	n, last := len(script.Failures), script.Failures[len(script.Failures)-1]
	if n != 8 || last != "webhooks: … and 20 more" {
		t.Errorf("%d failures, the last one %q", n, last)
	}
}

func TestScript_Headline(t *testing.T) {
	t.Parallel()

	quiet := &Script{Name: "polling", TookSeconds: 24, Endpoints: []Endpoint{{Name: "GET /orders/{id}", Status: 200, Latency: Percentiles{Count: 100, P99: 5}}}}

	for want, script := range map[string]*Script{
		"FAILED: 63 s, 102 requests, GET /orders/{id} 200 p99 5.0 ms, 1 of 3 service levels held, 39 of 40 webhooks": failedScript(),
		"held: 24 s, 0 requests, GET /orders/{id} 200 p99 5.0 ms, 0 of 0 service levels held":                        quiet,
		"held: 0 s, 2 requests, POST /orders without an answer p99 9.0 ms, 0 of 0 service levels held": {
			Counts: Counts{Requests: 2}, Endpoints: []Endpoint{{Name: createOrder, Status: 0, Latency: Percentiles{Count: 2, P99: 9}}},
		},
		"held: 0 s, 0 requests, 0 of 0 service levels held": {},
	} {
		got := script.Headline()
		if got != want {
			t.Errorf("the headline is %q, want %q", got, want)
		}
	}
}

func TestWebhooks_Sentence(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		webhooks *Webhooks
		want     string
	}{
		"not looked at": {webhooks: nil, want: "Webhooks were not checked."},
		"no receiver":   {webhooks: &Webhooks{How: WebhooksNotChecked, Why: "the deployment names no receiver"}, want: "Webhooks were not checked: the deployment names no receiver."},
		"no order left Searching": {
			webhooks: WebhooksOf(WebhooksByReceiver, receiver.Check{Expected: 2, Received: 2}, 0, 2),
			want: "Webhooks, checked by the driver's receivers: 2 of 2 expected events arrived, and 0 came more than once. " +
				"Compared: stores 2; no order left Searching, so none has webhooks.",
		},
		"orders": {
			webhooks: WebhooksOf(WebhooksByAttempts, receiver.Check{Expected: 10, Received: 10, Delays: []float64{4, 2}}, 2, 0),
			want: "Webhooks, checked by the attempts that the service lists: 10 of 10 expected events arrived, and 0 came more than once. " +
				"Compared: stores 0; orders 2, every status after Searching with the order's history. From occurrence to arrival: p50 3.0 ms, p99 4.0 ms.",
		},
	} {
		got := c.webhooks.Sentence()
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRun_SurvivesItsFile(t *testing.T) {
	t.Parallel()

	run := fullRun(t)
	path := filepath.Join(t.TempDir(), "result.json")

	if err := run.WriteFile(path); err != nil {
		t.Fatal(err)
	}

	read, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, script := range run.Scripts {
		script.Orders = nil // these are not stored
		script.Stores = nil
	}

	if !reflect.DeepEqual(read, run) {
		t.Errorf("read %+v, want %+v", read, run)
	}

	before, _ := writePageAndJUnit(t, run)
	after, _ := writePageAndJUnit(t, read)
	if before != after {
		t.Error("the page of the file is another one")
	}
}

func TestReadFile_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()

	for content, want := range map[string]string{
		`{"schema": 2}`:                    "the file has schema 2, and this program reads schema 1",
		`{}`:                               "the file has schema 0, and this program reads schema 1",
		`{"schema": 1, "scripts": [null]}`: "a script is null",
		`{"schema": 1, "scripts": 5}`:      "cannot unmarshal",
		`{"schema": 1, "scripts": [{"name": "x", "curves": {"requests": [1]}}]}`: "the curves of script x have buckets that do not fit together",
		`<html>`: "invalid character",
	} {
		path := filepath.Join(folder, "result.json")
		writeFile(t, path, content)

		_, err := ReadFile(path)

		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error is %v", content, err)
		}
	}

	if _, err := ReadFile(filepath.Join(folder, "absent.json")); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestRun_Passed(t *testing.T) {
	t.Parallel()

	held := &Script{}
	failed := &Script{Failures: []string{"something"}}

	for name, c := range map[string]struct {
		run  Run
		want bool
	}{
		"no script":   {run: Run{}, want: false},
		"held":        {run: Run{Scripts: []*Script{held}}, want: true},
		"one failed":  {run: Run{Scripts: []*Script{held, failed}}, want: false},
		"interrupted": {run: Run{Interrupted: "Ctrl-C", Scripts: []*Script{held}}, want: false},
	} {
		if c.run.Passed() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

func TestTargetOf(t *testing.T) {
	t.Parallel()

	for baseURL, want := range map[string]string{
		"http://127.0.0.1:8080":           "http://127.0.0.1:8080",
		"https://a:b@example.com/x?k=v#f": "https://example.com/x",
		"http://[::1":                     "a deployment whose URL cannot be read",
	} {
		got := TargetOf(baseURL)
		if got != want {
			t.Errorf("%s: %s, want %s", baseURL, got, want)
		}
	}
}

func FuzzDecodeRun(f *testing.F) {
	f.Add([]byte(`{"schema":1,"scripts":[{"name":"x","levels":[{"state":"held"}],"curves":{"bucket_seconds":1,"requests":[1],"accepted":[1],"dropped":[0],"failed":[0],"refused":[0],"p50_ms":[null],"p99_ms":[5],"empty_p99_ms":[1]}}]}`))
	stored, err := os.ReadFile(filepath.Join("testdata", "result.json"))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(stored)

	f.Fuzz(func(t *testing.T, content []byte) {
		run, err := decodeRun(content)
		if err != nil {
			return
		}

		writePageAndJUnit(t, run)
		for _, script := range run.Scripts {
			_ = fmt.Sprint(script.Headline(), script.Webhooks.Sentence())
		}

		_ = Compare(run, &Run{Began: time.Now()}, 0)
	})
}

func TestCollectFailures_NamesProgramsThatNeedEverMoreMemory(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		seconds float64
		program harness.Watched
		fails   bool
	}{
		"grown":                {600, harness.Watched{Name: "worker", AfterThird: 60e6, Now: 200e6}, true},
		"grown in a short run": {599, harness.Watched{Name: "worker", AfterThird: 60e6, Now: 200e6}, false},
		"as before":            {3600, harness.Watched{Name: "gateway", AfterThird: 60e6, Now: 100e6}, false},
		"Redis keeps orders":   {3600, harness.Watched{Name: "redis-server", AfterThird: 60e6, Now: 900e6}, false},
	} {
		script := &Script{
			TookSeconds: c.seconds, Programs: []harness.Watched{c.program},
			Levels: []Level{{State: levelHeld}}, Counts: Counts{Requests: 1},
		}

		script.CollectFailures()

		if (len(script.Failures) > 0) != c.fails {
			t.Errorf("%s: %q", name, script.Failures)
		}
	}
}
