package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
)

// gaugesInterval is the pause between two looks at the ledger's figures.
const gaugesInterval = 5 * time.Second

// rarely is every how many looks those figures are read that cost some commands
// for every partition.
const rarely = 3

// gauges shows what waits in the ledger. Every replica shows the same figures,
// so dashboards take the maximum and not the sum.
type gauges struct {
	ledger  *ledger.Ledger
	log     *slog.Logger
	servers *serverFigures

	streams, lag, pending, age          *prometheus.GaugeVec
	refused, dead                       *prometheus.GaugeVec // without labels
	endpoints, events, breakers, oldest *prometheus.GaugeVec // webhook queues by the state of their endpoints
}

func newGauges(l *ledger.Ledger, log *slog.Logger, reg prometheus.Registerer) *gauges {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	g := &gauges{
		ledger:  l,
		log:     log,
		servers: newServerFigures(reg),

		streams: gauge("worker_stream_entries", "Entries in the ledger's streams, settled ones included.", "stream"),
		lag:     gauge("worker_feed_lag", "Entries that a role has not been handed yet.", "role"),
		pending: gauge("worker_feed_pending", "Entries handed to a role and not settled yet.", "role"),
		age:     gauge("worker_feed_oldest_seconds", "Age of the oldest entry that a role has not settled yet; 0: there is none.", "role"),
		refused: gauge("worker_refused_updates", "Refused couriers' updates that the ledger keeps for operators."),
		dead:    gauge("worker_dead_letters", "Entries that no worker could settle; each needs a look."),

		endpoints: gauge("worker_webhook_endpoints_waiting", "Endpoints with events that wait or are being sent.", "state"),
		events:    gauge("worker_webhook_queue_events", "Events that wait for a webhook endpoint or are being sent to it.", "state"),
		breakers:  gauge("worker_webhook_breakers_open", "Endpoints with a backlog that are only probed, because too many attempts failed in a row.", "state"),
		oldest:    gauge("worker_webhook_queue_oldest_seconds", "Age of the oldest event that is next in its endpoint's queue.", "state"),
	}
	g.refused.WithLabelValues() // shown from the start
	g.dead.WithLabelValues()
	return g
}

// run refreshes the figures until ctx ends. While Redis is unavailable they keep
// their last values; /readyz tells that it is.
func (g *gauges) run(ctx context.Context) error {
	ticker := time.NewTicker(gaugesInterval)
	defer ticker.Stop()
	for look := 0; ; look++ {
		err := g.refresh(ctx)
		if look%rarely == 0 {
			err = errors.Join(err, g.refreshRarely(ctx))
		}
		if err != nil && ctx.Err() == nil {
			g.log.Debug("no figures", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (g *gauges) refresh(ctx context.Context) error {
	stats, err := g.ledger.Monitor.Stats(ctx)
	if err != nil {
		return err
	}
	queues, err := g.ledger.Monitor.QueueStats(ctx)
	if err != nil {
		return err
	}
	g.show(stats)
	g.showQueues(queues, time.Now())
	return nil
}

// refreshRarely reads the ages of what waits in the streams, and what the servers
// say of themselves.
func (g *gauges) refreshRarely(ctx context.Context) error {
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook} {
		lag, err := g.ledger.Streams.Lag(ctx, role)
		if err != nil {
			return err
		}
		age := 0.0
		if !lag.Oldest.IsZero() {
			age = max(time.Since(lag.Oldest).Seconds(), 0)
		}
		g.age.WithLabelValues(string(role)).Set(age)
	}
	return g.servers.refresh(ctx, g.ledger)
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
	g.refused.WithLabelValues().Set(float64(s.RefusedUpdates))
	g.dead.WithLabelValues().Set(float64(s.DeadLetters))
}

var endpointStates = []ledger.EndpointState{
	ledger.EndpointHealthy, ledger.EndpointFailing, ledger.EndpointUnreachable, ledger.EndpointGone,
}

// showQueues sets every state, so that one that has become empty falls to 0.
func (g *gauges) showQueues(queues map[ledger.EndpointState]ledger.QueueStats, now time.Time) {
	for _, state := range endpointStates {
		q, label := queues[state], string(state)
		age := 0.0
		if !q.Oldest.IsZero() {
			age = now.Sub(q.Oldest).Seconds()
		}
		g.endpoints.WithLabelValues(label).Set(float64(q.Endpoints))
		g.events.WithLabelValues(label).Set(float64(q.Events))
		g.breakers.WithLabelValues(label).Set(float64(q.BreakersOpen))
		g.oldest.WithLabelValues(label).Set(age)
	}
}
