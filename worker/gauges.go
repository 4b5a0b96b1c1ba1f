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
	streams *prometheus.GaugeVec
	lag     *prometheus.GaugeVec
	pending *prometheus.GaugeVec
	age     *prometheus.GaugeVec
	roles   []ledger.Role // those whose feeds are watched
	queued  queueGauges
	servers *serverFigures
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
		age: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "worker_feed_oldest_seconds", Help: "Age of the oldest entry that a role has not settled yet; 0: there is none.",
		}, []string{"role"}),
		roles:   []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook},
		queued:  newQueueGauges(reg),
		servers: newServerFigures(reg),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "worker_refused_updates", Help: "Refused couriers' updates that the ledger keeps for operators.",
		}),
		dead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "worker_dead_letters", Help: "Entries that no worker could settle; each needs a look.",
		}),
	}
	reg.MustRegister(g.streams, g.lag, g.pending, g.age, g.refused, g.dead)
	return g
}

// run refreshes the figures until ctx ends. While Redis is away they keep
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
	g.queued.show(queues, time.Now())
	return nil
}

// refreshRarely reads the ages of what waits in the streams, and what the servers
// say of themselves.
func (g *gauges) refreshRarely(ctx context.Context) error {
	for _, role := range g.roles {
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
	g.refused.Set(float64(s.RefusedUpdates))
	g.dead.Set(float64(s.DeadLetters))
}

// queueGauges are the webhook queues by the state of their endpoints.
type queueGauges struct {
	endpoints, events, breakers, oldest *prometheus.GaugeVec
}

func newQueueGauges(reg prometheus.Registerer) queueGauges {
	byState := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"state"})
		reg.MustRegister(g)
		return g
	}
	return queueGauges{
		endpoints: byState("worker_webhook_endpoints_waiting", "Endpoints with events that wait or are being sent."),
		events:    byState("worker_webhook_queue_events", "Events that wait for a webhook endpoint or are being sent to it."),
		breakers:  byState("worker_webhook_breakers_open", "Endpoints with a backlog that are only probed, because too many attempts failed in a row."),
		oldest:    byState("worker_webhook_queue_oldest_seconds", "Age of the oldest event that is next in its endpoint's queue."),
	}
}

var endpointStates = []ledger.EndpointState{
	ledger.EndpointHealthy, ledger.EndpointFailing, ledger.EndpointUnreachable, ledger.EndpointGone,
}

// show sets every state, so that one that has become empty falls to 0.
func (g queueGauges) show(queues map[ledger.EndpointState]ledger.QueueStats, now time.Time) {
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
