// Command faults plays faults against the whole system and finds out whether it
// keeps its promises: real processes of every program, a real Redis with
// appendfsync always, the real ClickHouse engine, real receivers of webhooks,
// and clients that create, repeat, read and cancel at their limits.
//
//	go run ./loadtest/faults -duration 10m
//	go run ./loadtest/faults -only aof-cut,kill-worker -seed 7 -duration 1m
//
// It owns the faults and the traffic; package failpoint does the harm, package
// history keeps what clients saw, package judge says what it is worth. Each round
// has fresh accounts: traffic, faults, healing, a wait until nothing is left to
// do, and the verdict. First every fault has a round to itself, then two at a
// time, drawn by the seed. Threads of the system and its clocks are not the
// seed's, so a seed repeats what is done, not every result.
//
// It refuses to touch what it has not started: everything is below one folder,
// on free ports of loopback, and ends with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/faults/judge"
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
	judge           string
	list            bool
	verbose         bool
}

const usage = `usage: go run ./loadtest/faults [flags]

Plays faults against the whole system in rounds and holds it to its promises.
Exits with 0 when none was broken and every fault could be done.

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
	flags.StringVar(&o.bin, "bin", "", "`folder` of binaries made beforehand (`make build`); empty: they are built")
	flags.StringVar(&o.only, "only", "", "`names` of faults with commas, instead of all")
	flags.IntVar(&o.accounts, "accounts", 4, "accounts in a round, 2 to 64; every second one has low limits")
	flags.IntVar(&o.clients, "clients", 8, "clients in a round, 1 to 256")
	flags.Float64Var(&o.ordersPerSecond, "orders-per-second", 20, "new orders, on the average, 1 to 1000")
	flags.StringVar(&o.keep, "keep", "", "`folder` for the data, which then stays; empty: a fresh one, which stays when something is wrong")
	flags.StringVar(&o.json, "json", "", "write the result to this `file`")
	flags.StringVar(&o.judge, "judge", "", "judge a round again from its history `file` (and the facts beside it)")
	flags.BoolVar(&o.list, "list", false, "print the table of faults")
	flags.BoolVar(&o.verbose, "v", false, "print every step")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
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

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	switch {
	case err != nil:
		return err
	case o.list:
		listFaults(out)
		return nil
	case o.judge != "":
		return judgeAgain(o.judge, out)
	}
	_, err = playAll(ctx, o, out)
	return err
}

// playAll is a whole run with its summary. The error tells of broken promises,
// too.
func playAll(ctx context.Context, o options, out io.Writer) (*result, error) {
	s := &suite{options: o, out: out}
	err := s.run(ctx)
	if s.result.Rounds > 0 {
		s.summary()
	} else if s.result.Kept != "" {
		s.print("kept: %s", s.result.Kept)
	}
	err = errors.Join(err, s.result.write(o.json))
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

// judgeAgain is the verdict on a round that was kept.
func judgeAgain(path string, out io.Writer) error {
	ops, err := history.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), factsFile))
	if err != nil {
		return fmt.Errorf("-judge: %w", err)
	}
	var facts judge.Facts
	if err := json.Unmarshal(text, &facts); err != nil {
		return fmt.Errorf("-judge: %s: %w", factsFile, err)
	}
	report, violations := judge.Check(ops, &facts)
	fmt.Fprintf(out, "%+v\n", report)
	for _, v := range violations {
		fmt.Fprintln(out, v)
	}
	if len(violations) > 0 {
		return fmt.Errorf("%d violations", len(violations))
	}
	return nil
}
