package reports

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

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

const columnGap = "  "

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
	t.widen(texts)
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
	}
	return texts
}

func (t *tableSink) widen(texts []string) {
	for i, text := range texts {
		t.widths[i] = max(t.widths[i], uniseg.StringWidth(text))
	}
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
			b.WriteString(padding + text)
		} else {
			b.WriteString(text + padding)
		}
		b.WriteString(columnGap)
	}
	_, err := t.w.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	return err
}

func (t *tableSink) End(s Summary) error {
	totals := t.texts(s.Totals)
	if !t.open {
		t.widen(totals)
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
