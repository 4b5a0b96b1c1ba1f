package main

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseStatement_FindsTheClauses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sql, query, format string }{ // query: what stands before the clauses
		{"SELECT 1", "SELECT 1", ""},
		{"SELECT 1;", "SELECT 1", ""},
		{"SELECT 1 ; ; -- c\n", "SELECT 1 ", ""},
		{"SELECT 1 FORMAT CSV", "SELECT 1 ", "CSV"},
		{"SELECT 1\nformat/**/Csv;", "SELECT 1\n", "Csv"},
		{"SELECT 1 FORMAT CSV SETTINGS a = 1", "SELECT 1 ", "CSV"},
		{"SELECT 1 SETTINGS a = 1, b = 'FORMAT' FORMAT CSV", "SELECT 1 ", "CSV"},
		{"SELECT 1 SETTINGS a = 1", "SELECT 1 ", ""},
		{"SELECT 1 SETTINGS a = 1 FORMAT CSV SETTINGS b = 2", "SELECT 1 SETTINGS a = 1 ", "CSV"},
		{"SELECT 1 SETTINGS a = 1 UNION ALL SELECT 2", "SELECT 1 SETTINGS a = 1 UNION ALL SELECT 2", ""},
		{"SELECT (SELECT 1 SETTINGS a = 1)", "SELECT (SELECT 1 SETTINGS a = 1)", ""},
		{"SELECT format FROM t", "SELECT format FROM t", ""},
		{"SELECT 1 AS format, settings FORMAT TSV", "SELECT 1 AS format, settings ", "TSV"},
		{"SELECT 'FORMAT CSV'", "SELECT 'FORMAT CSV'", ""},
		{"SELECT `FORMAT CSV` -- FORMAT CSV", "SELECT `FORMAT CSV` -- FORMAT CSV", ""},
		{"SELECT 'it\\'s', 'it''s;' FORMAT CSV", "SELECT 'it\\'s', 'it''s;' ", "CSV"},
		{"SELECT 1 /* unfinished FORMAT CSV", "SELECT 1 /* unfinished FORMAT CSV", ""},
		{"SELECT 'unfinished", "SELECT 'unfinished", ""},
		{"", "", ""},
	} {
		s, err := parseStatement(c.sql)
		if err != nil || s.text[:s.tail] != c.query || s.format != c.format {
			t.Errorf("%q: %q, format %q, %v", c.sql, s.text[:s.tail], s.format, err)
		}
	}
}

func TestParseInsert_FindsTheData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sql, head, format, data string }{
		{"INSERT INTO t VALUES (1)", "INSERT INTO t ", "Values", " (1)"},
		{"insert into t (a, b) values", "insert into t (a, b) ", "Values", ""},
		{"-- c\nINSERT /* VALUES */ INTO t FORMAT CSV\n1,2", "-- c\nINSERT /* VALUES */ INTO t ", "CSV", "1,2"},
		{"INSERT INTO t FORMAT CSV \r\n\n1", "INSERT INTO t ", "CSV", "\n1"},
		{"INSERT INTO t FORMAT JSONEachRow {\"a\": 1}", "INSERT INTO t ", "JSONEachRow", "{\"a\": 1}"},
		{"INSERT INTO t FORMAT Native", "INSERT INTO t ", "Native", ""},
		{"INSERT INTO d.values (format) SETTINGS a = 'FORMAT x' FORMAT TSV\nx", "INSERT INTO d.values (format) SETTINGS a = 'FORMAT x' ", "TSV", "x"},
		{"INSERT INTO `format`.\"values\" VALUES (1)", "INSERT INTO `format`.\"values\" ", "Values", " (1)"},
		{"INSERT INTO {t:Identifier} VALUES (1)", "INSERT INTO {t:Identifier} ", "Values", " (1)"},
		{"INSERT INTO TABLE FUNCTION remote('h', d.t) VALUES (1)", "INSERT INTO TABLE FUNCTION remote('h', d.t) ", "Values", " (1)"},
	} {
		head, ok, err := parseInsert(c.sql)
		if err != nil || !ok || head.text != c.head || head.format != c.format || c.sql[head.data:] != c.data {
			t.Errorf("%q: %+v %v %v", c.sql, head, ok, err)
		}
	}
	for _, sql := range []string{
		"SELECT 1", "", "INSERT", "INSERT INTO", "INSERT INTO t", "INSERT INTO t SELECT 1 FORMAT CSV", "INSERT INTO t (SELECT 1 AS values)",
		"INSERT INTO t WITH 1 AS x SELECT x", "WITH 1 AS x INSERT INTO t VALUES (1)", "INSERT INTO {t", "INSERT INTO t FORMAT",
	} {
		if head, ok, err := parseInsert(sql); ok || err != nil {
			t.Errorf("%q: %+v, %v", sql, head, err)
		}
	}
}

func TestValuesData_EndsAtTheSemicolon(t *testing.T) {
	t.Parallel()
	for text, fine := range map[string]bool{
		"(1)": true, "(1);": true, "(1); \n;": true, "(';')": true, "('a''; b')": true, `('\';')`: true, "": true,
		"(1);(2)": false, "(1); SELECT 1": false, `('\\');x`: false,
	} {
		for _, data := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			got, err := io.ReadAll(&valuesData{data: data})
			if fine != (err == nil) || fine && string(got) != text {
				t.Errorf("%q: %q %v", text, got, err)
			}
		}
	}
}

// Whatever the text, the parts lie within it, and the clause by which the
// result leaves the engine stands outside of every string and comment.
func FuzzParse(f *testing.F) {
	for _, sql := range []string{
		"SELECT 1 FORMAT CSV SETTINGS a = 1;", "INSERT INTO t (a) FORMAT CSV\n1", "SELECT 'a\\'b' -- c", "SELECT $a$ x $a$ /* y",
		"SELECT `x` SETTINGS a = {x:Y} UNION ALL (SELECT 2);;", "INSERT INTO {t:Identifier} VALUES ('x;')", "# x\nSELECT \"ş\"",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		if head, ok, err := parseInsert(sql); err == nil && ok && !strings.HasPrefix(sql, head.text) {
			t.Errorf("head %q", head.text)
		} else if ok {
			_ = sql[head.data:]
		}
		s, err := parseStatement(sql)
		if err != nil {
			return
		}
		if !strings.HasPrefix(sql, s.text) || s.tail < 0 || s.tail > len(s.text) {
			t.Errorf("text %q, tail %d", s.text, s.tail)
		}
		clause := "\nINTO OUTFILE '/dev/fd/7' APPEND "
		if s.format == "" {
			clause += "FORMAT CSV "
		}
		if with := s.into(7, "CSV"); with != s.text[:s.tail]+clause+s.text[s.tail:] {
			t.Errorf("%q became %q", sql, with)
		}
		// Read again, the clause is seen: it is in no string and no comment.
		unfinished := strings.Contains(sql, "/*") || strings.ContainsAny(sql, "'\"`$([{)]}")
		if _, err := parseStatement(s.into(7, "CSV")); err == nil && !unfinished {
			t.Errorf("%q hides the clause", sql)
		}
	})
}
