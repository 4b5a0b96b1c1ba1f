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

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/reconcile"
)

// The flags of the commands that run until SIGTERM.
const (
	checkFlag  = "check-config"
	healthFlag = "health"
)

func newServeCommand() *cobra.Command {
	var roles []string
	c := newServingCommand("serve", func(c *cobra.Command) error { return serve(c, roles) })
	c.Flags().StringSliceVar(&roles, "roles", nil, "export,reconcile,panel (default: all that the settings name)")
	return c
}

// newExportCommand is `reporting serve --roles export`.
func newExportCommand() *cobra.Command {
	return newServingCommand("export", func(c *cobra.Command) error { return serve(c, []string{roleExport}) })
}

func newServingCommand(use string, run func(c *cobra.Command) error) *cobra.Command {
	c := newSettingsCommand(use, run)
	c.Flags().Bool(checkFlag, false, service.CheckUsage)
	c.Flags().Bool(healthFlag, false, fmt.Sprintf(service.HealthUsage, "one"))
	return c
}

// serve runs the given roles, or else those of the settings.
func serve(c *cobra.Command, roles []string) error {
	path, err := c.Flags().GetString(configFlag)
	if err != nil {
		return err
	}
	var s settings
	program := service.Program{
		Name: "reporting", Settings: &s, Log: &s.Log,
		Health:  func() (string, bool) { return s.Ops.Addr, false },
		Narrow:  func() error { return s.narrow(roles) },
		Secrets: s.checkSecrets,
		Check:   s.check,
		Run:     s.run,
	}
	command := service.Command{Config: path, Check: flagSet(c, checkFlag), Health: flagSet(c, healthFlag)}
	return program.Start(c.Context(), command, c.OutOrStdout(), c.ErrOrStderr())
}

// checkSecrets names every secret of the panel that is missing or malformed. Without any
// role the settings could not be read.
func (s *settings) checkSecrets() ([]string, error) {
	if len(s.Roles) > 0 && !s.has(rolePanel) {
		return nil, nil
	}
	_, people := auth.FromEnvironment()
	_, key := config.Secret("ADMIN_KEY")
	_, tracking := config.Keys("TRACKING_KEYS")
	return []string{auth.UsersVariable, auth.TokensVariable, "ADMIN_KEY", "TRACKING_KEYS"}, errors.Join(people, key, tracking)
}

// check finds what is wrong with the addresses of Redis and with the panel.
func (s *settings) check() error {
	connection := s.Redis.Ledger(s.Environment, nil)
	wrong := connection.Check()
	if _, missing := s.checkSecrets(); missing != nil || !s.has(rolePanel) {
		return wrong
	}
	_, err := newPanel(s, nil, prometheus.NewRegistry())
	if err != nil && !errors.Is(err, errInsecure) {
		err = fmt.Errorf("panel: %w", err)
	}
	return errors.Join(wrong, err)
}

func (s *settings) has(role string) bool { return slices.Contains(s.Roles, role) }

func (s *settings) run(ctx context.Context, log *slog.Logger) error {
	process, err := service.NewProcess(ctx, "reporting", s.Environment, s.Tracing, log)
	if err != nil {
		return err
	}
	p := &server{Process: process, settings: *s}
	if s.has(rolePanel) {
		if p.panel, err = newPanel(s, log, p.Registry); err != nil {
			return err
		}
	}
	a, err := archive.Open(s.ClickHouse)
	if err != nil {
		return err
	}
	defer func() {
		if err := a.Close(); err != nil {
			log.Warn("connections to ClickHouse did not close", "error", err)
		}
	}()
	return p.Run(ctx, s.Ops, s.Redis.Ledger(s.Environment, log), p.ready,
		func(ctx context.Context, l *ledger.Ledger) error { return p.work(ctx, l, a) })
}

// server is a running `reporting serve`. It waits while Redis or ClickHouse is unavailable.
type server struct {
	*service.Process
	settings settings
	panel    *panel                          // nil without the role
	archive  atomic.Pointer[archive.Archive] // nil until the tables were there
}

// ready reports whether all roles can work. The panel needs no ClickHouse: without it
// operators see what is live, and customers their orders.
func (p *server) ready(ctx context.Context) error {
	a := p.archive.Load()
	history := p.settings.has(roleExport) || p.settings.has(roleReconcile)
	switch {
	case p.Ledger() == nil:
		return p.Ready(ctx)
	case p.panel != nil && p.panel.closed.Load() > 0:
		return errors.New("the panel does not listen yet")
	case history && a == nil:
		return errors.New("waiting for ClickHouse")
	}
	if err := p.Ready(ctx); err != nil || !history {
		return err
	}
	return a.Ping(ctx)
}

// work runs the roles until ctx ends; all but the panel wait for the tables.
func (p *server) work(ctx context.Context, l *ledger.Ledger, a *archive.Archive) error {
	p.Log.Info("working", "roles", strings.Join(p.settings.Roles, ","), "environment", p.settings.Environment, "partitions", l.Partitions())
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

// keepHistory brings the tables up to date, and runs the roles that write there.
func (p *server) keepHistory(ctx context.Context, l *ledger.Ledger, a *archive.Archive) error {
	consumer, err := service.Consumer(p.settings.Instance)
	if err != nil {
		return err
	}
	_, err = service.Retry(ctx, p.Log, "ClickHouse", func() ([]string, error) {
		applied, err := a.Migrate(ctx)
		for _, name := range applied {
			p.Log.Info("schema brought up to date", "file", name)
		}
		return applied, err
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	p.archive.Store(a)
	group, ctx := errgroup.WithContext(ctx)
	if p.settings.has(roleExport) {
		exporter := export.New(l, a, p.settings.Export, consumer, p.Log, p.Registry)
		exporter.Tracer = p.Tracer
		group.Go(func() error { return exporter.Run(ctx) })
	}
	if p.settings.has(roleReconcile) {
		daily := reconcile.NewDaily(l, a, p.settings.Reconcile, p.Log, p.Registry)
		group.Go(func() error { return daily.Run(ctx) })
	}
	return group.Wait()
}
