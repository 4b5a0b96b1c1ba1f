package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/reconcile"
)

// newServeCommand is `reporting serve`.
func newServeCommand() *cobra.Command {
	var roles []string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Export to ClickHouse, reconcile every day, and serve reports over HTTP",
		Long: `Export to ClickHouse, reconcile every day, and serve the panel, reports and
tracking pages over HTTP, until SIGTERM.

The role panel needs secrets, from the environment or, with _FILE behind the name,
from a file: ADMIN_KEY, TRACKING_KEYS, and PANEL_USERS or REPORT_TOKENS. The
settings file explains them and every setting, and names the variables that
change one.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c, roles) },
	}
	c.Flags().StringSliceVar(&roles, "roles", nil, "export,reconcile,panel (default: all that the settings name)")
	addConfigFlag(c)
	addCheckFlags(c)
	return c
}

// newExportCommand is `reporting export`: `reporting serve --roles export`.
func newExportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Short: "Export to ClickHouse, and nothing else",
		Long: `Export orders, their events and the outcomes of webhooks to ClickHouse, until
SIGTERM. Any number of exporters may run; each needs an instance of its own in
the settings.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c, []string{roleExport}) },
	}
	addConfigFlag(c)
	addCheckFlags(c)
	return c
}

func serve(c *cobra.Command, roles []string) error {
	switch {
	case flagSet(c, checkFlag):
		return checkConfig(c, roles)
	case flagSet(c, healthFlag):
		return askHealth(c)
	}
	s, log, err := loadSettings(c)
	if err != nil {
		return err
	}
	if err := s.narrow(roles); err != nil {
		return err
	}
	p := &server{settings: s, log: log, registry: service.NewRegistry()}
	if slices.Contains(s.Roles, rolePanel) {
		if p.panel, err = newPanel(&s, log, p.registry); err != nil {
			return err
		}
	}
	return p.run(c.Context())
}

// server is one `reporting serve` with its settings judged and its secrets
// read. It refuses to end because Redis or ClickHouse is away: it waits, says so
// on /readyz, and goes on.
type server struct {
	settings settings
	log      *slog.Logger
	registry *prometheus.Registry
	tracer   *tracing.Tracer // nil: tracing is off
	panel    *panel          // nil without the role
	ledger   atomic.Pointer[ledger.Ledger]
	archive  atomic.Pointer[archive.Archive] // nil until the tables were there
}

// lastTraces bounds what an orderly end waits for the collector.
const lastTraces = time.Second

func (p *server) run(ctx context.Context) (err error) {
	if p.tracer, err = tracing.Open(ctx, p.settings.Tracing, "reporting", p.settings.Environment, p.log); err != nil {
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
		return service.Serve(ctx, p.settings.Ops.Addr, service.Handler(p.registry, p.ready, p.settings.Ops.Pprof))
	})
	group.Go(func() error { return p.work(ctx) })
	return group.Wait()
}

// ready tells whether all roles can work. The panel needs no ClickHouse: without
// it operators still see what is live, and customers their orders, so a process
// of that role alone stays ready.
func (p *server) ready(ctx context.Context) error {
	l, a := p.ledger.Load(), p.archive.Load()
	history := p.has(roleExport) || p.has(roleReconcile)
	switch {
	case l == nil:
		return errors.New("waiting for Redis")
	case p.panel != nil && p.panel.closed.Load() > 0:
		return errors.New("the panel does not listen yet")
	case history && a == nil:
		return errors.New("waiting for ClickHouse")
	}
	if err := l.Ping(ctx); err != nil || !history {
		return err
	}
	return a.Ping(ctx)
}

func (p *server) has(role string) bool { return slices.Contains(p.settings.Roles, role) }

// work waits for Redis, and then runs the roles until ctx ends: the panel at
// once, the others as soon as the tables are up to date.
func (p *server) work(ctx context.Context) error {
	a, err := archive.Open(p.settings.ClickHouse)
	if err != nil {
		return err
	}
	defer p.close(a)
	err = untilThere(ctx, p.log, "Redis", func() error {
		l, err := p.settings.openLedger(ctx, p.log)
		if err == nil {
			p.ledger.Store(l)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	l := p.ledger.Load()
	p.log.Info("working", "roles", strings.Join(p.settings.Roles, ","), "environment", p.settings.Environment, "partitions", l.Partitions())
	group, ctx := errgroup.WithContext(ctx)
	if p.panel != nil {
		listeners, err := p.panel.listeners(l, a, func() bool { return p.archive.Load() != nil })
		if err != nil {
			return err
		}
		group.Go(func() error { p.panel.overview.Probe(ctx); return nil })
		for _, one := range listeners {
			group.Go(func() error { return p.panel.listen(ctx, one) })
		}
	}
	group.Go(func() error { return p.keepHistory(ctx, l, a) })
	return group.Wait()
}

// keepHistory waits for ClickHouse, brings the tables up to date, and runs the
// roles that write there.
func (p *server) keepHistory(ctx context.Context, l *ledger.Ledger, a *archive.Archive) error {
	consumer, err := p.settings.consumer()
	if err != nil {
		return err
	}
	err = untilThere(ctx, p.log, "ClickHouse", func() error {
		applied, err := a.Migrate(ctx)
		for _, name := range applied {
			p.log.Info("schema brought up to date", "file", name)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	p.archive.Store(a)
	group, ctx := errgroup.WithContext(ctx)
	if p.has(roleExport) {
		exporter := export.New(l, a, p.settings.Export, consumer, p.log, p.registry).Traced(p.tracer)
		group.Go(func() error { return exporter.Run(ctx) })
	}
	if p.has(roleReconcile) {
		daily := reconcile.NewDaily(l, a, p.settings.Reconcile, p.log, p.registry)
		group.Go(func() error { return daily.Run(ctx) })
	}
	return group.Wait()
}

// close gives back what was opened. Nothing is under way any more, so a failure
// to do so is not worth more than a line.
func (p *server) close(a *archive.Archive) {
	err := a.Close()
	if l := p.ledger.Load(); l != nil {
		err = errors.Join(err, l.Close())
	}
	if err != nil {
		p.log.Warn("connections did not close", "error", err)
	}
}
