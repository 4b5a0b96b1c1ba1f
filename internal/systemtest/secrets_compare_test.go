package systemtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// secretName is what a thing is called that must not be compared byte by byte
// until the first difference; notSecret are names that only look like it.
var (
	secretName = regexp.MustCompile(`(?i)(secret|password|csrf|signature|mac|adminkey|digest|hash|credential|token)s?$`)
	notSecret  = regexp.MustCompile(`^Code|^Endpoint`)
)

// plainly are comparisons that may be plain, with the reason.
var plainly = map[string]string{
	"reporting/access: t.digest == sha256.Sum256(nil)":        "read from the settings at the start; nobody asks",
	"reporting/access: user.credential() != s.Credential":     "both are ours: whoever asks names neither",
	"reporting/tracking: r.PathValue(\"hash\") == assetsHash": "the hash of files that everybody gets",
	"internal/ledger: current == string(secretHash[:])":       "digests of 32 random bytes, in an operator's request",
	"internal/ledger: f.secretHash != string(secretHash[:])":  "the same, of a fleet",
	"internal/ledger: known[1] == ARGV[1]":                    "digests of 32 random bytes",
	"internal/ledger: known[2] == ARGV[1]":                    "digests of 32 random bytes",
}

// Every secret that somebody shows is compared in constant time or by its digest.
// The programs' source is read for comparisons of what has a secret's name: a
// timed test of 32 bytes would tell nothing on a busy machine.
//
//rule:authentication/5
func TestSecrets_AreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	constant := 0
	for _, dir := range []string{"gateway", "gateway/token", "worker", "worker/dispatch", "reporting", "reporting/access", "reporting/frame",
		"reporting/tracking", "reporting/download", "reporting/operate", "internal/ledger", "internal/webhook", "internal/delivery"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		must(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			source, err := os.ReadFile(path)
			must(t, err)
			constant += strings.Count(string(source), "subtle.ConstantTimeCompare(") + strings.Count(string(source), "hmac.Equal(")
			for _, found := range plainComparisons(t, path, source) {
				if plainly[dir+": "+found] == "" {
					t.Errorf("%s compares a secret in plain: %s", path, found)
				}
			}
		}
	}
	// The admin key, fleets' secrets, report tokens, CSRF tokens, tracking links and
	// both signatures of webhooks. Client secrets are compared by digest in
	// count_token.lua, passwords by argon2id, sessions by digest as a key of Redis.
	if constant < 7 {
		t.Errorf("only %d comparisons in constant time are left", constant)
	}
	lua, err := os.ReadFile(filepath.Join(root, "internal/ledger/lua/count_token.lua"))
	must(t, err)
	for _, line := range regexp.MustCompile(`known\[\d\] == ARGV\[1\]`).FindAllString(string(lua), -1) {
		if plainly["internal/ledger: "+line] == "" {
			t.Errorf("count_token.lua compares %s", line)
		}
	}
}

// plainComparisons are those of a file with ==, !=, or a function that ends at the
// first difference, of something that is called like a secret with anything but a
// constant.
func plainComparisons(t *testing.T, path string, source []byte) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, 0)
	must(t, err)
	text := func(n ast.Node) string {
		return string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	suspect := func(x, y ast.Expr) bool {
		return (namesSecret(x) || namesSecret(y)) && !isConstant(x) && !isConstant(y)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && suspect(n.X, n.Y) {
				found = append(found, text(n))
			}
		case *ast.CallExpr:
			name := fmt.Sprint(text(n.Fun))
			if len(n.Args) == 2 && (name == "bytes.Equal" || name == "slices.Equal" || name == "strings.EqualFold" || name == "bytes.Compare" || name == "strings.Compare" || name == "reflect.DeepEqual") && suspect(n.Args[0], n.Args[1]) {
				found = append(found, text(n))
			}
		}
		return true
	})
	return found
}

// namesSecret tells what a secret is called, through conversions, slices, calls
// and fields.
func namesSecret(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return secretName.MatchString(e.Name) && !notSecret.MatchString(e.Name)
	case *ast.SelectorExpr:
		return namesSecret(e.Sel)
	case *ast.SliceExpr:
		return namesSecret(e.X)
	case *ast.IndexExpr:
		return namesSecret(e.X)
	case *ast.ParenExpr:
		return namesSecret(e.X)
	case *ast.StarExpr:
		return namesSecret(e.X)
	case *ast.CallExpr:
		if name, ok := e.Fun.(*ast.Ident); ok && name.Name == "len" {
			return false
		}
		if _, conversion := e.Fun.(*ast.ArrayType); (conversion || isString(e.Fun)) && len(e.Args) == 1 {
			return namesSecret(e.Args[0])
		}
		return namesSecret(e.Fun)
	}
	return false
}

func isString(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "string"
}

// isConstant: a literal, nil, a boolean, or an error's code.
func isConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "true" || e.Name == "false"
	case *ast.SelectorExpr:
		return strings.HasPrefix(e.Sel.Name, "Code")
	}
	return false
}
