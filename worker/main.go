// Command worker moves what the gateway accepted: it decides the couriers'
// updates, fires timers, sends webhooks, and plays the couriers of a sandbox.
//
//	                    +--------------------- worker ----------------------+
//	updates, orders --> | owner     status decides, dispatch sends  --> step | --> events, vendors
//	fleets, jobs ----> | courier   sandbox only                 --> report | --> updates
//	                    | ops       /metrics /healthz /readyz               |
//	                    +---------------------------------------------------+
//
// Workers share the partitions: each has one owner at a time. While Redis is unavailable
// the program waits and says so on /readyz. What a process keeps in memory its successor
// finds in Redis.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/worker/courier"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/owner"
	"vendorapi/worker/status"
)

func main() {
	// net/http logs what a receiver sends unasked, up to 4 kB a time.
	log.SetOutput(io.Discard)
	tuneCollector()
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
	var s settings
	var keys config.Keyring
	program := service.Program{
		Name: "worker", Usage: usage, Settings: &s, Log: &s.Log,
		Health: func() (string, bool) { return s.Ops.Addr, false },
		Secrets: func() (variables []string, err error) {
			keys, err = config.Keys("WEBHOOK_KEYS")
			return secretNames, err
		},
		Check:    func() error { return s.Redis.Ledger(s.Environment, nil).Check() },
		Mistakes: func() (error, error) { return s.mistakes(keys) },
		Run: func(ctx context.Context, log *slog.Logger) error {
			p, err := service.NewProcess(ctx, "worker", s.Environment, s.Tracing, log)
			if err != nil {
				return err
			}
			connection := s.Redis.Ledger(s.Environment, log)
			connection.Secrets, connection.Observe = ledger.SecretKeys(keys), service.ObserveScripts(p.Registry)
			return p.Run(ctx, s.Ops, connection, p.Ready, func(ctx context.Context, l *ledger.Ledger) error { return s.work(ctx, p, l) })
		},
	}

	return program.Execute(ctx, args, out, logs)
}

func (s *settings) work(ctx context.Context, p *service.Process, l *ledger.Ledger) error {
	consumer, err := service.Consumer(s.Instance)
	if err != nil {
		return err
	}

	p.Log.Info("working", "environment", s.Environment, "partitions", l.Partitions())
	group, ctx := errgroup.WithContext(ctx)
	start := func(run func(context.Context) error) { group.Go(func() error { return run(ctx) }) }
	options := dispatch.Options{Sandbox: s.Environment == delivery.Sandbox, CourierStep: s.Courier.Step, Tracer: p.Tracer}
	decider, sender := status.New(l, s.Status, p.Tracer, p.Log, p.Registry), dispatch.New(l, s.Webhook, options, p.Log, p.Registry)
	partitions := owner.New(l, decider, sender, s.Status, consumer, p.Log, p.Registry)
	start(partitions.Run)
	figures := &gauges{ledger: l, log: p.Log, isFirst: partitions.IsFirst}
	p.Registry.MustRegister(figures)
	start(figures.run)
	if s.Environment == delivery.Sandbox && s.Courier.Mode == courier.Auto {
		p.Log.Warn("THE SANDBOX'S COURIER PLAYS: every store is confirmed and every order ends as delivered without a fleet or a courier; " +
			"ENVIRONMENT=production or COURIER=manual ends that")
		start(courier.New(l, partitions.Owned, s.Courier, p.Log, p.Registry).Run)
	}

	return group.Wait()
}

// settings is configs/worker.yaml, where each key is explained.
type settings struct {
	Environment string            `yaml:"environment"`
	Instance    string            `yaml:"instance"`
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
	return errors.Join(service.CheckEnvironment(s.Environment), s.Redis.Validate(), s.Ops.Validate(), s.Log.Validate(),
		s.Tracing.Validate(), s.Status.Validate(), s.Webhook.Validate(), s.Courier.Validate())
}

// mistakes are what production does not start with: secrets that others can guess.
func (s *settings) mistakes(keys config.Keyring) (ofSettings, ofSecrets error) {
	if s.Environment != delivery.Production {
		return nil, nil
	}
	return config.PasswordMistake("redis.url", s.Redis.URL), config.KeyMistakes(config.NamedKeyring{Name: "WEBHOOK_KEYS", Keyring: keys})
}
