package main

import (
	"fmt"
	"strings"
	"testing"

	"vendorapi/loadtest/faults/validate"
)

func TestCheck_WhatIsNotAsWantedIsAViolation(t *testing.T) {
	var printed []string
	f := figures{fault: "disk", print: func(format string, args ...any) { printed = append(printed, fmt.Sprintf(format, args...)) }}

	f.figure("orders", "%d a second", 7)
	f.check(expectation{what: "answers", want: "all", got: "2 of 2", holds: true})
	f.check(expectation{what: "reads", want: "all", got: "1 of 2"})

	want := []string{"  orders: 7 a second", "  answers: 2 of 2  holds", "  reads: 1 of 2  FAILS, wanted: all"}
	if got := strings.Join(printed, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("printed\n%s", got)
	}
	if f.checked != 2 || len(f.violations) != 1 {
		t.Fatalf("%d figures checked, violations %v", f.checked, f.violations)
	}
	if v := f.violations[0]; v.String() != "wrong-figure [disk]: reads: 1 of 2, wanted: all" {
		t.Errorf("%+v", v)
	}
}

// A round on a system of its own has a line like any other, and its violations count.
func TestRecordOwn(t *testing.T) {
	var out strings.Builder
	s := newSuite(options{}, &out)
	r := &round{number: 3, faults: []fault{{Name: "disk"}}, figures: 12}
	r.violations = []validate.Violation{{
		Invariant: validate.WrongFigure,
		Subjects:  []string{"disk"},
		Text:      "reads: 1 of 2, wanted: all",
	}}

	s.recordOwn(r)
	s.summary()

	if len(s.result.Violations) != 1 || s.result.Rounds != 1 {
		t.Errorf("%+v", s.result)
	}

	for _, part := range []string{
		"round  3  disk  ", "a system of its own, 12 figures checked, 0 s, violations 1\n",
		"1 rounds", "other violations 1\n", "[disk]: reads: 1 of 2, wanted: all\n",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, &out)
		}
	}
}
