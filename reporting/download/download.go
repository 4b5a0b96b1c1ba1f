// Package download answers GET /reports/{name}.{csv|xlsx|json} (decisions, "Finance") with a
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
	"os"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
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
		file, err = spool()
		if err != nil {
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
		packed, err = gzip.NewWriterLevel(out, gzip.BestSpeed)
		if err != nil {
			return 0, err
		}
		out = packed
	}

	summary, err := q.report.Run(ctx, d.archive, q.params, q.format.Sink(out), func(n int64) { rows = n })
	wrong := (reports.ParamErrors)(nil)
	switch {
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
		s.by[user]--
		if s.by[user] == 0 {
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
