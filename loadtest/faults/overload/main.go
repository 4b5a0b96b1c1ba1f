// Command overload is `make overload`: it puts more load on the real programs than
// they can take, or takes away what they need, and checks with the clients' own
// records that they survive it. -help lists the cases.
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
	"text/tabwriter"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// longest bounds a whole run.
const longest = 20 * time.Minute

const manual = `
Prints a line for each figure and a table at the end. Ends with status 1 when
something did not hold. About eleven minutes on two cores.

Flags:
`

// scenarios are the cases, in the order in which they run.
var scenarios = []struct {
	name, about string
	run         func(*run, context.Context) error
}{
	{"load", "ten times the sustainable rate of orders, over many accounts, some at their ordinary limits: no crash, bounded memory, " +
		"quick and correct refusals (429, 503 with Retry-After), every accepted order read back, back to normal within 5 s", (*run).tenfoldLoad},
	{"memory", "Redis at maxmemory: writes refused, reads go on, nothing half-written", (*run).fullMemory},
	{"disk", "no space for Redis's log: nothing acknowledged is lost", (*run).fullDisk},
	{"clickhouse", "ClickHouse unavailable: orders unaffected, the export catches up", (*run).withoutClickHouse},
	{"clock", "Redis's clock jumps an hour forward and back: no limit locks an account out for longer than its window", (*run).jumpingClock},
	{"fleet", "a fleet's credential at 5,000 reports a second, of open and of ended orders: Redis keeps nothing of it, vendors feel nothing; " +
		"once the fleet is disabled Redis gets no request", (*run).floodFleet},
	{"logins", "a stranger with 5,000 wrong logins a second over 600 connections: no vendor is refused, the owner of the client logs in, " +
		"and once they are throttled Redis gets no request", (*run).floodLogins},
}

// form says how long and how hard.
type form struct {
	load           time.Duration // of the overload
	times          float64       // of the sustainable rate
	connections    int
	wide, ordinary int           // vendors: with limits out of reach, and with ordinary ones
	phase          time.Duration // of each step of the other cases
	jump           time.Duration // of the clock
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

// whole is the form of `make overload`.
var whole = form{
	load: time.Minute, times: 10, connections: 2048, wide: 40, ordinary: 10, phase: 5 * time.Second, jump: time.Hour,
	quick: time.Second, recovery: 5 * time.Second, normal: 25 * time.Millisecond, timeout: time.Minute, share: 1, beside: 20 * time.Millisecond,
}

// run is one run of some scenarios. It collects the rows of the table.
type run struct {
	form     form
	dir, bin string
	out      io.Writer

	scenario string // in progress
	rows     []row
}

// row is one figure; want is empty when nothing is required of it.
type row struct{ scenario, what, figure, want, result string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := command(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) (err error) {
	f := whole
	set := flag.NewFlagSet("overload", flag.ContinueOnError)
	set.Usage = func() {
		fmt.Fprint(set.Output(), "Usage: go run ./loadtest/faults/overload [flags]\n\nOverloads the real programs in cases, each against a system of its own:\n\n")
		for _, s := range scenarios {
			fmt.Fprintf(set.Output(), "  %-12s%s\n", s.name, s.about)
		}
		fmt.Fprint(set.Output(), manual)
		set.PrintDefaults()
	}
	set.DurationVar(&f.load, "duration", f.load, "how long the overload lasts, 5s to 10m")
	set.Float64Var(&f.times, "times", f.times, "how many times the sustainable rate, 1 to 100")
	set.IntVar(&f.connections, "connections", f.connections, "connections of the overload, 64 to 4000")
	only := set.String("only", "", "play only these cases, a regular expression over their names")
	bin := set.String("bin", "", "folder of binaries that were built already; empty: they are built now")
	keep := set.Bool("keep", false, "keep the folder with data and logs, and say where it is")
	if err := set.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	switch {
	case err != nil:
		return fmt.Errorf("-only: %w", err)
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	case f.load < 5*time.Second || f.load > 10*time.Minute || f.times < 1 || f.times > 100 || f.connections < 64 || f.connections > 4000:
		return errors.New("-duration, -times or -connections is out of range; -help tells them")
	}
	dir, err := os.MkdirTemp("", "overload-")
	if err != nil {
		return err
	}
	defer func() {
		if *keep {
			fmt.Fprintln(out, "data and logs:", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	fmt.Fprintln(out, harness.DescribeMachine(ctx))
	r := &run{form: f, dir: dir, bin: *bin, out: out}
	return r.play(ctx, pattern)
}

// play plays the scenarios whose names match and prints the table.
func (r *run) play(ctx context.Context, only *regexp.Regexp) error {
	if r.bin == "" {
		r.bin = filepath.Join(r.dir, "bin")
		if err := stack.Build(ctx, r.bin); err != nil {
			return err
		}
	}
	for _, s := range scenarios {
		if !only.MatchString(s.name) {
			continue
		}
		r.scenario = s.name
		fmt.Fprintf(r.out, "%s: %s\n", s.name, s.about)
		if err := s.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, errors.Join(err, context.Cause(ctx)))
		}
	}
	if r.scenario == "" {
		return fmt.Errorf("-only %q: no such case", only)
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
func (r *run) figure(what, format string, a ...any) {
	figure := fmt.Sprintf(format, a...)
	r.rows = append(r.rows, row{r.scenario, what, figure, "", ""})
	fmt.Fprintf(r.out, "  %s: %s\n", what, figure)
}

// check adds a row with what it must be.
func (r *run) check(ok bool, what, want, format string, a ...any) {
	figure, result := fmt.Sprintf(format, a...), failed
	if ok {
		result = "holds"
		fmt.Fprintf(r.out, "  %s: %s  holds\n", what, figure)
	} else {
		fmt.Fprintf(r.out, "  %s: %s  FAILS, wanted: %s\n", what, figure, want)
	}
	r.rows = append(r.rows, row{r.scenario, what, figure, want, result})
}

// checkTook checks a time that is -1 when it was longer than the limit.
func (r *run) checkTook(took, limit time.Duration, what string) {
	r.check(took >= 0 && took <= limit, what, "within "+limit.String(), "%s", took.Round(time.Millisecond))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
