package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What is wrong is said before anything connects, and shows no key.
func TestBackup_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "place")
	for want, args := range map[string][]string{
		"--to":                              {},
		"--keep: want 1 or more":            {"--to", to, "--keep", "0"},
		"--every: 1m or more":               {"--to", to, "--every", "59s"},
		"--age-recipient: ":                 {"--to", to, "--age-recipient", "AGE-SECRET-KEY-1GEHEIM"},
		"set AWS_ACCESS_KEY_ID":             {"--to", "s3://bucket"},
		"is younger than 1h5m0s":            {"--to", to, "--every", "1h", "--health"},
		"connection refused":                {"--to", to, "--age-recipient", ""},
		"FAILED, and begun again in 10m0s:": {"--to", to, "--every", "24h"},
	} {
		cmd := program(t, append(rightEnvironment(), "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=geheim"), append([]string{"backup", "--config", settingsFile(t)}, args...)...)
		if args != nil && args[len(args)-1] == "24h" { // it goes on
			said := endsAfter(t, cmd, want)
			if !strings.Contains(said, "connection refused") {
				t.Errorf("%s: said %s", want, said)
			}
			continue
		}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || strings.Contains(strings.ToLower(string(out)), "geheim") {
			t.Errorf("%v: %v, said %s", args, err, out)
		}
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a folder is left")
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	fresh := filepath.Join(to, time.Now().UTC().Format("20060102T150405Z"))
	must(os.MkdirAll(fresh, 0o700))
	must(os.WriteFile(filepath.Join(fresh, "backup.json"), nil, 0o600))
	if out, err := program(t, rightEnvironment(), "backup", "--config", settingsFile(t), "--to", to, "--health").CombinedOutput(); err != nil {
		t.Errorf("%v, said %s", err, out)
	}
}
