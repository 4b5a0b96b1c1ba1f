// Package stack starts the whole system as child processes in the order in which they
// need each other (Redis, gateway, worker and, when asked for, ClickHouse and
// reporting), waits until each is ready, seeds a demo account and fleet, and stops
// everything in reverse. `make run`, `make demo`, the system tests and the load tests
// use it. The children listen on loopback and die with this process.
package stack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/config"
)

// Options say what to start and where. The zero value of a field is its default, of an
// address a free port of loopback. DataDir is required.
type Options struct {
	DataDir       string
	GatewayAddr   string // the Vendor API
	OpsAddr       string // the fleet and admin APIs
	WorkerOpsAddr string // the worker's health and metrics
	RedisURL      string // a Redis or cluster that is there already; empty: a private redis-server with its data in DataDir
	RedisTLS      bool   // the private redis-server speaks TLS only, with a certificate of a CA that this run makes

	Reporting        bool   // also starts ClickHouse and the program reporting
	ClickHouseURL    string // a ClickHouse that is there already; empty: the embedded engine with its data in DataDir
	ClickHouseAddr   string // the embedded engine
	PanelAddr        string // the panel, and downloads of reports
	ReportingOpsAddr string // reporting's health and metrics

	Courier     string        // "auto" (default: the sandbox courier acts) or "manual"
	CourierStep time.Duration // between the sandbox courier's moves; 0: 5 s

	WebhookURL   string // is registered for the demo account
	Receiver     bool   // a verifying receiver is started at ReceiverAddr and registered instead
	ReceiverAddr string

	BinDir      string    // binaries that Build made; empty: they are built now, into DataDir
	ConfigDir   string    // the programs' settings (gateway.yaml and so on); empty: the project's own
	Env         []string  // further NAME=value settings for the programs
	AgeIdentity string    // the file with the private key of age, of an encrypted backup
	Erasures    string    // the list of erasures, if it does not lie beside the backup
	Out         io.Writer // shows progress and the programs' errors; optional

	environment string // of the private Redis; empty: sandbox
}

// Stack is the running system.
type Stack struct {
	Redis    *Redis // nil when Options.RedisURL was given
	Gateway  *Program
	Worker   *Program
	Receiver *Program // nil unless asked for
	// ClickHouse is nil without Options.Reporting and with a ClickHouseURL.
	ClickHouse *Program
	Reporting  *Program // nil without Options.Reporting
	Demo       Demo

	options Options
	data    *dataDir
	root    string
	env     []string   // of every program
	running []*Program // in the order of starting
	// dead ends with the first child that nobody asked to end; the cause says how.
	dead context.Context
	died func(*Program)
	// ownPorts are those that the system listens on, where no webhook goes.
	ownPorts []string
}

type step = func(context.Context) error

// Start brings everything up in order and returns when all of it is ready and
// demo.json is written. After an error nothing is left running. ctx bounds the
// start only.
func Start(ctx context.Context, o Options) (*Stack, error) {
	s, err := open(o)
	if err != nil {
		return nil, err
	}

	steps := []step{s.prepare, s.build, s.startRedis, s.startGateway, s.seed, s.startReceiver, s.startWorker}
	if o.Reporting {
		steps = append(steps, s.startClickHouse, s.startReporting)
	}

	err = inOrder(ctx, append(steps, s.publish)...)
	if err != nil {
		s.Stop()
		return nil, err
	}

	return s, nil
}

func open(o Options) (*Stack, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}

	if o.DataDir == "" {
		return nil, errors.New("start: no data directory given")
	}

	dead, die := context.WithCancelCause(context.Background())
	s := &Stack{options: o, dead: dead, died: func(p *Program) { die(p.failure()) }}
	var err error
	s.root, err = ModuleDir()
	if err != nil {
		return nil, err
	}

	s.data, err = openDataDir(o.DataDir)

	return s, err
}

func inOrder(ctx context.Context, steps ...step) error {
	for _, do := range steps {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns nil when ctx ends, and an error with the last lines of its log
// when one of the children has ended without having been asked to.
func (s *Stack) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.dead.Done():
		return s.Died()
	}
}

// Died is how the first child ended that nobody had asked to end; nil: there is none.
func (s *Stack) Died() error { return context.Cause(s.dead) }

// Stop ends everything in the reverse order of starting and frees the data
// directory. It may be called more than once.
func (s *Stack) Stop() {
	for _, child := range slices.Backward(s.running) {
		child.Stop()
	}

	s.running = nil
	if s.data != nil {
		s.data.unlock()
		s.data = nil
	}
}

// prepare settles every address and generates the keys, so that what cannot work is
// reported before anything starts.
func (s *Stack) prepare(context.Context) error {
	o := &s.options
	if _, err := os.Stat(s.data.file(restoringFile)); err == nil {
		return fmt.Errorf("a restore into %s has not finished: repeat it with REPLACE=yes, or start again with make clean", s.data.path)
	}

	for _, l := range []struct {
		variable string
		addr     *string
		wanted   bool
	}{
		{"GATEWAY_ADDR", &o.GatewayAddr, true},
		{"OPS_ADDR", &o.OpsAddr, true},
		{"WORKER_OPS_ADDR", &o.WorkerOpsAddr, true},
		{"RECEIVER_ADDR", &o.ReceiverAddr, true},
		{"PANEL_ADDR", &o.PanelAddr, o.Reporting},
		{"REPORTING_OPS_ADDR", &o.ReportingOpsAddr, o.Reporting},
		{"CLICKHOUSE_ADDR", &o.ClickHouseAddr, o.Reporting && o.ClickHouseURL == ""},
	} {
		if !l.wanted {
			continue
		}

		if *l.addr == "" {
			*l.addr = FreeAddr()
		} else if err := requireFree(l.variable, *l.addr); err != nil {
			return err
		}

		if l.addr != &o.ReceiverAddr {
			s.own(origin(*l.addr))
		}
	}

	s.own(o.ClickHouseURL)
	secrets, err := s.data.secrets()
	if err != nil {
		return err
	}

	o.Courier, o.CourierStep = cmp.Or(o.Courier, "auto"), cmp.Or(o.CourierStep, 5*time.Second)
	s.env = slices.Concat(secrets, []string{
		"GATEWAY_ADDR=" + o.GatewayAddr, "OPS_ADDR=" + o.OpsAddr, "WORKER_OPS_ADDR=" + o.WorkerOpsAddr,
		"ENVIRONMENT=sandbox", "COURIER=" + o.Courier, "COURIER_STEP=" + o.CourierStep.String(),
	})

	if o.Reporting {
		// Where the gateway's tracking links lead.
		s.env = append(s.env, "TRACKING_BASE_URL="+origin(o.PanelAddr)+"/track")
	}

	s.env = append(s.env, o.Env...)

	return nil
}

// own adds the ports of a URL, those of a cluster's further addresses included.
func (s *Stack) own(text string) {
	u, err := url.Parse(text)
	if err != nil {
		return // what connects to it says so
	}

	for _, addr := range append(u.Query()["addr"], u.Host) {
		if _, port, err := net.SplitHostPort(addr); err == nil {
			s.ownPorts = append(s.ownPorts, port)
		}
	}
}

// origin is where a program that listens at addr is reached from here.
func origin(addr string) string { return "http://" + config.Reachable(addr) }

func (s *Stack) build(ctx context.Context) (err error) {
	if s.options.BinDir != "" {
		// Programs run in the project's folder, so a relative path would be
		// another one there.
		s.options.BinDir, err = filepath.Abs(s.options.BinDir)
		return err
	}

	s.options.BinDir = s.data.file("bin")
	return s.step("build the programs", "", func() error { return Build(ctx, s.options.BinDir) })
}

func (s *Stack) startRedis(ctx context.Context) error {
	if s.options.RedisURL != "" {
		s.env = append(s.env, "REDIS_URL="+s.options.RedisURL)
		return nil
	}

	return s.step("start redis", s.data.file("redis"), func() error {
		passwords, err := s.data.redisPasswords()
		if err != nil {
			return err
		}

		o := RedisOptions{Dir: s.data.file("redis"), Users: &Users{Passwords: passwords, Environment: cmp.Or(s.options.environment, "sandbox")},
			inherit: s.data.lock, onDeath: s.died}
		if s.options.RedisTLS {
			authority, err := NewAuthority("make run")
			if err != nil {
				return err
			}
			o.TLS, err = authority.Issue(s.data.file("keys", "redis-tls"), time.Time{}, "localhost", "127.0.0.1", "::1")
			if err != nil {
				return err
			}
		}

		s.Redis, err = StartRedis(ctx, o)
		if err != nil {
			return err
		}

		s.running = append(s.running, s.Redis.Program)
		// For the commands that restore; each program has its own instead.
		s.env = append(s.env, s.redisEnv(BackupUser)...)

		return nil
	})
}

func (s *Stack) startGateway(ctx context.Context) error {
	o := &s.options
	s.Gateway = s.program("gateway", origin(o.OpsAddr)+"/readyz", "-config", s.configFile("gateway"))
	return s.run(ctx, s.Gateway, o.GatewayAddr+" and "+o.OpsAddr)
}

func (s *Stack) startWorker(ctx context.Context) error {
	o := &s.options
	s.own(s.RedisURL(WorkerUser))
	s.env = append(s.env, "OWN_PORTS="+strings.Join(s.ownPorts, ","))
	s.Worker = s.program("worker", origin(o.WorkerOpsAddr)+"/readyz", "-config", s.configFile("worker"))
	return s.run(ctx, s.Worker, o.WorkerOpsAddr+", courier "+o.Courier)
}

// startReceiver comes before the worker: webhooks that wait from an earlier
// run find it listening.
func (s *Stack) startReceiver(ctx context.Context) error {
	o := &s.options
	if !o.Receiver {
		return nil
	}
	s.Receiver = s.program("receive", origin(o.ReceiverAddr)+"/healthz", "-addr", o.ReceiverAddr)
	s.Receiver.Env = append(s.Receiver.Env, "WEBHOOK_SECRET="+s.Demo.Webhook.Secret, "WEBHOOK_SECRET_FILE=")
	return s.run(ctx, s.Receiver, o.ReceiverAddr)
}

func (s *Stack) configFile(program string) string {
	return filepath.Join(cmp.Or(s.options.ConfigDir, filepath.Join(s.root, "configs")), program+".yaml")
}

// program is a child with the stack's environment. Its log is named after it,
// replicas with a number.
func (s *Stack) program(name, ready string, args ...string) *Program {
	log := s.data.file("logs", name+".log")
	for n := 2; slices.ContainsFunc(s.running, func(p *Program) bool { return p.Log == log }); n++ {
		log = s.data.file("logs", fmt.Sprintf("%s-%d.log", name, n))
	}
	return &Program{
		Name: name, Path: filepath.Join(s.options.BinDir, name), Args: args, Env: append(slices.Clone(s.env), s.redisEnv(name)...),
		Log: log, Ready: ready, dir: s.root, echo: s.options.Out, onDeath: s.died,
	}
}

func (s *Stack) run(ctx context.Context, p *Program, detail string) error {
	s.running = append(s.running, p)
	return s.step("start "+p.Name, detail, func() error { return p.Start(ctx) })
}

// AddGateway starts one more gateway beside the first, on free ports, and
// returns the origin of its Vendor API.
func (s *Stack) AddGateway(ctx context.Context) (*Program, string, error) {
	addr := FreeAddr()
	p, err := s.addReplica(ctx, s.Gateway, "OPS_ADDR", "GATEWAY_ADDR="+addr)
	return p, "http://" + addr, err
}

// AddWorker starts one more worker beside the first. instance is its name
// within the consumer groups and must differ from every other worker's.
func (s *Stack) AddWorker(ctx context.Context, instance string) (*Program, error) {
	return s.addReplica(ctx, s.Worker, "WORKER_OPS_ADDR", "WORKER_INSTANCE="+instance)
}

// addReplica starts another process like the first; opsVariable sets the address of its
// private listener.
func (s *Stack) addReplica(ctx context.Context, first *Program, opsVariable string, env ...string) (*Program, error) {
	addr := FreeAddr()
	p := s.program(first.Name, "http://"+addr+"/readyz", first.Args...)
	p.Env = append(append(p.Env, opsVariable+"="+addr), env...)
	return p, s.run(ctx, p, addr)
}

// step shows one line of progress: what, how long it took, where.
func (s *Stack) step(what, detail string, do func() error) error {
	began := time.Now()
	fmt.Fprintf(s.options.Out, "%-20s ", what)
	if err := do(); err != nil {
		fmt.Fprintln(s.options.Out, "failed")
		return err
	}

	fmt.Fprintf(s.options.Out, "%5.1f s  %s\n", time.Since(began).Seconds(), detail)
	return nil
}

// programs are the packages that Build turns into binaries of their names.
var programs = []string{"./gateway", "./worker", "./reporting", "./loadtest/receiver/receive", "./internal/stack/run", "./internal/devclickhouse"}

// Build compiles the named programs, by default all that a stack runs, into dir.
// Go's build cache makes a second call cheap.
func Build(ctx context.Context, dir string, names ...string) error {
	return BuildOverlaid(ctx, dir, "", names...)
}

// BuildOverlaid is Build with the changes of an overlay, a file as `go build -overlay` takes it; empty: what GOFLAGS
// says, which may name one.
func BuildOverlaid(ctx context.Context, dir, overlay string, names ...string) error {
	wanted := slices.DeleteFunc(slices.Clone(programs), func(p string) bool {
		return len(names) > 0 && !slices.Contains(names, filepath.Base(p))
	})

	root, err := ModuleDir()
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}

	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}

	cmd := exec.CommandContext(ctx, "go", append(args, wanted...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // nothing here needs a C compiler

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", errors.Join(err, context.Cause(ctx)), out)
	}

	return nil
}

// ModuleDir is the top of this project: the nearest folder at or above the
// working directory whose go.mod names vendorapi.
func ModuleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project: %w", err)
	}

	for ; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module vendorapi\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run this inside the project: no go.mod of vendorapi at or above the working directory")
		}
	}
}
