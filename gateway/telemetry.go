package main

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
)

// watchScript measures the calls of one Redis script.
func (g *gateway) watchScript(operation string) ledger.CallObserver {
	took := g.scripts(operation)
	return func(_ context.Context, began time.Time, _ error) { took(time.Since(began)) }
}

// showExpiry shows until when a listener's certificate is good; it is read again
// when its files change.
func (g *gateway) showExpiry(listener string, secure *tls.Config) {
	g.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "gateway_certificate_expiry_timestamp_seconds",
		Help:        "When the certificate that a listener shows ends, as a Unix time; absent without TLS.",
		ConstLabels: prometheus.Labels{"listener": listener},
	}, func() float64 {
		certificate, err := secure.GetCertificate(nil)
		if err != nil || certificate.Leaf == nil {
			return 0
		}
		return float64(certificate.Leaf.NotAfter.Unix())
	}))
}
