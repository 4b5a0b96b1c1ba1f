package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/testenv/testserver"
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

func randomKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

// In production a session's cookie never goes without TLS, nobody else's word about a
// client's address is believed, and no secret can be guessed.
func TestMistakes_ProductionRefusesThem(t *testing.T) {
	t.Parallel()

	key, zero := randomKey(), base64.StdEncoding.EncodeToString(make([]byte, 32))
	production := append(rightEnvironment(), "ENVIRONMENT=production", "PANEL_SECURE_COOKIES=true", "PANEL_ADDR=0.0.0.0:0", "PANEL_PROXY_PROTOCOL_FROM=172.16.0.0/12",
		"ADMIN_KEY="+randomKey(), "TRACKING_KEYS=k1:"+key, "BOOKS_KEYS=k1:"+randomKey(), "REDIS_URL=redis://reporting:9f8e7d6c5b4a@127.0.0.1:1", "CLICKHOUSE_URL=http://delivery:9f8e7d6c5b4a@127.0.0.1:1")
	const line = "reporting.yaml:" // whose number follows
	for name, c := range map[string]struct {
		changes []string
		role    string
		wants   []string // none: it is right
	}{
		"nothing is wrong":       {nil, "", nil},
		"on loopback":            {[]string{"PANEL_PROXY_PROTOCOL_FROM=", "PANEL_ADDR=127.0.0.1:0"}, "", nil},
		"X-Forwarded-For":        {[]string{"PANEL_PROXY_PROTOCOL_FROM=", "PANEL_TRUSTED_PROXIES=10.0.0.7"}, "", nil},
		"cookies, no panel":      {[]string{"PANEL_SECURE_COOKIES=false", "PANEL_PROXY_PROTOCOL_FROM="}, "export,reconcile", nil},
		"weak keys, no panel":    {[]string{"ADMIN_KEY=aaaaaaaaaaaaaaaa", "TRACKING_KEYS=k1:" + zero}, "export", nil},
		"plain cookies":          {[]string{"PANEL_SECURE_COOKIES=false"}, "", []string{line, ": panel.access.secure_cookies: must be true in production (PANEL_SECURE_COOKIES)"}},
		"plain HTTP":             {[]string{"PANEL_PROXY_PROTOCOL_FROM="}, "", []string{line, ": panel.proxy_protocol_from: plain HTTP"}},
		"plain HTTP of tracking": {[]string{"PANEL_PROXY_PROTOCOL_FROM=", "PANEL_ADDR=127.0.0.1:0", "TRACKING_ADDR=:0"}, "", []string{line, ": panel.proxy_protocol_from: plain HTTP"}},
		"everybody is a proxy":   {[]string{"PANEL_PROXY_PROTOCOL_FROM=0.0.0.0/0"}, "", []string{line, ": panel.proxy_protocol_from: everybody"}},
		"everybody is believed":  {[]string{"PANEL_TRUSTED_PROXIES=::/0"}, "", []string{line, ": panel.access.trusted_proxies: everybody"}},
		"Redis's password":       {[]string{"REDIS_URL=redis://reporting:reporting@127.0.0.1:1"}, "", []string{line, ": redis.url: the password "}},
		"the reader's password":  {[]string{"CLICKHOUSE_READ_URL=http://delivery_read:changeme@127.0.0.1:1"}, "panel", []string{line, ": clickhouse.read_url: the password "}},
		"tracking alone":         {[]string{"TRACKING_ADDR=0.0.0.0:0", "ADMIN_KEY=", "BOOKS_KEYS=", "REPORT_TOKENS="}, "tracking", nil},
		"plain HTTP, tracking":   {[]string{"TRACKING_ADDR=:0", "PANEL_PROXY_PROTOCOL_FROM="}, "tracking", []string{line, ": panel.proxy_protocol_from: plain HTTP"}},
		"ClickHouse's password":  {[]string{"CLICKHOUSE_URL=http://delivery:changeme@127.0.0.1:1"}, "export", []string{line, ": clickhouse.url: the password "}},
		"zeros":                  {[]string{"TRACKING_KEYS=k1:" + zero}, "", []string{`TRACKING_KEYS: key "k1" can be guessed`}},
		"the books' keys":        {[]string{"BOOKS_KEYS=k1:" + zero}, "reconcile", []string{`BOOKS_KEYS: key "k1" can be guessed`}},
		"a key for two purposes": {[]string{"BOOKS_KEYS=k1:" + key}, "", []string{"BOOKS_KEYS"}},
		"sixteen a":              {[]string{"ADMIN_KEY=aaaaaaaaaaaaaaaa"}, "", []string{"ADMIN_KEY can be guessed"}},
		"a ring's key":           {[]string{"ADMIN_KEY=" + key}, "", []string{"ADMIN_KEY is the same as a key of TRACKING_KEYS"}},
		"several at once":        {[]string{"PANEL_SECURE_COOKIES=false", "ADMIN_KEY=aaaaaaaaaaaaaaaa"}, "", []string{": panel.access.secure_cookies: ", "ADMIN_KEY can be guessed"}},
	} {
		args := []string{"serve", "--config", settingsFile(t)}
		if c.role != "" {
			args = append(args, "--roles", c.role)
		}

		changed := append(slices.Clone(production), c.changes...)
		out, err := program(t, changed, append(args, "--check-config")...).CombinedOutput()
		if len(c.wants) == 0 {
			if err != nil {
				t.Errorf("%s: %v, said %s", name, err, out)
			}
			continue
		}

		if err == nil {
			t.Errorf("%s: accepted", name)
		}

		// A program that is started checks the same. In the gate one case shows it.
		started := out
		if name == "several at once" || testserver.Long {
			started, err = program(t, changed, args...).CombinedOutput()
			if err == nil {
				t.Errorf("%s: it has started", name)
			}
		}

		for _, want := range c.wants {
			if !strings.Contains(string(out), want) || !strings.Contains(string(started), want) {
				t.Errorf("%s: %q is missing in %s or in %s", name, want, out, started)
			}
		}

		if out, err := program(t, append(changed, "ENVIRONMENT=sandbox"), append(args, "--check-config")...).CombinedOutput(); err != nil {
			t.Errorf("%s: the sandbox refuses: %s", name, out)
		}
	}
}

func TestCheckConfig_TakesAddressesFromFiles(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	for name, content := range map[string]string{"redis": "redis://reporting:geheim@10.0.0.7:1\n", "clickhouse": "http://delivery:geheim@10.0.0.8:1\r\n", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	check := func(env ...string) (string, error) {
		out, err := program(t, append(secrets(), env...), "serve", "--check-config", "--config", settingsFile(t)).CombinedOutput()
		return string(out), err
	}

	out, err := check("REDIS_URL=", "REDIS_URL_FILE="+filepath.Join(dir, "redis"), "CLICKHOUSE_URL=", "CLICKHOUSE_URL_FILE="+filepath.Join(dir, "clickhouse"))
	if err != nil || !strings.Contains(out, "redis://reporting:xxxxx@10.0.0.7:1") || !strings.Contains(out, "http://delivery:xxxxx@10.0.0.8:1") {
		t.Errorf("%v\n%s", err, out)
	}

	for _, c := range []struct{ url, file, want string }{
		{"http://127.0.0.1:1", "clickhouse", ": clickhouse.url: CLICKHOUSE_URL and CLICKHOUSE_URL_FILE are both set"},
		{"", "none", ": clickhouse.url: CLICKHOUSE_URL_FILE: "},
		{"", "empty", "is empty"},
	} {
		env := []string{"CLICKHOUSE_URL=" + c.url, "CLICKHOUSE_URL_FILE=" + filepath.Join(dir, c.file)}
		if out, err := check(env...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, %s", c.file, err, out)
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
		"no books keys":   {variable: "BOOKS_KEYS=", want: []string{"set BOOKS_KEYS, or BOOKS_KEYS_FILE"}},
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
