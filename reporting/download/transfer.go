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
	"vendorapi/reporting/reports"
)

const (
	// holdBack is how many bytes wait until it is known that they may go.
	holdBack = 256 << 10
	// step is how many bytes a client must take within the stall time.
	step = 64 << 10
)

// transfer is the body of an answer. Until more than holdBack bytes have come nothing is
// sent, and an error can still become another answer; a shorter body has its length.
//
// To a client of HTTP/1.0, such as some proxies, the end of a body and a cut connection look
// alike. It gets everything with its length, from a file.
type transfer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	header  func(http.Header) // sets what the body is, just before it begins

	held  []byte
	file  *os.File // instead of sending; nil unless spooled
	begun bool     // the status is out
	bytes int64    // given to the client
	err   error    // of giving; the first one
}

// newTransfer prepares one; spool keeps all of it in a file until the end.
func newTransfer(w http.ResponseWriter, stall time.Duration, spool bool, header func(http.Header)) (*transfer, error) {
	t := &transfer{w: w, control: http.NewResponseController(w), stall: stall, header: header}
	if !spool {
		return t, nil
	}
	file, err := os.CreateTemp("", "report-*")
	if err != nil {
		return nil, fmt.Errorf("keep a report: %w", err)
	}
	t.file = file
	// Without a name it goes with this process, whatever ends it.
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close() // the first error says more
		return nil, fmt.Errorf("keep a report: %w", err)
	}
	return t, nil
}

// Write takes a piece of the body.
func (t *transfer) Write(p []byte) (int, error) {
	switch {
	case t.err != nil:
		return 0, t.err
	case t.begun:
		return t.send(p)
	case len(t.held)+len(p) <= holdBack:
		t.held = append(t.held, p...)
		return len(p), nil
	}
	if err := t.release(); err != nil {
		return 0, err
	}
	return t.send(p)
}

func (t *transfer) release() error {
	held := t.held
	t.held = nil
	if t.file == nil {
		t.begin()
	}
	_, err := t.send(held)
	return err
}

func (t *transfer) begin() {
	t.begun = true
	t.header(t.w.Header())
	t.w.WriteHeader(http.StatusOK)
}

// send gives the client a piece, each part of it within the stall time.
func (t *transfer) send(p []byte) (n int, err error) {
	for n < len(p) && t.err == nil {
		part := p[n:min(n+step, len(p))]
		var took int
		if t.file != nil && !t.begun {
			took, t.err = t.file.Write(part)
		} else {
			took, t.err = t.give(part)
			t.bytes += int64(took)
		}
		n += took
	}
	return n, t.err
}

func (t *transfer) give(part []byte) (int, error) {
	if err := t.control.SetWriteDeadline(time.Now().Add(t.stall)); err != nil {
		return 0, fmt.Errorf("bound a write: %w", err)
	}
	return t.w.Write(part)
}

// finish sends what is left, with its length if nothing has been sent.
func (t *transfer) finish() error {
	switch {
	case t.err != nil || t.begun:
	case t.file == nil:
		t.w.Header().Set("Content-Length", strconv.Itoa(len(t.held)))
		_ = t.release() // the error is kept
	default:
		t.finishFile()
	}
	if t.err == nil {
		// The last part, which net/http still has.
		t.err = t.control.SetWriteDeadline(time.Now().Add(t.stall))
	}
	return t.err
}

func (t *transfer) finishFile() {
	if t.release() != nil {
		return
	}
	size, err := t.file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = t.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.err = fmt.Errorf("keep a report: %w", err)
		return
	}
	t.w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	t.begin()
	// Read and Write alone, so that nothing is sent past the stall time's back.
	_, err = io.CopyBuffer(struct{ io.Writer }{t}, struct{ io.Reader }{t.file}, make([]byte, step))
	if t.err == nil {
		t.err = err
	}
}

// close gives the file back. It may be called at any time.
func (t *transfer) close() {
	if t.file != nil {
		_ = t.file.Close() // nothing of it is wanted any more
	}
}

// formats are those that can be downloaded. A table is for terminals.
var formats = map[string]reports.Format{".csv": reports.CSV, ".xlsx": reports.XLSX, ".json": reports.JSON}

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
