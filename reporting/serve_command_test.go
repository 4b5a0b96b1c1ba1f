package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/testenv/shipped"
	"vendorapi/reporting/archive/archiveenv"
)

func TestSettings_NameTheWrongKey(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ old, replacement, want string }{
		{"batch: 1000", "batch: 0", "export.batch"},
		{"interval: 1s", "interval: 1ms", "export.interval"},
		{"claim_after: 60s", "claim_after: 10ms", "export.claim_after"},
		{`at: "03:30"`, `at: "25:00"`, "reconcile.at"},
		{"days: 3", "days: 0", "reconcile.days"},
		{"days: 3", "dayz: 3", "dayz"},
		{"roles: [export, reconcile, panel]", "roles: [cook]", `"cook"`},
		{"roles: [export, reconcile, panel]", "roles: []", "roles: none"},
		{"at_once: 8", "at_once: 0", "panel.download.at_once"},
		{"max_connections: 1024", "max_connections: 0", "panel.max_connections"},
		{"max_connections_per_ip: 256", "max_connections_per_ip: -1", "panel.max_connections_per_ip"},
		{"max_in_flight: 768", "max_in_flight: 0", "panel.max_in_flight"},
		{"tracking_addr: ${TRACKING_ADDR:-}", "tracking_addr: 8090", "panel.tracking_addr"},
		{`trusted_proxies: ["${PANEL_TRUSTED_PROXIES:-}"]`, `trusted_proxies: ["10.0.0.0/8, haproxy"]`, "panel.access.trusted_proxies"},
		{`programs: ["${PANEL_PROGRAMS:-}"]`, `programs: ["worker"]`, "panel.programs"},
		{"password_checks: 2", "password_checks: 0", "panel.access.password_checks"},
		{"url: ${CLICKHOUSE_URL:-http://127.0.0.1:8123}", "url: ftp://u:geheim@x", "clickhouse: url"},
		{"partitions: ${PARTITIONS:-16}", "partitions: 0", "redis.partitions"},
		{"environment: ${ENVIRONMENT:-production}", "environment: test", "environment"},
	} {
		var s settings
		err := config.Load(settingsWith(t, c.old, c.replacement), &s)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", c.replacement, err)
		}
	}
}

func TestCommands_SayWhatTheyDid(t *testing.T) {
	t.Parallel()

	s := archiveenv.New(t)
	for range 3 {
		s.Delivered(time.Now())
	}

	config := []string{"--config", settingsFile(t)}
	today := time.Now().Format(time.DateOnly)
	for _, c := range []struct {
		args []string
		want string
		fail bool
	}{
		{[]string{"migrate"}, "nothing to do", false},
		{[]string{"reconcile", "--wait", "200ms"}, "the exporter is behind by 6 entries", true},
		{[]string{"rebuild", "--from", "2020-01-01"}, "rebuilt 3 orders, 18 events", false},
		{[]string{"rebuild"}, `required flag(s) "from" not set`, true},
		{[]string{"rebuild", "--from", "yesterday"}, `--from: "yesterday" is no day`, true},
		{[]string{"reconcile", "--wait", "200ms"}, "3 orders compared, no difference", false},
		{[]string{"reconcile", "--account", "me"}, "--account:", true},
		{[]string{"reconcile", "--day", "2026-13-01"}, `--day: "2026-13-01" is no day`, true},
		{[]string{"reconcile", "--from", today, "--to", "2020-01-01"}, "--from: that is after --to", true},
		{[]string{"serve", "--roles", "cook"}, `--roles: "cook" is not one of`, true},
		{[]string{"serve", "--config", "/nowhere.yaml"}, "/nowhere.yaml", true},
	} {
		args := c.args
		if !strings.Contains(strings.Join(args, " "), "--config") {
			args = append(args, config...)
		}

		out, err := program(t, variables(s), args...).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) != c.fail || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v, said\n%s", c.args, err, out)
		}
	}
}

// A key that is left out would be 0, which is no limit in places.
func TestSettings_RefuseAFileWithoutOneOfItsKeys(t *testing.T) {
	t.Parallel()
	shipped.EachKeyIsNeeded(t, settingsFile(t), func(path string) error {
		return config.Load(path, new(settings))
	})
}

func TestSettings_RefuseATargetWithoutOneOfItsKeys(t *testing.T) {
	t.Parallel()

	for targets, want := range map[string]string{
		"[{name: erp, url: 's3://bucket'}]":                  "",
		"[{name: erp}]":                                      "deliver.targets[0].url: missing",
		"[{name: erp, url: 's3://b'}, {url: 's3://bucket'}]": "deliver.targets[1].name: missing",
	} {
		err := config.Load(settingsWith(t, "targets: []", "targets: "+targets), new(settings))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: %v", targets, err)
		}
	}
}
