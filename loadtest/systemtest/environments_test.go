package systemtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// A sandbox in the same Prometheus hides nothing of production: every aggregation of a rule keeps
// the label environment, a cause silences only symptoms of its own environment, and the dashboard
// asks for one. alerts_test.yml shows what that does.
func TestAlerts_KeepEnvironmentsApart(t *testing.T) {
	t.Parallel()

	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert string `yaml:"alert"`
				Expr  string `yaml:"expr"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}

	must(t, yaml.Unmarshal([]byte(readFile(t, "configs/prometheus/alerts.yml")), &rules))
	mixing := regexp.MustCompile(`\b(?:sum|max|min|count|group|avg)(?: by \((?:[^)e]|e[^n])[^)]*\)| by \(\)|\(| without)|\bon \((?:[^e)][^)]*)?\)|\bignoring\b`)
	const nothingAtAll = `absent(up{job=~"gateway|worker|reporting"})`
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if found := mixing.FindString(r.Expr); found != "" {
				t.Errorf("%s does not tell environments apart at %q", r.Alert, found)
			}
			if strings.Contains(strings.ReplaceAll(r.Expr, nothingAtAll, ""), "absent(") {
				t.Errorf("%s is silent as long as another environment has it: %s", r.Alert, r.Expr)
			}
		}
	}

	var manager struct {
		Inhibit []inhibition `yaml:"inhibit_rules"`
		Route   struct {
			GroupBy []string `yaml:"group_by"`
		} `yaml:"route"`
	}

	must(t, yaml.Unmarshal([]byte(readFile(t, "configs/prometheus/alertmanager.yml")), &manager))
	for _, i := range manager.Inhibit {
		if !slices.Contains(i.Equal, "environment") {
			t.Errorf("%v silences %v of every environment", i.Source, i.Target)
		}
	}

	if !slices.Contains(manager.Route.GroupBy, "environment") {
		t.Errorf("alerts are grouped by %v", manager.Route.GroupBy)
	}

	// What k6 writes has no such label, and is shown whichever environment is chosen.
	writtenByK6, ofPrograms := regexp.MustCompile(`\bk6_`), regexp.MustCompile(`\b(?:gateway|worker|reporting|vendorapi)_`)
	for line := range strings.Lines(readFile(t, "configs/grafana/dashboard.json")) {
		if !strings.Contains(line, `"expr"`) {
			continue
		}

		isOfK6 := writtenByK6.MatchString(line) && !ofPrograms.MatchString(line)
		asks := strings.Contains(line, `environment=~\"$environment\"`)
		if asks && isOfK6 {
			t.Errorf("the dashboard hides what k6 wrote: %s", line)
		}
		if !asks && !isOfK6 {
			t.Errorf("the dashboard mixes environments: %s", line)
		}
	}
}
