package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is wrong is said before anything connects, and shows no key.
func TestBackup_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	to := filepath.Join(t.TempDir(), "place")
	for want, args := range map[string][]string{
		`flag(s) "to"`:           {},
		"--keep: want 1 or more": {"--to", to, "--keep", "0"},
		"--every: 1m or more":    {"--to", to, "--every", "59s"},
		"--age-recipient: ":      {"--to", to, "--age-recipient", "AGE-SECRET-KEY-1GEHEIM"},
		"set AWS_ACCESS_KEY_ID":  {"--to", "s3://bucket"},
		"is younger than 1h5m0s": {"--to", to, "--every", "1h", "--health"},
		"connection refused":     {"--to", to, "--age-recipient", ""},
	} {
		cmd := program(t, append(rightEnvironment(), "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=geheim"), append([]string{"backup", "--config", settingsFile(t)}, args...)...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || strings.Contains(strings.ToLower(string(out)), "geheim") {
			t.Errorf("%v: %v, said %s", args, err, out)
		}
	}

	if _, err := os.Stat(to); err == nil {
		t.Error("a folder is left")
	}
}

// A schedule outlives what fails, says so, and ends with SIGTERM; its health is the age of the newest backup.
func TestBackup_ScheduleGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()

	to := filepath.Join(t.TempDir(), "place")
	cmd := program(t, rightEnvironment(), "backup", "--config", settingsFile(t), "--to", to, "--every", "24h")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "FAILED, and begun again in 10m0s: ") || !strings.Contains(line, "connection refused") || strings.Contains(line, "geheim") {
		t.Errorf("%v, said %s", err, line)
	}
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Errorf("ended with %v", err)
	}

	fresh := filepath.Join(to, time.Now().UTC().Format("20060102T150405Z"))
	if err := errors.Join(os.MkdirAll(fresh, 0o700), os.WriteFile(filepath.Join(fresh, "backup.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := program(t, rightEnvironment(), "backup", "--config", settingsFile(t), "--to", to, "--health").CombinedOutput(); err != nil {
		t.Errorf("%v, said %s", err, out)
	}
}
