package systemtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

var (
	namedTest   = regexp.MustCompile(`\bTest[A-Z]\w+`)
	definedTest = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
	namedTarget = regexp.MustCompile("(?m)(?:^ {4}|`)make ([a-z-]+)")
	namedFile   = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// What the notes for operators name exists: tests, targets of make, other files.
func TestNotes_NameWhatExists(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	tests := map[string]bool{}
	must(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, defined := range definedTest.FindAllStringSubmatch(string(content), -1) {
			tests[defined[1]] = true
		}
		return err
	}))
	makefile := read(t, "Makefile")
	for _, note := range []string{"configs/OPERATIONS.md", "gateway/SECURITY.md"} {
		text := read(t, note)
		for _, name := range namedTest.FindAllString(text, -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which is not there", note, name)
			}
		}
		for _, target := range namedTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+target[1]+":") {
				t.Errorf("%s names make %s, which is not there", note, target[1])
			}
		}
		for _, link := range namedFile.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(note), link[1])); err != nil {
				t.Errorf("%s links to %s: %v", note, link[1], err)
			}
		}
	}
}
