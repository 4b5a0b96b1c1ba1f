package main

import (
	"os"
	"path/filepath"
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
	if len(entries) != len(defects) {
		t.Errorf("%d folders of planted defects, want %d", len(entries), len(defects))
	}

	for defect := range defects {
		_, err := newOverlay(t.Context(), module, standInsFolder, filepath.Join(defectsFolder, defect))
		if err != nil {
			t.Errorf("%s: %v", defect, err)
		}
	}
}
