// Program worker moves what the gateway accepted: it decides the couriers'
// updates, fires timers, sends webhooks, and plays the couriers of a sandbox.
//
//	                    +--------------------- worker ---------------------+
//	updates, orders --> | status    feed, timers, retention     --> commit | --> events
//	events ----------> | webhook   feed, queues, leases, sender --> HTTPS | --> vendors
//	fleets, jobs ----> | courier   sandbox only                --> report | --> updates
//	                    | ops       /metrics /healthz /readyz              |
//	                    +--------------------------------------------------+
//
// It owns the choice of roles and their life; each role is a package of its
// own. It refuses to end because Redis is away: it waits, says so on /readyz,
// and goes on. Nothing is kept in the process that another replica would need.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/worker/courier"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

func main() {
	// net/http's client writes what a receiver sends unasked into the standard
	// log, up to 4 kB a time: a vendor could fill the disk with it.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run is the program without the process around it; it returns nil when ctx
// ended and everything stopped in order. out is for what was asked for on the
// command line.
func run(ctx context.Context, args []string, out, logs io.Writer) error {
	asked, err := parseCommand(args, out, logs)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if asked.check {
		return checkConfig(asked, out)
	}
	var s settings
	if err := config.Load(asked.config, &s); err != nil {
		return err
	}
	if asked.health {
		return service.Ask(ctx, s.Ops.Addr, false)
	}
	roles, err := s.chooseRoles(asked.roles)
	if err != nil {
		return err
	}
	log, err := service.NewLogger(logs, s.Log.Level, s.Log.Format)
	if err != nil {
		return err
	}
	keys, err := config.Keys("WEBHOOK_KEYS")
	if err != nil {
		return err
	}
	return newProgram(s, roles, ledger.SecretKeys(keys), log).run(ctx)
}

// program is one worker with its settings judged and its secrets read.
type program struct {
	settings settings
	roles    []string
	secrets  ledger.SecretKeys
	log      *slog.Logger
	registry *prometheus.Registry
	// scripts measures the calls of each Redis script.
	scripts func(script string) func(took time.Duration)
	tracer  *tracing.Tracer // nil: tracing is off
	// ledger is nil until Redis answered for the first time.
	ledger atomic.Pointer[ledger.Ledger]
}

func newProgram(s settings, roles []string, secrets ledger.SecretKeys, log *slog.Logger) *program {
	registry := service.NewRegistry()
	return &program{settings: s, roles: roles, secrets: secrets, log: log, registry: registry, scripts: service.ScriptDurations(registry)}
}

// watchScript measures the calls of one Redis script.
func (p *program) watchScript(operation string) ledger.CallObserver {
	took := p.scripts(operation)
	return func(_ context.Context, began time.Time, _ error) { took(time.Since(began)) }
}

// lastTraces bounds what an orderly end waits for the collector.
const lastTraces = time.Second

func (p *program) run(ctx context.Context) (err error) {
	if p.tracer, err = tracing.Open(ctx, p.settings.Tracing, "worker", p.settings.Environment, p.log); err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTraces)
		defer cancel()
		if failed := p.tracer.Close(end); failed != nil {
			p.log.Warn("the last traces were not taken", "error", failed)
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		listener, err := service.Listen(ctx, p.settings.Ops.Addr)
		if err != nil {
			return err
		}
		p.log.Info("listening for operators", "address", listener.Addr())
		return service.ServeOn(ctx, listener, service.Handler(p.registry, p.ready, p.settings.Ops.Pprof))
	})
	group.Go(func() error { return p.work(ctx) })
	return group.Wait()
}

func (p *program) ready(ctx context.Context) error {
	l := p.ledger.Load()
	if l == nil {
		return errors.New("waiting for Redis")
	}
	return l.Ping(ctx)
}

// work opens the ledger and runs the roles until ctx ends.
func (p *program) work(ctx context.Context) error {
	l, err := p.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() {
		if err := l.Close(); err != nil {
			p.log.Warn("the ledger did not close", "error", err)
		}
	}()
	p.ledger.Store(l)
	runners, err := p.runners(l)
	if err != nil {
		return err
	}
	p.log.Info("working", "roles", p.roles, "environment", p.settings.Environment, "partitions", l.Partitions())
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range runners {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

func (p *program) runners(l *ledger.Ledger) ([]func(context.Context) error, error) {
	consumer, err := p.settings.consumer()
	if err != nil {
		return nil, err
	}
	s := p.settings
	runners := []func(context.Context) error{newGauges(l, p.log, p.registry).run}
	for _, role := range p.roles {
		switch role {
		case roleStatus:
			runners = append(runners, status.New(l, s.Status, consumer, p.log, p.registry).Traced(p.tracer).Run)
		case roleWebhook:
			options := dispatch.Options{Consumer: consumer, Sandbox: s.Environment == sandbox, CourierStep: s.Courier.Step, Tracer: p.tracer}
			runners = append(runners, dispatch.New(l, s.Webhook, options, p.log, p.registry).Run)
		case roleCourier:
			runners = append(runners, courier.New(l, s.Courier, p.log, p.registry).Run)
		}
	}
	return runners, nil
}

// Pauses between attempts to reach Redis at the start.
const (
	firstOpenPause = 100 * time.Millisecond
	maxOpenPause   = 2 * time.Second
)

// open waits for Redis as long as it takes. What waiting cannot mend, such as
// another number of partitions than the ledger was started with, is returned.
func (p *program) open(ctx context.Context) (*ledger.Ledger, error) {
	connection := p.settings.ledgerConfig(p.secrets, p.log)
	connection.Observe = p.watchScript
	for pause := firstOpenPause; ; pause = min(2*pause, maxOpenPause) {
		l, err := ledger.Open(ctx, connection)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, delivery.ErrUnavailable) {
			return nil, fmt.Errorf("open the ledger: %w", err)
		}
		p.log.Warn("waiting for Redis", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
