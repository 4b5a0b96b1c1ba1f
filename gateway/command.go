package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

// command is what the command line asks for.
type command struct {
	config                string
	check, health, reseal bool
}

// usage stands above the list of flags.
const usage = `gateway answers the Delivery Vendor API, and on a private listener the fleet
and admin APIs with /metrics, /healthz and /readyz. SIGTERM ends it in order.

  gateway [flags]

Secrets come from the environment or, with _FILE behind the name, from a file:
TOKEN_KEYS, TRACKING_KEYS, WEBHOOK_KEYS and ADMIN_KEY. The settings file explains
them and every setting, and names the variables that change one.

Flags:
`

// secretNames are the variables that readSecrets reads.
var secretNames = []string{"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS", "ADMIN_KEY"}

// parseCommand answers --help on out, with flag.ErrHelp.
func parseCommand(args []string, out, logs io.Writer) (command, error) {
	var c command
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(logs)
	flags.StringVar(&c.config, "config", "configs/gateway.yaml", "the settings `file`")
	flags.BoolVar(&c.check, "check-config", false, "judge the settings and secrets without connecting, print what is in force, and end")
	flags.BoolVar(&c.health, "health", false, "ask the gateway that runs here with the same settings whether it is ready, and end: 0 if so, else 1")
	flags.BoolVar(&c.reseal, "reseal", false, "seal every webhook secret with the first of WEBHOOK_KEYS, and end")
	flags.Usage = func() {} // an error of the command line is one line
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(out, usage) // the asker went away: nothing to do
		flags.SetOutput(out)
		flags.PrintDefaults()
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q is no flag; see gateway --help", flags.Arg(0))
	}
	return c, err
}

// checkConfig judges everything that can be judged without connecting, and
// writes what is in force.
func checkConfig(path string, out io.Writer) error {
	var s settings
	wrong := config.Load(path, &s)
	keys, missing := readSecrets()
	if wrong == nil {
		wrong = config.Locate(path, errors.Join(s.checkFiles(), s.ledgerConfig(keys, nil).Check()))
	}
	if err := errors.Join(wrong, missing); err != nil {
		return err
	}
	return config.WriteEffective(out, path, &s, secretNames...)
}

// checkFiles reads the listeners' certificates.
func (s *settings) checkFiles() error {
	quiet := slog.New(slog.DiscardHandler)
	_, vendor := tlsConfig(&s.VendorAPI, quiet)
	if vendor != nil {
		vendor = fmt.Errorf("%s: %w", vendorListener, vendor)
	}
	_, private := tlsConfig(&s.PrivateAPI, quiet)
	if private != nil {
		private = fmt.Errorf("%s: %w", privateListener, private)
	}
	return errors.Join(vendor, private)
}

// askHealth is -health.
func askHealth(ctx context.Context, s *settings) error {
	return service.Ask(ctx, s.PrivateAPI.Addr, s.PrivateAPI.TLSCertFile != "")
}

// ledgerConfig is how the gateway uses Redis.
func (s *settings) ledgerConfig(keys secrets, log *slog.Logger) ledger.Config {
	return ledger.Config{
		URL:         s.Redis.URL,
		TLS:         ledger.TLSFiles{CA: s.Redis.CAFile, Cert: s.Redis.CertFile, Key: s.Redis.KeyFile},
		Environment: s.Environment,
		Partitions:  s.Redis.Partitions,
		PoolSize:    s.Redis.PoolSize,
		Pipelines:   s.Redis.Pipelines,
		Secrets:     ledger.SecretKeys(keys.WebhookKeys),
		Log:         log,
	}
}
