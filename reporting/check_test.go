package main

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// rightEnvironment has addresses of Redis and ClickHouse at which nothing listens.
func rightEnvironment() []string {
	return append(secrets(), "REDIS_URL=redis://reporting:geheim@127.0.0.1:1", "CLICKHOUSE_URL=http://delivery:geheim@127.0.0.1:1")
}

func TestCheckConfig_SaysWhatIsInForce(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"serve":  {"serve", "--check-config", "--config", settingsFile(t)},
		"export": {"export", "--check-config", "--config", settingsFile(t)},
		"root":   {"--check-config", "--config", settingsFile(t)},
	} {
		out, err := program(t, rightEnvironment(), args...).Output()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range []string{"configs/reporting.yaml: ok\n", "redis://reporting:xxxxx@127.0.0.1:1", "http://delivery:xxxxx@127.0.0.1:1", "interval: 1s"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, out)
			}
		}
		// The exporter alone needs none of the panel's secrets.
		if panel := name != "export"; strings.Contains(string(out), "ADMIN_KEY      from the environment") != panel || strings.Contains(string(out), "- panel\n") != panel {
			t.Errorf("%s:\n%s", name, out)
		}
		for _, secret := range []string{"geheim", "AAAA", "kkkk", "abab"} {
			if strings.Contains(string(out), secret) {
				t.Errorf("%s: %q is shown", name, secret)
			}
		}
	}
}

// In production a session's cookie never goes without TLS.
func TestServe_RefusesInsecureCookiesInProduction(t *testing.T) {
	t.Parallel()
	production := append(rightEnvironment(), "ENVIRONMENT=production")
	out, err := program(t, production, "serve", "--config", settingsFile(t)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panel.access.secure_cookies: must be true in production") {
		t.Errorf("%v, said %s", err, out)
	}
	for name, c := range map[string]struct {
		variable string
		args     []string
	}{"secure": {"PANEL_SECURE_COOKIES=true", []string{"serve"}}, "no panel": {"", []string{"serve", "--roles", "export,reconcile"}}} {
		if out, err := program(t, append(production, c.variable), append(c.args, "--check-config", "--config", settingsFile(t))...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v, said %s", name, err, out)
		}
	}
}

func TestCheckConfig_NamesFileLineAndKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, replacement, variable string
		want                       []string
	}{
		"wrong key":       {old: "days: 3", replacement: "dayz: 3", want: []string{"reporting.yaml:", ": reconcile.dayz: unknown field"}},
		"wrong type":      {old: "batch: 1000", replacement: "batch: many", want: []string{"reporting.yaml:", ": export.batch: want a whole number"}},
		"wrong values":    {old: "days: 3", replacement: "days: 0", variable: "LOG_LEVEL=loud", want: []string{": reconcile.days: ", ": log.level: "}},
		"wrong target":    {old: "targets: []", replacement: "targets: [{name: erp, url: 'sftp://u:geheim@x/y'}]", want: []string{"reporting.yaml:", ": deliver.targets[0].url: want "}},
		"unknown of it":   {old: "targets: []", replacement: "targets: [{name: erp, uri: 's3://x'}]", want: []string{"reporting.yaml:", "uri: unknown field"}},
		"wrong redis":     {variable: "REDIS_URL=http://u:geheim@x", want: []string{"reporting.yaml:", ": redis url: "}},
		"wrong history":   {variable: "CLICKHOUSE_URL=ftp://u:geheim@x", want: []string{"reporting.yaml:", ": clickhouse: url "}},
		"no admin key":    {variable: "ADMIN_KEY=", want: []string{"set ADMIN_KEY, or ADMIN_KEY_FILE"}},
		"nobody":          {variable: "REPORT_TOKENS=", want: []string{"nobody may come in"}},
		"malformed":       {variable: "TRACKING_KEYS=t1:AAAA", want: []string{"TRACKING_KEYS: key \"t1\" has 3 bytes"}},
		"plain cookies":   {variable: "ENVIRONMENT=production", want: []string{"reporting.yaml:", ": panel.access.secure_cookies: must be true in production (PANEL_SECURE_COOKIES)"}},
		"secret and file": {old: "days: 3", replacement: "days: 0", variable: "ADMIN_KEY=", want: []string{": reconcile.days: ", "set ADMIN_KEY"}},
	} {
		path := settingsFile(t)
		if c.old != "" {
			path = settingsWith(t, c.old, c.replacement)
		}
		var said bytes.Buffer
		cmd := program(t, append(rightEnvironment(), c.variable), "serve", "--check-config", "--config", path)
		cmd.Stderr = &said
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) > 0 {
			t.Errorf("%s: %v, and it wrote %q", name, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: %q is missing in %s", name, want, &said)
			}
		}
		if strings.Contains(said.String(), "geheim") {
			t.Errorf("%s: a password is shown: %s", name, &said)
		}
	}
}
