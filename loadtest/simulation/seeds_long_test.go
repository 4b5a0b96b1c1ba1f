//go:build long

package main

import (
	"testing"
)

func TestPlay_ASeedBreachesNothingAndIsTheSameAgain(t *testing.T) {
	t.Setenv("ENVIRONMENT", "sandbox")
	s, err := build(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	var digests []string
	for range 2 {
		verdict, err := s.play(t.Context(), 7, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(verdict.Breaches) > 0 {
			t.Errorf("%v\n%s", verdict.Breaches, verdict.Story)
		}
		digests = append(digests, verdict.Digest)
	}

	if digests[0] != digests[1] {
		t.Errorf("its calls have the digest %s, and then %s", digests[0], digests[1])
	}
}

func TestPlay_APlantedDefectIsFound(t *testing.T) {
	t.Setenv("ENVIRONMENT", "sandbox")
	s, err := build(t.Context(), &defect{folder: mutantsFolder + "/export-acked-early"})
	if err != nil {
		t.Fatal(err)
	}

	verdict, err := s.play(t.Context(), 1, false)

	if err != nil || !shows(verdict, "clickhouse-differs") {
		t.Errorf("not found: %v, %+v", err, verdict)
	}
}
