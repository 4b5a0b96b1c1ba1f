package tracking

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ requests *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "reporting_tracking_requests_total",
		Help: "Requests for tracking pages, by what was asked for (page: opened, live: renewed by a page that is open) and what became of it.",
	}, []string{"form", "result"})}
	reg.MustRegister(m.requests)
	for _, r := range results {
		m.of(full, r)
		m.of(renewal, r)
	}
	return m
}

// of is the counter of a form and a result.
func (m *metrics) of(f form, r result) prometheus.Counter {
	name := "page"
	if f == renewal {
		name = "live"
	}
	return m.requests.WithLabelValues(name, string(r))
}
