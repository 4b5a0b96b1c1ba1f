package systemtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// How many lines a function may have, from its name to its closing brace, the rows
// of tables and other literals apart: those are read one by one. A test that would
// lose its thread in pieces may take somewhat longer, and says so at its head.
const (
	longest      = 60
	longestStory = 80
	saysStory    = "One story"
)

func TestFunctions_AreShortButForTheirTables(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if e.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				most := longest
				if strings.HasPrefix(f.Name.Name, "Test") && strings.HasSuffix(path, "_test.go") && strings.Contains(f.Doc.Text(), saysStory) {
					most = longestStory
				}
				if n := linesOf(positions, f); n > most {
					t.Errorf("%s: %s has %d lines besides its tables", positions.Position(f.Pos()), f.Name.Name, n)
				}
			}
		}
		return nil
	}))
}

// linesOf counts the lines of a function, of each literal in it only the first.
func linesOf(positions *token.FileSet, f *ast.FuncDecl) int {
	span := func(n ast.Node) int { return positions.Position(n.End()).Line - positions.Position(n.Pos()).Line }
	lines := 1 + span(f)
	ast.Inspect(f, func(n ast.Node) bool {
		literal, is := n.(*ast.CompositeLit)
		if is {
			lines -= span(literal)
		}
		return !is // what a literal holds was taken off with it
	})
	return lines
}
