package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
)

// Nothing is compiled here: renaming what a failpoint or a mutant replaces is found by making the overlay.
func TestMutants_ReplaceWhatExists(t *testing.T) {
	module, err := stack.ModuleDir()
	noError(t, err)
	mutants, err := loadMutants("")
	noError(t, err)

	for _, m := range mutants {
		_, err := newOverlay(module, &m)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestMutants_AreComplete(t *testing.T) {
	mutants, err := loadMutants("")
	noError(t, err)
	var folders []string
	for _, m := range mutants {
		if m.Name == "" || m.Does == "" || len(m.Caught) == 0 {
			t.Errorf("%+v is not complete", m)
		}
		if _, err := loadFaults(&options{only: m.Faults, replica: m.Replica}); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}

		if m.changesCode() {
			folders = append(folders, m.Name)
		}
	}

	module, err := stack.ModuleDir()
	noError(t, err)
	entries, err := os.ReadDir(filepath.Join(module, mutantsFolder))
	noError(t, err)
	for _, entry := range entries {
		if !slices.Contains(folders, entry.Name()) {
			t.Errorf("%s is in %s, but not in mutants.yaml", entry.Name(), mutantsFolder)
		}
	}
}

func TestTrial_Result(t *testing.T) {
	lost, late := []validate.Invariant{validate.LostOrder}, []validate.Invariant{validate.EventLost}
	isRight := trial{}
	loses := trial{mutant: &mutant{Caught: lost}}
	cases := []struct {
		name   string
		trial  trial
		found  []validate.Invariant
		err    error
		passes bool
	}{
		{"nothing in a system that is right", isRight, nil, nil, true},
		{"something in a system that is right", isRight, lost, nil, false},
		{"what was wanted", loses, slices.Concat(late, lost), os.ErrExist, true},
		{"something else", loses, late, nil, false},
		{"nothing", loses, nil, nil, false},
		{"the suite failed", loses, nil, os.ErrNotExist, false},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, passes := c.trial.result(c.found, c.err)

			if passes != c.passes {
				t.Error(text)
			}
		})
	}
}

// Before the mutants the code as it is is played, once under each set of faults.
func TestTrialsOf(t *testing.T) {
	mutants := []mutant{{Name: "a", Faults: "none"}, {Name: "b", Faults: "split", Replica: true}, {Name: "c", Faults: "none"}}

	var got []string
	for _, trial := range trialsOf(mutants) {
		got = append(got, trial.name()+" "+trial.faults)
	}

	want := []string{"(none) none", "(none) split", "a none", "b split", "c none"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
