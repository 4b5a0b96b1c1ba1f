package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck_RefusesWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		content, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	isc, mpl := read("internal/delivery/turkey.LICENCE"), read("internal/systemtest/axe/LICENSE")
	for name, c := range map[string]struct {
		work work
		want string // "": passes
	}{
		"allowed":                {work{texts: []text{{"LICENSE", []byte(isc)}}}, ""},
		"with a notice":          {work{texts: []text{{"LICENSE", []byte(isc)}, {"sub/NOTICE.txt", []byte("by somebody")}}}, ""},
		"no text":                {work{}, "no text"},
		"a notice alone":         {work{texts: []text{{"NOTICE", []byte("by somebody")}}}, "no text"},
		"not allowed":            {work{texts: []text{{"LICENSE", []byte(mpl)}}}, "MPL-2.0, which is not allowed"},
		"unknown":                {work{texts: []text{{"LICENSE", []byte("Do with it what your conscience tells you.")}}}, "no licence that is known"},
		"a part not allowed":     {work{texts: []text{{"LICENSE", []byte(isc)}, {"sub/COPYING", []byte(mpl)}}}, "sub/COPYING is under MPL-2.0"},
		"with further terms":     {work{texts: []text{{"LICENSE", []byte(isc + strings.Repeat("You shall pay us a share of what you earn with it. ", 40))}}}, "no licence that is known"},
		"more than one, allowed": {work{texts: []text{{"LICENSE", []byte(isc)}, {"b/LICENSE", []byte(read("reporting/panel/layout/assets/vendor/chart.LICENCE"))}}}, ""},
	} {
		err := c.work.check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
}

func TestLicenceName_FindsTextsOfLicences(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"LICENSE": true, "LICENCE.txt": true, "license.md": true, "LICENSE-APACHE": true, "COPYING": true, "Unlicense": true, "NOTICE": true, "PATENTS": true,
		"licenses.go": false, "license_of_mine": false, "README.md": false, "license_test.go": false, "mylicense": false,
	} {
		if licenceName.MatchString(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
