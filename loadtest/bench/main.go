// Command bench measures the service and judges what it finds:
//
//	bench            ratios to what Redis itself can do (make bench)
//	bench -scale     several gateways, a cluster (make bench-scale)
//	bench webhooks   delivery of webhooks (make bench-webhooks)
//	bench reporting  export, reports, downloads (make bench-reporting)
//
// Each starts what it measures, prints one table, writes the figures as JSON and
// ends with status 1 when a figure is beyond its limit.
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
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// suite is a group of parts with flags and a table of its own.
type suite struct {
	name     string // in the name of its JSON
	manual   string
	timeout  time.Duration // of a whole run
	programs []string      // built first
	rounds   int           // unless asked for otherwise
	parts    []part
	flags    func(*bench, *flag.FlagSet) // besides those of every suite
	check    func(*bench) error          // of these flags; fills in defaults
}

// part is a group of figures that are measured together.
type part struct {
	name string
	run  func(*bench, context.Context) ([]harness.Figure, error)
	// beside marks what a quick run does beside the other parts, because most of
	// its time is waiting.
	beside bool
}

// bench is one run of a suite.
type bench struct {
	*suite
	chosen []part
	// Flags; which of them a suite has is its own affair.
	only            string
	quick, keep     bool
	rounds          int
	json, profile   string
	scale           bool
	need, sizing    string
	seed            uint64
	orders, history int

	dir      string                 // temporary: binaries, data, logs
	compiled map[string]*testBinary // by package
	costs    costs
	year     *year // made by the first part that needs it

	mu  sync.Mutex // of out: two parts may run at once
	out io.Writer
}

func main() {
	// A terminal that is gone, or a reader of the output, ends a run as well as
	// Ctrl-C does: with everything stopped and removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	chosen := &ratios
	if len(args) > 0 {
		switch args[0] {
		case "webhooks":
			chosen, args = &webhooks, args[1:]
		case "reporting":
			chosen, args = &reporting, args[1:]
		}
	}
	b := &bench{suite: chosen, out: out, compiled: map[string]*testBinary{}, costs: costs{}}
	if err := b.parseFlags(args); err != nil {
		return err
	}
	if b.need != "" {
		return b.printNeeds()
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if b.dir, err = os.MkdirTemp("", b.name+"-"); err != nil {
		return err
	}
	defer func() {
		if b.keep {
			b.progress("data and logs: %s", b.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	if len(b.programs) > 0 {
		if err := stack.Build(ctx, b.file("bin"), b.programs...); err != nil {
			return err
		}
	}
	if b.scale {
		return b.measureScale(ctx)
	}
	return b.measure(ctx)
}

func (b *bench) parseFlags(args []string) error {
	set := flag.NewFlagSet(b.name, flag.ContinueOnError)
	set.SetOutput(b.out)
	set.Usage = func() {
		fmt.Fprint(set.Output(), b.manual)
		set.PrintDefaults()
	}
	set.IntVar(&b.rounds, "rounds", 0, fmt.Sprintf("rounds, 1 to 50; everything is measured once in each (default %d, quick 1)", b.suite.rounds))
	set.BoolVar(&b.quick, "quick", false, "a short form of everything; judges only what holds on any machine")
	set.StringVar(&b.json, "json", "", "where the figures are written (default DATA_DIR/"+b.name+".json)")
	set.BoolVar(&b.keep, "keep", false, "keep the folder with data and logs")
	b.flags(b, set)
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	only, err := regexp.Compile(b.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	b.chosen = slices.DeleteFunc(slices.Clone(b.parts), func(p part) bool { return !only.MatchString(p.name) })
	if len(b.chosen) == 0 {
		return fmt.Errorf("%q: no such part", b.only)
	}
	if err := b.check(b); err != nil {
		return err
	}
	switch {
	case b.rounds < 0 || b.rounds > 50:
		return errors.New("-rounds: want 1 to 50")
	case b.quick && b.rounds == 0:
		b.rounds = 1
	case b.rounds == 0:
		b.rounds = b.suite.rounds
	}
	if b.json == "" {
		name := b.name
		if b.scale {
			name += "-scale"
		}
		dir := os.Getenv("DATA_DIR")
		if dir == "" {
			dir = ".data"
		}
		b.json = filepath.Join(dir, name+".json")
	}
	return nil
}

// onlyFlag adds -only and explains it.
func (b *bench) onlyFlag(set *flag.FlagSet) {
	set.StringVar(&b.only, "only", "", "measure only these parts, a regular expression over: "+strings.Join(b.partNames(), ", "))
}

func (b *bench) partNames() (names []string) {
	for _, p := range b.parts {
		names = append(names, p.name)
	}
	return names
}

// report is what a run leaves behind.
type report struct {
	Machine harness.Machine  `json:"machine"`
	Rounds  int              `json:"rounds"`
	Quick   bool             `json:"quick"`
	Seed    uint64           `json:"seed,omitempty"`
	Orders  int              `json:"orders,omitempty"`
	History int              `json:"history,omitempty"`
	Seconds float64          `json:"seconds"`
	Lines   []harness.Judged `json:"lines,omitempty"` // of the ratios
	Figures []harness.Judged `json:"figures,omitempty"`
	// Costs are per order; see costs.
	Costs map[string]*harness.Spread `json:"costs,omitempty"`
}

// measure runs the parts and reports what they found, also what was found before
// a failure.
func (b *bench) measure(ctx context.Context) error {
	r := report{Machine: harness.DescribeMachine(ctx), Rounds: b.rounds, Quick: b.quick, Seed: b.seed, Orders: b.orders, History: b.history}
	b.progress("%s", r.Machine)
	began := time.Now()
	sheet, failure := b.runParts(ctx)
	if len(sheet) == 0 {
		return failure
	}
	judged, missed := harness.Judge(sheet, b.quick)
	r.Seconds, r.Costs = time.Since(began).Seconds(), b.costs.spreads()
	if b.name == ratios.name {
		r.Lines = judged
	} else {
		r.Figures = judged
	}
	about := ""
	if b.seed != 0 {
		about = fmt.Sprintf(", seed %d", b.seed)
	}
	if b.orders != 0 {
		about = fmt.Sprintf(", %s orders exported, %s in the year", harness.Grouped(int64(b.orders)), harness.Grouped(int64(b.history)))
	}
	b.progress("\n%s\n%d rounds in %.0f s%s; medians, in brackets the least and the greatest", r.Machine, b.rounds, r.Seconds, about)
	if b.quick {
		b.progress("A quick run: too short, and beside too much else, for its times and rates to say anything.")
	}
	b.progress("")
	harness.Print(b.out, judged)
	return errors.Join(failure, missed, harness.WriteJSON(b.json, &r, b.out))
}

// runParts runs one part after the other; in a quick run some are beside the
// others.
func (b *bench) runParts(ctx context.Context) ([]harness.Figure, error) {
	defer func() {
		if b.year != nil {
			b.year.stop()
		}
	}()
	measured := make([][]harness.Figure, len(b.chosen))
	group, working := errgroup.WithContext(ctx)
	for _, beside := range []bool{false, true} {
		group.Go(func() (err error) {
			for i, p := range b.chosen {
				if (b.quick && p.beside) != beside {
					continue
				}
				if measured[i], err = p.run(b, working); err != nil {
					if working.Err() != nil {
						err = context.Cause(working) // what broke off because of it says less
					}
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.Concat(measured...), err
}

// progress shows one line.
func (b *bench) progress(format string, a ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, format+"\n", a...)
}

// lasting is d, in a quick run at most quick.
func (b *bench) lasting(d, quick time.Duration) time.Duration {
	if b.quick {
		return min(d, quick)
	}
	return d
}

func (b *bench) file(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}

// freshSeed is never 0.
func freshSeed() uint64 { return rand.Uint64N(1_000_000) + 1 }
