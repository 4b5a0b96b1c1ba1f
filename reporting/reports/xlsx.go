package reports

import (
	"archive/zip"
	"cmp"
	"compress/flate"
	"fmt"
	"io"
	"time"

	"github.com/xuri/excelize/v2"

	"vendorapi/internal/delivery"
)

// xlsxSink writes a workbook: title and period, a frozen header with filters, the rows,
// the totals. Texts are texts whatever they begin with, days and times are dates. What
// does not fit on a sheet goes on with the next one, "order-ledger 2".
type xlsxSink struct {
	w         io.Writer
	sheetRows int   // of a sheet, header included
	mostRows  int64 // of the report
	rows      int64 // so far

	report *Report
	params Params
	file   *excelize.File
	sheet  *excelize.StreamWriter
	sheets int
	row    int // the last one written
	styles map[Kind]int
	totals map[Kind]int // the same in bold
	bold   int
	cells  []excelize.Cell
	values []any
}

var xlsxFormats = map[Kind]string{
	Money: "#,##0.00", Count: "#,##0", DayOnly: "yyyy-mm-dd", Month: "yyyy-mm", Time: "yyyy-mm-dd hh:mm:ss",
}

const (
	// xlsxHeader is how many rows stand above the first of the report's.
	xlsxHeader = 3
	// widestExact is the largest number of kuruş that a spreadsheet's 15 digits show.
	widestExact = 999_999_999_999_999

	// workbookRows is how many rows of a report a workbook may have. Nothing is sent before it is
	// whole, which takes 20 s a million rows and some hundred MB of the temporary folder, and a
	// balancer waits 200 s.
	workbookRows = 3_000_000
)

func newXLSX(w io.Writer) Sink {
	return &xlsxSink{w: w, sheetRows: excelize.TotalRows, mostRows: workbookRows}
}

// longest implements bounded.
func (x *xlsxSink) longest() int64 { return x.mostRows }

func (x *xlsxSink) Begin(r *Report, p Params) error {
	x.report, x.params, x.file = r, p, excelize.NewFile()
	x.cells, x.values = make([]excelize.Cell, len(r.Columns)), make([]any, len(r.Columns))
	properties := &excelize.DocProperties{Title: r.Title, Subject: p.String()}
	return cmp.Or(x.file.SetDocProps(properties), x.makeStyles(), x.nextSheet())
}

func (x *xlsxSink) makeStyles() (err error) {
	x.styles, x.totals = map[Kind]int{}, map[Kind]int{}
	style := func(font *excelize.Font, format *string) int {
		id, failure := x.file.NewStyle(&excelize.Style{Font: font, CustomNumFmt: format})
		err = cmp.Or(err, failure)
		return id
	}

	bold := &excelize.Font{Bold: true}
	x.bold = style(bold, nil)
	for kind, format := range xlsxFormats {
		x.styles[kind], x.totals[kind] = style(nil, &format), style(bold, &format)
	}

	return err
}

// nextSheet ends the sheet and begins another one with its header.
func (x *xlsxSink) nextSheet() (err error) {
	x.sheets++
	name := x.report.Name
	if x.sheets == 1 {
		err = x.file.SetSheetName(x.file.GetSheetName(0), name)
	} else {
		err = x.endSheet(x.row)
		if err == nil {
			name = fmt.Sprintf("%s %d", name, x.sheets)
			_, err = x.file.NewSheet(name)
		}
	}

	// It prints on landscape A4 pages, one page wide.
	fit, landscape, a4, one, many := true, "landscape", 9, 1, 0
	err = cmp.Or(err,
		x.file.SetSheetProps(name, &excelize.SheetPropsOptions{FitToPage: &fit}),
		x.file.SetPageLayout(name, &excelize.PageLayoutOptions{Orientation: &landscape, Size: &a4, FitToWidth: &one, FitToHeight: &many}))
	if err != nil {
		return err
	}
	x.sheet, err = x.file.NewStreamWriter(name)
	if err != nil {
		return err
	}

	for i := range x.report.Columns {
		err = cmp.Or(err, x.sheet.SetColWidth(i+1, i+1, x.report.Columns[i].width()))
	}

	err = cmp.Or(err, x.sheet.SetPanes(&excelize.Panes{
		Freeze: true, YSplit: xlsxHeader, TopLeftCell: fmt.Sprintf("A%d", xlsxHeader+1), ActivePane: "bottomLeft",
	}))
	x.row = 0
	about := "Amounts in TRY; days and times of Turkey (+03:00)"
	if !x.params.Asked.IsZero() {
		about += "; as of " + x.params.Asked.In(delivery.Istanbul).Format(localLayout)
	}

	for _, line := range []string{x.report.Title + ", " + x.params.String(), about} {
		x.put(0, x.bold, line)
		err = cmp.Or(err, x.write())
	}

	for i := range x.report.Columns {
		x.put(i, x.bold, x.report.Columns[i].Heading)
	}

	return cmp.Or(err, x.write())
}

// endSheet gives the header filters over the rows, without totals.
func (x *xlsxSink) endSheet(lastRow int) error {
	last, err := excelize.CoordinatesToCellName(len(x.report.Columns), lastRow)
	return cmp.Or(err, x.file.AutoFilter(x.sheet.Sheet, fmt.Sprintf("A%d:%s", xlsxHeader, last), nil), x.sheet.Flush())
}

// width is the column's, in characters.
func (c *Column) width() float64 {
	switch {
	case c.Kind == Time:
		return 19
	case c.Kind != Text:
		return 14
	case c.Key == "orderId", c.Key == "accountId", c.Key == "fleetId":
		return 38
	}
	return 24
}

func (x *xlsxSink) put(column, style int, value any) {
	x.cells[column] = excelize.Cell{StyleID: style, Value: value}
	x.values[column] = &x.cells[column]
}

// write writes the row that has been put together, and clears it.
func (x *xlsxSink) write() error {
	x.row++
	err := x.sheet.SetRow(fmt.Sprintf("A%d", x.row), x.values)
	clear(x.values)
	return err
}

// makeRoom goes on with the next sheet when this one is full.
func (x *xlsxSink) makeRoom() error {
	if x.row < x.sheetRows {
		return nil
	}
	return x.nextSheet()
}

func (x *xlsxSink) Row(cells []Cell) error {
	x.rows++
	if err := checkLength(x.rows, x.mostRows); err != nil { // orders have come since they were counted
		return err
	}
	if err := x.makeRoom(); err != nil {
		return err
	}

	for i := range x.report.Columns {
		kind := x.report.Columns[i].Kind
		switch {
		case kind == Text && cells[i].Text != "":
			x.put(i, 0, cells[i].Text)
		case kind != Text && cells[i].Given:
			x.put(i, x.styles[kind], xlsxValue(kind, cells[i].Number))
		}
	}

	return x.write()
}

// xlsxValue is a value as a workbook has it: amounts are floats, or texts beyond 15
// digits; dates are local days since 1899-12-30, with the time as their fraction.
//
// Times are cut to the second, as in a CSV for spreadsheets. A spreadsheet would round
// their milliseconds to the next second, which can be on the next day.
func xlsxValue(kind Kind, n int64) any {
	const epoch = 25569 // 1970-01-01
	switch kind {
	case Money:
		if n > widestExact || n < -widestExact {
			return string(appendMoney(nil, n, '.'))
		}
		return float64(n) / 100
	case DayOnly, Month:
		return n + epoch
	case Time:
		const offset = 3 * 60 * 60 // delivery.Istanbul, all year
		seconds := time.UnixMilli(n).Unix()
		return float64(seconds+offset)/86_400 + epoch
	default:
		return n
	}
}

// End writes the totals and then the workbook, as a stream.
func (x *xlsxSink) End(s Summary) error {
	defer x.Abort()
	err := x.makeRoom()
	if err != nil {
		return err
	}

	last := x.row
	for i := range x.report.Columns {
		if kind := x.report.Columns[i].Kind; s.Totals[i].Given {
			x.put(i, x.totals[kind], xlsxValue(kind, s.Totals[i].Number))
			x.put(0, x.bold, "Total")
		}
	}

	if x.values[0] != nil {
		err = x.write()
	}

	x.file.SetZipWriter(x.zipWriter)
	err = cmp.Or(err, x.endSheet(last))
	if err != nil {
		return err
	}

	return x.file.Write(io.Discard)
}

// zipWriter packs straight into w, at the fastest level: the library by itself would
// pack into memory first.
func (x *xlsxSink) zipWriter(io.Writer) excelize.ZipWriter {
	z := zip.NewWriter(x.w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestSpeed)
	})
	return z
}

// Abort removes the temporary files.
func (x *xlsxSink) Abort() {
	if x.file != nil {
		_ = x.file.Close() // what is left is the system's temporary folder's
		x.file = nil
	}
}
