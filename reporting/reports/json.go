package reports

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf8"
)

// jsonSink writes {"success":true,"data":{"rows":[…],"totals":{…}}} (design
// section 8) as the rows come. Amounts are texts with two decimals, which no
// reader rounds; a value that is not given is null. totals has the number of
// rows and the sums of the columns that have one.
type jsonSink struct {
	style
	w      *bufio.Writer
	report *Report
	keys   []string // `"orderId":`, with the comma before all but the first
	line   []byte
	any    bool // a row has been written
}

func newJSON(w io.Writer) *jsonSink {
	return &jsonSink{style: style{decimal: '.'}, w: bufio.NewWriterSize(w, csvBuffer)}
}

func (j *jsonSink) Begin(r *Report, _ Params) error {
	j.report = r
	for i := range r.Columns {
		key := `"` + r.Columns[i].Key + `":`
		if i > 0 {
			key = "," + key
		}
		j.keys = append(j.keys, key)
	}
	_, err := j.w.WriteString(`{"success":true,"data":{"rows":[`)
	return err
}

func (j *jsonSink) Row(cells []Cell) error {
	j.line = j.line[:0]
	if j.any {
		j.line = append(j.line, ',')
	}
	j.any = true
	j.line = append(j.line, '\n', '{')
	for i := range j.report.Columns {
		j.line = append(j.line, j.keys[i]...)
		j.line = j.appendCell(j.line, j.report.Columns[i].Kind, &cells[i])
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
			j.line = append(j.line, `,"`+c.Key+`":`...)
			j.line = j.appendCell(j.line, c.Kind, &s.Totals[i])
		}
	}
	j.line = append(j.line, "}}}\n"...)
	if _, err := j.w.Write(j.line); err != nil {
		return err
	}
	return j.w.Flush()
}

func (j *jsonSink) Abort() {}

func (j *jsonSink) appendCell(dst []byte, kind Kind, c *Cell) []byte {
	switch {
	case kind == Text:
		return appendJSONText(dst, c.Text)
	case !c.Given:
		return append(dst, "null"...)
	case kind == Count:
		return strconv.AppendInt(dst, c.Number, 10)
	}
	dst = append(dst, '"')
	dst = j.append(dst, kind, c.Number)
	return append(dst, '"')
}

// appendJSONText is json.Marshal, without its cost where nothing is to be
// escaped.
func appendJSONText(dst []byte, s string) []byte {
	for i := range len(s) {
		if b := s[i]; b < ' ' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			return appendEscaped(dst, s)
		}
	}
	if !utf8.ValidString(s) {
		return appendEscaped(dst, s)
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func appendEscaped(dst []byte, s string) []byte {
	escaped, err := json.Marshal(s)
	if err != nil {
		return append(dst, `""`...) // a string always has a JSON form
	}
	return append(dst, escaped...)
}
