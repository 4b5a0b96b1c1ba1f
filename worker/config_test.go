package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/config"
	"vendorapi/worker/courier"
)

const settingsFile = "../configs/worker.yaml"

// variables are those that the settings file reads.
var variables = []string{"ENVIRONMENT", "WORKER_INSTANCE", "REDIS_URL", "PARTITIONS", "WORKER_OPS_ADDR",
	"LOG_LEVEL", "LOG_FORMAT", "WEBHOOK_LOCAL_RECEIVERS", "COURIER", "COURIER_STEP"}

func load(t *testing.T, env map[string]string) (settings, error) {
	t.Helper()
	for _, name := range variables {
		t.Setenv(name, env[name])
	}
	var s settings
	err := config.Load(settingsFile, &s)
	return s, err
}

func mustLoad(t *testing.T, env map[string]string) settings {
	t.Helper()
	s, err := load(t, env)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

//rule:webhooks/timeout-10-s-only-2xx
func TestSettings_ShippedFileIsProductionByDefault(t *testing.T) {
	s := mustLoad(t, nil)
	if s.Environment != production || s.Redis.URL != "redis://127.0.0.1:6379" || s.Redis.Partitions != 16 ||
		s.Ops.Addr != "127.0.0.1:8082" || s.Instance != "" {
		t.Errorf("%+v", s)
	}
	if s.Webhook.Timeout != 10*time.Second || s.Webhook.PerEndpoint != 32 || s.Status.Retention != 7*24*time.Hour ||
		s.Status.StreamRetention != 25*time.Hour || s.Status.TimerInterval != time.Second || s.Courier.Step != 5*time.Second {
		t.Errorf("%+v", s)
	}
	if roles, err := s.chooseRoles(""); err != nil || !slices.Equal(roles, []string{roleStatus, roleWebhook}) {
		t.Errorf("roles %v, %v", roles, err)
	}
}

func TestSettings_TakeTheEnvironmentsVariables(t *testing.T) {
	s := mustLoad(t, map[string]string{
		"ENVIRONMENT": "sandbox", "REDIS_URL": "redis://10.0.0.1:7000", "WORKER_OPS_ADDR": "127.0.0.1:0",
		"COURIER": "manual", "COURIER_STEP": "250ms", "WORKER_INSTANCE": "worker-7",
	})
	if s.Environment != sandbox || s.Redis.URL != "redis://10.0.0.1:7000" || s.Courier.Mode != courier.Manual ||
		s.Courier.Step != 250*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if name, err := s.consumer(); err != nil || name != "worker-7" {
		t.Errorf("consumer %q, %v", name, err)
	}
}

func TestSettings_ConsumerIsTheHostWithoutAnInstance(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := mustLoad(t, nil)
	if name, err := s.consumer(); err != nil || name != host {
		t.Errorf("consumer %q, %v", name, err)
	}
}

func TestSettings_RefuseWhatIsOutOfRange(t *testing.T) {
	shipped, err := os.ReadFile(settingsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range variables {
		t.Setenv(name, "")
	}
	for _, c := range []struct{ old, new, names string }{
		{"environment: ${ENVIRONMENT:-production}", "environment: staging", "environment"},
		{"roles: [status, webhook, courier]", "roles: []", "roles"},
		{"roles: [status, webhook, courier]", "roles: [status, panel]", "panel"},
		{"partitions: ${PARTITIONS:-16}", "partitions: 1025", "redis.partitions"},
		{"pool_size: 0", "pool_size: -1", "redis.pool_size"},
		{"batch: 256", "batch: 0", "status.batch"},
		{"claim_after: 60s", "claim_after: 10ms", "status.claim_after"},
		{"timer_interval: 1s", "timer_interval: 1ms", "status.timer_interval"},
		{"housekeeping_interval: 60s", "housekeeping_interval: 1ms", "status.housekeeping_interval"},
		{"retention: 168h", "retention: 24h", "status.retention"},
		{"stream_retention: 25h", "stream_retention: 1h", "status.stream_retention"},
		{"concurrency: 1024", "concurrency: 0", "webhook.concurrency"},
		{"per_endpoint: 32", "per_endpoint: 0", "webhook.per_endpoint"},
		{"timeout: 10s", "timeout: 2m", "webhook.timeout"},
		{"lease: 30s", "lease: 15s", "webhook.lease"},
		{"local_receivers: ${WEBHOOK_LOCAL_RECEIVERS:-auto}", "local_receivers: always", "webhook.local_receivers"},
		{"mode: ${COURIER:-auto}", "mode: wild", "courier.mode"},
		{"step: ${COURIER_STEP:-5s}", "step: 0s", "courier.step"},
		{"per_endpoint: 32", "per_endpont: 32", "per_endpont"},
	} {
		text := strings.Replace(string(shipped), c.old, c.new, 1)
		if text == string(shipped) {
			t.Errorf("%q is not in the shipped file", c.old)
			continue
		}
		path := filepath.Join(t.TempDir(), "worker.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var s settings
		if err := config.Load(path, &s); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

func TestChooseRoles(t *testing.T) {
	for _, c := range []struct {
		environment, mode, asked string
		enabled                  []string
		want                     []string // nil: an error
	}{
		{sandbox, courier.Auto, "", []string{"status", "webhook", "courier"}, []string{"courier", "status", "webhook"}},
		{sandbox, courier.Manual, "", []string{"status", "webhook", "courier"}, []string{"status", "webhook"}},
		{production, courier.Auto, "", []string{"status", "webhook", "courier"}, []string{"status", "webhook"}},
		{sandbox, courier.Auto, "courier", []string{"status", "webhook", "courier"}, []string{"courier"}},
		{sandbox, courier.Auto, "webhook,status,webhook", []string{"status", "webhook", "courier"}, []string{"status", "webhook"}},
		{sandbox, courier.Manual, "courier", []string{"status", "webhook", "courier"}, []string{}},
		{production, courier.Auto, "courier", []string{"status", "webhook", "courier"}, nil},
		{production, courier.Auto, "webhook", []string{"status"}, nil},
		{production, courier.Auto, "status,", []string{"status"}, nil},
		{production, courier.Auto, "everything", []string{"status"}, nil},
	} {
		s := settings{Environment: c.environment, Roles: c.enabled, Courier: courier.Settings{Mode: c.mode}}
		got, err := s.chooseRoles(c.asked)
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
