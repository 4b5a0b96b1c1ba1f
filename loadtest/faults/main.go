// Command faults injects faults into the whole system and checks that it keeps its
// guarantees: real processes of every program, a real Redis with appendfsync always,
// the real ClickHouse engine, real receivers of webhooks, and clients that create,
// repeat, read and cancel at their limits.
//
//	go run ./loadtest/faults -duration 10m
//	go run ./loadtest/faults -only aof-cut,kill-worker -seed 7 -duration 1m
//	go run ./loadtest/faults mutants
//	go run ./loadtest/faults overload
//
// Each round has fresh accounts: traffic, faults, healing, a wait until the system
// is at rest, and validation. First every fault has a round to itself, then two at a
// time. The seed repeats what is done; threads and clocks are not its own.
// Everything is below one folder, on free ports of loopback.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	seed            uint64
	duration        time.Duration
	bin             string
	only            string
	accounts        int
	clients         int
	ordersPerSecond float64
	keep            string
	json            string
	record          string
	list            bool
	verbose         bool
}

const usage = `usage: go run ./loadtest/faults [mutants | overload] [flags]

Injects faults into the whole system in rounds and checks its invariants. Exits with
0 when none was violated and every fault could be injected. With "mutants" it
puts one defect at a time into a copy of the code, which must be caught. With
"overload" it puts more load on the programs than they can take.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.Uint64Var(&o.seed, "seed", 0, "what is drawn; 0: another one each time, printed first")
	flags.DurationVar(&o.duration, "duration", 10*time.Minute, "how long to play once the system is up; one round at least")
	o.define(flags)
	flags.IntVar(&o.accounts, "accounts", 4, "accounts in a round, 2 to 64; every second one has low limits")
	flags.IntVar(&o.clients, "clients", 8, "clients in a round, 1 to 256")
	flags.Float64Var(&o.ordersPerSecond, "orders-per-second", 20, "new orders, on the average, 1 to 1000")
	flags.StringVar(&o.json, "json", "", "write the result to this `file`")
	flags.StringVar(&o.record, "judge", "", "validate a round again from the `file` that was kept of it")
	flags.BoolVar(&o.list, "list", false, "print the table of faults")
	flags.BoolVar(&o.verbose, "v", false, "print every step")
	if err := parseFlags(flags, args); err != nil {
		return o, err
	}
	switch {
	case o.accounts < 2 || o.accounts > 64:
		return o, errors.New("-accounts: want 2 to 64")
	case o.clients < 1 || o.clients > 256:
		return o, errors.New("-clients: want 1 to 256")
	case !(o.ordersPerSecond >= 1 && o.ordersPerSecond <= 1000):
		return o, errors.New("-orders-per-second: want 1 to 1000")
	case o.duration <= 0:
		return o, errors.New("-duration: want more than 0")
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32 // short enough to type
	}
	return o, nil
}

// define adds the flags that the suite and overload share.
func (o *options) define(flags *flag.FlagSet) {
	flags.StringVar(&o.bin, "bin", "", "`folder` of binaries made beforehand (`make build`); empty: they are built")
	flags.StringVar(&o.only, "only", "", "play only these, `names` with commas")
	flags.StringVar(&o.keep, "keep", "", "`folder` for the data, which then stays; empty: a fresh one, which stays when something is wrong")
}

func parseFlags(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// dataFolder makes the folder of -keep, or a fresh one.
func (o *options) dataFolder() (dir string, err error) {
	if o.keep == "" {
		return os.MkdirTemp("", "faults-")
	}
	if dir, err = filepath.Abs(o.keep); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return dir, err
}

// choose returns the rows of a table that a list of names with commas chooses; empty:
// all.
func choose[T any](list string, table []T, name func(T) string) ([]T, error) {
	if list == "" {
		return table, nil
	}
	var chosen []T
	for wanted := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(table, func(row T) bool { return name(row) == strings.TrimSpace(wanted) })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no %q", wanted)
		}
		chosen = append(chosen, table[i])
	}
	return chosen, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "mutants":
			return runMutants(ctx, args[1:], out)
		case "overload":
			return runOverload(ctx, args[1:], out)
		}
	}
	o, err := parse(args)
	switch {
	case err != nil:
		return err
	case o.list:
		listFaults(out)
		return nil
	case o.record != "":
		return validateAgain(o.record, out)
	}
	_, err = playAll(ctx, o, out)
	return err
}

// playAll is a whole run with its summary. Violations are an error.
func playAll(ctx context.Context, o options, out io.Writer) (*result, error) {
	s := &suite{options: o, out: out}
	err := s.run(ctx)
	if s.result.Rounds > 0 {
		s.summary()
	} else if s.result.Kept != "" {
		s.print("kept: %s", s.result.Kept)
	}
	if o.json != "" {
		err = errors.Join(err, writeJSON(o.json, &s.result))
	}
	if n := len(s.result.Violations); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations", n))
	}
	if n := len(s.result.NotDone); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d faults could not be done", n))
	}
	return &s.result, err
}

func listFaults(out io.Writer) {
	for _, f := range faults {
		fmt.Fprintf(out, "%-18s %s\n%18s clients see: %s\n", f.name, f.does, "", f.expect)
	}
}
