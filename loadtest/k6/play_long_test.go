//go:build long

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// sell does what a script would: it registers a branch and creates orders.
func sell(t *testing.T, a *account, fleet string, all *samples, ends ...string) {
	t.Helper()
	a.Store = "moda"
	testserver.Await(t, "the store is confirmed", func() bool {
		var store struct{ Status string }
		if err := a.Call(t.Context(), "PUT", "/stores/moda", stack.StoreBody(fleet), &store); err != nil {
			t.Fatal(err)
		}
		return store.Status == "Active"
	})
	all.stores[a.label]++
	for _, end := range ends {
		var created struct{ OrderID string }
		err := a.Call(t.Context(), "POST", "/orders", a.Order(func(o map[string]any) {
			if end != "Delivered" {
				o["packageNote"] = "SIM:HOLD=" + end
			}
		}), &created)
		if err != nil {
			t.Fatal(err)
		}
		all.orders[a.label] = append(all.orders[a.label], receiver.History{OrderID: created.OrderID, End: end})
	}
}

// The check of the webhooks against the real system: it finds nothing when all
// is well, and everything that is not.
func TestCheckWebhooks(t *testing.T) {
	t.Parallel()
	o := stack.Options{BinDir: testserver.Programs(t), CourierStep: courierStep}
	err := harness.WithSystem(t.Context(), t.Output(), false, o, func(ctx context.Context, system *harness.System) error {
		accounts, err := openAccounts(ctx, system, &script{name: "test", accounts: 2, factor: 10})
		if err != nil {
			return err
		}
		return tryWebhooks(t, accounts, system.FleetID)
	})
	if err != nil {
		t.Error(err)
	}
}

func tryWebhooks(t *testing.T, accounts []*account, fleet string) error {
	all := &samples{orders: map[string][]receiver.History{}, stores: map[string]int{}}
	sell(t, accounts[0], fleet, all, "Delivered", "Searching")
	sell(t, accounts[1], fleet, all, "PickingUp")
	w, err := checkWebhooks(t.Context(), accounts, all)
	if err != nil {
		return err
	}
	// Two stores, five statuses of the delivered order, two of the held one.
	if len(w.Problems) > 0 || w.Orders != 3 || w.Histories != 2 || w.Stores != 2 || w.Expected != 9 || w.Received != 9 || w.Delay(0.99) == "-" {
		t.Errorf("%+v", w)
	}
	histories, err := accounts[1].histories(t.Context(), []receiver.History{{OrderID: all.orders["2"][0].OrderID, End: "Assigned"}})
	if err != nil {
		return err
	}
	histories[0].Events = append(histories[0].Events, histories[0].Events[0])
	w = &webhooks{}
	w.add(accounts[1], histories, 1)
	w.add(accounts[0], nil, 0)
	problems := strings.Join(w.Problems, "\n")
	for _, problem := range []string{"the webhooks say", "should have ended Assigned", "1 store.activated for 0 stores", "webhooks of order " + all.orders["1"][0].OrderID} {
		if !strings.Contains(problems, problem) {
			t.Errorf("%q was not found: %s", problem, problems)
		}
	}
	return nil
}

// What k6 left behind becomes failures.
func TestResult_Check(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := k6Files{samples: filepath.Join(dir, "samples.json"), summary: filepath.Join(dir, "summary.json")}
	r := &result{Name: "x", Took: time.Second, Webhooks: &webhooks{}}
	if err := r.read(files); err != nil || len(r.Failures) != 1 || !strings.HasPrefix(r.Failures[0], "k6 wrote no samples") {
		t.Errorf("%v, %v", err, r.Failures)
	}
	write(t, files.samples, `{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"account":"1","name":"POST /orders","status":"429","expected_response":"true"}}}`)
	write(t, files.summary, `{"title": "Title", "levels": [{"metric": "refused", "threshold": "count==0", "words": "nobody is refused", "measured": "<1>", "held": false}]}`)
	r.Failures = nil
	if err := r.read(files); err != nil {
		t.Fatal(err)
	}
	r.Limits = checkLimits(&script{factor: 1}, r.samples.requests)
	r.Webhooks.Problems = []string{"order o-1: lost"}
	r.check()
	want := []string{
		"service level not held: nobody is refused (count==0 of refused): <1>",
		"limit not exact: POST /orders, 600 in 60 s: 0 admitted within it, 1 refused with room left",
		"limit not exact: POST /orders, 120 in 10 s: 0 admitted within it, 1 refused with room left",
		"webhooks: order o-1: lost",
	}
	if got := strings.Join(r.Failures, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("failures:\n%s", got)
	}
	p := page{Scripts: []*result{r}}
	path := filepath.Join(dir, "report.html")
	if err := p.write(path); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(path)
	if err != nil || p.Passed() || strings.Contains(string(html), "<1>") || !strings.Contains(string(html), "order o-1: lost") || !strings.Contains(string(html), "not everything held") {
		t.Errorf("%v: %s", err, html)
	}
	if p.Scripts[0].Failures = nil; !p.Passed() {
		t.Error("a page without failures did not pass")
	}
	if p.Interrupted = "the gateway ended"; p.Passed() {
		t.Error("an interrupted run passed")
	}
}

const written = `{"type":"Metric","data":{"name":"http_req_duration"},"metric":"http_req_duration"}
{"metric":"stores_registered","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"account":"1"},"metadata":{"store":"loadtest-1"}}}
{"metric":"http_reqs","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"status":"201"}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-23T15:06:51.0025Z","value":2.5,"tags":{"account":"1","name":"POST /orders","status":"201","expected_response":"true"}}}
{"metric":"orders_accepted","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"account":"1"},"metadata":{"order":"o-1","end":"Delivered"}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-23T15:06:52Z","value":0,"tags":{"account":"2","name":"GET /orders/{id}","status":"0","expected_response":"false","step":"400/s"}}}
`

func TestReadSamples(t *testing.T) {
	t.Parallel()
	all, err := readSamples(strings.NewReader(written))
	if err != nil || len(all.requests) != 2 || len(all.orders["1"]) != 1 || all.stores["1"] != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	sent := time.Date(2026, 11, 23, 15, 6, 51, 0, time.UTC)
	if all.requests[0] != (request{endpoint: "POST /orders", account: "1", status: 201, sent: sent, answered: sent.Add(2500 * time.Microsecond)}) {
		t.Errorf("%+v", all.requests[0])
	}
	if r := all.requests[1]; r.step != "400/s" || r.account != "2" || r.status != 0 || !r.failed {
		t.Errorf("%+v", r)
	}
	if o := all.orders["1"][0]; o.OrderID != "o-1" || o.End != "Delivered" {
		t.Errorf("%+v", o)
	}
	for name, change := range map[string][2]string{
		"no time":            {"2026-11-23T15:06:52Z", "soon"},
		"no value":           {`"value":0`, `"value":"long"`},
		"no status":          {`"status":"0"`, `"status":""`},
		"an order of no one": {`,"end":"Delivered"`, ""},
		"half a line":        {`,"step":"400/s"}}}`, ""},
	} {
		if all, err := readSamples(strings.NewReader(strings.Replace(written, change[0], change[1], 1))); err == nil {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
