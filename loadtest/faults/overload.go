package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// scenario is a case of `faults overload`: more load than the programs can take, or
// something that they need taken away, against a system of its own.
type scenario struct {
	name, about string
	run         func(*overloadRun, context.Context) error
}

// scenarios are in the order in which they run.
var scenarios = []scenario{
	{"load", "ten times the sustainable rate of orders, over many accounts, some at their ordinary limits: no crash, bounded memory, " +
		"quick and correct refusals (429, 503 with Retry-After), every accepted order read back, back to normal within 5 s", (*overloadRun).tenfoldLoad},
	{"memory", "Redis at maxmemory: writes refused, reads go on, nothing half-written", (*overloadRun).fullMemory},
	{"disk", "no space for Redis's log: nothing acknowledged is lost", (*overloadRun).fullDisk},
	{"clickhouse", "ClickHouse unavailable: orders unaffected, the export catches up", (*overloadRun).withoutClickHouse},
	{"clock", "Redis's clock jumps an hour forward and back: no limit locks an account out for longer than its window", (*overloadRun).jumpingClock},
	{"fleet", "a fleet's credential at 5,000 reports a second, of open and of ended orders: Redis keeps nothing of it, vendors feel nothing; " +
		"once the fleet is disabled Redis gets no request", (*overloadRun).floodFleet},
	{"logins", "a stranger with 5,000 wrong logins a second over 600 connections: no vendor is refused, the owner of the client logs in, " +
		"and once they are throttled Redis gets no request", (*overloadRun).floodLogins},
}

// form is how long and how hard.
type form struct {
	load           time.Duration // of the overload
	times          float64       // of the sustainable rate
	connections    int
	wide, ordinary int           // vendors: with limits out of reach, and with ordinary ones
	phase          time.Duration // of each step of the other cases
	quick          time.Duration // 99 % of the refusals take less
	recovery       time.Duration // back to normal within
	normal         time.Duration // a p99 that is normal whatever it was before
	timeout        time.Duration // for what has no figure of its own
	// share of the requests that must be answered as they should; the others may be
	// answered 503 or not at all. A wrong answer is never allowed.
	share    float64
	beside   time.Duration // 99 % of the vendors' orders beside a fleet's flood take less
	inFlight string        // the gateway's MAX_IN_FLIGHT in the case load; empty: the default
}

// wholeForm is the form of `make overload`.
var wholeForm = form{
	load: time.Minute, times: 10, connections: 2048, wide: 40, ordinary: 10, phase: 5 * time.Second,
	quick: time.Second, recovery: 5 * time.Second, normal: 25 * time.Millisecond, timeout: time.Minute, share: 1, beside: 20 * time.Millisecond,
}

// overloadRun is one run of some scenarios. It collects the rows of the table.
type overloadRun struct {
	form     form
	dir, bin string
	out      io.Writer

	scenario string // in progress
	rows     []row
}

// row is one figure; want is empty when nothing is required of it.
type row struct{ scenario, what, figure, want, result string }

// runOverload is `faults overload`.
func runOverload(ctx context.Context, args []string, out io.Writer) (err error) {
	const longest = 20 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var o options
	f := wholeForm
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: go run ./loadtest/faults overload [flags]\n\nOverloads the real programs in cases, each against a system of its own:\n\n")
		for _, s := range scenarios {
			fmt.Fprintf(flags.Output(), "  %-12s%s\n", s.name, s.about)
		}
		fmt.Fprint(flags.Output(), "\nPrints a line for each figure and a table at the end. Ends with status 1 when\nsomething did not hold. About eleven minutes on two cores.\n\n")
		flags.PrintDefaults()
	}
	flags.DurationVar(&f.load, "duration", f.load, "how long the overload lasts, 5s to 10m")
	flags.Float64Var(&f.times, "times", f.times, "how many times the sustainable rate, 1 to 100")
	flags.IntVar(&f.connections, "connections", f.connections, "connections of the overload, 64 to 4000")
	o.define(flags)
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if f.load < 5*time.Second || f.load > 10*time.Minute || !(f.times >= 1 && f.times <= 100) || f.connections < 64 || f.connections > 4000 {
		return errors.New("-duration, -times or -connections is out of range; -help tells them")
	}
	chosen, err := choose(o.only, scenarios, func(s scenario) string { return s.name })
	if err != nil {
		return err
	}
	dir, err := o.dataFolder()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil || o.keep != "" {
			fmt.Fprintln(out, "kept:", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	fmt.Fprintln(out, harness.DescribeMachine(ctx))
	r := &overloadRun{form: f, dir: dir, bin: o.bin, out: out}
	return r.play(ctx, chosen)
}

// play plays scenarios and prints the table.
func (r *overloadRun) play(ctx context.Context, chosen []scenario) error {
	if r.bin == "" {
		r.bin = filepath.Join(r.dir, "bin")
		if err := stack.Build(ctx, r.bin); err != nil {
			return err
		}
	}
	for _, s := range chosen {
		r.scenario = s.name
		fmt.Fprintf(r.out, "%s: %s\n", s.name, s.about)
		if err := s.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, errors.Join(err, context.Cause(ctx)))
		}
	}
	var failures []error
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ncase\twhat\tfigure\twanted\tresult")
	for _, row := range r.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.scenario, row.what, row.figure, row.want, row.result)
		if row.result == failed {
			failures = append(failures, fmt.Errorf("%s: %s is %s, wanted %s", row.scenario, row.what, row.figure, row.want))
		}
	}
	return errors.Join(errors.Join(failures...), w.Flush())
}

const failed = "FAILS"

// figure adds a row of which nothing is required.
func (r *overloadRun) figure(what, format string, a ...any) {
	r.add(row{what: what, figure: fmt.Sprintf(format, a...)})
}

// check adds a row with what it must be.
func (r *overloadRun) check(ok bool, what, want, format string, a ...any) {
	result := "holds"
	if !ok {
		result = failed
	}
	r.add(row{what: what, figure: fmt.Sprintf(format, a...), want: want, result: result})
}

func (r *overloadRun) add(x row) {
	x.scenario = r.scenario
	r.rows = append(r.rows, x)
	line := fmt.Sprintf("  %s: %s  %s", x.what, x.figure, x.result)
	if x.result == failed {
		line += ", wanted: " + x.want
	}
	fmt.Fprintln(r.out, strings.TrimRight(line, " "))
}

// checkTook checks a time that is -1 when it was longer than the limit.
func (r *overloadRun) checkTook(took, limit time.Duration, what string) {
	r.check(took >= 0 && took <= limit, what, "within "+limit.String(), "%s", took.Round(time.Millisecond))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// overloaded is the system of one scenario, with vendors whose stores are active: the
// wide ones, whose limits on orders are out of reach, then those with ordinary
// limits. All may read as much as they like.
type overloaded struct {
	*overloadRun
	*system
	addr    string // host:port of the Vendor API
	vendors []*loadVendor
	orders  atomic.Int64 // numbers that orders were given
}

// open starts the system of a scenario. With disturbed, Redis's disk and clock can
// be.
func (r *overloadRun) open(ctx context.Context, o stack.Options, wide, ordinary int, disturbed bool) (s *overloaded, err error) {
	s = &overloaded{overloadRun: r, system: new(system)}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	o.DataDir, o.BinDir = filepath.Join(r.dir, r.scenario), r.bin
	if o.Courier == "" {
		o.Courier = "manual"
	}
	if disturbed {
		if err := s.startRedis(ctx, o.DataDir, nil); err != nil {
			return s, err
		}
	}
	if err := s.startPrograms(ctx, o); err != nil {
		return s, err
	}
	base, err := url.Parse(s.Demo.BaseURL)
	if err != nil {
		return s, err
	}
	s.addr = base.Host
	opened, err := s.apis.OpenVendors(ctx, wide+ordinary, func(i int) stack.VendorOptions {
		limits := map[string]any{"orderStatus": stack.Unlimited["orderStatus"]}
		if i < wide {
			limits["orders"] = stack.Unlimited["orders"]
		}
		return stack.VendorOptions{Name: fmt.Sprintf("Vendor %d", i), Limits: limits}
	})
	if err != nil {
		return s, err
	}
	for i, v := range opened {
		s.vendors = append(s.vendors, newLoadVendor(v, i < wide))
	}
	return s, nil
}

// processes are those that are watched.
func (s *overloaded) processes() []harness.Process {
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
func (s *overloaded) isReady(ctx context.Context) bool {
	return s.Gateway.AwaitReady(ctx) == nil && s.Worker.AwaitReady(ctx) == nil
}

// checkSettled waits until the worker's roles have nothing left to read or to
// settle.
func (s *overloaded) checkSettled(ctx context.Context, what string) {
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

// server is what Redis reports about itself.
func (s *overloaded) server(ctx context.Context) (ledger.Server, error) {
	servers, err := s.ledger.Monitor.Servers(ctx)
	if err != nil {
		return ledger.Server{}, err
	}
	return servers[0], nil
}
