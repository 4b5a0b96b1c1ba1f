//go:build long

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/k6/samples"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// vendorOf plays what a script would: it registers a branch and creates orders.
func vendorOf(t *testing.T, h *house, a *account, run *samples.Run, ends ...string) {
	t.Helper()
	v, err := h.vendor.Login(t.Context(), "/token", a.ClientID, a.ClientSecret)
	if err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "the store is confirmed", func() bool {
		var store struct{ Status string }
		err := v.Call(t.Context(), http.MethodPut, "/stores/moda", map[string]any{
			"taxNumber": "1234567890", "name": "Moda Şubesi", "phone": "02165550011", "fleetId": h.Demo.Fleet.FleetID,
			"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
		}, &store)
		if err != nil {
			t.Fatal(err)
		}
		return store.Status == "Active"
	})
	run.Stores[a.Label]++
	for i, end := range ends {
		note := "SIM:HOLD=" + end
		if end == "Delivered" {
			note = ""
		}
		var created struct{ OrderID string }
		err := v.Call(t.Context(), http.MethodPost, "/orders", map[string]any{
			"externalStoreId": "moda", "externalOrderId": fmt.Sprintf("E-%d", i), "packageNote": note,
			"recipient": map[string]any{"name": "Ayşe Kaya", "phone": "05321234567"},
			"dropoff":   map[string]any{"text": "Bahariye Caddesi No: 2, Kadıköy", "latitude": 40.988, "longitude": 29.03},
		}, &created)
		if err != nil {
			t.Fatal(err)
		}
		run.Orders = append(run.Orders, samples.Order{ID: created.OrderID, Account: a.Label, End: end})
	}
}

// The check of the webhooks against the real system: it finds nothing when all
// is well, and everything that is not.
func TestHouse_ChecksTheWebhooks(t *testing.T) {
	t.Parallel()
	h, err := openHouse(t.Context(), testserver.Programs(t), "auto", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.close(false) })
	accounts, err := h.admit(t.Context(), &script{name: "test", accounts: 2, factor: 10})
	if err != nil {
		t.Fatal(err)
	}
	run := &samples.Run{Stores: map[string]int{}}
	vendorOf(t, h, accounts[0], run, "Delivered", "Searching")
	vendorOf(t, h, accounts[1], run, "PickingUp")
	w, err := h.checkWebhooks(t.Context(), accounts, run)
	if err != nil {
		t.Fatal(err)
	}
	// Two stores, five statuses of the delivered order, two of the held one.
	if len(w.Problems) > 0 || w.Orders != 3 || w.Histories != 2 || w.Stores != 2 || w.Expected != 9 || w.Received != 9 || w.P99 <= 0 {
		t.Errorf("%+v", w)
	}
	lied := &samples.Run{Stores: map[string]int{"1": 1}, Orders: []samples.Order{run.Orders[2], run.Orders[1]}}
	lied.Orders[0].End = "Assigned"
	w = &webhooks{}
	if err := w.settle(t.Context(), time.Now(), accounts[1], lied.Orders, 1); err != nil {
		t.Fatal(err)
	}
	w.hold(lied.Orders[0], []string{"Searching", "Assigned", "PickingUp", "PickedUp"}, accounts[1].receiver.Timeline(lied.Orders[0].ID))
	w.count(accounts[0], nil, 0)
	for _, problem := range []string{"the webhooks tell", "should have ended Assigned", "1 store.activated for 0 stores", "never accepted: " + run.Orders[0].ID} {
		if !strings.Contains(strings.Join(w.told(), "\n"), problem) {
			t.Errorf("%q was not found out: %v", problem, w.told())
		}
	}
}

// What k6 left behind becomes a verdict.
func TestPlayed_Judges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := runFiles{filepath.Join(dir, "x.csv"), filepath.Join(dir, "x.json")}
	p := &played{script: &script{name: "x", factor: 1}, took: time.Second, webhooks: &webhooks{}}
	p.plan.Title, p.plan.Levels = "Title", []samples.Level{{Metric: "refused", Threshold: "count==0", Words: "nobody is refused"}}
	if err := p.read(files); err != nil || len(p.failures) != 1 || p.failures[0] != "k6 wrote no samples" {
		t.Errorf("%v, %v", err, p.failures)
	}
	head := "metric_name,timestamp,metric_value,expected_response,name,status,extra_tags,metadata\n"
	write(t, files.samples, head+"http_req_duration,1795284932714757,1,true,POST /orders,429,account=1,\n")
	write(t, files.summary, `{"metrics": {"refused": {"count": 1, "thresholds": {"count==0": true}}}}`)
	p.failures = nil
	if err := p.read(files); err != nil {
		t.Fatal(err)
	}
	p.limits = judgeLimits(p.script, p.run)
	p.webhooks.problem("order o-1: lost")
	p.judge()
	want := []string{
		"service level not held: nobody is refused (count==0 of refused): 1",
		"limit not exact: POST /orders, 600 in 60 s: 0 admitted within it, 1 refused with room left",
		"limit not exact: POST /orders, 120 in 10 s: 0 admitted within it, 1 refused with room left",
		"webhooks: order o-1: lost",
	}
	if got := strings.Join(p.failures, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("failures:\n%s", got)
	}
	if page := compose([]*played{p}, time.Now(), nil); page.Passed() {
		t.Error("the page tells of a success")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
