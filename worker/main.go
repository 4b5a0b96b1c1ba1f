// Command worker moves what the gateway accepted: it decides the couriers'
// updates, fires timers, sends webhooks, and plays the couriers of a sandbox.
//
//	                    +--------------------- worker ---------------------+
//	updates, orders --> | status    feed, timers, retention     --> commit | --> events
//	events ----------> | webhook   feed, queues, leases, sender --> HTTPS | --> vendors
//	fleets, jobs ----> | courier   sandbox only                --> report | --> updates
//	                    | ops       /metrics /healthz /readyz              |
//	                    +--------------------------------------------------+
//
// Each role is a package. While Redis is unavailable the program waits and says so
// on /readyz. Nothing is kept in the process that another replica would need.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"

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
	// net/http logs what a receiver sends unasked, up to 4 kB a time.
	log.SetOutput(io.Discard)
	service.Main("worker", run)
}

const usage = `worker moves what the gateway accepted: it decides couriers' updates, fires
timers, sends webhooks, and plays the couriers of a sandbox. It serves /metrics,
/healthz and /readyz. SIGTERM ends it in order.

  worker [flags]

Secrets come from the environment or, with _FILE behind the name, from a file:
WEBHOOK_KEYS. The settings file explains it and every setting, and names the
variables that change one.

Flags:
`

var secretNames = []string{"WEBHOOK_KEYS"}

func run(ctx context.Context, args []string, out, logs io.Writer) error {
	w := new(program)
	var roles string
	start := service.Program{
		Name: "worker", Usage: usage, Settings: &w.settings, Log: &w.settings.Log,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&roles, "roles", "", "`status,webhook,courier`; empty: all that the settings enable")
		},
		Health: func() (string, bool) { return w.settings.Ops.Addr, false },
		Narrow: func() (err error) {
			w.settings.Roles, err = w.settings.chooseRoles(roles)
			return err
		},
		Secrets: func() ([]string, error) {
			keys, err := config.Keys("WEBHOOK_KEYS")
			w.secrets = ledger.SecretKeys(keys)
			return secretNames, err
		},
		Check: func() error {
			connection := w.ledgerConfig(nil)
			return connection.Check()
		},
		Run: w.run,
	}
	return start.Execute(ctx, args, out, logs)
}

type program struct {
	settings settings
	secrets  ledger.SecretKeys
}

func (w *program) ledgerConfig(log *slog.Logger) ledger.Config {
	connection := w.settings.Redis.Ledger(w.settings.Environment, log)
	connection.Secrets = w.secrets
	return connection
}

func (w *program) run(ctx context.Context, log *slog.Logger) error {
	s := &w.settings
	p, err := service.NewProcess(ctx, "worker", s.Environment, s.Tracing, log)
	if err != nil {
		return err
	}
	connection := w.ledgerConfig(log)
	connection.Observe = service.ObserveScripts(p.Registry)
	return p.Run(ctx, s.Ops, connection, p.Ready, func(ctx context.Context, l *ledger.Ledger) error { return s.work(ctx, p, l) })
}

func (s *settings) work(ctx context.Context, p *service.Process, l *ledger.Ledger) error {
	consumer, err := service.Consumer(s.Instance)
	if err != nil {
		return err
	}
	p.Log.Info("working", "roles", s.Roles, "environment", s.Environment, "partitions", l.Partitions())
	group, ctx := errgroup.WithContext(ctx)
	start := func(run func(context.Context) error) { group.Go(func() error { return run(ctx) }) }
	figures := &gauges{ledger: l, log: p.Log}
	p.Registry.MustRegister(figures)
	start(figures.run)
	for _, role := range s.Roles {
		switch role {
		case roleStatus:
			start(status.New(l, s.Status, consumer, p.Log, p.Registry).Traced(p.Tracer).Run)
		case roleWebhook:
			options := dispatch.Options{Consumer: consumer, Sandbox: s.Environment == delivery.Sandbox, CourierStep: s.Courier.Step, Tracer: p.Tracer}
			start(dispatch.New(l, s.Webhook, options, p.Log, p.Registry).Run)
		case roleCourier:
			start(courier.New(l, s.Courier, p.Log, p.Registry).Run)
		}
	}
	return group.Wait()
}

// The roles of a worker.
const (
	roleStatus  = "status"
	roleWebhook = "webhook"
	roleCourier = "courier"
)

// settings is configs/worker.yaml, where each key is explained.
type settings struct {
	Environment string            `yaml:"environment"`
	Instance    string            `yaml:"instance"`
	Roles       []string          `yaml:"roles"`
	Redis       service.Redis     `yaml:"redis"`
	Ops         service.Ops       `yaml:"ops"`
	Log         service.Log       `yaml:"log"`
	Tracing     tracing.Settings  `yaml:"tracing"`
	Status      status.Settings   `yaml:"status"`
	Webhook     dispatch.Settings `yaml:"webhook"`
	Courier     courier.Settings  `yaml:"courier"`
}

// Validate names the keys whose value is out of range.
func (s *settings) Validate() error {
	roles := checkRoles(s.Roles)
	if roles != nil {
		roles = fmt.Errorf("roles: %w", roles)
	}
	return errors.Join(service.CheckEnvironment(s.Environment), s.Redis.Validate(), s.Ops.Validate(), roles,
		s.Log.Validate(), s.Tracing.Validate(), s.Status.Validate(), s.Webhook.Validate(), s.Courier.Validate())
}

func checkRoles(roles []string) error {
	return service.CheckRoles(roles, roleStatus, roleWebhook, roleCourier)
}

// chooseRoles narrows the configured roles to those asked for ("status,webhook"; empty: all). The
// courier runs in a sandbox in mode auto only; asking for it in production is an error.
func (s *settings) chooseRoles(asked string) ([]string, error) {
	roles := slices.Sorted(slices.Values(s.Roles))
	if asked != "" {
		roles = slices.Sorted(strings.SplitSeq(asked, ","))
		if err := checkRoles(roles); err != nil {
			return nil, fmt.Errorf("-roles: %w", err)
		}
	}
	plays := s.Environment == delivery.Sandbox && s.Courier.Mode == courier.Auto
	for _, role := range roles {
		switch {
		case !slices.Contains(s.Roles, role):
			return nil, fmt.Errorf("-roles: the configuration does not enable %s", role)
		case asked != "" && role == roleCourier && s.Environment != delivery.Sandbox:
			return nil, fmt.Errorf("-roles: %s plays in the sandbox only", roleCourier)
		}
	}
	roles = slices.DeleteFunc(roles, func(role string) bool { return role == roleCourier && !plays })
	return slices.Compact(roles), nil
}
