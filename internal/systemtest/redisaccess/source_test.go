package redisaccess

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// Which Redis commands a program can send is read from its source: from the
// methods of the ledger that its packages name, through the ledger's own
// functions, to the client's methods and the scripts. A run shows only what
// happened in it; the rare paths (a claim after a crash, a stream that was lost)
// are where a missing right would hurt.

const ledgerPath = "internal/ledger"

// goPackage is what `go list` says of a package of this module.
type goPackage struct {
	ImportPath, Dir  string
	GoFiles, Imports []string
}

func goPackages(t *testing.T) (packages []goPackage) {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	must(t, err)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, "vendorapi/")
		packages = append(packages, p)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// source type-checks this module's packages. What comes from elsewhere is left
// unknown to it: a call on an unknown type is known by its name only.
type source struct {
	t        *testing.T
	packages map[string]goPackage
	files    *token.FileSet
	checked  map[string]*checked
	ledger   map[string]reach // by function
}

type checked struct {
	types *types.Package
	files []*ast.File
	info  *types.Info
}

// reach is what a function names: functions of this module, methods of types that
// are not ours which are given a context, and scripts.
type reach struct{ functions, outside, scripts []string }

func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{t: t, packages: map[string]goPackage{}, files: token.NewFileSet(), checked: map[string]*checked{}}
	for _, p := range goPackages(t) {
		s.packages[p.ImportPath] = p
	}
	s.ledger = s.reaches(ledgerPath, nil)
	return s
}

// Import is how the type checker asks for a package.
func (s *source) Import(name string) (*types.Package, error) {
	if own, ok := strings.CutPrefix(name, "vendorapi/"); ok {
		return s.check(own).types, nil
	}
	unknown := types.NewPackage(name, path.Base(strings.TrimSuffix(name, "/v9")))
	unknown.MarkComplete()
	return unknown, nil
}

func (s *source) check(name string) *checked {
	s.t.Helper()
	if c := s.checked[name]; c != nil {
		return c
	}
	c := &checked{info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	for _, file := range s.packages[name].GoFiles {
		parsed, err := parser.ParseFile(s.files, filepath.Join(s.packages[name].Dir, file), nil, parser.SkipObjectResolution)
		must(s.t, err)
		c.files = append(c.files, parsed)
	}
	config := types.Config{Importer: s, Error: func(error) {}} // of what is unknown here
	c.types, _ = config.Check("vendorapi/"+name, s.files, c.files, c.info)
	s.checked[name] = c
	return c
}

// reaches is what every function of a package names. What is declared outside
// functions counts as the function "". Files for which skip is true are left out.
func (s *source) reaches(name string, skip func(file string) bool) map[string]reach {
	s.t.Helper()
	c := s.check(name)
	found := map[string]reach{}
	for _, file := range c.files {
		if skip != nil && skip(filepath.Base(s.files.Position(file.Package).Filename)) {
			continue
		}
		for _, d := range file.Decls {
			function := ""
			if f, ok := d.(*ast.FuncDecl); ok {
				function = c.info.Defs[f.Name].(*types.Func).FullName()
			}
			r := found[function]
			ast.Inspect(d, func(n ast.Node) bool { r.note(n, c.info); return true })
			found[function] = r
		}
	}
	return found
}

func (r *reach) note(n ast.Node, info *types.Info) {
	switch n := n.(type) {
	case *ast.Ident:
		if f, ok := info.Uses[n].(*types.Func); ok {
			r.functions = append(r.functions, f.FullName())
		}
	case *ast.SelectorExpr:
		if inner, ok := n.X.(*ast.SelectorExpr); ok && inner.Sel.Name == "scripts" {
			r.scripts = append(r.scripts, n.Sel.Name)
		}
	case *ast.CallExpr:
		method, ok := n.Fun.(*ast.SelectorExpr)
		if ok && method.Sel.Name == "TxPipeline" {
			r.outside = append(r.outside, method.Sel.Name)
		}
		if !ok || info.Uses[method.Sel] != nil || len(n.Args) == 0 {
			return
		}
		if _, imported := info.Uses[rootOf(method.X)].(*types.PkgName); imported {
			return
		}
		if first, ok := n.Args[0].(*ast.Ident); ok && first.Name == "ctx" {
			r.outside = append(r.outside, strings.Join(append([]string{method.Sel.Name}, literals(n.Args[1:])...), " "))
		}
	}
}

func rootOf(x ast.Expr) *ast.Ident {
	root, _ := x.(*ast.Ident)
	return root
}

// literals are a command's words, for Do(ctx, "CLUSTER", "MYID").
func literals(args []ast.Expr) (words []string) {
	for _, a := range args {
		if l, ok := a.(*ast.BasicLit); ok && l.Kind == token.STRING {
			words = append(words, strings.Trim(l.Value, `"`))
		}
	}
	return words
}

// program is what packages can use of the ledger, directly or not: those that the
// program is made of and part approves of.
func (s *source) program(name string, part func(pkg, file string) bool) reach {
	s.t.Helper()
	var all reach
	seen := map[string]bool{}
	var follow func(function string)
	follow = func(function string) {
		r, known := s.ledger[function]
		if !known || seen[function] {
			return
		}
		seen[function] = true
		all.outside, all.scripts = append(all.outside, r.outside...), append(all.scripts, r.scripts...)
		for _, used := range r.functions {
			follow(used)
		}
	}
	follow("") // what is made when the package is loaded
	for _, pkg := range s.parts(name) {
		if pkg == ledgerPath {
			continue
		}
		for _, r := range s.reaches(pkg, func(file string) bool { return !part(pkg, file) }) {
			for _, used := range r.functions {
				follow(used)
			}
		}
	}
	all.outside, all.scripts = unique(all.outside), unique(all.scripts)
	return all
}

// parts are the packages of this module that a program is made of.
func (s *source) parts(program string) []string {
	parts := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if !parts[name] {
			parts[name] = true
			for _, imported := range s.packages[name].Imports {
				if own, ok := strings.CutPrefix(imported, "vendorapi/"); ok {
					add(own)
				}
			}
		}
	}
	add(program)
	return slices.Sorted(maps.Keys(parts))
}

func unique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
