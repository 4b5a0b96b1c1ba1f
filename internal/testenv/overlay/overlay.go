// Package overlay replaces declarations of the module's packages in a build, without a change of
// their files. A Go file declares what takes the place of the declaration of the same name, which
// stays as <name>Original, so that a function can be wrapped and a constant be derived:
//
//	// Deadline lets events be sent for three days instead of one.
//	func (d *Delivery) Deadline() time.Time { return d.DeadlineOriginal().Add(48 * time.Hour) }
//
// A Lua file changes a script in the same way. A local function takes the place of the script's, which stays
// as <name>_original; statements take the place of the whole script, which they can call as
// original(KEYS, ARGV).
//
// Nothing refers to source text, so that moving or rewriting code breaks no replacement, while
// renaming what it replaces is an error and not silence.
package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An Overlay is a set of texts that a build sees in the place of the module's files, or beside
// them. All paths of files are absolute.
type Overlay struct {
	module  string
	texts   map[string][]byte
	removed map[string]bool

	replaced map[string]bool // what is replaced: the package's folder or the script, a blank, the declaration
}

// New returns an overlay of the module in a folder that changes nothing yet.
func New(module string) *Overlay {
	return &Overlay{
		module:   module,
		texts:    make(map[string][]byte),
		removed:  make(map[string]bool),
		replaced: make(map[string]bool),
	}
}

// Read returns the text of a file as the build sees it.
func (o *Overlay) Read(file string) ([]byte, error) {
	if text, changed := o.texts[file]; changed {
		return text, nil
	}
	return os.ReadFile(file)
}

// Set gives a file a text, or adds the file.
func (o *Overlay) Set(file string, text []byte) { o.texts[file] = text }

// Remove hides a file from the build.
func (o *Overlay) Remove(file string) {
	delete(o.texts, file)
	o.removed[file] = true
}

// AddTree adds the files of a folder, each to the package or Lua file at the same path in the
// module. See Add.
func (o *Overlay) AddTree(folder string) error { return eachOfTree(folder, o.Add) }

// ReplaceTree is AddTree of files that must not declare anything new. See Replace.
func (o *Overlay) ReplaceTree(folder string) error { return eachOfTree(folder, o.Replace) }

// eachOfTree calls do with each file of a folder, and with its path in there.
func eachOfTree(folder string, do func(source, target string) error) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		target, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return do(path, target)
	})
}

// Add replaces what a Go file declares, and adds what it declares besides, or replaces what a Lua
// file declares. The target is a path in the module: of a Go file, whose folder is the package, or
// of the script. To use a declaration's Original that does not exist is an error, and so is to
// replace a declaration twice.
func (o *Overlay) Add(source, target string) error {
	_, err := o.add(source, target)
	return err
}

// Replace is Add of a Go file that must not declare anything new but methods of a type that it
// replaces, or of a Lua file, which never may.
func (o *Overlay) Replace(source, target string) error {
	unmatched, err := o.add(source, target)
	if err == nil && len(unmatched) > 0 {
		return fmt.Errorf("%s: the package has no %s to be replaced", source, strings.Join(unmatched, ", "))
	}
	return err
}

// add returns which declarations of the file have replaced nothing.
func (o *Overlay) add(source, target string) (unmatched []string, err error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}

	path := filepath.Join(o.module, target)

	switch filepath.Ext(source) {
	case ".lua":
		return nil, o.replaceScript(path, source, string(text))

	case ".go":
		folder := filepath.Dir(path)
		unmatched, err := o.replace(folder, source, text)
		if err != nil {
			return nil, err
		}
		o.texts[o.unusedName(folder, filepath.Base(path))] = text
		return unmatched, nil

	default:
		return nil, fmt.Errorf("%s is neither Go nor Lua", source)
	}
}

// unusedName returns a file in the folder that neither the module nor the overlay has.
func (o *Overlay) unusedName(folder, name string) string {
	for i := 0; ; i++ {
		file := filepath.Join(folder, fmt.Sprintf("overlay%d_%s", i, name))
		if _, err := o.Read(file); err != nil {
			return file
		}
	}
}

// replace renames the declarations of the package in a folder that the text of source declares, too.
func (o *Overlay) replace(folder, source string, text []byte) (unmatched []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), source, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	wanted := make(map[string]bool)
	for _, d := range declarations(parsed) {
		wanted[d.String()] = true
	}

	files, err := o.filesOf(folder)
	if err != nil {
		return nil, err
	}

	renamed := make(map[string]bool)
	for _, file := range files {
		if err := o.rename(file, parsed.Name.Name, wanted, renamed); err != nil {
			return nil, err
		}
	}

	for _, name := range originals(parsed) {
		exists := slices.ContainsFunc(slices.Collect(maps.Keys(renamed)), func(full string) bool {
			return full == name || strings.HasSuffix(full, "."+name)
		})
		if !exists {
			return nil, fmt.Errorf("%s: %sOriginal is used, but the package has no %[2]s, or the file does not replace it", source, name)
		}
	}

	for name := range wanted {
		receiver, _, isMethod := strings.Cut(name, ".")
		isOfReplaced := isMethod && renamed[receiver] // a type may get additional methods
		if !renamed[name] && !isOfReplaced {
			unmatched = append(unmatched, name)
			continue
		}

		if err := o.claim(folder, source, name); err != nil {
			return nil, err
		}
	}

	slices.Sort(unmatched)

	return unmatched, nil
}

// claim notes that a declaration in a folder or script is replaced, which can be done once.
func (o *Overlay) claim(where, source, name string) error {
	declaration := where + " " + name
	if o.replaced[declaration] {
		return fmt.Errorf("%s: %s has been replaced already", source, name)
	}
	o.replaced[declaration] = true
	return nil
}

// filesOf returns the Go files of a package without tests, those of the overlay included.
func (o *Overlay) filesOf(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}

	for file := range o.texts {
		isOfPackage := filepath.Dir(file) == folder && filepath.Ext(file) == ".go"
		if isOfPackage && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}

	return slices.DeleteFunc(files, func(file string) bool {
		return strings.HasSuffix(file, "_test.go") || o.removed[file]
	}), nil
}

// rename renames the wanted declarations of a file of the named package, and notes them in renamed.
func (o *Overlay) rename(file, packageName string, wanted, renamed map[string]bool) error {
	text, err := o.Read(file)
	if err != nil {
		return err
	}

	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}

	if parsed.Name.Name != packageName {
		return fmt.Errorf("%s is of package %s, and what replaces a part of it of package %s", file, parsed.Name.Name, packageName)
	}

	var ends []int // of the names, from the file's beginning
	for _, d := range declarations(parsed) {
		if wanted[d.String()] {
			ends = append(ends, files.Position(d.name.End()).Offset)
			renamed[d.String()] = true
		}
	}

	if len(ends) == 0 {
		return nil
	}

	slices.Sort(ends)
	for _, end := range slices.Backward(ends) {
		text = slices.Concat(text[:end], []byte(suffix), text[end:])
	}

	o.texts[file] = text

	return nil
}

// suffix follows the name of a declaration that has been replaced.
const suffix = "Original"

// fileName makes the name of a file of its path, another one for each.
var fileName = strings.NewReplacer("_", "__", string(filepath.Separator), "_")

// Write writes the texts to a folder and returns the file that `go build -overlay` takes. Names and
// texts are the same each time, so that the compiler's cache knows them.
func (o *Overlay) Write(folder string) (file string, err error) {
	replaced := make(map[string]string)
	for file := range o.removed {
		replaced[file] = ""
	}

	var errs []error
	for file, text := range o.texts {
		relative, err := filepath.Rel(o.module, file)
		if err != nil {
			return "", err
		}
		path := filepath.Join(folder, fileName.Replace(relative))
		errs = append(errs, os.WriteFile(path, text, 0o600))
		replaced[file] = path
	}

	text, err := json.MarshalIndent(map[string]any{"Replace": replaced}, "", "\t")
	if err != nil {
		return "", err
	}

	file = filepath.Join(folder, "overlay.json")
	errs = append(errs, os.WriteFile(file, text, 0o600))

	return file, errors.Join(errs...)
}

// A declaration is what a file declares outside of functions.
type declaration struct {
	receiver string // the type of a method
	name     *ast.Ident
}

// String returns the declaration's name, of a method that of its type before it.
func (d declaration) String() string {
	if d.receiver == "" {
		return d.name.Name
	}
	return d.receiver + "." + d.name.Name
}

// declarations returns what a file declares. "_" and "init", which may be declared any number of
// times, are left out.
func declarations(file *ast.File) (all []declaration) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, declaration{receiver: receiverOf(d), name: d.Name})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						all = append(all, declaration{name: name})
					}
				case *ast.TypeSpec:
					all = append(all, declaration{name: spec.Name})
				}
			}
		}
	}

	return slices.DeleteFunc(all, func(d declaration) bool {
		name := d.String()
		return name == "_" || name == "init"
	})
}

// receiverOf returns the name of the type that a method is of, and nothing for a function.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}

	for expression := f.Recv.List[0].Type; ; {
		switch e := expression.(type) {
		case *ast.StarExpr:
			expression = e.X
		case *ast.IndexExpr:
			expression = e.X
		case *ast.IndexListExpr:
			expression = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// originals returns the names of the replaced declarations that a file uses.
func originals(file *ast.File) (names []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		ident, isIdent := node.(*ast.Ident)
		if !isIdent {
			return true
		}

		name, isOriginal := strings.CutSuffix(ident.Name, suffix)
		if isOriginal && name != "" {
			names = append(names, name)
		}
		return true
	})

	return names
}
