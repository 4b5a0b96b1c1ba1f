package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
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
	// readingsShown is for how many intervals of a reading its figures are shown when later ones fail: a
	// figure that is not true any more must not look as if all were well.
	readingsShown = 3
)

// The readings, by the label of their figures.
const (
	figuresQueues  = "queues"
	figuresAges    = "ages"
	figuresServers = "servers"
)

// gauges shows what waits in the ledger and what the Redis servers report. The servers' figures are
// the same in every replica. Those that cost commands for every partition only the first of the
// workers reads, so whoever uses them takes the greatest of all workers.
//
// In a cluster they are those of the servers that answer. How old they are is a figure, too: of each
// reading when it last had everything, and of each server when it last answered. What cannot be read
// at all is soon not shown any more.
type gauges struct {
	ledger  *ledger.Ledger
	log     *slog.Logger
	isFirst func() bool // whether this worker is the one that reads figures of every partition

	queues, ages, servers atomic.Pointer[reading] // the last ones; nil: not read by this worker

	seen map[string]time.Time // when each server last answered, or first did not; only run uses it
}

// reading is what one look at the ledger has brought.
type reading struct {
	figures series
	shown   time.Time // until when the figures are shown
	whole   series    // when everything was last read, which is shown for as long as the reading is kept
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
	now := time.Now()
	for _, read := range []*reading{g.queues.Load(), g.ages.Load(), g.servers.Load()} {
		if read == nil {
			continue
		}

		for _, metric := range read.whole {
			out <- metric
		}

		if now.After(read.shown) {
			continue
		}

		for _, metric := range read.figures {
			out <- metric
		}
	}
}

// keep replaces a reading by a new one that ended with err. With ledger.ErrIncomplete the figures are
// shown and whole stays as it was; after any other error those before are shown until their time is over.
// more is shown as long as the age is.
func (g *gauges) keep(into *atomic.Pointer[reading], name string, figures series, lastWhole time.Time, err error, more ...prometheus.Metric) {
	now := time.Now()
	next := &reading{figures: figures, shown: now.Add(readingsShown * rarely * g.interval())}
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		next.figures, next.shown = nil, now
		before := into.Load()
		if before != nil {
			next.figures, next.shown = before.figures, before.shown
		}
	}

	next.whole.gauge(float64(lastWhole.UnixMilli())/1000, "worker_figures_timestamp_seconds",
		"When figures were last read of every partition, or server, as a Unix time. Since then they lack those that do not answer.",
		"figures", name)
	next.whole = append(next.whole, more...)
	into.Store(next)
}

// interval is the time between two readings.
func (g *gauges) interval() time.Duration {
	return max(gaugesInterval, time.Duration(g.ledger.Partitions())*gaugesPerPartition)
}

func (g *gauges) run(ctx context.Context) error {
	ticker := time.NewTicker(g.interval())
	defer ticker.Stop()
	sinceFirst := untilDropped // readings
	began := time.Now()
	wholeServers, wholeQueues, wholeAges := began, began, began
	for reading := 0; ; reading++ {
		isRare := reading%rarely == 0
		var err error
		if isRare {
			err = g.readServers(ctx, &wholeServers)
		}

		if g.isFirst() {
			if sinceFirst >= untilDropped { // their age counts from now on
				wholeQueues, wholeAges = time.Now(), time.Now()
			}
			err = errors.Join(err, g.readQueues(ctx, &wholeQueues))
			if isRare || g.ages.Load() == nil {
				err = errors.Join(err, g.readAges(ctx, &wholeAges))
			}
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

// readQueues reads what waits in every partition. It moves whole when it has read all of it.
func (g *gauges) readQueues(ctx context.Context, whole *time.Time) (err error) {
	began := time.Now()
	s := new(series)
	defer func() {
		if err == nil {
			*whole = began
		}
		g.keep(&g.queues, figuresQueues, *s, *whole, err)
	}()

	var gaps ledger.Gaps
	stats, err := g.ledger.Monitor.Stats(ctx)
	incomplete := err
	if err := gaps.Allow(err); err != nil {
		return err
	}

	queues, unknown := g.ledger.Monitor.QueueStats(ctx)
	incomplete = errors.Join(incomplete, gapOf(unknown))
	unknown = gaps.Allow(unknown)
	if unknown != nil && !errors.Is(unknown, operations.ErrNoOwner) {
		return unknown
	}

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
	for _, state := range []partitions.EndpointState{partitions.EndpointHealthy, partitions.EndpointFailing, partitions.EndpointUnreachable, partitions.EndpointGone} {
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

	return incomplete
}

// gapOf returns err if it says that something is missing, else nil.
func gapOf(err error) error {
	if errors.Is(err, ledger.ErrIncomplete) {
		return err
	}
	return nil
}

// readAges reads how far roles are behind. It moves whole when it has read all streams.
func (g *gauges) readAges(ctx context.Context, whole *time.Time) (err error) {
	began := time.Now()
	s := new(series)
	defer func() {
		if err == nil {
			*whole = began
		}
		g.keep(&g.ages, figuresAges, *s, *whole, err)
	}()

	var incomplete error
	var gaps ledger.Gaps
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook} {
		lag, err := g.ledger.Streams.Lag(ctx, role)
		incomplete = errors.Join(incomplete, gapOf(err))
		if err := gaps.Allow(err); err != nil {
			return err
		}
		s.gauge(age(lag.Oldest), "worker_feed_oldest_seconds",
			"Age of the oldest entry that a role has not settled yet; 0: there is none.", "role", string(role))
	}

	return incomplete
}

// readServers reads the figures of the servers of Redis. It moves whole when every server has answered.
func (g *gauges) readServers(ctx context.Context, whole *time.Time) (err error) {
	began := time.Now()
	s := new(series)
	defer func() {
		if err == nil {
			*whole = began
		}
		g.keep(&g.servers, figuresServers, *s, *whole, err, g.lastAnswers()...)
	}()

	s.gauge(float64(g.ledger.Partitions()), "worker_partitions", "Partitions of the ledger; each is to have one owner.")
	s.gauge(float64(g.ledger.ReplicasAwaited()), "worker_redis_replicas_awaited", "Replicas of a master that must confirm what is answered; 0: none.")
	servers, incomplete := g.ledger.Monitor.Servers(ctx)
	g.note(servers, incomplete, began)
	if incomplete != nil && !errors.Is(incomplete, ledger.ErrIncomplete) {
		return incomplete
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

	// This is on one server, whose absence hides nothing of the others.
	at, err := g.ledger.Monitor.LastBackup(ctx)
	if err != nil {
		return errors.Join(incomplete, ledger.ErrIncomplete, err)
	}

	if !at.IsZero() {
		s.gauge(float64(at.Unix()), "worker_last_backup_timestamp_seconds", "When the latest whole backup began; absent: none was ever made.")
	}

	return incomplete
}

// note keeps when each server has answered. A server that has never answered is counted from the first
// time that it did not, and one that is no master any more is forgotten.
func (g *gauges) note(servers []ledger.Server, err error, at time.Time) {
	seen := make(map[string]time.Time)
	for i := range servers {
		seen[servers[i].Addr] = at
	}

	silent, isKnown := errors.AsType[*operations.SilentServers](err)
	if isKnown {
		for _, addr := range silent.Addrs {
			last, ok := g.seen[addr]
			if !ok {
				last = at
			}
			seen[addr] = last
		}
	}

	if err == nil || isKnown {
		g.seen = seen
	}
}

// lastAnswers shows when each server last answered.
func (g *gauges) lastAnswers() series {
	s := new(series)
	for addr, at := range g.seen {
		s.gauge(float64(at.UnixMilli())/1000, "worker_redis_figures_timestamp_seconds",
			"When a Redis server last answered this worker, as a Unix time. A server of a cluster that is silent has no other figures.",
			"server", addr)
	}
	return *s
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
