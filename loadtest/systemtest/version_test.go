package systemtest

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"vendorapi/internal/testenv/testserver"
)

func TestPrograms_SayWhichReleaseTheyAre(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gateway", "worker", "reporting", "run", "receive", "devclickhouse"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), name), "--version").Output()
		if err != nil || !regexp.MustCompile(`^`+name+` \S+ \(commit \S+, go1\.\S+\)\n$`).Match(out) {
			t.Errorf("%s --version: %v, %q", name, err, out)
		}
	}
}

// Whoever runs the service reads there what an upgrade asks of him.
func TestChangelog_NamesWhatIsNotReleasedAndEachRelease(t *testing.T) {
	t.Parallel()

	headings := regexp.MustCompile(`(?m)^## .*$`).FindAllString(readFile(t, "CHANGELOG.md"), -1)
	if len(headings) == 0 || headings[0] != "## [Unreleased]" {
		t.Fatalf("%q", headings)
	}

	for _, h := range headings[1:] {
		if !regexp.MustCompile(`^## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d$`).MatchString(h) {
			t.Errorf("%q names no release and its day", h)
		}
	}
}
