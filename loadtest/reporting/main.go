// Command reporting is `make bench-reporting`: it measures how fast the ledger's
// history gets to ClickHouse, how long finance waits for a report, and what a
// download of millions of rows takes in memory.
//
//	orders --> ledger --> Redis --> reporting export (child) --> devclickhouse (child)
//	a year of orders, made in ClickHouse ---------------------------> |
//	this process <-- HTTP or a file -- reporting serve, reporting report (children)
//
// It owns the traffic, the year of orders, the clock, the sums that a download
// must have, and the verdict.
//
// It refuses to know how reporting does it: the program is its binary with its
// shipped settings, asked as people ask it, over HTTP and on the command line.
// It asks the engine itself what is right, in SQL of its own over the tables.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// longest bounds a whole run, whatever hangs.
const longest = 40 * time.Minute

const manual = `Usage: go run ./loadtest/reporting [flags]

Measures reporting with a real Redis and the embedded ClickHouse on this machine,
and prints one table; about ten minutes, 4 GB of disk. Ends with status 1 when a
figure is beyond what is accepted. The parts:

  export    rows stored per second by "reporting export", from full streams
  reports   the five reports over a year of orders: one account's month, one
            fleet's month, the service's month and year; cold and warm
  download  the order ledger of the whole year as CSV, over HTTP and as a file:
            peak memory of reporting and of the engine; a fifth of it as XLSX

Flags:
`

type flags struct {
	parts   string
	quick   bool
	rounds  int
	orders  int
	history int
	json    string
	profile string
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
		fmt.Fprintln(os.Stderr, "bench-reporting:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string, out io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("bench-reporting", flag.ContinueOnError)
	set.SetOutput(out)
	set.Usage = func() {
		fmt.Fprint(set.Output(), manual)
		set.PrintDefaults()
	}
	set.StringVar(&f.parts, "parts", "", "measure only these, with commas between: "+strings.Join(partNames(), ", "))
	set.BoolVar(&f.quick, "quick", false, "a short form of everything, a minute; judges only what holds on any machine: exactness, and the memory of reporting")
	set.IntVar(&f.rounds, "rounds", 0, "rounds of the export, 1 to 20 (default 3, quick 1)")
	set.IntVar(&f.orders, "orders", 0, "orders to export, 1000 to 1000000 (default 100000, quick 10000)")
	set.IntVar(&f.history, "history", 0, "orders in the year, 10000 to 50000000 (default 5000000, quick 200000)")
	set.StringVar(&f.json, "json", "", "where the figures are written (default DATA_DIR/bench-reporting.json)")
	set.StringVar(&f.profile, "profile", "", "write a CPU profile of the exporter during the last round to this file")
	set.BoolVar(&f.keep, "keep", false, "keep the folder with data and logs")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	f.settle()
	return f, f.check()
}

// settle fills in what depends on other flags and on the environment.
func (f *flags) settle() {
	defaults := flags{rounds: 3, orders: 100_000, history: 5_000_000}
	if f.quick {
		defaults = flags{rounds: 1, orders: 10_000, history: 200_000}
	}
	for given, otherwise := range map[*int]int{&f.rounds: defaults.rounds, &f.orders: defaults.orders, &f.history: defaults.history} {
		if *given == 0 {
			*given = otherwise
		}
	}
	if f.json == "" {
		dir := os.Getenv("DATA_DIR")
		if dir == "" {
			dir = ".data"
		}
		f.json = filepath.Join(dir, "bench-reporting.json")
	}
}

func (f *flags) check() error {
	for _, n := range []struct {
		name               string
		value, least, most int
	}{{"rounds", f.rounds, 1, 20}, {"orders", f.orders, 1000, 1_000_000}, {"history", f.history, 10_000, 50_000_000}} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("-%s: want %d to %d", n.name, n.least, n.most)
		}
	}
	for name := range strings.SplitSeq(f.parts, ",") {
		if f.parts != "" && !slices.Contains(partNames(), name) {
			return fmt.Errorf("-parts: there is no %q, there is %s", name, strings.Join(partNames(), ", "))
		}
	}
	return nil
}

func (f *flags) wants(part string) bool {
	return f.parts == "" || slices.Contains(strings.Split(f.parts, ","), part)
}

// bench is one run.
type bench struct {
	flags
	dir  string // temporary: binaries, data, logs
	out  io.Writer
	year *year // made by the first part that needs it
}

// progress shows one line.
func (b *bench) progress(format string, a ...any) { fmt.Fprintf(b.out, format+"\n", a...) }

// part is a group of figures that are measured together.
type part struct {
	name string
	run  func(*bench, context.Context) ([]harness.Figure, error)
}

var parts = []part{
	{"export", (*bench).measureExport},
	{"reports", (*bench).measureReports},
	{"download", (*bench).measureDownloads},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	f, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-reporting-")
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
	b := &bench{flags: f, dir: dir, out: out}
	began, m := time.Now(), harness.DescribeMachine(ctx)
	b.progress("%s", m)
	if err := stack.Build(ctx, b.file("bin"), "reporting", "devclickhouse"); err != nil {
		return err
	}
	sheet, failure := b.measure(ctx)
	if len(sheet) == 0 {
		return failure
	}
	all, verdict := harness.Judge(sheet, f.quick)
	r := report{Machine: m, Quick: f.quick, Orders: f.orders, History: f.history, Seconds: time.Since(began).Seconds(), Figures: all}
	r.print(out)
	return errors.Join(failure, verdict, harness.WriteJSON(f.json, &r, out))
}

// measure runs the parts that are asked for, one after the other. After a
// failure it answers what was measured before.
func (b *bench) measure(ctx context.Context) (sheet []harness.Figure, err error) {
	defer func() {
		if b.year != nil {
			err = errors.Join(err, b.year.stop())
		}
	}()
	for _, p := range parts {
		if !b.wants(p.name) {
			continue
		}
		found, err := p.run(b, ctx)
		sheet = append(sheet, found...)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx) // what broke off because of it says less
			}
			return sheet, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return sheet, nil
}

func (b *bench) file(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}
