package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// heldBy is a test and the rules that it holds.
type heldBy struct {
	folder string // of the package, below the project's, with slashes
	file   string
	name   string
	rules  []string
}

const directive = "//rule:"

// suite is what `make test` builds: on Linux, with the race detector.
var suite = build.Context{
	GOOS: "linux", GOARCH: "amd64", CgoEnabled: true, Compiler: "gc",
	BuildTags: []string{"race"}, ReleaseTags: build.Default.ReleaseTags,
}

// readTests finds every directive of the project, in the order of packages and
// names; what is wrong with any is one joined error.
func readTests(root string) (tests []heldBy, err error) {
	var faults []error
	walk := func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := e.Name(); e.IsDir() && path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
			return filepath.SkipDir
		}
		if e.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(source), directive) {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found, err := readFile(filepath.ToSlash(file), source)
		if runs, matching := suite.MatchFile(filepath.Dir(path), e.Name()); len(found) > 0 && (matching != nil || !runs) {
			err = errors.Join(err, matching, fmt.Errorf("%s: make test does not build it", file))
		}
		tests, faults = append(tests, found...), append(faults, err)
		return nil
	}
	if err := filepath.WalkDir(root, walk); err != nil {
		return nil, err
	}
	slices.SortFunc(tests, func(a, b heldBy) int {
		return strings.Compare(a.folder+"\x00"+a.name, b.folder+"\x00"+b.name)
	})
	return tests, errors.Join(faults...)
}

// readFile finds the directives of one file, which is named by its path below the
// project's folder.
func readFile(file string, source []byte) (tests []heldBy, err error) {
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, group := range tree.Comments {
		for _, c := range group.List {
			text, is := strings.CutPrefix(c.Text, directive)
			if !is {
				continue
			}
			fault := func(why string) { faults = append(faults, fmt.Errorf("%s: %s", positions.Position(c.Pos()), why)) }
			test := around(tree, c)
			if test == nil || !strings.HasSuffix(file, "_test.go") {
				fault("the directive stands on no test")
				continue
			}
			if call := leavesOut(test); call != "" {
				fault(test.Name.Name + " calls " + call + ", so it may pass without having looked")
			}
			rules := strings.Fields(text)
			if len(rules) == 0 {
				fault("the directive names no rule")
			}
			tests = addRules(tests, file, test.Name.Name, rules)
		}
	}
	return tests, errors.Join(faults...)
}

func addRules(tests []heldBy, file, name string, rules []string) []heldBy {
	for i := range tests {
		if tests[i].name == name {
			tests[i].rules = append(tests[i].rules, rules...)
			return tests
		}
	}
	folder := file[:max(strings.LastIndexByte(file, '/'), 0)]
	return append(tests, heldBy{folder: folder, file: file, name: name, rules: rules})
}

// around is the test that the comment stands above or in, or nil.
func around(file *ast.File, c *ast.Comment) *ast.FuncDecl {
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		start := f.Pos()
		if f.Doc != nil {
			start = f.Doc.Pos()
		}
		if start <= c.Pos() && c.Pos() < f.End() && isTest(f) {
			return f
		}
	}
	return nil
}

// isTest tells what `go test` runs: TestX(*testing.T) and FuzzX(*testing.F).
func isTest(f *ast.FuncDecl) bool {
	parameters := f.Type.Params.List
	if f.Recv != nil || len(parameters) != 1 || len(parameters[0].Names) > 1 {
		return false
	}
	pointer, is := parameters[0].Type.(*ast.StarExpr)
	if !is {
		return false
	}
	named, is := pointer.X.(*ast.SelectorExpr)
	if !is {
		return false
	}
	switch name := f.Name.Name; named.Sel.Name {
	case "T":
		return testName(name, "Test")
	case "F":
		return testName(name, "Fuzz")
	}
	return false
}

func testName(name, kind string) bool {
	rest, is := strings.CutPrefix(name, kind)
	return is && (rest == "" || rest[0] < 'a' || rest[0] > 'z')
}

// leavesOut is the call by which a test can end without having failed, or "".
func leavesOut(f *ast.FuncDecl) (call string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, is := n.(*ast.SelectorExpr); is && slices.Contains([]string{"Skip", "Skipf", "SkipNow", "Short"}, s.Sel.Name) {
			call = s.Sel.Name
		}
		return true
	})
	return call
}
