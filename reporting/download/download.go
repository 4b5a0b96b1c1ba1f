// Package download answers GET /reports/{name}.{csv|xlsx|json} (design section 8) with a
// report, straight out of ClickHouse.
//
// Up to 256 kB are held back, so that most failures are still a status and an envelope; a
// later one cuts the connection, which every client reports as an error. A client that
// disconnects ends its query; one that takes nothing is disconnected. Memory does not grow
// with the length of a report.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/reports"
)

// Settings are the keys below "download" of configs/reporting.yaml, which explains them.
type Settings struct {
	AtOnce     int           `yaml:"at_once"`
	AtOnceEach int           `yaml:"at_once_each"`
	Stall      time.Duration `yaml:"stall"`
	Longest    time.Duration `yaml:"longest"`
}

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	switch {
	case s.AtOnce < 1 || s.AtOnce > 256:
		return errors.New("download.at_once: want 1 to 256")
	case s.AtOnceEach < 1 || s.AtOnceEach > s.AtOnce:
		return errors.New("download.at_once_each: want 1 to download.at_once")
	case s.Stall < time.Second:
		return errors.New("download.stall: want at least 1s")
	case s.Longest < s.Stall:
		return errors.New("download.longest: want at least download.stall")
	}
	return nil
}

// Downloads serves reports. It is safe for concurrent use.
type Downloads struct {
	archive  *archive.Archive
	settings Settings
	names    Names
	slots    slots
	log      *slog.Logger
	metrics  *metrics
	answer   func(w http.ResponseWriter, r *http.Request, err error)
}

// New prepares the downloads of an archive; answer answers with an error.
func New(a *archive.Archive, names Names, s Settings, answer func(http.ResponseWriter, *http.Request, error),
	log *slog.Logger, reg prometheus.Registerer) *Downloads {
	return &Downloads{archive: a, settings: s, names: names, slots: slots{most: s.AtOnce, mostEach: s.AtOnceEach, by: map[string]int{}},
		log: log.With("part", "download"), metrics: newMetrics(reg), answer: answer}
}

// Handler serves everything below /reports/ to those with the role finance.
func (d *Downloads) Handler(g *auth.Gate) http.Handler {
	return auth.Protect(auth.PolicyData, g.Require(http.HandlerFunc(d.serve), auth.Finance))
}

func (d *Downloads) serve(w http.ResponseWriter, r *http.Request) {
	q, err := parse(r, d.names, time.Now())
	if err != nil {
		if delivery.CodeOf(err) == delivery.CodeMethodNotAllowed {
			w.Header().Set("Allow", "GET, HEAD")
		}
		d.refuse(w, r, err)
		return
	}
	if r.Method == http.MethodHead { // the headers of GET but the length, once ClickHouse answers
		if err := d.archive.Ping(r.Context()); err != nil {
			d.refuse(w, r, err)
			return
		}
		q.setHeaders(w.Header())
		w.WriteHeader(http.StatusOK)
		return
	}
	leave, err := d.slots.take(auth.IdentityOf(r.Context()).Name)
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	defer leave()
	d.metrics.running.Inc()
	defer d.metrics.running.Dec()
	d.download(w, r, q)
}

func (d *Downloads) refuse(w http.ResponseWriter, r *http.Request, err error) {
	d.metrics.refused.WithLabelValues(string(delivery.CodeOf(err))).Inc()
	d.answer(w, r, err)
}

// download sends the report; it refuses as long as nothing was sent, then it cuts the
// connection.
func (d *Downloads) download(w http.ResponseWriter, r *http.Request, q *request) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), d.settings.Longest)
	defer cancel()
	var file *os.File
	if !r.ProtoAtLeast(1, 1) {
		var err error
		if file, err = spool(); err != nil {
			d.refuse(w, r, err)
			return
		}
		defer func() { _ = file.Close() }() // nothing of it is wanted any more
	}
	t := newTransfer(w, d.settings.Stall, q.setHeaders)
	rows, err := d.write(ctx, q, t, file)
	if delivery.CodeOf(err) == delivery.CodeValidationFailed {
		d.refuse(w, r, err)
		return
	}
	result, took := resultOf(r.Context(), ctx, t, err), time.Since(began)
	name, format := q.report.Name, q.format.Name
	d.metrics.downloads.WithLabelValues(name, format, result).Inc()
	d.metrics.rows.WithLabelValues(name, format).Add(float64(rows))
	d.metrics.bytes.WithLabelValues(name, format).Add(float64(t.bytes))
	log := d.log.With("report", name, "format", format, "params", q.params.String(), "by", auth.IdentityOf(r.Context()).Name,
		"result", result, "rows", rows, "bytes", t.bytes, "ms", took.Milliseconds())
	if err != nil {
		log.Warn("download ended early", "error", err)
	}
	switch {
	case err == nil:
		d.metrics.seconds.WithLabelValues(name, format).Observe(took.Seconds())
		log.Info("report downloaded")
		return
	case t.begun:
		panic(http.ErrAbortHandler) // the only way to end a body so that it is seen to be cut
	case result == resultTooLong:
		err = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: slotRetryAfter,
			Message: "the report takes too long; ask for a shorter period"}
	}
	d.answer(w, r, err)
}

// write runs the report into the transfer, by way of the file unless that is nil; rows is
// how many were read, to the last thousand if it fails. VALIDATION_FAILED comes before anything is sent.
func (d *Downloads) write(ctx context.Context, q *request, t *transfer, file *os.File) (rows int64, err error) {
	var out io.Writer = t
	if file != nil {
		out = file
	}
	var packed *gzip.Writer
	if q.compressed {
		if packed, err = gzip.NewWriterLevel(out, gzip.BestSpeed); err != nil {
			return 0, err
		}
		out = packed
	}
	summary, err := q.report.Run(ctx, d.archive, q.params, q.format.Sink(out), func(n int64) { rows = n })
	switch wrong := (reports.ParamErrors)(nil); {
	case errors.As(err, &wrong):
		return 0, invalid(wrong...)
	case err != nil:
		return rows, err
	case summary.Rows == 0 && q.unknown != nil:
		return 0, &delivery.Error{Code: delivery.CodeValidationFailed, Message: q.unknown.Message, Fields: []delivery.FieldError{*q.unknown}}
	case packed != nil:
		err = packed.Close()
	}
	if err == nil && file != nil {
		err = t.copyWhole(file)
	}
	if err == nil {
		err = t.finish()
	}
	return rows, err
}

// resultOf is the result of a download. client ends with the request's connection, ctx also
// when the download has taken too long.
func resultOf(client, ctx context.Context, t *transfer, err error) string {
	switch {
	case err == nil:
		return resultWhole
	case errors.Is(t.err, os.ErrDeadlineExceeded):
		return resultStalled
	case client.Err() != nil || t.begun && t.err != nil:
		return resultGone
	case ctx.Err() != nil:
		return resultTooLong
	case t.begun:
		return resultCut
	case errors.Is(err, delivery.ErrUnavailable):
		return resultUnavailable
	default:
		return resultFailed
	}
}

// slotRetryAfter is what a client without a slot is asked to wait: most downloads
// are over by then.
const slotRetryAfter = 5 * time.Second

// slots bound how many downloads run at once, in all and for one user or token.
type slots struct {
	most, mostEach int

	mu    sync.Mutex
	taken int
	by    map[string]int
}

// take gives a slot until leave is called: RATE_LIMITED when the user has all that one may
// have, SERVICE_UNAVAILABLE when others have them all.
func (s *slots) take(user string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by[user] >= s.mostEach:
		return nil, &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: slotRetryAfter,
			Message: fmt.Sprintf("%d downloads of yours are in progress, which is as many as one may have", s.by[user])}
	case s.taken >= s.most:
		return nil, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: slotRetryAfter,
			Message: "too many downloads are in progress"}
	}
	s.taken++
	s.by[user]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
		if s.by[user]--; s.by[user] == 0 {
			delete(s.by, user)
		}
	}), nil
}

const (
	resultWhole       = "whole"
	resultUnavailable = "unavailable" // of ClickHouse, before the first byte
	resultFailed      = "failed"      // something else was wrong before the first byte
	resultCut         = "cut"         // it failed in the middle
	resultGone        = "gone"        // the client disconnected
	resultStalled     = "stalled"     // the client took nothing for too long
	resultTooLong     = "too_long"    // it took longer than any may
)

type metrics struct {
	downloads, rows, bytes, refused *prometheus.CounterVec
	seconds                         *prometheus.HistogramVec
	running                         prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := service.NewMetrics(reg, nil)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		downloads: counters("reporting_downloads_total", "Downloads that began, by report, format and what became of them.", "report", "format", "result"),
		rows: counters("reporting_download_rows_total",
			"Rows read for downloads, those of unfinished ones to the last thousand.", "report", "format"),
		bytes:   counters("reporting_download_bytes_total", "Bytes of reports given to clients, after compression.", "report", "format"),
		refused: counters("reporting_download_refusals_total", "Downloads that did not begin, by error code.", "code"),
		running: with.Gauge("reporting_downloads_running", "Downloads in progress."),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{Name: "reporting_download_seconds", Help: "How long whole downloads took.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}}, []string{"report", "format"}),
	}
}

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
		switch given := query.Get(name); {
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
	if t.length, err = file.Seek(0, io.SeekCurrent); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("keep a report: %w", err)
	}
	_, err = io.Copy(t, file)
	return err
}
