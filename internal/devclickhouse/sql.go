package main

import (
	"io"
	"regexp"
	"strings"
)

// nextToken is white space and comments, and the token behind them: a quoted text, a
// word (a keyword, an identifier, a number) or one other character. Bytes beyond ASCII
// count as letters.
var nextToken = regexp.MustCompile("(?s)^(?:[ \t\r\n\f\v]+|(?:--|#!|# )[^\n]*|/\\*.*?(?:\\*/|$))*" +
	"('(?:[^'\\\\]|\\\\.)*'?|\"(?:[^\"\\\\]|\\\\.)*\"?|`(?:[^`\\\\]|\\\\.)*`?|[0-9A-Za-z_\u0080-\U0010FFFF][0-9A-Za-z_$\u0080-\U0010FFFF]*|.)?")

// A lexer cuts SQL into ClickHouse's tokens, as far as it takes to find where the data of
// an INSERT begins. What it cannot read the engine's own parser refuses.
type lexer struct {
	text     string
	from, at int // where the latest token begins and ends
	depth    int // of (), [] and {}
}

// next is the next token; empty at the end.
func (l *lexer) next() string {
	found := nextToken.FindStringSubmatchIndex(l.text[l.at:])
	if found[2] < 0 {
		l.from, l.at = len(l.text), len(l.text)
		return ""
	}

	l.from, l.at = l.at+found[2], l.at+found[3]
	token := l.text[l.from:l.at]
	switch token {
	case "(", "[", "{":
		l.depth++
	case ")", "]", "}":
		l.depth--
	}

	return token
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
	if !strings.EqualFold(l.next(), "INSERT") {
		return head, false, nil
	}

	for token := skipTarget(l); token != ""; token = l.next() {
		if l.depth > 0 {
			continue
		}

		switch strings.ToUpper(token) {
		case "SELECT", "WITH":
			return head, false, nil
		case "FROM":
			return head, false, notImplemented("INSERT … FROM INFILE is not allowed: send the data in the request")
		case "VALUES":
			return insertHead{text: sql[:l.from], format: "Values", data: l.at}, true, nil
		case "FORMAT":
			head.text = sql[:l.from]
			head.format = l.next()
			if !formatName.MatchString(head.format) {
				return head, false, nil
			}
			head.data, err = skipDelimiter(sql, l.at)
			return head, err == nil, err
		}
	}

	return head, false, nil
}

// skipTarget goes over `INTO [TABLE] name[.name]` or `INTO FUNCTION name`, so that a
// table may be called values, and returns what comes next.
func skipTarget(l *lexer) string {
	token := l.next()
	for strings.EqualFold(token, "INTO") || strings.EqualFold(token, "TABLE") || strings.EqualFold(token, "FUNCTION") {
		token = l.next()
	}

	for {
		if token == "{" { // {table:Identifier}
			for token != "" && token != "}" {
				token = l.next()
			}
		}

		token = l.next()
		if token != "." {
			return token
		}

		token = l.next()
	}
}

// skipDelimiter goes over the blanks after the format's name and the one line break
// that ends the statement. Data may begin with a line break of its own.
func skipDelimiter(sql string, at int) (int, error) {
	rest := strings.TrimLeft(sql[at:], " \t\f")
	if strings.HasPrefix(rest, ";") {
		return at, syntaxError("You have excessive ';' symbol before data for INSERT")
	}

	for _, lineBreak := range []string{"\r\n", "\n", "\r"} {
		if data, found := strings.CutPrefix(rest, lineBreak); found {
			return len(sql) - len(data), nil
		}
	}

	return len(sql) - len(rest), nil
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
