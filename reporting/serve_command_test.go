package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/archiveenv"
	"vendorapi/internal/testenv/testserver"
)

// settingsFile is the one that is delivered.
func settingsFile(t *testing.T) string {
	t.Helper()
	root, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "configs", "reporting.yaml")
}

// settingsWith is the delivered one with a line replaced.
func settingsWith(t *testing.T, old, replacement string) string {
	t.Helper()
	content, err := os.ReadFile(settingsFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("configs/reporting.yaml has no %q", old)
	}
	path := filepath.Join(t.TempDir(), "reporting.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(content), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettings_AsDeliveredAreValid(t *testing.T) {
	t.Parallel()
	var s settings
	if err := config.Load(settingsFile(t), &s); err != nil {
		t.Error(err)
	}
}

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

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// environment lets the programs of a test find a scene.
func environment(s *archiveenv.Env) []string {
	return []string{
		"ENVIRONMENT=sandbox", "REDIS_URL=" + s.RedisURL, fmt.Sprint("PARTITIONS=", testenv.Partitions),
		"CLICKHOUSE_URL=" + s.ClickHouse.URL, "CLICKHOUSE_DATABASE=" + s.Database, "REPORTING_INSTANCE=t1",
		"REPORTING_OPS_ADDR=127.0.0.1:0", "PANEL_ADDR=127.0.0.1:0", "PANEL_USERS=",
		"REPORT_TOKENS=test:finance:sha256:" + strings.Repeat("ab", 32),
		"ADMIN_KEY=" + strings.Repeat("k", 16), "TRACKING_KEYS=t1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}
}

// answer is status and body; "" while nobody listens.
func answer(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func awaitAnswer(t *testing.T, url, want string) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = answer(url); strings.Contains(last, want) {
			return
		}
	}
	t.Fatalf("%s answers %q, want %q", url, last, want)
}

// A process that cannot reach what it needs waits and says so; once everything
// is there it works, and SIGTERM ends it in order.
func TestServe_WaitsForBothSidesAndStopsInOrder(t *testing.T) {
	t.Parallel()
	engine := testserver.DedicatedClickHouse(t)
	redis := testserver.DedicatedRedis(t, stack.RedisOptions{})
	s := archiveenv.On(testenv.NewOn(t, redis), engine)
	o := s.Delivered(time.Now())
	ops := freeAddr(t)
	engine.Kill(t)
	redis.Kill()
	cmd := program(t, append(environment(s), "REPORTING_OPS_ADDR="+ops), "serve", "--config", settingsFile(t))
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(t, "http://"+ops+"/readyz", "503 waiting for Redis")
	if err := redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(t, "http://"+ops+"/readyz", "503 waiting for ClickHouse")
	engine.Start(t)
	awaitAnswer(t, "http://"+ops+"/readyz", "200 ready")
	s.AwaitExported()
	s.Want("the order", "status FROM "+s.Database+".orders WHERE order_id = '"+o.ID.String()+"'", "Delivered")
	awaitAnswer(t, "http://"+ops+"/metrics", "reporting_reconcile_last_completed_timestamp_seconds 1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &log)
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
		{[]string{"reconcile", "--wait", "200ms"}, "the exporter is behind by 18 entries", true},
		{[]string{"rebuild", "--from", "2020-01-01"}, "rebuilt 3 orders, 18 events", false},
		{[]string{"rebuild"}, `required flag(s) "from" not set`, true},
		{[]string{"rebuild", "--from", "yesterday"}, `--from: "yesterday" is no day`, true},
		{[]string{"reconcile", "--wait", "200ms"}, "3 orders compared, tied", false},
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
		out, err := program(t, environment(s), args...).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) != c.fail || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v, said\n%s", c.args, err, out)
		}
	}
}
