package main

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/devclickhouse/libchdb"
)

func TestRefusals(t *testing.T) {
	t.Parallel()

	c, name := database(t)
	in := func(pairs ...string) url.Values { return params(append(pairs, "database", name)...) }
	c.must(t, "CREATE TABLE t (a Int32) ENGINE = MergeTree ORDER BY a", in())
	for _, r := range []struct {
		sql    string
		values url.Values
		status int
		code   int
		says   string
	}{
		// More than one statement: none of them is run.
		{"INSERT INTO t SELECT 1; INSERT INTO t SELECT 2", in(), 400, 62, "multi-statements are not allowed"},
		{"INSERT INTO t SELECT 1; SELEC 2", in(), 400, 62, "Syntax error"},
		{"DROP TABLE t PARALLEL WITH DROP TABLE t", in(), 400, 62, "multi-statements"},
		{"INSERT INTO t VALUES (1); DROP TABLE t", in(), 400, 0, "after semicolon"},
		{"INSERT INTO t FORMAT Values (1); DROP TABLE t", in(), 400, 0, "after semicolon"},
		// What the engine's client code would take for itself.
		{"exit", in(), 400, 62, "Syntax error"},
		{"quit;", in(), 400, 62, "Syntax error"},
		{"\\q", in(), 400, 62, "Unrecognized token"},
		{"SELECT 1 INTO OUTFILE '/tmp/x'", in(), 501, 48, "INTO OUTFILE"},
		{"SELECT 1 /* c */ into -- x\n outfile '/tmp/x' TRUNCATE FORMAT CSV", in(), 501, 48, "INTO OUTFILE"},
		{"SHOW TABLES INTO OUTFILE '/tmp/x'", in(), 501, 48, "INTO OUTFILE"},
		{"INSERT INTO t FROM INFILE '/etc/passwd' FORMAT CSV", in(), 501, 48, "INFILE"},
		// Names, sizes, parameters.
		{"SELECT 1", params("database", "nope"), 404, 81, "Database nope does not exist"},
		{"SELECT 1", params("database", "x`; DROP DATABASE "+name+"; --"), 404, 81, "does not exist"},
		{"SELECT 1", in("nope", "1"), 404, 115, "Unknown setting 'nope'"},
		{"SELECT 1", in("session_id", "s"), 404, 115, "session_id"},
		{"SELECT 1", in("max_threads = 1, x", "1"), 404, 115, "Unknown setting"},
		{"SELECT 1", in("max_threads", "many"), 400, 27, ""},
		{"SELECT 1", in("default_format", "CSV; DROP"), 404, 73, "Unknown format"},
		{"SELECT 1 FORMAT Nope", in(), 404, 73, "Unknown format Nope"},
		{"INSERT INTO t SELECT 1", in("readonly", "1"), 403, 164, "readonly mode"},
		{"INSERT INTO t VALUES (1)", in("readonly", "1"), 403, 164, "readonly mode"},
		{"SELECT sleep(3)", in("max_execution_time", "0.1"), 408, 159, "Timeout exceeded"},
		{"SELECT number FROM numbers(11)", in("max_result_rows", "10"), 500, 396, "Limit for result exceeded"},
		{"SELECT 1", in("user", "bob"), 403, 516, "Authentication failed"},
		{"SELECT 1", in("password", "x"), 403, 516, "Authentication failed"},
		{"SELECT 1", in("compress", "1", "network_compression_method", "ZSTD"), 501, 48, "ZSTD"},
		{"", in(), 400, 62, "Empty query"},
		{"-- nothing", in(), 400, 62, "Empty query"},
		{"SELECT '" + strings.Repeat("x", 300<<10) + "'", in(), 400, 62, "Max query size exceeded"},
		{"SELECT '" + strings.Repeat("x", maxStatement) + "'", in(), 413, 229, "longer than"},
		{"SELECT " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000), in(), 0, 0, ""},
		{"INSERT INTO t (a)", in(), 400, 62, "Syntax error"},
		{"INSERT INTO t FORMAT CSV; 1", in(), 400, 62, "excessive ';'"},
		{"INSERT INTO nope FORMAT CSV\n1", in(), 404, 60, "nope"},
		{"INSERT INTO t FORMAT Nope\n1", in(), 404, 73, "Nope"},
		{"INSERT INTO t FORMAT CSV\nx\n", in(), 400, 0, ""},
	} {
		got := c.ask(t, r.sql, r.values)
		code := got.header.Get("X-ClickHouse-Exception-Code")
		if got.status == http.StatusOK || r.status != 0 && got.status != r.status || r.code != 0 && code != strconv.Itoa(r.code) ||
			!strings.HasPrefix(got.body, "Code: "+code+". DB::Exception: ") || !strings.Contains(got.body, r.says) {
			t.Errorf("%.80q %v: %d, code %s, %.300s", r.sql, r.values, got.status, code, got.body)
		}
	}

	if got := c.must(t, "SELECT count() FROM t", in()); got != "0\n" {
		t.Errorf("a refused statement left %s rows", got)
	}
}

func TestRefusals_OfRequests(t *testing.T) {
	t.Parallel()

	c, _ := database(t)
	one := params("query", "SELECT 1")
	for _, r := range []struct {
		method string
		values url.Values
		header http.Header
		status int
	}{
		{http.MethodGet, one, nil, 200},
		{http.MethodHead, one, nil, 200},
		{http.MethodPut, one, nil, 405},
		{http.MethodDelete, one, nil, 405},
		{http.MethodOptions, one, nil, 405},
		{http.MethodGet, params("query", "CREATE DATABASE by_get"), nil, 403},
		{http.MethodGet, params("query", "INSERT INTO t VALUES (1)"), nil, 403},
		{http.MethodGet, one, http.Header{"Origin": {"http://page.example"}}, 403},
		{http.MethodGet, one, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{http.MethodGet, one, http.Header{"Sec-Fetch-Site": {"none"}}, 200}, // typed into the address bar
		{http.MethodGet, one, http.Header{"Host": {"page.example"}}, 403},
		{http.MethodGet, one, http.Header{"Host": {"localhost:1"}}, 200},
		{http.MethodGet, one, http.Header{"Host": {"[::1]:1"}}, 200},
	} {
		if got := c.send(t, r.method, r.values, nil, r.header); got.status != r.status {
			t.Errorf("%s %v %v: %d %s", r.method, r.values, r.header, got.status, got.body)
		}
	}

	for path, status := range map[string]int{"/ping": 200, "/replicas_status": 200, "/play": 404, "/query": 404} {
		resp, err := http.Get("http://" + c.addr + path)
		noError(t, err)
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// What looks like something to refuse, and is not.
func TestAccepted(t *testing.T) {
	t.Parallel()

	c, name := database(t)
	in := params("database", name)
	c.must(t, "CREATE TABLE values (format String, into Int32) ENGINE = MergeTree ORDER BY into", in)
	for _, step := range []struct{ sql, want string }{
		{"INSERT INTO values VALUES ('SELECT 1; INTO OUTFILE', 1)", ""},
		{"insert into `values` (into, format) format TSV\n2\tFORMAT CSV\n", ""},
		{"INSERT INTO TABLE " + name + ".values SETTINGS max_threads = 1 FORMAT Values ('x', 3)", ""},
		{"INSERT INTO values SELECT 'y', 4;", ""},
		{"INSERT INTO values VALUES ('z', 6);\n", ""},
		{"INSERT INTO {t:Identifier} (into) VALUES (5)", ""},
		{"SELECT format, into FROM values ORDER BY into LIMIT 2 FORMAT CSV;;", "\"SELECT 1; INTO OUTFILE\",1\n\"FORMAT CSV\",2\n"},
		{"SELECT 1 AS format FORMAT JSONEachRow SETTINGS max_threads = 1 -- { x }", "{\"format\":1}\n"},
		{"WITH 1 AS format SELECT format -- INTO OUTFILE 'x'", "1\n"},
		{"(SELECT 1) UNION ALL (SELECT 1) SETTINGS max_threads = 1", "1\n1\n"},
		{"(SELECT 1) UNION ALL (SELECT 1) SETTINGS max_threads = 1 FORMAT CSV", "1\n1\n"},
		{"(SELECT 1) UNION ALL (SELECT 1) FORMAT CSV SETTINGS max_threads = 1", "1\n1\n"},
		{"SELECT 1 SETTINGS max_threads = 1 UNION ALL SELECT 1 SETTINGS max_threads = 1", "1\n1\n"},
		{"SELECT 1 SETTINGS max_threads = 1, log_comment = 'a' FORMAT CSV SETTINGS max_threads = 2", "1\n"},
		{"EXPLAIN SYNTAX SELECT 1", "SELECT 1\nFROM system.one\n"},
		{"EXISTS TABLE values", "1\n"},
		{"SYSTEM STOP MERGES values", ""},
		{"SYSTEM START MERGES values", ""},
		{"OPTIMIZE TABLE values FINAL", ""},
		{"KILL QUERY WHERE query_id = 'nope' FORMAT CSV", ""},
		{"SET max_threads = 1", ""},
		{"SELECT getSetting('max_threads') = 1", "0\n"},
		{"USE system", ""},
		{"SELECT currentDatabase() = 'system'", "0\n"},
		{"SELECT 1 WHERE 0 FORMAT Native", ""},
		{"INSERT INTO values FORMAT Native", ""},
		{"INSERT INTO values FORMAT CSV", ""},
	} {
		values := params("database", name, "param_t", "values")
		if got := c.ask(t, step.sql, values); got.status != http.StatusOK || got.body != step.want {
			t.Errorf("%s\n got %d %q\nwant %q", step.sql, got.status, got.body, step.want)
		}
	}
}

// With a key reading needs none, and changes need it, whatever the method and
// wherever the key stands.
func TestKey_OnlyChangesNeedIt(t *testing.T) {
	const key = "0123456789abcdef"
	for _, c := range []struct {
		name, key string
		ask       func(*http.Request)
		reads     bool
		writes    bool
	}{
		{"no key is set", "", func(*http.Request) {}, true, true},
		{"none sent", key, func(*http.Request) {}, true, false},
		{"in the URL", key, func(r *http.Request) { r.URL.RawQuery = "user=default&password=" + key }, true, true},
		{"as a header", key, func(r *http.Request) {
			r.Header.Set("X-ClickHouse-User", "default")
			r.Header.Set("X-ClickHouse-Key", key)
		}, true, true},
		{"as a password", key, func(r *http.Request) { r.SetBasicAuth("default", key) }, true, true},
		{"another", key, func(r *http.Request) { r.SetBasicAuth("default", key+"0") }, false, false},
		{"another user's", key, func(r *http.Request) { r.SetBasicAuth("root", key) }, false, false},
		{"one where none is set", "", func(r *http.Request) { r.SetBasicAuth("default", key) }, false, false},
	} {
		r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Header: http.Header{}}
		c.ask(r)
		q, err := parseRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.authorize(c.key); (err == nil) != c.reads {
			t.Errorf("%s: %v", c.name, err)
		}

		for _, class := range []libchdb.Class{libchdb.ReadOnly, libchdb.Mutating} {
			err := q.check(libchdb.Analysis{Statements: 1, Class: class})
			if c.reads && (err == nil) != (class == libchdb.ReadOnly || c.writes) {
				t.Errorf("%s, class %v: %v", c.name, class, err)
			}
		}
	}
}
