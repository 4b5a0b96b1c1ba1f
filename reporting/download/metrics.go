package download

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	downloads *prometheus.CounterVec
	rows      *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	refused   *prometheus.CounterVec
	running   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		downloads: with.NewCounterVec(prometheus.CounterOpts{Name: "reporting_downloads_total",
			Help: "Downloads that began, by report, format and what became of them."}, []string{"report", "format", "result"}),
		rows: with.NewCounterVec(prometheus.CounterOpts{Name: "reporting_download_rows_total",
			Help: "Rows read for downloads, those of unfinished ones to the last thousand."}, []string{"report", "format"}),
		bytes: with.NewCounterVec(prometheus.CounterOpts{Name: "reporting_download_bytes_total",
			Help: "Bytes of reports given to clients, after compression."}, []string{"report", "format"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "reporting_download_seconds",
			Help:    "How long whole downloads took.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"report", "format"}),
		refused: with.NewCounterVec(prometheus.CounterOpts{Name: "reporting_download_refusals_total",
			Help: "Downloads that did not begin, by error code."}, []string{"code"}),
		running: with.NewGauge(prometheus.GaugeOpts{Name: "reporting_downloads_running",
			Help: "Downloads in progress."}),
	}
}
