package main

import (
	"strings"
	"testing"
)

func TestJudge_NamesWhatDoesNotFit(t *testing.T) {
	rules := []rule{{id: "a/row", text: "a row", form: row}, {id: "a/1", text: "an item", form: numbered}, {id: "a/b", text: "a bullet", form: bullet}, {id: "a/s", text: "a sentence", form: sentence}}
	holding := func(ids ...string) []heldBy { return []heldBy{{"p", "p/x_test.go", "TestX", ids}} }
	for name, c := range map[string]struct {
		asides map[string]string
		tests  []heldBy
		want   string // "": nothing is wrong
	}{
		"every rule is held":         {nil, holding("a/row", "a/1", "a/b", "a/s"), ""},
		"a sentence states none":     {map[string]string{"a/s": "says nothing"}, holding("a/row", "a/1", "a/b"), ""},
		"a bullet is open":           {map[string]string{"a/b": "open: a/row, a/1"}, holding("a/row", "a/1", "a/s"), ""},
		"a row without a test":       {nil, holding("a/1", "a/b", "a/s"), "no test holds a/row: a row"},
		"no such rule":               {nil, holding("a/row", "a/1", "a/b", "a/s", "a/t"), "p/x_test.go: TestX names a/t, which is no rule"},
		"twice":                      {nil, holding("a/row", "a/1", "a/b", "a/s", "a/b"), "TestX names a/b twice"},
		"a row said to state none":   {map[string]string{"a/row": "says nothing"}, holding("a/1", "a/b", "a/s"), "a/row: a row of a table"},
		"an item said to state none": {map[string]string{"a/1": "says nothing"}, holding("a/row", "a/b", "a/s"), "a/1: a row of a table or a numbered item"},
		"held and said to state none": {map[string]string{"a/s": "says nothing"}, holding("a/row", "a/1", "a/b", "a/s"),
			"a/s is said to state no rule, and a test holds it"},
		"no such aside":         {map[string]string{"a/t": "says nothing"}, holding("a/row", "a/1", "a/b", "a/s"), "a/t is said to state no rule, and is not there"},
		"decided by what is no": {map[string]string{"a/s": "open: a/t"}, holding("a/row", "a/1", "a/b"), "a/s: a/t, where it is said to be decided, is no rule"},
	} {
		err := judge(rules, c.asides, c.tests)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestRender_LinksEveryTestAndNoLine(t *testing.T) {
	rules := []rule{{id: "a/1", text: "one | two", form: numbered, document: "d.md", section: "A"}, {id: "b/`x", text: strings.Repeat("long ", 50) + "`x`", document: "e.md", section: "B"}}
	table := string(render(rules, []heldBy{{"gateway", "gateway/x_test.go", "TestX", []string{"a/1"}}, {"worker", "worker/y_test.go", "TestY", []string{"a/1"}}}))
	for _, want := range []string{
		"\n## d.md\n\n### A\n", "\n## e.md\n\n### B\n",
		"| `a/1` | one \\| two | [TestX](../../gateway/x_test.go) (gateway)<br>[TestY](../../worker/y_test.go) (worker) |\n", " long … | ",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

func TestShort_ClosesCodeThatIsCut(t *testing.T) {
	if got := short(strings.Repeat("x", shortLength-2) + "`code and more`"); got != strings.Repeat("x", shortLength-2)+"`c` …" {
		t.Error(got)
	}
	if got := short(strings.Repeat("ş", shortLength)); got != strings.Repeat("ş", shortLength) {
		t.Error(got)
	}
}
