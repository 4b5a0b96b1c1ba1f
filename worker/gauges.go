package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
)

// gaugesInterval is the pause between two looks at the ledger's figures.
const gaugesInterval = 5 * time.Second

// gauges shows what waits in the ledger. Every replica shows the same figures,
// so dashboards take the maximum and not the sum.
type gauges struct {
	ledger  *ledger.Ledger
	log     *slog.Logger
	streams *prometheus.GaugeVec
	lag     *prometheus.GaugeVec
	pending *prometheus.GaugeVec
	waiting prometheus.Gauge
	refused prometheus.Gauge
	dead    prometheus.Gauge
}

func newGauges(l *ledger.Ledger, log *slog.Logger, reg prometheus.Registerer) *gauges {
	g := &gauges{
		ledger: l,
		log:    log,
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "worker_stream_entries", Help: "Entries in the ledger's streams, settled ones included.",
		}, []string{"stream"}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "worker_feed_lag", Help: "Entries that a role has not been handed yet.",
		}, []string{"role"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "worker_feed_pending", Help: "Entries handed to a role and not settled yet.",
		}, []string{"role"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "worker_webhook_endpoints_waiting", Help: "Endpoints with events in their queue, first attempts and retries.",
		}),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "worker_refused_updates", Help: "Refused couriers' updates that the ledger keeps for operators.",
		}),
		dead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "worker_dead_letters", Help: "Entries that no worker could settle; each needs a look.",
		}),
	}
	reg.MustRegister(g.streams, g.lag, g.pending, g.waiting, g.refused, g.dead)
	return g
}

// run refreshes the figures until ctx ends. While Redis is away they keep
// their last values; /readyz tells that it is.
func (g *gauges) run(ctx context.Context) error {
	ticker := time.NewTicker(gaugesInterval)
	defer ticker.Stop()
	for {
		if stats, err := g.ledger.Stats(ctx); err == nil {
			g.show(stats)
		} else if ctx.Err() == nil {
			g.log.Debug("no figures", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (g *gauges) show(s ledger.Stats) {
	g.streams.WithLabelValues("events").Set(float64(s.Events))
	g.streams.WithLabelValues("updates").Set(float64(s.Updates))
	for role, n := range s.Unread {
		g.lag.WithLabelValues(string(role)).Set(float64(n))
	}
	for role, n := range s.Pending {
		g.pending.WithLabelValues(string(role)).Set(float64(n))
	}
	g.waiting.Set(float64(s.EndpointsDue))
	g.refused.Set(float64(s.RefusedUpdates))
	g.dead.Set(float64(s.DeadLetters))
}
