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

// Every mutant compiles, with the failpoints: the packages that the two change do.
func TestMutants_Compile(t *testing.T) {
	t.Parallel()
	module, err := stack.ModuleDir()
	noError(t, err)
	mutants, err := loadMutants("")
	noError(t, err)

	for _, m := range mutants {
		packages := packagesOf(t, filepath.Join(module, failpointsFolder))
		if m.changesCode() {
			maps.Copy(packages, packagesOf(t, filepath.Join(module, m.folder())))
		}
		o, err := newOverlay(module, &m)
		noError(t, err)
		file, err := o.Write(t.TempDir())
		noError(t, err)

		args := append([]string{"build", "-o", os.DevNull, "-overlay", file}, slices.Sorted(maps.Keys(packages))...)
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = module
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", m.Name, err, output)
		}
	}
}

// packagesOf returns the packages that the Go files of a tree are for, as the command go names them.
func packagesOf(t *testing.T, tree string) map[string]bool {
	t.Helper()
	packages := make(map[string]bool)
	err := filepath.WalkDir(tree, func(name string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		folder, err := filepath.Rel(tree, filepath.Dir(name))
		packages["./"+folder] = true
		return err
	})
	noError(t, err)
	return packages
}
