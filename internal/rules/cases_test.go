package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCases_AreThoseOfBrokenRule(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"of a switch", `switch broken.Rule { case "a/b", "c/d": }; switch other { case "e/f": }`, "a/b c/d"},
		{"of a comparison", `_ = broken.Rule == "a/b" && x == "c/d" || broken.Rule != "e/f"`, "a/b e/f"},
		{"with what else decides", `switch broken.Rule + " " + field { case "a/b name", "c/d e f": }`, "a/b c/d"},
		{"none", `switch other { case "a/b": }`, ""},
	} {
		file := filepath.Join(t.TempDir(), "a.go")
		noError(t, os.WriteFile(file, []byte("package a\n\nfunc f() { "+c.body+" }\n"), 0o600))

		ids, err := cases(file)

		if got := strings.Join(ids, " "); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}
