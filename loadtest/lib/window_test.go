//go:build long

package lib_test

import (
	"slices"
	"testing"
)

// measurement is what measure() finds in a log.
type measurement struct {
	Most    []int `json:"most"`
	Beyond  int   `json:"beyond"`
	Wronged int   `json:"wronged"`
}

// How an answer was admitted, as window.js reads it. Nobody knows of a request whose answer was lost.
var admitted, refusedWith429, unknown = any(true), any(false), any(nil)

func TestWindow_ClaimsOnlyWhatIsCertain(t *testing.T) {
	t.Parallel()

	cases := []struct {
		name    string
		log     [][]any // sent and answered, in ms, and how it was admitted
		most    int
		beyond  int
		wronged int
	}{
		{name: "nothing"},
		{name: "the limit", most: 2, log: [][]any{{0, 1, admitted}, {10, 11, admitted}, {20, 21, refusedWith429}}},
		{name: "one beyond it", most: 3, beyond: 1, log: [][]any{{0, 1, admitted}, {10, 11, admitted}, {20, 21, admitted}}},
		{name: "one beyond it, perhaps later", most: 2, log: [][]any{{0, 1, admitted}, {10, 11, admitted}, {20, 1005, admitted}}},
		{name: "a refusal below it", most: 1, wronged: 1, log: [][]any{{0, 1, admitted}, {20, 21, refusedWith429}}},
		{name: "a refusal after a second", most: 2, wronged: 1, log: [][]any{{0, 1, admitted}, {1, 2, admitted}, {1010, 1011, refusedWith429}}},
		{name: "a lost answer, perhaps admitted", most: 1, log: [][]any{{0, 1, admitted}, {10, 11, unknown}, {20, 21, refusedWith429}}},
		{name: "a refusal after a second, by one of the clocks", most: 2, log: [][]any{{0, 0, admitted}, {0, 0, admitted}, {1000.5, 1000.5, refusedWith429}}},
		{name: "one beyond it within a second, by one of the clocks", most: 2, log: [][]any{{0, 0, admitted}, {0, 0, admitted}, {999.5, 999.5, admitted}}},
		{name: "a lost answer, perhaps not admitted", most: 2, log: [][]any{{0, 1, admitted}, {10, 11, unknown}, {20, 21, admitted}}},
	}

	logs := make([][][]any, len(cases))
	for i, c := range cases {
		logs[i] = append([][]any{}, c.log...)
	}

	r := play(t, "window.js", settings{"CASES": asJSON(t, logs)})

	found := notes[[]measurement](t, r)
	if len(found) != 1 || len(found[0]) != len(cases) {
		t.Fatalf("the script found %+v", found)
	}

	for i, c := range cases {
		got := found[0][i]
		if got.Most[0] != c.most || got.Beyond != c.beyond || got.Wronged != c.wronged {
			t.Errorf("%s: %+v, want most %d, beyond %d, wronged %d", c.name, got, c.most, c.beyond, c.wronged)
		}
	}
}

func TestWindow_OfSeveralIsBrokenAlone(t *testing.T) {
	t.Parallel()

	const windows = `[{"count": 2, "seconds": 1}, {"count": 3, "seconds": 10}]`
	three := [][]any{{0, 1, admitted}, {2000, 2001, admitted}, {4000, 4001, admitted}}
	logs := [][][]any{
		append(slices.Clone(three), []any{6000, 6001, admitted}),         // one beyond the second window
		append(slices.Clone(three), []any{6000, 6001, refusedWith429}),   // only the second window is full
		append(slices.Clone(three), []any{15000, 15001, refusedWith429}), // none is full
	}

	r := play(t, "window.js", settings{"WINDOWS": windows, "CASES": asJSON(t, logs)})

	found := notes[[]measurement](t, r)
	if len(found) != 1 || len(found[0]) != len(logs) {
		t.Fatalf("the script found %+v", found)
	}

	beyond, full, refused := found[0][0], found[0][1], found[0][2]
	if !slices.Equal(beyond.Most, []int{1, 4}) || beyond.Beyond != 1 {
		t.Errorf("one beyond a window: %+v", beyond)
	}
	if full.Beyond != 0 || full.Wronged != 0 {
		t.Errorf("a full window: %+v", full)
	}
	if refused.Wronged != 1 {
		t.Errorf("no full window: %+v", refused)
	}
}
