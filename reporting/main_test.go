package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// program is `reporting ARGS`, which is killed at the end of the test.
func program(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

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

// settingsFor is the delivered one with the addresses of an environment and of ClickHouse, for commands that run in
// this process.
func settingsFor(t *testing.T, e *archiveenv.System, clickHouse string) string {
	t.Helper()
	content, err := os.ReadFile(settingsFile(t))
	if err != nil {
		t.Fatal(err)
	}

	text := string(content)
	for variable, value := range map[string]string{
		"${ENVIRONMENT:-production}":               "sandbox",
		"${REDIS_URL:-redis://127.0.0.1:6379}":     e.ConfigFor(stack.ReportingUser).URL,
		"${PARTITIONS:-16}":                        fmt.Sprint(testenv.Partitions),
		"${CLICKHOUSE_URL:-http://127.0.0.1:8123}": clickHouse,
		"${CLICKHOUSE_DATABASE:-}":                 e.Database,
	} {
		if strings.Count(text, variable) != 1 {
			t.Fatalf("configs/reporting.yaml does not have %s once", variable)
		}
		text = strings.Replace(text, variable, value, 1)
	}

	path := filepath.Join(t.TempDir(), "reporting.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// freeAddr is an address that no outgoing connection of another test can take.
func freeAddr(t *testing.T) string {
	t.Helper()
	return stack.FreeAddr()
}

// secrets are what the shipped settings need of the environment besides addresses.
func secrets() []string {
	return []string{
		"ENVIRONMENT=sandbox", "PANEL_USERS=", "LOG_LEVEL=", "REPORT_TOKENS=test:finance:sha256:" + strings.Repeat("ab", 32),
		"ADMIN_KEY=" + strings.Repeat("k", 16), "TRACKING_KEYS=t1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"BOOKS_KEYS=b1:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("b", 32))), "PANEL_URL=",
	}
}

// variables let a program find an environment.
func variables(e *archiveenv.System) []string {
	redis := e.RedisURL
	if e.Server == nil {
		redis = e.ConfigFor(stack.ReportingUser).URL
	}
	return append(secrets(), "REDIS_URL="+redis, fmt.Sprint("PARTITIONS=", testenv.Partitions), "CLICKHOUSE_URL="+e.ClickHouse.URL,
		"CLICKHOUSE_DATABASE="+e.Database, "REPORTING_INSTANCE=t1", "REPORTING_OPS_ADDR=127.0.0.1:0", "PANEL_ADDR=127.0.0.1:0")
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
	testserver.Await(t, url+" answers "+want, func() bool { return strings.Contains(answer(url), want) })
}

func TestProgram_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"serve", "--no-such-flag"}, "reporting: unknown flag: --no-such-flag"},
		{nil, []string{"nothing"}, `reporting: unknown command "nothing"`},
		{nil, []string{"report", "nothing"}, `there is no report "nothing"`},
		{append(secrets(), "REPORTING_OPS_ADDR="+freeAddr(t)), []string{"serve", "--health", "--config", settingsFile(t)}, "ask for readiness"},
	} {
		cmd := program(t, c.env, c.args...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v, said %q", c.args, err, out)
		}
	}
}
