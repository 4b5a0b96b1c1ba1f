package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/tracing"
)

// Process is what a running program has: log, metrics, traces and the ledger.
type Process struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Tracer   *tracing.Tracer // nil: tracing is off
	ledger   atomic.Pointer[ledger.Ledger]

	// certificates has by server the end of the certificate that it shows.
	certificates *prometheus.GaugeVec
}

// NewProcess prepares the process of the named program. Nothing is connected yet.
func NewProcess(ctx context.Context, name, environment string, t tracing.Settings, log *slog.Logger) (*Process, error) {
	tracer, err := tracing.Open(ctx, t, name, environment, log)
	if err != nil {
		return nil, err
	}

	p := &Process{Log: log, Registry: NewRegistry(), Tracer: tracer}
	metrics := NewMetrics(p.Registry, nil)
	p.certificates = metrics.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vendorapi_peer_certificate_expiry_timestamp_seconds",
		Help: "When the certificate ends that a server (redis, clickhouse) shows, as a Unix time; absent without TLS.",
	}, []string{"server"})

	metrics.GaugeFunc("vendorapi_clock_ahead_seconds",
		"How far this machine's clock is ahead of Redis's; below 0 it is behind, and 0 is also what is too little to tell.",
		func() float64 {
			l := p.Ledger()
			if l == nil {
				return 0
			}
			return l.ClockAhead().Seconds()
		})

	return p, nil
}

// SeenCertificate returns what shows the end of a server's certificate, which is called for
// each new connection.
func (p *Process) SeenCertificate(server string) func(ends time.Time) {
	return func(ends time.Time) { p.certificates.WithLabelValues(server).Set(float64(ends.Unix())) }
}

// Ledger is the open ledger; nil until Redis has answered.
func (p *Process) Ledger() *ledger.Ledger { return p.ledger.Load() }

// Connect opens the ledger, waiting for Redis as long as it takes, and prepares it
// before Ledger has it; prepare may be nil. See Retry for its errors.
func (p *Process) Connect(ctx context.Context, cfg ledger.Config, prepare func(context.Context, *ledger.Ledger) error) (*ledger.Ledger, error) {
	cfg.SeenCertificate = p.SeenCertificate("redis")
	l, err := Retry(ctx, p.Log, "Redis", func() (*ledger.Ledger, error) {
		l, err := ledger.Open(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("open the ledger: %w", err)
		}

		servers, err := l.Monitor.Servers(ctx)
		if err != nil && len(servers) > 0 { // what the others hold can be served
			p.Log.Warn("a master of Redis does not answer; what it holds is served when it does", "error", err)
			err = nil
		}

		if err == nil {
			err = l.CheckScripts(ctx, servers)
		}

		if err == nil {
			_, err = l.ServerTime(ctx) // from here on the ledger knows Redis's time
		}

		if err == nil && prepare != nil {
			err = prepare(ctx, l)
		}

		if err != nil {
			return nil, errors.Join(err, l.Close())
		}

		for _, s := range servers {
			p.Log.Info("connected to Redis", "server", s.Name, "version", s.Version, "address", s.Addr)
			if !s.IsFixed() {
				p.Log.Warn("this release of the server lacks the fix of CVE-2025-49844, unless a distribution has fixed it without changing the number, as Debian has in redis 7.0.15",
					"server", s.Name, "version", s.Version)
			}
		}

		return l, nil
	})

	if err == nil {
		p.ledger.Store(l)
	}

	return l, err
}

// Retry repeats connect while it answers delivery.ErrUnavailable, with a line in the log
// for every try. Other errors are returned, and that of ctx when it ends.
func Retry[T any](ctx context.Context, log *slog.Logger, what string, connect func() (T, error)) (T, error) {
	pauses := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, Multiplier: 2, MaxInterval: 2 * time.Second}
	return backoff.Retry(ctx, func() (T, error) {
		connected, err := connect()
		if err != nil && !errors.Is(err, delivery.ErrUnavailable) {
			err = backoff.Permanent(err)
		}
		return connected, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, _ time.Duration) { log.Warn("waiting for "+what, "error", err) }))
}

// Repeat works at once and then as often as said, until ctx ends. Of failures in a row it logs the first,
// with the text failing, and their end with the text working, unless that is empty.
func Repeat(ctx context.Context, log *slog.Logger, every time.Duration, failing, working string, work func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for failed := false; ; {
		err := work(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			log.Warn(failing, "error", err)
		case err == nil && failed && working != "":
			log.Info(working)
		}

		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// WatchFleets loads the fleets as often as a change of them must be known, until ctx ends.
func WatchFleets(ctx context.Context, log *slog.Logger, l *ledger.Ledger) {
	Repeat(ctx, log, accounts.FleetPoll, "fleets cannot be refreshed; the last known ones stay in force", "fleets are refreshed again", l.Fleets.Refresh)
}

// clockInterval is how often a program that does not watch the fleets compares its clock with Redis's.
const clockInterval = time.Second

// WatchClock compares the process's clock with Redis's, until ctx ends.
func WatchClock(ctx context.Context, log *slog.Logger, l *ledger.Ledger) {
	Repeat(ctx, log, clockInterval, "the clock of Redis cannot be read; the last known difference stays in force", "the clock of Redis is read again",
		func(ctx context.Context) error {
			_, err := l.ServerTime(ctx)
			return err
		})
}

// Protect turns a panic into an error and counts it: one defective record must not end the process.
func Protect(panics prometheus.Counter, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			panics.Inc()
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return work()
}

// Ready is nil when Redis answers.
func (p *Process) Ready(ctx context.Context) error {
	l := p.Ledger()
	if l == nil {
		return errors.New("waiting for Redis")
	}
	return l.Ping(ctx)
}

// Run serves the operators' listener, opens the ledger and works until ctx ends or
// one of these fails. It closes the process.
func (p *Process) Run(ctx context.Context, ops Ops, cfg ledger.Config, ready func(context.Context) error,
	work func(context.Context, *ledger.Ledger) error) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		listener, err := net.Listen("tcp", ops.Addr)
		if err != nil {
			return fmt.Errorf("ops listener: %w", err)
		}
		p.Log.Info("listening for operators", "address", listener.Addr())
		return Serve(running, listener, Handler(p.Registry, ready, ops.Pprof))
	})

	group.Go(func() error {
		l, err := p.Connect(running, cfg, nil)
		switch {
		case running.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		return work(running, l)
	})

	err := group.Wait()
	p.Close(ctx)

	return err
}

// lastTraces bounds how long Close waits for the collector.
const lastTraces = time.Second

// Close gives back the connections to Redis and sends the last traces.
func (p *Process) Close(ctx context.Context) {
	if l := p.Ledger(); l != nil {
		if err := l.Close(); err != nil {
			p.Log.Warn("the ledger did not close", "error", err)
		}
	}

	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTraces)
	defer cancel()
	if err := p.Tracer.Close(end); err != nil {
		p.Log.Warn("the last traces were not taken", "error", err)
	}
}
