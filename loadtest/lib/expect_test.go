//go:build long

package lib_test

import (
	"slices"
	"testing"
)

func TestExpect_TakesAnErrorForAConditionThatDoesNotHold(t *testing.T) {
	t.Parallel()

	r := play(t, "expect.js", nil)

	found := notes[[]bool](t, r)
	if len(found) != 1 || !slices.Equal(found[0], []bool{true, false, false}) {
		t.Errorf("the conditions held: %v", found)
	}

	r.requireNoException(t)
	r.requireLevel(t, checksLevel, false)
	for _, check := range []string{"a condition that is false", "a condition that throws an error"} {
		if !contains(r.messages("warning"), "not so: "+check+": answered 200 the body") {
			t.Errorf("nothing is said of %s: %q", check, r.messages("warning"))
		}
	}
}
