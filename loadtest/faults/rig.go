package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/shim"
)

// rig is the whole system as processes, with a proxy on every way between two
// of them.
//
//	clients --> gateway --> Redis
//	            worker  --> Redis, receivers
//	            reporting --> Redis, ClickHouse
type rig struct {
	dir    string
	redis  *stack.Redis
	disk   *shim.Shim // what Redis believes of its disk
	system *stack.Stack
	spare  *stack.Program // a second worker; runs in some rounds
	ledger *ledger.Ledger // past the proxies, for setting up and for judging
	admin  *client.Client
	fleet  *client.Client // the demo fleet's API; nobody's proxy is in the way

	links   links
	vendors []*vendor // of all rounds, with their receivers

	mu   sync.Mutex
	down map[runnable]bool // what was killed and has not been started again
	died []error           // what ended without having been asked to
}

// links are the ways between processes.
type links struct {
	gateway                                   *failpoint.Proxy // in front of it
	gatewayRedis, workerRedis, reportingRedis *failpoint.Proxy
	clickHouse                                *failpoint.Proxy
	gatewayAddr, clickHouseAddr               string
}

func (l *links) all() []*failpoint.Proxy {
	return []*failpoint.Proxy{l.gateway, l.gatewayRedis, l.workerRedis, l.reportingRedis, l.clickHouse}
}

// runnable is a process of the system.
type runnable interface {
	Start(context.Context) error
	Kill()
	PID() int
}

// newRig starts everything below dir. bin holds the binaries; empty: they are
// built. After an error nothing is left running.
func newRig(ctx context.Context, dir, bin string, out io.Writer) (*rig, error) {
	r := &rig{dir: dir, down: make(map[runnable]bool)}
	if err := r.start(ctx, bin, out); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// redisDir is not redis/, which the data directory keeps for a Redis of its own.
func (r *rig) redisDir() string { return filepath.Join(r.dir, "ledger") }

func (r *rig) start(ctx context.Context, bin string, out io.Writer) (err error) {
	users := &stack.Users{Environment: "sandbox", Passwords: make(map[string]string)}
	for _, name := range []string{stack.GatewayUser, stack.WorkerUser, stack.ReportingUser, stack.BackupUser, stack.OperatorUser} {
		users.Passwords[name] = rand.Text()
	}
	if r.disk, err = shim.New(ctx, filepath.Join(r.dir, "shim")); err != nil {
		return err
	}
	if r.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: r.redisDir(), Users: users, Env: r.disk.Env()}); err != nil {
		return err
	}
	if err := r.link(); err != nil {
		return err
	}
	configs := filepath.Join(r.dir, "configs")
	if err := r.links.writeSettings(configs, r.redis); err != nil {
		return err
	}
	r.system, err = stack.Start(ctx, stack.Options{
		DataDir: r.dir, BinDir: bin, ConfigDir: configs, Out: out, RedisURL: r.redis.URL, Reporting: true,
		GatewayAddr: r.links.gatewayAddr, ClickHouseAddr: r.links.clickHouseAddr, CourierStep: courierStep,
		Env: []string{"WORKER_INSTANCE=first", "REPORTING_INSTANCE=first", "LOG_LEVEL=warn", stack.NoEngineKey},
	})
	if err != nil {
		return err
	}
	if r.spare, err = r.system.AddWorker(ctx, "second"); err != nil {
		return err
	}
	r.spare.Stop()
	r.down[r.spare] = true
	return r.connect(ctx)
}

// link puts a proxy on every way. Addresses are settled before anything starts.
func (r *rig) link() (err error) {
	l := &r.links
	for _, addr := range []*string{&l.gatewayAddr, &l.clickHouseAddr} {
		if *addr, err = stack.FreeAddr(); err != nil {
			return err
		}
	}
	for proxy, server := range map[**failpoint.Proxy]string{
		&l.gateway: l.gatewayAddr, &l.gatewayRedis: r.redis.Addr, &l.workerRedis: r.redis.Addr, &l.reportingRedis: r.redis.Addr, &l.clickHouse: l.clickHouseAddr,
	} {
		if *proxy, err = failpoint.NewProxy(server); err != nil {
			return err
		}
	}
	return nil
}

// connect opens what the suite itself needs.
func (r *rig) connect(ctx context.Context) (err error) {
	demo := &r.system.Demo
	if r.ledger, err = ledger.Open(ctx, ledger.Config{URL: r.redis.URL, Environment: "sandbox", Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	calls := client.New(demo.OpsURL, 4)
	r.admin = calls.As(demo.OpsURL+"/api/admin/v1", demo.AdminKey)
	if r.fleet, err = calls.As(demo.OpsURL+"/api/fleet/v1", "").Login(ctx, "/token", demo.Fleet.ClientID, demo.Fleet.ClientSecret); err != nil {
		return fmt.Errorf("the fleet's token: %w", err)
	}
	r.fleet.HTTP = &http.Client{Timeout: 2 * time.Second, Transport: r.fleet.HTTP.Transport}
	go r.watch()
	return nil
}

// watch notes what ends without having been asked to, until the rig is stopped.
func (r *rig) watch() {
	for {
		err := r.system.Wait(context.Background())
		r.mu.Lock()
		r.died = append(r.died, err)
		r.mu.Unlock()
	}
}

// deaths are the ends that nobody asked for since the last call.
func (r *rig) deaths() (died []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	died, r.died = r.died, nil
	return died
}

// stop ends everything that was started. The data stays.
func (r *rig) stop() {
	r.letGo() // one that is held does not hear that it should end
	if r.ledger != nil {
		_ = r.ledger.Close() // nothing is written through it
	}
	if r.system != nil {
		r.system.Stop()
	}
	closeAll(r.vendors)
	for _, p := range r.links.all() {
		if p != nil {
			p.Refuse()
		}
	}
	if r.redis != nil {
		r.redis.Stop()
	}
	if r.disk != nil {
		_ = r.disk.Close() // a file of a few bytes
	}
}

func (r *rig) programs() []*stack.Program {
	if r.system == nil || r.spare == nil {
		return nil
	}
	return []*stack.Program{r.system.Gateway, r.system.Worker, r.spare, r.system.Reporting, r.system.ClickHouse}
}

// errDown says that a process does not run, so that its id may be another's.
var errDown = errors.New("it does not run")

// signal signals a process that runs.
func (r *rig) signal(p runnable, s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down[p] || p.PID() <= 0 {
		return errDown
	}
	return syscall.Kill(p.PID(), s)
}

// letGo has every process go on that was held.
func (r *rig) letGo() {
	for _, p := range r.programs() {
		_ = r.signal(p, syscall.SIGCONT) // of no effect unless it was held
	}
	if r.redis != nil {
		_ = r.signal(r.redis, syscall.SIGCONT)
	}
}

// kill ends a process as a crash would.
func (r *rig) kill(p runnable) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Kill()
	r.down[p] = true
}

// revive starts a killed process and waits a little until it is ready. One that
// is not, because what it needs is away, goes on by itself.
func (r *rig) revive(ctx context.Context, p runnable, patience time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.down[p] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := p.Start(ctx)
	delete(r.down, p)
	if err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// heal undoes every harm and returns when every process is ready.
func (r *rig) heal(ctx context.Context, spare bool) error {
	if err := r.disk.DelaySync(0); err != nil {
		return err
	}
	r.letGo()
	if err := r.revive(ctx, r.redis, time.Minute); err != nil {
		return err
	}
	if err := limitMemory(ctx, r.redis, "0"); err != nil {
		return err
	}
	for _, p := range r.links.all() {
		if err := p.Heal(); err != nil {
			return err
		}
	}
	for _, p := range r.programs() {
		if p == r.spare && !spare {
			continue
		}
		if err := r.revive(ctx, p, time.Minute); err != nil {
			return err
		}
		if err := p.AwaitReady(ctx); err != nil {
			return fmt.Errorf("healed, and yet: %w", err)
		}
	}
	return nil
}

// restSpare stops the second worker in an orderly way.
func (r *rig) restSpare() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.down[r.spare] {
		r.spare.Stop()
		r.down[r.spare] = true
	}
}

// metrics are where the processes tell of themselves.
func (r *rig) metrics() map[string]string {
	return map[string]string{"gateway": strings.TrimSuffix(r.system.Demo.OpsURL, "/") + "/metrics"}
}

var errStopped = errors.New("stopped")
