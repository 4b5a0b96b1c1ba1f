package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/internal/testenv/shipped"
	"vendorapi/worker/courier"
)

const settingsFile = "../configs/worker.yaml"

// variables are those that the settings file reads.
var variables = []string{"ENVIRONMENT", "WORKER_INSTANCE", "REDIS_URL", "PARTITIONS", "WORKER_OPS_ADDR", "REDIS_CA_FILE", "REDIS_DURABILITY", "REDIS_REPLICAS", "REDIS_ALLOW_EVICTION", "STATUS_RETENTION",
	"LOG_LEVEL", "LOG_FORMAT", "WEBHOOK_LOCAL_RECEIVERS", "COURIER", "COURIER_STEP"}

func load(t *testing.T, env map[string]string) settings {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, env[name])
	}

	var s settings
	if err := config.Load(settingsFile, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// edited is a copy of the shipped file in which one line is another.
func edited(t *testing.T, old, replacement string) (path string) {
	t.Helper()
	shipped, err := os.ReadFile(settingsFile)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(shipped), old) {
		t.Fatalf("%q is not in the shipped file", old)
	}

	path = filepath.Join(t.TempDir(), "worker.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(shipped), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

//rule:webhooks/timeout-10-s-only-2xx
func TestSettings_ShippedFileIsProductionByDefault(t *testing.T) {
	s := load(t, nil)
	if s.Environment != delivery.Production || s.Redis.URL != "redis://127.0.0.1:6379" || s.Redis.Partitions != 16 ||
		s.Ops.Addr != "127.0.0.1:8082" || s.Instance != "" {
		t.Errorf("%+v", s)
	}

	if s.Webhook.Timeout != 10*time.Second || s.Webhook.PerEndpoint != 32 || s.Status.Retention != 7*24*time.Hour ||
		s.Status.ShrinkAfter != 24*time.Hour || s.Status.StreamRetention != 25*time.Hour || s.Status.TimerInterval != time.Second || s.Courier.Step != 5*time.Second {
		t.Errorf("%+v", s)
	}

	host, err := os.Hostname()
	if name, unnamed := service.Consumer(s.Instance); err != nil || unnamed != nil || name != host {
		t.Errorf("consumer %q, %v, %v", name, unnamed, err)
	}
}

func TestSettings_TakeTheEnvironmentsVariables(t *testing.T) {
	s := load(t, map[string]string{
		"ENVIRONMENT": "sandbox", "REDIS_URL": "redis://10.0.0.1:7000", "WORKER_OPS_ADDR": "127.0.0.1:0",
		"COURIER": "manual", "COURIER_STEP": "250ms", "WORKER_INSTANCE": "worker-7",
	})
	if s.Environment != delivery.Sandbox || s.Redis.URL != "redis://10.0.0.1:7000" || s.Courier.Mode != courier.Manual ||
		s.Courier.Step != 250*time.Millisecond {
		t.Errorf("%+v", s)
	}

	if name, err := service.Consumer(s.Instance); err != nil || name != "worker-7" {
		t.Errorf("consumer %q, %v", name, err)
	}
}

func TestSettings_RefuseWhatIsOutOfRange(t *testing.T) {
	setEnvironment(t, nil)
	for _, c := range []struct{ old, new, names string }{
		{"environment: ${ENVIRONMENT:-production}", "environment: staging", "environment"},
		{"partitions: ${PARTITIONS:-16}", "partitions: 1025", "redis.partitions"},
		{"pool_size: 0", "pool_size: -1", "redis.pool_size"},
		{"durability: ${REDIS_DURABILITY:-local}", "durability: both", "redis.durability"},
		{"replicas: ${REDIS_REPLICAS:-1}", "replicas: 0", "redis.replicas"},
		{"batch: 64", "batch: 0", "status.batch"},
		{"timer_interval: 1s", "timer_interval: 1ms", "status.timer_interval"},
		{"housekeeping_interval: 60s", "housekeeping_interval: 1ms", "status.housekeeping_interval"},
		{"shrink_after: 24h", "shrink_after: 23h", "status.shrink_after"},
		{"retention: ${STATUS_RETENTION:-168h}", "retention: 24h", "status.retention"},
		{"stream_retention: 25h", "stream_retention: 1h", "status.stream_retention"},
		{"concurrency: 1024", "concurrency: 0", "webhook.concurrency"},
		{"per_endpoint: 32", "per_endpoint: 0", "webhook.per_endpoint"},
		{"breaker_failures: 5", "breaker_failures: 0", "webhook.breaker_failures"},
		{"timeout: 10s", "timeout: 2m", "webhook.timeout"},
		{"local_receivers: ${WEBHOOK_LOCAL_RECEIVERS:-auto}", "local_receivers: always", "webhook.local_receivers"},
		{"own_ports: ${OWN_PORTS:-8080,8081,8082,8083,8090,8123,6379}", "own_ports: 8080,http", "webhook.own_ports"},
		{"mode: ${COURIER:-auto}", "mode: wild", "courier.mode"},
		{"step: ${COURIER_STEP:-5s}", "step: 0s", "courier.step"},
		{"step: ${COURIER_STEP:-5s}", "step: 2h", "courier.step"},
	} {
		var s settings
		if err := config.Load(edited(t, c.old, c.new), &s); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

func TestCheckConfig_SaysWhatIsInForce(t *testing.T) {
	setEnvironment(t, nil)
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--check-config", "--config", settingsFile}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"# " + settingsFile + ": ok\n", "courier:\n  mode: auto\n", "timeout: 10s", "redis://worker:xxxxx@127.0.0.1:1", "WEBHOOK_KEYS   from the environment"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}

	if strings.Contains(out.String(), "geheim") || strings.Contains(out.String(), "AAAA") {
		t.Errorf("a secret is shown:\n%s", out.String())
	}
}

func TestCheckConfig_NamesFileLineAndKey(t *testing.T) {
	for name, c := range map[string]struct {
		old, replacement string
		variable, value  string
		want             []string
	}{
		"wrong key":      {"per_endpoint: 32", "per_endpont: 32", "", "", []string{"worker.yaml:", ": webhook.per_endpont: unknown field"}},
		"wrong type":     {"batch: 64", "batch: many", "", "", []string{"worker.yaml:", ": status.batch: want a whole number"}},
		"wrong values":   {"timeout: 10s", "timeout: 2m", "COURIER", "wild", []string{": webhook.timeout: ", ": courier.mode: "}},
		"wrong url":      {"", "", "REDIS_URL", "http://u:geheim@x", []string{"worker.yaml:", ": redis url: "}},
		"no CA":          {"", "", "REDIS_CA_FILE", "/nowhere.pem", []string{": redis: certificates are configured"}},
		"missing secret": {"", "", "WEBHOOK_KEYS", "", []string{"set WEBHOOK_KEYS, or WEBHOOK_KEYS_FILE"}},
		"both":           {"timeout: 10s", "timeout: 2m", "WEBHOOK_KEYS", "", []string{": webhook.timeout: ", "set WEBHOOK_KEYS"}},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, map[string]string{c.variable: c.value})
			var out bytes.Buffer
			err := run(t.Context(), []string{"-check-config", "-config", edited(t, c.old, c.replacement)}, &out, io.Discard)
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

	for _, want := range append(secretNames, "-config", "-check-config", "-health", "_FILE") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in\n%s", want, out.String())
		}
	}
}

// A key that is left out would be 0, which is no limit in places.
func TestSettings_RefuseAFileWithoutOneOfItsKeys(t *testing.T) {
	shipped.EachKeyIsNeeded(t, settingsFile, func(path string) error {
		return config.Load(path, new(settings))
	})
}
