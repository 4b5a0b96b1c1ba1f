// Command webhooks is `make bench-webhooks`: it measures how fast, how fairly
// and how surely the worker delivers webhooks, and what may never happen.
//
//	vendors, orders --> ledger --> Redis (AOF, every write synced) --> worker (child) --> endpoints
//	      |                          ^ killed, restarted, copied            ^             |
//	      +-- what must come: tally of event ids <------------------------- receipts -----+
//
// It owns the traffic, the endpoints with their manners (prompt, slow, silent,
// dead), the tally of every event from its commit to its receipt, and the
// verdict. It makes events through the ledger, as the gateway and the status
// role would, because they are not what is measured here.
//
// It refuses to know how the worker does it: the worker is its binary with its
// shipped settings, and is judged by what arrives. What depends on the machine
// is compared in turns, and a round that other programs disturbed is made up
// for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// longest bounds a whole run, whatever hangs.
const longest = 15 * time.Minute

const manual = `Usage: go run ./loadtest/webhooks [flags]

Measures the delivery of webhooks with a real Redis, the real worker and
verifying endpoints on this machine, and prints one table; about eight minutes.
Ends with status 1 when a figure is beyond what is accepted. The parts:

  throughput  webhooks per second when the streams are full, and what they cost
  latency     from the commit of a change to its receipt, at 200 events a second
  isolation   healthy endpoints beside slow, refusing and silent ones
  backlog     healthy endpoints beside 100,000 events that wait for a dead one,
              the memory these take, and how they are delivered in the end
  kill        nothing is lost when the worker is killed twenty times

Comparisons take turns. Events during which other programs on the machine were
busy are left out; when that is more than half of a round, one more round is
measured. On a machine that is busy throughout, the comparisons say little, and
the table says so.

Flags:
`

type flags struct {
	only    string
	quick   bool
	rounds  int
	json    string
	profile string
	seed    uint64
	keep    bool
}

func main() {
	// A terminal that is gone, or a reader of the output, ends a run as well as
	// Ctrl-C does: with everything stopped and removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-webhooks:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string, out io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("bench-webhooks", flag.ContinueOnError)
	set.SetOutput(out)
	set.Usage = func() {
		fmt.Fprint(set.Output(), manual)
		set.PrintDefaults()
	}
	set.StringVar(&f.only, "only", "", "measure only these parts, a regular expression over their names")
	set.BoolVar(&f.quick, "quick", false, "a short form of everything, half a minute; judges only what holds on any machine: nothing lost, twice or late, everything drained")
	set.IntVar(&f.rounds, "rounds", 3, "rounds of what is measured in rounds, 1 to 20")
	set.StringVar(&f.json, "json", "", "where the figures are written (default DATA_DIR/bench-webhooks.json)")
	set.StringVar(&f.profile, "profile", "", "write a CPU profile of the worker during the last round of throughput to this file")
	set.Uint64Var(&f.seed, "seed", 0, "decides when the worker is killed; 0: another one every time, which the table names")
	set.BoolVar(&f.keep, "keep", false, "keep the folder with data and logs")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if f.rounds < 1 || f.rounds > 20 {
		return f, errors.New("-rounds: want 1 to 20")
	}
	only, err := regexp.Compile(f.only)
	if err != nil {
		return f, fmt.Errorf("-only: %w", err)
	}
	if !slices.ContainsFunc(parts, func(p part) bool { return only.MatchString(p.name) }) {
		return f, fmt.Errorf("-only %q: no such part", f.only)
	}
	f.settle()
	return f, nil
}

// settle fills in what depends on other flags and on the environment.
func (f *flags) settle() {
	if f.quick {
		f.rounds = 1
	}
	if f.seed == 0 {
		f.seed = rand.Uint64N(1_000_000) + 1
	}
	if f.json == "" {
		dir := os.Getenv("DATA_DIR")
		if dir == "" {
			dir = ".data"
		}
		f.json = filepath.Join(dir, "bench-webhooks.json")
	}
}

// bench is one run.
type bench struct {
	flags
	dir, bin string // temporary: data and logs; the worker's binary
	key      key

	mu  sync.Mutex // of out: two parts may run at once
	out io.Writer
}

// progress shows one line.
func (b *bench) progress(format string, a ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, format+"\n", a...)
}

// part is a group of figures that are measured together.
type part struct {
	name string
	run  func(*bench, context.Context) ([]harness.Figure, error)
	// beside marks what a quick run does beside all the others, because most of
	// its time is waiting.
	beside bool
}

var parts = []part{
	{"throughput", (*bench).measureThroughput, false},
	{"latency", (*bench).measureLatency, false},
	{"isolation", (*bench).measureIsolation, false},
	{"backlog", (*bench).measureBacklog, true},
	{"kill", (*bench).measureKills, false},
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	f, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-webhooks-")
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
	b := &bench{flags: f, dir: dir, bin: filepath.Join(dir, "bin"), key: newKey(), out: out}
	began, m := time.Now(), harness.DescribeMachine(ctx)
	b.progress("%s", m)
	if err := stack.Build(ctx, b.bin, "worker"); err != nil {
		return err
	}
	sheet, failure := b.measure(ctx)
	if len(sheet) == 0 {
		return failure
	}
	all, verdict := harness.Judge(sheet, f.quick)
	r := report{Machine: m, Quick: f.quick, Seed: f.seed, Seconds: time.Since(began).Seconds(), Figures: all}
	r.print(out)
	return errors.Join(failure, verdict, harness.WriteJSON(f.json, &r, out))
}

// measure runs the parts that are asked for, one after the other; in a quick run
// some are beside the others. After a failure it answers what was measured
// before.
func (b *bench) measure(ctx context.Context) ([]harness.Figure, error) {
	only := regexp.MustCompile(b.only) // compiled once before, in parseFlags
	measured := make([][]harness.Figure, len(parts))
	lane := func(ctx context.Context, takes func(part) bool) (err error) {
		for i, p := range parts {
			if !takes(p) || !only.MatchString(p.name) {
				continue
			}
			switch measured[i], err = p.run(b, ctx); {
			case ctx.Err() != nil:
				return fmt.Errorf("%s: %w", p.name, context.Cause(ctx))
			case err != nil:
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return lane(working, func(p part) bool { return !b.quick || !p.beside }) })
	group.Go(func() error { return lane(working, func(p part) bool { return b.quick && p.beside }) })
	err := group.Wait()
	return slices.Concat(measured...), err
}
