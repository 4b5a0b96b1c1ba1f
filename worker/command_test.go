package main

import (
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/testenv"
)

// rightEnvironment is what the shipped settings need of the environment. Nothing
// listens at the address of Redis.
func rightEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, "")
	}
	t.Setenv("ENVIRONMENT", "sandbox")
	t.Setenv("REDIS_URL", "redis://worker:geheim@127.0.0.1:1")
	t.Setenv("WEBHOOK_KEYS", "k:"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	t.Setenv("WEBHOOK_KEYS_FILE", "")
}

func TestCheckConfig_SaysWhatIsInForce(t *testing.T) {
	rightEnvironment(t)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--check-config", "--config", settingsFile, "--roles", "webhook"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# " + settingsFile + ": ok\n", "roles:\n- webhook\nredis:", "timeout: 10s", "redis://worker:xxxxx@127.0.0.1:1", "WEBHOOK_KEYS   from the environment"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "geheim") || strings.Contains(out.String(), "AAAA") {
		t.Errorf("a secret is shown:\n%s", out.String())
	}
}

func TestCheckConfig_NamesFileLineAndKey(t *testing.T) {
	shipped, err := os.ReadFile(settingsFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, replacement string
		env              [2]string
		want             []string
	}{
		"wrong key":      {old: "per_endpoint: 32", replacement: "per_endpont: 32", want: []string{"worker.yaml:", ": webhook.per_endpont: unknown field"}},
		"wrong type":     {old: "batch: 256", replacement: "batch: many", want: []string{"worker.yaml:", ": status.batch: want a whole number"}},
		"wrong time":     {old: "timer_interval: 1s", replacement: "timer_interval: soon", want: []string{"worker.yaml:", ": status.timer_interval: want a time"}},
		"wrong values":   {old: "lease: 30s", replacement: "lease: 1s", env: [2]string{"COURIER", "wild"}, want: []string{": webhook.lease: ", ": courier.mode: "}},
		"wrong url":      {env: [2]string{"REDIS_URL", "http://u:geheim@x"}, want: []string{"worker.yaml:", ": redis url: "}},
		"no CA":          {env: [2]string{"REDIS_CA_FILE", "/nowhere.pem"}, want: []string{": redis: certificates are configured"}},
		"missing secret": {env: [2]string{"WEBHOOK_KEYS", ""}, want: []string{"set WEBHOOK_KEYS, or WEBHOOK_KEYS_FILE"}},
		"both":           {old: "lease: 30s", replacement: "lease: 1s", env: [2]string{"WEBHOOK_KEYS", ""}, want: []string{": webhook.lease: ", "set WEBHOOK_KEYS"}},
	} {
		t.Run(name, func(t *testing.T) {
			rightEnvironment(t)
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			path := filepath.Join(t.TempDir(), "worker.yaml")
			if err := os.WriteFile(path, []byte(strings.Replace(string(shipped), c.old, c.replacement, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := run(t.Context(), []string{"-check-config", "-config", path}, &out, io.Discard)
			if err == nil || out.Len() > 0 {
				t.Fatalf("%v, and it wrote %q", err, out.String())
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("a password is shown: %v", err)
			}
		})
	}
}

func TestHelp_ListsFlagsAndSecrets(t *testing.T) {
	var out, logs bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out, &logs); err != nil || logs.Len() > 0 {
		t.Errorf("%v, %q", err, logs.String())
	}
	for _, want := range append(secretNames, "-config", "-check-config", "-health", "-roles", "_FILE") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in\n%s", want, out.String())
		}
	}
	if err := run(t.Context(), []string{"status"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), `"status" is no flag`) {
		t.Errorf("a stray word: %v", err)
	}
}

func TestHealth_IsReadyzOfTheOneThatRuns(t *testing.T) {
	b := testenv.New(t)
	rightEnvironment(t)
	t.Setenv("WORKER_OPS_ADDR", freeAddr(t))
	if err := run(t.Context(), []string{"-health", "-config", settingsFile}, io.Discard, io.Discard); err == nil {
		t.Error("nobody listens, and the worker is healthy")
	}
	w := startWorker(t, b.Redis.URL)
	w.awaitReady(b)
	if err := run(t.Context(), []string{"-health", "-config", settingsFile}, io.Discard, io.Discard); err != nil {
		t.Errorf("a worker that is ready: %v", err)
	}
}
