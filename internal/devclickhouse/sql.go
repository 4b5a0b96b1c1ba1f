package main

import (
	"io"
	"strings"
)

// A lexer cuts SQL into ClickHouse's tokens, as far as it takes to find the clauses
// that the front has to know of. What it cannot read the engine's own parser refuses.
type lexer struct {
	text  string
	at    int
	depth int // of (), [] and {}
}

type tokenKind int

const (
	end    tokenKind = iota
	word             // a keyword, an identifier, a number
	quoted           // "…", `…` or '…'
	comment
	mark // any other character
)

type token struct {
	kind     tokenKind
	from, to int
	depth    int // before an opening bracket, after a closing one
}

func (l *lexer) textOf(t token) string { return l.text[t.from:t.to] }

// is tells whether t is the keyword, in any case, outside of all brackets.
func (l *lexer) is(t token, keyword string) bool {
	return t.kind == word && t.depth == 0 && strings.EqualFold(l.textOf(t), keyword)
}

func (l *lexer) isMark(t token, c byte) bool { return t.kind == mark && l.text[t.from] == c }

// next is the next token that is neither white space nor a comment.
func (l *lexer) next() token {
	for {
		for l.at < len(l.text) && strings.IndexByte(" \t\r\n\f\v", l.text[l.at]) >= 0 {
			l.at++
		}
		t := token{from: l.at, depth: l.depth}
		if l.at < len(l.text) {
			t.kind, l.at = l.measure()
		}
		t.to = l.at
		if t.kind == comment {
			continue
		}
		if t.kind == mark {
			switch l.text[t.from] {
			case '(', '[', '{':
				l.depth++
			case ')', ']', '}':
				l.depth--
				t.depth = l.depth
			}
		}
		return t
	}
}

// measure is the kind of the token at l.at and where it ends.
func (l *lexer) measure() (tokenKind, int) {
	rest := l.text[l.at:]
	switch c := rest[0]; {
	case c == '\'' || c == '"' || c == '`':
		return quoted, l.at + lengthQuoted(rest)
	case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#!"), strings.HasPrefix(rest, "# "):
		return comment, l.at + lengthUntil(rest, "\n")
	case strings.HasPrefix(rest, "/*"):
		return comment, l.at + lengthUntil(rest, "*/")
	case isWordByte(c):
		n := 1
		for n < len(rest) && (isWordByte(rest[n]) || rest[n] == '$') {
			n++
		}
		return word, l.at + n
	}
	return mark, l.at + 1
}

// Identifiers are ASCII; bytes beyond are taken for letters, so that a Turkish alias
// without quotes does not fall into pieces.
func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// lengthQuoted measures a text that opens with its quote. A backslash escapes, a
// doubled quote stands for one.
func lengthQuoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			if i+1 == len(s) || s[i+1] != s[0] {
				return i + 1
			}
			i++
		}
	}
	return len(s)
}

func lengthUntil(s, mark string) int {
	if i := strings.Index(s, mark); i >= 0 {
		return i + len(mark)
	}
	return len(s)
}

// statement is a text that is no INSERT with data.
type statement struct {
	text   string // without trailing semicolons
	format string // of its FORMAT clause; empty without one
	tail   int    // where its FORMAT and SETTINGS begin, or its end
}

func (s *statement) formatOr(fallback string) string {
	if s.format != "" {
		return s.format
	}
	return fallback
}

// parseStatement reads sql. It refuses INTO OUTFILE, which would collide with how
// results leave the engine (see execution.read).
func parseStatement(sql string) (statement, error) {
	l := &lexer{text: sql}
	clauses := outputClauses{lexer: l, format: -1, settings: -1}
	s := statement{text: sql}
	stop := -1 // where the trailing semicolons begin
	for t := l.next(); t.kind != end; t = l.next() {
		switch {
		case !l.isMark(t, ';'):
			stop = -1
		case stop < 0:
			stop = t.from
		}
		if l.is(clauses.last, "INTO") && l.is(t, "OUTFILE") {
			return s, notImplemented("INTO OUTFILE is not allowed")
		}
		clauses.next(t)
	}
	clauses.next(token{})
	if stop >= 0 {
		s.text = sql[:stop]
	}
	s.format, s.tail = clauses.name, clauses.begin(len(s.text))
	return s, nil
}

// outputClauses finds `FORMAT name` and `SETTINGS name = value, …` at the end of a
// statement, in either order. They may also be words of the query itself.
type outputClauses struct {
	*lexer
	before, last     token  // the latest two tokens
	format, settings int    // where the clauses begin; -1: nowhere
	name             string // of the format
	repeated         bool   // SETTINGS stands before FORMAT and after it
}

// next takes the next token, at last the zero one.
func (o *outputClauses) next(t token) {
	switch {
	case o.is(o.before, "FORMAT") && o.last.kind == word && !o.is(o.last, "SETTINGS") &&
		(t.kind == end || o.isMark(t, ';') || o.is(t, "SETTINGS")):
		o.format, o.name = o.before.from, o.textOf(o.last)
	case o.is(o.before, "SETTINGS") && o.last.kind == word && o.isMark(t, '='):
		o.repeated = o.settings >= 0 && o.format > o.settings
		if o.format < 0 || o.repeated {
			o.settings = o.before.from
		}
	case o.is(t, "UNION"), o.is(t, "INTERSECT"), o.is(t, "EXCEPT"):
		o.settings = -1 // they were those of one of its parts
	}
	o.before, o.last = o.last, t
}

// begin is where the first of the clauses begins, or the end of the text.
func (o *outputClauses) begin(length int) int {
	switch {
	case o.format >= 0 && (o.settings < 0 || o.repeated || o.settings > o.format):
		return o.format
	case o.settings >= 0:
		return o.settings
	}
	return length
}

// insertHead is an INSERT whose data follows, cut where the data begins.
type insertHead struct {
	text   string // up to FORMAT or VALUES
	format string
	data   int // where the data begins in the text that was parsed
}

// parseInsert looks for `INSERT INTO … VALUES` or `INSERT INTO … FORMAT name` at the
// beginning of sql, of which more may follow. ok is false for every other statement,
// INSERT … SELECT among them.
func parseInsert(sql string) (head insertHead, ok bool, err error) {
	l := &lexer{text: sql}
	if !l.is(l.next(), "INSERT") {
		return head, false, nil
	}
	for t := skipTarget(l); t.kind != end; t = l.next() {
		switch {
		case l.is(t, "SELECT"), l.is(t, "WITH"):
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

// skipTarget goes over `INTO [TABLE] name[.name]` or `INTO FUNCTION name`, so that a
// table may be called values, and returns what comes next.
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

// skipDelimiter goes over the blanks after the format's name and the one line break
// that ends the statement. Data may begin with a line break of its own.
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

// valuesData is data in the format Values. The library takes a semicolon for its end and
// forgets what follows, as ClickHouse's client does; rows must not be lost in silence,
// so they are refused, as by its server.
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
