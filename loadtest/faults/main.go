// Command faults injects faults into the whole system and checks that it keeps its guarantees: real processes of every
// program, a real Redis with appendfsync always, the real ClickHouse engine, real receivers of webhooks, and clients
// that create, repeat, read and cancel at their limits.
//
//	go run ./loadtest/faults -duration 10m
//	go run ./loadtest/faults -only aof-cut,kill-worker -seed 7 -duration 1m
//	go run ./loadtest/faults -overload
//	go run ./loadtest/faults mutants
//
// Each round has fresh accounts: traffic, faults, healing, a wait until the system is at rest, and validation. First
// every fault has a round to itself, then two at a time. The seed repeats what is done, but not how threads and clocks meet.
//
// A fault that would leave its marks on later rounds, such as a load that is ten times too much, or a full disk, has a
// round on a system of its own, which measures figures and compares them with what is wanted. These rounds take minutes
// each. They are played if -overload is given or -only names them.
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
	mutants bool   // plays the mutants
	only    string // names with commas; empty: all
	list    bool
	verbose bool
	keep    string
	record  string

	seed     uint64
	duration time.Duration
	workers  int // 0: drawn for each round
	replica  bool
	cluster  bool
	overload bool // plays the faults that need a system of their own, not the others
	form     form // of these

	bin   string   // folder of the programs with failpoints; empty: they are built
	redis []string // of a mutant: additional settings of redis-server
}

const usage = `usage: go run ./loadtest/faults [mutants] [flags]

Injects faults into the whole system in rounds and checks its invariants. Exits with
0 when none was violated and every fault could be injected. With -overload it plays the
faults that need a system of their own, for minutes each: more load than the programs can
take, full memory, a full disk, a neighbour beside a healthy vendor. With "mutants" it
builds the programs with one defect at a time (a folder of testdata/mutants), which
must be caught. -list prints the faults or the mutants.
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
	case o.mutants:
		return runMutants(ctx, o, out)
	case o.record != "":
		return validateAgain(o.record, out)
	}

	_, err = playAll(ctx, o, out)

	return err
}

var defaults = options{duration: 10 * time.Minute, form: wholeForm}

func parse(args []string) (options, error) {
	o := defaults
	if len(args) > 0 && args[0] == "mutants" {
		o.mutants = true
		args = args[1:]
	}

	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage+"\n")
		flags.PrintDefaults()
	}

	flags.StringVar(&o.only, "only", "", "play only these, `names` with commas")
	flags.BoolVar(&o.list, "list", false, "print the table of what can be played")
	if o.mutants {
		flags.Uint64Var(&o.seed, "seed", 1, "the suite's seed")
		flags.BoolVar(&o.verbose, "v", false, "print the suite's output for each")
	} else {
		o.addFlags(flags)
	}

	if err := flags.Parse(args); err != nil {
		return o, err
	}

	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.workers < 0 || o.workers > maxWorkers:
		return o, errors.New("-workers: want 0 to 3")
	case o.duration <= 0:
		return o, errors.New("-duration: want more than 0")
	case o.overload && (o.cluster || o.replica):
		return o, errors.New("-overload: not with -cluster or -replica")
	}

	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32 // short enough to type
	}

	return o, nil
}

// addFlags adds the flags of a run of faults.
func (o *options) addFlags(flags *flag.FlagSet) {
	flags.Uint64Var(&o.seed, "seed", o.seed, "what is drawn; 0: another one each time, printed first")
	flags.DurationVar(&o.duration, "duration", o.duration, "how long to play on the run's system once it is up; one round at least")
	flags.IntVar(&o.workers, "workers", o.workers, "workers, 1 to 3, as far as a fault lets them; 0: drawn for each round")
	flags.BoolVar(&o.overload, "overload", false, "play the faults that need a system of their own instead, once each")
	flags.StringVar(&o.keep, "keep", "", "`folder` for the data, which then stays; empty: a fresh one, which stays when "+
		"something is wrong")
	flags.StringVar(&o.record, "validate", "", "validate a round again from the `file` that was kept of it")
	flags.BoolVar(&o.replica, "replica", false, "redis.durability: replica, and the faults that need it; the server must know WAITAOF")
	flags.BoolVar(&o.cluster, "cluster", false, "a cluster of three masters, each with a replica if -replica, and the faults that it can show")
	flags.BoolVar(&o.verbose, "v", false, "print every step")
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

//go:embed faults.yaml mutants.yaml
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
	if o.mutants {
		mutants, err := loadMutants(o.only)
		for _, m := range mutants {
			fmt.Fprintf(out, "%-22s %s\n%22s under %s: %v\n", m.Name, m.Does, "", m.Faults, m.Caught)
		}
		return err
	}

	faults, err := readTable("faults.yaml", o.only, func(f fault) string { return f.Name })
	for _, f := range faults {
		if o.overload && !f.hasOwnSystem() {
			continue
		}
		fmt.Fprintf(out, "%-18s %s\n%18s clients see: %s\n", f.Name, f.Does, "", f.Expect)
		if f.hasOwnSystem() {
			fmt.Fprintf(out, "%18s on a system of its own (-overload)\n", "")
		}
	}

	return err
}
