package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func params(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func TestFormats_AreOneDocumentEach(t *testing.T) {
	t.Parallel()

	c, _ := database(t)
	// More rows than a block has, so that a header per block would show.
	const rows = 70_000
	query := fmt.Sprintf("SELECT number AS n, concat('say \"', toString(number), '\"') AS s FROM numbers(%d)", rows)
	for format, count := range map[string]func(body string) (int, error){
		"CSV":          func(b string) (int, error) { return csvRows(b) },
		"CSVWithNames": func(b string) (int, error) { n, err := csvRows(b); return n - 1, err },
		"TSV":          func(b string) (int, error) { return strings.Count(b, "\n"), nil },
		"JSON": func(b string) (int, error) {
			var document struct {
				Data []struct{ N, S any }
				Rows int
			}

			err := json.Unmarshal([]byte(b), &document)
			return min(len(document.Data), document.Rows), err
		},
		"JSONEachRow": func(b string) (int, error) { return strings.Count(b, "}\n"), nil },
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()

			r := c.ask(t, query+" FORMAT "+format, nil)
			n, err := count(r.body)
			if r.status != http.StatusOK || n != rows || err != nil || r.header.Get("X-ClickHouse-Format") != format {
				t.Errorf("%d, %d rows, %v", r.status, n, err)
			}
			if byDefault := c.ask(t, "SELECT 1 AS n", params("default_format", format)); byDefault.body != c.must(t, "SELECT 1 AS n FORMAT "+format, nil) &&
				!strings.Contains(format, "JSON") { // these contain how long they took
				t.Errorf("default_format %s: %s", format, byDefault.body)
			}
		})
	}
}

func csvRows(body string) (int, error) {
	records, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	return len(records), err
}

func TestFormats_HTTPWithEverything(t *testing.T) {
	t.Parallel()

	c, name := database(t)
	in := func(pairs ...string) url.Values { return params(append(pairs, "database", name)...) }
	for _, step := range []struct {
		values url.Values
		body   string
		header http.Header
		want   string
	}{
		{in(), "CREATE TABLE t (a Int32, b String) ENGINE = MergeTree ORDER BY a", nil, ""},
		{in(), "INSERT INTO t VALUES (1, 'x;y'), (2, '--')", nil, ""},
		{in("query", "INSERT INTO t FORMAT CSV"), "3,\"c\n\nd\"\n", nil, ""},
		{in("query", "INSERT INTO t (b, a) FORMAT JSONEachRow"), `{"a": 4, "b": "ş"}`, nil, ""},
		{in(), "INSERT INTO t FORMAT TSV\n5\te\n", nil, ""},
		{in("query", "SELECT count(),sum(a) FROM t FORMAT CSV"), "", nil, "5,15\n"},
		{in("query", "SELECT a,b FROM t"), "WHERE a > 3 ORDER BY a", nil, "4\tş\n5\te\n"},
		{in("param_a", "3"), "SELECT b FROM t WHERE a = {a:Int32} FORMAT JSONEachRow", nil, "{\"b\":\"c\\n\\nd\"}\n"},
		{in("max_threads", "1"), "SELECT a FROM t ORDER BY a LIMIT 2",
			http.Header{"X-Clickhouse-Format": {"JSONCompactEachRow"}, "Authorization": {"Basic ZGVmYXVsdDo="}}, "[1]\n[2]\n"},
	} {
		if r := c.send(t, http.MethodPost, step.values, strings.NewReader(step.body), step.header); r.status != http.StatusOK || r.err != nil || r.body != step.want {
			t.Fatalf("%v %q\n got %d %q %v\nwant %q", step.values, step.body, r.status, r.body, r.err, step.want)
		}
	}

	// A result that breaks off is an error to the client, with the reason at its end.
	if r := c.ask(t, "SELECT throwIf(number = 3000000, 'broke') FROM numbers(4000000)", nil); r.err == nil || !strings.Contains(r.body[max(0, len(r.body)-400):], "broke") {
		t.Errorf("%d %v …%s", r.status, r.err, r.body[max(0, len(r.body)-400):])
	}

	// With wait_end_of_query it is one from the start.
	r := c.ask(t, "SELECT throwIf(number = 3000000, 'broke') FROM numbers(4000000)", params("wait_end_of_query", "1"))
	if r.status != http.StatusInternalServerError || r.header.Get("X-ClickHouse-Exception-Code") != "395" || !strings.HasPrefix(r.body, "Code: 395. DB::Exception: broke") {
		t.Errorf("%d %.200s", r.status, r.body)
	}
	if got := c.must(t, "SELECT number FROM numbers(3000000)", params("wait_end_of_query", "1")); strings.Count(got, "\n") != 3000000 {
		t.Errorf("%d bytes", len(got))
	}
}

// Nothing is compressed but by ClickHouse's own blocks, which clickhouse-go wants.
func TestFormats_AreNotCompressedByHTTP(t *testing.T) {
	t.Parallel()

	c, _ := database(t)
	r := c.send(t, http.MethodPost, nil, strings.NewReader("SELECT 1"), http.Header{"Accept-Encoding": {"gzip, br"}})
	if r.body != "1\n" || r.header.Get("Content-Encoding") != "" {
		t.Errorf("%q %v", r.body, r.header)
	}
	if r := c.send(t, http.MethodPost, nil, strings.NewReader("SELECT 1"), http.Header{"Content-Encoding": {"gzip"}}); r.status != http.StatusNotImplemented {
		t.Errorf("%d %s", r.status, r.body)
	}
}
