package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// testDeclaration finds the tests of a file and names them.
	testDeclaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)

	// buildConstraint finds the build tag without which a file is not compiled.
	buildConstraint = regexp.MustCompile(`(?m)^//go:build (\w+)$`)

	// testMention finds a test in a document, in backquotes: its name, or the beginning of several names with an
	// underscore at its end, and the tag that it needs in parentheses.
	testMention = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(?:`? \\((\\w+)\\))?")
)

// Documents name tests as proof of what they promise, so a name must be that of a test. One that
// the gate does not run has the build tag that it needs behind it: `TestEdge` (long).
func TestDocuments_NameTestsThatExist(t *testing.T) {
	tagsOf := readTests(t)

	for _, file := range files(t, ".md") {
		text, err := os.ReadFile(file)
		noError(t, err)
		for _, mention := range testMention.FindAllStringSubmatch(string(text), -1) {
			name, tag := mention[1], mention[2]
			if !isMatched(tagsOf, name, tag) {
				t.Errorf("%s: there is no test %s with the tag %q", file, name, tag)
			}
		}
	}
}

// isMatched reports whether a test has the name and the tag, or begins with a name that ends with an
// underscore.
func isMatched(tagsOf map[string][]string, name, tag string) bool {
	if !strings.HasSuffix(name, "_") {
		return slices.Contains(tagsOf[name], tag)
	}

	for test, tags := range tagsOf {
		if strings.HasPrefix(test, name) && slices.Contains(tags, tag) {
			return true
		}
	}
	return false
}

// readTests returns the build tags of each test of the module: an empty one for those of the gate, and
// several for a name that several files have.
func readTests(t *testing.T) (tagsOf map[string][]string) {
	t.Helper()
	tagsOf = make(map[string][]string)
	for _, file := range files(t, "_test.go") {
		source, err := os.ReadFile(file)
		noError(t, err)

		tag := ""
		constraint := buildConstraint.FindSubmatch(source)
		if constraint != nil {
			tag = string(constraint[1])
		}

		for _, declaration := range testDeclaration.FindAllSubmatch(source, -1) {
			name := string(declaration[1])
			tagsOf[name] = append(tagsOf[name], tag)
		}
	}

	return tagsOf
}

// files returns the module's files whose names end like this.
func files(t *testing.T, ending string) (found []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		isHidden := strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && entry.Name() != ".github"
		if entry.IsDir() && isHidden { // such as .git and .data, where other programs write
			return filepath.SkipDir
		}

		if strings.HasSuffix(path, ending) {
			found = append(found, path)
		}

		return nil
	})

	noError(t, err)

	return found
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
