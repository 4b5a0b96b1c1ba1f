package auth

import (
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
)

// Results of an attempt to sign in.
const (
	resultSignedIn  = "signed_in"
	resultWrong     = "wrong"
	resultThrottled = "throttled"
	resultFailed    = "failed"
)

type metrics struct {
	signIns  *prometheus.CounterVec
	refusals *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reporting_sign_ins_total",
			Help: "Attempts to sign in, by what became of them.",
		}, []string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reporting_refused_requests_total",
			Help: "Requests that did not get past the gate, by error code.",
		}, []string{"code"}),
	}
	reg.MustRegister(m.signIns, m.refusals)
	for _, result := range []string{resultSignedIn, resultWrong, resultThrottled, resultFailed} {
		m.signIns.WithLabelValues(result)
	}
	return m
}

// refused counts by code; a failure of ours counts as INTERNAL_ERROR.
func (m *metrics) refused(err error) { m.refusals.WithLabelValues(string(delivery.CodeOf(err))).Inc() }
