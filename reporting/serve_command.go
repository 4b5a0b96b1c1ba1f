package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ops"
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
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return serve(c, roles) },
	}
	c.Flags().StringSliceVar(&roles, "roles", nil, "export,reconcile,panel (default: all that the settings name)")
	addConfigFlag(c)
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
	return c
}

func serve(c *cobra.Command, roles []string) error {
	s, log, err := loadSettings(c)
	if err != nil {
		return err
	}
	if len(roles) > 0 {
		if err := checkRoles(roles); err != nil {
			return fmt.Errorf("--roles: %w", err)
		}
		s.Roles = roles
	}
	p := &server{settings: s, log: log, registry: ops.NewRegistry()}
	if slices.Contains(s.Roles, rolePanel) {
		if p.panel, err = newPanel(s.Panel, log, p.registry); err != nil {
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
	panel    *panel // nil without the role
	ledger   atomic.Pointer[ledger.Ledger]
	archive  atomic.Pointer[archive.Archive] // nil until the tables were there
}

func (p *server) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return ops.Serve(ctx, p.settings.Ops.Addr, ops.Handler(p.registry, p.ready, p.settings.Ops.Pprof))
	})
	group.Go(func() error { return p.work(ctx) })
	return group.Wait()
}

func (p *server) ready(ctx context.Context) error {
	l, a := p.ledger.Load(), p.archive.Load()
	switch {
	case l == nil:
		return errors.New("waiting for Redis")
	case a == nil:
		return errors.New("waiting for ClickHouse")
	case p.panel != nil && !p.panel.listening.Load():
		return errors.New("the panel does not listen yet")
	}
	if err := l.Ping(ctx); err != nil {
		return err
	}
	return a.Ping(ctx)
}

// work opens both sides, waiting for each, and runs the roles until ctx ends.
func (p *server) work(ctx context.Context) error {
	err := p.open(ctx)
	defer p.close()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	l, a := p.ledger.Load(), p.archive.Load()
	runners, err := p.runners(l, a)
	if err != nil {
		return err
	}
	p.log.Info("working", "roles", strings.Join(p.settings.Roles, ","), "environment", p.settings.Environment, "partitions", l.Partitions())
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range runners {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// open waits for Redis and for ClickHouse, and brings the tables up to date.
func (p *server) open(ctx context.Context) error {
	err := untilThere(ctx, p.log, "Redis", func() error {
		l, err := p.settings.openLedger(ctx, p.log)
		if err == nil {
			p.ledger.Store(l)
		}
		return err
	})
	if err != nil {
		return err
	}
	a, err := archive.Open(p.settings.ClickHouse)
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
	if err != nil {
		return errors.Join(err, a.Close())
	}
	p.archive.Store(a)
	return nil
}

// close gives back what was opened. Nothing is under way any more, so a failure
// to do so is not worth more than a line.
func (p *server) close() {
	var err error
	if l := p.ledger.Load(); l != nil {
		err = l.Close()
	}
	if a := p.archive.Load(); a != nil {
		err = errors.Join(err, a.Close())
	}
	if err != nil {
		p.log.Warn("connections did not close", "error", err)
	}
}

func (p *server) runners(l *ledger.Ledger, a *archive.Archive) ([]func(context.Context) error, error) {
	consumer, err := p.settings.consumer()
	if err != nil {
		return nil, err
	}
	var runners []func(context.Context) error
	for _, role := range slices.Compact(slices.Sorted(slices.Values(p.settings.Roles))) {
		switch role {
		case roleExport:
			runners = append(runners, export.New(l, a, p.settings.Export, consumer, p.log, p.registry).Run)
		case roleReconcile:
			runners = append(runners, reconcile.NewDaily(l, a, p.settings.Reconcile, p.log, p.registry).Run)
		case rolePanel:
			handler, err := p.panel.handler(l, a)
			if err != nil {
				return nil, err
			}
			runners = append(runners, func(ctx context.Context) error { return p.panel.listen(ctx, handler) })
		}
	}
	return runners, nil
}
