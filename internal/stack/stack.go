package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack/client"
)

// Options say what to start and where. The zero value of a field is its
// default; DataDir is required.
type Options struct {
	DataDir string
	// GatewayAddr is the Vendor API, OpsAddr the fleet and admin APIs,
	// WorkerOpsAddr the worker's health and metrics; empty: a free port.
	GatewayAddr, OpsAddr, WorkerOpsAddr string
	// RedisURL names a Redis or cluster that is there already; empty: a
	// private redis-server whose data lies in DataDir.
	RedisURL string
	// RedisTLS makes the private redis-server speak TLS only, with a certificate
	// of a CA that this run makes.
	RedisTLS bool
	// Reporting also starts ClickHouse and the program reporting.
	Reporting bool
	// ClickHouseURL names a ClickHouse that is there already; empty: the
	// embedded engine at ClickHouseAddr (empty: a free port), whose data lies in
	// DataDir.
	ClickHouseURL, ClickHouseAddr string
	// PanelAddr is where reports are downloaded, ReportingOpsAddr reporting's
	// health and metrics; empty: a free port.
	PanelAddr, ReportingOpsAddr string
	// Courier is "auto" (default: the sandbox courier acts) or "manual".
	Courier string
	// CourierStep is the time between the sandbox courier's moves; 0: 5 s.
	CourierStep time.Duration
	// WebhookURL is registered for the demo account. With Receiver, a verifying
	// receiver is started at ReceiverAddr (empty: a free port) and registered
	// instead.
	WebhookURL   string
	Receiver     bool
	ReceiverAddr string
	// BinDir holds binaries that Build made; empty: they are built now, into
	// DataDir.
	BinDir string
	// ConfigDir holds the programs' settings (gateway.yaml and so on); empty: the
	// project's own. Tests shorten intervals there.
	ConfigDir string
	// Env are further NAME=value settings for the programs.
	Env []string
	// Out shows progress and the programs' errors; nil: nobody reads them.
	Out io.Writer
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
	env     []string
	running []stopper // in the order of starting
	deaths  chan *process
	began   time.Time
	// ownPorts are those that the system listens on, where no webhook goes.
	ownPorts []string
}

type stopper interface{ Stop() }

// Start brings everything up in order and returns when all of it is ready and
// demo.json is written. After an error nothing is left running. ctx bounds the
// start only.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	s := &Stack{options: o, deaths: make(chan *process, 16), began: time.Now()}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	steps := []func(context.Context) error{
		s.prepare,
		s.build,
		s.startRedis,
		s.startGateway,
		s.seed,
		s.startReceiver,
		s.startWorker,
		s.startClickHouse,
		s.startReporting,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.publish()
}

// Wait returns nil when ctx ends, and an error with the last lines of its log
// when one of the children has ended without having been asked to.
func (s *Stack) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case dead := <-s.deaths:
		return dead.failure()
	}
}

// died notes an end for Wait. Faults that nobody waits for fill the channel;
// the first ones are enough.
func (s *Stack) died(p *process) {
	select {
	case s.deaths <- p:
	default:
	}
}

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

// prepare locks the data directory, settles every address and generates the
// keys, so that what cannot work is said before anything starts.
func (s *Stack) prepare(context.Context) error {
	var err error
	if s.options.DataDir == "" {
		return errors.New("start: no data directory given")
	}
	if s.root, err = ModuleDir(); err != nil {
		return err
	}
	if s.options.ConfigDir == "" {
		s.options.ConfigDir = filepath.Join(s.root, "configs")
	}
	if s.data, err = openDataDir(s.options.DataDir); err != nil {
		return err
	}
	if _, err := os.Stat(s.data.file(restoringFile)); err == nil {
		return fmt.Errorf("a restore into %s has not finished: repeat it with REPLACE=1, or start again with make clean", s.data.path)
	}
	type listener struct {
		variable string
		addr     *string
	}
	listeners := []listener{
		{"GATEWAY_ADDR", &s.options.GatewayAddr},
		{"OPS_ADDR", &s.options.OpsAddr},
		{"WORKER_OPS_ADDR", &s.options.WorkerOpsAddr},
		{"RECEIVER_ADDR", &s.options.ReceiverAddr},
	}
	if s.options.Reporting {
		listeners = append(listeners,
			listener{"PANEL_ADDR", &s.options.PanelAddr},
			listener{"REPORTING_OPS_ADDR", &s.options.ReportingOpsAddr})
		if s.options.ClickHouseURL == "" {
			listeners = append(listeners, listener{"CLICKHOUSE_ADDR", &s.options.ClickHouseAddr})
		}
	}
	s.ownPorts = nil
	for _, a := range listeners {
		if *a.addr == "" {
			if *a.addr, err = FreeAddr(); err != nil {
				return err
			}
		} else if err := requireFree(a.variable, *a.addr); err != nil {
			return err
		}
		if a.addr != &s.options.ReceiverAddr {
			s.own(*a.addr)
		}
	}
	s.ownURL(s.options.ClickHouseURL)
	return s.settings()
}

// settings composes the programs' environment: this process's own, then what
// the options say.
func (s *Stack) settings() error {
	secrets, err := s.data.secrets()
	if err != nil {
		return err
	}
	o := &s.options
	if o.Courier == "" {
		o.Courier = "auto"
	}
	if o.CourierStep == 0 {
		o.CourierStep = 5 * time.Second
	}
	s.env = append(os.Environ(), secrets...)
	s.env = append(s.env,
		"GATEWAY_ADDR="+o.GatewayAddr,
		"OPS_ADDR="+o.OpsAddr,
		"WORKER_OPS_ADDR="+o.WorkerOpsAddr,
		"ENVIRONMENT=sandbox",
		"COURIER="+o.Courier,
		"COURIER_STEP="+o.CourierStep.String(),
	)
	if o.Reporting {
		// Where the gateway's tracking links lead.
		s.env = append(s.env, "TRACKING_BASE_URL=http://"+reachable(o.PanelAddr)+"/track")
	}
	s.env = append(s.env, o.Env...)
	return nil
}

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
	return s.step("start redis", s.data.file("redis"), func() (err error) {
		users, certificates, err := s.redisAccess()
		if err != nil {
			return err
		}
		s.Redis, err = StartRedis(ctx, RedisOptions{
			Dir:     s.data.file("redis"),
			Users:   users,
			TLS:     certificates,
			inherit: s.data.lock,
			onDeath: s.died,
		})
		if err != nil {
			return err
		}
		s.running = append(s.running, s.Redis)
		// For the commands that restore; each program has its own instead.
		s.env = append(s.env, s.redisEnv(BackupUser)...)
		return nil
	})
}

func (s *Stack) startGateway(ctx context.Context) error {
	s.Gateway = s.program("gateway", "http://"+reachable(s.options.OpsAddr)+"/readyz",
		"-config", filepath.Join(s.options.ConfigDir, "gateway.yaml"))
	return s.run(ctx, s.Gateway, s.options.GatewayAddr+" and "+s.options.OpsAddr)
}

func (s *Stack) startWorker(ctx context.Context) error {
	s.ownURL(s.RedisURL(WorkerUser))
	s.env = append(s.env, "OWN_PORTS="+strings.Join(s.ownPorts, ","))
	s.Worker = s.program("worker", "http://"+reachable(s.options.WorkerOpsAddr)+"/readyz",
		"-config", filepath.Join(s.options.ConfigDir, "worker.yaml"))
	return s.run(ctx, s.Worker, s.options.WorkerOpsAddr+", courier "+s.options.Courier)
}

// own notes the port of an address that the system listens on.
func (s *Stack) own(addr string) {
	if _, port, err := net.SplitHostPort(addr); err == nil {
		s.ownPorts = append(s.ownPorts, port)
	}
}

// ownURL does it for a Redis or a ClickHouse; a cluster's addresses are in addr.
func (s *Stack) ownURL(text string) {
	if u, err := url.Parse(text); err == nil {
		s.own(u.Host)
		for _, addr := range u.Query()["addr"] {
			s.own(addr)
		}
	}
}

// startReceiver comes before the worker: webhooks that wait from an earlier
// run find it listening.
func (s *Stack) startReceiver(ctx context.Context) error {
	if !s.options.Receiver {
		return nil
	}
	if err := s.data.write("keys/webhook-secret", []byte(s.Demo.Webhook.Secret+"\n")); err != nil {
		return fmt.Errorf("start receiver: %w", err)
	}
	s.Receiver = s.program("receive", "http://"+reachable(s.options.ReceiverAddr)+"/healthz",
		"-addr", s.options.ReceiverAddr, "-secret-file", s.data.file("keys", "webhook-secret"))
	return s.run(ctx, s.Receiver, s.options.ReceiverAddr)
}

// program is a child with the stack's environment. Its log is named after it,
// replicas with a number.
func (s *Stack) program(name, ready string, args ...string) *Program {
	log := name + ".log"
	for n := 2; slices.ContainsFunc(s.running, func(c stopper) bool { p, ok := c.(*Program); return ok && filepath.Base(p.LogPath()) == log }); n++ {
		log = fmt.Sprintf("%s-%d.log", name, n)
	}
	p := &process{
		name:    name,
		path:    filepath.Join(s.options.BinDir, name),
		args:    args,
		dir:     s.root,
		env:     append(slices.Clone(s.env), s.redisEnv(name)...),
		logPath: s.data.file("logs", log),
		echo:    s.options.Out,
	}
	p.onDeath = func() { s.died(p) }
	return &Program{Name: name, process: p, ready: ready}
}

func (s *Stack) run(ctx context.Context, p *Program, detail string) error {
	s.running = append(s.running, p)
	return s.step("start "+p.Name, detail, func() error { return p.Start(ctx) })
}

// AddGateway starts one more gateway beside the first, on free ports, and
// returns the origin of its Vendor API.
func (s *Stack) AddGateway(ctx context.Context) (*Program, string, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, "", err
	}
	opsAddr, err := FreeAddr()
	if err != nil {
		return nil, "", err
	}
	p := s.program("gateway", "http://"+opsAddr+"/readyz", s.Gateway.process.args...)
	p.process.env = append(p.process.env, "GATEWAY_ADDR="+addr, "OPS_ADDR="+opsAddr)
	return p, "http://" + addr, s.run(ctx, p, addr+" and "+opsAddr)
}

// AddWorker starts one more worker beside the first. instance is its name
// within the consumer groups and must differ from every other worker's.
func (s *Stack) AddWorker(ctx context.Context, instance string) (*Program, error) {
	opsAddr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	p := s.program("worker", "http://"+opsAddr+"/readyz", s.Worker.process.args...)
	p.process.env = append(p.process.env, "WORKER_OPS_ADDR="+opsAddr, "WORKER_INSTANCE="+instance)
	return p, s.run(ctx, p, opsAddr)
}

func (s *Stack) seed(ctx context.Context) error {
	o := &s.options
	seeder := &seeder{data: s.data}
	if err := seeder.load(); err != nil {
		return err
	}
	seeder.demo.BaseURL = "http://" + reachable(o.GatewayAddr)
	seeder.demo.OpsURL = "http://" + reachable(o.OpsAddr)
	var err error
	if seeder.demo.AdminKey, err = s.data.adminKey(); err != nil {
		return err
	}
	seeder.admin = client.New(seeder.demo.OpsURL+"/api/admin/v1", 2).As(seeder.demo.OpsURL+"/api/admin/v1", seeder.demo.AdminKey)
	if o.Receiver {
		o.WebhookURL = "http://" + reachable(o.ReceiverAddr) + "/"
	}
	if err := seeder.seed(ctx, o.WebhookURL); err != nil {
		return err
	}
	s.Demo = seeder.demo
	return nil
}

func (s *Stack) publish() error {
	seeder := &seeder{data: s.data, demo: s.Demo}
	return seeder.finish(s.runVariables())
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

// reachable turns an address to listen on into one to call: a wildcard means
// every interface, loopback included.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // the program refuses it with a better message
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
