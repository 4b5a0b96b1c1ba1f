package devclickhouse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

// Options say what Run serves and where.
type Options struct {
	// Addr is host:port; port 0 takes a free one. A host that is not loopback
	// is refused unless TrustNetwork is set.
	Addr string
	// DataDir holds the tables; it is created when missing.
	DataDir string
	// Library is the path of libchdb; empty: where libchdb.Find finds it.
	Library string
	// MaxQueries is the number of statements that run at once, at least 1;
	// further ones wait up to 10 s.
	MaxQueries int
	// MaxBody bounds the body of one request, in bytes after decompression, at
	// least 1 MiB.
	MaxBody int64
	// Stall is how long the other side may take no byte of an answer, or send
	// none of a body, before it is given up; 0: a minute.
	Stall time.Duration
	// Grace is how long statements may go on after the stop was asked for;
	// then they are killed.
	Grace time.Duration
	// Key is what changes need, as the password of the user default; reading needs
	// none. Empty: changes need none either.
	Key string
	// TrustNetwork allows an address that other machines reach. Whoever
	// reaches it can read everything that this process can, and write it with the
	// key.
	TrustNetwork bool
	// DieWithParent stops the engine when the process that started it has gone.
	DieWithParent bool
	// Log takes what happens; Ready is called with the address once requests
	// are answered. Neither may be nil.
	Log   *slog.Logger
	Ready func(addr net.Addr)
}

func (o *Options) check() error {
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", o.Addr, err)
	}
	if ip := net.ParseIP(host); !o.TrustNetwork && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("address %s: the embedded engine needs no password for reading, so only loopback is served", o.Addr)
	}
	switch {
	case o.DataDir == "":
		return errors.New("no data folder given")
	case o.MaxQueries < 1:
		return fmt.Errorf("at most %d queries: at least one is needed", o.MaxQueries)
	case o.MaxBody < maxStatement:
		return fmt.Errorf("bodies of at most %d bytes: at least %d are needed", o.MaxBody, maxStatement)
	}
	return nil
}

// Run serves until ctx ends, then stops in order and returns nil. One process
// can call it once: a stopped library does not start again.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.DieWithParent {
		var stop context.CancelFunc
		ctx, stop = untilOrphaned(ctx, o.Log)
		defer stop()
	}
	if o.Library == "" {
		path, err := libchdb.Find()
		if err != nil {
			return err
		}
		o.Library = path
	}
	data, err := openDataDir(o.DataDir)
	if err != nil {
		return err
	}
	defer data.close()
	// Before the engine starts: what has the port is told at once.
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	return serve(ctx, o, data, listener)
}

func serve(ctx context.Context, o Options, data *dataDir, listener net.Listener) error {
	// The engine writes into pipes. A broken one must be an error there, not
	// the end of this process.
	signal.Ignore(syscall.SIGPIPE)
	began := time.Now()
	library, err := libchdb.Load(o.Library)
	if err != nil {
		return err
	}
	keeper, err := library.Connect(data.arguments()...)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.DataDir, err)
	}
	f := &front{
		open:     func() (*libchdb.Conn, error) { return library.Connect(data.arguments()...) },
		running:  &running{log: o.Log, keeper: keeper, ids: map[string]bool{}},
		slots:    make(chan struct{}, o.MaxQueries),
		maxBody:  o.MaxBody,
		stall:    cmp.Or(o.Stall, time.Minute),
		spool:    data.file("spool"),
		key:      o.Key,
		trusting: o.TrustNetwork,
		log:      o.Log,
	}
	if f.identity, err = readIdentity(keeper); err != nil {
		return err
	}
	err = f.serve(ctx, listener, o, func() {
		o.Log.Info("the engine is ready", "address", listener.Addr(), "version", f.identity.version,
			"library", filepath.Base(filepath.Dir(o.Library)), "data", data.path, "pid", os.Getpid(), "took", time.Since(began))
		o.Ready(listener.Addr())
	})
	if err != nil {
		return err
	}
	keeper.Close() // the last connection: the engine stops
	o.Log.Info("the engine has stopped")
	return nil
}

// serve answers requests until ctx ends and every one of them is done.
func (f *front) serve(ctx context.Context, listener net.Listener, o Options, ready func()) error {
	// Requests end with this, not with ctx: a stop lets them finish.
	requests, killAll := context.WithCancel(context.WithoutCancel(ctx))
	defer killAll()
	server := &http.Server{
		Handler:           f,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	ready()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	o.Log.Info("stopping", "because", context.Cause(ctx))
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		o.Log.Warn("killing what still runs", "error", err)
		killAll()
		_ = server.Close() // inserts end with their connections
	}
	return f.awaitEnd()
}

// endTimeout is how long killed statements may take to end.
const endTimeout = 10 * time.Second

func (f *front) awaitEnd() error {
	ended := make(chan struct{})
	go func() {
		f.active.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(endTimeout):
		return errors.New("statements did not end though killed; their data is what was stored")
	}
}

// errOrphaned is why an engine without a parent stops.
var errOrphaned = errors.New("the process that started the engine has gone")

// untilOrphaned ends when the parent process does. It asks for the parent's
// id: the kernel's death signal is tied to the thread that started this
// process, which may end before the parent, and does not exist on macOS.
func untilOrphaned(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	parent := os.Getppid()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if os.Getppid() != parent {
					log.Warn("stopping", "error", errOrphaned)
					cancel(errOrphaned)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}
