// Command licences lists what the shipped programs contain that others have written, and
// under which licence: `make licences`. The list is committed as configs/licences.md. It
// reads the texts in the module cache and fails for a module without a text, a text that it
// does not recognise, and a licence that is not allowed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// shipped are the programs; what only tests and tools need is not listed.
var shipped = []string{"./gateway", "./worker", "./reporting"}

// allowed are the licences, as SPDX names them, that ask for no more than their text beside
// the programs. A copyleft one, of files even, is a decision that somebody has to take.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unlicense", "Zlib"}

// besides are works of others in this repository that are no Go modules: a file and a
// pattern that tell the version, and the file of the licence or, of what comes without one,
// what its metadata on npm says.
var besides = []struct{ name, file, version, licence, declared string }{
	{"htmx.org", "reporting/panel/layout/assets/vendor/README.md", `htmx\.org ([0-9.]+)`, "reporting/panel/layout/assets/vendor/htmx.LICENCE", ""},
	{"chart.js (with @kurkle/color)", "reporting/panel/layout/assets/vendor/chart.umd.min.js", `Chart\.js v([0-9.]+)`, "reporting/panel/layout/assets/vendor/chart.LICENCE", ""},
	{"outline of Turkey (@rapideditor/country-coder)", "internal/delivery/turkey.LICENCE", `version ([0-9.]+)`, "internal/delivery/turkey.LICENCE", ""},
	{"Swagger UI (in github.com/swaggest/swgui)", "gateway/docs/docs.go", `Swagger UI ([0-9.]+)`, "", "Apache-2.0"},
	{"@chdb/lib (ClickHouse as a library; for development, from npm)", "internal/devclickhouse/libchdb/install.go", `const Version = "([^"]+)"`, "", "Apache-2.0"},
}

const listFile = "configs/licences.md"

func main() {
	write := flag.Bool("write", false, "also write the list to "+listFile)
	texts := flag.String("texts", "", "also write all texts into this file, to go where the programs go: most licences ask for it")
	flag.Parse()
	if err := run(*write, *texts); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(write bool, texts string) error {
	works, err := collect(".")
	fmt.Printf("%s", render(works))
	if err == nil && write {
		err = os.WriteFile(listFile, render(works), 0o644)
	}
	if err == nil && texts != "" {
		err = os.WriteFile(texts, allTexts(works), 0o644)
	}
	return err
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

const head = `# Licences of what the programs contain

Made by ` + "`make licences ARGS=-write`" + ` from the texts that came with each; a test holds that
it is current. Allowed are: %s.

| what | version | licence |
|---|---|---|
`

func render(works []*work) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, head, strings.Join(allowed, ", "))
	for _, w := range works {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", w.name, w.version, strings.Join(w.licences, ", "))
	}
	return b.Bytes()
}

func allTexts(works []*work) []byte {
	var b bytes.Buffer
	for _, w := range works {
		for _, t := range w.texts {
			fmt.Fprintf(&b, "==== %s %s: %s\n\n%s\n\n", w.name, w.version, t.file, bytes.TrimSpace(t.content))
		}
	}
	return b.Bytes()
}

// collect finds everything below the project's folder; what is wrong with any of it is one
// joined error.
func collect(root string) ([]*work, error) {
	works, err := modules(root)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, w := range works {
		faults = append(faults, w.check())
	}
	for _, b := range besides {
		content, err := os.ReadFile(filepath.Join(root, b.file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		version := regexp.MustCompile(b.version).FindSubmatch(content)
		if version == nil {
			return nil, fmt.Errorf("%s: %s tells no version", b.name, b.file)
		}
		w := &work{name: b.name, version: strings.TrimRight(string(version[1]), "."), licences: []string{b.declared}}
		if b.declared == "" {
			w.licences = nil
			faults = append(faults, w.addText(root, filepath.Join(root, b.licence)), w.check())
		}
		works = append(works, w)
	}
	slices.SortFunc(works, func(a, b *work) int { return strings.Compare(a.name, b.name) })
	return works, errors.Join(faults...)
}

// modules are the modules of which packages are linked into the programs, as they are built
// for Linux, and Go's standard library.
func modules(root string) ([]*work, error) {
	const format = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, shipped...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	byName := map[string]*work{}
	var works []*work
	for line := range strings.Lines(string(out)) {
		field := strings.Split(strings.TrimSpace(line), "\t")
		name, version, module, dir := field[0], field[1], field[2], field[3]
		if byName[name] == nil {
			byName[name] = &work{name: name, version: version}
			works = append(works, byName[name])
		}
		if err := byName[name].addTexts(module, dir); err != nil {
			return nil, err
		}
	}
	goRoot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	// No version: the toolchain that builds a release need not be the one that lists.
	standard := &work{name: "Go standard library and runtime", version: "of the toolchain"}
	dir := strings.TrimSpace(string(goRoot))
	return append(works, standard), standard.addText(dir, filepath.Join(dir, "LICENSE"))
}

// licenceName is how files with a licence are called.
var licenceName = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|unlicense|notice|patents)([-.][^_]*)?$`)

// addTexts takes the texts of a package's folder and of those above it in its module: parts
// of a module may be somebody else's.
func (w *work) addTexts(module, dir string) error {
	for ; strings.HasPrefix(dir, module); dir = filepath.Dir(dir) {
		files, err := fs.Glob(os.DirFS(dir), "*")
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		for _, file := range files {
			info, err := os.Stat(filepath.Join(dir, file))
			if err != nil || info.IsDir() || !licenceName.MatchString(file) || strings.HasSuffix(file, ".go") {
				continue
			}
			if err := w.addText(module, filepath.Join(dir, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *work) addText(base, file string) error {
	name, err := filepath.Rel(base, file)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if slices.ContainsFunc(w.texts, func(t text) bool { return t.file == name }) {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	w.texts = append(w.texts, text{name, content})
	return nil
}

// enough is how much of a text must be that of known licences, in percent; the rest are
// names, years and headings.
const enough = 60

// check finds the licences in the texts.
func (w *work) check() error {
	var faults []error
	for _, t := range w.texts {
		// Notices go with a licence and are none, as is what Google adds about patents.
		if name := strings.ToUpper(path.Base(t.file)); strings.HasPrefix(name, "NOTICE") || strings.HasPrefix(name, "PATENTS") {
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
			faults = append(faults, fmt.Errorf("%s %s: %s is no licence that is known (%.0f %% of %v)", w.name, w.version, t.file, coverage.Percent, found))
		}
		for _, id := range found {
			if !slices.Contains(allowed, id) {
				faults = append(faults, fmt.Errorf("%s %s: %s is under %s, which is not allowed", w.name, w.version, t.file, id))
			}
		}
		w.licences = append(w.licences, found...)
	}
	if len(w.licences) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s %s: no text of a licence", w.name, w.version))
	}
	slices.Sort(w.licences)
	w.licences = slices.Compact(w.licences)
	return errors.Join(faults...)
}
