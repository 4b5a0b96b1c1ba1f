package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
)

// command is what the command line asks for.
type command struct {
	config, roles string
	check, health bool
}

// usage stands above the list of flags.
const usage = `worker moves what the gateway accepted: it decides couriers' updates, fires
timers, sends webhooks, and plays the couriers of a sandbox. It serves /metrics,
/healthz and /readyz. SIGTERM ends it in order.

  worker [flags]

Secrets come from the environment or, with _FILE behind the name, from a file:
WEBHOOK_KEYS. The settings file explains it and every setting, and names the
variables that change one.

Flags:
`

// secretNames are the variables that hold the worker's secrets.
var secretNames = []string{"WEBHOOK_KEYS"}

// parseCommand answers --help on out, with flag.ErrHelp.
func parseCommand(args []string, out, logs io.Writer) (command, error) {
	var c command
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(logs)
	flags.StringVar(&c.config, "config", "configs/worker.yaml", "the settings `file`")
	flags.StringVar(&c.roles, "roles", "", "`status,webhook,courier`; empty: all that the settings enable")
	flags.BoolVar(&c.check, "check-config", false, "judge the settings and secrets without connecting, print what is in force, and end")
	flags.BoolVar(&c.health, "health", false, "ask the worker that runs here with the same settings whether it is ready, and end: 0 if so, else 1")
	flags.Usage = func() {} // an error of the command line is one line
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(out, usage) // the asker went away: nothing to do
		flags.SetOutput(out)
		flags.PrintDefaults()
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag; see worker --help", flags.Arg(0))
	}
	return c, err
}

// checkConfig judges everything that can be judged without connecting, and
// writes what is in force.
func checkConfig(asked command, out io.Writer) error {
	var s settings
	wrong := config.Load(asked.config, &s)
	keys, missing := config.Keys("WEBHOOK_KEYS")
	if wrong == nil {
		wrong = config.Locate(asked.config, s.ledgerConfig(ledger.SecretKeys(keys), nil).Check())
	}
	if wrong == nil {
		s.Roles, wrong = s.chooseRoles(asked.roles)
	}
	if err := errors.Join(wrong, missing); err != nil {
		return err
	}
	return config.WriteEffective(out, asked.config, &s, secretNames...)
}

// ledgerConfig is how the worker uses Redis.
func (s *settings) ledgerConfig(keys ledger.SecretKeys, log *slog.Logger) ledger.Config {
	return ledger.Config{
		URL:         s.Redis.URL,
		TLS:         ledger.TLSFiles{CA: s.Redis.CAFile, Cert: s.Redis.CertFile, Key: s.Redis.KeyFile},
		Environment: s.Environment,
		Partitions:  s.Redis.Partitions,
		PoolSize:    s.Redis.PoolSize,
		Secrets:     keys,
		Log:         log,
	}
}
