// Command rules holds the tests against the contract: every row of every table,
// every numbered item and bullet and every sentence of the documents in
// configs/spec has an id, and configs/spec/RULES.md names for each the tests that
// hold it. A test says which rules it holds in a directive, right above it or at
// the line inside it that does:
//
//	//rule:limits/post-orders errors/RATE_LIMITED
//	func TestOrderLimits_HoldExactly(t *testing.T) {
//
// It owns the reading of both sides and the table. It refuses (exit status 1, and
// a test of its own in `make test`) a rule without a test, a directive that names
// no rule or stands on what is no test, a test that `make test` does not run or
// that may leave itself out, and a table that is not current. It cannot know
// whether a test would fail if its rule were broken: who writes a directive has
// tried that.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	write := flag.Bool("write", false, "write the table to "+tableFile)
	verify := flag.String("verify", "", "a file with the output of `go test -json ./...`: every test of the table has passed in it, or this fails")
	flag.Parse()
	if err := run(os.Stdout, *write, *verify); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

// Both are relative to the project's folder.
var (
	specFolder = filepath.Join("configs", "spec")
	tableFile  = filepath.Join(specFolder, "RULES.md")
)

func run(out io.Writer, write bool, verify string) error {
	root, err := moduleDir()
	if err != nil {
		return err
	}
	rules, tests, err := collect(root)
	if err != nil {
		return err
	}
	table, path := render(rules, tests), filepath.Join(root, tableFile)
	if write {
		return os.WriteFile(path, table, 0o644)
	}
	if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, table) {
		return errors.Join(err, fmt.Errorf("%s is not current: go run ./internal/rules -write, and look at what has changed", tableFile))
	}
	if verify != "" {
		if err := verifyFile(verify, tests); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%d rules, %d tests\n", len(rules), len(tests))
	return err
}

func verifyFile(path string, tests []heldBy) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return verifyRun(file, tests)
}

// collect reads both sides and judges them; what is wrong is one joined error.
func collect(root string) ([]rule, []heldBy, error) {
	rules, err := readDocuments(filepath.Join(root, specFolder))
	if err != nil {
		return nil, nil, err
	}
	tests, err := readTests(root)
	return rules, tests, errors.Join(err, judge(rules, asides, tests))
}

// moduleDir is the nearest folder with a go.mod, at or above the working one.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod at or above the working directory")
		}
	}
	return "", err
}
