//go:build long

package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
)

// Every mutant still fits the source, and all of them together compile.
func TestMutants_FitTheSourceAndCompile(t *testing.T) {
	t.Parallel()
	module, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := loadMutants("")
	if err != nil {
		t.Fatal(err)
	}
	var all mutant
	for _, m := range mutants {
		if _, err := m.apply(module); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if _, err := loadFaults(&options{only: m.Faults, replica: m.Replica}); err != nil || m.Name == "" || len(m.Caught) == 0 || m.Does == "" || len(m.Edits)+len(m.Redis) == 0 {
			t.Errorf("%+v is not complete: %v", m, err)
		}
		all.Edits = append(all.Edits, m.Edits...)
	}
	dir := t.TempDir()
	overlay, files, err := all.overlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", overlay}
	for _, file := range files {
		if folder := "./" + path.Dir(file); path.Ext(file) == ".go" && !slices.Contains(args, folder) {
			args = append(args, folder)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestApply_WantsToFitExactlyOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const source = "func one() {\n\tstep(1)\n\tend()\n}\n\nfunc (t *T) one() {\n\tstep(1)\n}\n"
	write("a.go", source)
	write("a_test.go", source)
	write("b.lua", "local function one(x)\n  step(2)\nend\n")
	for _, c := range []struct {
		name  string
		edits []edit
		file  string
		want  string // a part of it; "": refused
	}{
		{"in Go", []edit{{"*.go", "end()", "stop()"}}, "a.go", "step(1)\n\tstop()"},
		{"in Lua", []edit{{"b.lua", "step(2)", "leap(2)"}}, "b.lua", "(x)\n  leap(2)\nend"},
		{"other white space", []edit{{"a.go", "step(1) end()", "leap()"}}, "a.go", "one() {\n\tleap()\n}"},
		{"what an earlier edit has made", []edit{{"a.go", "end()", "stop()"}, {"*.go", "stop()", "halt()"}}, "a.go", "step(1)\n\thalt()"},
		{"twice", []edit{{"a.go", "step(1)", "leap(1)"}}, "", ""},
		{"never", []edit{{"*.go", "step(3)", "leap(3)"}}, "", ""},
		{"no change", []edit{{"*.go", "end()", "end()"}}, "", ""},
		{"no such file", []edit{{"c.go", "end()", "stop()"}}, "", ""},
	} {
		changed, err := (&mutant{Edits: c.edits}).apply(dir)
		if (err != nil) != (c.want == "") || !strings.Contains(string(changed[c.file]), c.want) {
			t.Errorf("%s: %q, %v", c.name, changed, err)
		}
	}
}

func TestMutant_Result(t *testing.T) {
	t.Parallel()
	lost, late := []validate.Invariant{validate.LostOrder}, []validate.Invariant{validate.EventLost}
	for name, c := range map[string]struct {
		caught, found []validate.Invariant
		err           error
		passed        bool
	}{
		"nothing in a system that is right":   {nil, nil, nil, true},
		"something in a system that is right": {nil, lost, nil, false},
		"what was wanted":                     {lost, slices.Concat(late, lost), os.ErrExist, true},
		"something else":                      {lost, late, nil, false},
		"nothing":                             {lost, nil, nil, false},
		"the suite failed":                    {lost, nil, os.ErrNotExist, false},
	} {
		if text, got := (&mutant{Caught: c.caught}).result(c.found, c.err); got != c.passed {
			t.Errorf("%s: %s", name, text)
		}
	}
}
