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

// k6 is pinned: another version may measure otherwise.
const (
	k6Module  = "go.k6.io/k6"
	K6Version = "v1.8.1"
)

// K6 returns the path of the pinned k6 in DATA_DIR/bin. It is compiled there unless it is there
// already, which takes about two minutes and needs Go's module proxy; whoever asks meanwhile, in
// another process, waits.
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
	info, err := buildinfo.ReadFile(path)
	isPinned := err == nil && info.Main.Path == k6Module && info.Main.Version == K6Version
	if isPinned {
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

// lockFile waits for the lock of a file, which ends with the process at the latest.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil // closing is what unlocks it
}
