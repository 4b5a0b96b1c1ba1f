package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are what the suite starts (internal/stack builds the same).
var programs = []string{"./gateway", "./worker", "./reporting", "./loadtest/receiver/receive", "./internal/stack/run"}

// apply makes the edits of a defect: the text of every file that they change, by
// its path in the module. A text that does not stand in its file exactly once is
// an error: then the table is stale.
func (d *defect) apply(module string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, e := range d.edits {
		text, ok := changed[e.file]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(module, filepath.FromSlash(e.file))); err != nil {
				return nil, fmt.Errorf("defect %s: %w", d.name, err)
			}
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf("defect %s: %s has this %d times, want it once:\n%s", d.name, e.file, n, e.old)
		}
		if e.old == e.new {
			return nil, fmt.Errorf("defect %s changes nothing in %s", d.name, e.file)
		}
		changed[e.file] = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	return changed, nil
}

// place is a folder in which a changed system runs: its binaries, and the files
// of the module that it reads at run time. The module itself is never touched.
type place struct {
	module, dir string
	changed     map[string][]byte
}

// newPlace prepares dir for a system with these changes.
func newPlace(module, dir string, changed map[string][]byte) (*place, error) {
	p := &place{module: module, dir: dir, changed: changed}
	if err := os.CopyFS(filepath.Join(dir, "configs"), os.DirFS(filepath.Join(module, "configs"))); err != nil {
		return nil, fmt.Errorf("copying the settings: %w", err)
	}
	// By its go.mod the programs know their module.
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600); err != nil {
		return nil, err
	}
	replaced := make(map[string]string)
	for file, text := range changed {
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		replaced[filepath.Join(module, filepath.FromSlash(file))] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(p.overlay(), overlay, 0o600)
}

func (p *place) overlay() string { return filepath.Join(p.dir, "overlay.json") }
func (p *place) bin() string     { return filepath.Join(p.dir, "bin") }

// build compiles the programs as they are with the changes.
func (p *place) build(ctx context.Context) error {
	args := []string{"build", "-overlay", p.overlay(), "-o", p.bin() + string(filepath.Separator)}
	cmd := exec.CommandContext(ctx, "go", append(args, programs...)...)
	cmd.Dir = p.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as internal/stack builds them
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building with the change: %w\n%s", err, out)
	}
	return nil
}
