package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// system is the programs of one scenario, with vendors whose stores are active: the
// wide ones, whose limits on orders are out of reach, then those with ordinary
// limits. All may read as much as they like.
type system struct {
	*run
	*stack.Stack
	redis   *stack.Redis
	shim    *failpoint.Shim // Redis's clock and disk; nil: its own
	apis    *stack.APIs
	ledger  *ledger.Ledger
	addr    string // host:port of the Vendor API
	vendors []*vendor
	orders  atomic.Int64 // numbers that orders were given
}

// start starts the programs. With shimmed, Redis runs under the shim.
func (r *run) start(ctx context.Context, o stack.Options, wide, ordinary int, shimmed bool) (s *system, err error) {
	s = &system{run: r}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if shimmed {
		if s.shim, err = failpoint.NewShim(ctx, filepath.Join(r.dir, "shim")); err != nil {
			return s, err
		}
		if s.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(r.dir, r.scenario+"-redis"), Env: s.shim.Env()}); err != nil {
			return s, err
		}
		o.RedisURL = s.redis.URL
	}
	o.DataDir, o.BinDir = filepath.Join(r.dir, r.scenario), r.bin
	if o.Courier == "" {
		o.Courier = "manual"
	}
	if s.Stack, err = stack.Start(ctx, o); err != nil {
		return s, err
	}
	if s.redis == nil {
		s.redis = s.Redis
	}
	if s.ledger, err = ledger.Open(ctx, ledger.Config{URL: s.redis.URL, Environment: "sandbox", Log: slog.New(slog.DiscardHandler)}); err != nil {
		return s, err
	}
	base, err := url.Parse(s.Demo.BaseURL)
	if err != nil {
		return s, err
	}
	s.addr = base.Host
	if s.apis, err = s.Demo.Connect(ctx, client.New("", 4)); err != nil {
		return s, err
	}
	opened, err := s.apis.OpenVendors(ctx, wide+ordinary, func(i int) stack.VendorOptions {
		limits := map[string]any{"orderStatus": stack.Unlimited["orderStatus"]}
		if i < wide {
			limits["orders"] = stack.Unlimited["orders"]
		}
		return stack.VendorOptions{Name: fmt.Sprintf("Vendor %d", i), Limits: limits}
	})
	for i, v := range opened {
		if err == nil {
			s.vendors = append(s.vendors, newVendor(v, i < wide))
		}
	}
	return s, err
}

func (s *system) stop() {
	if s.ledger != nil {
		_ = s.ledger.Close() // nothing is written through it
	}
	if s.Stack != nil {
		s.Stop()
	}
	if s.shim != nil {
		if s.redis != nil {
			s.redis.Stop()
		}
		_ = s.shim.Close() // a temporary file
	}
}

// processes are those that are watched.
func (s *system) processes() []harness.Process {
	return []harness.Process{{Name: "gateway", PID: s.Gateway.PID()}, {Name: "worker", PID: s.Worker.PID()}, {Name: "redis", PID: s.redis.PID()}}
}

// watch looks at processes until the returned function is called; it returns what
// each has used, and the cores that they kept busy.
func watch(ctx context.Context, processes ...harness.Process) func() (used map[string]harness.Watched, cores map[string]float64) {
	began, stop := time.Now(), harness.Watch(ctx, 200*time.Millisecond, processes...)
	return func() (map[string]harness.Watched, map[string]float64) {
		used, cores := make(map[string]harness.Watched), make(map[string]float64)
		for _, w := range stop() {
			used[w.Name], cores[w.Name] = w, w.CPU.Seconds()/time.Since(began).Seconds()
		}
		return used, cores
	}
}

// isReady reports whether the gateway and the worker say that they are ready.
func (s *system) isReady(ctx context.Context) bool {
	return s.Gateway.AwaitReady(ctx) == nil && s.Worker.AwaitReady(ctx) == nil
}

// checkSettled waits until the worker's roles have nothing left to read or to
// settle.
func (s *system) checkSettled(ctx context.Context, what string) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.form.timeout)
	defer cancel()
	took := time.Duration(-1)
	if err := (&validate.Sources{Ledger: s.ledger}).Settle(limited, func(string) {}); err == nil {
		took = time.Since(began)
	}
	s.checkTook(took, s.form.timeout, what)
}

// await polls until a condition holds and returns how long it took; -1: longer than
// the limit.
func await(ctx context.Context, limit time.Duration, holds func() (bool, error)) (time.Duration, error) {
	for began := time.Now(); time.Since(began) < limit && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if ok, err := holds(); ok || err != nil {
			return time.Since(began), err
		}
	}
	return -1, nil
}

// info is a number of Redis's INFO.
func (s *system) info(ctx context.Context, section, name string) (int64, error) {
	text, err := s.redis.Command(ctx, "INFO", section)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, errors.New("INFO " + section + " has no " + name)
}

// limitMemory sets maxmemory in bytes; 0: no limit.
func (s *system) limitMemory(ctx context.Context, bytes int) error {
	if _, err := s.redis.Command(ctx, "CONFIG", "SET", "maxmemory", strconv.Itoa(bytes)); err != nil {
		return fmt.Errorf("CONFIG SET maxmemory: %w", err)
	}
	return nil
}
