// Command devclickhouse is a ClickHouse for development and tests: the real engine
// from a shared library (package libchdb) behind ClickHouse's HTTP interface on
// loopback, for clickhouse-go and curl. No shipped program contains it.
//
//	devclickhouse [flags]    serve until SIGTERM; GET /ping answers "Ok." once it is ready
//	devclickhouse install    fetch the engine's library, unless it is there
//
// There is one user, default, whose key changes need; reading needs none. Statements see
// the engine's tables and nothing else: no files, addresses, other servers or programs
// (engine.xml, workNowhere). There are no sessions, no native protocol, and no Replicated
// or Distributed tables: a server reached through CLICKHOUSE_URL has these.
// In the Native format a DateTime('Zone') reads as DateTime (see answerHello).
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/devclickhouse/libchdb"
	"vendorapi/internal/version"
)

const usage = `Usage: devclickhouse [flags]     serve the embedded ClickHouse over HTTP on loopback
       devclickhouse install     fetch the engine's library with npm, unless it is there

Whoever reaches it can read all of its tables, and no files outside of them. With a
key in $ENGINE_KEY, or in the file that $ENGINE_KEY_FILE names, changes need it as
the password of the user default. $CHDB_LIBRARY names a library that was not
installed this way.

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
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:8123", "where to listen; loopback only")
	flag.StringVar(&o.dataDir, "data", ".data/clickhouse", "folder of the tables; one engine at a time has it")
	flag.DurationVar(&o.grace, "grace", 15*time.Second, "how long statements may go on after SIGTERM")
	flag.StringVar(&o.users, "users", "", "a file with ClickHouse's users, in place of the one who may change all tables: whoever comes in is its user default (tests of rights)")
	flag.BoolVar(&o.dieWithParent, "die-with-parent", false, "stop when the process that started this one has gone")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}

	version.AddFlag("devclickhouse")
	flag.Parse()
	switch {
	case flag.NArg() == 1 && flag.Arg(0) == "install":
		_, err = libchdb.Install(ctx, os.Stderr)
		return err
	case flag.NArg() > 0:
		return fmt.Errorf("unknown command %q", flag.Arg(0))
	}

	if config.IsSet("ENGINE_KEY") {
		o.key, err = config.Secret("ENGINE_KEY")
		if err != nil {
			return err
		}
	}

	return serve(ctx, o)
}

type options struct {
	addr    string // host:port of loopback; port 0 takes a free one
	dataDir string // created when missing
	// grace is how long statements may go on after the stop was asked for; then they
	// are killed.
	grace         time.Duration
	key           string // what changes need, as the password of the user default; empty: nothing
	dieWithParent bool
	users         string // a file in place of engineSettings; empty: these
}

// maxQueries is the number of statements that run at once; further ones wait.
const maxQueries = 32

// serve runs the engine until ctx ends, then stops in order and returns nil. One
// process can call it once: a stopped library does not start again.
func serve(ctx context.Context, o options) error {
	host, _, err := net.SplitHostPort(o.addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", o.addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("address %s: reading needs no password, so only loopback is served", o.addr)
	}

	if o.dieWithParent {
		ctx = untilOrphaned(ctx)
	}

	path, err := libchdb.Find()
	if err != nil {
		return err
	}
	o.dataDir, err = filepath.Abs(o.dataDir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}

	lock, err := openDataDir(o.dataDir)
	if err != nil {
		return err
	}
	defer lock.Close()

	if err := o.writeEngineFile(); err != nil {
		return err
	}

	// Before the engine starts: a port that is taken is reported at once.
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	defer listener.Close()

	// Logging to a pipe that nobody reads any more must not end this process.
	signal.Ignore(syscall.SIGPIPE)
	began := time.Now()
	library, err := libchdb.Load(path)
	if err != nil {
		return err
	}

	engineConfig := filepath.Join(o.dataDir, engineFile)
	arguments := []string{"--path=" + filepath.Join(o.dataDir, "clickhouse"), "--config-file=" + engineConfig, "--users_config=" + engineConfig}
	keeper, err := library.Connect(arguments...)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.dataDir, err)
	}
	if err := workNowhere(o.dataDir); err != nil {
		return err
	}

	f := &front{
		open:   func() (*libchdb.Conn, error) { return library.Connect(arguments...) },
		keeper: keeper, slots: make(chan struct{}, maxQueries), key: o.key,
		log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	f.identity, err = readIdentity(keeper)
	if err != nil {
		return err
	}

	f.log.Info("the engine is ready", "address", listener.Addr(), "version", f.identity.version,
		"data", o.dataDir, "pid", os.Getpid(), "took", time.Since(began))
	fmt.Printf("http://%s\n", listener.Addr())
	if err := f.serve(ctx, listener, o.grace); err != nil {
		return err
	}

	keeper.Close() // the last connection: the engine stops
	f.log.Info("the engine has stopped")

	return nil
}

// engineFile is the engine's configuration. Without one it would take a config.xml from
// the working folder, ~/.clickhouse-local or /etc.
const engineFile = "engine.xml"

// engineSettings keep the engine inside its data folder. As a library it is a
// clickhouse-local, which may read every file of its user.
//
//go:embed engine.xml
var engineSettings []byte

// workNowhere makes this process's working folder one that does not exist, which is what
// keeps the function file() from reading files: it fails when it cannot find the working
// folder, and neither a grant nor a setting applies to it. The folder is made and removed
// in dataDir, which is absolute.
func workNowhere(dataDir string) error {
	dir, err := os.MkdirTemp(dataDir, "nowhere-")
	if err != nil {
		return err
	}
	return errors.Join(os.Chdir(dir), os.Remove(dir))
}

// writeEngineFile writes the engine's configuration into the data folder.
func (o *options) writeEngineFile() error {
	settings := engineSettings
	if o.users != "" {
		var err error
		settings, err = os.ReadFile(o.users)
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(o.dataDir, engineFile), settings, 0o600)
}

// openDataDir creates the folder and locks it for this process: lock, engine.xml,
// clickhouse/ with the tables.
func openDataDir(dir string) (lock *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	path := filepath.Join(dir, "lock")
	lock, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}

	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		holder, _ := os.ReadFile(path) // without it the message is only less exact
		err = fmt.Errorf("the data folder is in use: %s, by process %s (%w)", dir, strings.TrimSpace(string(holder)), err)
	} else {
		err = os.WriteFile(path, fmt.Appendln(nil, os.Getpid()), 0o600)
	}

	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}

	return lock, nil
}

// serve answers requests until ctx ends and every one of them is done.
func (f *front) serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	// Requests end with this, not with ctx: a stop lets them finish.
	requests, killAll := context.WithCancel(context.WithoutCancel(ctx))
	defer killAll()
	server := &http.Server{
		Handler:           f,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		ErrorLog:          slog.NewLogLogger(f.log.Handler(), slog.LevelWarn),
	}

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}

	f.log.Info("stopping", "because", context.Cause(ctx))
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		f.log.Warn("killing what still runs", "error", err)
		killAll()
		_ = server.Close() // inserts end with their connections
	}

	ended := make(chan struct{})
	go func() {
		f.active.Wait()
		close(ended)
	}()

	select {
	case <-ended:
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("statements did not end though killed; their data is what was stored")
	}
}

// untilOrphaned ends when the parent process does. It asks for the parent's id: the
// kernel's death signal is tied to the thread that started this process, which may
// end before the parent, and does not exist on macOS.
func untilOrphaned(ctx context.Context) context.Context {
	parent := os.Getppid()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for os.Getppid() == parent && ctx.Err() == nil {
			time.Sleep(500 * time.Millisecond)
		}
		cancel(errors.New("the process that started the engine has gone"))
	}()

	return ctx
}
