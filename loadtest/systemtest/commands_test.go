package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/testenv/commands"
)

func readRunbook(t *testing.T) []commands.Command {
	t.Helper()
	runbook, err := commands.ReadRunbook()
	if err != nil {
		t.Fatal(err)
	}
	return runbook
}

// The list of commands that no test runs is no longer than it has to be, and no fewer commands are
// run than once were.
func TestCommands_EachIsRunUnlessItCannotBe(t *testing.T) {
	t.Parallel()

	runbook := readRunbook(t)
	for _, byHand := range commands.ByHand {
		isThere := slices.ContainsFunc(runbook, func(c commands.Command) bool { return c.WithoutComment() == byHand.Line })
		if !isThere || byHand.Reason == "" {
			t.Errorf("the runbook has no command %q, or no reason says why it is not run", byHand.Line)
		}
	}

	withMakeRun, withCompose := 0, 0
	for _, c := range runbook {
		if c.IsByHand() {
			continue
		}
		withCompose++
		if !c.WantsCompose() {
			withMakeRun++
		}
	}

	if withMakeRun < commands.RunWithMakeRun || withCompose < commands.RunWithCompose {
		t.Errorf("%d commands are run with make run, want %d; with compose %d, want %d",
			withMakeRun, commands.RunWithMakeRun, withCompose, commands.RunWithCompose)
	}
}

// A command of another document is run too, or the table says why it is not.
func TestCommands_OfTheDocumentsHaveTheirPlace(t *testing.T) {
	t.Parallel()

	for document, places := range commands.Documents {
		written, err := commands.OfDocument(document)
		if err != nil {
			t.Fatal(err)
		}

		for _, c := range written {
			if commands.PlaceOf(c) == "" {
				t.Errorf("%s: where is %q run?", document, c.Line)
			}
		}

		for _, place := range places {
			isThere := slices.ContainsFunc(written, func(c commands.Command) bool { return strings.HasPrefix(c.Line, place.Begins) })
			if !isThere {
				t.Errorf("%s: no command begins with %q", document, place.Begins)
			}
			if strings.HasPrefix(place.Where, "Test") && !isTest(t, place.Where) {
				t.Errorf("%s: there is no %s", document, place.Where)
			}
		}
	}
}

// A shell can read every command, also one that has a value to fill in and is run by no test.
func TestCommands_AShellReadsThem(t *testing.T) {
	t.Parallel()
	for _, c := range readRunbook(t) {
		out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", c.Line).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s: %v\n%s", c.Section, c.Line, err, out)
		}
	}
}

// isTest reports whether this package has a test of that name, with any build tags.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

// What looks harmless must be: before Do nothing is changed, and nowhere does a command stand that
// cannot work or that destroys what somebody needs.
func TestCommands_OfTheRunbookAreSafe(t *testing.T) {
	t.Parallel()

	text := readFile(t, "docs/runbook.md")

	for section := range strings.SplitSeq(text, "\n## ") {
		look, _, _ := strings.Cut(section, "**Do.**") // the whole section where there is none, on the first page
		for _, changing := range []string{"month correct", "month close", "config set", "xtrim", "-X ", "up -d", "kill -", "prune", "clickhouse_do", "--fix"} {
			changes := regexp.MustCompile(`(?m)^` + "[^`]*" + regexp.QuoteMeta(changing)).MatchString(blocksOf(look))
			if changes {
				t.Errorf("%.30q changes something before Do: %s", section, changing)
			}
		}
	}

	for _, c := range readRunbook(t) {
		if strings.HasPrefix(c.Line, "report ") {
			t.Errorf("%s: there is no command report: %s", c.Section, c.Line)
		}
		if strings.Contains(c.Line, "slowlog get") && !strings.Contains(c.Line, "--no-raw") {
			t.Errorf("%s: keys are binary, a terminal is not: %s", c.Section, c.Line)
		}
	}

	for _, destroying := range []string{"`docker system prune", "`docker compose down -v"} {
		if strings.Count(text, destroying) != strings.Count(strings.ToLower(text), "never "+destroying) {
			t.Errorf("%s` removes logs, or all data, and stands there without never", destroying)
		}
	}

	if regexp.MustCompile(`clickhouse '\?query=(KILL|SYSTEM|TRUNCATE)`).MatchString(text) {
		t.Error("ClickHouse carries out nothing that changes anything over GET")
	}
}

// blocksOf are the shell blocks of a text.
func blocksOf(text string) (blocks string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks += block[1]
	}
	return blocks
}
