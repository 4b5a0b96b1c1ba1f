package reports

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bytedance/sonic/encoder"
	"github.com/rivo/uniseg"

	"vendorapi/internal/delivery"
)

// Format is how a report is written.
type Format struct {
	Name        string // in commands
	Extension   string // of files, with the point
	ContentType string
	// Sink writes a report to w: XLSX at the end, from temporary files, the others as the
	// rows come.
	Sink func(w io.Writer) Sink
}

// The formats. Table is for terminals, CSVPlain for programs, the others for
// people's spreadsheets and for the web.
var (
	Table    = &Format{"table", ".txt", "text/plain; charset=utf-8", newTable}
	CSV      = &Format{"csv", ".csv", csvType, newCSV(spreadsheetCSV)}
	CSVComma = &Format{"csv-comma", ".csv", csvType, newCSV(commaCSV)}
	CSVPlain = &Format{"csv-plain", ".csv", csvType, newCSV(plainCSV)}
	XLSX     = &Format{"xlsx", ".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", newXLSX}
	JSON     = &Format{"json", ".json", "application/json; charset=utf-8", newJSON}

	// formats are all of them, each before others with its extension that are rarer.
	formats = []*Format{Table, CSV, CSVComma, CSVPlain, XLSX, JSON}
)

const csvType = "text/csv; charset=utf-8; header=present"

// ParseFormat reads a format's name.
func ParseFormat(name string) (*Format, error) {
	var names []string
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("format %q is not one of %s", name, strings.Join(names, ", "))
}

// FormatOf is the format that a file's extension means: csv for .csv.
func FormatOf(extension string) (*Format, bool) {
	for _, f := range formats {
		if strings.EqualFold(extension, f.Extension) {
			return f, true
		}
	}
	return nil, false
}

// Sink writes a report: Begin, Row for every row, whose cells are used again, End. Abort
// ends it at any time and frees its resources.
type Sink interface {
	Begin(r *Report, p Params) error
	Row(cells []Cell) error
	End(s Summary) error
	Abort()
}

const (
	monthLayout = "2006-01"
	localLayout = "2006-01-02 15:04:05"
)

// style is how a format writes values and lines.
type style struct {
	decimal byte // between lira and kuruş
	// local writes times as 2006-01-02 15:04:05, which spreadsheets take for dates;
	// otherwise they are the API's, 2006-01-02T15:04:05.000+03:00.
	local     bool
	mark      string // before everything
	separator byte   // of columns
	end       string // of a line
	// disarm puts an apostrophe before a text that a spreadsheet could take for a formula.
	// A program would read it as a part of the text, so that two ids could become one.
	disarm bool
}

var (
	// spreadsheetCSV is what a spreadsheet in Turkish opens with a double click: the
	// byte order mark means UTF-8, and the comma is the decimal point.
	spreadsheetCSV = style{decimal: ',', local: true, mark: "\ufeff", separator: ';', end: "\r\n", disarm: true}
	// commaCSV is the same for one in English.
	commaCSV = style{decimal: '.', local: true, mark: "\ufeff", separator: ',', end: "\r\n", disarm: true}
	// plainCSV is for programs and for SHA-256: RFC 4180 but for the line feed at
	// the end of a line, texts byte for byte, times exact and with their offset.
	plainCSV = style{decimal: '.', separator: ',', end: "\n"}
)

// append writes a given value that is no text.
func (s style) append(dst []byte, kind Kind, n int64) []byte {
	switch kind {
	case Money:
		return appendMoney(dst, n, s.decimal)
	case DayOnly:
		return Day(n).Midnight().AppendFormat(dst, time.DateOnly)
	case Month:
		return Day(n).Midnight().AppendFormat(dst, monthLayout)
	case Time:
		if s.local {
			return time.UnixMilli(n).In(delivery.Istanbul).AppendFormat(dst, localLayout)
		}
		return delivery.AppendTime(dst, time.UnixMilli(n))
	default:
		return strconv.AppendInt(dst, n, 10)
	}
}

// appendMoney writes kuruş as lira with two decimals.
func appendMoney(dst []byte, kurus int64, decimal byte) []byte {
	size := uint64(kurus)
	if kurus < 0 {
		dst = append(dst, '-')
		size = -size
	}

	dst = strconv.AppendUint(dst, size/100, 10)
	cents := size % 100
	return append(dst, decimal, byte('0'+cents/10), byte('0'+cents%10))
}

// stream is what the sinks have in common that write rows as they come.
type stream struct {
	style
	w      *bufio.Writer
	report *Report
	line   []byte // is put together
}

func newStream(w io.Writer, s style) stream {
	return stream{style: s, w: bufio.NewWriterSize(w, 64<<10)}
}

func (s *stream) write() error {
	_, err := s.w.Write(s.line)
	s.line = s.line[:0]
	return err
}

func (s *stream) Abort() {}

// csvSink writes a header and one line per row. It writes no totals, which would count
// twice in a sum of the column. encoding/csv cannot quote both separators.
type csvSink struct{ stream }

func newCSV(s style) func(io.Writer) Sink {
	return func(w io.Writer) Sink { return &csvSink{newStream(w, s)} }
}

func (c *csvSink) Begin(r *Report, _ Params) error {
	c.report = r
	c.line = append(c.line, c.mark...)
	return c.row(func(i int) { c.line = append(c.line, r.Columns[i].Key...) })
}

func (c *csvSink) Row(cells []Cell) error {
	return c.row(func(i int) {
		kind := c.report.Columns[i].Kind
		switch {
		case kind == Text:
			c.line = c.appendText(c.line, cells[i].Text)
		case cells[i].Given:
			c.line = c.append(c.line, kind, cells[i].Number)
		}
	})
}

func (c *csvSink) row(value func(column int)) error {
	for i := range c.report.Columns {
		if i > 0 {
			c.line = append(c.line, c.separator)
		}
		value(i)
	}

	c.line = append(c.line, c.end...)
	return c.write()
}

func (c *csvSink) End(Summary) error { return c.w.Flush() }

// appendText writes a text. Both separators are quoted, for programs that guess the wrong
// one.
func (c *csvSink) appendText(dst []byte, text string) []byte {
	prefix := ""
	if c.disarm && beginsFormula(text) {
		prefix = "'"
	}

	blankAtAnEnd := strings.HasPrefix(text, " ") || strings.HasSuffix(text, " ")
	if !blankAtAnEnd && !strings.ContainsAny(text, "\"\r\n\t,;") {
		dst = append(dst, prefix...)
		return append(dst, text...)
	}

	dst = append(dst, '"')
	dst = append(dst, prefix...)
	dst = append(dst, strings.ReplaceAll(text, `"`, `""`)...)

	return append(dst, '"')
}

// beginsFormula reports whether a spreadsheet could take a text for a formula: it begins
// with one of OWASP's characters (= + - @, tab, carriage return, line feed, and the
// full-width forms of the first four), after invisible ones that some programs strip.
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

// jsonSink writes {"success":true,"data":{"rows":[…],"totals":{…}}} (decisions, "Finance").
// Amounts are texts with two decimals, which no reader rounds; a value that is not given
// is null.
type jsonSink struct {
	stream
	comma string // before the next row
}

func newJSON(w io.Writer) Sink { return &jsonSink{stream: newStream(w, style{decimal: '.'})} }

func (j *jsonSink) Begin(r *Report, _ Params) error {
	j.report = r
	j.line = append(j.line, `{"success":true,"data":{"rows":[`...)
	return j.write()
}

func (j *jsonSink) Row(cells []Cell) error {
	j.line = append(append(j.line, j.comma...), "\n{"...)
	j.comma = ","
	for i := range j.report.Columns {
		if i > 0 {
			j.line = append(j.line, ',')
		}
		j.appendMember(&j.report.Columns[i], &cells[i])
	}

	j.line = append(j.line, '}')

	return j.write()
}

func (j *jsonSink) End(s Summary) error {
	j.line = fmt.Appendf(j.line, "\n],\"totals\":{\"rows\":%d", s.Rows)
	for i := range j.report.Columns {
		if c := &j.report.Columns[i]; c.Sum {
			j.line = append(j.line, ',')
			j.appendMember(c, &s.Totals[i])
		}
	}

	j.line = append(j.line, "}}}\n"...)
	return cmp.Or(j.write(), j.w.Flush())
}

func (j *jsonSink) appendMember(column *Column, c *Cell) {
	j.line = append(append(append(j.line, '"'), column.Key...), `":`...)
	switch {
	case column.Kind == Text:
		j.line = appendJSONText(j.line, c.Text)
	case !c.Given:
		j.line = append(j.line, "null"...)
	case column.Kind == Count:
		j.line = strconv.AppendInt(j.line, c.Number, 10)
	default:
		j.line = append(j.append(append(j.line, '"'), column.Kind, c.Number), '"')
	}
}

// appendJSONText takes 54 ns; encoder.EncodeInto took 460 ns.
func appendJSONText(dst []byte, s string) []byte {
	return append(dst, encoder.Quote(strings.ToValidUTF8(s, string(utf8.RuneError)))...)
}

// tableSink writes for a terminal: aligned columns, numbers to the right, a line of
// totals. The first rows say how wide the columns are; a wider cell is never cut.
type tableSink struct {
	stream
	widths []int
	kept   [][]string
	open   bool // what was kept has been written
}

// tableSample is how many rows say how wide the columns are.
const tableSample = 300

func newTable(w io.Writer) Sink {
	return &tableSink{stream: newStream(w, style{decimal: '.', local: true})}
}

func (t *tableSink) Begin(r *Report, p Params) error {
	t.report, t.widths = r, make([]int, len(r.Columns))
	header := make([]string, len(r.Columns))
	for i := range header {
		header[i] = r.Columns[i].Key
	}
	t.line = fmt.Appendf(t.line, "%s, %s\n\n", r.Title, visible(p.String()))
	return cmp.Or(t.write(), t.put(header))
}

func (t *tableSink) Row(cells []Cell) error { return t.put(t.texts(cells)) }

func (t *tableSink) texts(cells []Cell) []string {
	texts := make([]string, len(t.report.Columns))
	for i := range texts {
		kind := t.report.Columns[i].Kind
		switch {
		case kind == Text:
			texts[i] = visible(cells[i].Text)
		case cells[i].Given:
			texts[i] = string(t.append(nil, kind, cells[i].Number))
		}
	}

	return texts
}

// put writes a row, or keeps it while the widths are not known.
func (t *tableSink) put(row []string) error {
	if t.open {
		return t.writeRow(row)
	}

	for i := range row {
		t.widths[i] = max(t.widths[i], uniseg.StringWidth(row[i]))
	}

	t.kept = append(t.kept, row)
	if len(t.kept) < tableSample {
		return nil
	}

	return t.start()
}

// start writes what was kept, the header first.
func (t *tableSink) start() error {
	if t.open {
		return nil
	}

	rows := slices.Insert(t.kept, 1, t.rule(t.kept[0]))
	t.open, t.kept = true, nil
	for _, row := range rows {
		if err := t.writeRow(row); err != nil {
			return err
		}
	}

	return nil
}

// rule underlines or overlines the texts of a row.
func (t *tableSink) rule(row []string) []string {
	rule := make([]string, len(row))
	for i := range row {
		if row[i] != "" {
			rule[i] = strings.Repeat("-", t.widths[i])
		}
	}
	return rule
}

func (t *tableSink) writeRow(row []string) error {
	for i, text := range row {
		padding := strings.Repeat(" ", max(0, t.widths[i]-uniseg.StringWidth(text)))
		if t.report.Columns[i].Numeric() {
			text, padding = padding, text
		}
		t.line = append(append(append(t.line, text...), padding...), "  "...)
	}

	t.line = append(bytes.TrimRight(t.line, " "), '\n')
	return t.write()
}

func (t *tableSink) End(s Summary) error {
	totals := t.texts(s.Totals)
	if !t.open {
		for i := range totals {
			t.widths[i] = max(t.widths[i], uniseg.StringWidth(totals[i]))
		}
	}

	err := t.start()
	if strings.Join(totals, "") != "" {
		err = cmp.Or(err, t.writeRow(t.rule(totals)), t.writeRow(totals))
	}

	t.line = fmt.Appendf(t.line, "\n%d rows\n", s.Rows)

	return cmp.Or(err, t.write(), t.w.Flush())
}

// visible replaces what a terminal would obey instead of showing.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
