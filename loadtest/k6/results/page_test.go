package results

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func mustContain(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			t.Errorf("%q is missing", part)
		}
	}
}

// Every part of the page is there: a template fails only where it is executed.
func TestWritePage_ShowsAllOfAStoredRun(t *testing.T) {
	t.Parallel()

	run, err := ReadFile(filepath.Join("testdata", "result.json"))
	if err != nil {
		t.Fatal(err)
	}

	page, _ := writePageAndJUnit(t, run)

	mustContain(t, page,
		"<title>Load test: NOT everything held</title>",
		`<a href="#burst">Bursts &lt;at&gt; the limits</a>: FAILED: 63 s, 102 requests`,
		"Saturday, 21 November 2026, 12:00 UTC, 1m1s. Target: its own systems. k6 v1.8.1.",
		"commit abc123",

		// The script that failed.
		`<li class="broken">service level NOT MEASURED: no vendor is refused`,
		`<li class="broken">k6 ended with status 107</li>`,
		"Proves: limits are exact", "Cannot prove: that they are fair",
		`<span class="broken">NOT HELD</span>`, `<span class="broken">NOT MEASURED</span>`,
		"<th>service level</th><th>measured</th><th>threshold</th><th>samples</th>",
		"80 ms; 16 times the empty path&#39;s 5.0 ms (accepted: 20 times, at most 100.0 ms)</td><td>p(95)&lt;50 of http_req_duration</td><td>100</td>", `<span class="relative">held relative to this machine</span>`,
		"<td>no answer</td>", "There is no answer from the empty path",
		"<td>120 in 10 s</td><td>121</td>", `<tr><td><span class="broken">NOT HELD</span></td><td>POST /orders</td>`, "<td>cannot be known</td>",
		"39 of 40 expected events arrived", "k6 left no dashboard", "no log",
		`<td class="words">an order is accepted</td><td>9</td><td class="broken">1</td>`,
		"none dropped",

		// The ramp.
		`<span class="held">held</span>`,
		`<a href="ramp.html">k6's dashboard</a>`, `<a href="ramp.summary.json">summary</a>`,
		`<svg viewBox="0 0 720 260" role="img" aria-label="Rates over time, per second"><title>`, "Latencies over time, milliseconds, logarithmic",
		"iterations dropped</li>", "answers 429</li>", "failed: unexpected 5xx or no answer: none", ">2 s</text>", "ms</text>", "/s</text>",
		"<td>80/s for 1 s</td>", "not accepted", "breaks: only ", `<td class="words">holds</td>`, "Knee: <strong>40/s</strong>: <strong>the service is at its limit</strong>. It is", "<th>empty path p99</th>", `<td class="latency">43.5 ms</td></tr>`,
		"k6 itself could send 900 such orders a second", "<li>after 6 s gateway was killed</li>", "<td>the empty path</td><td></td><td>23</td>",
		"no order left Searching, so none has webhooks", "All checks of the script (1) found what they expected.",
		"<strong>35 dropped</strong>", "sent again; besides 23 to the empty path</td>", "of 15</td>", "0.1 s by all virtual users",
		"<td>gateway</td><td>0.25</td><td>20 MB</td><td>25 MB</td><td>30 MB</td><td>40 MB</td>", "Programs that are not in this table kept 0.50 processors busy.",

		// The comparison, with itself.
		"Compared with the run of 21 November 2026, 12:00, commit abc123", "No regression: no p50 or p95 that could be compared is more than 1.5 times as long as before relative to the empty path, and longer by the clock as well.</p>",
		"<td>POST /orders 201 p95</td>",
	)

	checkPage(t, page)
}

// checkPage checks what holds of every page.
func checkPage(t *testing.T, page string) {
	t.Helper()
	for _, trace := range []string{"<script", "http://", "https://", "%!", "ZgotmplZ", "<no value>", "NaN", "Inf", "0xc0", ">true", ">false"} {
		if strings.Contains(page, trace) {
			t.Errorf("the page holds %q", trace)
		}
	}

	opened := regexp.MustCompile(`<(table|tr|td|th|ul|li|p|section|figure|div|svg|span|strong)[ >]`)
	closed := regexp.MustCompile(`</(table|tr|td|th|ul|li|p|section|figure|div|svg|span|strong)>`)
	o, c := len(opened.FindAllString(page, -1)), len(closed.FindAllString(page, -1))
	if o != c {
		t.Errorf("%d elements are opened and %d closed", o, c)
	}
}

func TestWritePage_OfRunsThatAreNotWhole(t *testing.T) {
	t.Parallel()

	nothingSent := &Script{Name: "steady"}
	nothingSent.CollectFailures()
	interrupted := buildRamp(t)
	interrupted.Interrupted = "the gateway ended"
	interrupted.CollectFailures()
	near := buildRamp(t)
	near.Ramp.Ceiling = pointerTo(60)
	unknown := buildRamp(t)
	unknown.Ramp.Ceiling = nil

	for name, c := range map[string]struct {
		run  *Run
		want []string
	}{
		"nothing was played": {
			run:  &Run{Interrupted: "Redis does not start"},
			want: []string{"NOT everything held", "Interrupted: Redis does not start", "No script was played.", "Nothing could be compared: no script is in both runs."},
		},
		"interrupted": {
			run:  &Run{Interrupted: "Ctrl-C", Scripts: []*Script{buildRamp(t)}},
			want: []string{"NOT everything held", "Interrupted: Ctrl-C", "Webhooks were not checked."},
		},
		"a script was interrupted": {
			run: &Run{Scripts: []*Script{interrupted}},
			want: []string{
				"NOT everything held", "</h2>\n<p class=\"broken\">Interrupted: the gateway ended. What follows was measured until then.</p>",
				"FAILED: 3 s, 109 requests", "<td>POST /orders</td><td>201</td><td>107</td>",
			},
		},
		"nothing was sent": {
			run:  &Run{Scripts: []*Script{nothingSent}},
			want: []string{"the script has no service levels", "nothing was sent", "at most 0 busy of 0"},
		},
		"everything held, near k6's ceiling": {
			run:  &Run{Scripts: []*Script{near}},
			want: []string{"Load test: everything held", "it may be k6's limit and not the service's. Use make bench, or"},
		},
		"k6's ceiling is not known": {
			run:  &Run{Scripts: []*Script{unknown}},
			want: []string{"k6's own ceiling was not measured"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			page, _ := writePageAndJUnit(t, c.run)

			mustContain(t, page, c.want...)
			checkPage(t, page)
		})
	}
}

func TestWritePage_ShowsRegressions(t *testing.T) {
	t.Parallel()

	before, after := buildRamp(t), buildRamp(t)
	after.endpoint(createOrder, 201).Latency.P50 *= 4
	file, err := os.Create(filepath.Join(t.TempDir(), "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	if err := WritePage(file, &Run{Target: OwnSystems, Scripts: []*Script{after}}, &Run{Target: OwnSystems, K6: "v1.0.0", Scripts: []*Script{before}}); err != nil {
		t.Fatal(err)
	}

	page, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}

	mustContain(t, string(page), `<span class="broken">REGRESSION</span>`, "POST /orders 201 p50 is 4.0 times as long: ", "; relative to the empty path 4.0 times",
		"the versions of k6 differ: v1.0.0 before,  now")
	checkPage(t, string(page))
}

// A p99 may grow by chance. The page shows it and does not say that no latency grew.
func TestWritePage_ComparesADeployment(t *testing.T) {
	t.Parallel()

	before, after := comparableScript(10, 1), comparableScript(10, 1)
	after.Endpoints[0].Latency.P99 *= 4
	earlier, run := runOf(before), runOf(after)
	earlier.Target, run.Target = "a deployment", "a deployment"
	var page bytes.Buffer

	if err := WritePage(&page, run, earlier); err != nil {
		t.Fatal(err)
	}

	mustContain(t, page.String(),
		"<p>No regression: no p50 or p95 that could be compared is more than 1.5 times as long as before.</p>",
		"<td>POST /orders 201 p99</td><td>40 ms</td><td>160 ms</td><td>4</td><td>4</td>")
	checkPage(t, page.String())
}

// The scale has two ends even if all latencies are equal, or none is above zero.
func TestLatenciesChart_HasTwoEnds(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		value Latency
		ticks []string
		path  string
	}{
		"a power of ten": {value: 10, ticks: []string{"10 ms", "100 ms"}, path: "M390.0 220.0h0.01"},
		"no time":        {value: 0, ticks: []string{"1 ms", "10 ms"}, path: "M390.0 220.0h0.01"},
	} {
		curves := newCurves(start, 1, 1)
		curves.P50[0] = &c.value

		drawn := latenciesChart(curves)

		var ticks []string
		for _, tick := range drawn.YTicks {
			ticks = append(ticks, tick.Label)
		}

		if !slices.Equal(ticks, c.ticks) || drawn.Lines[0].Path != c.path {
			t.Errorf("%s: ticks %q, path %s", name, ticks, drawn.Lines[0].Path)
		}
	}
}

func TestNiceAbove(t *testing.T) {
	t.Parallel()

	for value, want := range map[float64]float64{0: 1, 1: 1, 1.5: 2, 2: 2, 3: 5, 6: 10, 1000: 1000, 1001: 2000} {
		got := niceAbove(value)
		if got != want {
			t.Errorf("%v: %v, want %v", value, got, want)
		}
	}
}

func TestFormatSeconds(t *testing.T) {
	t.Parallel()

	for seconds, want := range map[int]string{59: "59 s", 60: "1 min", 90: "1.5 min", 3600: "1 h", 5400: "1.5 h"} {
		got := formatSeconds(seconds)
		if got != want {
			t.Errorf("%d: %s, want %s", seconds, got, want)
		}
	}
}

func TestTickStep(t *testing.T) {
	t.Parallel()

	for seconds, want := range map[int]int{1: 1, 5: 1, 6: 2, 75: 15, 76: 30, 8 * 3600: 7200, 5 * 86400: 86400, 5*86400 + 1: 2 * 86400, 30 * 86400: 8 * 86400} {
		got := tickStep(seconds)
		if got != want {
			t.Errorf("%d s: %d, want %d", seconds, got, want)
		}
	}
}

// The curves leave gaps where nothing was measured, and stay inside the picture.
func TestChartsOf(t *testing.T) {
	t.Parallel()

	one, ten, thousand := Latency(1), Latency(10), Latency(1000)
	curves := &Curves{
		Began: start, BucketSeconds: 60,
		Requests: []float64{10, 30, 0}, Accepted: []float64{9, 0, 0}, Dropped: []float64{0, 0, 0}, Failed: []float64{0, 0, 0}, Refused: []float64{0, 0, 0},
		P50: []*Latency{&one, nil, &thousand}, P99: []*Latency{nil, nil, nil}, EmptyP99: []*Latency{&ten, &ten, nil},
	}

	charts := chartsOf(curves)

	rates, latencies := charts[0], charts[1]
	ratesY, ratesX, latenciesY := rates.YTicks, rates.XTicks, latencies.YTicks
	if len(ratesY) != 3 || ratesY[0] != (tick{At: plotBottom, Label: "0/s"}) || ratesY[2] != (tick{At: plotTop, Label: "50/s"}) {
		t.Errorf("ticks of rates: %v", ratesY)
	}
	if len(ratesX) != 4 || ratesX[0].Label != "0 s" || ratesX[3] != (tick{At: plotRight, Label: "3 min"}) {
		t.Errorf("ticks of time: %v", ratesX)
	}
	if len(latenciesY) != 4 || latenciesY[0].Label != "1 ms" || latenciesY[3].Label != "1000 ms" {
		t.Errorf("ticks of latencies: %v", latenciesY)
	}

	if rates.Lines[0].Path != "M194.0 179.2L390.0 97.6L586.0 220.0" || rates.Lines[1].Path != "M194.0 183.3L390.0 220.0L586.0 220.0" || rates.Lines[4].Path != "" {
		t.Errorf("rates: %+v", rates.Lines)
	}
	if latencies.Lines[0].Path != "M194.0 220.0h0.01M586.0 16.0h0.01" || latencies.Lines[1].Path != "" || latencies.Lines[2].Path != "M194.0 152.0L390.0 152.0" {
		t.Errorf("latencies: %+v", latencies.Lines)
	}

	if chartsOf(nil) != nil || chartsOf(&Curves{}) != nil {
		t.Error("nothing has charts")
	}
}
