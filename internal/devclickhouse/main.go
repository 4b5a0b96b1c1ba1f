// Command devclickhouse is a ClickHouse for development and tests: the real engine
// from a shared library (package libchdb) behind ClickHouse's HTTP interface on
// loopback, for clickhouse-go and curl. No shipped program contains it.
//
//	devclickhouse [flags]    serve until SIGTERM; GET /ping answers "Ok." once it is ready
//	devclickhouse install    fetch the engine's library, unless it is there
//
// There is one user, default, whose key changes need; reading needs none, and file()
// reads what this process can. There are no sessions, no native protocol, and no
// Replicated or Distributed tables: a server reached through CLICKHOUSE_URL has these.
// In the Native format a DateTime('Zone') reads as DateTime (see hello.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/devclickhouse/libchdb"
)

const usage = `Usage: devclickhouse [flags]     serve the embedded ClickHouse over HTTP on loopback
       devclickhouse install     fetch the engine's library with npm, unless it is there

Whoever reaches it can read everything that this process can. With a key in
$ENGINE_KEY, or in the file that $ENGINE_KEY_FILE names, changes need it as the
password of the user default. $CHDB_LIBRARY names a library that was not installed
this way.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "devclickhouse:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	o := options{
		log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		ready: func(addr net.Addr) { fmt.Printf("http://%s\n", addr) },
	}
	flag.StringVar(&o.addr, "addr", "127.0.0.1:8123", "where to listen; loopback only")
	flag.StringVar(&o.dataDir, "data", ".data/clickhouse", "folder of the tables; one engine at a time has it")
	flag.DurationVar(&o.grace, "grace", 15*time.Second, "how long statements may go on after SIGTERM")
	flag.BoolVar(&o.dieWithParent, "die-with-parent", false, "stop when the process that started this one has gone")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	switch {
	case flag.NArg() == 1 && flag.Arg(0) == "install":
		_, err = libchdb.Install(ctx, os.Stderr)
		return err
	case flag.NArg() > 0:
		return fmt.Errorf("unknown command %q", flag.Arg(0))
	}
	if os.Getenv("ENGINE_KEY") != "" || os.Getenv("ENGINE_KEY_FILE") != "" {
		if o.key, err = config.Secret("ENGINE_KEY"); err != nil {
			return err
		}
	}
	return serve(ctx, o)
}
