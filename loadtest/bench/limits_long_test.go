//go:build long

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func bound(v float64) *float64 { return &v }

func TestJudge(t *testing.T) {
	t.Parallel()
	floor := limit{Of: ofRatio, AtLeast: bound(0.5), Why: "w"}
	ceiling := limit{Of: ofMeasured, AtMost: bound(30), Why: "w", AnyMachine: true}
	half := line{key: "half", baseline: "b", measured: []float64{50}, base: []float64{100}}
	less := line{key: "half", baseline: "b", measured: []float64{90, 49, 10}, base: []float64{100, 100, 100}}
	thirty := line{key: "allocations", measured: []float64{30}}
	more := line{key: "allocations", measured: []float64{29, 31, 31}}
	for _, c := range []struct {
		name         string
		lines        []line
		limits       map[string]limit
		quick, whole bool
		verdict      string // of the first line
		fault        string // part of the error; empty: none
	}{
		{"at the floor", []line{half}, map[string]limit{"half": floor}, false, true, passed, ""},
		{"below the floor", []line{less}, map[string]limit{"half": floor}, false, true, failed, "half: 0.49 is beyond the accepted ratio >= 0.50"},
		{"at the ceiling", []line{thirty}, map[string]limit{"allocations": ceiling}, false, true, passed, ""},
		{"above the ceiling", []line{more}, map[string]limit{"allocations": ceiling}, false, true, failed, "allocations: 31 is beyond the accepted measured <= 30"},
		{"no limit", []line{half}, map[string]limit{}, false, true, unasked, ""},
		{"a quick run proves no ratio", []line{less}, map[string]limit{"half": floor}, true, true, unasked, ""},
		{"a quick run proves allocations", []line{more}, map[string]limit{"allocations": ceiling}, true, true, failed, "31 is beyond"},
		{"not measured", []line{half}, map[string]limit{"half": floor, "lost": floor}, false, true, passed, "lost: has a limit and was not measured"},
		{"not asked for", []line{half}, map[string]limit{"half": floor, "lost": floor}, false, false, passed, ""},
		{"no ratio to judge", []line{thirty}, map[string]limit{"allocations": floor}, false, true, unasked, "no ratio"},
		{"every fault is named", []line{less, more}, map[string]limit{"half": floor, "allocations": ceiling}, false, true, failed, "beyond the accepted ratio >= 0.50\nallocations: 31"},
	} {
		judged, err := judge(c.lines, c.limits, c.quick, c.whole)
		if judged[0].Verdict != c.verdict {
			t.Errorf("%s: verdict %q, want %q", c.name, judged[0].Verdict, c.verdict)
		}
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.fault)
		}
	}
}

// A line without figures is an error even where it has no limit, and is said
// once.
func TestJudge_RefusesALineThatProvesNothing(t *testing.T) {
	t.Parallel()
	judged, err := judge([]line{{key: "empty"}}, map[string]limit{"empty": {Of: ofMeasured, AtMost: bound(1), Why: "w"}}, false, true)
	if len(judged) != 0 || err == nil || err.Error() != "empty: nothing was measured" {
		t.Errorf("%v, %v", judged, err)
	}
}

func TestReadLimits_Refuses(t *testing.T) {
	t.Parallel()
	for content, fault := range map[string]string{
		`{`:  "unexpected EOF",
		`{}`: "there are none",
		`{"a":{"of":"ratio","at_least":1,"at_leest":2,"why":"w"}}`: "at_leest",
		`{"a":{"of":"speed","at_least":1,"why":"w"}}`:              "a: of",
		`{"a":{"of":"ratio","why":"w"}}`:                           "either at_least or at_most",
		`{"a":{"of":"ratio","at_least":1,"at_most":2,"why":"w"}}`:  "either at_least or at_most",
		`{"a":{"of":"ratio","at_least":1}}`:                        "why: missing",
	} {
		path := filepath.Join(t.TempDir(), "floors.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readLimits(path); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: error %v, want %q", content, err, fault)
		}
	}
	if _, err := readLimits(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a missing file was accepted")
	}
}
