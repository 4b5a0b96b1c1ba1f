package reports

import (
	"bufio"
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
type Format string

// The formats. Table is for terminals, CSVPlain for programs, the others for
// people's spreadsheets and for the web.
const (
	Table    Format = "table"
	CSV      Format = "csv"
	CSVComma Format = "csv-comma"
	CSVPlain Format = "csv-plain"
	XLSX     Format = "xlsx"
	JSON     Format = "json"
)

// ParseFormat reads a format's name.
func ParseFormat(name string) (Format, error) {
	names := []string{string(Table), string(CSV), string(CSVComma), string(CSVPlain), string(XLSX), string(JSON)}
	if !slices.Contains(names, name) {
		return "", fmt.Errorf("format %q is not one of %s", name, strings.Join(names, ", "))
	}
	return Format(name), nil
}

// ContentType is the format's media type.
func (f Format) ContentType() string {
	switch f {
	case CSV, CSVComma, CSVPlain:
		return "text/csv; charset=utf-8; header=present"
	case XLSX:
		return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	case JSON:
		return "application/json; charset=utf-8"
	default:
		return "text/plain; charset=utf-8"
	}
}

// Extension is that of the format's files, with the point.
func (f Format) Extension() string {
	switch f {
	case CSV, CSVComma, CSVPlain:
		return ".csv"
	case XLSX:
		return ".xlsx"
	case JSON:
		return ".json"
	default:
		return ".txt"
	}
}

// FormatOf is the format that a file's extension means: csv for .csv.
func FormatOf(extension string) (Format, bool) {
	for _, f := range []Format{CSV, XLSX, JSON, Table} {
		if strings.EqualFold(extension, f.Extension()) {
			return f, true
		}
	}
	return "", false
}

// Sink writes a report. Begin comes first, then Row for every row, then End; or
// Abort at any time, after which the sink holds no resources and what it has
// written is not a report. The cells of a row are used again after Row.
type Sink interface {
	Begin(r *Report, p Params) error
	Row(cells []Cell) error
	End(s Summary) error
	Abort()
}

// NewSink writes a report to w in a format. XLSX reaches w at the end, when all
// rows are there, and waits in temporary files until then; the others as they
// come. An unknown format is written as a table.
func NewSink(f Format, w io.Writer) Sink {
	switch f {
	case CSV:
		return newCSV(w, spreadsheetCSV)
	case CSVComma:
		return newCSV(w, commaCSV)
	case CSVPlain:
		return newCSV(w, plainCSV)
	case XLSX:
		return newXLSX(w)
	case JSON:
		return newJSON(w)
	default:
		return newTable(w)
	}
}

// bufferSize is how much is written at once.
const bufferSize = 64 << 10

const (
	monthLayout = "2006-01"
	localLayout = "2006-01-02 15:04:05"
)

// style is how a format writes values that are not texts.
type style struct {
	decimal byte // between lira and kuruş
	// local writes times as 2006-01-02 15:04:05, which spreadsheets take for
	// dates and which drops the milliseconds; otherwise as every answer of the
	// API has them, 2006-01-02T15:04:05.000+03:00.
	local bool
}

// append writes a given value that is no text.
func (s style) append(dst []byte, kind Kind, n int64) []byte {
	switch kind {
	case Money:
		return appendMoney(dst, n, s.decimal)
	case DayOnly:
		return Day(n).midnight().AppendFormat(dst, time.DateOnly)
	case Month:
		return Day(n).midnight().AppendFormat(dst, monthLayout)
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

// csvSink writes a header and one line per row, no totals: whoever sums up a
// column must not count them twice. A value that is not given is empty.
// encoding/csv neither quotes both separators nor appends values in place.
type csvSink struct {
	dialect
	w      *bufio.Writer
	report *Report
	line   []byte
}

func newCSV(w io.Writer, d dialect) *csvSink {
	return &csvSink{dialect: d, w: bufio.NewWriterSize(w, bufferSize)}
}

func (c *csvSink) Begin(r *Report, _ Params) error {
	c.report = r
	if _, err := c.w.WriteString(c.mark); err != nil {
		return err
	}
	return c.write(func(i int) { c.line = append(c.line, r.Columns[i].Key...) })
}

func (c *csvSink) Row(cells []Cell) error {
	return c.write(func(i int) {
		switch kind := c.report.Columns[i].Kind; {
		case kind == Text:
			c.line = c.appendText(c.line, cells[i].Text)
		case cells[i].Given:
			c.line = c.append(c.line, kind, cells[i].Number)
		}
	})
}

// write writes a line to which value appends each column's.
func (c *csvSink) write(value func(column int)) error {
	c.line = c.line[:0]
	for i := range c.report.Columns {
		if i > 0 {
			c.line = append(c.line, c.separator)
		}
		value(i)
	}
	c.line = append(c.line, c.end...)
	_, err := c.w.Write(c.line)
	return err
}

func (c *csvSink) End(Summary) error { return c.w.Flush() }
func (c *csvSink) Abort()            {}

// appendText writes a text so that a reader finds it again and a spreadsheet
// executes nothing. Both separators are quoted, so that a program that guesses
// the wrong one does not split the text.
func (c *csvSink) appendText(dst []byte, s string) []byte {
	prefix := ""
	if beginsFormula(s) {
		prefix = "'"
	}
	if !strings.ContainsAny(s, "\"\r\n\t,;") && (s == "" || s[0] != ' ' && s[len(s)-1] != ' ') {
		return append(append(dst, prefix...), s...)
	}
	dst = append(append(dst, '"'), prefix...)
	return append(append(dst, strings.ReplaceAll(s, `"`, `""`)...), '"')
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

// jsonSink writes {"success":true,"data":{"rows":[…],"totals":{…}}} (design
// section 8) as the rows come. Amounts are texts with two decimals, which no
// reader rounds; a value that is not given is null. totals has the number of
// rows and the sums of the columns that have one.
type jsonSink struct {
	style
	w      *bufio.Writer
	report *Report
	line   []byte
	any    bool // a row has been written
}

func newJSON(w io.Writer) *jsonSink {
	return &jsonSink{style: style{decimal: '.'}, w: bufio.NewWriterSize(w, bufferSize)}
}

func (j *jsonSink) Begin(r *Report, _ Params) error {
	j.report = r
	_, err := j.w.WriteString(`{"success":true,"data":{"rows":[`)
	return err
}

func (j *jsonSink) Row(cells []Cell) error {
	j.line = j.line[:0]
	if j.any {
		j.line = append(j.line, ',')
	}
	j.any = true
	j.line = append(j.line, "\n{"...)
	for i := range j.report.Columns {
		if i > 0 {
			j.line = append(j.line, ',')
		}
		j.appendMember(&j.report.Columns[i], &cells[i])
	}
	j.line = append(j.line, '}')
	_, err := j.w.Write(j.line)
	return err
}

func (j *jsonSink) End(s Summary) error {
	j.line = append(j.line[:0], "\n],\"totals\":{\"rows\":"...)
	j.line = strconv.AppendInt(j.line, s.Rows, 10)
	for i := range j.report.Columns {
		if c := &j.report.Columns[i]; c.Sum {
			j.line = append(j.line, ',')
			j.appendMember(c, &s.Totals[i])
		}
	}
	j.line = append(j.line, "}}}\n"...)
	if _, err := j.w.Write(j.line); err != nil {
		return err
	}
	return j.w.Flush()
}

func (j *jsonSink) Abort() {}

func (j *jsonSink) appendMember(column *Column, c *Cell) {
	j.line = append(j.line, '"')
	j.line = append(j.line, column.Key...)
	j.line = append(j.line, `":`...)
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

// appendJSONText writes a text with sonic: 54 ns for each of a row, where an
// encoder.EncodeInto of each took 460 ns. A whole row as a struct would be one
// call, but reports have their columns as data.
func appendJSONText(dst []byte, s string) []byte {
	return append(dst, encoder.Quote(strings.ToValidUTF8(s, string(utf8.RuneError)))...)
}

// tableSink writes for a terminal: aligned columns, numbers to the right, a line
// of totals. The first rows are kept to learn how wide the columns are; a later
// cell that is wider pushes its line to the right and is never cut.
type tableSink struct {
	style
	w      *bufio.Writer
	report *Report
	widths []int
	kept   [][]string
	open   bool // the header has been written
}

// tableSample is how many rows tell the widths of the columns.
const tableSample = 300

func newTable(w io.Writer) *tableSink {
	return &tableSink{style: style{decimal: '.', local: true}, w: bufio.NewWriter(w)}
}

func (t *tableSink) Begin(r *Report, p Params) error {
	t.report = r
	for i := range r.Columns {
		t.widths = append(t.widths, len(r.Columns[i].Key))
	}
	_, err := fmt.Fprintf(t.w, "%s, %s\n\n", r.Title, visible(p.String()))
	return err
}

func (t *tableSink) Row(cells []Cell) error {
	texts := t.texts(cells)
	if t.open {
		return t.line(texts)
	}
	t.kept = append(t.kept, texts)
	if len(t.kept) < tableSample {
		return nil
	}
	return t.start()
}

func (t *tableSink) texts(cells []Cell) []string {
	texts := make([]string, len(t.report.Columns))
	for i := range t.report.Columns {
		switch kind := t.report.Columns[i].Kind; {
		case kind == Text:
			texts[i] = visible(cells[i].Text)
		case cells[i].Given:
			texts[i] = string(t.append(nil, kind, cells[i].Number))
		}
		if !t.open {
			t.widths[i] = max(t.widths[i], uniseg.StringWidth(texts[i]))
		}
	}
	return texts
}

// start writes the header and what was kept.
func (t *tableSink) start() error {
	t.open = true
	header, rule := make([]string, len(t.widths)), make([]string, len(t.widths))
	for i := range header {
		header[i], rule[i] = t.report.Columns[i].Key, strings.Repeat("-", t.widths[i])
	}
	for _, line := range append([][]string{header, rule}, t.kept...) {
		if err := t.line(line); err != nil {
			return err
		}
	}
	t.kept = nil
	return nil
}

func (t *tableSink) line(texts []string) error {
	var b strings.Builder
	for i, text := range texts {
		padding := strings.Repeat(" ", max(0, t.widths[i]-uniseg.StringWidth(text)))
		if t.report.Columns[i].Numeric() {
			text, padding = padding, text
		}
		b.WriteString(text + padding + "  ")
	}
	_, err := t.w.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	return err
}

func (t *tableSink) End(s Summary) error {
	totals := t.texts(s.Totals)
	if !t.open {
		if err := t.start(); err != nil {
			return err
		}
	}
	if strings.Join(totals, "") != "" {
		rule := make([]string, len(t.widths))
		for i := range rule {
			if totals[i] != "" {
				rule[i] = strings.Repeat("-", t.widths[i])
			}
		}
		if err := t.line(rule); err != nil {
			return err
		}
		if err := t.line(totals); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(t.w, "\n%d rows\n", s.Rows); err != nil {
		return err
	}
	return t.w.Flush()
}

func (t *tableSink) Abort() {}

// visible replaces what a terminal would obey instead of showing.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
