//go:build long

package systemtest

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// ofPrometheus are metrics that Prometheus makes itself.
var ofPrometheus = map[string]bool{"up": true, "ALERTS": true}

// ofOthers are metrics of haproxy and of node_exporter, which TestOnCall_OthersExposeWhatRulesName asks.
var ofOthers = regexp.MustCompile(`^(haproxy|node)_`)

// ofK6 are metrics that k6 writes, which TestLoadTest_ResultsReachTheDashboard has it do.
var ofK6 = regexp.MustCompile(`^k6_`)

// notHere are metrics of a blackbox_exporter, and those that a program has only with TLS to a
// server (TestPeerCertificate_IsShown).
var notHere = regexp.MustCompile(`^(probe_|vendorapi_peer_certificate_)`)

// scrape is what a program exposes.
func scrape(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return string(text)
}

// running starts everything, a gateway with TLS among it, and returns what each
// program exposes.
func running(t *testing.T) map[string]string {
	t.Helper()
	s := startStack(t, stack.Options{Reporting: true, Receiver: true, CourierStep: 100 * time.Millisecond})
	secure, _, err := s.AddGateway(t.Context())
	must(t, err)

	authority, err := stack.NewAuthority("test")
	must(t, err)
	files, err := authority.Issue(t.TempDir(), time.Now().Add(time.Hour), "127.0.0.1")
	must(t, err)
	root, err := stack.ModuleDir()
	must(t, err)

	secure.Stop()
	secure.Use(testserver.Programs(t), filepath.Join(root, "configs"), "TLS_CERT_FILE="+files.CertFile, "TLS_KEY_FILE="+files.KeyFile)
	must(t, secure.Start(t.Context()))

	for _, gateway := range []*stack.Program{s.Gateway, secure} {
		resp, err := http.Get(gateway.OpsURL() + "/no/such/path")
		must(t, err)
		resp.Body.Close()
	}

	if out, err := s.Command(t, stack.BackupUser, "backup", "--to", filepath.Join(t.TempDir(), "b")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	await(t, "the worker has read the figures of the streams, and of the backup", func() bool {
		text := scrape(t, s.Worker.OpsURL()+"/metrics")
		return strings.Contains(text, "\nworker_feed_lag{") && strings.Contains(text, "\nworker_last_backup_timestamp_seconds ")
	})

	return map[string]string{
		"gateway":         scrape(t, s.Gateway.OpsURL()+"/metrics"),
		"gateway, secure": scrape(t, secure.OpsURL()+"/metrics"),
		"worker":          scrape(t, s.Worker.OpsURL()+"/metrics"),
		"reporting":       scrape(t, s.Reporting.OpsURL()+"/metrics"),
	}
}

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)[ {]`)

func TestMetrics_ThatRulesAndPanelsNameAreExposed(t *testing.T) {
	t.Parallel()

	texts := running(t)

	exposed := map[string]bool{}
	for program, text := range texts {
		for _, found := range sample.FindAllStringSubmatch(text, -1) {
			exposed[found[1]] = true
		}

		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Error(err)
		}

		for _, p := range problems {
			if !strings.HasPrefix(p.Metric, "go_") && !strings.HasPrefix(p.Metric, "process_") {
				t.Errorf("%s: %s: %s", program, p.Metric, p.Text)
			}
		}
	}

	for where, text := range expressions(t) {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v in %s", where, err, text)
			continue
		}

		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			if ofOthers.MatchString(v.Name) || ofK6.MatchString(v.Name) || notHere.MatchString(v.Name) {
				return nil
			}

			if v.Name == "" || !exposed[v.Name] && !ofPrometheus[v.Name] {
				t.Errorf("%s: no program exposes %q", where, v.Name)
			}

			checkLabels(t, where, v, texts)

			return nil
		})
	}
}

// checkLabels holds that every label that an expression selects by, beside those
// that Prometheus adds, stands at the metric, and every value asked for with "=".
func checkLabels(t *testing.T, where string, v *parser.VectorSelector, texts map[string]string) {
	t.Helper()
	if ofPrometheus[v.Name] {
		return
	}

	for _, m := range v.LabelMatchers {
		if m.Name == labels.MetricName || m.Name == "job" || m.Name == "instance" || m.Name == "environment" {
			continue
		}

		pattern := `(?m)^` + v.Name + `\{[^}]*\b` + m.Name + `="`
		// Routes and answers are made by traffic; what is asked for by name in the
		// rules is held by the programs' own tests.
		if m.Type == labels.MatchEqual && m.Name != "endpoint" && m.Name != "code" && m.Name != "script" {
			pattern += regexp.QuoteMeta(m.Value) + `"`
		}

		found := false
		for _, text := range texts {
			found = found || regexp.MustCompile(pattern).MatchString(text)
		}

		if !found {
			t.Errorf("%s: nothing exposes %s with %s", where, v.Name, m)
		}
	}
}

// dashboard is the part of dashboard.json that can be wrong about the metrics.
type dashboard struct {
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Panels []dashboardPanel `json:"panels"`
}

// dashboardPanel is a panel, or the title of a row of them: those that follow it.
type dashboardPanel struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	must(t, json.Unmarshal([]byte(readFile(t, "configs/grafana/dashboard.json")), &d))
	return d
}

// expressions are all that rules and panels ask for, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()

	all := map[string]string{}
	for _, r := range readRules(t) {
		all["alert "+r.Alert] = r.Expr
	}

	d := readDashboard(t)
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			// Grafana fills this in; any length will do.
			all["panel "+p.Title+" "+string(rune('A'+i))] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}

	for _, a := range d.Annotations.List {
		all["annotation "+a.Expr] = a.Expr
	}

	return all
}
