package devclickhouse

import (
	"io"
	"strings"
)

// insertHead is an INSERT whose data follows, cut where the data begins.
type insertHead struct {
	text   string // up to FORMAT or VALUES
	format string
	data   int // where the data begins in the text that was parsed
}

// parseInsert looks for `INSERT INTO … VALUES` or `INSERT INTO … FORMAT name`
// at the beginning of sql, of which more may follow. ok is false for every
// other statement, INSERT … SELECT among them.
func parseInsert(sql string) (head insertHead, ok bool, err error) {
	l := &lexer{text: sql}
	if !l.is(l.next(), "INSERT") {
		return head, false, nil
	}
	t := skipTarget(l)
	for ; t.kind != end; t = l.next() {
		switch {
		case l.is(t, "SELECT"), l.is(t, "WITH"), l.is(t, "WATCH"):
			return head, false, nil
		case l.is(t, "FROM"):
			return head, false, notImplemented("INSERT … FROM INFILE is not allowed: send the data in the request")
		case l.is(t, "VALUES"):
			return insertHead{text: sql[:t.from], format: "Values", data: t.to}, true, nil
		case l.is(t, "FORMAT"):
			name := l.next()
			if name.kind != word {
				return head, false, nil
			}
			head = insertHead{text: sql[:t.from], format: l.textOf(name), data: name.to}
			head.data, err = skipDelimiter(sql, head.data)
			return head, err == nil, err
		}
	}
	return head, false, nil
}

// skipTarget goes over `INTO [TABLE] name[.name]` or `INTO FUNCTION name`, so
// that a table may be called values, and returns what comes next.
func skipTarget(l *lexer) token {
	t := l.next()
	for l.is(t, "INTO") || l.is(t, "TABLE") || l.is(t, "FUNCTION") {
		t = l.next()
	}
	for {
		if l.isMark(t, '{') { // {table:Identifier}
			for t.kind != end && !l.isMark(t, '}') {
				t = l.next()
			}
		}
		t = l.next()
		if !l.isMark(t, '.') {
			return t
		}
		t = l.next()
	}
}

// skipDelimiter goes over the blanks after the format's name and the one line
// break that ends the statement. Data may begin with a line break of its own.
func skipDelimiter(sql string, at int) (int, error) {
	at += len(sql[at:]) - len(strings.TrimLeft(sql[at:], " \t\f"))
	rest := sql[at:]
	switch {
	case strings.HasPrefix(rest, ";"):
		return at, syntaxError("You have excessive ';' symbol before data for INSERT")
	case strings.HasPrefix(rest, "\r\n"):
		return at + 2, nil
	case strings.HasPrefix(rest, "\n"), strings.HasPrefix(rest, "\r"):
		return at + 1, nil
	}
	return at, nil
}

// valuesData is data in the format Values. The library takes a semicolon for its
// end and forgets what follows, as ClickHouse's client does; rows must not be
// lost in silence, so they are refused, as by its server.
type valuesData struct {
	data                   io.Reader
	quoted, escaped, ended bool
}

func (v *valuesData) Read(p []byte) (int, error) {
	n, err := v.data.Read(p)
	for _, c := range p[:n] {
		switch {
		case v.ended:
			if strings.IndexByte("; \t\r\n\f", c) < 0 {
				return 0, syntaxError("Cannot read data after semicolon")
			}
		case v.escaped:
			v.escaped = false
		case v.quoted && c == '\\':
			v.escaped = true
		case c == '\'':
			v.quoted = !v.quoted // a doubled one closes and opens
		case c == ';':
			v.ended = !v.quoted
		}
	}
	return n, err
}
