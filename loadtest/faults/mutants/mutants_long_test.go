//go:build long

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/judge"
)

// Every defect of the table still fits the source and still compiles, so that the
// table never goes stale in silence. Only the changed packages are looked at, and
// only by the type checker: a build of each would take minutes.
func TestDefects_FitTheSourceAndCompile(t *testing.T) {
	t.Parallel()
	module, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	changes := make(map[string]map[string][]byte)
	folders := make(map[string]bool)
	for _, d := range defects {
		changed, err := d.apply(module)
		if err != nil {
			t.Error(err)
		}
		for file := range changed {
			if path.Ext(file) == ".go" {
				folders[path.Dir(file)] = true
			}
		}
		changes[d.name] = changed
		if len(d.caught) == 0 || d.faults == "" || d.duration <= 0 || d.says == "" || len(d.edits) == 0 {
			t.Errorf("defect %s does not say what is to be done", d.name)
		}
	}
	packages := listed(t, module, slices.Sorted(maps.Keys(folders)))
	for _, d := range defects {
		for file := range changes[d.name] {
			if path.Ext(file) != ".go" {
				continue
			}
			if err := packages.check(path.Dir(file), changes[d.name]); err != nil {
				t.Errorf("defect %s: %v", d.name, err)
			}
		}
	}
	if err := packages.check("internal/ledger", map[string][]byte{"internal/ledger/orders.go": []byte("package ledger\n\nvar x int = `")}); err == nil {
		t.Error("what cannot compile was let pass")
	}
}

// goPackages are packages of this module and what they import, compiled.
type goPackages struct {
	export map[string]string // by import path
	files  map[string][]string
	module string
}

func listed(t *testing.T, module string, folders []string) *goPackages {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := &goPackages{export: make(map[string]string), files: make(map[string][]string), module: module}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found.export[p.ImportPath] = p.Export
		if folder, err := filepath.Rel(module, p.Dir); err == nil {
			found.files[filepath.ToSlash(folder)] = p.GoFiles
		}
	}
}

// check type-checks the package of a folder with some of its files changed.
func (p *goPackages) check(folder string, changed map[string][]byte) error {
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.files[folder] {
		file := path.Join(folder, name)
		var source any // nil: as it is on the disk
		if text, ok := changed[file]; ok {
			source = text
		}
		parsed, err := parser.ParseFile(set, filepath.Join(p.module, filepath.FromSlash(file)), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, parsed)
	}
	lookup := func(imported string) (io.ReadCloser, error) { return os.Open(p.export[imported]) }
	config := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	_, err := config.Check("vendorapi/"+folder, set, files, nil)
	return err
}

func TestApply_RefusesWhatDoesNotFitExactlyOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two three"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		name  string
		edits []edit
		want  string // "": refused
	}{
		{"once", []edit{{"a.go", "one", "1"}}, "1 two two three"},
		{"two edits of one file", []edit{{"a.go", "one", "1"}, {"a.go", "three", "3"}}, "1 two two 3"},
		{"what an earlier edit has made", []edit{{"a.go", "one", "four"}, {"a.go", "four", "4"}}, "4 two two three"},
		{"twice", []edit{{"a.go", "two", "2"}}, ""},
		{"never", []edit{{"a.go", "five", "5"}}, ""},
		{"no change", []edit{{"a.go", "one", "one"}}, ""},
		{"no such file", []edit{{"b.go", "one", "1"}}, ""},
	} {
		changed, err := (&defect{name: one.name, edits: one.edits}).apply(dir)
		if got := string(changed["a.go"]); got != one.want || (err != nil) != (one.want == "") {
			t.Errorf("%s: %q, %v", one.name, got, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	lost := []judge.Invariant{judge.LostOrder}
	for _, one := range []struct {
		name   string
		v      verdict
		passed bool
		said   string
	}{
		{"nothing in a system that is right", verdict{}, true, "passes"},
		{"something in a system that is right", verdict{found: lost}, false, "BLAMED"},
		{"what was wanted", verdict{wanted: lost, found: []judge.Invariant{judge.EventLost, judge.LostOrder}}, true, "caught"},
		{"something else", verdict{wanted: lost, found: []judge.Invariant{judge.EventLost}}, false, "MISSED"},
		{"nothing", verdict{wanted: lost}, false, "MISSED"},
		{"the suite failed", verdict{wanted: lost, found: lost, err: os.ErrNotExist}, false, "no verdict"},
	} {
		if got := one.v.passed(); got != one.passed || !strings.Contains(one.v.line(), one.said) {
			t.Errorf("%s: %t, %q", one.name, got, one.v.line())
		}
	}
}

// A system that answers nothing, or a suite that says nothing, is no verdict.
func TestPlay_ASuiteWithoutAResultIsNoVerdict(t *testing.T) {
	t.Parallel()
	for _, suite := range []string{"true", "false", "no-such-program"} {
		p := &place{dir: t.TempDir()}
		if v := p.play(t.Context(), suite, arguments{duration: time.Second}); v.err == nil || v.passed() {
			t.Errorf("%s: %+v", suite, v)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if _, chosen, err := parse(nil); err != nil || len(chosen) != len(defects) {
		t.Errorf("all: %d, %v", len(chosen), err)
	}
	if _, chosen, err := parse([]string{"-only", "everysec, no-version-check"}); err != nil || len(chosen) != 2 || chosen[1].name != "no-version-check" {
		t.Errorf("two: %v, %v", chosen, err)
	}
	for _, bad := range [][]string{{"-only", "nothing"}, {"everysec"}, {"-x"}} {
		if _, _, err := parse(bad); err == nil {
			t.Errorf("accepted %v", bad)
		}
	}
}
