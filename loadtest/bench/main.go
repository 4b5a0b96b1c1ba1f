// Command bench measures the service against baselines of the same run.
//
//	bench [-suite orders|webhooks|receivers|reporting|growth] [flags]
//
// A suite is a list of measurements (orders.go, webhooks.go, receivers.go, reporting.go, growth.go). Each starts
// what it measures, and the whole suite ends as one table: what was measured, the figure, what it is
// compared with, their ratio, and the limit. The figures of all rounds are written as JSON. The
// status is 1 when a figure is beyond its limit.
//
// Limits are ratios to a baseline of the same run, because the same machine is twice as fast on one
// day as on another; counts and bytes, which no machine changes, have limits of their own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// A suite is what one run measures, in the order of its table.
type suite struct {
	name  string
	about string // shown by -help: the figures and their baselines
	takes string // shown by -help: how long a run takes on two cores

	timeout      time.Duration // of a whole run
	fullRounds   int           // without -rounds and -short
	programs     []string      // built before the first measurement; nil for none
	measurements []measurement
}

// A measurement fills in its figures, round by round. Its function panics with a failure at the first error.
type measurement struct {
	name    string // matched by -only
	measure func(*bench, context.Context)
	figures []*figure
}

// suites returns all suites in the order of the usage text. No figure has been measured yet; each call returns new ones.
func suites() []suite {
	return []suite{ordersSuite(), webhooksSuite(), receiversSuite(), reportingSuite(), growthSuite()}
}

// bench is one run of one suite.
type bench struct {
	suite
	options
	chosen []measurement // the suite's measurements that -only matches

	out io.Writer
	dir string // temporary folder of binaries, data and logs; removed at the end without -keep

	// year is made by the first measurement of suite reporting that needs it; nil before. takeMeasurements stops it.
	year *reportingEnv

	// crowdMemory is the memory in MiB that the measurement "many" of suite receivers has found, round by round.
	crowdMemory []float64
}

// options are the values of the flags. setDefaults fills in rounds, json, seed, orders and history where they are zero.
type options struct {
	short  bool
	only   string
	rounds int
	json   string
	keep   bool

	seed    uint64 // suite webhooks only
	profile string // suites webhooks and reporting only
	orders  int    // suite reporting only
	history int    // suite reporting only
}

func main() {
	// One of the runtime's processors is taken while the schedule sleeps in the kernel, see harness.SleepUntil. Without
	// another one the answers would wait for up to 10 ms until it is taken back.
	runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	harness.Run("bench", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

// run measures the suite that the arguments ask for. The error names every figure beyond its limit.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	b, err := parse(args, out)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()

	b.dir, err = os.MkdirTemp("", "bench-"+b.name+"-")
	if err != nil {
		return err
	}
	defer func() {
		if b.keep {
			b.progress("data and logs: %s", b.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()

	if b.programs != nil {
		if err := stack.Build(ctx, b.file("bin"), b.programs...); err != nil {
			return err
		}
	}

	return b.measure(ctx)
}

const (
	maxRounds = 50

	minOrders   = 1_000
	maxOrders   = 1_000_000
	fullOrders  = 100_000
	shortOrders = 10_000

	minHistory   = 10_000
	maxHistory   = 50_000_000
	fullHistory  = 5_000_000
	shortHistory = 200_000
)

// parse returns the run that the arguments ask for, with a value for every option.
func parse(args []string, out io.Writer) (*bench, error) {
	b := &bench{out: out}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(out)
	set.Usage = func() {
		printUsage(out)
		set.PrintDefaults()
	}

	name := set.String("suite", "orders", "orders, webhooks, receivers, reporting or growth")
	set.BoolVar(&b.short, "short", false,
		"a minute or two instead: does all of it work? checks only what holds in a run of any length")
	set.StringVar(&b.only, "only", "", "measure only these of the suite, a regular expression")
	set.IntVar(&b.rounds, "rounds", 0,
		fmt.Sprintf("1 to %d; everything is measured once in each "+
			"(default 5 of orders, 15 of growth, 1 of receivers, 3 of the others; short 1)", maxRounds))
	set.StringVar(&b.json, "json", "", "where the figures are written (default DATA_DIR/bench-SUITE.json)")
	set.BoolVar(&b.keep, "keep", false, "keep the folder with data and logs")
	set.Uint64Var(&b.seed, "seed", 0,
		"webhooks: decides when the worker is killed; 0: another one every time, which the head of the table names")
	set.StringVar(&b.profile, "profile", "",
		"webhooks, reporting: write a CPU profile of the worker or the exporter in the last round to this file")
	set.IntVar(&b.orders, "orders", 0,
		fmt.Sprintf("reporting: orders to export, %d to %d (default %d, short %d)", minOrders, maxOrders, fullOrders, shortOrders))
	set.IntVar(&b.history, "history", 0,
		fmt.Sprintf("reporting: orders in the year, %d to %d (default %d, short %d)", minHistory, maxHistory, fullHistory, shortHistory))

	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}

	all := suites()
	i := slices.IndexFunc(all, func(s suite) bool { return s.name == *name })
	if i < 0 {
		return nil, fmt.Errorf("-suite: there is no %q; want orders, webhooks, receivers, reporting or growth", *name)
	}

	b.suite = all[i]
	if err := b.choose(); err != nil {
		return nil, err
	}
	if err := b.setDefaults(); err != nil {
		return nil, err
	}

	return b, b.checkNumbers()
}

// printUsage writes the usage text up to the flags, with every suite and its measurements.
func printUsage(out io.Writer) {
	fmt.Fprint(out, `Usage: go run ./loadtest/bench [-suite orders|webhooks|receivers|reporting|growth] [flags]

Starts what it measures on this machine, prints one table and writes the figures of
every round as JSON. Ends with status 1 when a figure is beyond its limit. Every
limit is a ratio to a baseline of the same run, or of counts and bytes.
loadtest/README.md explains every line.

`)

	for _, s := range suites() {
		fmt.Fprintf(out, "Suite %s (%s):\n%s\n", s.name, s.takes, s.about)
		var names []string
		for _, m := range s.measurements {
			names = append(names, m.name)
		}
		fmt.Fprintf(out, "  for -only: %s\n\n", strings.Join(names, ", "))
	}

	fmt.Fprintln(out, "Flags:")
}

// choose sets b.chosen to the measurements that -only matches. It fails if -only is no regular expression or matches none.
func (b *bench) choose() error {
	only, err := regexp.Compile(b.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}

	for _, m := range b.measurements {
		if only.MatchString(m.name) {
			b.chosen = append(b.chosen, m)
		}
	}

	if len(b.chosen) == 0 {
		return fmt.Errorf("-only: suite %s has no %q", b.name, b.only)
	}

	return nil
}

// setDefaults replaces the zero values of the options by those of the suite. It fails if the data folder is not found.
func (b *bench) setDefaults() error {
	if b.rounds == 0 {
		b.rounds = short(b, b.fullRounds, 1)
	}

	if b.json == "" {
		dir, err := stack.DataDir()
		if err != nil {
			return err
		}
		b.json = filepath.Join(dir, "bench-"+b.name+".json")
	}

	if b.name == "webhooks" && b.seed == 0 {
		b.seed = rand.Uint64N(1_000_000) + 1
	}

	if b.name == "reporting" && b.orders == 0 {
		b.orders = short(b, fullOrders, shortOrders)
	}

	if b.name == "reporting" && b.history == 0 {
		b.history = short(b, fullHistory, shortHistory)
	}

	return nil
}

// checkNumbers fails when a number is out of its range, or when the chosen suite does not use it.
func (b *bench) checkNumbers() error {
	if b.rounds < 1 || b.rounds > maxRounds {
		return fmt.Errorf("-rounds: want 1 to %d", maxRounds)
	}

	if b.name != "reporting" {
		if b.orders != 0 || b.history != 0 {
			return errors.New("-orders and -history are of suite reporting")
		}
		return nil
	}

	if b.orders < minOrders || b.orders > maxOrders {
		return fmt.Errorf("-orders: want %d to %d", minOrders, maxOrders)
	}
	if b.history < minHistory || b.history > maxHistory {
		return fmt.Errorf("-history: want %d to %d", minHistory, maxHistory)
	}

	return nil
}

// A report is a run's result, as it is written to the JSON file.
type report struct {
	Suite   string          `json:"suite"`
	Machine harness.Machine `json:"machine"`
	Rounds  int             `json:"rounds"`
	Short   bool            `json:"short"`
	Seed    uint64          `json:"seed,omitempty"`
	Orders  int             `json:"orders,omitempty"`
	History int             `json:"history,omitempty"`
	Seconds float64         `json:"seconds"`
	Figures []*figure       `json:"figures"`
}

// measure takes the chosen measurements, prints the table and writes the JSON file. After a failure it does so with the
// figures that were measured before; if there are none, there is no table and no file. The error joins the failure, every
// figure beyond its limit, and the error of writing.
func (b *bench) measure(ctx context.Context) error {
	r := report{
		Suite:   b.name,
		Machine: harness.DescribeMachine(ctx),
		Rounds:  b.rounds,
		Short:   b.short,
		Seed:    b.seed,
		Orders:  b.orders,
		History: b.history,
	}

	b.progress("suite %s, %s\n%s", b.name, b.takes, r.Machine)
	began := time.Now()
	failure := b.takeMeasurements(ctx)
	r.Seconds = time.Since(began).Seconds()

	// After a failure, and in a short run, some figures are missing. Otherwise that is an error.
	r.Figures = b.figures()
	if failure != nil || b.short {
		r.Figures = slices.DeleteFunc(r.Figures, func(f *figure) bool { return len(f.Values) == 0 })
	}

	if len(r.Figures) == 0 {
		return failure
	}

	beyond := check(r.Figures, b.short)

	b.printHead(&r)
	printTable(b.out, r.Figures)

	return errors.Join(failure, beyond, harness.WriteJSON(b.json, &r, b.out))
}

// printHead writes the lines above the table: the suite, the machine, the rounds and the seed.
func (b *bench) printHead(r *report) {
	b.progress("\nsuite %s\n%s", b.name, r.Machine)

	how := fmt.Sprintf("%d rounds in %.0f s", r.Rounds, r.Seconds)
	if r.Seed != 0 {
		how += fmt.Sprintf(", seed %d", r.Seed)
	}

	if r.Orders != 0 {
		how += fmt.Sprintf(", %s orders exported, %s in the year", harness.Grouped(r.Orders), harness.Grouped(r.History))
	}

	b.progress("%s; medians, in brackets the least and the greatest", how)

	if b.short {
		b.progress("A short run: too little, and beside too much else, for its times and rates to say anything.")
	}

	b.progress("")
}

// takeMeasurements takes the chosen measurements one after another, and returns the error of the first that fails. The
// later ones are not taken then. If ctx has ended, the error is the cause of that.
func (b *bench) takeMeasurements(ctx context.Context) error {
	defer func() {
		if b.year != nil {
			b.year.Stop()
		}
	}()

	for _, m := range b.chosen {
		err := caught(func() { m.measure(b, ctx) })
		if ctx.Err() != nil {
			err = context.Cause(ctx) // says more than the error of the call that it interrupted
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}

	return nil
}

// A failure is the panic that ends a measurement at its first error, because nothing after it could be measured. must and
// got panic with it. caught recovers it; it stands around each measurement, and around functions that other packages call
// back. Only the measurement's own goroutine may panic with it; others return errors.
type failure struct{ error }

// must panics with a failure unless err is nil.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// got returns result. It panics with a failure unless err is nil.
func got[T any](result T, err error) T {
	must(err)
	return result
}

// caught calls do and returns the error of the failure that ended it, or nil. Any other panic goes on.
func caught(do func()) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			f, ended := reason.(failure)
			if !ended {
				panic(reason)
			}
			err = f.error
		}
	}()

	do()

	return nil
}

// inTurns calls measure once for each i below n in every round. Each round begins with another i, so that no measurement
// always has the same place in its round.
func (b *bench) inTurns(n int, measure func(round, i int)) {
	for round := range b.rounds {
		for i := range n {
			measure(round, (i+round)%n)
		}
	}
}

// figures returns the figures of all chosen measurements, in the order of the table.
func (b *bench) figures() []*figure {
	var all []*figure
	for _, m := range b.chosen {
		all = append(all, m.figures...)
	}
	return all
}

// figure returns the figure with a key. It panics with a failure if no chosen measurement has it.
func (b *bench) figure(key string) *figure {
	for _, f := range b.figures() {
		if f.Key == key {
			return f
		}
	}
	must(fmt.Errorf("suite %s has no figure %q", b.name, key))
	return nil
}

// add appends the value of one round to a figure that has no baseline.
func (b *bench) add(key string, value float64) {
	f := b.figure(key)
	f.Values = append(f.Values, value)
}

// addBeside appends the values of one round to a figure and to its baseline.
func (b *bench) addBeside(key string, value, base float64) {
	f := b.figure(key)
	f.Values = append(f.Values, value)
	f.Bases = append(f.Bases, base)
}

// note adds a remark to the end of a figure's line in the table.
func (b *bench) note(key, format string, a ...any) {
	f := b.figure(key)
	if f.Note != "" {
		f.Note += "; "
	}
	f.Note += fmt.Sprintf(format, a...)
}

// progress writes a line to the output of the run.
func (b *bench) progress(format string, a ...any) {
	fmt.Fprintf(b.out, format+"\n", a...)
}

// short returns shortened in a short run, and full otherwise.
func short[T any](b *bench, full, shortened T) T {
	if b.short {
		return shortened
	}
	return full
}

// file returns the path of a file in the run's temporary folder.
func (b *bench) file(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}
