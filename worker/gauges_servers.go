package main

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
)

// serverFigures are what the Redis servers said of themselves when they were last
// asked, and whether this process works in the ledger's present epoch. Masters
// come and go, so the series are made at every scrape.
type serverFigures struct {
	servers    atomic.Pointer[[]ledger.Server]
	staleEpoch prometheus.Gauge
}

// serverFigure is one metric of a server.
type serverFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*ledger.Server) float64
}

func figure(kind prometheus.ValueType, name, help string, value func(*ledger.Server) float64) serverFigure {
	return serverFigure{prometheus.NewDesc("worker_redis_"+name, help, []string{"server"}, nil), kind, value}
}

var figuresOfServer = []serverFigure{
	figure(prometheus.GaugeValue, "memory_used_bytes", "Memory that a Redis server uses.",
		func(s *ledger.Server) float64 { return float64(s.MemoryUsed) }),
	figure(prometheus.GaugeValue, "memory_max_bytes", "Memory that a Redis server may use; 0: no limit.",
		func(s *ledger.Server) float64 { return float64(s.MemoryMax) }),
	figure(prometheus.GaugeValue, "clients", "Connections to a Redis server.",
		func(s *ledger.Server) float64 { return float64(s.Clients) }),
	figure(prometheus.GaugeValue, "replicas", "Replicas that are connected to a Redis server.",
		func(s *ledger.Server) float64 { return float64(s.Replicas) }),
	figure(prometheus.GaugeValue, "aof_enabled", "1 when a Redis server writes an append-only file, without which a restart loses orders.",
		func(s *ledger.Server) float64 { return truth(s.AOF) }),
	figure(prometheus.GaugeValue, "aof_failed", "1 when the last write or rewrite of the append-only file failed.",
		func(s *ledger.Server) float64 { return truth(s.AOFBroken) }),
	figure(prometheus.CounterValue, "aof_delayed_writes_total", "Writes that have waited for the disk since the server's start.",
		func(s *ledger.Server) float64 { return float64(s.AOFDelayed) }),
	figure(prometheus.CounterValue, "commands_total", "Commands since the server's start.",
		func(s *ledger.Server) float64 { return float64(s.Commands) }),
}

func newServerFigures(reg prometheus.Registerer) *serverFigures {
	f := &serverFigures{staleEpoch: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "worker_ledger_epoch_stale",
		Help: "1 when a backup was restored under this process, which must be started anew.",
	})}
	reg.MustRegister(f.staleEpoch, f)
	return f
}

// Describe implements prometheus.Collector.
func (f *serverFigures) Describe(out chan<- *prometheus.Desc) {
	for _, one := range figuresOfServer {
		out <- one.desc
	}
}

// Collect implements prometheus.Collector.
func (f *serverFigures) Collect(out chan<- prometheus.Metric) {
	servers := f.servers.Load()
	if servers == nil {
		return
	}
	for i := range *servers {
		s := &(*servers)[i]
		for _, one := range figuresOfServer {
			out <- prometheus.MustNewConstMetric(one.desc, one.kind, one.value(s), s.Addr)
		}
	}
}

func (f *serverFigures) refresh(ctx context.Context, l *ledger.Ledger) error {
	servers, err := l.Monitor.Servers(ctx)
	if err != nil {
		return err
	}
	f.servers.Store(&servers)
	own, stored, err := l.Monitor.Epochs(ctx)
	if err != nil {
		return err
	}
	f.staleEpoch.Set(truth(own != stored))
	return nil
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
