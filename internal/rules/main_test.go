package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every rule of the contract has a test, and the table is current.
func TestRules_AreHeldAndTheTableIsCurrent(t *testing.T) {
	t.Parallel()
	root, err := moduleDir()
	if err != nil {
		t.Fatal(err)
	}
	rules, tests, err := collect(root)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(filepath.Join(root, tableFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, render(rules, tests)) {
		t.Errorf("%s is not current: go run ./internal/rules -write, and look at what has changed", tableFile)
	}
	if len(rules) < 280 {
		t.Errorf("only %d rules were found in the documents", len(rules))
	}
}

func TestRun_WritesTheTableAndThenFindsItCurrent(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module "+module+"\n")
	write(t, filepath.Join(root, "p", "x_test.go"), opening+marked("limits/post-orders")+"func TestX(t *testing.T) {}\n")
	for _, name := range documents {
		write(t, filepath.Join(root, specFolder, name), "")
	}
	write(t, filepath.Join(root, specFolder, documents[0]), "## Limits\n\n| Endpoint | Sustained |\n|---|---|\n| POST /orders | 600 |\n")
	t.Chdir(filepath.Join(root, "p"))
	kept := asides
	asides = nil
	t.Cleanup(func() { asides = kept })

	var out strings.Builder
	if err := run(&out, false, ""); err == nil || !strings.Contains(err.Error(), "is not current") {
		t.Errorf("without a table: %v", err)
	}
	if err := run(&out, true, ""); err != nil {
		t.Fatal(err)
	}
	if err := run(&out, false, ""); err != nil || out.String() != "1 rules, 1 tests\n" {
		t.Errorf("%v, said %q", err, out.String())
	}
	if err := run(&out, false, "none.json"); err == nil {
		t.Error("a run that is not there was verified")
	}
	write(t, filepath.Join(root, specFolder, documents[1]), "## Limits\n\n| Endpoint | Sustained |\n|---|---|\n| PUT /stores | 60 |\n")
	if err := run(&out, true, ""); err == nil || !strings.Contains(err.Error(), "no test holds limits/put-stores") {
		t.Errorf("a rule without a test: %v", err)
	}
}
