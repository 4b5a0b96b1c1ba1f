//go:build long

package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
)

// Every defect of the table still fits the source, and all of them together compile,
// so that the table never goes stale in silence.
func TestDefects_FitTheSourceAndCompile(t *testing.T) {
	t.Parallel()
	module, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	all := defect{name: "all"}
	folders := make(map[string]bool)
	for _, d := range defects {
		changed, err := d.apply(module)
		if err != nil {
			t.Error(err)
		}
		for file := range changed {
			if path.Ext(file) == ".go" {
				folders["./"+path.Dir(file)] = true
			}
		}
		if len(d.caught) == 0 || d.faults == "" || d.duration <= 0 || d.says == "" || len(d.edits) == 0 {
			t.Errorf("defect %s does not say what is to be done", d.name)
		}
		all.edits = append(all.edits, d.edits...)
	}
	changed, err := all.apply(module)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlace(module, t.TempDir(), changed)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", p.overlay()}
	for folder := range folders {
		args = append(args, folder)
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
		{"in a function", []edit{{"", "one", "step(1)", "leap(1)"}}, "a.go", "leap(1)\n\tend()"},
		{"in a method", []edit{{"", "T.one", "step(1)", "leap(1)"}}, "a.go", "one() {\n\tleap(1)\n}\n"},
		{"in Lua", []edit{{"", "one", "step(2)", "leap(2)"}}, "b.lua", "(x)\n  leap(2)\nend"},
		{"other white space", []edit{{"", "one", "step(1) end()", "leap()"}}, "a.go", "one() {\n\tleap()\n}"},
		{"what an earlier edit has made", []edit{{"a.go", "", "end()", "stop()"}, {"", "one", "stop()", "halt()"}}, "a.go", "step(1)\n\thalt()"},
		{"twice", []edit{{"a.go", "", "step(1)", "leap(1)"}}, "", ""},
		{"never", []edit{{"", "one", "step(3)", "leap(3)"}}, "", ""},
		{"in another function", []edit{{"", "T.one", "end()", "stop()"}}, "", ""},
		{"no such function", []edit{{"", "two", "step(1)", "leap(1)"}}, "", ""},
		{"no change", []edit{{"", "one", "end()", "end()"}}, "", ""},
		{"no such file", []edit{{"c.go", "", "end()", "stop()"}}, "", ""},
	} {
		changed, err := (&defect{name: c.name, edits: c.edits}).apply(dir)
		if (err != nil) != (c.want == "") || !strings.Contains(string(changed[c.file]), c.want) {
			t.Errorf("%s: %q, %v", c.name, changed, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	lost := []validate.Invariant{validate.LostOrder}
	for name, c := range map[string]struct {
		v      verdict
		passed bool
	}{
		"nothing in a system that is right":   {verdict{}, true},
		"something in a system that is right": {verdict{found: lost}, false},
		"what was wanted":                     {verdict{wanted: lost, found: []validate.Invariant{validate.EventLost, validate.LostOrder}}, true},
		"something else":                      {verdict{wanted: lost, found: []validate.Invariant{validate.EventLost}}, false},
		"nothing":                             {verdict{wanted: lost}, false},
		"the suite failed":                    {verdict{wanted: lost, found: lost, err: os.ErrNotExist}, false},
	} {
		if got := c.v.passed(); got != c.passed {
			t.Errorf("%s: passed %t", name, got)
		}
	}
	// A suite that says nothing is no verdict.
	for _, suite := range []string{"true", "false", "no-such-program"} {
		p := &place{dir: t.TempDir()}
		if v := p.play(t.Context(), suite, arguments{duration: time.Second}); v.err == nil || v.passed() {
			t.Errorf("%s: %+v", suite, v)
		}
	}
}
