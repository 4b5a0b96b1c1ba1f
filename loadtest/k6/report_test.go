package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// Every part of the page is there: a template fails only where it is executed.
func TestPage_ShowsAllOfAScript(t *testing.T) {
	began := time.Date(2026, 11, 23, 15, 6, 51, 0, time.UTC)
	ramp := &result{
		Title: "Ramp", Proves: "how much is too much", Name: "ramp", Took: time.Minute, Dashboard: true,
		samples: &samples{requests: []request{
			{endpoint: "POST /orders", account: "1", step: "400/s", status: 201, sent: began, answered: began.Add(2 * time.Millisecond)},
			{endpoint: "GET /orders/{id}", account: "1", failed: true, sent: began, answered: began.Add(time.Second)},
		}},
		Limits:   []limitRow{{Bucket: "POST /orders", Accounts: 1, Admitted: 1, Wronged: -1, Held: true}},
		Webhooks: &webhooks{Check: receiver.Check{Expected: 5, Received: 5, Delays: []float64{3}}, Orders: 1, Histories: 1},
		Programs: []harness.Watched{{Name: "gateway", Cores: 0.25, Begin: 20e6, Now: 30e6, Peak: 40e6}},
	}
	p := page{Began: began, Machine: "two cores", Scripts: []*result{ramp}}
	path := filepath.Join(t.TempDir(), "report.html")

	if err := p.write(path); err != nil {
		t.Fatal(err)
	}

	html, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		"how much is too much", "400", "GET /orders/{id}", "5 of 5 expected events",
		"<td>gateway</td><td>0.25</td><td>20 MB</td><td>30 MB</td><td>40 MB</td>", "</html>",
	} {
		if !strings.Contains(string(html), shown) {
			t.Errorf("the page does not show %q:\n%s", shown, html)
		}
	}
}
