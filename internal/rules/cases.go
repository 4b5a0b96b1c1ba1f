package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// cases returns the ids of the cases of all switches on broken.Rule in a file, and those that it is
// compared with. A defect without any is an error: it would break every run.
func cases(path string) (ids []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SwitchStmt:
			if isBrokenRule(firstOperand(n.Tag)) {
				for _, clause := range n.Body.List {
					ids = append(ids, literals(clause.(*ast.CaseClause).List)...)
				}
			}
		case *ast.BinaryExpr:
			isComparison := n.Op == token.EQL || n.Op == token.NEQ
			if isComparison && isBrokenRule(n.X) {
				ids = append(ids, literals([]ast.Expr{n.Y})...)
			}
		}

		return true
	})

	if len(ids) == 0 {
		return nil, fmt.Errorf("%s: nothing depends on broken.Rule", path)
	}

	return ids, nil
}

// firstOperand returns broken.Rule of broken.Rule + " " + field. The cases of such a switch have the
// field behind a blank.
func firstOperand(e ast.Expr) ast.Expr {
	sum, isSum := e.(*ast.BinaryExpr)
	if !isSum {
		return e
	}
	return firstOperand(sum.X)
}

func isBrokenRule(e ast.Expr) bool {
	selector, isSelector := e.(*ast.SelectorExpr)
	if !isSelector || selector.Sel.Name != "Rule" {
		return false
	}
	name, isName := selector.X.(*ast.Ident)
	return isName && name.Name == "broken"
}

// literals returns the texts of those expressions that are literals of strings, up to a blank.
func literals(expressions []ast.Expr) (texts []string) {
	for _, e := range expressions {
		literal, isLiteral := e.(*ast.BasicLit)
		if !isLiteral || literal.Kind != token.STRING {
			continue
		}

		text, err := strconv.Unquote(literal.Value)
		if err == nil {
			id, _, _ := strings.Cut(text, " ")
			texts = append(texts, id)
		}
	}

	return texts
}
