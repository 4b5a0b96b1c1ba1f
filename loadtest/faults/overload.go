package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// overloadCase is a row of overload.yaml, which explains the fields. Each has a system of its own.
type overloadCase struct {
	Name, Does                                   string
	Courier, Shim, InFlight, Receiver, Reporting bool
	Neighbour                                    bool
}

func loadOverload(names string) ([]overloadCase, error) {
	return readTable("overload.yaml", names, func(c overloadCase) string { return c.Name })
}

var overloadCases = map[string]func(*overloaded, context.Context){
	"load":       (*overloaded).tenfoldLoad,
	"memory":     (*overloaded).fullMemory,
	"disk":       (*overloaded).fullDisk,
	"clickhouse": (*overloaded).withoutClickHouse,
	"clock":      (*overloaded).jumpingClock,
	"fleet":      (*overloaded).floodFleet,
	"logins":     (*overloaded).floodLogins,

	"over-limit":   (*overloaded).besideVendorOverLimit,
	"suspended":    (*overloaded).besideSuspendedVendor,
	"reader":       (*overloaded).besideReader,
	"areas":        (*overloaded).besideLargeFleets,
	"stores":       (*overloaded).besideFleetOfManyStores,
	"slow-logins":  (*overloaded).besideSlowLogins,
	"replays":      (*overloaded).besideReplays,
	"long-answers": (*overloaded).besideLongAnswers,
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
	// share of the requests that must be answered as they should, the others 503 or not at all. No answer may be wrong.
	share    float64
	beside   time.Duration // 99 % of the vendors' orders beside a fleet's flood take less
	inFlight string        // the gateway's MAX_IN_FLIGHT in the case load; empty: the default

	// Of the cases with a neighbour: how long one measurement lasts, without or beside the
	// neighbour, the share of the healthy vendor's orders that must be sent when they fall due, by
	// how much its p99 may grow, and how much the neighbours have.
	neighbour              time.Duration
	punctual               float64
	ratio                  float64
	fleets, stores, events int

	past int // how many ended orders, or entries of streams, fill the memory in the case memory
}

// wholeForm is the form of `make faults SUITE=overload`.
var wholeForm = form{
	load: time.Minute, times: 10, connections: 2048, wide: 40, ordinary: 10, phase: 5 * time.Second,
	quick: time.Second, recovery: 5 * time.Second, normal: 25 * time.Millisecond, timeout: time.Minute,
	share: 1, beside: 20 * time.Millisecond,
	neighbour: 8 * time.Second, punctual: 0.999, ratio: 1.5, fleets: 100, stores: 10_000, events: 1_000_000, past: 100_000,
}

type overloadRun struct {
	form     form
	dir, bin string
	out      io.Writer
	name     string // of the case in progress
	rows     []row
}

type row struct{ name, what, figure, want, result string }

func runOverload(ctx context.Context, o options, out io.Writer) (err error) {
	const longest = 40 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	chosen, err := loadOverload(o.only)
	if err != nil {
		return err
	}
	dir, err := o.dataFolder()
	if err != nil {
		return err
	}
	defer func() { err = o.leave(dir, err, out) }()
	fmt.Fprintln(out, harness.DescribeMachine(ctx))
	r := &overloadRun{form: o.form, dir: dir, bin: o.bin, out: out}
	if r.bin == "" {
		r.bin = filepath.Join(dir, "bin")
		if err := stack.Build(ctx, r.bin); err != nil {
			return err
		}
	}
	return r.play(ctx, chosen)
}

func (r *overloadRun) play(ctx context.Context, chosen []overloadCase) error {
	for _, c := range chosen {
		r.name = c.Name
		fmt.Fprintf(r.out, "%s: %s\n", c.Name, c.Does)
		if err := r.playCase(ctx, &c); err != nil {
			return fmt.Errorf("%s: %w", c.Name, errors.Join(err, context.Cause(ctx)))
		}
	}
	var failures []error
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ncase\twhat\tfigure\twanted\tresult")
	for _, row := range r.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.name, row.what, row.figure, row.want, row.result)
		if row.result == failed {
			failures = append(failures, fmt.Errorf("%s: %s is %s, wanted %s", row.name, row.what, row.figure, row.want))
		}
	}
	return errors.Join(errors.Join(failures...), w.Flush())
}

const failed = "FAILS"

func (r *overloadRun) figure(what, format string, a ...any) { r.add(what, "", "", format, a...) }

func (r *overloadRun) check(ok bool, what, want, format string, a ...any) {
	r.add(what, want, map[bool]string{true: "holds", false: failed}[ok], format, a...)
}

func (r *overloadRun) add(what, want, result, format string, a ...any) {
	x := row{r.name, what, fmt.Sprintf(format, a...), want, result}
	r.rows = append(r.rows, x)
	line := fmt.Sprintf("  %s: %s  %s", what, x.figure, result)
	if result == failed {
		line += ", wanted: " + want
	}
	fmt.Fprintln(r.out, strings.TrimRight(line, " "))
}

// checkBecomes polls until something holds. The figure says how far it came.
func (r *overloadRun) checkBecomes(ctx context.Context, limit time.Duration, what, want string, holds func() (bool, string)) {
	began, held, figure := time.Now(), false, ""
	_ = harness.Await(ctx, what, limit, pollInterval, func() (bool, error) { // what it is about is checked below
		held, figure = holds()
		return held, nil
	})
	took := time.Since(began).Round(time.Millisecond)
	r.check(held && took <= limit, what, want+"within "+limit.String(), "%s after %s", figure, took)
}

func (r *overloadRun) checkServed(t *tally, what string) {
	r.check(t.served(t.accepted, r.form.share), what, "all answered with success",
		"%d of %d%s", t.accepted.TotalCount(), t.sent, t.problems())
}

func (r *overloadRun) checkP99(h *hdrhistogram.Histogram, most time.Duration, what string) {
	r.check(p99(h) <= most, what+", p99", "at most "+most.String(), "%s", milliseconds(p99(h)))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// overloaded is the system of a case, with vendors whose stores are active and who may read as much as they like.
type overloaded struct {
	*overloadRun
	system
	addr           string // host:port of the Vendor API
	wide, ordinary []*loadVendor
	steady         *loadVendor  // one more with limits out of reach
	orders         atomic.Int64 // numbers that orders were given
	cancel         context.CancelCauseFunc
}

// require ends the case with an error, unless that is nil: what follows ends at once with its context.
func (s *overloaded) require(err error) {
	if err != nil {
		s.cancel(err)
	}
}

func (r *overloadRun) playCase(ctx context.Context, c *overloadCase) error {
	s := &overloaded{overloadRun: r}
	defer s.stop()
	o := stack.Options{DataDir: filepath.Join(r.dir, c.Name), BinDir: r.bin, Courier: "manual",
		Receiver: c.Receiver, Reporting: c.Reporting}
	if c.Courier {
		o.Courier, o.CourierStep = "auto", courierStep
	}
	if c.Neighbour {
		o.Env = []string{"PARTITIONS=1"}
	}
	if c.InFlight && r.form.inFlight != "" {
		o.Env = []string{"MAX_IN_FLIGHT=" + r.form.inFlight}
	}
	if c.Shim {
		if err := s.startRedis(ctx, o.DataDir, nil); err != nil {
			return err
		}
	}
	if err := s.startPrograms(ctx, o); err != nil {
		return err
	}
	s.addr = strings.TrimPrefix(s.Demo.BaseURL, "http://")
	wide := r.form.wide + 1
	opened, err := s.apis.OpenVendors(ctx, wide+r.form.ordinary, func(i int) stack.VendorOptions {
		limits := map[string]any{"orderStatus": stack.Unlimited["orderStatus"]}
		if i < wide {
			limits["orders"] = stack.Unlimited["orders"]
		}
		return stack.VendorOptions{Name: fmt.Sprintf("Vendor %d", i), Limits: limits}
	})
	if err != nil {
		return err
	}
	var vendors []*loadVendor
	for _, v := range opened {
		vendors = append(vendors, newLoadVendor(v))
	}
	s.steady, s.wide, s.ordinary = vendors[0], vendors[1:wide], vendors[wide:]
	ctx, s.cancel = context.WithCancelCause(ctx)
	defer s.cancel(nil)
	overloadCases[c.Name](s, ctx)
	return context.Cause(ctx)
}

func (s *overloaded) processes() []harness.Process {
	return []harness.Process{{Name: "gateway", PID: s.Gateway.PID()}, {Name: "worker", PID: s.Worker.PID()},
		{Name: "redis", PID: s.redis.PID()}}
}

// watch watches processes until the result is called, which knows what they have used by their names.
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

func (s *overloaded) checkSettled(ctx context.Context, what string) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.form.timeout)
	defer cancel()
	err := (&validate.Sources{Ledger: s.ledger}).Settle(limited, func(string) {})
	s.check(err == nil, what, "within "+s.form.timeout.String(), "%s", time.Since(began).Round(time.Millisecond))
}
