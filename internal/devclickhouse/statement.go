package devclickhouse

import (
	"regexp"
	"strings"

	"vendorapi/internal/devclickhouse/libchdb"
)

// statement is a text that is no INSERT with data, taken apart as far as the
// front needs it.
type statement struct {
	text   string // without trailing semicolons
	format string // of its FORMAT clause; empty without one
	tail   int    // where its FORMAT and SETTINGS begin, or its end
	first  string // its first two words, in capitals
	second string
}

// testHint is a comment by which ClickHouse's client code is told to expect an
// error, and then reports success. A failed statement must not.
var testHint = regexp.MustCompile(`(?i)\{[^}]*\berror\b|\{[^}]*(server|client)error\b`)

// parseStatement reads sql. It refuses what only ClickHouse's client does, on
// the client's own files: INTO OUTFILE, which would also collide with how
// results leave the engine (see execution.read).
func parseStatement(sql string) (statement, error) {
	l := &lexer{text: sql}
	clauses := outputClauses{lexer: l, format: -1, settings: -1}
	s := statement{text: sql}
	stop := -1 // where the trailing semicolons begin
	for count := 0; ; count++ {
		t := l.scan()
		for ; t.kind == comment; t = l.scan() {
			if testHint.MatchString(l.textOf(t)) {
				return s, notImplemented("a test hint in a comment: %s", l.textOf(t))
			}
		}
		if t.kind == end {
			break
		}
		switch {
		case !l.isMark(t, ';'):
			stop = -1
		case stop < 0:
			stop = t.from
		}
		s.noteWord(l, t, count)
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

func (s *statement) noteWord(l *lexer, t token, index int) {
	switch {
	case t.kind != word:
	case index == 0:
		s.first = strings.ToUpper(l.textOf(t))
	case index == 1:
		s.second = strings.ToUpper(l.textOf(t))
	}
}

// outputClauses finds `FORMAT name` and `SETTINGS name = value, …` at the end of
// a statement, in either order. They may also be words of the query itself.
type outputClauses struct {
	*lexer
	before, last     token  // the latest two tokens
	format, settings int    // where the clauses begin; -1: nowhere
	name             string // of the format
	again            bool   // SETTINGS stands before FORMAT and after it
}

// next takes the next token, at last the zero one.
func (o *outputClauses) next(t token) {
	switch {
	case o.is(o.before, "FORMAT") && o.last.kind == word && !o.is(o.last, "SETTINGS") &&
		(t.kind == end || o.isMark(t, ';') || o.is(t, "SETTINGS")):
		o.format, o.name = o.before.from, o.textOf(o.last)
	case o.is(o.before, "SETTINGS") && o.last.kind == word && o.isMark(t, '='):
		o.again = o.settings >= 0 && o.format > o.settings
		if o.format < 0 || o.again {
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
	case o.format >= 0 && (o.settings < 0 || o.again || o.settings > o.format):
		return o.format
	case o.settings >= 0:
		return o.settings
	}
	return length
}

// systemVerbs are the SYSTEM statements that concern tables, views and caches.
// The others concern the server's process, which here is this one: SHUTDOWN
// and KILL signal its whole process group, SUSPEND stops it.
var systemVerbs = map[string]bool{
	"FLUSH": true, "START": true, "STOP": true, "DROP": true, "CLEAR": true, "SYNC": true,
	"REFRESH": true, "WAIT": true, "CANCEL": true, "PAUSE": true, "RESUME": true,
}

// judge refuses what must not run in this process. analysis is the engine's
// own reading of s.text.
func (s *statement) judge(analysis libchdb.Analysis, q *request) error {
	switch {
	case analysis.Statements > 1:
		return syntaxError("%d statements in one request: multi-statements are not allowed", analysis.Statements)
	case analysis.Class == libchdb.Unknown:
		return notImplemented("a statement of an unknown kind")
	case s.first == "SYSTEM" && !systemVerbs[s.second]:
		return notImplemented("SYSTEM %s is not allowed in the embedded engine", s.second)
	case q.keyless && analysis.Class != libchdb.ReadOnly:
		return libchdb.NewException(codeReadOnly, "READONLY", "Cannot execute query in readonly mode: changes need the engine's key, as the password of the user default")
	case q.readOnly && analysis.Class != libchdb.ReadOnly:
		// As ClickHouse has it: a GET must not change anything.
		return libchdb.NewException(codeReadOnly, "READONLY", "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. You should use method POST for modifying queries")
	}
	return nil
}
