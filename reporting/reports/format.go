package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"
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

// Formats lists them all.
func Formats() []Format { return []Format{Table, CSV, CSVComma, CSVPlain, XLSX, JSON} }

// ParseFormat reads a format's name.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); slices.Contains(Formats(), f) {
		return f, nil
	}
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return "", fmt.Errorf("format %q is not one of %s", name, strings.Join(names, ", "))
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
