package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Programs are the packages that Build turns into binaries of their names.
var Programs = []string{"./gateway", "./worker", "./reporting", "./loadtest/receiver/receive", "./internal/stack/run", "./internal/devclickhouse"}

// Build compiles the named programs, by default all that a stack runs, into dir.
// Go's build cache makes a second call cheap.
func Build(ctx context.Context, dir string, names ...string) error {
	wanted := slices.Clone(Programs)
	if len(names) > 0 {
		wanted = slices.DeleteFunc(wanted, func(p string) bool { return !slices.Contains(names, filepath.Base(p)) })
	}
	root, err := ModuleDir()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + string(filepath.Separator)}, wanted...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // nothing here needs a C compiler
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", errors.Join(err, context.Cause(ctx)), out)
	}
	return nil
}

// ModuleDir is the top of this project: the nearest folder at or above the
// working directory whose go.mod names vendorapi.
func ModuleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module vendorapi\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run this inside the project: no go.mod of vendorapi at or above the working directory")
		}
	}
}
