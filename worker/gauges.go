package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
)

const (
	// gaugesInterval is the time between two readings. It is longer where many partitions have to be
	// read, so that the figures do not cost Redis more than its work does.
	gaugesInterval     = 5 * time.Second
	gaugesPerPartition = 30 * time.Millisecond
	// rarely: every so many readings also take figures that cost more, or change less.
	rarely = 3
	// untilDropped is how many readings in a row another worker must be the first until this one
	// shows no queues: by then the other one shows them.
	untilDropped = 2
)

// gauges shows what waits in the ledger and what the Redis servers report. The servers' figures are
// the same in every replica. Those that cost commands for every partition only the first of the
// workers reads, so whoever uses them takes the greatest of all workers. While Redis is unavailable
// they keep their last values.
type gauges struct {
	ledger  *ledger.Ledger
	log     *slog.Logger
	isFirst func() bool // whether this worker is the one that reads figures of every partition

	queues, ages, servers atomic.Pointer[series] // of the last readings; nil: not read by this worker
}

// series are made again at every reading: roles, states and masters come and go.
type series []prometheus.Metric

func (s *series) gauge(value float64, name, help string, label ...string) {
	s.add(prometheus.GaugeValue, value, name, help, label)
}

func (s *series) counter(value int64, name, help string, label ...string) {
	s.add(prometheus.CounterValue, float64(value), name, help, label)
}

// add appends one; label is empty, or a name and a value.
func (s *series) add(kind prometheus.ValueType, value float64, name, help string, label []string) {
	names, values := label[:len(label)/2], label[len(label)/2:]
	*s = append(*s, prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...))
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	for _, read := range []*series{g.queues.Load(), g.ages.Load(), g.servers.Load()} {
		if read == nil {
			continue
		}
		for _, metric := range *read {
			out <- metric
		}
	}
}

func (g *gauges) run(ctx context.Context) error {
	ticker := time.NewTicker(max(gaugesInterval, time.Duration(g.ledger.Partitions())*gaugesPerPartition))
	defer ticker.Stop()
	sinceFirst := 0 // readings
	for reading := 0; ; reading++ {
		isRare := reading%rarely == 0
		var err error
		if isRare {
			err = g.readServers(ctx)
		}

		if g.isFirst() {
			err = errors.Join(err, g.readPartitions(ctx, isRare || g.ages.Load() == nil))
			sinceFirst = 0
		} else {
			sinceFirst++
		}
		if sinceFirst >= untilDropped {
			g.queues.Store(nil)
			g.ages.Store(nil)
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

// readPartitions reads the figures that cost commands for every partition, and the ages of streams if
// withAges is set.
func (g *gauges) readPartitions(ctx context.Context, withAges bool) error {
	err := g.readQueues(ctx)
	if withAges {
		err = errors.Join(err, g.readAges(ctx))
	}
	return err
}

func (g *gauges) readQueues(ctx context.Context) error {
	stats, err := g.ledger.Monitor.Stats(ctx)
	if err != nil {
		return err
	}
	queues, unknown := g.ledger.Monitor.QueueStats(ctx)
	if unknown != nil && !errors.Is(unknown, ledger.ErrNoOwner) {
		return unknown
	}
	s := new(series)
	entries := "Entries in the ledger's streams, settled ones included."
	s.gauge(float64(stats.Events), "worker_stream_entries", entries, "stream", "events")
	s.gauge(float64(stats.Updates), "worker_stream_entries", entries, "stream", "updates")
	for role, n := range stats.Unread {
		s.gauge(float64(n), "worker_feed_lag", "Entries that a role has not been handed yet.", "role", string(role))
	}
	for role, n := range stats.Pending {
		s.gauge(float64(n), "worker_feed_pending", "Entries handed to a role and not settled yet; 0 of roles that the owner of a partition plays.", "role", string(role))
	}
	s.gauge(float64(stats.RefusedUpdates), "worker_refused_updates", "Refused couriers' updates that the ledger keeps for operators.")
	s.gauge(float64(stats.DeadLetters), "worker_dead_letters", "Entries that no worker could settle; each needs a look.")
	// Every state, so that one that has become empty falls to 0.
	for _, state := range []ledger.EndpointState{ledger.EndpointHealthy, ledger.EndpointFailing, ledger.EndpointUnreachable, ledger.EndpointGone} {
		if unknown != nil {
			break // the sums would be too low
		}
		q, label := queues[state], string(state)
		s.gauge(float64(q.Endpoints), "worker_webhook_endpoints_waiting", "Endpoints with events that wait or are being sent.", "state", label)
		s.gauge(float64(q.Events), "worker_webhook_queue_events", "Events that wait for a webhook endpoint or are being sent to it.", "state", label)
		s.gauge(float64(q.BreakersOpen), "worker_webhook_breakers_open",
			"Endpoints with a backlog that are only probed, because too many attempts failed in a row.", "state", label)
		s.gauge(age(q.Oldest), "worker_webhook_queue_oldest_seconds", "Age of the oldest event that is next in its endpoint's queue.", "state", label)
	}
	g.queues.Store(s)
	return nil
}

func (g *gauges) readAges(ctx context.Context) error {
	s := new(series)
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook} {
		lag, err := g.ledger.Streams.Lag(ctx, role)
		if err != nil {
			return err
		}
		s.gauge(age(lag.Oldest), "worker_feed_oldest_seconds",
			"Age of the oldest entry that a role has not settled yet; 0: there is none.", "role", string(role))
	}
	g.ages.Store(s)
	return nil
}

func (g *gauges) readServers(ctx context.Context) error {
	s := new(series)
	s.gauge(float64(g.ledger.Partitions()), "worker_partitions", "Partitions of the ledger; each is to have one owner.")
	s.gauge(float64(g.ledger.ReplicasAwaited()), "worker_redis_replicas_awaited", "Replicas of a master that must confirm what is answered; 0: none.")
	servers, err := g.ledger.Monitor.Servers(ctx)
	if err != nil {
		return err
	}
	for i := range servers {
		r, addr := &servers[i], servers[i].Addr
		s.gauge(float64(r.MemoryUsed), "worker_redis_memory_used_bytes", "Memory that a Redis server uses.", "server", addr)
		s.gauge(float64(r.MemoryMax), "worker_redis_memory_max_bytes", "Memory that a Redis server may use; 0: no limit.", "server", addr)
		s.gauge(truth(r.Evicts()), "worker_redis_evicts", "1 when a Redis server deletes keys once its memory is full, orders among them.", "server", addr)
		s.gauge(float64(r.Clients), "worker_redis_clients", "Connections to a Redis server.", "server", addr)
		s.gauge(float64(r.Replicas), "worker_redis_replicas", "Replicas of a Redis server that are in sync with it.", "server", addr)
		s.gauge(float64(r.ReplicaLag), "worker_redis_replica_lag_bytes", "What the slowest replica of a Redis server has not got yet.", "server", addr)
		s.gauge(truth(r.AOF), "worker_redis_aof_enabled",
			"1 when a Redis server writes an append-only file, without which a restart loses orders.", "server", addr)
		s.gauge(truth(r.AOFBroken), "worker_redis_aof_failed", "1 when the last write or rewrite of the append-only file failed.", "server", addr)
		s.counter(r.AOFDelayed, "worker_redis_aof_delayed_writes_total", "Writes that have waited for the disk since the server's start.", "server", addr)
		s.counter(r.Commands, "worker_redis_commands_total", "Commands since the server's start.", "server", addr)
	}
	at, err := g.ledger.Monitor.LastBackup(ctx)
	if err != nil {
		return err
	}
	if !at.IsZero() {
		s.gauge(float64(at.Unix()), "worker_last_backup_timestamp_seconds", "When the latest whole backup began; absent: none was ever made.")
	}
	g.servers.Store(s)
	return nil
}

// age is how long ago something happened, in seconds; 0 of the zero time.
func age(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(time.Since(at).Seconds(), 0)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
