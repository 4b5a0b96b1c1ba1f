// Package rules checks that every rule of the contract is named by a test. The rules
// are the lines of configs/spec/rules.txt. A test of the gate that holds one says so in
// a directive above it or at the line that does:
//
//	//rule:limits/post-orders errors/RATE_LIMITED
//	func TestOrderLimits_HoldExactly(t *testing.T) {
package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRules_AreHeldByTheGate(t *testing.T) {
	list, err := os.ReadFile("../../configs/spec/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if id := strings.TrimSpace(line); id != "" && !strings.HasPrefix(id, "#") {
			known[id] = true
		}
	}
	held := map[string]bool{}
	err = filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for line := range strings.Lines(string(source)) {
			ids, directive := strings.CutPrefix(strings.TrimSpace(line), "//rule:")
			if !directive || path == "../../internal/rules/rules_test.go" {
				continue
			}
			for _, id := range strings.Fields(ids) {
				if !known[id] {
					t.Errorf("%s: %s is not in configs/spec/rules.txt", path, id)
				}
				held[id] = held[id] || !strings.HasSuffix(path, "_long_test.go")
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range known {
		if !held[id] {
			t.Errorf("no test of the gate has the directive //rule:%s", id)
		}
	}
}
