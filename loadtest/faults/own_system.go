package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// part is something that the system of a round has, where the round shares it with no other.
type part string

const (
	// courier: the sandbox courier delivers an order within a second.
	courier part = "courier"
	// shim: Redis's disk and clock can be disturbed.
	shim part = "shim"
	// reporting: the exporter and ClickHouse run.
	reporting part = "reporting"
	// fewPlaces: the form's MAX_IN_FLIGHT holds.
	fewPlaces part = "few places"
	// onePartition: all accounts share a partition.
	onePartition part = "one partition"
)

// ownActions are the actions of faults whose rounds have systems of their own.
var ownActions = map[string]func(*ownSystem, context.Context){
	"tenfold-load":       (*ownSystem).tenfoldLoad,
	"full-memory":        (*ownSystem).fullMemory,
	"full-disk":          (*ownSystem).fullDisk,
	"without-clickhouse": (*ownSystem).withoutClickHouse,
	"jumping-clock":      (*ownSystem).jumpingClock,

	"beside-reports":    (*ownSystem).besideReports,
	"beside-logins":     (*ownSystem).besideWrongLogins,
	"beside-over-limit": (*ownSystem).besideVendorOverLimit,
	"beside-reader":     (*ownSystem).besideReader,
	"beside-areas":      (*ownSystem).besideLargeFleets,
}

// ownSystem is the system of one round, with vendors whose stores are active and who may read as much as they like.
type ownSystem struct {
	system
	figures
	form form
	addr string // host:port of the Vendor API

	wide     []*loadVendor // with limits out of reach
	steady   *loadVendor   // one more of these
	ordinary []*loadVendor // with the limits of every vendor

	orders atomic.Int64 // how many numbers of orders were given
	cancel context.CancelCauseFunc
}

// start starts the programs of bin below dir, and opens the vendors.
func (s *ownSystem) start(ctx context.Context, dir, bin string, parts []part) error {
	o := stack.Options{DataDir: dir, BinDir: bin, Courier: "manual", Reporting: slices.Contains(parts, reporting)}
	if slices.Contains(parts, courier) {
		o.Courier, o.CourierStep = "auto", courierStep
	}

	if slices.Contains(parts, onePartition) {
		o.Env = append(o.Env, "PARTITIONS=1")
	}

	if slices.Contains(parts, fewPlaces) && s.form.maxInFlight != "" {
		o.Env = append(o.Env, "MAX_IN_FLIGHT="+s.form.maxInFlight)
	}

	if slices.Contains(parts, shim) {
		if err := s.startRedis(ctx, dir, nil); err != nil {
			return err
		}
	}

	if err := s.startPrograms(ctx, o); err != nil {
		return err
	}

	s.addr = strings.TrimPrefix(s.Demo.BaseURL, "http://")

	return s.openOwnVendors(ctx)
}

func (s *ownSystem) openOwnVendors(ctx context.Context) error {
	readable := map[string]any{"orderStatus": stack.Unlimited["orderStatus"]}
	unlimited := map[string]any{"orderStatus": stack.Unlimited["orderStatus"], "orders": stack.Unlimited["orders"]}
	wide, err := s.openVendors(ctx, "Wide", s.form.wide+1, unlimited)
	if err != nil {
		return err
	}

	s.steady, s.wide = wide[0], wide[1:]
	s.ordinary, err = s.openVendors(ctx, "Ordinary", s.form.ordinary, readable)
	return err
}

// openVendors opens n vendors with the given limits; nil: those of every vendor.
func (s *ownSystem) openVendors(ctx context.Context, name string, n int, limits any) (vendors []*loadVendor, err error) {
	opened, err := s.apis.OpenVendors(ctx, n, func(i int) stack.VendorOptions {
		return stack.VendorOptions{Name: fmt.Sprint(name, " ", i), Limits: limits}
	})
	if err != nil {
		return nil, err
	}

	for _, v := range opened {
		vendors = append(vendors, newLoadVendor(v))
	}

	return vendors, nil
}

// require ends the round with an error, unless that is nil: what follows ends at once with its context.
func (s *ownSystem) require(err error) {
	if err != nil {
		s.cancel(err)
	}
}

// processes are the programs that every such system has, and Redis.
func (s *ownSystem) processes() []harness.Process {
	return []harness.Process{
		{Name: "gateway", PID: s.Gateway.PID()},
		{Name: "worker", PID: s.Worker.PID()},
		{Name: "redis", PID: s.redis.PID()},
	}
}

// watch watches processes until the result is called, which returns what they have used by their names.
func watch(ctx context.Context, processes ...harness.Process) func() map[string]harness.Watched {
	stop := harness.Watch(ctx, 200*time.Millisecond, processes...)
	return func() map[string]harness.Watched {
		all := make(map[string]harness.Watched)
		for _, w := range stop() {
			all[w.Name] = w
		}
		return all
	}
}

// The rates of the clients beside whom things happen.
const (
	calmOrders      = 50 // orders a second, where the load is not the subject
	calmReads       = 20
	calmConnections = 16
)

// phase lets the wide vendors order, and read what was accepted before, for a while. With nothing to read, reads
// is empty, not nil.
func (s *ownSystem) phase(ctx context.Context, d time.Duration, earlier []placed) (orders, reads *tally) {
	var reading sync.WaitGroup
	reading.Go(func() { reads = s.read(ctx, earlier, load{connections: calmConnections, rate: calmReads, duration: d}) })
	orders = s.order(ctx, s.wide, load{connections: calmConnections, rate: calmOrders, duration: d})
	reading.Wait()
	return orders, reads
}

// before returns a phase in which nothing is wrong.
func (s *ownSystem) before(ctx context.Context) *tally {
	orders, _ := s.phase(ctx, s.form.phase, nil)
	s.checkServed(orders, s.form.share, "orders before")
	return orders
}

// checkAccepted checks that an order is accepted within a time, and returns it.
func (s *ownSystem) checkAccepted(ctx context.Context, within time.Duration, what string) (first []placed) {
	s.checkBecomes(ctx, condition{what: what, within: within, holds: func() (bool, string) {
		first = s.order(ctx, s.wide, load{connections: 1, duration: time.Second, most: 1}).orders
		return len(first) == 1, fmt.Sprint(len(first))
	}})
	return first
}

func (s *ownSystem) checkReady(ctx context.Context, programs ...*stack.Program) {
	for _, p := range programs {
		err := p.AwaitReady(ctx)
		s.check(expectation{
			what:  p.Name + " afterwards",
			want:  "ready",
			got:   orError("ready", err),
			holds: err == nil,
		})
	}
}

// checkSettled checks that the worker has nothing left to do.
func (s *ownSystem) checkSettled(ctx context.Context, what string) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.form.timeout)
	defer cancel()
	sources := validate.Sources{Ledger: s.ledger, Redis: s.redisClient}
	err := sources.Settle(limited, func(string) {})
	s.check(expectation{
		what:  what,
		want:  "within " + s.form.timeout.String(),
		got:   time.Since(began).Round(time.Millisecond).String(),
		holds: err == nil,
	})
}

// ownRoundTimeout bounds a round on a system of its own.
const ownRoundTimeout = 15 * time.Minute

// playOnOwnSystem plays a round of one fault that needs a system of its own. Violations are in r; an error is about
// the suite.
func (s *suite) playOnOwnSystem(ctx context.Context, r *round) error {
	ctx, cancel := context.WithTimeoutCause(ctx, ownRoundTimeout, errors.New("the round took too long"))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f := r.faults[0]
	r.began = time.Now()
	s.print("%s: %s", f.Name, f.Does)

	own := &ownSystem{figures: figures{fault: f.Name, print: s.print}, form: s.options.form, cancel: stop}
	defer own.stop()
	if err := own.start(ctx, filepath.Join(s.dir, f.Name), s.plainBin, f.System); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}

	ownActions[f.Action](own, ctx)
	r.ended = time.Now()
	r.figures, r.violations = own.checked, own.violations

	return context.Cause(ctx)
}
