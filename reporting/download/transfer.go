package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/reports"
)

// formats are those that can be downloaded. A table is for terminals.
var formats = map[string]*reports.Format{".csv": reports.CSV, ".xlsx": reports.XLSX, ".json": reports.JSON}

type request struct {
	report *reports.Report
	format *reports.Format
	params reports.Params
	// compressed is set for a client that takes gzip, but not for a workbook, which is a ZIP file.
	compressed bool
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

	for name, other := range map[string]*reports.Format{"plain": reports.CSVPlain, "comma": reports.CSVComma} {
		wrong := delivery.FieldError{Field: name}
		given := query.Get(name)
		switch {
		case given == "" || given == "0":
			continue
		case given == "1" && format == reports.CSV:
			format = other
			continue
		case given == "1" && extension == reports.CSV.Extension:
			wrong = delivery.FieldError{Field: "plain", Message: "and comma are two forms of a CSV file: give one"}
		case given == "1":
			wrong.Message = "is for .csv only"
		default:
			wrong.Message = "must be 1 or 0"
		}

		return nil, invalid(wrong)
	}

	return &request{report: report, format: format, params: params, unknown: unknown,
		compressed: format != reports.XLSX && auth.AcceptsGzip(r)}, nil
}

func invalid(fields ...delivery.FieldError) error {
	return &delivery.Error{Code: delivery.CodeValidationFailed, Fields: fields, Message: fields[0].Field + " " + fields[0].Message}
}

func (q *request) name(filters string) string {
	form := map[*reports.Format]string{reports.CSVPlain: "_plain", reports.CSVComma: "_comma"}[q.format]
	return q.report.Name + "_" + q.params.From.String() + "_" + q.params.To.String() + filters + form + q.format.Extension
}

// longestFilter is how many characters of a filter's name a file's has.
const longestFilter = 40

// filters are those of the report, as letters and digits of any language.
func (q *request) filters() (filters string) {
	plain := func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return '-'
	}

	for _, filter := range q.params.Filters() {
		text := []rune(filter.Value)
		filters += "_" + strings.Map(plain, string(text[:min(len(text), longestFilter)]))
	}

	return filters
}

func (q *request) setHeaders(h http.Header) {
	h.Set("Content-Type", q.format.ContentType)
	plain := q.name("")
	disposition := `attachment; filename="` + plain + `"` // of letters, digits, - _ and . only
	if full := q.name(q.filters()); full != plain {
		disposition += "; filename*=UTF-8''" + url.PathEscape(full) // what every browser takes
	}

	h.Set("Content-Disposition", disposition)
	h.Set("Accept-Ranges", "none")
	if q.format != reports.XLSX {
		h.Add("Vary", "Accept-Encoding")
	}

	if q.compressed {
		h.Set("Content-Encoding", "gzip")
	}
}

const (
	// holdBack is how many bytes wait until it is known that they may go.
	holdBack = 256 << 10
	// step is how many bytes a client must take within the stall time.
	step = 64 << 10
)

// transfer is the body of an answer. Until more than holdBack bytes have come nothing is
// sent, and an error can still become another answer; a shorter body has its length.
type transfer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	header  func(http.Header) // sets what the body is, just before it begins

	held   []byte
	length int64 // of the whole body, if it is known before it begins; else 0
	begun  bool  // the status is out
	bytes  int64 // given to the client
	err    error // of giving; the first one
}

func newTransfer(w http.ResponseWriter, stall time.Duration, header func(http.Header)) *transfer {
	return &transfer{w: w, control: http.NewResponseController(w), stall: stall, header: header}
}

// Write takes a piece of the body.
func (t *transfer) Write(p []byte) (int, error) {
	if t.err == nil && !t.begun {
		if len(t.held)+len(p) <= holdBack {
			t.held = append(t.held, p...)
			return len(p), nil
		}
		t.begin()
	}
	return t.send(p)
}

// begin sends the status and what was held back.
func (t *transfer) begin() {
	t.begun = true
	t.header(t.w.Header())
	if t.length > 0 {
		t.w.Header().Set("Content-Length", strconv.FormatInt(t.length, 10))
	}

	t.w.WriteHeader(http.StatusOK)
	_, _ = t.send(t.held) // the error is kept
	t.held = nil
}

// send gives the client a piece, each part of it within the stall time.
func (t *transfer) send(p []byte) (n int, err error) {
	for n < len(p) && t.err == nil {
		if err := t.control.SetWriteDeadline(time.Now().Add(t.stall)); err != nil {
			t.err = fmt.Errorf("bound a write: %w", err)
			break
		}
		var took int
		took, t.err = t.w.Write(p[n:min(n+step, len(p))])
		t.bytes += int64(took)
		n += took
	}

	return n, t.err
}

// finish sends what is left, with its length if nothing has been sent.
func (t *transfer) finish() error {
	if t.err == nil && !t.begun {
		t.length = int64(len(t.held))
		t.begin()
	}

	if t.err == nil {
		// The last part, which net/http still has.
		t.err = t.control.SetWriteDeadline(time.Now().Add(t.stall))
	}
	return t.err
}

// spool is a file for all of a body. To a client of HTTP/1.0, such as some proxies, the end
// of a body and a cut connection look alike: it gets everything with its length.
func spool() (*os.File, error) {
	file, err := os.CreateTemp("", "report-*")
	if err != nil {
		return nil, fmt.Errorf("keep a report: %w", err)
	}

	// Without a name it goes with this process, whatever ends it.
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close() // the first error says more
		return nil, fmt.Errorf("keep a report: %w", err)
	}

	return file, nil
}

// copyWhole sends what has been written to a file, with its length.
func (t *transfer) copyWhole(file *os.File) (err error) {
	t.length, err = file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}

	if err != nil {
		return fmt.Errorf("keep a report: %w", err)
	}

	_, err = io.Copy(t, file)
	return err
}
