package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/overlay"
)

// Folders in the module.
const (
	// failpointsFolder has what lets requests carry the marks of failpoints (package point).
	failpointsFolder = "loadtest/faults/testdata/failpoints"
	// mutantsFolder has a folder for each mutant that changes code.
	mutantsFolder = "loadtest/faults/testdata/mutants"
)

// newOverlay returns the overlay of a build with the failpoints and the defect of a mutant; nil: none.
func newOverlay(module string, m *mutant) (*overlay.Overlay, error) {
	o := overlay.New(module)
	if err := o.ReplaceTree(filepath.Join(module, failpointsFolder)); err != nil {
		return nil, err
	}
	if m == nil || !m.changesCode() {
		return o, nil
	}
	return o, o.ReplaceTree(filepath.Join(module, m.folder()))
}

// programs are what a run starts.
var programs = []string{"gateway", "worker", "reporting", "devclickhouse"}

// build builds the programs into the folder bin below dir, and returns it. m may be nil. What is there from the
// build before, and has not changed, stays.
func build(ctx context.Context, dir string, m *mutant) (bin string, err error) {
	module, err := stack.ModuleDir()
	if err != nil {
		return "", err
	}
	o, err := newOverlay(module, m)
	if err != nil {
		return "", err
	}

	bin, texts := filepath.Join(dir, "bin"), filepath.Join(dir, "overlay")
	if err := errors.Join(os.RemoveAll(texts), os.MkdirAll(texts, 0o700)); err != nil {
		return "", err
	}

	file, err := o.Write(texts)
	if err != nil {
		return "", err
	}

	return bin, stack.BuildOverlaid(ctx, bin, file, programs...)
}
