//go:build long

package systemtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/promql/parser"

	"vendorapi/internal/stack"
)

// rules are alerts.yml. The Go package that reads it in Prometheus brings a
// hundred modules along; promtool (make alerts) judges the rest.
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// dashboard is the part of dashboard.json that can be wrong about the metrics.
type dashboard struct {
	UID         string `json:"uid"`
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	root, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "configs", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var r rules
	if err := yaml.UnmarshalWithOptions(file(t, "prometheus/alerts.yml"), &r, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range r.Groups {
		if g.Name == "" {
			t.Error("a group has no name")
		}
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(file(t, "grafana/dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
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

func TestExpressions_CanBeRead(t *testing.T) {
	t.Parallel()
	for where, text := range expressions(t) {
		if _, err := parser.ParseExpr(text); err != nil {
			t.Errorf("%s: %v in %s", where, err, text)
		}
	}
}

func TestAlerts_SayWhatAnOperatorNeeds(t *testing.T) {
	t.Parallel()
	var names []string
	for _, r := range readRules(t) {
		if slices.Contains(names, r.Alert) {
			t.Errorf("%s stands there twice", r.Alert)
		}
		names = append(names, r.Alert)
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if len(r.Annotations["summary"]) < 20 {
			t.Errorf("%s: summary %q", r.Alert, r.Annotations["summary"])
		}
		if want := "configs/prometheus/RUNBOOK.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if r.For != "" {
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
		}
	}
}

func TestRunbook_HasASectionForEveryAlertAndNoOther(t *testing.T) {
	t.Parallel()
	text := string(file(t, "prometheus/RUNBOOK.md"))
	sections := strings.Split(text, "\n## ")[1:]
	var found []string
	for _, s := range sections {
		name, body, _ := strings.Cut(s, "\n")
		found = append(found, name)
		last := -1
		for _, part := range []string{"**Meaning.** ", "**What people see.** ", "**Look.**\n\n```sh\n", "**Do.** ", "**Escalate.** "} {
			at := strings.Index(body, part)
			if at <= last {
				t.Errorf("%s: %q is missing or out of order", name, part)
			}
			last = at
		}
	}
	var alerts []string
	for _, r := range readRules(t) {
		alerts = append(alerts, r.Alert)
	}
	slices.Sort(found)
	slices.Sort(alerts)
	if !slices.Equal(found, alerts) {
		t.Errorf("sections %v\nalerts   %v", found, alerts)
	}
	// What one section tells to see instead exists, too.
	for _, name := range regexp.MustCompile(`\b(?:[A-Z][a-z]+|AOF){2,}\b`).FindAllString(text, -1) {
		if strings.HasPrefix(name, "Redis") || strings.HasPrefix(name, "Gateway") || strings.HasPrefix(name, "Export") {
			if !slices.Contains(alerts, name) {
				t.Errorf("the runbook names %s, which is no alert", name)
			}
		}
	}
}

func TestDashboard_PanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.UID != "vendorapi" || !bytes.Contains(file(t, "grafana/datasource.yml"), []byte("uid: prometheus")) {
		t.Errorf("uid %q, or the datasource that the panels ask has another name", d.UID)
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: the id is taken, or it shows nothing", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%q lies on %q or off the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
