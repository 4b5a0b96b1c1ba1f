//go:build long

package systemtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// panelOpen is what the panel shows to everybody; what is not here and not in one
// of the other lists does not exist, which testPanelTableIsComplete holds.
var panelOpen = []string{
	"GET /login", "POST /login", "GET /login.css", "POST /logout", "GET /logout", "GET /favicon.ico", "GET /assets/x/panel.css",
	"GET /track/x", "GET /track/x/live", "GET /track/assets/x/y", "GET /track/a/b/c/d", "POST /track/x",
}

// panelSources are the files that register what the panel serves.
var panelSources = []string{"panel.go", "watch/watch.go", "operate/operate.go", "finance/finance.go", "tracking/tracking.go", "access/signin.go"}

// panelTable are the requests that the panel answers, by who may make them.
func panelTable() map[string][]string {
	table := map[string][]string{"everybody": panelOpen, "somebody": {"GET /"}}
	for _, page := range operatorPages {
		table["operator"] = append(table["operator"], "GET "+page)
	}
	for _, action := range operatorActions {
		table["operator"] = append(table["operator"], "POST "+action)
	}
	for _, page := range financePages {
		table["finance"] = append(table["finance"], "GET "+page)
	}
	return table
}

// testPanelTableIsComplete compares the tables with the patterns in the panel's
// source: each must be met by a request of the tables.
func testPanelTableIsComplete(t *testing.T) {
	root, err := stack.ModuleDir()
	must(t, err)
	mux := http.NewServeMux()
	missing := map[string]bool{}
	for _, name := range panelSources {
		for _, pattern := range patternsOf(t, filepath.Join(root, "reporting", name)) {
			if !missing[pattern] { // signing in is registered in two places
				mux.Handle(pattern, http.NotFoundHandler())
			}
			missing[pattern] = true
		}
	}
	if len(missing) < 40 {
		t.Errorf("the panel's source registers only %d patterns: are they written in another way?", len(missing))
	}
	fill := strings.NewReplacer("{account}", "a", "{fleet}", "f", "{store}", "s", "{order}", "o")
	for _, requests := range panelTable() {
		for _, request := range requests {
			method, path, _ := strings.Cut(fill.Replace(request), " ")
			_, pattern := mux.Handler(httptest.NewRequest(method, path, nil))
			if pattern == "" {
				t.Errorf("the panel has nothing for %s", request)
			}
			delete(missing, pattern)
		}
	}
	// Signing in has a router of its own behind these.
	for _, outer := range []string{"/login", "/logout", "/login.css"} {
		delete(missing, outer)
	}
	if len(missing) > 0 {
		t.Errorf("no table has a request for %v", slices.Sorted(maps.Keys(missing)))
	}
}

// patternsOf are the patterns that a file registers: what its calls of Handle and
// HandleFunc name, and the keys of the maps and lists that such calls go through.
func patternsOf(t *testing.T, path string) []string {
	t.Helper()
	set := token.NewFileSet()
	// The whole package, for its constants.
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.go"))
	must(t, err)
	constants := map[string]ast.Expr{}
	var source *ast.File
	for _, name := range files {
		f, err := parser.ParseFile(set, name, nil, 0)
		must(t, err)
		if name == path {
			source = f
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
				for i, name := range v.Names {
					constants[name.Name] = v.Values[i]
				}
			}
			return true
		})
	}
	p := &patterns{constants: constants, methods: map[string]string{"shown": "GET ", "actions": "POST "}}
	ast.Inspect(source, p.visit)
	for _, unread := range p.unread {
		t.Errorf("%s: the pattern cannot be read", set.Position(unread))
	}
	return p.found
}

type patterns struct {
	constants map[string]ast.Expr
	// methods are in front of the keys of what such functions return.
	methods map[string]string
	within  string // the function that is being read
	found   []string
	unread  []token.Pos
}

func (p *patterns) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		p.within = n.Name.Name
	case *ast.CompositeLit: // map[string]frame.Handler{…} and []string{…}, where a path begins
		for _, e := range n.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok {
				e = pair.Key
			}
			if text, ok := p.text(e); ok && (strings.HasPrefix(text, "/") || strings.HasPrefix(text, "GET /")) {
				p.found = append(p.found, p.methods[p.within]+text)
			}
		}
	case *ast.CallExpr:
		called, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || called.Sel.Name != "Handle" && called.Sel.Name != "HandleFunc" {
			break
		}
		for _, argument := range n.Args {
			if text, ok := p.text(argument); ok && strings.Contains(text, "/") {
				p.found = append(p.found, text)
				return true
			}
		}
		if !p.ranged(n.Args) {
			p.unread = append(p.unread, n.Pos())
		}
	}
	return true
}

// ranged tells whether a pattern is the variable of a loop over what visit reads.
func (p *patterns) ranged(arguments []ast.Expr) bool {
	return slices.ContainsFunc(arguments, func(e ast.Expr) bool {
		if sum, ok := e.(*ast.BinaryExpr); ok {
			e = sum.Y
		}
		name, ok := e.(*ast.Ident)
		return ok && (name.Name == "pattern" || name.Name == "path")
	})
}

// text is a constant's, where the source says it in so many words.
func (p *patterns) text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		if value, ok := p.constants[e.Name]; ok {
			return p.text(value)
		}
	case *ast.BinaryExpr:
		x, okX := p.text(e.X)
		y, okY := p.text(e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	}
	return "", false
}

// testPanelCredentials: what opens an API opens no page, a report token reads
// what finance reads and changes nothing, and every refusal has the same bytes.
// What sessions may is tried with the panel's other tests.
func testPanelCredentials(t *testing.T, s *site) {
	all, _ := s.credentials(t)
	before, err := s.admin.Do(t.Context(), http.MethodGet, "/accounts/"+s.a.accountID, nil)
	must(t, err)
	for _, shown := range all {
		if shown.name == "the panel's cookie" {
			continue
		}
		var first *reply
		for _, who := range []string{"somebody", "operator", "finance"} {
			for _, request := range panelTable()[who] {
				method, path, _ := strings.Cut(s.filled(request), " ")
				if shown.name == "a report token" && who == "finance" && path != "/reports/order-ledger.csv" && path != "/payments" {
					continue // finance's pages are tried with the panel's other tests, and ask ClickHouse for much
				}
				got := s.ask(t, method, s.Demo.PanelURL+path, "", shown.headers...)
				switch {
				case shown.name == "a report token" && who == "operator":
					if got.status != http.StatusForbidden || got.code() != "FORBIDDEN" {
						t.Errorf("%s with %s: %d %.200s", request, shown.name, got.status, got.body)
					}
				case shown.name == "a report token":
					if got.status >= 400 {
						t.Errorf("%s with %s: %d %.200s", request, shown.name, got.status, got.body)
					}
				default:
					if got.status != http.StatusUnauthorized || got.code() != "TOKEN_INVALID" {
						t.Errorf("%s with %s: %d %.200s", request, shown.name, got.status, got.body)
					}
					if first == nil {
						first = got
					}
					if string(got.body) != string(first.body) {
						t.Errorf("%s with %s: %s, others %s", request, shown.name, got.body, first.body)
					}
				}
			}
		}
	}
	after, err := s.admin.Do(t.Context(), http.MethodGet, "/accounts/"+s.a.accountID, nil)
	must(t, err)
	if string(after.Raw) != string(before.Raw) {
		t.Errorf("a refused request changed the account %s into %s", before.Raw, after.Raw)
	}
	testOpenPages(t, s, all)
}

// testOpenPages: what everybody may see is the same for everybody.
func testOpenPages(t *testing.T, s *site, all []credential) {
	for _, request := range panelOpen {
		method, path, _ := strings.Cut(request, " ")
		if path == "/logout" {
			continue // it is for those who are somebody, and asks for their proof
		}
		nobodys := s.ask(t, method, s.Demo.PanelURL+path, "")
		for _, shown := range all[1:] {
			if got := s.ask(t, method, s.Demo.PanelURL+path, "", shown.headers...); got.status != nobodys.status || len(got.body) != len(nobodys.body) && !strings.Contains(string(got.body), "requestId") {
				t.Errorf("%s with %s: %d, with nothing %d", request, shown.name, got.status, nobodys.status)
			}
		}
	}
}
