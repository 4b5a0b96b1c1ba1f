//go:build long

package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"vendorapi/internal/stack"
)

// The failpoints and all mutants compile. They do so together, because no two replace the same
// declaration of Go.
func TestMutants_Compile(t *testing.T) {
	t.Parallel()

	module, err := stack.ModuleDir()
	noError(t, err)
	mutants, err := loadMutants("")
	noError(t, err)
	o, err := newOverlay(module, nil)
	noError(t, err)

	packages := make(map[string]bool)
	for _, m := range mutants {
		for _, file := range goFiles(t, filepath.Join(module, m.folder())) {
			noError(t, o.Replace(filepath.Join(module, m.folder(), file), file))
			packages["./"+filepath.Dir(file)] = true
		}
	}

	overlay, err := o.Write(t.TempDir())
	noError(t, err)

	args := append([]string{"build", "-overlay", overlay}, slices.Sorted(maps.Keys(packages))...)
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// goFiles returns the Go files of a folder that may not exist, by their paths in there.
func goFiles(t *testing.T, folder string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}

		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}

		file, err := filepath.Rel(folder, name)
		files = append(files, file)

		return err
	})

	noError(t, err)

	return files
}
