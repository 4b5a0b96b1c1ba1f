package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/harness"
)

// system is the whole system as processes. In the rounds of faults there is a proxy between each program and what it calls.
//
//	clients --> gateway --> Redis
//	            workers --> Redis, receivers
//	            reporting --> Redis, ClickHouse
type system struct {
	*stack.Stack
	redis *stack.Redis // nil on a cluster
	// On a cluster: its servers, and an account of each master.
	cluster   *stack.Cluster
	observers []*observer
	// With -replica: what the master's replica is started with, the replica, and what leads the suite's ledger to the master.
	server  stack.RedisOptions
	servers int
	replica *stack.Redis
	master  *failpoint.Proxy
	disk    *failpoint.Shim  // of one Redis: its disk and clock; nil: they are the machine's
	spares  []*stack.Program // further workers, which run in some rounds; the first has a proxy of its own
	apis    *stack.APIs      // the fleet's and the admin API have no proxy

	// Both read what is stored, as the operator, and past the proxies that faults disturb.
	ledger      *ledger.Ledger
	redisClient redis.UniversalClient

	proxies map[string]*failpoint.Proxy // gateway, gateway-redis, worker-redis, spares-redis, reporting-redis, clickhouse
	ends    []func()                    // what stop does, in the reverse order

	mu sync.Mutex // held while a process is signalled, killed or started
}

// start starts everything below dir, with the proxies.
func (s *system) start(ctx context.Context, dir string, from *options, out io.Writer) (err error) {
	if from.cluster {
		return s.startOnCluster(ctx, dir, from, out)
	}

	users := &stack.Users{Environment: "sandbox", Passwords: map[string]string{stack.GatewayUser: rand.Text(),
		stack.WorkerUser: rand.Text(), stack.ReportingUser: rand.Text(), stack.BackupUser: rand.Text(), stack.OperatorUser: rand.Text()}}
	if err := s.startRedis(ctx, dir, users, from.redis...); err != nil {
		return err
	}

	o := s.stackOptions(dir, from, out)
	if from.replica {
		if err := s.addReplica(ctx); err != nil {
			return err
		}
		o.RedisURL, o.Env = s.urlBehind(stack.OperatorUser, s.master), append(o.Env, "REDIS_DURABILITY=replica")
	}

	err = s.addProxies(map[string]string{"gateway": o.GatewayAddr, "clickhouse": o.ClickHouseAddr,
		"gateway-redis": s.redis.Addr, "worker-redis": s.redis.Addr, "spares-redis": s.redis.Addr, "reporting-redis": s.redis.Addr})
	if err != nil {
		return err
	}
	if err := s.startPrograms(ctx, o); err != nil {
		return err
	}

	return s.addSpares(ctx)
}

// stackOptions are those of a system of faults, whatever its Redis is.
func (s *system) stackOptions(dir string, from *options, out io.Writer) stack.Options {
	return stack.Options{
		DataDir: dir, BinDir: from.bin, ConfigDir: filepath.Join(dir, "configs"), Out: out, Reporting: true, CourierStep: courierStep,
		GatewayAddr: stack.FreeAddr(), ClickHouseAddr: stack.FreeAddr(),
		Env: []string{"WORKER_INSTANCE=first", "REPORTING_INSTANCE=first", "LOG_LEVEL=warn", stack.NoEngineKey},
	}
}

// addSpares adds the workers that run in some rounds only.
func (s *system) addSpares(ctx context.Context) error {
	for _, instance := range []string{"second", "third"} {
		spare, err := s.AddWorker(ctx, instance)
		if err != nil {
			return err
		}
		spare.Stop()
		spare.Env = append(spare.Env, "WORKER_REDIS_URL="+s.redisURL("worker", "spares-redis"))
		s.spares = append(s.spares, spare)
	}

	s.apis.Fleet.HTTP = &http.Client{Timeout: 2 * time.Second, Transport: s.apis.Fleet.HTTP.Transport}

	return nil
}

// startRedis starts a Redis whose disk and clock can be disturbed. redis/ is for a stack's own.
func (s *system) startRedis(ctx context.Context, dir string, users *stack.Users, extra ...string) (err error) {
	s.disk, err = failpoint.NewShim(ctx, filepath.Join(dir, "shim"))
	if err != nil {
		return err
	}

	s.ends = append(s.ends, func() { _ = s.disk.Close() }) // a file of a few bytes
	s.server = stack.RedisOptions{Dir: filepath.Join(dir, "ledger"), Users: users, Env: s.disk.Env(), Extra: extra}
	s.redis, err = stack.StartRedis(ctx, s.server)
	if err == nil {
		s.ends = append(s.ends, s.redis.Stop)
	}

	return err
}

// startPrograms starts the programs on the Redis that was started, or on one of their own, and connects to them.
// With proxies they have settings of their own, too.
func (s *system) startPrograms(ctx context.Context, o stack.Options) (err error) {
	if s.proxies != nil {
		if err := s.writeSettings(o.ConfigDir); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		o.Env = append(o.Env, "WORKER_REDIS_URL="+s.redisURL("worker", "worker-redis"))
	}

	if s.redis != nil && o.RedisURL == "" {
		o.RedisURL = s.redis.URL
	}

	s.Stack, err = stack.Start(ctx, o)
	if err != nil {
		return err
	}

	s.ends = append(s.ends, s.Stop)
	if s.redis == nil && s.cluster == nil {
		s.redis = s.Redis
		o.RedisURL = s.redis.URL
	}

	s.ledger, err = ledger.Open(ctx, ledger.Config{URL: o.RedisURL, Environment: "sandbox", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}

	s.ends = append(s.ends, func() { _ = s.ledger.Close() }) // nothing is written through it
	s.redisClient, err = newRedisClient(o.RedisURL)
	if err != nil {
		return err
	}

	s.ends = append(s.ends, func() { _ = s.redisClient.Close() }) // nothing is written through it either
	s.apis, err = s.Demo.Connect(ctx, client.New("", 4))

	return err
}

// newRedisClient returns a client of one server or, if the URL names several, of their cluster.
func newRedisClient(url string) (redis.UniversalClient, error) {
	cluster, err := redis.ParseClusterURL(url)
	if err == nil && len(cluster.Addrs) > 1 {
		return redis.NewClusterClient(cluster), nil
	}

	server, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(server), nil
}

// pollInterval is how often a condition is checked.
const pollInterval = 50 * time.Millisecond

// courierStep is the time between two moves: clients, couriers and faults meet within the second of an order.
const courierStep = 200 * time.Millisecond

// writeSettings: programs call Redis as their own users through their own proxies, and no wait is longer than a round.
// The first failed attempt opens a breaker, since its probes come sooner than the retries after 10 s and 30 s.
func (s *system) writeSettings(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	const redis = "url: ${REDIS_URL"
	for program, values := range map[string]map[string]string{
		"gateway": {redis: s.redisURL("gateway", "gateway-redis")},
		"worker": {redis: "$${WORKER_REDIS_URL}", // one file for all of them
			"timer_interval": "500ms", "housekeeping_interval": "1s", "timeout": "1s", "breaker_failures": "1"},
		"reporting": {redis: s.redisURL("reporting", "reporting-redis"), "url: ${CLICKHOUSE_URL": "http://" + s.proxies["clickhouse"].Addr,
			"interval": "200ms", "claim_after": "3s"},
	} {
		if _, err := harness.WriteConfig(dir, program, values); err != nil {
			return err
		}
	}

	return nil
}

// redisURL is where a user finds Redis: behind a proxy, or the cluster.
func (s *system) redisURL(user, proxy string) string {
	if s.cluster != nil {
		return s.cluster.URL
	}
	return s.urlBehind(user, s.proxies[proxy])
}

func (s *system) urlBehind(user string, proxy *failpoint.Proxy) string {
	return strings.Replace(s.redis.URLFor(user), s.redis.Addr, proxy.Addr, 1)
}

func (s *system) stop() {
	s.resume() // a stopped process does not get the signal to end
	for _, end := range slices.Backward(s.ends) {
		end()
	}
}

// programs are those of the rounds of faults.
func (s *system) programs() []*stack.Program {
	if s.spares == nil {
		return nil
	}

	programs := append([]*stack.Program{s.Gateway, s.Worker, s.Reporting, s.ClickHouse}, s.spares...)
	for _, server := range s.redisServers() {
		programs = append(programs, server.Program)
	}

	if s.replica != nil {
		programs = append(programs, s.replica.Program)
	}

	return programs
}

// redisServers are those that may be hit: the master, or all of a cluster.
func (s *system) redisServers() []*stack.Redis {
	if s.cluster != nil {
		return s.cluster.Nodes
	}
	return []*stack.Redis{s.redis}
}

// process returns the program with a name; nil if there is none of that name.
func (s *system) process(name string) *stack.Program {
	switch name {
	case "gateway":
		return s.Gateway
	case "worker":
		return s.Worker
	case "reporting":
		return s.Reporting
	case "clickhouse":
		return s.ClickHouse
	}

	return nil
}

// signal signals a process that runs. Another's id may be that of one that does not.
func (s *system) signal(p *stack.Program, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.Running() {
		return errors.New("the process does not run")
	}
	return syscall.Kill(p.PID(), sig)
}

func (s *system) resume() {
	for _, p := range s.programs() {
		_ = s.signal(p, syscall.SIGCONT) // no effect on the others
	}
}

// restart starts a killed process. One that is not ready in time, for want of what it needs, becomes so later.
func (s *system) restart(ctx context.Context, p *stack.Program, timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Running() {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.Start(ctx); err != nil && ctx.Err() == nil {
		return err
	}

	return nil
}

// heal undoes every fault and returns when every process is ready, and so many workers are.
func (s *system) heal(ctx context.Context, workers int) error {
	unused := s.spares[workers-1:]
	for _, p := range unused {
		p.Stop()
	}

	s.resume()
	err := s.healRedis(ctx)
	for _, p := range s.proxies {
		err = errors.Join(err, p.Heal())
	}

	if err != nil {
		return err
	}

	for _, p := range s.programs() {
		if slices.Contains(unused, p) {
			continue
		}
		if err := errors.Join(s.restart(ctx, p, time.Minute), p.AwaitReady(ctx)); err != nil {
			return fmt.Errorf("after healing: %w", err)
		}
	}

	return nil
}

func (s *system) healRedis(ctx context.Context) error {
	if s.cluster != nil {
		var err error
		for _, node := range s.cluster.Nodes {
			err = errors.Join(err, s.restart(ctx, node.Program, time.Minute))
		}
		return errors.Join(err, s.cluster.AwaitWhole(ctx))
	}

	s.disk.DelaySync(0)
	err := errors.Join(s.restart(ctx, s.redis.Program, time.Minute), limitMemory(ctx, s.redis, stack.DefaultMaxMemory()))
	if s.replica != nil {
		err = errors.Join(err, s.replica.AwaitSynced(ctx))
	}

	return err
}

// limitMemory sets maxmemory. "1" is in use already, so that every write is refused.
func limitMemory(ctx context.Context, redis *stack.Redis, limit string) error {
	if _, err := redis.Command(ctx, "CONFIG", "SET", "maxmemory", limit); err != nil {
		return fmt.Errorf("CONFIG SET maxmemory: %w", err)
	}
	return nil
}

// usedMemory returns what Redis uses, in bytes.
func (s *system) usedMemory(ctx context.Context) (int64, error) {
	info, err := harness.RedisInfo(ctx, s.redis)
	return int64(info["used_memory"]), err
}
