package rules

import (
	"slices"
	"testing"
)

const module = "../.."

func TestRules_AreHeldByTheGate(t *testing.T) {
	ids, err := List(module)
	noError(t, err)
	tests, err := Tests(module)
	noError(t, err)

	for id, namedBy := range tests {
		if !slices.Contains(ids, id) {
			t.Errorf("%s: %s is not in docs/spec/rules.txt", namedBy[0].Name, id)
		}
	}

	for _, id := range ids {
		isOfGate := func(test Test) bool { return !test.IsLong }
		if !slices.ContainsFunc(tests[id], isOfGate) {
			t.Errorf("no test of the gate has the directive //rule:%s", id)
		}
	}
}

// Every rule has a defect that breaks it, and what the defects replace exists. That the tests fail
// with them is shown by `make faults SUITE=rules`.
func TestRules_HaveADefectEach(t *testing.T) {
	ids, err := List(module)
	noError(t, err)
	_, broken, err := Defects(module)
	noError(t, err)

	for _, id := range broken {
		if !slices.Contains(ids, id) {
			t.Errorf("a defect breaks %s, which is not in docs/spec/rules.txt", id)
		}
	}

	for _, id := range ids {
		if !slices.Contains(broken, id) {
			t.Errorf("no defect in %s breaks %s", DefectsFolder, id)
		}
	}
}
