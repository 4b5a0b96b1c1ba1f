package systemtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

var (
	namedTest   = regexp.MustCompile(`\bTest[A-Z]\w+[A-Za-z0-9]\b`)
	definedTest = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
	namedTarget = regexp.MustCompile("(?m)(?:^ {4}|`)make ([a-z-]+)")
	namedFile   = regexp.MustCompile(`\]\(([^):]+)\)`)
	headingLine = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInLink   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// What the texts for people name exists: tests, targets of make, files and their
// headings.
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
	for _, note := range notes(t, root) {
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
			if strings.HasPrefix(link[1], "/") {
				continue // a page of the gateway, where that text is served
			}
			file, heading, _ := strings.Cut(link[1], "#")
			if file = filepath.Join(filepath.Dir(note), file); strings.HasPrefix(link[1], "#") {
				file = note
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s: %v", note, link[1], err)
			} else if heading != "" && !slices.Contains(headings(read(t, file)), heading) {
				t.Errorf("%s links to %s: there is no such heading", note, link[1])
			}
		}
	}
}

// notes are all texts for people, but for what others wrote.
func notes(t *testing.T, root string) (found []string) {
	must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := e.Name(); e.IsDir() && strings.HasPrefix(name, ".") && name != ".ci" && path != root {
			return filepath.SkipDir // the checkout's own, and data of a run
		}
		if strings.HasSuffix(path, ".md") && filepath.Base(path) != "licences.md" {
			relative, err := filepath.Rel(root, path)
			found = append(found, relative)
			return err
		}
		return nil
	}))
	return found
}

// headings are a text's, as links name them.
func headings(text string) (all []string) {
	for _, line := range headingLine.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(notInLink.ReplaceAllString(strings.ToLower(line[1]), ""), " ", "-"))
	}
	return all
}
