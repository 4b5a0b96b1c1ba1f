package download

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	resultWhole       = "whole"
	resultUnavailable = "unavailable" // of ClickHouse, before the first byte
	resultFailed      = "failed"      // something else was wrong before the first byte
	resultCut         = "cut"         // it failed in the middle
	resultGone        = "gone"        // the client went away
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
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		downloads: counter("reporting_downloads_total",
			"Downloads that began, by report, format and what became of them.", "report", "format", "result"),
		rows: counter("reporting_download_rows_total",
			"Rows read for downloads, those of unfinished ones to the last thousand.", "report", "format"),
		bytes: counter("reporting_download_bytes_total",
			"Bytes of reports given to clients, after compression.", "report", "format"),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "reporting_download_seconds",
			Help:    "How long whole downloads took.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"report", "format"}),
		refused: counter("reporting_download_refusals_total",
			"Downloads that did not begin, by error code.", "code"),
		running: with.NewGauge(prometheus.GaugeOpts{Name: "reporting_downloads_running", Help: "Downloads in progress."}),
	}
}
