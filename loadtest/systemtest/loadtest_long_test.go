//go:build long

package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// overload is a k6 script that makes everything happen that the dashboard shows of a load test. It offers more orders
// than an account may send and more than its virtual users can, so that some are refused and sent again and iterations
// are dropped; and it expects the wrong answer, so that requests count as failed. %[1]s is the folder of the library.
const overload = `
import exec from 'k6/execution';
import { level, plan } from '%[1]s/levels.js';
import { dice, draw } from '%[1]s/orders.js';
import { expect, open, vendor } from '%[1]s/vendor.js';

export const options = plan({
  title: 'Overload',
  proves: '',
  levels: [level('dropped_iterations', 'count>0', 'more is offered than can be sent')],
  scenarios: {
    till: { executor: 'constant-arrival-rate', rate: 100, duration: '3s', preAllocatedVUs: 4, gracefulStop: '30s' },
  },
});

export function setup() {
  return open(1);
}

export default function (data) {
  const v = vendor(data, 0);
  const turn = exec.scenario.iterationInTest;
  const order = draw(dice(turn), data.stores[0], data.run + '-overload-' + turn);
  expect(v.createUntilAnswered(order, 'Delivered'), 'an order is accepted', (a) => a.status === 201);
  v.call('GET', '/orders/unknown', 'GET /orders/{id}', undefined, { expect: 503 });
  v.wait(0.02);
}
`

// prometheusServer is a real Prometheus in a process of its own. It scrapes a gateway and takes what k6 writes.
type prometheusServer struct {
	url string
}

// startPrometheus starts one that ends with the test, and returns once it has scraped the gateway.
func startPrometheus(t *testing.T, gateway *stack.Program) prometheusServer {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	target := strings.TrimPrefix(gateway.OpsURL(), "http://")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
scrape_configs:
  - job_name: gateway
    scrape_interval: 1s
    static_configs:
      - targets: [%q]
        labels: {environment: sandbox}
`, target), 0o600))

	addr := stack.FreeAddr()
	// A Prometheus takes native histograms without being told to since 3.9; Debian has an older one.
	start(t, tool(t, "prometheus", "--web.enable-remote-write-receiver", "--enable-feature=native-histograms",
		"--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+addr))
	p := prometheusServer{url: "http://" + addr}
	await(t, "Prometheus is ready", answers(p.url+"/-/ready"))
	began := time.Now()
	await(t, "Prometheus has scraped the gateway", func() bool { return len(p.shown(t, "up == 1", began)) > 0 })

	return p
}

// get reads the data of an answer of Prometheus's API.
func (p prometheusServer) get(t *testing.T, path string, query url.Values, data any) {
	t.Helper()
	resp, err := http.Get(p.url + path + "?" + query.Encode())
	must(t, err)
	defer resp.Body.Close()
	answer := struct {
		Error string
		Data  any
	}{Data: data}

	must(t, json.NewDecoder(resp.Body).Decode(&answer))

	if answer.Error != "" {
		t.Fatalf("%s of %v: %s", path, query, answer.Error)
	}
}

// shown returns the labels of what a panel draws for an expression since a time.
func (p prometheusServer) shown(t *testing.T, expr string, since time.Time) []map[string]string {
	t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
		}
	}

	p.get(t, "/api/v1/query_range", url.Values{
		"query": {expr},
		"start": {strconv.FormatInt(since.Unix(), 10)},
		"end":   {strconv.FormatInt(time.Now().Unix(), 10)},
		"step":  {"1"},
	}, &data)

	var series []map[string]string
	for _, r := range data.Result {
		series = append(series, r.Metric)
	}

	return series
}

// runK6 plays a script with the given settings, and sends the results to Prometheus.
func (p prometheusServer) runK6(t *testing.T, script string, settings ...string) {
	t.Helper()
	k6, err := harness.K6(t.Context(), echo{t})
	must(t, err)
	file := filepath.Join(t.TempDir(), "script.js")
	must(t, os.WriteFile(file, []byte(script), 0o600))

	cmd := exec.CommandContext(t.Context(), k6, "run", "--quiet", "--no-usage-report", "--address", "",
		"--out", "experimental-prometheus-rw", file)
	cmd.Env = slices.Concat(os.Environ(), settings, []string{
		"K6_PROMETHEUS_RW_SERVER_URL=" + p.url + "/api/v1/write", "K6_PROMETHEUS_RW_PUSH_INTERVAL=1s",
		"K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM=true", "K6_PROMETHEUS_RW_STALE_MARKERS=true",
	})

	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "level=error") {
		t.Fatalf("k6: %v\n%s", err, out)
	}
}

// A real k6 writes to a real Prometheus. Every expression in the dashboard's row of load tests then shows something,
// and no series has a secret or grows with the number of orders.
func TestLoadTest_ResultsReachTheDashboard(t *testing.T) {
	t.Parallel()

	s := startStack(t, stack.Options{Courier: "auto", CourierStep: 100 * time.Millisecond})
	v := s.Account(t, map[string]any{"orders": stack.Limit(20, 2)})
	p := startPrometheus(t, s.Gateway)

	began := time.Now()
	fleet := &s.Demo.Fleet
	library := filepath.Join(filepath.Dir(moduleFile(t, "docker-compose.yml")), "loadtest", "lib")
	p.runK6(t, fmt.Sprintf(overload, library),
		"BASE_URL="+s.Demo.BaseURL, "CLIENT_ID="+v.ClientID, "CLIENT_SECRET="+v.ClientSecret,
		"OPS_URL="+s.Demo.OpsURL, "FLEET_CLIENT_ID="+fleet.ClientID, "FLEET_CLIENT_SECRET="+fleet.ClientSecret)

	for _, panel := range panelsOfLoadTests(t) {
		for _, target := range panel.Targets {
			text := strings.NewReplacer("$__rate_interval", "30s", "$environment", "sandbox").Replace(target.Expr)
			checkShown(t, panel.Title, text, p.shown(t, text, began))
		}
	}

	var written []map[string]string
	p.get(t, "/api/v1/series", url.Values{"match[]": {`{__name__=~"k6_.+"}`}}, &written)
	checkK6Labels(t, written, v.ClientID, v.ClientSecret, fleet.ClientID, fleet.ClientSecret)
}

// panelsOfLoadTests returns the panels between the row of load tests and the next row.
func panelsOfLoadTests(t *testing.T) []dashboardPanel {
	t.Helper()
	all := readDashboard(t).Panels
	row := slices.IndexFunc(all, func(p dashboardPanel) bool { return p.Title == "Load test (k6)" })
	if row < 0 {
		t.Fatal("the dashboard has no row for load tests")
	}

	panels := all[row+1:]
	next := slices.IndexFunc(panels, func(p dashboardPanel) bool { return p.Type == "row" })
	if next < 0 {
		return panels
	}

	return panels[:next]
}

// checkShown holds that an expression shows at least one series, and that each has the labels it is grouped by.
func checkShown(t *testing.T, panel, text string, series []map[string]string) {
	t.Helper()
	if len(series) == 0 {
		t.Errorf("panel %s: nothing is shown for %s", panel, text)
	}

	expr, err := parser.ParseExpr(text)
	must(t, err)
	aggregate, isAggregate := expr.(*parser.AggregateExpr)
	if !isAggregate {
		return
	}

	for _, labels := range series {
		for _, name := range aggregate.Grouping {
			if labels[name] == "" {
				t.Errorf("panel %s: %v of %s has no %s", panel, labels, text, name)
			}
		}
	}
}

// k6Labels are the labels that a series of k6 may have: the library's tags, and the system tags that plan() in
// loadtest/lib/levels.js asks k6 for.
var k6Labels = strings.Fields("__name__ account check error error_code expected_response group method name reason scenario status")

// checkK6Labels holds that the series that k6 wrote have no other labels, no secrets, and no label that has a value of
// its own for every order.
func checkK6Labels(t *testing.T, series []map[string]string, secrets ...string) {
	t.Helper()
	values := map[string]map[string]bool{}
	for _, labels := range series {
		for name, value := range labels {
			if !slices.Contains(k6Labels, name) {
				t.Errorf("k6 writes a label %s: %v", name, labels)
			}
			if slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(value, secret) }) {
				t.Errorf("the label %s has a secret", name)
			}

			if values[name] == nil {
				values[name] = map[string]bool{}
			}

			values[name][value] = true
		}
	}

	if len(series) == 0 {
		t.Error("k6 has written nothing")
	}

	for name, all := range values {
		if name != "__name__" && len(all) > 20 {
			t.Errorf("the label %s has %d values", name, len(all))
		}
	}
}
