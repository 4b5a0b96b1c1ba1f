//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/figures"
)

// The quick form, whole: a worker, Redis, endpoints of every manner, a backlog
// that drains, kills. Everything that holds on any machine is judged.
func TestQuickRun_LosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "figures.json")
	var out bytes.Buffer
	err := run(t.Context(), []string{"-quick", "-seed", "7", "-json", path}, &out)
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatal(err)
	}
	got := map[string]figures.Judged{}
	for _, f := range r.Figures {
		got[f.Key] = f
	}
	for _, p := range parts {
		for _, what := range []string{".lost", ".duplicates", ".invalid"} {
			if f := got[p.name+what]; f.Verdict != figures.Passed {
				t.Errorf("%s: %+v", p.name+what, f)
			}
		}
	}
	for _, key := range []string{"backlog.drained", "backlog.left", "backlog.late", "backlog.unrecorded"} {
		if f := got[key]; f.Verdict != figures.Passed {
			t.Errorf("%s: %+v", key, f)
		}
	}
	if f := got["throughput"]; f.Median <= 0 || f.Verdict != "" {
		t.Errorf("a quick run judges no rates: %+v", f)
	}
	if !r.Quick || r.Seed != 7 || !strings.Contains(out.String(), "webhooks per second at saturation") {
		t.Errorf("%+v", r)
	}
}

// What is interrupted says so, and leaves nothing behind.
func TestRun_EndsWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	interrupted := errors.New("interrupted")
	ctx, interrupt := context.WithCancelCause(t.Context())
	time.AfterFunc(4*time.Second, func() { interrupt(interrupted) })
	began := time.Now()
	err := run(ctx, []string{"-only", "latency", "-json", filepath.Join(dir, "figures.json")}, &bytes.Buffer{})
	if !errors.Is(err, interrupted) && !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("ended after %s", took)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "bench-webhooks-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]string{{"-only", "nothing"}, {"-only", "("}, {"-rounds", "0"}, {"-rounds", "21"}, {"more"}, {"-unknown"}} {
		if _, err := parseFlags(bad, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	f, err := parseFlags([]string{"-quick", "-rounds", "5"}, &bytes.Buffer{})
	if err != nil || f.rounds != 1 || f.seed == 0 || filepath.Base(f.json) != "bench-webhooks.json" {
		t.Errorf("%+v, %v", f, err)
	}
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); err == nil || !strings.Contains(help.String(), "isolation") || !strings.Contains(help.String(), "-seed") {
		t.Errorf("%v: %s", err, help.String())
	}
}

func TestWriteConfig_ChangesOneKey(t *testing.T) {
	t.Parallel()
	path, err := writeConfig(t.TempDir(), []edit{{"pprof", "true"}, {"lease", "4s"}})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(content); !strings.Contains(text, "\n  pprof: true\n") || !strings.Contains(text, "\n  lease: 4s\n") {
		t.Errorf("%s", text)
	}
	for _, key := range []string{"no_such_key", "claim_after"} { // the latter is there twice
		if _, err := writeConfig(t.TempDir(), []edit{{key, "1s"}}); err == nil {
			t.Errorf("%s is changed", key)
		}
	}
}
