package download

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/reports"
)

// formats are those that can be downloaded. A table is for terminals.
var formats = map[string]reports.Format{".csv": reports.CSV, ".xlsx": reports.XLSX, ".json": reports.JSON}

// request is a valid download.
type request struct {
	report *reports.Report
	format reports.Format
	params reports.Params
	// unknown: no account, fleet or store has such an id or name; nil: all exist.
	unknown *delivery.FieldError
}

// Names reads parameters that give accounts, fleets and stores by ids or names. unknown is
// that none has it, which is no error where history knows more.
type Names func(ctx context.Context, v reports.Values, now time.Time) (p reports.Params, unknown *delivery.FieldError, err error)

// parse reads a request. The error is NOT_FOUND for another report or extension,
// METHOD_NOT_ALLOWED, MALFORMED_REQUEST, or VALIDATION_FAILED with the fields.
func parse(r *http.Request, names Names, now time.Time) (*request, error) {
	file, ok := strings.CutPrefix(r.URL.Path, "/reports/")
	extension := path.Ext(file)
	report, found := reports.Find(strings.TrimSuffix(file, extension))
	format, written := formats[extension]
	if !ok || !found || !written {
		return nil, delivery.Refuse(delivery.CodeNotFound, "there is %s, each as .csv, .xlsx and .json", strings.Join(reports.Names(), ", "))
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, delivery.Refuse(delivery.CodeMethodNotAllowed, "reports are for reading: GET or HEAD")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, delivery.Refuse(delivery.CodeMalformedRequest, "the query cannot be read")
	}
	values, wrong := reports.ReadValues(query, "parameter", "plain", "comma")
	if len(wrong) > 0 {
		return nil, invalid(wrong...)
	}
	params, unknown, err := names(r.Context(), values, now)
	if errors.As(err, &wrong) {
		return nil, invalid(wrong...)
	}
	if err != nil {
		return nil, err
	}
	if params.Kind != "" && !report.HasKinds() {
		return nil, invalid(delivery.FieldError{Field: "kind", Message: "is for exceptions only"})
	}
	for name, other := range map[string]reports.Format{"plain": reports.CSVPlain, "comma": reports.CSVComma} {
		wrong := delivery.FieldError{Field: name}
		switch given := query.Get(name); {
		case given == "" || given == "0":
			continue
		case given == "1" && format == reports.CSV:
			format = other
			continue
		case given == "1" && extension == reports.CSV.Extension():
			wrong = delivery.FieldError{Field: "plain", Message: "and comma are two forms of a CSV file: give one"}
		case given == "1":
			wrong.Message = "is for .csv only"
		default:
			wrong.Message = "must be 1 or 0"
		}
		return nil, invalid(wrong)
	}
	return &request{report: report, format: format, params: params, unknown: unknown}, nil
}

func invalid(fields ...delivery.FieldError) error {
	return &delivery.Error{Code: delivery.CodeValidationFailed, Fields: fields, Message: fields[0].Field + " " + fields[0].Message}
}

// name is what a browser calls the file: order-ledger_2026-11-01_2026-11-30_plain.csv.
func (q *request) name(filters string) string {
	form := map[reports.Format]string{reports.CSVPlain: "_plain", reports.CSVComma: "_comma"}[q.format]
	return q.report.Name + "_" + q.params.From.String() + "_" + q.params.To.String() + filters + form + q.format.Extension()
}

// longestFilter is how many characters of a filter's name a file's has.
const longestFilter = 40

// filters are those of the report, as letters and digits of any language.
func (q *request) filters() string {
	var filters strings.Builder
	for _, filter := range q.params.Filters() {
		filters.WriteByte('_')
		for n, c := range []rune(filter.Value) {
			switch {
			case n >= longestFilter:
			case unicode.IsLetter(c), unicode.IsDigit(c):
				filters.WriteRune(c)
			default:
				filters.WriteByte('-')
			}
		}
	}
	return filters.String()
}

// setHeaders says what the body will be.
func (q *request) setHeaders(h http.Header, compressed bool) {
	h.Set("Content-Type", q.format.ContentType())
	plain := q.name("")
	disposition := `attachment; filename="` + plain + `"` // of letters, digits, - _ and . only
	if full := q.name(q.filters()); full != plain {
		disposition += "; filename*=UTF-8''" + url.PathEscape(full) // what every browser takes
	}
	h.Set("Content-Disposition", disposition)
	h.Set("Accept-Ranges", "none")
	if q.compressible() {
		h.Add("Vary", "Accept-Encoding")
	}
	if compressed {
		h.Set("Content-Encoding", "gzip")
	}
}

// compressible distinguishes text from a workbook, which is a ZIP file.
func (q *request) compressible() bool { return q.format != reports.XLSX }
