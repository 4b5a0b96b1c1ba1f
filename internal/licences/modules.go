package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// shipped are the programs.
var shipped = []string{"./gateway", "./worker", "./reporting", "./loadtest/receiver/receive", "./internal/stack/run", "./internal/devclickhouse"}

// listed is what `go list` says of a package that is linked into a program.
type listed struct {
	ImportPath, Dir string
	Deps            []string
	Module          *module
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// modules are the modules of which packages are linked into the programs, as they
// are built for Linux; those that only tests need are not among them.
func modules(root string) ([]work, error) {
	packages, err := linked(root)
	if err != nil {
		return nil, err
	}
	byName := map[string]*work{}
	for _, program := range shipped {
		for _, name := range packages[path.Join("vendorapi", program)].Deps {
			p := packages[name]
			m := p.Module
			if m == nil || m.Main {
				continue
			}
			if m.Replace != nil {
				m = m.Replace
			}
			w := byName[m.Path]
			if w == nil {
				w = &work{name: m.Path, version: m.Version}
				byName[m.Path] = w
			}
			if binary := path.Base(program); !slices.Contains(strings.Fields(w.in), binary) {
				w.in = strings.TrimSpace(w.in + " " + binary)
			}
			if err := w.addTexts(m.Dir, p.Dir); err != nil {
				return nil, err
			}
		}
	}
	standard, err := standardLibrary()
	if err != nil {
		return nil, err
	}
	works := []work{standard}
	for _, w := range byName {
		works = append(works, *w)
	}
	return works, nil
}

// linked are all packages of all programs, by import path.
func linked(root string) (map[string]*listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,Deps,Module"}, shipped...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, complaint.Bytes())
	}
	packages := map[string]*listed{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages[p.ImportPath] = &p
	}
}

// licenceName is how files with a licence are called.
var licenceName = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|unlicense|notice|patents)([-.][^_]*)?$`)

// addTexts takes the texts of a package's folder and of those above it in its
// module: parts of a module may be somebody else's.
func (w *work) addTexts(module, dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		for _, e := range entries {
			if e.IsDir() || !licenceName.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			if err := w.addText(module, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if dir == module || !strings.HasPrefix(dir, module) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

func (w *work) addText(base, path string) error {
	name, err := filepath.Rel(base, path)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if slices.ContainsFunc(w.texts, func(t text) bool { return t.file == name }) {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	w.texts = append(w.texts, text{name, content})
	return nil
}

// standardLibrary is Go's own. No version: the toolchain that builds a release
// need not be the one that lists.
func standardLibrary() (work, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return work{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	w := work{name: "Go standard library and runtime", version: "of the toolchain", in: "all"}
	dir := strings.TrimSpace(string(root))
	err = w.addText(dir, filepath.Join(dir, "LICENSE"))
	return w, err
}
