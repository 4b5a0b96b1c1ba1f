package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/program"
)

const (
	// startPatience bounds a worker's start, from the fork to its /readyz.
	startPatience = 20 * time.Second
	// stopPatience is how long a worker may finish what it sends; longer than
	// its own timeouts for a request and for its record.
	stopPatience = 25 * time.Second
)

// worker is the worker's binary as a child process, with the webhook role only.
type worker struct {
	program.Program
	ops string // URL of its health and metrics
}

// edit is another value for a key of the shipped settings.
type edit struct{ key, value string }

// newWorker prepares a worker with the shipped settings; its instance name stays
// the same over restarts.
func newWorker(bin, dir, redisURL string, k key, edits []edit) (*worker, error) {
	config, err := writeConfig(dir, edits)
	if err != nil {
		return nil, err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return nil, err
	}
	return &worker{ops: "http://" + addr, Program: program.Program{
		Name: "the worker", Path: filepath.Join(bin, "worker"), Args: []string{"-config", config, "-roles", "webhook"},
		Env: []string{"ENVIRONMENT=sandbox", "COURIER=manual", "WEBHOOK_LOCAL_RECEIVERS=auto", "LOG_LEVEL=error",
			"PARTITIONS=" + fmt.Sprint(partitions), "REDIS_URL=" + redisURL, "WORKER_OPS_ADDR=" + addr, "WORKER_INSTANCE=bench",
			"WEBHOOK_KEYS=" + k.String(), "WEBHOOK_KEYS_FILE="},
		Log:   filepath.Join(dir, "worker.log"),
		Ready: "http://" + addr + "/readyz", StartPatience: startPatience, StopPatience: stopPatience,
	}}, nil
}

func writeConfig(dir string, edits []edit) (path string, err error) {
	root, err := stack.ModuleDir()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, "configs", "worker.yaml"))
	if err != nil {
		return "", fmt.Errorf("the worker's settings: %w", err)
	}
	for _, e := range edits {
		line := regexp.MustCompile(`(?m)^( *` + regexp.QuoteMeta(e.key) + `:).*$`)
		if n := len(line.FindAll(content, -1)); n != 1 {
			return "", fmt.Errorf("the worker's settings: %s is in there %d times", e.key, n)
		}
		content = line.ReplaceAll(content, []byte("${1} "+e.value))
	}
	path = filepath.Join(dir, "worker.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("the worker's settings: %w", err)
	}
	return path, nil
}

// profileWorker writes two seconds of the worker's CPU profile, if wanted.
func (b *bench) profileWorker(ctx context.Context, w *worker, wanted bool) error {
	if !wanted {
		return nil
	}
	file, err := os.Create(b.profile)
	if err != nil {
		return fmt.Errorf("-profile: %w", err)
	}
	if err := errors.Join(program.Get(ctx, w.ops+"/debug/pprof/profile?seconds=2", file), file.Close()); err != nil {
		return fmt.Errorf("-profile: %w", err)
	}
	return nil
}
