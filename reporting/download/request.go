package download

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/reports"
)

// prefix is where the downloads are.
const prefix = "/reports/"

// known are the parameters of a download. Another one is refused: a misspelt
// filter would give more than was meant.
var known = []string{"from", "to", "account", "fleet", "store", "plain", "comma"}

// request is a download that makes sense.
type request struct {
	report *reports.Report
	format reports.Format
	params reports.Params
}

// Names finds the ids of accounts, fleets and stores that are given by their names;
// what it does not know stays as it is.
type Names func(ctx context.Context, v reports.Values) reports.Values

// parse reads a request. NOT_FOUND for another report or extension,
// METHOD_NOT_ALLOWED, MALFORMED_REQUEST, VALIDATION_FAILED with the fields.
// Without from or to the period is what package reports makes of now.
func parse(r *http.Request, names Names, now time.Time) (*request, error) {
	file, ok := strings.CutPrefix(r.URL.Path, prefix)
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
	if err := checkNames(query); err != nil {
		return nil, err
	}
	params, err := names(r.Context(), reports.Values{From: query.Get("from"), To: query.Get("to"), Account: query.Get("account"),
		Fleet: query.Get("fleet"), Store: query.Get("store")}).Parse(now)
	if wrong := (reports.ParamErrors)(nil); errors.As(err, &wrong) {
		var fields []delivery.FieldError
		for _, w := range wrong {
			fields = append(fields, delivery.FieldError{Field: w.Param, Message: w.Reason})
		}
		return nil, &delivery.Error{Code: delivery.CodeValidationFailed, Message: fields[0].Field + " " + fields[0].Message, Fields: fields}
	}
	if err != nil {
		return nil, err
	}
	for name, other := range map[string]reports.Format{"plain": reports.CSVPlain, "comma": reports.CSVComma} {
		switch given := query.Get(name); {
		case given == "" || given == "0":
		case given == "1" && format == reports.CSV:
			format = other
		case given == "1" && extension == reports.CSV.Extension():
			return nil, invalid("plain", "and comma are two forms of a CSV file: give one")
		case given == "1":
			return nil, invalid(name, "is for .csv only")
		default:
			return nil, invalid(name, "must be 1 or 0")
		}
	}
	return &request{report: report, format: format, params: params}, nil
}

// formats are those that can be downloaded. A table is for terminals.
var formats = map[string]reports.Format{".csv": reports.CSV, ".xlsx": reports.XLSX, ".json": reports.JSON}

func checkNames(query url.Values) error {
	var fields []delivery.FieldError
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(known, name):
			fields = append(fields, delivery.FieldError{Field: name, Message: "is no parameter of a report; there is " + strings.Join(known, ", ")})
		case len(query[name]) > 1:
			fields = append(fields, delivery.FieldError{Field: name, Message: "was given more than once"})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return &delivery.Error{Code: delivery.CodeValidationFailed, Fields: fields, Message: fields[0].Field + " " + fields[0].Message}
}

func invalid(field, reason string) error {
	return &delivery.Error{Code: delivery.CodeValidationFailed, Message: field + " " + reason,
		Fields: []delivery.FieldError{{Field: field, Message: reason}}}
}

// fileName is what a browser calls the file: order-ledger_2026-11-01_2026-11-30.csv.
// Filters are not in it, but for plain and comma, which tell files of one report
// apart that look alike.
func (q *request) fileName() string {
	form := map[reports.Format]string{reports.CSVPlain: "_plain", reports.CSVComma: "_comma"}[q.format]
	return q.report.Name + "_" + q.params.From.String() + "_" + q.params.To.String() + form + q.format.Extension()
}

// setHeaders says what the body will be.
func (q *request) setHeaders(h http.Header, compressed bool) {
	h.Set("Content-Type", q.format.ContentType())
	h.Set("Content-Disposition", `attachment; filename="`+q.fileName()+`"`) // of letters, digits, - _ and . only
	h.Set("Accept-Ranges", "none")
	if q.compressible() {
		h.Add("Vary", "Accept-Encoding")
	}
	if compressed {
		h.Set("Content-Encoding", "gzip")
	}
}

// compressible tells text from a workbook, which is a ZIP file.
func (q *request) compressible() bool { return q.format != reports.XLSX }
