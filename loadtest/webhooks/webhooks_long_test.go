//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
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
	got := map[string]harness.Judged{}
	for _, f := range r.Figures {
		got[f.Key] = f
	}
	keys := []string{"backlog.drained", "backlog.left", "backlog.late", "backlog.unrecorded"}
	for _, p := range parts {
		keys = append(keys, p.name+".lost", p.name+".duplicates", p.name+".invalid")
	}
	for _, key := range keys {
		if f := got[key]; f.Verdict != harness.Passed {
			t.Errorf("%s: %+v", key, f)
		}
	}
	if f := got["throughput"]; f.Median <= 0 || f.Verdict != "" {
		t.Errorf("a quick run judges no rates: %+v", f)
	}
}

// What is interrupted says so, and leaves nothing behind.
func TestRun_EndsWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-only", "latency", "-json", filepath.Join(dir, "figures.json")}, io.Discard)
	}()
	left := func(below ...string) []string {
		found, _ := filepath.Glob(filepath.Join(append([]string{dir, "bench-webhooks-*"}, below...)...)) // the pattern is well formed
		return found
	}
	testserver.Await(t, "its Redis runs", func() bool { return len(left("*", "redis", "appendonlydir")) > 0 })
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if folders := left(); len(folders) > 0 {
		t.Errorf("left %v", folders)
	}
}
