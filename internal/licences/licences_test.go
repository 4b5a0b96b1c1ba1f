// Package licences lists what the shipped programs contain that others have written, and under which
// licence, as docs/licences.md. Its test reads the texts in the module cache and fails for a module
// without a text, a text that it does not recognise, a licence that is not allowed, and a list that is
// not current; `go test ./internal/licences -write` renews it.
package licences

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

// shipped are the programs; what only tests and tools need is not listed.
var shipped = []string{"./gateway", "./worker", "./reporting"}

// allowed are the licences, as SPDX names them, that ask for no more than their text beside
// the programs. A copyleft one, of files even, is a decision that somebody has to take.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unlicense", "Zlib"}

// besides are works of others in this repository that are no Go modules: a file, a
// pattern of the version in it, and the file of the licence or, of what comes without one,
// what its metadata on npm says.
var besides = []struct{ name, file, version, licence, declared string }{
	{"htmx.org", "reporting/layout/assets/vendor/README.md", `htmx\.org ([0-9.]+[0-9])`, "reporting/layout/assets/vendor/htmx.LICENCE", ""},
	{"chart.js (with @kurkle/color)", "reporting/layout/assets/vendor/chart.umd.min.js", `Chart\.js v([0-9.]+[0-9])`, "reporting/layout/assets/vendor/chart.LICENCE", ""},
	{"outline of Turkey (@rapideditor/country-coder)", "internal/delivery/turkey.LICENCE", `version ([0-9.]+[0-9])`, "internal/delivery/turkey.LICENCE", ""},
	{"Swagger UI (in github.com/swaggest/swgui)", "gateway/docs/docs.go", `Swagger UI ([0-9.]+[0-9])`, "", "Apache-2.0"},
	{"@chdb/lib (ClickHouse as a library; for development, from npm)", "internal/devclickhouse/libchdb/install.go", `const Version = "([^"]+)"`, "", "Apache-2.0"},
}

const root, listFile = "../..", "docs/licences.md"

var (
	write = flag.Bool("write", false, "write the list to "+listFile)
	texts = flag.String("texts", "", "write all texts into this file, to go where the programs go: most licences ask for it")
)

func TestList_IsCurrentAndAllowed(t *testing.T) {
	t.Parallel()

	works, err := collect()
	if err != nil {
		t.Fatal(err)
	}

	list, all := render(works), allTexts(works)
	if *write {
		err = os.WriteFile(filepath.Join(root, listFile), list, 0o644)
	}

	if *texts != "" {
		err = errors.Join(err, os.WriteFile(*texts, all, 0o644))
	}

	kept, unread := os.ReadFile(filepath.Join(root, listFile))
	if err := errors.Join(err, unread); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, list) {
		t.Errorf("%s is not current: go test ./internal/licences -write, and look at what has changed", listFile)
	}

	for _, w := range works {
		if len(w.texts) > 0 && !bytes.Contains(all, []byte("==== "+w.name+" ")) {
			t.Errorf("the texts lack %s", w.name)
		}
	}
}

// work is something that others have written.
type work struct {
	name, version string
	licences      []string
	texts         []text
}

type text struct {
	file    string // below the work's own folder
	content []byte
}

func render(works []*work) []byte {
	b := fmt.Appendf(nil, `# Licences of what the programs contain

Made by %s from the texts that came with each; a test holds that
it is current. With -texts=/FILE it writes all texts into one file, which has to go where the programs
go. Allowed are: %s.

| what | version | licence |
|---|---|---|
`, "`go test ./internal/licences -write`", strings.Join(allowed, ", "))

	for _, w := range works {
		b = fmt.Appendf(b, "| %s | %s | %s |\n", w.name, w.version, strings.Join(w.licences, ", "))
	}

	return b
}

func allTexts(works []*work) (b []byte) {
	for _, w := range works {
		for _, t := range w.texts {
			b = fmt.Appendf(b, "==== %s %s: %s\n\n%s\n\n", w.name, w.version, t.file, bytes.TrimSpace(t.content))
		}
	}
	return b
}

// collect finds everything; what is wrong with any of it is one joined error.
func collect() ([]*work, error) {
	works, err := modules()
	if err != nil {
		return nil, err
	}

	for _, b := range besides {
		content, err := os.ReadFile(filepath.Join(root, b.file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}

		version := regexp.MustCompile(b.version).FindSubmatch(content)
		if version == nil {
			return nil, fmt.Errorf("%s: no version in %s", b.name, b.file)
		}

		w := &work{name: b.name, version: string(version[1])}
		if b.licence == "" {
			w.licences = []string{b.declared}
		} else if err := w.addText(root, b.licence); err != nil {
			return nil, err
		}

		works = append(works, w)
	}

	slices.SortFunc(works, func(a, b *work) int { return strings.Compare(a.name, b.name) })
	var faults []error
	for _, w := range works {
		faults = append(faults, w.check())
	}

	return works, errors.Join(faults...)
}

// modules are the modules of which packages are linked into the programs, as they are built
// for Linux, and Go's standard library.
func modules() ([]*work, error) {
	const format = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, shipped...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}

	var works []*work
	for line := range strings.Lines(string(out)) {
		field := strings.Split(strings.TrimSpace(line), "\t")
		name, version, module, dir := field[0], field[1], field[2], field[3]
		i := slices.IndexFunc(works, func(w *work) bool { return w.name == name })
		if i < 0 {
			i = len(works)
			works = append(works, &work{name: name, version: version})
		}

		if err := works[i].addTexts(module, dir); err != nil {
			return nil, err
		}
	}

	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}

	// No version: the toolchain that builds a release need not be the one that lists.
	standard := &work{name: "Go standard library and runtime", version: "of the toolchain"}

	return append(works, standard), standard.addText(strings.TrimSpace(string(goRoot)), "LICENSE")
}

var (
	// licenceName is how files with a licence are called.
	licenceName = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|unlicense|notice|patents)([-.][^_]*)?$`)
	// notice is what goes with a licence and is none, as what Google adds about patents.
	notice = regexp.MustCompile(`(?i)^(notice|patents)`)
)

// addTexts takes the texts of a package's folder and of those above it in its module: parts
// of a module may be somebody else's.
func (w *work) addTexts(module, dir string) error {
	for ; strings.HasPrefix(dir, module); dir = filepath.Dir(dir) {
		files, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}

		for _, file := range files {
			name := file.Name()
			if file.IsDir() || !licenceName.MatchString(name) || strings.HasSuffix(name, ".go") {
				continue
			}
			if err := w.addText(module, strings.TrimPrefix(filepath.Join(dir, name), module+"/")); err != nil {
				return err
			}
		}
	}

	return nil
}

func (w *work) addText(dir, file string) error {
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}

	if !slices.ContainsFunc(w.texts, func(t text) bool { return t.file == file }) {
		w.texts = append(w.texts, text{file, content})
	}
	return nil
}

// enough is how much of a text must be that of known licences, in percent; the rest are
// names, years and headings.
const enough = 60

// check finds the licences in the texts.
func (w *work) check() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(w.name+" "+w.version+": "+format, args...))
	}
	for _, t := range w.texts {
		if notice.MatchString(path.Base(t.file)) {
			continue
		}

		coverage := licensecheck.Scan(t.content)
		var found []string
		for _, m := range coverage.Match {
			if !m.IsURL {
				found = append(found, m.ID)
			}
		}

		if len(found) == 0 || coverage.Percent < enough {
			fault("%s is no licence that is known (%.0f %% of %v)", t.file, coverage.Percent, found)
		}

		for _, id := range found {
			if !slices.Contains(allowed, id) {
				fault("%s is under %s, which is not allowed", t.file, id)
			}
		}

		w.licences = append(w.licences, found...)
	}

	if len(w.licences) == 0 && len(faults) == 0 {
		fault("no text of a licence")
	}

	slices.Sort(w.licences)
	w.licences = slices.Compact(w.licences)

	return errors.Join(faults...)
}

func TestCheck_RefusesWhatIsNotAllowed(t *testing.T) {
	t.Parallel()

	read := func(path string) string {
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}

	isc, mpl := read("internal/delivery/turkey.LICENCE"), read("loadtest/systemtest/axe/LICENSE")
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
		"more than one, allowed": {work{texts: []text{{"LICENSE", []byte(isc)}, {"b/LICENSE", []byte(read("reporting/layout/assets/vendor/chart.LICENCE"))}}}, ""},
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
