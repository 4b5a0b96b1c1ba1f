// Command overload is `make overload`: it takes the real programs beyond what
// they can bear and checks from the clients' own notes that they bear it.
//
//	load        ten times the sustainable rate of orders
//	memory      Redis at maxmemory
//	disk        no room for Redis's log
//	clickhouse  ClickHouse away for the whole run
//	clock       Redis's clock an hour forward, and back
//	fleet       a fleet's credential at 5,000 reports a second
//	logins      a stranger with 5,000 wrong logins a second
//
// It owns the cases, the arrivals (to a schedule that no answer delays, over a
// bounded number of connections) and the verdict. It refuses to look into the
// programs: what it judges is answers, memory as the kernel counts it, and what
// is read back through the API afterwards.
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

const manual = `Usage: go run ./loadtest/overload [flags]

Overloads the real programs in seven cases, each against a system of its own:

  load        ten times the sustainable rate of orders, over many accounts, some
              at their ordinary limits: no crash, bounded memory, quick and
              correct refusals (429, 503 with Retry-After), every accepted order
              read back, back to normal within 5 s
  memory      Redis at maxmemory: writes refused, reads go on, nothing half-written
  disk        no room for Redis's log: nothing acknowledged is lost
  clickhouse  ClickHouse away: orders unaffected, the export catches up
  clock       Redis's clock jumps an hour forward and back: no limit locks an
              account out for longer than its window
  fleet       a fleet's credential at 5,000 reports a second, of open and of ended
              orders: Redis keeps nothing of it, vendors feel nothing; once the fleet
              is disabled Redis is not asked
  logins      a stranger with 5,000 wrong logins a second over 600 connections: no
              vendor is refused, the owner of the client logs in, and once they are
              throttled Redis is not asked

Prints a line for each figure and a table at the end. Ends with status 1 when
something did not hold. About eleven minutes on two cores.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := command(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

// form says how long and how hard; what it allows is for machines that do other
// things as well.
type form struct {
	load           time.Duration // of the overload
	times          float64       // of the sustainable rate
	connections    int
	wide, ordinary int           // vendors
	phase          time.Duration // of each step of the other cases
	jump           time.Duration // of the clock
	quick          time.Duration // 99 % of the refusals take less
	recovery       time.Duration // back to normal within
	normal         time.Duration // is normal anyway, whatever it was before
	patience       time.Duration // for what has no figure of its own
	// share of the requests that have to be answered as they should; the others may
	// be answered 503 or not at all, as on a machine that stands still for seconds.
	// An answer that is wrong is never allowed.
	share    float64
	beside   time.Duration // 99 % of the vendors' orders beside a fleet's flood take less
	inFlight string        // the gateway's MAX_IN_FLIGHT in the case load; empty: as it comes
}

// whole is the form of `make overload`.
var whole = form{
	load: time.Minute, times: 10, connections: 2048, wide: 40, ordinary: 10, phase: 5 * time.Second, jump: time.Hour,
	quick: time.Second, recovery: 5 * time.Second, normal: 25 * time.Millisecond, patience: time.Minute, share: 1, beside: 20 * time.Millisecond,
}

// run is one run.
type run struct {
	form  form
	dir   string // temporary: binaries, data, logs
	bin   string
	sheet sheet
}

// cases in the order in which they are run.
var cases = []struct {
	name, about string
	play        func(*run, context.Context) error
}{
	{"load", "ten times the sustainable rate of orders", (*run).overload},
	{"memory", "Redis at maxmemory", (*run).fullMemory},
	{"disk", "no room for Redis's log", (*run).fullDisk},
	{"clickhouse", "ClickHouse away for the whole run", (*run).awayClickHouse},
	{"clock", "Redis's clock jumps forward and back", (*run).jumpingClock},
	{"fleet", "a fleet's credential at 5,000 reports a second", (*run).floodFleet},
	{"logins", "a stranger with 5,000 wrong logins a second", (*run).floodLogins},
}

func command(ctx context.Context, args []string, out io.Writer) (err error) {
	f := whole
	set := flag.NewFlagSet("overload", flag.ContinueOnError)
	set.Usage = func() {
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
	r := &run{form: f, dir: dir, bin: *bin, sheet: sheet{out: out}}
	fmt.Fprintln(out, harness.DescribeMachine(ctx))
	return r.play(ctx, pattern)
}

// play plays the cases whose names match and prints the table.
func (r *run) play(ctx context.Context, only *regexp.Regexp) error {
	if r.bin == "" {
		r.bin = filepath.Join(r.dir, "bin")
		if err := stack.Build(ctx, r.bin); err != nil {
			return err
		}
	}
	played := 0
	for _, c := range cases {
		if !only.MatchString(c.name) {
			continue
		}
		played++
		r.sheet.begin(c.name, c.about)
		if err := c.play(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, errors.Join(err, context.Cause(ctx)))
		}
	}
	if played == 0 {
		return fmt.Errorf("-only %q: no such case", only)
	}
	return errors.Join(r.sheet.print(), r.sheet.failure())
}
