// Command bench is `make bench` and `make bench-scale`: it measures the service
// against what it cannot beat (one bare XADD per request, the plainest layout
// in Redis, HTTP alone) and against the plain way to build it, and prints one
// table in which every line is a ratio with its baseline taken in the same run.
//
//	gateway's test binary  --> BenchmarkServe, BenchmarkDecode  \
//	ledger's test binary   --> BenchmarkRedisCost                > lines --> table, JSON
//	the programs (stack)   --> open loop, creation, delivery    /              |
//	                                        floors.json ---------------> verdict
//
// It owns the order of the measurements (interleaved over several rounds, so
// that a machine that slows down slows every variant down), the arithmetic on
// them and the verdict. It refuses absolute figures as a measure of progress:
// machines differ and drift. What is judged absolutely (allocations, the 99th
// percentile) says so in floors.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// longest bounds a whole run, whatever hangs.
const longest = 20 * time.Minute

const manual = `Usage: go run ./loadtest/bench [flags]

Measures the service and prints a table of ratios; about five minutes on two
cores. Ends with status 1 when a figure is beyond its limit in floors.json.
With -scale it puts the same load on 1, 2 and 4 gateways and on a cluster of
three masters instead; with -need it computes what a rate of orders asks for.
loadtest/README.md explains every line.

Flags:
`

type flags struct {
	rounds       int
	quick, scale bool
	only         string
	json, floors string
	need, sizing string
	keep         bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (f flags, err error) {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.Usage = func() {
		fmt.Fprint(set.Output(), manual)
		set.PrintDefaults()
	}
	set.IntVar(&f.rounds, "rounds", 0, "rounds, up to 50; every variant runs once in each (default 7, with -scale 3)")
	set.BoolVar(&f.quick, "quick", false, "one short round; only limits that hold on any machine are judged")
	set.BoolVar(&f.scale, "scale", false, "several gateways and a cluster instead of the table of ratios")
	set.StringVar(&f.only, "only", "", "measure only these parts, a regular expression over: gateway, json, redis, programs")
	set.StringVar(&f.json, "json", "", "where the figures are written (default DATA_DIR/bench.json, or bench-scale.json)")
	set.StringVar(&f.floors, "floors", "", "the accepted figures (default loadtest/bench/floors.json)")
	set.StringVar(&f.need, "need", "", "measure nothing; print what these rates of orders per second need, such as 10000,100000")
	set.StringVar(&f.sizing, "sizing", "", "with -need: what an order costs (default loadtest/bench/sizing.json)")
	set.BoolVar(&f.keep, "keep", false, "keep the folder with data and logs")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if f.rounds < 0 || f.rounds > 50 {
		return f, errors.New("-rounds: want 1 to 50")
	}
	return f, f.settle()
}

// settle fills in the paths and what -quick means.
func (f *flags) settle() error {
	if _, err := regexp.Compile(f.only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	if f.floors == "" {
		f.floors = filepath.Join(root, "loadtest", "bench", "floors.json")
	}
	if f.sizing == "" {
		f.sizing = filepath.Join(root, "loadtest", "bench", "sizing.json")
	}
	if f.json == "" {
		dir, name := os.Getenv("DATA_DIR"), "bench.json"
		if dir == "" {
			dir = ".data"
		}
		if f.scale {
			name = "bench-scale.json"
		}
		f.json = filepath.Join(dir, name)
	}
	switch {
	case f.quick:
		f.rounds = 1
	case f.rounds == 0 && f.scale:
		f.rounds = 3
	case f.rounds == 0:
		f.rounds = 7
	}
	return nil
}

// bench is one run.
type bench struct {
	flags
	dir      string // temporary: binaries, data, logs
	out      io.Writer
	compiled map[string]*testBinary // by package
	costs    costs
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	f, err := parseFlags(args)
	if err != nil {
		return err
	}
	if f.need != "" {
		return printNeeds(f, out)
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() {
		if f.keep {
			fmt.Fprintln(out, "data and logs:", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	b := &bench{flags: f, dir: dir, out: out, compiled: map[string]*testBinary{}, costs: costs{}}
	if f.scale {
		return b.runScale(ctx)
	}
	return b.runRatios(ctx)
}

func printNeeds(f flags, out io.Writer) error {
	rates, err := parseRates(f.need)
	if err != nil {
		return err
	}
	s, err := readSizing(f.sizing)
	if err != nil {
		return err
	}
	s.print(out, rates)
	return nil
}

// part is a group of lines that are measured together.
type part struct {
	name string
	run  func(*bench, context.Context) ([]line, error)
}

var parts = []part{
	{"gateway", (*bench).measureGateway},
	{"json", (*bench).measureJSON},
	{"redis", (*bench).measureRedis},
	{"programs", (*bench).measurePrograms},
}

func (b *bench) runRatios(ctx context.Context) error {
	began := time.Now()
	accepted, err := readLimits(b.floors)
	if err != nil {
		return err
	}
	m := harness.DescribeMachine(ctx)
	fmt.Fprintf(b.out, "%s\n", m)
	only := regexp.MustCompile(b.only) // compiled once before, in settle
	var lines []line
	for _, p := range parts {
		if !only.MatchString(p.name) {
			continue
		}
		measured, err := p.run(b, ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, errors.Join(err, context.Cause(ctx)))
		}
		lines = append(lines, measured...)
	}
	if len(lines) == 0 {
		return fmt.Errorf("-only %q: no such part", b.only)
	}
	judged, verdict := judge(lines, accepted, b.quick, b.only == "")
	r := report{Machine: m, Rounds: b.rounds, Quick: b.quick, Seconds: time.Since(began).Seconds(), Lines: judged, Costs: b.costs.spreads()}
	r.print(b.out)
	return errors.Join(verdict, harness.WriteJSON(b.json, r, b.out))
}

// progress shows one line per measurement.
func (b *bench) progress(round int, format string, a ...any) {
	fmt.Fprintf(b.out, "round %d of %d  %s\n", round+1, b.rounds, fmt.Sprintf(format, a...))
}

// lasting is d in a whole run and a second in a quick one.
func (b *bench) lasting(d time.Duration) time.Duration {
	if b.quick {
		return time.Second
	}
	return d
}
