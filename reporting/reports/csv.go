package reports

import (
	"bufio"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// dialect is a way to write comma-separated values.
type dialect struct {
	style
	mark      string // before everything
	separator byte
	end       string // of a line
}

var (
	// spreadsheetCSV is what a spreadsheet in Turkish opens with a double click:
	// the byte order mark tells that it is UTF-8, and the decimal comma takes the
	// separator's place. Times are local and without milliseconds.
	spreadsheetCSV = dialect{style: style{decimal: ',', local: true}, mark: "\ufeff", separator: ';', end: "\r\n"}
	// commaCSV is the same for one in English, and wherever the decimal point is used.
	commaCSV = dialect{style: style{decimal: '.', local: true}, mark: "\ufeff", separator: ',', end: "\r\n"}
	// plainCSV is for programs and for SHA-256: RFC 4180 but for the line feed at
	// the end of a line, times exact and with their offset.
	plainCSV = dialect{style: style{decimal: '.'}, separator: ',', end: "\n"}
)

// csvSink writes one line per row and a header, no totals: whoever sums up a
// column must not count them twice. A value that is not given is empty.
type csvSink struct {
	dialect
	w      *bufio.Writer
	report *Report
	line   []byte
}

// csvBuffer is how much is written at once.
const csvBuffer = 64 << 10

func newCSV(w io.Writer, d dialect) *csvSink {
	return &csvSink{dialect: d, w: bufio.NewWriterSize(w, csvBuffer)}
}

func (c *csvSink) Begin(r *Report, _ Params) error {
	c.report = r
	c.line = append(c.line[:0], c.mark...)
	for i := range r.Columns {
		if i > 0 {
			c.line = append(c.line, c.separator)
		}
		c.line = append(c.line, r.Columns[i].Key...)
	}
	return c.flush()
}

func (c *csvSink) Row(cells []Cell) error {
	c.line = c.line[:0]
	for i := range c.report.Columns {
		if i > 0 {
			c.line = append(c.line, c.separator)
		}
		switch kind := c.report.Columns[i].Kind; {
		case kind == Text:
			c.line = c.appendText(c.line, cells[i].Text)
		case cells[i].Given:
			c.line = c.append(c.line, kind, cells[i].Number)
		}
	}
	return c.flush()
}

func (c *csvSink) flush() error {
	c.line = append(c.line, c.end...)
	_, err := c.w.Write(c.line)
	return err
}

func (c *csvSink) End(Summary) error { return c.w.Flush() }
func (c *csvSink) Abort()            {}

// appendText writes a text so that a reader finds it again and a spreadsheet
// executes nothing.
func (c *csvSink) appendText(dst []byte, s string) []byte {
	quoted, formula := c.quoted(s), beginsFormula(s)
	if quoted {
		dst = append(dst, '"')
	}
	if formula {
		dst = append(dst, '\'')
	}
	if !quoted {
		return append(dst, s...)
	}
	for {
		before, after, found := strings.Cut(s, `"`)
		dst = append(dst, before...)
		if !found {
			return append(dst, '"')
		}
		dst = append(dst, `""`...)
		s = after
	}
}

// quoted tells whether a text must stand in quotes. Both separators count, so
// that a program that guesses the wrong one is not led into a text.
func (c *csvSink) quoted(s string) bool {
	return strings.ContainsAny(s, "\"\r\n\t,;") || s != "" && (s[0] == ' ' || s[len(s)-1] == ' ')
}

// beginsFormula tells whether a spreadsheet could take a text for a formula: it
// begins with one of OWASP's characters (= + - @, tab, carriage return, line
// feed, and the full-width forms of the first four). White space and other
// invisible characters before one are looked through, because some programs
// strip them.
func beginsFormula(s string) bool {
	if s == "" {
		return false
	}
	switch s[0] {
	case '\t', '\r', '\n', 0:
		return true
	}
	if first := s[0]; first >= '0' && first != '=' && first != '@' && first < utf8.RuneSelf {
		return false // letters and digits, nearly always
	}
	for _, r := range s {
		switch r {
		case '=', '+', '-', '@', '＝', '＋', '－', '＠':
			return true
		}
		if !unicode.IsSpace(r) && unicode.IsPrint(r) {
			return false
		}
	}
	return false
}
