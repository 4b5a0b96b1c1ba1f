// Command run is `make run`: it starts the whole system with the settings of
// the environment, prints how to use it, and stops everything on Ctrl-C or
// when one of its programs dies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"vendorapi/internal/stack"
)

// Ports that are only a convenience: when something else has them, a free one
// is taken instead.
const (
	defaultWorkerOps = "127.0.0.1:8082"
	defaultReceiver  = "127.0.0.1:8085"
	defaultReporting = "127.0.0.1:8083"
)

// usage stands above the list of flags.
const usage = `run is make run: it starts the whole system on this machine, prints how to use
it, and stops everything on Ctrl-C or when one of its programs ends.

  run [flags]

Variables (configs/CONFIGURATION.md): DATA_DIR, GATEWAY_ADDR, OPS_ADDR, PANEL_ADDR,
REDIS_URL, REDIS_TLS, CLICKHOUSE_URL, CLICKHOUSE_ADDR, COURIER, COURIER_STEP,
WORKER_OPS_ADDR, RECEIVER_ADDR, REPORTING_OPS_ADDR.

Flags:
`

func main() {
	withParent := flag.Bool("die-with-parent", false, "stop when the process that started this one is gone (Linux)")
	bin := flag.String("bin", "", "folder of binaries that were built already; empty: they are built now")
	restore := flag.String("restore", "", "put this backup into DATA_DIR, and end")
	replace := flag.Bool("replace", false, "with -restore: move what is in DATA_DIR aside")
	check := flag.Bool("check-config", false, "judge the variables without starting anything, print what is in force, and end")
	stop := flag.Bool("stop", false, "stop the run of DATA_DIR, if there is one, and end (Linux)")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	work := func() error { return run(*withParent, *bin) }
	if *check {
		work = func() error { return checkVariables(os.Getenv, os.Stdout) }
	}
	if *stop {
		work = func() error { return stopRun(dataDir(), os.Stdout) }
	}
	if *restore != "" {
		work = func() error { return putBack(*restore, *bin, *replace) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(withParent bool, bin string) error {
	// The first Ctrl-C stops everything in order; once it is under way the
	// signals have their usual effect again, and children die with this
	// process in any case.
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup make run outlives its terminal
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	if withParent {
		if err := dieWithParent(); err != nil {
			return err
		}
	}
	o, err := options(os.Getenv, os.Stdout)
	if err != nil {
		return err
	}
	o.BinDir = bin
	began := time.Now()
	s, err := stack.Start(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before everything was ready")
		}
		return err
	}
	printUse(os.Stdout, s, o, time.Since(began))
	err = s.Wait(ctx)
	stop()
	fmt.Println("\nstopping")
	s.Stop()
	return err
}

// putBack is `make restore`.
func putBack(from, bin string, replace bool) error {
	if os.Getenv("REDIS_URL") != "" {
		return errors.New("REDIS_URL names a Redis of its own: see `reporting restore -h`")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := dataDir()
	err := stack.Restore(ctx, stack.RestoreOptions{From: from, DataDir: dir, Replace: replace,
		BinDir: bin, ClickHouseURL: os.Getenv("CLICKHOUSE_URL"), Out: os.Stdout})
	if err != nil {
		return err
	}
	fmt.Printf("\n%s is as it was. Now: make run, and beside it: make report ARGS=reconcile\n", dir)
	return nil
}

func dataDir() string {
	if dir := os.Getenv("DATA_DIR"); dir != "" {
		return dir
	}
	return ".data"
}

// options reads the variables of `make run` (configs/CONFIGURATION.md).
func options(env func(string) string, out io.Writer) (stack.Options, error) {
	value := func(name, fallback string) string {
		if v := env(name); v != "" {
			return v
		}
		return fallback
	}
	o := stack.Options{
		DataDir:          value("DATA_DIR", ".data"),
		GatewayAddr:      value("GATEWAY_ADDR", "127.0.0.1:8080"),
		OpsAddr:          value("OPS_ADDR", "127.0.0.1:8081"),
		WorkerOpsAddr:    value("WORKER_OPS_ADDR", ifFree(defaultWorkerOps)),
		ReceiverAddr:     value("RECEIVER_ADDR", ifFree(defaultReceiver)),
		RedisURL:         env("REDIS_URL"),
		RedisTLS:         env("REDIS_TLS") == "1",
		Reporting:        true,
		ClickHouseURL:    env("CLICKHOUSE_URL"),
		PanelAddr:        value("PANEL_ADDR", "127.0.0.1:8090"),
		ClickHouseAddr:   value("CLICKHOUSE_ADDR", "127.0.0.1:8123"),
		ReportingOpsAddr: value("REPORTING_OPS_ADDR", ifFree(defaultReporting)),
		Courier:          value("COURIER", "auto"),
		Receiver:         true,
		Out:              out,
	}
	if o.Courier != "auto" && o.Courier != "manual" {
		return o, fmt.Errorf("COURIER is %q: want auto or manual", o.Courier)
	}
	var err error
	if o.CourierStep, err = time.ParseDuration(value("COURIER_STEP", "5s")); err != nil || o.CourierStep <= 0 {
		return o, fmt.Errorf("COURIER_STEP is %q: want a time such as 5s or 200ms", env("COURIER_STEP"))
	}
	return o, nil
}

// ifFree is addr, or empty when something listens there.
func ifFree(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return ""
	}
	l.Close()
	return addr
}

// printUse is the block that a newcomer can use at once.
func printUse(out io.Writer, s *stack.Stack, o stack.Options, took time.Duration) {
	d := s.Demo
	fmt.Fprintf(out, `
Ready after %.1f s. Ctrl-C, or make stop, stops everything.

  Vendor API          %s/api/vendor/v1
  Fleet, admin, ops   %s/api/fleet/v1, /api/admin/v1, /metrics, /healthz, /readyz
  Account             clientId     %s
                      clientSecret %s
  Fleet               fleetId      %s
                      clientId     %s
                      clientSecret %s
  Admin key           %s
  Webhooks            go to %s, which verifies them: tail -f %s
  Panel               %s as %s, password %s
  Reports             there, or with the token %s
  ClickHouse          %s, database delivery
  Documentation       %s/docs of the Vendor API, %s/docs of the fleet and admin APIs
  All of this         %s, and for a shell %s

README.md has an order to paste, from the token to its delivery. It begins with a token:

  curl -s %s/api/vendor/v1/token -H 'Content-Type: application/json' \
    -d '{"clientId":"%s","clientSecret":"%s"}'

Read a report, as a table and as a file:

  make report ARGS='report expected-collections'
  curl -sOJ -H 'Authorization: Bearer %s' %s/reports/order-ledger.xlsx

`, took.Seconds(), d.BaseURL, d.OpsURL,
		d.Account.ClientID, d.Account.ClientSecret,
		d.Fleet.FleetID, d.Fleet.ClientID, d.Fleet.ClientSecret,
		d.AdminKey,
		d.Webhook.URL, relative(s.Receiver.Log),
		d.PanelURL, d.Panel.User, d.Panel.Password, d.ReportsToken, d.ClickHouseURL, d.BaseURL, d.OpsURL,
		filepath.Join(o.DataDir, "demo.json"), filepath.Join(o.DataDir, "demo.env"),
		d.BaseURL, d.Account.ClientID, d.Account.ClientSecret, d.ReportsToken, d.PanelURL)
}

func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(dir, path); err == nil && len(rel) < len(path) {
		return rel
	}
	return path
}
