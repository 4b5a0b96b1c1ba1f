package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"vendorapi/internal/stack"
)

// Nothing is compiled here: renaming what a stand-in or a planted defect replaces, and a Go whose runtime has other
// texts, are found by making the overlay.
func TestNewOverlay_FitsThePackages(t *testing.T) {
	module, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(module, defectsFolder))
	if err != nil {
		t.Fatal(err)
	}

	for _, entry := range entries {
		isPlanted := func(d defect) bool { return d.folder == path.Join(defectsFolder, entry.Name()) }
		if !slices.ContainsFunc(defects, isPlanted) {
			t.Errorf("%s is in %s, but is not planted", entry.Name(), defectsFolder)
		}
	}

	for _, d := range defects {
		_, err := newOverlay(t.Context(), module, standInsFolder, d.folder)
		if err != nil {
			t.Errorf("%s: %v", d.name(), err)
		}
	}
}
