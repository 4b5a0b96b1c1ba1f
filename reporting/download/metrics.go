package download

import (
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/service"
)

// Results of a download.
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
