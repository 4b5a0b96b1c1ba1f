package engine

import (
	"regexp"
	"strings"

	"vendorapi/reporting/engine/libchdb"
)

// statement is a text that is no INSERT with data, taken apart as far as the
// front needs it.
type statement struct {
	text   string // without trailing semicolons
	format string // of its FORMAT clause; empty without one
	tail   int    // where its FORMAT clause begins, or its end
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
	s := statement{text: sql, tail: -1}
	l := &lexer{text: sql}
	var last, beforeLast token // the latest tokens
	count, stop := 0, -1       // stop: the first of the trailing semicolons
	for {
		t := l.scan()
		if t.kind == comment {
			if testHint.MatchString(l.textOf(t)) {
				return s, notImplemented("a test hint in a comment: %s", l.textOf(t))
			}
			continue
		}
		s.noteWord(l, t, count)
		if t.kind == end {
			break
		}
		if l.isMark(t, ';') {
			if stop < 0 {
				stop = t.from
			}
		} else {
			stop = -1
		}
		if l.is(last, "INTO") && l.is(t, "OUTFILE") {
			return s, notImplemented("INTO OUTFILE is not allowed")
		}
		if s.isFormatClause(l, beforeLast, last, t) {
			s.format, s.tail = l.textOf(last), beforeLast.from
		}
		beforeLast, last = last, t
		count++
	}
	if s.isFormatClause(l, beforeLast, last, token{}) {
		s.format, s.tail = l.textOf(last), beforeLast.from
	}
	if stop >= 0 {
		s.text = sql[:stop]
	}
	if s.tail < 0 {
		s.tail = len(s.text)
	}
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

// isFormatClause tells whether a and b are `FORMAT name` and what follows, t,
// can follow that clause: nothing, a semicolon, or SETTINGS. A column called
// format is followed by something else.
func (s *statement) isFormatClause(l *lexer, a, b, t token) bool {
	return l.is(a, "FORMAT") && b.kind == word && b.depth == 0 && !l.is(b, "SETTINGS") &&
		(t.kind == end || l.isMark(t, ';') || l.is(t, "SETTINGS"))
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
func (s *statement) judge(analysis libchdb.Analysis, readOnly bool) error {
	switch {
	case analysis.Statements > 1:
		return syntaxError("%d statements in one request: multi-statements are not allowed", analysis.Statements)
	case analysis.Class == libchdb.Unknown:
		return notImplemented("a statement of an unknown kind")
	case s.first == "SYSTEM" && !systemVerbs[s.second]:
		return notImplemented("SYSTEM %s is not allowed in the embedded engine", s.second)
	case readOnly && analysis.Class != libchdb.ReadOnly:
		// As ClickHouse has it: a GET must not change anything.
		return libchdb.NewException(codeReadOnly, "READONLY", "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. You should use method POST for modifying queries")
	}
	return nil
}
