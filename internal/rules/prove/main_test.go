package main

import (
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/rules"
)

// Only a test that says so has found a defect: what ends the program, or cannot begin, has not.
func TestFailedTest_WantsAnAssertion(t *testing.T) {
	for _, c := range []struct{ name, output, found, trouble string }{
		{"a failure", "--- FAIL: TestA (0.01s)\n    a_test.go:1: got 1\nFAIL\n", "TestA", ""},
		{"the first of two", "--- FAIL: TestB (0.01s)\n    --- FAIL: TestB/row (0.00s)\n--- FAIL: TestA (0.01s)\nFAIL\n", "TestB", ""},
		{"a panic", "--- FAIL: TestA (0.01s)\npanic: index out of range\n", "", "panic: index out of range"},
		{"a timeout", "panic: test timed out after 5m0s\n", "", "panic: test timed out"},
		{"a crash", "fatal error: concurrent map writes\n", "", "fatal error"},
		{"no test", "redis-server: not found\n", "", "without saying which"},
	} {
		found, trouble := failedTest("gateway", c.output)
		if found != c.found || !strings.Contains(trouble, c.trouble) || (trouble == "") != (c.trouble == "") {
			t.Errorf("%s: found %q, trouble %q", c.name, found, trouble)
		}
	}
}

func TestChoose_TakesIDsAndBeginnings(t *testing.T) {
	all := []string{"limits/a", "errors/b", "limits/c"}
	for only, want := range map[string][]string{
		"":                  all,
		"limits/":           {"limits/a", "limits/c"},
		"limits/c,errors/b": {"errors/b", "limits/c"},
		"limits":            nil,
		"limits/d":          nil,
	} {
		got, err := choose(all, only)
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%q: %q, %v", only, got, err)
		}
	}
}

// Tests without a server come first, long ones never, and those of whole systems only where there is
// no other.
func TestTestsOf_TakesTheCheapOnesFirst(t *testing.T) {
	p := prover{tests: map[string][]rules.Test{
		"a": {
			{Package: "gateway", Name: "TestG"}, {Package: "loadtest/systemtest", Name: "TestSystem"},
			{Package: "internal/delivery", Name: "TestD"}, {Package: "reporting", Name: "TestL", IsLong: true},
		},
		"b": {{Package: "loadtest/systemtest", Name: "TestSystem"}},
	}}

	for id, want := range map[string]string{"a": "internal/delivery gateway", "b": "loadtest/systemtest"} {
		packages, _ := p.testsOf(id)
		if strings.Join(packages, " ") != want {
			t.Errorf("%s: %q, want %s", id, packages, want)
		}
	}
}
