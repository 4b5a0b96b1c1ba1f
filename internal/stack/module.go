package stack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ModuleDir is the top of this project: the nearest folder at or above the
// working directory whose go.mod names vendorapi.
func ModuleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module vendorapi\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run this inside the project: no go.mod of vendorapi at or above the working directory")
		}
		dir = parent
	}
}
