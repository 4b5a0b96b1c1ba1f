package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/deliver"
	"vendorapi/reporting/export"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/reconcile"
	"vendorapi/reporting/tracking"
)

// The flags of the commands that run until SIGTERM.
const (
	checkFlag  = "check-config"
	healthFlag = "health"
)

func newServeCommand() *cobra.Command {
	var roles []string
	c := newServingCommand("serve", &roles)
	c.Flags().StringSliceVar(&roles, "roles", nil, "export,reconcile,panel,tracking (default: all that the settings name)")
	return c
}

func newServingCommand(use string, roles *[]string) *cobra.Command {
	c := newSettingsCommand(use, func(c *cobra.Command) error { return serve(c, *roles) })
	c.Flags().Bool(checkFlag, false, service.CheckUsage)
	c.Flags().Bool(healthFlag, false, fmt.Sprintf(service.HealthUsage, "one"))
	return c
}

func serve(c *cobra.Command, roles []string) error {
	var s settings
	program := service.Program{
		Name: "reporting", Settings: &s, Log: &s.Log,
		Health:   func() (string, bool) { return s.Ops.Addr, false },
		Narrow:   func() error { return s.narrow(roles) },
		Secrets:  s.checkSecrets,
		Check:    s.check,
		Mistakes: s.mistakes,
		Run:      s.run,
	}

	command := service.Command{Config: c.Flag(configFlag).Value.String(), Check: flagSet(c, checkFlag), Health: flagSet(c, healthFlag)}

	return program.Start(c.Context(), command, c.OutOrStdout(), c.ErrOrStderr())
}

// checkSecrets names every secret of the panel that is missing or malformed. Without any
// role the settings could not be read.
func (s *settings) checkSecrets() ([]string, error) {
	var books error
	needsBooks := len(s.Roles) == 0 || s.has(rolePanel) || s.has(roleReconcile)
	if needsBooks {
		_, books = config.Keys(booksVariable)
	}

	if len(s.Roles) > 0 && !s.has(rolePanel) {
		names, wrong := []string{booksVariable}, books
		if s.has(roleTracking) {
			_, tracking := config.Keys("TRACKING_KEYS")
			names, wrong = append(names, "TRACKING_KEYS"), errors.Join(wrong, tracking)
		}
		return names, wrong
	}

	_, people := auth.FromEnvironment()
	_, key := config.Secret("ADMIN_KEY")
	_, tracking := config.Keys("TRACKING_KEYS")

	return []string{auth.UsersVariable, auth.TokensVariable, "ADMIN_KEY", "TRACKING_KEYS", booksVariable}, errors.Join(people, key, tracking, books)
}

// booksVariable names the keys that sign the log of the books.
const booksVariable = "BOOKS_KEYS"

// readBooksKeys reads the keys of the books, if they are set: only what depends on the books needs
// them.
func (s *settings) readBooksKeys() error {
	if !config.IsSet(booksVariable) {
		return nil
	}

	ring, err := config.Keys(booksVariable)
	if err != nil {
		return err
	}

	s.ClickHouse.BooksKeys = journal.NewKeys(s.Environment, ring.Current, ring.Keys)

	return nil
}

// check finds what is wrong with the addresses of Redis and with the panel.
func (s *settings) check() error {
	connection := s.Redis.Ledger(s.Environment, nil)
	wrong := connection.Check()
	if s.has(roleReconcile) {
		_, err := s.Deliver.Open()
		wrong = errors.Join(wrong, err)
	}

	if _, missing := s.checkSecrets(); missing != nil || !s.servesCustomers() {
		return wrong
	}

	_, err := newPanel(s, nil, prometheus.NewRegistry())
	if err != nil {
		err = fmt.Errorf("panel: %w", err)
	}

	return errors.Join(wrong, err)
}

// mistakes are what production does not start with. Secrets are those of the roles.
func (s *settings) mistakes() (ofSettings, ofSecrets error) {
	if s.Environment != delivery.Production {
		return nil, nil
	}

	ofSettings = errors.Join(config.PasswordMistake("redis.url", s.Redis.URL), config.PasswordMistake("clickhouse.url", s.ClickHouse.URL),
		config.PasswordMistake("clickhouse.read_url", s.ClickHouse.ReadURL))

	var rings []config.NamedKeyring
	addRing := func(name string) {
		ring, err := config.Keys(name)
		if err == nil { // else checkSecrets names it
			rings = append(rings, config.NamedKeyring{Name: name, Keyring: ring})
		}
	}

	if s.has(rolePanel) || s.has(roleReconcile) {
		addRing(booksVariable)
	}

	if s.servesCustomers() {
		addRing("TRACKING_KEYS")
	}

	if !s.has(rolePanel) {
		if s.has(roleTracking) {
			ofSettings = errors.Join(ofSettings, s.Panel.trackingMistakes())
		}
		return ofSettings, config.KeyMistakes(rings...)
	}

	ofSecrets = config.KeyMistakes(rings...)
	if key, err := config.Secret("ADMIN_KEY"); err == nil {
		ofSecrets = errors.Join(ofSecrets, config.BearerMistakes("ADMIN_KEY", key, rings...))
	}

	return errors.Join(ofSettings, s.Panel.mistakes()), ofSecrets
}

func (s *settings) has(role string) bool { return slices.Contains(s.Roles, role) }

// servesCustomers reports whether a role serves tracking pages.
func (s *settings) servesCustomers() bool { return s.has(rolePanel) || s.has(roleTracking) }

// needsHistory reports whether a role uses ClickHouse.
func (s *settings) needsHistory() bool { return s.writesHistory() || s.has(rolePanel) }

// writesHistory reports whether a role cannot work without ClickHouse. Such a process migrates; the panel does not.
func (s *settings) writesHistory() bool { return s.has(roleExport) || s.has(roleReconcile) }

func (s *settings) run(ctx context.Context, log *slog.Logger) error {
	process, err := service.NewProcess(ctx, "reporting", s.Environment, s.Tracing, log)
	if err != nil {
		return err
	}
	if err := s.readBooksKeys(); err != nil {
		return err
	}

	p := &server{Process: process, settings: *s}
	if s.servesCustomers() {
		p.panel, err = newPanel(s, log, p.Registry)
		if err != nil {
			return err
		}
	}

	if s.needsHistory() {
		p.history, err = openHistories(s.ClickHouse, process.SeenCertificate("clickhouse"))
		if err != nil {
			return err
		}
		defer func() {
			if err := p.history.close(); err != nil {
				log.Warn("connections to ClickHouse did not close", "error", err)
			}
		}()
	}

	return p.Run(ctx, s.Ops, s.Redis.Ledger(s.Environment, log), p.ready, p.work)
}

type server struct {
	*service.Process
	settings settings
	panel    *panel     // nil without a role that serves pages
	history  *histories // nil without a role that needs ClickHouse

	// archive is that of the roles that write; nil until the history was found usable.
	archive atomic.Pointer[archive.Archive]

	complete     atomic.Bool           // all that reports need is there
	historyError atomic.Pointer[error] // why the history was not usable, when it was last tried
}

// ready reports whether all roles can work. The panel needs no ClickHouse: without it
// operators see what is live, and customers their orders.
func (p *server) ready(ctx context.Context) error {
	a := p.archive.Load()
	history := p.settings.writesHistory()
	switch {
	case p.Ledger() == nil:
		return p.Ready(ctx)
	case p.panel != nil && p.panel.unopened.Load() > 0:
		return errors.New("the panel does not listen yet")
	case history && a == nil:
		var cause error
		if failed := p.historyError.Load(); failed != nil {
			cause = *failed
		}
		return waitingForHistory(cause)
	}

	if err := p.Ready(ctx); err != nil || !history {
		return err
	}

	return a.Ping(ctx)
}

// work runs the roles until ctx ends. All but the panel wait for ClickHouse.
func (p *server) work(ctx context.Context, l *ledger.Ledger) error {
	p.Log.Info("working", "roles", strings.Join(p.settings.Roles, ","), "environment", p.settings.Environment, "partitions", l.Partitions())
	if p.history != nil {
		p.history.useHead(l.Books.Head)
	}

	group, ctx := errgroup.WithContext(ctx)
	if p.panel != nil {
		listeners, err := p.listeners(l)
		if err != nil {
			return err
		}
		for _, one := range listeners {
			group.Go(func() error { return p.panel.listen(ctx, one) })
		}
	}

	if p.settings.has(rolePanel) {
		group.Go(func() error { p.panel.overview.Probe(ctx); return nil })
		group.Go(func() error { p.panel.payments.Run(ctx); return nil })
	}

	group.Go(func() error { service.WatchClock(ctx, p.Log, l); return nil })
	if p.history != nil {
		group.Go(func() error { return p.keepHistory(ctx, l) })
	}

	return group.Wait()
}

// listeners returns what the roles serve: the panel, and the tracking pages alone.
func (p *server) listeners(l *ledger.Ledger) (all []listener, err error) {
	customers, err := tracking.New(l, p.panel.tracking, p.Log, p.Registry)
	if err != nil {
		return nil, err
	}

	if p.settings.has(rolePanel) {
		one, err := p.panel.listener(l, p.history, customers.Handler(), p.complete.Load)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}

	if p.settings.Panel.TrackingAddr != "" {
		alone := http.NewServeMux()
		alone.Handle("/track/", customers.Handler())
		all = append(all, listener{"tracking", p.settings.Panel.TrackingAddr, alone})
	}

	p.panel.unopened.Store(int32(len(all)))

	return all, nil
}

// keepHistory waits until ClickHouse can be used, and runs the roles that write there. What is wrong with
// the user who only reads keeps none of them from working.
func (p *server) keepHistory(ctx context.Context, l *ledger.Ledger) error {
	consumer, err := service.Consumer(p.settings.Instance)
	if err != nil {
		return err
	}

	if p.settings.writesHistory() {
		if p.awaitHistory(ctx, func(ctx context.Context) error { return p.openForWriting(ctx, l) }) != nil {
			return nil // ctx has ended
		}
		p.archive.Store(p.history.write)
	}

	a := p.history.write
	group, ctx := errgroup.WithContext(ctx)
	if p.settings.has(rolePanel) {
		group.Go(func() error {
			_ = p.awaitHistory(ctx, func(ctx context.Context) error { return p.openForPeople(ctx, l) }) // nil, or ctx has ended
			return nil
		})
	}

	if p.settings.has(roleExport) {
		exporter := export.New(l, a, p.settings.Export, consumer, p.Log, p.Registry)
		exporter.Tracer = p.Tracer
		group.Go(func() error { return exporter.Run(ctx) })
		group.Go(func() error { p.keepAudit(ctx, a); return nil })
	}

	if p.settings.has(roleReconcile) {
		targets, err := p.settings.Deliver.Open()
		if err != nil {
			return err
		}

		daily, books := reconcile.NewDaily(l, a, p.settings.Reconcile, p.Log, p.Registry), closing.New(l, a, p.settings.ClickHouse.BooksKeys, p.Log)
		daily.Then = closing.NewNightly(books, targets, p.Registry)
		group.Go(func() error { books.Watch(ctx, p.Registry); return nil })
		group.Go(func() error { return daily.Run(ctx) })
		announce, err := p.settings.announcer()
		if err != nil {
			return err
		}

		deliverer := closing.NewDeliverer(books, closing.DelivererSettings{
			Targets:  targets,
			Daily:    p.settings.Deliver.Daily,
			Announce: announce,
			Registry: p.Registry,
		})

		group.Go(func() error { deliverer.Run(ctx); return nil })
	}

	return group.Wait()
}

// awaitHistory repeats what opens the history until it succeeds. The error is that of ctx.
func (p *server) awaitHistory(ctx context.Context, open func(context.Context) error) error {
	wait := historyWait{log: p.Log, open: open, failed: func(err error) { p.historyError.Store(&err) }}
	return wait.run(ctx)
}

// openForWriting makes what is missing in ClickHouse's database.
func (p *server) openForWriting(ctx context.Context, l *ledger.Ledger) error {
	// People may look at what there is as soon as it is known whose it is, also while something is
	// missing. What is wrong is found again below.
	_ = p.history.checkOwners(ctx, l)

	applied, err := migrate(ctx, l, p.history.write)
	for _, name := range applied {
		p.Log.Info("schema brought up to date", "file", name)
	}

	readsAsAnother := p.history.read != p.history.write
	if err != nil || readsAsAnother {
		return err
	}

	// People can use all of it now, before this process says that it is ready.
	p.complete.Store(true)

	return p.history.checkOwners(ctx, l)
}

// openForPeople looks whether all is there that pages, reports and decisions need. It changes nothing:
// the panel must start with users who may not.
func (p *server) openForPeople(ctx context.Context, l *ledger.Ledger) error {
	_ = p.history.checkOwners(ctx, l) // as above

	if err := checkHistory(ctx, l, p.history.read); err != nil {
		return err
	}
	p.complete.Store(true)
	return p.history.checkOwners(ctx, l) // ClickHouse may have come back since the first question
}

// auditInterval is how often the exporter looks whether ClickHouse keeps the audit trail for as long as
// the settings say.
const auditInterval = time.Minute

// keepAudit has ClickHouse keep the audit trail for as long as the settings say, until ctx ends. Exporting
// does not wait for it: it changes the schema after the settings have changed.
func (p *server) keepAudit(ctx context.Context, a *archive.Archive) {
	service.Repeat(ctx, p.Log, auditInterval, "how long ClickHouse keeps the audit trail cannot be set", "how long ClickHouse keeps the audit trail is set again",
		func(ctx context.Context) error { return a.KeepAudit(ctx, p.settings.Export.AuditDays) })
}

// announcer notifies finance's own system of deliveries, through the gateway; without the gateway's key it does nothing.
func (s *settings) announcer() (func(context.Context, *delivery.AvailableReport) error, error) {
	if !config.IsSet("ADMIN_KEY") {
		return func(context.Context, *delivery.AvailableReport) error { return nil }, nil
	}

	client, err := adminClient(s.Panel.Admin)
	if err != nil {
		return nil, err
	}

	return func(ctx context.Context, r *delivery.AvailableReport) error {
		return client.ReportAvailable(ctx, closing.Automatic, r)
	}, nil
}

// settings is the whole of configs/reporting.yaml, where each key is explained.
type settings struct {
	Environment string             `yaml:"environment"`
	Instance    string             `yaml:"instance"`
	Roles       []string           `yaml:"roles"`
	Redis       service.Redis      `yaml:"redis"`
	ClickHouse  archive.Settings   `yaml:"clickhouse"`
	Ops         service.Ops        `yaml:"ops"`
	Log         service.Log        `yaml:"log"`
	Tracing     tracing.Settings   `yaml:"tracing"`
	Export      export.Settings    `yaml:"export"`
	Reconcile   reconcile.Settings `yaml:"reconcile"`
	Deliver     deliver.Settings   `yaml:"deliver"`
	Panel       panelSettings      `yaml:"panel"`
}

// The roles of `reporting serve`.
const (
	roleExport    = "export"
	roleReconcile = "reconcile"
	rolePanel     = "panel"
	roleTracking  = "tracking"
)

// Validate names the keys whose value is out of range.
func (s *settings) Validate() error {
	return errors.Join(service.CheckEnvironment(s.Environment), s.Redis.Validate(), s.Ops.Validate(),
		checkRoles("roles", s.Roles), s.ClickHouse.Validate(),
		s.Log.Validate(), s.Tracing.Validate(), s.Export.Validate(), s.Reconcile.Validate(),
		s.Deliver.Validate(), s.Panel.Validate())
}

func checkRoles(key string, roles []string) error {
	if err := service.CheckRoles(roles, roleExport, roleReconcile, rolePanel, roleTracking); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// narrow makes the roles those that were asked for; none: those of the settings.
func (s *settings) narrow(roles []string) error {
	if len(roles) > 0 {
		if err := checkRoles("--roles", roles); err != nil {
			return err
		}
		s.Roles = roles
	}

	if s.has(roleTracking) && s.Panel.TrackingAddr == "" {
		return errors.New("panel.tracking_addr: the role tracking needs it (TRACKING_ADDR)")
	}

	return nil
}
