package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint/point"
)

// A failpoint that no request carries, or at which no fault strikes, would otherwise be found in a run
// only, whose traps wait in vain.
func TestPoints_AreMarkedAndUsed(t *testing.T) {
	module, err := stack.ModuleDir()
	noError(t, err)
	marked := markedPoints(t, filepath.Join(module, failpointsFolder))
	faults, err := loadFaults(&options{})
	noError(t, err)

	for name, p := range declaredPoints(t) {
		if !slices.Contains(marked, name) {
			t.Errorf("no request is marked with point.%s", name)
		}

		isUsed := slices.ContainsFunc(faults, func(f fault) bool {
			return slices.ContainsFunc(f.At, func(w way) bool { return slices.Contains(w.Points, p) })
		})
		if !isUsed {
			t.Errorf("no fault strikes at %s", p)
		}
	}
}

// declaredPoints returns the failpoints of package point by the names of their constants.
func declaredPoints(t *testing.T) map[string]point.Point {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("failpoint", "point", "point.go"), nil, 0)
	noError(t, err)

	points := make(map[string]point.Point)
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isSpec := node.(*ast.ValueSpec)
		if !isSpec {
			return true
		}

		kind, hasKind := spec.Type.(*ast.Ident)
		if !hasKind || kind.Name != "Point" {
			return true
		}

		for i, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			noError(t, err)
			points[spec.Names[i].Name] = point.Point(text)
		}

		return true
	})

	if len(points) == 0 {
		t.Fatal("package point has no failpoints")
	}

	return points
}

// markedPoints returns the names of package point that the files of a folder use.
func markedPoints(t *testing.T, folder string) (names []string) {
	t.Helper()
	noError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}

		ast.Inspect(file, func(node ast.Node) bool {
			selector, isSelector := node.(*ast.SelectorExpr)
			if !isSelector {
				return true
			}

			if source, isIdent := selector.X.(*ast.Ident); isIdent && source.Name == "point" {
				names = append(names, selector.Sel.Name)
			}
			return true
		})

		return nil
	}))

	return names
}
