// Package shipped tries the programs' settings files as they are shipped.
package shipped

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var keyLine = regexp.MustCompile(`^( *)([a-z_]+):`)

// EachKeyIsNeeded removes each key of the file in turn, with all that is below it, and then
// only its value. load must refuse the first and name the file and the key; it may take the
// second, where the key is a text or a list.
func EachKeyIsNeeded(t *testing.T, path string, load func(path string) error) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := load(path); err != nil {
		t.Fatalf("as it is shipped: %v", err)
	}

	lines := strings.SplitAfter(string(content), "\n")
	var sections []string // that the line is in, outermost first
	keys := 0
	for i, line := range lines {
		parts := keyLine.FindStringSubmatch(line)
		if parts == nil {
			continue
		}

		indent, name := parts[1], parts[2]
		sections = append(sections[:len(indent)/2], name)
		key := strings.Join(sections, ".")
		end := blockEnd(lines, i, len(indent))
		keys++

		without := write(t, path, lines[:i], nil, lines[end:])
		refused(t, "without "+key, key, without, load(without))

		isSection := end > i+1
		if isSection {
			empty := write(t, path, lines[:i], []string{indent + name + ":\n"}, lines[end:])
			refused(t, "with an empty "+key, key, empty, load(empty))
		}
	}

	if keys < 10 {
		t.Errorf("%s has %d keys", path, keys)
	}
}

// blockEnd returns the line behind the key of line i and of all that is below it.
func blockEnd(lines []string, i, indent int) int {
	end := i + 1
	for j := i + 1; j < len(lines); j++ {
		text := strings.TrimSpace(lines[j])
		if text == "" || text[0] == '#' {
			continue
		}
		if len(lines[j])-len(strings.TrimLeft(lines[j], " ")) <= indent {
			break
		}
		end = j + 1
	}

	return end
}

func write(t *testing.T, path string, parts ...[]string) string {
	t.Helper()
	var text strings.Builder
	for _, lines := range parts {
		text.WriteString(strings.Join(lines, ""))
	}

	copied := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(copied, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	return copied
}

// refused wants that each line of the error names the file, and the key or one below it.
func refused(t *testing.T, name, key, path string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: %s is accepted %s", path, filepath.Base(path), name)
		return
	}

	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, path) || !strings.HasSuffix(line, ": missing") || !strings.Contains(line, ": "+key) {
			t.Errorf("%s: %s", name, line)
		}
	}
}
