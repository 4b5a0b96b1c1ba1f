package archive

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/journal"
)

// No cluster of ClickHouse runs here. These tests read the SQL that one would get.

var sqlTokens = regexp.MustCompile(`'(?:[^'\\]|\\.|'')*'|[A-Za-z_][A-Za-z0-9_]*|\S`)

// withoutGlobal finds each IN of a subquery and each JOIN that every shard would evaluate by itself,
// because it does not say GLOBAL. ClickHouse refuses it when both sides are distributed, and answers
// with what one server has when the inner side is a table of that server. A JOIN whose left side is a
// subquery is evaluated by the server that was asked, and needs no GLOBAL.
func withoutGlobal(sql string) (found []string) {
	tokens := sqlTokens.FindAllString(sql, -1)
	at := func(i int) string {
		if i < 0 || i >= len(tokens) {
			return ""
		}
		return strings.ToUpper(tokens[i])
	}

	context := func(i int) string { return strings.Join(tokens[max(i-6, 0):min(i+8, len(tokens))], " ") }

	for i := range tokens {
		switch at(i) {
		case "IN":
			hasSubquery := at(i+1) == "(" && (at(i+2) == "SELECT" || at(i+2) == "WITH")
			isGlobal := at(i-1) == "GLOBAL" || at(i-1) == "NOT" && at(i-2) == "GLOBAL"
			if hasSubquery && !isGlobal {
				found = append(found, context(i))
			}
		case "JOIN":
			before := i - 1
			for slices.Contains([]string{"INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ALL", "ANY", "SEMI", "ANTI", "ASOF", "OUTER"}, at(before)) {
				before--
			}

			isAlias := regexp.MustCompile(`^\w+$`).MatchString(at(before))
			followsSubquery := at(before) == ")" || isAlias && (at(before-1) == ")" || at(before-1) == "AS" && at(before-2) == ")")
			isFree := at(before) == "GLOBAL" || at(before) == "ARRAY" || at(i-1) == "ARRAY"
			if !isFree && !followsSubquery {
				found = append(found, context(i))
			}
		}
	}

	return found
}

func TestWithoutGlobal_FindsWhatAClusterRefuses(t *testing.T) {
	t.Parallel()

	for sql, want := range map[string]int{
		"SELECT 1 FROM orders WHERE status IN ('a', 'b') AND (a, b) IN (('x', 'y'))":                               0,
		"SELECT 1 FROM orders WHERE a GLOBAL IN (SELECT a FROM late_deliveries)":                                   0,
		"SELECT 1 FROM orders WHERE a GLOBAL NOT IN (SELECT a FROM late_deliveries)":                               0,
		"SELECT 1 FROM orders WHERE a IN (SELECT a FROM late_deliveries)":                                          1,
		"SELECT 1 FROM orders WHERE a NOT IN (\n  SELECT a FROM late_deliveries)":                                  1,
		"SELECT 1 FROM orders WHERE a GLOBAL IN (SELECT a FROM orders WHERE b in (select b FROM late_deliveries))": 1,
		"SELECT 1 FROM orders AS o GLOBAL INNER JOIN late_deliveries USING a":                                      0,
		"SELECT 1 FROM orders AS o INNER JOIN late_deliveries USING a":                                             1,
		"SELECT 1 FROM orders LEFT JOIN late_deliveries USING a":                                                   1,
		"SELECT 1 FROM (SELECT * FROM orders) AS o LEFT JOIN late_deliveries USING a":                              0,
		"SELECT 1 FROM (SELECT * FROM orders) CROSS JOIN (SELECT 1)":                                               0,
		"SELECT x FROM orders ARRAY JOIN [1, 2] AS x LEFT ARRAY JOIN [3] AS y WHERE z = 'a JOIN b IN (SELECT 1)'":  0,
	} {
		if found := withoutGlobal(sql); len(found) != want {
			t.Errorf("%s: %q", sql, found)
		}
	}
}

// The schema and the views of a cluster, as ClickHouse's own parser writes them.
func TestCluster_SubqueriesOfViewsAreGlobal(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	subqueries := 0
	for _, statement := range clusterSQL(t) {
		var formatted string
		noError(t, a.conn.QueryRow(t.Context(), "SELECT formatQuery({sql:String})", clickhouse.Named("sql", statement)).Scan(&formatted))
		for _, found := range withoutGlobal(formatted) {
			t.Errorf("%.80s: … %s …", statement, found)
		}
		subqueries += strings.Count(formatted, "GLOBAL")
	}

	if subqueries < 10 {
		t.Errorf("%d are GLOBAL", subqueries)
	}
}

// The queries in Go, of the whole of reporting.
func TestCluster_SubqueriesInGoAreGlobal(t *testing.T) {
	t.Parallel()

	queries, subqueries := 0, 0
	for _, query := range queriesIn(t, "..") {
		for _, found := range withoutGlobal(query.text) {
			t.Errorf("%s: … %s …", query.at, found)
		}
		queries++
		subqueries += strings.Count(query.text, "GLOBAL")
	}

	if queries < 30 || subqueries < 5 {
		t.Errorf("%d queries were found, %d of them with GLOBAL: the test reads too little", queries, subqueries)
	}
}

type goQuery struct {
	at   string // file and line
	text string // with what is not a text of the same file in the form of a name
}

// queriesIn returns the expressions of all Go files below a folder that have SQL, with the constants and
// variables of the same file put in.
func queriesIn(t testing.TB, folder string) (all []goQuery) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		isSource := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if err != nil || entry.IsDir() || !isSource {
			return err
		}

		files := gotoken.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}

		texts := definitions(file)
		ast.Inspect(file, func(n ast.Node) bool {
			expression, isExpression := n.(ast.Expr)
			if !isExpression {
				return true
			}

			text, isText := textOf(expression, texts, 0)
			if !isText {
				return true
			}

			if strings.Contains(text, "SELECT ") && strings.Contains(text, "FROM ") {
				all = append(all, goQuery{files.Position(n.Pos()).String(), text})
			}

			return false // its parts are in it
		})

		return nil
	})

	noError(t, err)

	return all
}

// definitions are the expressions of a file's constants and variables by their names. Of a name that is
// defined several times all count, one after the other.
func definitions(file *ast.File) map[string][]ast.Expr {
	found := map[string][]ast.Expr{}
	add := func(name ast.Expr, value ast.Expr) {
		if identifier, ok := name.(*ast.Ident); ok {
			found[identifier.Name] = append(found[identifier.Name], value)
		}
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				add(n.Names[i], value)
			}
		case *ast.AssignStmt:
			for i, value := range n.Rhs {
				if len(n.Lhs) == len(n.Rhs) {
					add(n.Lhs[i], value)
				}
			}
		}

		return true
	})

	return found
}

// textOf returns what an expression of texts is, as far as the file says.
func textOf(e ast.Expr, texts map[string][]ast.Expr, depth int) (text string, isText bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return textOf(e.X, texts, depth)
	case *ast.BasicLit:
		if e.Kind != gotoken.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, hasLeft := textOf(e.X, texts, depth)
		right, hasRight := textOf(e.Y, texts, depth)
		isSum := e.Op == gotoken.ADD && (hasLeft || hasRight)
		return orName(left, hasLeft) + orName(right, hasRight), isSum
	case *ast.Ident:
		const deepest = 8 // a name may stand in its own definition
		var all []string
		for _, definition := range texts[e.Name] {
			if depth < deepest {
				if text, ok := textOf(definition, texts, depth+1); ok {
					all = append(all, text)
				}
			}
		}

		return strings.Join(all, " "), len(all) > 0
	}

	return "", false
}

func orName(text string, isText bool) string {
	if isText {
		return text
	}
	return " x "
}

// What is stored in the books of a cluster is on most of its servers before it counts, and what is read
// there has all of that; other tables are not slowed down.
func TestCluster_BooksAreStoredWithAQuorum(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	target, err := url.Parse(e.URL)
	noError(t, err)
	sent := map[string]url.Values{} // settings by statement
	var mu sync.Mutex
	forward := httputil.NewSingleHostReverseProxy(target)
	recorder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		words := strings.Fields(query.Get("query"))
		mu.Lock()
		sent[strings.Join(words[:min(len(words), 3)], " ")] = query
		mu.Unlock()
		forward.ServeHTTP(w, r)
	}))
	defer recorder.Close()

	single := newArchive(t)
	a, err := Open(Settings{URL: recorder.URL, Database: single.database})
	noError(t, err)
	defer a.Close()
	store := func() {
		noError(t, a.Insert(t.Context(), batchOf(newOrder(account(1), 1, noon))))
		noError(t, a.InsertEntry(t.Context(), &journal.Entry{Text: `{"sequence":1}`}))
		noError(t, a.RecordDeliverySets(t.Context(), []DeliverySet{{Target: "x", Name: "y", ChangedAt: noon, DueAt: noon}}))
	}

	require := func(statement, setting, want string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := sent[statement].Get(setting); sent[statement] == nil || got != want {
			t.Errorf("%s: %s is %q, want %q", statement, setting, got, want)
		}
	}

	store()
	require("INSERT INTO journal", "insert_quorum", "")
	a.cluster = "main"
	store()
	for _, table := range []string{"journal", "delivery_sets"} {
		require("INSERT INTO "+table, "insert_quorum", "auto")
		require("INSERT INTO "+table, "insert_quorum_parallel", "0")
	}

	require("INSERT INTO orders", "insert_quorum", "")
	for _, table := range []*table{journalTable, closedOrders, closedDays, deliverySets, identity} {
		if a.storingSettings(table)["insert_quorum"] != "auto" {
			t.Errorf("%s is stored without a quorum", table.name)
		}
	}

	if a.readingSettings()["select_sequential_consistency"] != 1 || single.readingSettings()["select_sequential_consistency"] != nil {
		t.Errorf("%v, and on a single server %v", a.readingSettings(), single.readingSettings())
	}
	if reading["select_sequential_consistency"] != nil || storing["insert_quorum"] != nil {
		t.Error("the settings of single servers were changed")
	}
}
