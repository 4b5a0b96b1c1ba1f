package systemtest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// inhibition is a rule of alertmanager.yml by which an alert silences others.
type inhibition struct {
	Source []string `yaml:"source_matchers"`
	Target []string `yaml:"target_matchers"`
	Equal  []string `yaml:"equal"`
}

var labelMatcher = regexp.MustCompile(`^(\w+)(=~?)"([^"]*)"$`)

// silences reports whether an alert with the labels of source silences one with those of target, as
// Alertmanager has it: a label that is missing equals an empty one.
func (i *inhibition) silences(t *testing.T, source, target map[string]string) bool {
	t.Helper()
	matches := func(matchers []string, labels map[string]string) bool {
		return !slices.ContainsFunc(matchers, func(text string) bool {
			m := labelMatcher.FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("the matcher %s has another form", text)
			}
			if m[2] == "=" {
				return labels[m[1]] != m[3]
			}
			return !regexp.MustCompile("^(?:" + m[3] + ")$").MatchString(labels[m[1]])
		})
	}

	differs := slices.ContainsFunc(i.Equal, func(label string) bool { return source[label] != target[label] })

	return matches(i.Source, source) && matches(i.Target, target) && !differs
}

// An alert about one server of a cluster silences none about another, nor one that does not say which
// server it is about.
func TestInhibitions_OfOneServerSilenceNothingOfOthers(t *testing.T) {
	t.Parallel()

	var manager struct {
		Inhibit []inhibition `yaml:"inhibit_rules"`
	}
	must(t, yaml.Unmarshal([]byte(readFile(t, "configs/prometheus/alertmanager.yml")), &manager))
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert  string            `yaml:"alert"`
				Expr   string            `yaml:"expr"`
				Labels map[string]string `yaml:"labels"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}

	must(t, yaml.Unmarshal([]byte(readFile(t, "configs/prometheus/alerts.yml")), &rules))

	ofOneServer := regexp.MustCompile(`by \([^)]*\b(server|instance)\b[^)]*\)`)
	var all, aboutOne []map[string]string
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			labels := maps.Clone(r.Labels)
			labels["alertname"] = r.Alert
			all = append(all, labels)
			isOfOne := ofOneServer.MatchString(r.Expr) && r.Labels["scope"] != "whole"
			if isOfOne || r.Labels["scope"] == "part" {
				aboutOne = append(aboutOne, labels)
			}
		}
	}

	if len(manager.Inhibit) == 0 || len(aboutOne) < 5 {
		t.Fatalf("%d inhibitions, %d alerts about one server", len(manager.Inhibit), len(aboutOne))
	}

	on := func(alert map[string]string, place string) map[string]string {
		alert = maps.Clone(alert)
		alert["server"], alert["instance"] = place, place
		return alert
	}

	silenced := func(source, target map[string]string) bool {
		return slices.ContainsFunc(manager.Inhibit, func(i inhibition) bool { return i.silences(t, source, target) })
	}
	for _, source := range aboutOne {
		for _, target := range all {
			if silenced(on(source, "one"), on(target, "another")) {
				t.Errorf("%s of one server silences %s of another", source["alertname"], target["alertname"])
			}
			if silenced(on(source, "one"), target) {
				t.Errorf("%s of one server silences %s, which may be about others", source["alertname"], target["alertname"])
			}
		}
	}

	// Where everything fails for one reason, that is told and not its symptoms.
	whole := map[string]string{"alertname": "RedisUnavailable", "scope": "whole", "severity": "critical"}
	for _, name := range strings.Fields("GatewayErrors StatusStreamLags WebhookStreamLags HealthyReceiversWait ExportLags RedisServerSilent FiguresOld") {
		if !silenced(whole, map[string]string{"alertname": name}) {
			t.Errorf("with no server at all %s is told of, too", name)
		}
	}
}
