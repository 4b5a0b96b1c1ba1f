package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"vendorapi/internal/stack"
)

// apply makes the edits of a defect: the text of every file that they change, by
// its path in the module. An edit that does not fit exactly once is an error: then
// the table is stale.
func (d *defect) apply(module string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, e := range d.edits {
		fits := 0
		for _, file := range e.files(module) {
			text, ok := changed[file]
			if !ok {
				var err error
				if text, err = os.ReadFile(filepath.Join(module, file)); err != nil {
					return nil, fmt.Errorf("defect %s: %w", d.name, err)
				}
			}
			for _, at := range e.find(text) {
				if fits++; fits == 1 {
					changed[file] = slices.Concat(text[:at[0]], []byte(e.new), text[at[1]:])
				}
			}
		}
		if fits != 1 || e.old == e.new {
			return nil, fmt.Errorf("defect %s: %s %s has this %d times, want a change of one:\n%s", d.name, e.in, e.function, fits, e.old)
		}
	}
	return changed, nil
}

// files are those in which an edit looks, as paths in the module.
func (e *edit) files(module string) (files []string) {
	if path.Ext(e.in) != "" {
		return []string{e.in}
	}
	for _, pattern := range []string{"*.go", "*.lua"} {
		found, _ := filepath.Glob(filepath.Join(module, e.in, pattern)) // the pattern is well formed
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") {
				files = append(files, path.Join(e.in, filepath.Base(file)))
			}
		}
	}
	return files
}

// find is where an edit fits in a text: begins and ends. A function at the top
// level, of Go as of Lua, ends with the first line that is not indented.
func (e *edit) find(text []byte) (fits [][]int) {
	parts := [][]int{{0, len(text)}}
	if e.function != "" {
		receiver, name, isMethod := strings.Cut(e.function, ".")
		header := `func \(\w+ \*?` + regexp.QuoteMeta(receiver) + `\) ` + regexp.QuoteMeta(name)
		if !isMethod {
			header = `(func|function|local function) ` + regexp.QuoteMeta(e.function)
		}
		parts = regexp.MustCompile(`(?ms)^`+header+`\b.*?^(\}|end)`).FindAllIndex(text, -1)
	}
	words := strings.Fields(e.old)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	for _, part := range parts {
		for _, at := range regexp.MustCompile(strings.Join(words, `\s+`)).FindAllIndex(text[part[0]:part[1]], -1) {
			fits = append(fits, []int{part[0] + at[0], part[0] + at[1]})
		}
	}
	return fits
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
	cmd := exec.CommandContext(ctx, "go", append(args, stack.Programs...)...)
	cmd.Dir = p.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as internal/stack builds them
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building with the change: %w\n%s", err, out)
	}
	return nil
}
