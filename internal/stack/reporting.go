package stack

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func (s *Stack) startClickHouse(ctx context.Context) error {
	o := &s.options
	if o.ClickHouseURL != "" {
		s.Demo.ClickHouseURL = o.ClickHouseURL
		return nil
	}

	s.Demo.ClickHouseURL = origin(o.ClickHouseAddr)
	s.ClickHouse = s.program("devclickhouse", s.Demo.ClickHouseURL+"/ping", "-addr", o.ClickHouseAddr, "-data", s.data.file("clickhouse"))
	s.ClickHouse.Name, s.ClickHouse.Log = "clickhouse", s.data.file("logs", "clickhouse.log")
	return s.run(ctx, s.ClickHouse, o.ClickHouseAddr+", embedded")
}

// NoEngineKey in Options.Env leaves the embedded engine without a key: of an older
// release, or reached through proxies whose settings cannot name it.
const NoEngineKey = "ENGINE_KEY_FILE="

// ClickHouseURL is what may change things: with the key of the embedded engine,
// which demo.json, for reading, does not have.
func (s *Stack) ClickHouseURL() string {
	if s.ClickHouse == nil || s.data == nil || slices.Contains(s.options.Env, NoEngineKey) {
		return s.Demo.ClickHouseURL
	}

	key, err := os.ReadFile(s.data.file("keys", keyFiles["ENGINE_KEY"]))
	if err != nil {
		return s.Demo.ClickHouseURL
	}
	return strings.Replace(s.Demo.ClickHouseURL, "://", "://default:"+strings.TrimSpace(string(key))+"@", 1)
}

// startReporting starts the exporter, the daily reconciliation and the panel.
func (s *Stack) startReporting(ctx context.Context) error {
	o := &s.options
	if err := s.seedPanel(ctx); err != nil {
		return err
	}

	s.Demo.PanelURL = origin(o.PanelAddr)
	s.Reporting = s.program("reporting", origin(o.ReportingOpsAddr)+"/readyz", "serve", "--config", s.configFile("reporting"))
	s.Reporting.Env = append(s.Reporting.Env,
		// It neither answers vendors nor signs webhooks.
		"TOKEN_KEYS=", "TOKEN_KEYS_FILE=", "WEBHOOK_KEYS=", "WEBHOOK_KEYS_FILE=",
		"CLICKHOUSE_URL="+s.ClickHouseURL(), "PANEL_ADDR="+o.PanelAddr, "REPORTING_OPS_ADDR="+o.ReportingOpsAddr,
		"OPS_URL="+origin(o.OpsAddr), "PANEL_PROGRAMS=worker="+origin(o.WorkerOpsAddr),
		"PANEL_USERS=", "PANEL_USERS_FILE="+s.data.file("keys", "panel-users"),
		"REPORT_TOKENS=", "REPORT_TOKENS_FILE="+s.data.file("keys", "report-tokens"))

	return s.run(ctx, s.Reporting, o.PanelAddr+" and "+o.ReportingOpsAddr)
}

// panelUser is the demo's user, and the name of its token. SecondUser has the same password: closing a
// month takes two people.
const (
	panelUser  = "demo"
	SecondUser = "second"
)

// Month is a command of `reporting month` as somebody runs it who knows the password of the panel's users.
func (s *Stack) Month(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Reporting.Path, append(append([]string{"month"}, args...), s.Reporting.Args[1:]...)...)
	cmd.Env, cmd.Stdin = environment(os.Environ(), s.Reporting.Env), strings.NewReader(s.Demo.Panel.Password+"\n")
	return cmd
}

// seedPanel makes the demo's user and token once. The files that reporting reads
// hold only hashes; what they stand for lies beside them.
func (s *Stack) seedPanel(ctx context.Context) error {
	password, err := s.panelSecret("panel-password", "panel-users", func() (secret, line string, err error) {
		secret = rand.Text()
		line, _, err = s.reporting(ctx, secret+"\n", "user", panelUser, "--roles", "operator,finance,closer")
		if err != nil {
			return "", "", err
		}

		second, _, err := s.reporting(ctx, secret+"\n", "user", SecondUser, "--roles", "finance,closer")
		return secret, line + second, err
	})
	if err != nil {
		return err
	}

	token, err := s.panelSecret("reports-token", "report-tokens", func() (secret, line string, err error) {
		line, said, err := s.reporting(ctx, "", "token", panelUser, "--roles", "finance")
		said = strings.TrimSpace(said)
		return said[strings.LastIndexByte(said, '\n')+1:], line, err
	})

	s.Demo.Panel.User, s.Demo.Panel.Password, s.Demo.ReportsToken = panelUser, password, token

	return err
}

// panelSecret is what a file of the keys holds. Unless it and the line that
// stands for it are there, both are made again.
func (s *Stack) panelSecret(secretFile, lineFile string, fresh func() (secret, line string, err error)) (string, error) {
	secret, err := os.ReadFile(s.data.file("keys", secretFile))
	_, missing := os.Stat(s.data.file("keys", lineFile))
	if err == nil && missing == nil {
		return strings.TrimSpace(string(secret)), nil
	}
	made, line, err := fresh()
	if err != nil {
		return "", err
	}
	if err := s.data.write(filepath.Join("keys", lineFile), []byte(line)); err != nil {
		return "", err
	}

	return made, s.data.write(filepath.Join("keys", secretFile), []byte(made+"\n"))
}

func (s *Stack) reporting(ctx context.Context, input string, args ...string) (out, said string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.options.BinDir, "reporting"), args...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("reporting %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), stderr.String(), nil
}
