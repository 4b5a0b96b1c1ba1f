// Command licences lists what the programs contain that others have written, and
// under which licence each of it comes: `make licences`. The list is committed as
// configs/licences.md, and a test holds that it is current.
//
// It owns which licences are allowed, and the list of what is here besides Go
// modules. It reads the licences' texts where the modules are, in the module
// cache, with google/licensecheck; it takes nobody's word for one. It refuses
// (exit status 1) a module without a text, a text that it does not recognise, and
// a licence that is not allowed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	write := flag.Bool("write", false, "also write the list to "+listFile)
	texts := flag.String("texts", "", "also write all texts into this file, to go where the programs go: most licences ask for it")
	flag.Parse()
	if err := run(os.Stdout, *write, *texts); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

// listFile is relative to the project's folder.
var listFile = filepath.Join("configs", "licences.md")

func run(out io.Writer, write bool, texts string) error {
	root, err := moduleDir()
	if err != nil {
		return err
	}
	works, err := collect(root)
	list := render(works)
	if _, printing := out.Write(list); printing != nil || err != nil {
		return errors.Join(err, printing)
	}
	if write {
		err = os.WriteFile(filepath.Join(root, listFile), list, 0o644)
	}
	if texts != "" {
		err = errors.Join(err, os.WriteFile(texts, allTexts(works), 0o644))
	}
	return err
}

// moduleDir is the nearest folder with a go.mod, at or above the working one.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod at or above the working directory")
		}
	}
	return "", err
}

// work is something that others have written.
type work struct {
	name, version string
	in            string // what contains it
	declared      string // the licence of what comes without a text
	licences      []string
	texts         []text
}

type text struct {
	file    string // below the work's own folder
	content []byte
}

const head = `# Licences of what the programs contain

Made by ` + "`make licences`" + ` from the texts that came with each; a test holds that it is
current. Allowed are: %s.

| what | version | licence | in |
|---|---|---|---|
`

func render(works []work) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, head, strings.Join(allowed, ", "))
	for _, w := range works {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", w.name, w.version, strings.Join(w.licences, ", "), w.in)
	}
	return b.Bytes()
}

func allTexts(works []work) []byte {
	var b bytes.Buffer
	for _, w := range works {
		for _, t := range w.texts {
			fmt.Fprintf(&b, "==== %s %s: %s\n\n%s\n\n", w.name, w.version, t.file, bytes.TrimSpace(t.content))
		}
	}
	return b.Bytes()
}

// collect finds everything; what is wrong with any of it is one joined error.
func collect(root string) ([]work, error) {
	works, err := modules(root)
	if err != nil {
		return nil, err
	}
	others, err := besides(root)
	if err != nil {
		return nil, err
	}
	works = append(works, others...)
	var faults []error
	for i := range works {
		faults = append(faults, works[i].judge())
	}
	slices.SortFunc(works, func(a, b work) int { return strings.Compare(a.name, b.name) })
	return works, errors.Join(faults...)
}
