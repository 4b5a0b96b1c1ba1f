package devclickhouse

import "strings"

// A lexer cuts SQL into ClickHouse's tokens, as far as it takes to find the
// clauses that the front has to know of. It judges nothing: what it cannot
// read the engine's own parser refuses.
type lexer struct {
	text  string
	at    int
	depth int // of (), [] and {}
}

type tokenKind int

const (
	end     tokenKind = iota
	word              // a keyword, an identifier, a number
	quoted            // "…" or `…`
	literal           // '…' or a heredoc
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
		if t := l.scan(); t.kind != comment {
			return t
		}
	}
}

// scan is the next token, comments included.
func (l *lexer) scan() token {
	for l.at < len(l.text) && strings.IndexByte(" \t\r\n\f\v", l.text[l.at]) >= 0 {
		l.at++
	}
	t := token{from: l.at, depth: l.depth}
	if l.at == len(l.text) {
		t.to = l.at
		return t
	}
	t.kind, l.at = l.measure()
	t.to = l.at
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

// measure is the kind of the token at l.at and where it ends.
func (l *lexer) measure() (tokenKind, int) {
	rest := l.text[l.at:]
	switch c := rest[0]; {
	case c == '\'':
		return literal, l.at + lengthQuoted(rest)
	case c == '"' || c == '`':
		return quoted, l.at + lengthQuoted(rest)
	case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#!"), strings.HasPrefix(rest, "# "):
		return comment, l.at + lengthUntil(rest, "\n")
	case strings.HasPrefix(rest, "/*"):
		return comment, l.at + lengthUntil(rest, "*/")
	case c == '$':
		if n := lengthHeredoc(rest); n > 0 {
			return literal, l.at + n
		}
	case isWordByte(c):
		n := 1
		for n < len(rest) && (isWordByte(rest[n]) || rest[n] == '$') {
			n++
		}
		return word, l.at + n
	}
	return mark, l.at + 1
}

// Identifiers are ASCII; bytes beyond are taken for letters, so that a Turkish
// alias without quotes does not fall into pieces.
func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// lengthQuoted measures a text that opens with its quote. A backslash escapes,
// a doubled quote stands for one.
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

// lengthHeredoc measures $tag$…$tag$; 0 when s is none.
func lengthHeredoc(s string) int {
	n := 1
	for n < len(s) && isWordByte(s[n]) {
		n++
	}
	if n == len(s) || s[n] != '$' {
		return 0
	}
	tag := s[:n+1]
	if i := strings.Index(s[len(tag):], tag); i >= 0 {
		return len(tag) + i + len(tag)
	}
	return 0
}

// endOfFirst is where the first token ends, comments aside.
func endOfFirst(sql string) int { return (&lexer{text: sql}).next().to }
