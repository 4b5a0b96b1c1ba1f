package main

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

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

func FuzzParseInsert(f *testing.F) {
	for _, sql := range []string{"INSERT INTO t (a) FORMAT CSV\n1", "INSERT INTO {t:Identifier} VALUES ('x;')", "# x\nINSERT INTO \"ş\" VALUES", "SELECT '"} {
		f.Add(sql)
	}

	f.Fuzz(func(t *testing.T, sql string) {
		if head, ok, err := parseInsert(sql); err == nil && ok && (!strings.HasPrefix(sql, head.text) || head.data < len(head.text)) {
			t.Errorf("head %q, data from %d", head.text, head.data)
		}
	})
}
