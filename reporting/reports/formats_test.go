package reports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"
	"pgregory.net/rapid"
)

//rule:finance/csv-in-utf-8-with-bom
func TestCSV_SaysTheSameForSpreadsheets(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	for _, r := range All() {
		want := plain(t, a, r, p)
		for _, row := range want {
			for i := range row {
				switch r.Columns[i].Kind {
				case Text:
					row[i] = disarmed(row[i])
				case Money:
					row[i] = strings.Replace(row[i], ".", ",", 1)
				case Time:
					if row[i] != "" { // 2026-11-22T14:05:09.123+03:00
						row[i] = row[i][:10] + " " + row[i][11:19]
					}
				}
			}
		}

		b, _ := written(t, a, r, p, CSV)
		rest, found := bytes.CutPrefix(b, []byte("\xef\xbb\xbf"))
		if !found || !bytes.HasSuffix(b, []byte("\r\n")) {
			t.Errorf("%s begins with %q", r.Name, b[:10])
		}

		sameRows(t, r.Name, readCSV(t, rest, ';', r), want)
	}
}

// disarmed is a text of the samples as a CSV for spreadsheets has it.
func disarmed(text string) string {
	if text == "\tSekme" || strings.IndexAny(strings.TrimLeft(text, " \ufeff"), "=+-@") == 0 {
		return "'" + text
	}
	return text
}

func TestCSVComma_DiffersInSeparatorAndDecimalPointAlone(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	for _, r := range All() {
		semicolons, _ := written(t, a, r, p, CSV)
		want := readCSV(t, bytes.TrimPrefix(semicolons, []byte("\ufeff")), ';', r)
		for _, row := range want {
			for i := range row {
				if r.Columns[i].Kind == Money {
					row[i] = strings.Replace(row[i], ",", ".", 1)
				}
			}
		}

		commas, _ := written(t, a, r, p, CSVComma)
		rest, found := bytes.CutPrefix(commas, []byte("\ufeff"))
		if !found {
			t.Errorf("%s has no byte order mark", r.Name)
		}

		sameRows(t, r.Name, readCSV(t, rest, ',', r), want)
	}
}

//rule:finance/csv-in-utf-8-with-bom
func TestJSON_SaysTheSame(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	for _, r := range All() {
		b, s := written(t, a, r, p, JSON)
		var answer struct {
			Success bool
			Data    struct {
				Rows   []map[string]any
				Totals map[string]any
			}
		}

		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		d.DisallowUnknownFields()
		noError(t, d.Decode(&answer))
		if _, err := d.Token(); err != io.EOF || !answer.Success {
			t.Errorf("%s: after it comes %v", r.Name, err)
		}

		var got [][]string
		for _, object := range answer.Data.Rows {
			if len(object) != len(r.Columns) {
				t.Fatalf("%s: %v", r.Name, object)
			}
			row := make([]string, len(r.Columns))
			for i := range r.Columns {
				row[i] = jsonText(t, &r.Columns[i], object[r.Columns[i].Key])
			}
			got = append(got, row)
		}

		sameRows(t, r.Name, got, plain(t, a, r, p))
		if answer.Data.Totals["rows"] != json.Number(fmt.Sprint(len(got))) {
			t.Errorf("%s: totals %v", r.Name, answer.Data.Totals)
		}

		for i := range r.Columns {
			c := &r.Columns[i]
			if c.Key == "rows" { // control-totals has a column of the name
				continue
			}
			if total, there := answer.Data.Totals[c.Key]; there != c.Sum || there && jsonText(t, c, total) != totalText(c, s.Totals[i]) {
				t.Errorf("%s: total of %s is %v, wanted %v", r.Name, c.Key, total, s.Totals[i])
			}
		}
	}
}

// jsonText is a value as csv-plain has it; it checks how JSON has it.
func jsonText(t *testing.T, c *Column, v any) string {
	t.Helper()
	switch v := v.(type) {
	case nil:
		if c.Kind == Text {
			t.Errorf("%s is null", c.Key)
		}
		return ""
	case json.Number:
		if c.Kind != Count {
			t.Errorf("%s is a number, %s", c.Key, v)
		}
		return v.String()
	case string:
		if c.Kind == Count {
			t.Errorf("%s is a text, %q", c.Key, v)
		}
		return v
	}

	t.Errorf("%s is %T", c.Key, v)

	return ""
}

func totalText(c *Column, total Cell) string {
	if c.Kind == Money {
		return lira(total.Number)
	}
	return fmt.Sprint(total.Number)
}

//rule:finance/csv-in-utf-8-with-bom
func TestXLSX_HasNumbersAndDatesAndTotals(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	p.Asked = moment("2026-11-22T14:03:05.678+03:00")
	for _, r := range All() {
		b, s := written(t, a, r, p, XLSX)
		f, err := excelize.OpenReader(bytes.NewReader(b))
		noError(t, err)
		defer f.Close()
		if sheets := f.GetSheetList(); len(sheets) != 1 || sheets[0] != r.Name {
			t.Errorf("sheets %q", sheets)
		}

		panes, err := f.GetPanes(r.Name)
		noError(t, err)
		if !panes.Freeze || panes.YSplit != xlsxHeader {
			t.Errorf("%s: panes %+v", r.Name, panes)
		}

		for cell, want := range map[string]string{"A1": r.Title + ", 2026-10-01 to 2028-12-31", "A2": "Amounts in TRY; days and times of Turkey (+03:00); as of 2026-11-22 14:03:05"} {
			if got, err := f.GetCellValue(r.Name, cell); err != nil || got != want {
				t.Errorf("%s: %s is %q, want %q, %v", r.Name, cell, got, want, err)
			}
		}

		got := sheetRows(t, f, r, r.Name, xlsxHeader, isNumber)
		page, err := f.GetPageLayout(r.Name)
		noError(t, err)
		fitted, err := f.GetSheetProps(r.Name)
		noError(t, err)
		if *page.Orientation != "landscape" || page.FitToWidth == nil || *page.FitToWidth != 1 || *page.FitToHeight != 0 || !*fitted.FitToPage {
			t.Errorf("%s: printed as %+v", r.Name, page)
		}

		last, err := excelize.CoordinatesToCellName(len(r.Columns), xlsxHeader+len(plain(t, a, r, p)), true)
		noError(t, err)
		if names := f.GetDefinedName(); len(names) != 1 || names[0].Name != "_xlnm._FilterDatabase" || names[0].RefersTo != "'"+r.Name+"'!$A$3:"+last {
			t.Errorf("%s: filters %+v, want to %s", r.Name, names, last)
		}

		if r != control {
			totals := got[len(got)-1]
			got = got[:len(got)-1]
			for i := range r.Columns {
				if c := &r.Columns[i]; c.Sum && totals[i] != totalText(c, s.Totals[i]) {
					t.Errorf("%s: total of %s is %s, wanted %v", r.Name, c.Key, totals[i], s.Totals[i])
				}
			}
		}

		sameRows(t, r.Name, got, toTheSecond(r, plain(t, a, r, p)))
	}
}

// toTheSecond cuts the times of rows, as a spreadsheet's are.
func toTheSecond(r *Report, rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			if r.Columns[i].Kind == Time && row[i] != "" {
				row[i] = row[i][:19] + ".000+03:00"
			}
		}
	}
	return rows
}

func isNumber(c *Column) bool { return c.Kind != Text }

// sheetRows are a sheet's rows as csv-plain has them, without the header. It
// checks that each cell is of the kind that it should be.
func sheetRows(t *testing.T, f *excelize.File, r *Report, sheet string, header int, isNumber func(*Column) bool) (all [][]string) {
	t.Helper()
	raw, err := f.GetRows(sheet, excelize.Options{RawCellValue: true})
	noError(t, err)
	names := keysOf(r)
	if header > 1 { // a workbook, which is for people
		for i := range names {
			names[i] = r.Columns[i].Heading
		}
	}

	if strings.Join(raw[header-1], "|") != strings.Join(names, "|") {
		t.Fatalf("%s: header %q", sheet, raw[header-1])
	}

	for n, row := range raw[header:] {
		texts := make([]string, len(r.Columns))
		for i := range r.Columns {
			if i >= len(row) || row[i] == "" {
				continue
			}

			cell, _ := excelize.CoordinatesToCellName(i+1, n+header+1)
			kind, err := f.GetCellType(sheet, cell)
			noError(t, err)
			if formula, _ := f.GetCellFormula(sheet, cell); formula != "" {
				t.Errorf("%s has the formula %s", cell, formula)
			}

			number := kind == excelize.CellTypeUnset || kind == excelize.CellTypeNumber
			if number != isNumber(&r.Columns[i]) && row[i] != "Total" {
				t.Errorf("%s, %s: %q is of type %v", sheet, cell, row[i], kind)
			}

			texts[i] = row[i]
			if number {
				texts[i] = sheetText(t, r.Columns[i].Kind, row[i])
			}
		}

		all = append(all, texts)
	}

	return all
}

// sheetText is a number of a sheet as csv-plain has it.
func sheetText(t *testing.T, kind Kind, raw string) string {
	t.Helper()
	n, err := strconv.ParseFloat(raw, 64)
	noError(t, err)
	days := math.Floor(n)
	at := time.Date(1899, 12, 30, 0, 0, 0, 0, local).AddDate(0, 0, int(days)).Add(time.Duration(math.Round((n-days)*86400_000)) * time.Millisecond)
	switch kind {
	case Money:
		whole, cents, _ := strings.Cut(raw, ".")
		if len(cents) > 2 {
			t.Errorf("an amount of %s", raw)
		}
		return whole + "." + (cents + "00")[:2]
	case DayOnly:
		return at.Format("2006-01-02")
	case Month:
		return at.Format("2006-01")
	case Time:
		return at.Format("2006-01-02T15:04:05.000-07:00")
	}

	return raw
}

// A report that is longer than a sheet goes on with the next one, wherever the
// totals fall.
func TestXLSX_GoesOnWithTheNextSheet(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	want := plain(t, a, statement, p)
	for _, rows := range []int{len(want) / 3, len(want), len(want) + 1, len(want) + 2, len(want) + xlsxHeader, len(want) + xlsxHeader + 1, 7} {
		var b bytes.Buffer
		x := newXLSX(&b).(*xlsxSink)
		x.sheetRows = rows
		_, err := statement.Run(t.Context(), a, p, x, nil)
		noError(t, err)
		f, err := excelize.OpenReader(&b)
		noError(t, err)
		var got [][]string
		for i, sheet := range f.GetSheetList() {
			name := statement.Name
			if i > 0 {
				name = fmt.Sprintf("%s %d", statement.Name, i+1)
			}

			part := sheetRows(t, f, statement, sheet, xlsxHeader, isNumber)
			if sheet != name || len(part) > rows-xlsxHeader {
				t.Errorf("sheet %q has %d rows, at most %d fit", sheet, len(part), rows-xlsxHeader)
			}

			got = append(got, part...)
		}

		if last := got[len(got)-1]; last[0] != "Total" {
			t.Errorf("it ends with %q", last)
		}

		sameRows(t, fmt.Sprintf("sheets of %d rows", rows), got[:len(got)-1], want)
		f.Close()
	}
}

// A report that is too long for a workbook is refused before anything is written.
func TestXLSX_RefusesTooManyRowsBeforeItBegins(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	for _, r := range All() {
		rows := int64(len(plain(t, a, r, allDays.params())))
		for most, refused := range map[int64]bool{rows: false, rows - 1: true} {
			var b bytes.Buffer
			x := newXLSX(&b).(*xlsxSink)
			x.mostRows = most
			_, err := r.Run(t.Context(), a, allDays.params(), x, nil)
			_, isRefusal := errors.AsType[ParamErrors](err)
			if isRefusal != refused || !refused && err != nil {
				t.Errorf("%s, %d of %d rows: %v", r.Name, most, rows, err)
			}
			begun := x.sheets > 0 && r != control // which is never long, so nobody counts its rows before
			if refused && (b.Len() > 0 || begun || !strings.Contains(err.Error(), "take the CSV")) {
				t.Errorf("%s: %d bytes, %d sheets, %v", r.Name, b.Len(), x.sheets, err)
			}
		}
	}

	// Orders that come after the count are found out, too.
	x := newXLSX(io.Discard).(*xlsxSink)
	x.mostRows = 2
	noError(t, x.Begin(oneTime, Params{}))
	defer x.Abort()
	row := []Cell{{Number: 1, Given: true}}
	noError(t, errors.Join(x.Row(row), x.Row(row)))
	if err := x.Row(row); err == nil || !strings.Contains(err.Error(), "take the CSV") {
		t.Errorf("a third row: %v", err)
	}
}

// What does not fit into 15 digits is not rounded in silence.
//
//rule:finance/money-is-a-json-number
func TestXLSX_HoldsKurusExactly(t *testing.T) {
	t.Parallel()

	for n := int64(0); n < 3_000_000; n += 977 {
		for _, kurus := range []int64{n, widestExact - n, 999_999_999 - n%999_999_999} {
			if got := strconv.FormatFloat(xlsxValue(Money, kurus).(float64), 'f', -1, 64); sheetText(t, Money, got) != lira(kurus) {
				t.Fatalf("%d kuruş are %s", kurus, got)
			}
		}
	}

	if got := xlsxValue(Money, widestExact+1); got != "10000000000000.00" {
		t.Errorf("%v", got)
	}
}

// oneTime is a report with one column of times.
var oneTime = &Report{Name: "times", Columns: []Column{{Key: "at", Heading: "At", Kind: Time}}}

// shownTimes are times as a format shows them.
func shownTimes(t rapid.TB, f *Format, times []int64) []string {
	t.Helper()

	var file bytes.Buffer
	sink := f.Sink(&file)
	err := sink.Begin(oneTime, Params{})
	for _, at := range times {
		err = cmp.Or(err, sink.Row([]Cell{{Number: at, Given: true}}))
	}

	if err := cmp.Or(err, sink.End(Summary{Totals: make([]Cell, 1)})); err != nil {
		t.Fatalf("%v", err)
	}

	if f != XLSX {
		lines := strings.Split(strings.TrimSuffix(file.String(), "\r\n"), "\r\n")
		return lines[1:]
	}

	book, err := excelize.OpenReader(&file)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer book.Close()

	rows, err := book.GetRows(oneTime.Name, excelize.Options{RawCellValue: true})
	if err != nil {
		t.Fatalf("%v", err)
	}

	var shown []string
	for _, row := range rows[xlsxHeader:] {
		days, err := strconv.ParseFloat(row[0], 64)
		if err != nil {
			t.Fatalf("%v", err)
		}

		// Spreadsheets round what they show to the second.
		midnight := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(math.Floor(days)))
		seconds := math.Round((days - math.Floor(days)) * 86_400)
		shown = append(shown, midnight.Add(time.Duration(seconds)*time.Second).Format("2006-01-02 15:04:05"))
	}

	return shown
}

func TestTimes_AreTheSameSecondInEverySpreadsheet(t *testing.T) {
	t.Parallel()

	times := []int64{
		moment("2026-11-30T23:59:59.999+03:00").UnixMilli(), moment("2026-12-31T23:59:59.500+03:00").UnixMilli(),
		moment("2026-11-30T00:00:00.000+03:00").UnixMilli(), moment("2026-11-30T12:00:00.001+03:00").UnixMilli(),
		moment("1969-12-31T23:59:59.999+03:00").UnixMilli(),
	}

	want := []string{"2026-11-30 23:59:59", "2026-12-31 23:59:59", "2026-11-30 00:00:00", "2026-11-30 12:00:00", "1969-12-31 23:59:59"}
	for _, f := range []*Format{CSV, CSVComma, XLSX} {
		got := shownTimes(t, f, times)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", f.Name, got, want)
		}
	}

	century := rapid.Int64Range(0, moment("2100-12-31T00:00:00.000+03:00").UnixMilli())
	aroundASecond := rapid.Map(century, func(at int64) int64 { return at - at%1000 + 999 })
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.OneOf(century, aroundASecond), 1, 100).Draw(t, "times")
		inCSV, inXLSX := shownTimes(t, CSV, times), shownTimes(t, XLSX, times)
		if !slices.Equal(inCSV, inXLSX) {
			t.Fatalf("%q in CSV, %q in XLSX", inCSV, inXLSX)
		}
	})
}

func TestXLSX_LeavesNoTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, end := range []func(Sink) error{
		func(s Sink) error { return s.End(Summary{Totals: make([]Cell, len(ledger.Columns))}) },
		func(s Sink) error { s.Abort(); return nil },
	} {
		x := newXLSX(io.Discard).(*xlsxSink)
		x.sheetRows = 1500
		noError(t, x.Begin(ledger, Params{}))
		cells := make([]Cell, len(ledger.Columns))
		for i := range cells {
			cells[i] = Cell{Text: strings.Repeat("x", 3000), Number: int64(i), Given: true}
		}

		for range 2000 {
			noError(t, x.Row(cells))
		}

		if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
			t.Fatalf("%v, %v: the rows are kept in memory", files, err)
		}

		noError(t, end(x))
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			t.Errorf("%v are left", files)
		}
	}
}

func TestTable_AlignsTurkishAndNumbers(t *testing.T) {
	t.Parallel()

	var b bytes.Buffer
	s := Table.Sink(&b)
	r := &Report{Title: "Title", Columns: []Column{{Key: "name", Kind: Text}, {Key: "amount", Kind: Money, Sum: true}, {Key: "day", Kind: DayOnly}}}
	noError(t, s.Begin(r, Params{From: 20000, To: 20000}))
	noError(t, s.Row([]Cell{{Text: "Çiğköfte İğdır"}, {Number: 5, Given: true}, {Number: 20000, Given: true}}))
	noError(t, s.Row([]Cell{{Text: "i\u0307\x1b[2Jx"}, {Number: 123456789, Given: true}, {}}))
	noError(t, s.End(Summary{Rows: 2, Totals: []Cell{{}, {Number: 123456794, Given: true}, {}}}))
	want := "Title, 2024-10-04 to 2024-10-04\n\n" +
		"name                amount  day\n" +
		"--------------  ----------  ----------\n" +
		"Çiğköfte İğdır        0.05  2024-10-04\n" +
		"i\u0307\ufffd[2Jx          1234567.89\n" +
		"                ----------\n" +
		"                1234567.94\n" +
		"\n2 rows\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// However long a table is, only its first rows are kept.
func TestTable_KeepsNoMoreThanItsSample(t *testing.T) {
	t.Parallel()

	table := newTable(io.Discard).(*tableSink)
	noError(t, table.Begin(exceptions, Params{}))
	for range 3 * tableSample {
		noError(t, table.Row(make([]Cell, len(exceptions.Columns))))
		if len(table.kept) >= tableSample {
			t.Fatalf("%d rows are kept", len(table.kept))
		}
	}
}
