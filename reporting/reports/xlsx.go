package reports

import (
	"archive/zip"
	"compress/flate"
	"fmt"
	"io"

	"github.com/xuri/excelize/v2"

	"vendorapi/internal/delivery"
)

// xlsxSink writes a workbook: texts are texts whatever they begin with, amounts
// and counts are numbers, days and times are dates. Two lines give title, period,
// currency and time; the header below them is bold, frozen and has filters; the
// last row has the totals. What does not fit on a sheet goes on with the next one,
// "order-ledger 2".
type xlsxSink struct {
	w         io.Writer
	sheetRows int // of a sheet, header included

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
)

func newXLSX(w io.Writer) *xlsxSink { return &xlsxSink{w: w, sheetRows: excelize.TotalRows} }

func (x *xlsxSink) Begin(r *Report, p Params) error {
	x.report, x.params, x.file = r, p, excelize.NewFile()
	if err := x.file.SetDocProps(&excelize.DocProperties{Title: r.Title, Subject: p.String()}); err != nil {
		return err
	}
	if err := x.makeStyles(); err != nil {
		return err
	}
	x.cells, x.values = make([]excelize.Cell, len(r.Columns)), make([]any, len(r.Columns))
	return x.nextSheet()
}

func (x *xlsxSink) makeStyles() (err error) {
	x.styles, x.totals = map[Kind]int{}, map[Kind]int{}
	bold := &excelize.Font{Bold: true}
	if x.bold, err = x.file.NewStyle(&excelize.Style{Font: bold}); err != nil {
		return err
	}
	for kind, format := range xlsxFormats {
		if x.styles[kind], err = x.file.NewStyle(&excelize.Style{CustomNumFmt: &format}); err != nil {
			return err
		}
		if x.totals[kind], err = x.file.NewStyle(&excelize.Style{CustomNumFmt: &format, Font: bold}); err != nil {
			return err
		}
	}
	return nil
}

// nextSheet ends the sheet and begins another one with its header.
func (x *xlsxSink) nextSheet() (err error) {
	x.sheets++
	name := x.report.Name
	if x.sheets == 1 {
		err = x.file.SetSheetName(x.file.GetSheetName(0), name)
	} else {
		if err := x.endSheet(x.row); err != nil {
			return err
		}
		name = fmt.Sprintf("%s %d", name, x.sheets)
		_, err = x.file.NewSheet(name)
	}
	if err != nil {
		return err
	}
	// It prints on landscape pages, one page wide.
	fit, landscape, a4, one, many := true, "landscape", 9, 1, 0
	if err := x.file.SetSheetProps(name, &excelize.SheetPropsOptions{FitToPage: &fit}); err != nil {
		return err
	}
	if err := x.file.SetPageLayout(name, &excelize.PageLayoutOptions{Orientation: &landscape, Size: &a4, FitToWidth: &one, FitToHeight: &many}); err != nil {
		return err
	}
	if x.sheet, err = x.file.NewStreamWriter(name); err != nil {
		return err
	}
	for i := range x.report.Columns {
		if err := x.sheet.SetColWidth(i+1, i+1, x.report.Columns[i].width()); err != nil {
			return err
		}
	}
	if err := x.sheet.SetPanes(&excelize.Panes{
		Freeze: true, YSplit: xlsxHeader, TopLeftCell: fmt.Sprintf("A%d", xlsxHeader+1), ActivePane: "bottomLeft",
	}); err != nil {
		return err
	}
	x.row = 0
	about := "Amounts in TRY; days and times of Turkey (+03:00)"
	if !x.params.Asked.IsZero() {
		about += "; as of " + x.params.Asked.In(delivery.Istanbul).Format(localLayout)
	}
	for _, line := range []string{x.report.Title + ", " + x.params.String(), about} {
		x.put(0, x.bold, line)
		if err := x.write(); err != nil {
			return err
		}
	}
	for i := range x.report.Columns {
		x.put(i, x.bold, x.report.Columns[i].Heading())
	}
	return x.write()
}

// endSheet gives the header filters over the rows up to the last one, without
// totals, and writes the sheet.
func (x *xlsxSink) endSheet(lastRow int) error {
	last, err := excelize.CoordinatesToCellName(len(x.report.Columns), lastRow)
	if err != nil {
		return err
	}
	if err := x.file.AutoFilter(x.sheet.Sheet, fmt.Sprintf("A%d:%s", xlsxHeader, last), nil); err != nil {
		return err
	}
	return x.sheet.Flush()
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
	name, err := excelize.CoordinatesToCellName(1, x.row)
	if err != nil {
		return err
	}
	err = x.sheet.SetRow(name, x.values)
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
	if err := x.makeRoom(); err != nil {
		return err
	}
	for i := range x.report.Columns {
		switch kind := x.report.Columns[i].Kind; {
		case kind == Text && cells[i].Text != "":
			x.put(i, 0, cells[i].Text)
		case kind != Text && cells[i].Given:
			x.put(i, x.styles[kind], xlsxValue(kind, cells[i].Number))
		}
	}
	return x.write()
}

// xlsxValue is a value as a workbook has it. Amounts are floats, which hold them
// to the kuruş up to 15 digits; larger ones are texts. Dates are days since
// 1899-12-30, local, with the time as their fraction.
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
		const offset = 3 * 60 * 60 * 1000 // delivery.Istanbul, all year
		return float64(n+offset)/86_400_000 + epoch
	default:
		return n
	}
}

// End writes the totals and then the workbook, as a stream.
func (x *xlsxSink) End(s Summary) error {
	defer x.Abort()
	if err := x.makeRoom(); err != nil {
		return err
	}
	last, summed := x.row, false
	for i := range x.report.Columns {
		if kind := x.report.Columns[i].Kind; s.Totals[i].Given {
			summed = true
			x.put(i, x.totals[kind], xlsxValue(kind, s.Totals[i].Number))
		}
	}
	if summed {
		x.put(0, x.bold, "Total")
		if err := x.write(); err != nil {
			return err
		}
	}
	if err := x.endSheet(last); err != nil {
		return err
	}
	x.file.SetZipWriter(x.zipWriter)
	return x.file.Write(io.Discard)
}

// zipWriter packs into w. By itself the library packs into memory and then
// copies, which a report of millions of rows must not do; the buffer that it
// offers stays empty. Rows repeat themselves, so the fastest level is enough.
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
