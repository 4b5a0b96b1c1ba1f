package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// standins is the folder of what every build of the simulation replaces.
const standins = "loadtest/simulation/testdata/standins"

// An overlay is what `go build -overlay` puts in the place of the module's files, by their paths.
type overlay struct {
	module  string
	texts   map[string][]byte
	removed []string
	renamed map[string]bool // package.declaration
}

// newOverlay makes an overlay of folders whose files stand below the paths of the packages that they change. What a
// Go file declares takes the place of what the package declares under the same name, which stays as <name>Original. A
// Lua file is appended to the one of the same path: a later local function hides an earlier one.
func newOverlay(module string, folders ...string) (*overlay, error) {
	o := &overlay{module: module, texts: make(map[string][]byte), renamed: make(map[string]bool)}
	if err := o.importGateway(); err != nil {
		return nil, err
	}
	if err := o.waitDurably("internal/ledger"); err != nil {
		return nil, err
	}
	for _, path := range drawers {
		if err := o.drawBySeed(path); err != nil {
			return nil, err
		}
	}
	for i, folder := range folders {
		root := filepath.Join(module, folder)
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return o.add(path, relative, i)
		})
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

// waitDurably replaces the mutexes of a package by locks that are made of a channel. Who waits for a mutex does not
// count as blocked in a bubble, which would never come to rest while a call of Redis is made under it.
func (o *overlay) waitDurably(path string) error {
	files, err := filepath.Glob(filepath.Join(o.module, path, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := o.read(file)
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(string(text), "sync.Mutex") {
			continue
		}
		text = regexp.MustCompile(`\bsync\.Mutex\b`).ReplaceAll(text, []byte("durableLock"))
		o.texts[file] = append(text, "\nvar _ sync.Once\n"...)
	}
	return nil
}

// drawers are the packages that draw numbers which reach Redis, or times.
var drawers = []string{"gateway", "internal/ledger", "worker/dispatch"}

// drawBySeed replaces the source that nobody can seed.
func (o *overlay) drawBySeed(path string) error {
	files, err := filepath.Glob(filepath.Join(o.module, path, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := o.read(file)
		if err != nil {
			return err
		}
		const drawn = `"math/rand/v2"`
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), drawn) {
			o.texts[file] = []byte(strings.Replace(string(text), drawn, `rand "vendorapi/loadtest/simulation/chance"`, 1))
		}
	}
	return nil
}

// importGateway makes a package of the gateway's program, which no other package could import.
func (o *overlay) importGateway() error {
	files, err := filepath.Glob(filepath.Join(o.module, "gateway", "*.go"))
	if err != nil {
		return err
	}
	clause := regexp.MustCompile(`(?m)^package main$`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			o.removed = append(o.removed, file) // they are of package main, too
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		o.texts[file] = clause.ReplaceAll(text, []byte("package gateway"))
	}
	return nil
}

func (o *overlay) read(file string) ([]byte, error) {
	if text, changed := o.texts[file]; changed {
		return text, nil
	}
	return os.ReadFile(file)
}

func (o *overlay) add(path, relative string, layer int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	target := filepath.Join(o.module, relative)
	switch filepath.Ext(path) {
	case ".lua":
		before, err := o.read(target)
		if err != nil {
			return err
		}
		o.texts[target] = slices.Concat(before, []byte("\n"), text)
	case ".go":
		folder, name := filepath.Split(target)
		if err := o.replace(folder, path, text); err != nil {
			return err
		}
		o.texts[filepath.Join(folder, fmt.Sprintf("simulated_%d_%s", layer, name))] = text
	default:
		return fmt.Errorf("%s is neither Go nor Lua", path)
	}
	return nil
}

// replace renames the declarations of a package that a file declares, too.
func (o *overlay) replace(folder, path string, text []byte) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	wanted := make(map[string]bool)
	for _, name := range declared(parsed) {
		wanted[nameOf(name)] = true
	}

	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	for file := range o.texts { // those that another layer has added
		if filepath.Dir(file) == filepath.Clean(folder) && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if err := o.rename(file, wanted); err != nil {
			return err
		}
	}
	var missing []error
	for name := range wanted {
		usesOriginal := strings.Contains(string(text), lastPart(name)+"Original")
		if usesOriginal && !o.renamed[filepath.Clean(folder)+"."+name] {
			missing = append(missing, fmt.Errorf("%s: the package has no %s", path, name))
		}
	}
	return errors.Join(missing...)
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func (o *overlay) rename(file string, wanted map[string]bool) error {
	text, err := o.read(file)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return err
	}
	var ends []int
	for _, name := range declared(parsed) {
		if full := nameOf(name); wanted[full] {
			ends = append(ends, files.Position(name.ident.End()).Offset)
			o.renamed[filepath.Dir(file)+"."+full] = true
		}
	}
	if len(ends) == 0 {
		return nil
	}

	slices.Sort(ends)
	for _, end := range slices.Backward(ends) {
		text = slices.Concat(text[:end], []byte("Original"), text[end:])
	}
	o.texts[file] = text
	return nil
}

// declaration is a name that a file declares; receiver is the type of a method.
type declaration struct {
	ident    *ast.Ident
	receiver string
}

func nameOf(d declaration) string {
	if d.receiver == "" {
		return d.ident.Name
	}
	return d.receiver + "." + d.ident.Name
}

func declared(file *ast.File) (all []declaration) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, declaration{ident: d.Name, receiver: receiverOf(d)})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						all = append(all, declaration{ident: name})
					}
				case *ast.TypeSpec:
					all = append(all, declaration{ident: spec.Name})
				}
			}
		}
	}
	// "_" and "init" may be declared any number of times. Intervals of the simulation are each package's own.
	return slices.DeleteFunc(all, func(d declaration) bool {
		return d.receiver == "" && (d.ident.Name == "_" || d.ident.Name == "init")
	})
}

func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	kind := f.Recv.List[0].Type
	if pointer, isPointer := kind.(*ast.StarExpr); isPointer {
		kind = pointer.X
	}
	if name, isName := kind.(*ast.Ident); isName {
		return name.Name
	}
	return ""
}

// write writes the files to dir, and returns the file for -overlay.
func (o *overlay) write(dir string) (string, error) {
	replaced := make(map[string]string)
	for _, file := range o.removed {
		replaced[file] = ""
	}
	for file, text := range o.texts {
		relative, err := filepath.Rel(o.module, file)
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, strings.ReplaceAll(relative, string(filepath.Separator), "_"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
		replaced[file] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
