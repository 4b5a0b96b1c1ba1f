package harness

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vendorapi/internal/stack"
)

// The version of k6 is pinned, because another one may measure in another way.
const (
	k6Module  = "go.k6.io/k6"
	K6Version = "v1.8.1"
)

// K6 returns the path of the pinned k6 in DATA_DIR/bin. Unless that version is there it compiles it,
// which takes about two minutes and needs Go's module proxy, and says so on out. Another process
// that calls K6 in that time waits for its end.
func K6(ctx context.Context, out io.Writer) (string, error) {
	data, err := stack.DataDir()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(data, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}

	unlock, err := lockFile(filepath.Join(dir, "k6.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()

	path := filepath.Join(dir, "k6")
	if isPinnedK6(path) {
		return path, nil
	}

	fmt.Fprintf(out, "installing k6 %s into %s: about two minutes of compiling, once\n", K6Version, dir)
	cmd := exec.CommandContext(ctx, "go", "install", k6Module+"@"+K6Version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0", "GOGC=400")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("install k6: %w\n%s", err, output)
	}

	return path, nil
}

// isPinnedK6 reports whether a file is a k6 of the pinned version.
func isPinnedK6(path string) bool {
	info, err := buildinfo.ReadFile(path)

	return err == nil && info.Main.Path == k6Module && info.Main.Version == K6Version
}

// lockFile waits until this process alone has the lock of a file, which is created if it does not
// exist. The lock ends with unlock, or with the process.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}

	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil // closing the file unlocks it
}
