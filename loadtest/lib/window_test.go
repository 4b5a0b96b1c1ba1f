package lib_test

import "testing"

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
		{name: "a lost answer, perhaps not admitted", most: 2, log: [][]any{{0, 1, admitted}, {10, 11, unknown}, {20, 21, admitted}}},
	}
	logs := make([][][]any, len(cases))
	for i, c := range cases {
		logs[i] = append([][]any{}, c.log...)
	}

	r := play(t, "window.js", settings{"CASES": asJSON(t, logs)})

	found := notes[[]struct {
		Most    []int `json:"most"`
		Beyond  int   `json:"beyond"`
		Wronged int   `json:"wronged"`
	}](t, r)
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
