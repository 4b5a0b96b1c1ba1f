package systemtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tableRows are the rows of a document's tables: their cells, without the heads.
func tableRows(text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}

		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}

		rows = append(rows, cells)
	}

	return rows
}

// inOneProcess are the measured lines of loadtest/README.md that show parts of the programs,
// not the programs as they run: no headline is taken from them.
var inOneProcess = []string{"accepted orders", "allocations per order", "reading an order's JSON", "Redis's main thread per order"}

// What README.md promises about speed was measured, with a unit, on the programs.
func TestReadme_FiguresAreThoseThatWereMeasured(t *testing.T) {
	t.Parallel()

	_, section, found := strings.Cut(readFile(t, "README.md"), "Figures of the programs as they run")
	if !found {
		t.Fatal("README.md has no figures")
	}

	section, _, _ = strings.Cut(section, "\n#")
	measured := tableRows(readFile(t, "loadtest/README.md"))

	promised := tableRows(section)
	if len(promised) < 2 {
		t.Fatalf("README.md promises %v", promised)
	}

	hasUnit := regexp.MustCompile(`/s\b|\bms\b|\blost\b`)
	for _, row := range promised[1:] {
		what, figure := row[0], row[1]
		isPart := slices.ContainsFunc(inOneProcess, func(part string) bool { return strings.HasPrefix(what, part) })
		if isPart {
			t.Errorf("%q is not of the programs as they run", what)
		}
		if !hasUnit.MatchString(figure) {
			t.Errorf("%q has no unit: %q", what, figure)
		}

		isTheMeasured := func(row []string) bool {
			return strings.HasPrefix(row[0], what) && hasFigures(row[1], figure)
		}
		if !slices.ContainsFunc(measured, isTheMeasured) {
			t.Errorf("loadtest/README.md does not say that %q is %q", what, figure)
		}
	}
}

// hasFigures reports whether a measured cell says what is promised: each number of it with
// its unit, without the ranges in brackets.
func hasFigures(measured, promised string) bool {
	measured = regexp.MustCompile(` ?\([^)]*\)`).ReplaceAllString(measured, "")
	for _, part := range strings.Split(strings.TrimSuffix(promised, " ms"), ", p") {
		if !strings.Contains(measured, part) {
			return false
		}
	}
	return !strings.HasSuffix(promised, " ms") || strings.HasSuffix(measured, " ms")
}
