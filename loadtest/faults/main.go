// Command faults injects faults into the whole system and checks that it keeps its guarantees: real processes of every
// program, a real Redis with appendfsync always, the real ClickHouse engine, real receivers of webhooks, and clients
// that create, repeat, read and cancel at their limits.
//
//	go run ./loadtest/faults -duration 10m
//	go run ./loadtest/faults -only aof-cut,kill-worker -seed 7 -duration 1m
//	go run ./loadtest/faults mutants
//	go run ./loadtest/faults overload
//
// Each round has fresh accounts: traffic, faults, healing, a wait until the system is at rest, and validation. First
// every fault has a round to itself, then two at a time. The seed repeats what is done, but not how threads and clocks meet.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"vendorapi/loadtest/harness"
)

type options struct {
	command  string // empty, mutants or overload
	seed     uint64
	duration time.Duration
	bin      string // of the programs; empty: they are built
	only     string
	workers  int // 0: drawn for each round
	keep     string
	record   string
	list     bool
	verbose  bool
	form     form     // of overload
	redis    []string // of a mutant: further settings of redis-server
	replica  bool
	cluster  bool
}

const usage = `usage: go run ./loadtest/faults [mutants | overload] [flags]

Injects faults into the whole system in rounds and checks its invariants. Exits with
0 when none was violated and every fault could be injected. With "mutants" it
builds the programs with one defect at a time (a folder of testdata/mutants), which
must be caught. With "overload"
it puts more load on the programs than they can take, or a neighbour beside a healthy
vendor, in cases of half an hour in all. -list prints the faults, the mutants or the cases.
`

func main() {
	harness.Run("faults", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 1 && args[0] == healthyCommand {
		return runHealthyVendor(ctx, os.Stdin, out)
	}

	o, err := parse(args)
	switch {
	case err != nil:
		return err
	case o.list:
		return list(o, out)
	case o.command == "mutants":
		return runMutants(ctx, o, out)
	case o.command == "overload":
		return runOverload(ctx, o, out)
	case o.record != "":
		return validateAgain(o.record, out)
	}
	_, err = playAll(ctx, o, out)
	return err
}

var defaults = options{duration: 10 * time.Minute, form: wholeForm}

func parse(args []string) (options, error) {
	o := defaults
	if len(args) > 0 && (args[0] == "mutants" || args[0] == "overload") {
		o.command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage+"\n")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.only, "only", "", "play only these, `names` with commas")
	flags.BoolVar(&o.list, "list", false, "print the table of what can be played")
	if o.command != "mutants" {
		flags.StringVar(&o.keep, "keep", "", "`folder` for the data, which then stays; empty: a fresh one, which stays when "+
			"something is wrong")
	}
	switch o.command {
	case "":
		flags.Uint64Var(&o.seed, "seed", o.seed, "what is drawn; 0: another one each time, printed first")
		flags.DurationVar(&o.duration, "duration", o.duration, "how long to play once the system is up; one round at least")
		flags.IntVar(&o.workers, "workers", o.workers, "workers, 1 to 3, as far as a fault lets them; 0: drawn for each round")
		flags.StringVar(&o.record, "validate", "", "validate a round again from the `file` that was kept of it")
		flags.BoolVar(&o.replica, "replica", false, "redis.durability: replica, and the faults that need it; the server must know WAITAOF")
		flags.BoolVar(&o.cluster, "cluster", false, "a cluster of three masters, each with a replica if -replica, and the faults that it can show")
		flags.BoolVar(&o.verbose, "v", false, "print every step")
	case "mutants":
		flags.Uint64Var(&o.seed, "seed", 1, "the suite's seed")
		flags.BoolVar(&o.verbose, "v", false, "print the suite's output for each")
	case "overload":
		flags.StringVar(&o.bin, "bin", "", "`folder` of binaries made beforehand (`make build`); empty: they are built")
		flags.DurationVar(&o.form.load, "duration", o.form.load, "how long the overload lasts, 5s to 10m")
	}
	switch err := flags.Parse(args); {
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.workers < 0 || o.workers > maxWorkers:
		return o, errors.New("-workers: want 0 to 3")
	case o.duration <= 0:
		return o, errors.New("-duration: want more than 0")
	case o.form.load < 5*time.Second || o.form.load > 10*time.Minute:
		return o, errors.New("-duration: want 5s to 10m")
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32 // short enough to type
	}
	return o, nil
}

func (o *options) dataFolder() (string, error) {
	if o.keep == "" {
		return os.MkdirTemp("", "faults-")
	}
	dir, err := filepath.Abs(o.keep)
	return dir, errors.Join(err, os.MkdirAll(dir, 0o700))
}

// leave removes the data, unless a folder was named for it or something is wrong.
func (o *options) leave(dir string, err error, out io.Writer) error {
	if err == nil && o.keep == "" {
		return os.RemoveAll(dir)
	}
	fmt.Fprintln(out, "kept:", dir)
	return err
}

//go:embed faults.yaml mutants.yaml overload.yaml
var tables embed.FS

// readTable returns the rows of a table that a list of names with commas chooses; empty: all.
func readTable[T any](file, names string, name func(T) string) (chosen []T, err error) {
	var table []T
	text, err := tables.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalWithOptions(text, &table, yaml.Strict())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if names == "" {
		return table, nil
	}
	for wanted := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(table, func(row T) bool { return name(row) == strings.TrimSpace(wanted) })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no %q", wanted)
		}
		chosen = append(chosen, table[i])
	}
	return chosen, nil
}

// list prints what can be played.
func list(o options, out io.Writer) error {
	switch o.command {
	case "mutants":
		mutants, err := loadMutants(o.only)
		for _, m := range mutants {
			fmt.Fprintf(out, "%-22s %s\n%22s under %s: %v\n", m.Name, m.Does, "", m.Faults, m.Caught)
		}
		return err
	case "overload":
		cases, err := loadOverload(o.only)
		for _, c := range cases {
			fmt.Fprintf(out, "%-12s%s\n", c.Name, c.Does)
		}
		return err
	}
	faults, err := readTable("faults.yaml", o.only, func(f fault) string { return f.Name })
	for _, f := range faults {
		fmt.Fprintf(out, "%-18s %s\n%18s clients see: %s\n", f.Name, f.Does, "", f.Expect)
	}
	return err
}
