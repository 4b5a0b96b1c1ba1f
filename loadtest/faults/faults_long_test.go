//go:build long

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/faults/judge"
)

func TestCommand_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"x", "-accounts 1", "-accounts 65", "-clients 0", "-orders-per-second 0", "-orders-per-second NaN", "-duration 0s", "-seed -1"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	if _, err := chooseFaults("kill-redis,kill-cat"); err == nil {
		t.Error("an unknown fault was taken")
	}
}

func TestDraw_EveryFaultAloneAndThenPairs(t *testing.T) {
	t.Parallel()
	s := &suite{options: options{seed: 3, duration: 10 * time.Minute}, random: diceOf(3)}
	again := &suite{options: s.options, random: diceOf(3)}
	for n := 1; n < 2*len(faults); n++ {
		r, same := s.draw(n, faults), again.draw(n, faults)
		want := 2
		if n <= len(faults) {
			want = 1
		}
		if len(r.faults) != want || want == 1 && r.faults[0].name != faults[n-1].name {
			t.Fatalf("round %d plays %v", n, namesOf(r.faults))
		}
		if want == 2 && r.faults[0].name == r.faults[1].name {
			t.Fatalf("round %d plays one fault twice", n)
		}
		if r.name() != same.name() || r.seed != same.seed || r.spare != same.spare {
			t.Fatalf("the same seed draws %s and %s", r.name(), same.name())
		}
	}
	short := &suite{options: options{duration: time.Minute}, random: diceOf(3)}
	if r := short.draw(1, faults); len(r.faults) != 2 {
		t.Errorf("a short run begins with %v", namesOf(r.faults))
	}
}

func TestJudgeAgain_NeedsTheFacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := &round{log: history.New(), facts: &judge.Facts{}}
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-judge", dir + "/" + historyFile}, &out); err != nil {
		t.Errorf("nothing was broken: %v\n%s", err, &out)
	}
	if err := os.Remove(dir + "/" + factsFile); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-judge", dir + "/" + historyFile}, &out); err == nil {
		t.Error("judged without facts")
	}
}
