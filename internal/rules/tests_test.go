package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// marked is a directive, spelled so that the tool does not find it in this file.
func marked(ids string) string { return "//" + "rule:" + ids + "\n" }

const opening = "package some\n\nimport \"testing\"\n\n"

func TestReadFile_FindsDirectivesAboveAndInside(t *testing.T) {
	source := opening + "// Doc.\n//\n" + marked("a/1 a/2") + "func TestX_Holds(t *testing.T) {\n\tfor range 3 {\n\t\t" + marked("b/1") + "\t\tt.Log()\n\t}\n}\n\n" +
		marked("c/1") + marked("c/2") + "func FuzzY(f *testing.F) {}\n\nfunc TestZ(t *testing.T) {} // no rule\n"
	tests, err := readFile("some/x_test.go", []byte(source))
	if err != nil || len(tests) != 2 {
		t.Fatalf("%+v, %v", tests, err)
	}
	for i, want := range []heldBy{
		{"some", "some/x_test.go", "TestX_Holds", []string{"a/1", "a/2", "b/1"}},
		{"some", "some/x_test.go", "FuzzY", []string{"c/1", "c/2"}},
	} {
		if got := tests[i]; got.folder != want.folder || got.file != want.file || got.name != want.name || !slices.Equal(got.rules, want.rules) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestReadFile_Refuses(t *testing.T) {
	const test = "func TestX(t *testing.T) {\n\tt.Log()\n}\n"
	for name, c := range map[string]struct{ file, source, want string }{
		"a helper":              {"x_test.go", marked("a/1") + "func check(t *testing.T) {}\n", "x_test.go:5:1: the directive stands on no test"},
		"a benchmark":           {"x_test.go", marked("a/1") + "func BenchmarkX(b *testing.B) {}\n", "no test"},
		"a method":              {"x_test.go", "type s struct{}\n\n" + marked("a/1") + "func (s) TestX(t *testing.T) {}\n", "no test"},
		"TestMain":              {"x_test.go", marked("a/1") + "func TestMain(m *testing.M) {}\n", "no test"},
		"a name go test skips":  {"x_test.go", marked("a/1") + "func Testing(t *testing.T) {}\n", "no test"},
		"a test's parameters":   {"x_test.go", marked("a/1") + "func TestX(t *testing.T, n int) {}\n", "no test"},
		"two parameters in one": {"x_test.go", marked("a/1") + "func TestX(t, u *testing.T) {}\n", "no test"},
		"a Fuzz that takes T":   {"x_test.go", marked("a/1") + "func FuzzX(t *testing.T) {}\n", "no test"},
		"a variable":            {"x_test.go", marked("a/1") + "var rows = 1\n", "no test"},
		"behind a test":         {"x_test.go", test + marked("a/1"), "no test"},
		"a blank line between":  {"x_test.go", marked("a/1") + "\n" + test, "no test"},
		"no test file":          {"x.go", marked("a/1") + test, "no test"},
		"no rule":               {"x_test.go", marked(" ") + test, "names no rule"},
		"skips":                 {"x_test.go", marked("a/1") + strings.Replace(test, "Log", "Skipf", 1), "TestX calls Skipf"},
		"skips in a subtest":    {"x_test.go", marked("a/1") + strings.Replace(test, "t.Log()", "t.Run(\"\", func(t *testing.T) { t.Skip"+"Now() })", 1), "TestX calls SkipNow"},
		"asks for -short":       {"x_test.go", marked("a/1") + strings.Replace(test, "t.Log()", "if testing.Short() {\n\t\treturn\n\t}", 1), "TestX calls Short"},
		"no Go":                 {"x_test.go", marked("a/1") + "func {", "expected"},
	} {
		if _, err := readFile(c.file, []byte(opening+c.source)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestReadTests_KnowsWhatMakeTestBuilds(t *testing.T) {
	const test = "func TestX(t *testing.T) {}\n"
	for file, c := range map[string]struct {
		constraint string
		built      bool
		found      bool
	}{
		"a/plain_test.go":         {"", true, true},
		"a/race_test.go":          {"//go:build race\n\n", true, true},
		"a/linux_test.go":         {"//go:build linux && cgo\n\n", true, true},
		"a/x_linux_test.go":       {"", true, true},
		"a/norace_test.go":        {"//go:build !race\n\n", false, true},
		"a/growth_test.go":        {"//go:build growth\n\n", false, true},
		"a/x_windows_test.go":     {"", false, true},
		"testdata/a_test.go":      {"", true, false},
		"_old/a_test.go":          {"", true, false},
		".hidden/deep/a_test.go":  {"", true, false},
		"a/testdata/deep_test.go": {"", true, false},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, file), c.constraint+opening+marked("a/1")+test)
		write(t, filepath.Join(root, "README.md"), marked("b/1"))
		tests, err := readTests(root)
		if (err == nil) != c.built || (len(tests) > 0) != c.found {
			t.Errorf("%s: %+v, %v", file, tests, err)
		}
		if err != nil && !strings.Contains(err.Error(), file+": make test does not build it") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
