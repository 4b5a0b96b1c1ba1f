// Command run is `make run`: it starts the whole system with the settings of
// the environment, prints how to use it, and stops everything on Ctrl-C or
// when one of its programs dies.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/stack"
	"vendorapi/internal/version"
)

const defaultDataDir = ".data"

const usage = `run is make run: it starts the whole system on this machine, prints how to use
it, and stops everything on Ctrl-C or when one of its programs ends.

  run [flags]

Variables (docs/configuration.md): SERVER, DATA_DIR, GATEWAY_ADDR, OPS_ADDR, PANEL_ADDR,
REDIS_URL, REDIS_TLS, CLICKHOUSE_URL, CLICKHOUSE_ADDR, COURIER, COURIER_STEP,
WORKER_OPS_ADDR, RECEIVER_ADDR, REPORTING_OPS_ADDR. With _FILE behind the name a variable
names a file that holds the value.

Flags:
`

func main() {
	withParent := flag.Bool("die-with-parent", false, "stop when the process that started this one is gone (Linux)")
	bin := flag.String("bin", "", "folder of binaries that were built already; empty: they are built now")
	restore := flag.String("restore", "", "put this backup into DATA_DIR, and end")
	replace := flag.Bool("replace", false, "with -restore: move what is in DATA_DIR aside")
	drill := flag.Bool("drill", false, "with -restore: only try this backup, or the newest in this folder, apart from DATA_DIR")
	identity := flag.String("age-identity", "", "with -restore: the file with the private key of an encrypted backup")
	erasures := flag.String("erasures", "", "with -restore: the list of erasures, if it does not lie beside the backup")
	check := flag.Bool("check-config", false, "check the variables without starting anything, print what is in force, and end")
	stop := flag.Bool("stop", false, "stop the run of DATA_DIR, if there is one, and end (Linux)")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}

	version.AddFlag("run")
	flag.Parse()
	var err error
	switch {
	case *restore != "":
		err = putBack(stack.Options{BinDir: *bin, AgeIdentity: *identity, Erasures: *erasures}, *restore, *replace, *drill)
	case *stop:
		err = stopRun(cmp.Or(os.Getenv("DATA_DIR"), defaultDataDir), os.Stdout)
	case *check:
		err = checkVariables(os.Getenv, os.Stdout)
	default:
		err = run(*withParent, *bin)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(withParent bool, bin string) error {
	// The first Ctrl-C stops everything in order; after it the signals have their usual
	// effect again, and children die with this process in any case.
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup make run outlives its terminal
		signals = append(signals, syscall.SIGHUP)
	}

	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	if withParent {
		if err := stack.DieWithParent(); err != nil {
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

	log := s.Receiver.Log
	if dir, err := os.Getwd(); err == nil {
		log = strings.TrimPrefix(log, dir+string(filepath.Separator))
	}

	err = ready.Execute(os.Stdout, map[string]any{
		"Seconds": time.Since(began).Seconds(), "Demo": s.Demo, "ReceiverLog": log, "DataDir": filepath.Clean(o.DataDir)})
	if err == nil {
		err = s.Wait(ctx)
	}

	stop()
	fmt.Println("\nstopping")
	s.Stop()

	return err
}

var (
	//go:embed ready.txt
	readyText string
	ready     = template.Must(template.New("ready").Parse(readyText))
)

// putBack is `make restore` and `make restore DRILL=yes`.
func putBack(o stack.Options, from string, replace, drill bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	clickHouse, err := config.Variable("CLICKHOUSE_URL")
	if err != nil {
		return err
	}

	o.DataDir, o.ClickHouseURL, o.Out = cmp.Or(os.Getenv("DATA_DIR"), defaultDataDir), clickHouse, os.Stdout
	if drill {
		return stack.Drill(ctx, o, from)
	}
	if config.IsSet("REDIS_URL") {
		return errors.New("REDIS_URL names a Redis of its own: see `reporting restore -h`")
	}
	if err := stack.Restore(ctx, o, from, replace); err != nil {
		return err
	}

	fmt.Printf("\n%s is as it was. Now: make run, and beside it: make report ARGS=reconcile\n", o.DataDir)

	return nil
}

// variable is one of `make run`'s (docs/configuration.md) that is taken as it is.
type variable struct {
	name, fallback string
	into           *string
	show           func(string) (string, error) // checks a value; what check-config prints
}

func variables(o *stack.Options) []variable {
	return []variable{
		{"DATA_DIR", defaultDataDir, &o.DataDir, shownText},
		{"GATEWAY_ADDR", "127.0.0.1:8080", &o.GatewayAddr, shownAddr},
		{"OPS_ADDR", "127.0.0.1:8081", &o.OpsAddr, shownAddr},
		{"PANEL_ADDR", "127.0.0.1:8090", &o.PanelAddr, shownAddr},
		{"WORKER_OPS_ADDR", ifFree("127.0.0.1:8082"), &o.WorkerOpsAddr, shownAddr},
		{"RECEIVER_ADDR", ifFree("127.0.0.1:8085"), &o.ReceiverAddr, shownAddr},
		{"REPORTING_OPS_ADDR", ifFree("127.0.0.1:8083"), &o.ReportingOpsAddr, shownAddr},
		{"CLICKHOUSE_ADDR", "127.0.0.1:8123", &o.ClickHouseAddr, shownAddr},
		{"REDIS_URL", "", &o.RedisURL, shownURL},
		{"CLICKHOUSE_URL", "", &o.ClickHouseURL, shownURL},
		{"COURIER", "auto", &o.Courier, shownText},
	}
}

func options(env func(string) string, out io.Writer) (stack.Options, error) {
	o := stack.Options{Reporting: true, Receiver: true, Out: out}
	var faults []error
	read := func(name, fallback string) string {
		value, err := config.VariableOf(env, name)
		if err != nil {
			faults = append(faults, err)
		}
		return cmp.Or(value, fallback)
	}

	for _, v := range variables(&o) {
		*v.into = read(v.name, v.fallback)
	}

	o.RedisTLS = read("REDIS_TLS", "") == "1"
	if o.Courier != "auto" && o.Courier != "manual" {
		faults = append(faults, fmt.Errorf("COURIER is %q: want auto or manual", o.Courier))
	}

	step := read("COURIER_STEP", "5s")
	var err error
	o.CourierStep, err = time.ParseDuration(step)
	if err != nil || o.CourierStep <= 0 {
		faults = append(faults, fmt.Errorf("COURIER_STEP is %q: want a time such as 5s or 200ms", step))
	}

	return o, errors.Join(faults...)
}

// ifFree is addr, or empty when something listens there: then a free port is taken.
func ifFree(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return ""
	}
	l.Close()
	return addr
}

// checkVariables checks every variable of `make run` without starting anything,
// and writes what is in force. No password is shown.
func checkVariables(env func(string) string, out io.Writer) error {
	o, err := options(env, io.Discard)
	faults := []error{err}
	text := "# make run: ok\n"
	for _, v := range variables(&o) {
		shown, err := v.show(*v.into)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", v.name, err))
		}
		text += fmt.Sprintf("%-18s %s\n", v.name, shown)
	}

	text += fmt.Sprintf("%-18s %s\n%-18s %t\n", "COURIER_STEP", o.CourierStep, "REDIS_TLS", o.RedisTLS)
	if err := errors.Join(faults...); err != nil {
		return err
	}

	_, err = io.WriteString(out, text)

	return err
}

func shownText(text string) (string, error) { return text, nil }

// shownAddr checks host:port; an address that the programs choose is empty.
func shownAddr(addr string) (string, error) {
	if addr == "" {
		return "(a free port)", nil
	}

	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%q: want host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q: want a port from 1 to 65535", addr)
	}

	return addr, nil
}

// shownURL checks the form of a URL, empty for one that this run makes itself.
func shownURL(text string) (string, error) {
	if text == "" {
		return "(started by this run)", nil
	}

	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" && u.Scheme != "unix" {
		return "", errors.New("no URL (it is not shown, for it may hold a password)")
	}
	return u.Redacted(), nil
}
