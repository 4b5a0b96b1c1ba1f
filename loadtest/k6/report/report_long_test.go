//go:build long

package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func held() Script {
	figures := Figures{Name: "POST /orders", Count: 12345, Rate: 71.9, P50: 1500 * time.Microsecond, P95: 9 * time.Millisecond,
		P99: 21 * time.Millisecond, Max: 1234 * time.Millisecond, Answers: []Answer{{201, 12345, false}}}
	return Script{
		Name: "steady", Title: "Steady state", Proves: "Nobody is refused.", Took: 35 * time.Second,
		Levels:    []Level{{"quick", "p(99)<50", "http_req_duration{name:POST /orders}", "21.0 ms", true}},
		Total:     figures,
		Endpoints: []Figures{figures},
		Limits:    []Limit{{"POST /orders", "120 in 10 s", 8, 12345, 0, 90, 0, true}, {"GET /orders/{id}", "3,000 in 60 s", 8, 1, 0, 1, -1, true}},
		Webhooks:  &Webhooks{Orders: 12345, Histories: 12345, Stores: 16, Expected: 61741, Received: 61741, P50: 2 * time.Millisecond, P99: 9 * time.Millisecond},
		Programs:  []Program{{"gateway", 4 * time.Second, 11.4, 23e6, 25e6}},
		Moments: []Moment{
			{0, time.Second, 70, 0, 0, time.Millisecond, 5 * time.Millisecond},
			{time.Second, time.Second, 75, 0, 0, time.Millisecond, 6 * time.Millisecond},
		},
		Log: "steady.log",
	}
}

func broken() Script {
	s := held()
	s.Name, s.Title = "burst", "Bursts"
	s.Levels = append(s.Levels, Level{"nobody is refused", "count==0", "refused", "3", false})
	s.Failures = []string{"service level not held: nobody is refused: 3", "webhooks: <script>alert(1)</script>"}
	s.Endpoints[0].Answers = []Answer{{0, 1, true}, {201, 12340, false}, {503, 4, true}, {503, 9, false}}
	s.Limits[0].Held, s.Limits[0].Wronged = false, 3
	s.Moments[1].Refused, s.Moments[1].Failed = 3, 5
	return s
}

func render(t *testing.T, p Page) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	if err := Write(path, p); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func contains(t *testing.T, html string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(html, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
}

func TestWrite_EverythingHeld(t *testing.T) {
	t.Parallel()
	p := Page{Began: time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC), Took: 290 * time.Second,
		Machine: []Fact{{"Processors", "2"}}, Scripts: []Script{held()}}
	if !p.Passed() {
		t.Error("the page does not pass")
	}
	html := render(t, p)
	contains(t, html, "Everything held", "Saturday, 21 November 2026, 18:00", "Processors", `href="#steady"`, `id="steady"`,
		"Nobody is refused.", "12,345", "1,234 ms", "21.0 ms", "p(99)&lt;50", "61,741 of 61,741", "None came twice", "120 in 10 s", "12,345&nbsp;×&nbsp;201", "11 %", "23 MB", "<svg", "1 of 1")
	if strings.Contains(html, "✗") {
		t.Error("something is marked as broken")
	}
}

func TestWrite_TellsWhatFailed(t *testing.T) {
	t.Parallel()
	p := Page{Scripts: []Script{held(), broken()}}
	if p.Passed() || p.Held() != 1 || p.Scripts[1].LevelsHeld() != 1 {
		t.Errorf("passed %v, %d scripts held", p.Passed(), p.Held())
	}
	html := render(t, p)
	contains(t, html, "Not everything held", "1 of 2 scripts passed", "service level not held: nobody is refused: 3",
		"✗ broken", "1 of 2", "no answer", `<span class="broken">4&nbsp;×&nbsp;503</span>`, "9&nbsp;×&nbsp;503 (asked for)", "&lt;script&gt;alert", "3 refused, 5 failed")
}

func TestWrite_TellsOfAnInterruption(t *testing.T) {
	t.Parallel()
	p := Page{Scripts: []Script{held()}, Interrupted: "steady: the gateway ended"}
	if p.Passed() || (Page{}).Passed() {
		t.Error("an interrupted or empty run passed")
	}
	contains(t, render(t, p), "the run ended early: steady: the gateway ended")
}

var fetched = regexp.MustCompile(`<script|<link|<img|<iframe|@import|url\(|https?://|ZgotmplZ|NaN|Inf`)

// The page is one file: nothing is fetched, and nothing of the template was
// refused by html/template.
func TestWrite_IsSelfContained(t *testing.T) {
	t.Parallel()
	s := held()
	s.Steps = []Step{{Figures: s.Total, Offered: 100, Within: true}}
	s.Knee = "The knee is at 100/s."
	html := render(t, Page{Scripts: []Script{s, broken(), {Name: "empty", Failures: []string{"nothing was sent"}}}})
	if found := fetched.FindString(html); found != "" {
		t.Errorf("the page contains %q", found)
	}
	contains(t, html, "The knee is at 100/s.", "prefers-color-scheme: dark")
	for _, tag := range []string{"table", "section", "svg", "figure", "ul", "p"} {
		if opened, closed := strings.Count(html, "<"+tag+">")+strings.Count(html, "<"+tag+" "), strings.Count(html, "</"+tag+">"); opened != closed {
			t.Errorf("%d <%s>, %d closed", opened, tag, closed)
		}
	}
}

func TestCharts(t *testing.T) {
	t.Parallel()
	if charts(nil) != nil || charts(held().Moments[:1]) != nil {
		t.Error("a chart of nothing")
	}
	c := charts(broken().Moments)
	if len(c) != 2 || len(c[0].Lines) != 3 || len(c[1].Lines) != 2 {
		t.Fatalf("%+v", c)
	}
	// 75/s on an axis up to 80 in steps of 20; the second of two moments.
	if got, want := c[0].Lines[0].Path, "M225.0 24.8L571.0 17.4"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if ticks := c[0].Ticks; len(ticks) != 5 || ticks[4].Label != "80" || ticks[0].At != chartHeight-foot || ticks[4].At != top {
		t.Errorf("ticks %+v", ticks)
	}
	if c[0].Bars[1].Words != "1s: 75/s, median 1.0 ms, p95 6.0 ms, 3 refused, 5 failed" {
		t.Errorf("words %q", c[0].Bars[1].Words)
	}
	if lines := charts(held().Moments)[0].Lines; len(lines) != 1 {
		t.Errorf("series without a value are drawn: %+v", lines)
	}
}

func TestNiceStep(t *testing.T) {
	t.Parallel()
	for highest, want := range map[float64]float64{0: 1, 0.3: 0.1, 1: 0.5, 7: 2, 75: 20, 100: 50, 1199: 500} {
		if got := niceStep(highest); got < want*0.999 || got > want*1.001 {
			t.Errorf("step %g for %g, want %g", got, highest, want)
		}
	}
}

func TestTimeStep(t *testing.T) {
	t.Parallel()
	for total, want := range map[time.Duration]time.Duration{
		9 * time.Second: time.Second, 63 * time.Second: 10 * time.Second, 10 * time.Minute: time.Minute, 100 * time.Hour: 11 * time.Hour,
	} {
		if got := timeStep(total); got != want {
			t.Errorf("%v for %v, want %v", got, total, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 s", 90 * time.Second: "90 s", 3 * time.Minute: "3 min", 3 * time.Hour: "3.0 h"} {
		if got := shortTime(d); got != want {
			t.Errorf("%v is %q", d, got)
		}
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}
