//go:build long

package systemtest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/testenv/system"
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
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var r rules
	must(t, yaml.UnmarshalWithOptions([]byte(system.Read(t, "configs/prometheus/alerts.yml")), &r, yaml.Strict()))
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
	must(t, json.Unmarshal([]byte(system.Read(t, "configs/grafana/dashboard.json")), &d))
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
