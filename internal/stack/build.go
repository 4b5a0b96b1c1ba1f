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
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + string(filepath.Separator)}, wanted...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // nothing here needs a C compiler
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build: %w\n%s", errors.Join(err, context.Cause(ctx)), out.Bytes())
	}
	return nil
}
