package testenv

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Value is what a counter or a gauge stands at.
func Value(t *testing.T, metric prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	Must(t, metric.Write(&m))
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}
