package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// k6 is pinned: another version may measure otherwise.
const (
	k6Module  = "go.k6.io/k6"
	k6Version = "v1.8.1"
)

// ensureK6 makes sure that the pinned k6 lies in dir and returns its path. What
// is there is used again; otherwise it is compiled, which takes about two
// minutes and needs Go's module proxy.
func ensureK6(ctx context.Context, dir string, out io.Writer) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "k6")
	if isPinned(path) {
		return path, nil
	}
	fmt.Fprintf(out, "installing k6 %s into %s: about two minutes of compiling, once\n", k6Version, dir)
	cmd := exec.CommandContext(ctx, "go", "install", k6Module+"@"+k6Version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	done := tellTime(out)
	said, err := cmd.CombinedOutput()
	done()
	if err != nil {
		return "", fmt.Errorf("install k6: %w\n%s", err, said)
	}
	if !isPinned(path) {
		return "", fmt.Errorf("install k6: %s is not %s %s", path, k6Module, k6Version)
	}
	return path, nil
}

// isPinned reads what the binary says of its own making.
func isPinned(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == k6Module && info.Main.Version == k6Version
}

// tellTime shows every quarter of a minute that it is still going on.
func tellTime(out io.Writer) (stop func()) {
	began, tick, end := time.Now(), time.NewTicker(15*time.Second), make(chan struct{})
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(out, "  … %.0f s\n", time.Since(began).Seconds())
			case <-end:
				return
			}
		}
	}()
	return func() { close(end) }
}
