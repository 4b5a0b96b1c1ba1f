// Command bench measures the service and checks what it finds:
//
//	bench            ratios to what Redis itself can do (make bench)
//	bench -scale     several gateways, a cluster (make bench-scale)
//	bench -replica   what redis.durability: replica costs (make bench-replica)
//	bench webhooks   delivery of webhooks (make bench-webhooks)
//	bench reporting  export, reports, downloads (make bench-reporting)
//
// Each starts what it measures, prints the table that suites.yaml describes,
// writes the figures as JSON and ends with status 1 when one is beyond its limit.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

//go:embed suites.yaml
var suitesYAML []byte

// suite is a group of parts with a table of its own.
type suite struct {
	Usage    string
	Timeout  time.Duration // of a whole run
	Rounds   int           // unless asked for otherwise
	Programs []string      // built first
	Parts    []part
}

type part struct {
	Name    string
	Figures []*harness.Figure
}

// measurements are what the parts do, by their names.
var measurements = map[string]func(*bench, context.Context){
	"gateway": (*bench).measureGateway, "json": (*bench).measureJSON, "redis": (*bench).measureRedis, "programs": (*bench).measurePrograms,
	"delivery": (*bench).measureDelivery, "native": (*bench).measureNative,
	"topologies": (*bench).measureTopologies, "replica": (*bench).measureReplica,
	"throughput": (*bench).measureThroughput, "latency": (*bench).measureLatency, "isolation": (*bench).measureIsolation,
	"backlog": (*bench).measureBacklog, "kill": (*bench).measureKills,
	"export": (*bench).measureExport, "reports": (*bench).measureReports, "download": (*bench).measureDownloads, "closing": (*bench).measureClosing,
}

// bench is one run of a suite.
type bench struct {
	suite
	name   string // "bench", "bench-scale", "bench-replica", "bench-webhooks" or "bench-reporting"
	chosen []part
	listed int // parts that -parts lists; 0 without it

	// Flags; each suite has some of them.
	only, json, profile, need, sizing string
	quick, keep, scale, replica       bool
	rounds, orders, history           int
	seed                              uint64

	dir     string               // temporary: binaries, data, logs
	costs   map[string][]float64 // see account
	year    *reportingEnv        // made by the first part that needs it
	out     io.Writer
	figures []*harness.Figure
}

func main() {
	// One of the runtime's processors is taken while the schedule sleeps in the kernel, see harness.SleepUntil. Without
	// another one the answers would wait for up to 10 ms until it is taken back.
	runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	harness.Run("bench", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var suites map[string]suite
	if err := yaml.UnmarshalWithOptions(suitesYAML, &suites, yaml.Strict()); err != nil {
		return fmt.Errorf("suites.yaml: %w", err)
	}
	b := &bench{name: "bench", suite: suites["bench"], out: out, costs: map[string][]float64{}}
	if len(args) > 0 && (args[0] == "webhooks" || args[0] == "reporting") {
		b.name, b.suite, args = "bench-"+args[0], suites[args[0]], args[1:]
	}
	if err := b.parseFlags(args, suites); err != nil {
		return err
	}
	if b.need != "" {
		return caught(b.printNeeds)
	}
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
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
	if err := stack.Build(ctx, b.file("bin"), b.Programs...); err != nil {
		return err
	}
	return b.measure(ctx)
}

// parseFlags also chooses the parts, of another suite with -scale and -replica.
func (b *bench) parseFlags(args []string, suites map[string]suite) error {
	set := flag.NewFlagSet(b.name, flag.ContinueOnError)
	set.SetOutput(b.out)
	set.Usage = func() {
		fmt.Fprint(b.out, b.Usage)
		set.PrintDefaults()
	}
	b.addFlags(set)
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}

	switch {
	case b.scale:
		b.chooseSuite("scale", suites)
	case b.replica:
		b.chooseSuite("replica", suites)
	}
	if err := b.chooseParts(); err != nil {
		return err
	}
	if err := b.setDefaults(); err != nil {
		return err
	}
	return b.checkNumbers()
}

const (
	maxRounds = 50

	minOrders   = 1_000
	maxOrders   = 1_000_000
	fullOrders  = 100_000
	quickOrders = 10_000

	minHistory   = 10_000
	maxHistory   = 50_000_000
	fullHistory  = 5_000_000
	quickHistory = 200_000
)

// addFlags defines the flags of the suite.
func (b *bench) addFlags(set *flag.FlagSet) {
	names := make([]string, len(b.Parts))
	for i, p := range b.Parts {
		names[i] = p.Name
	}
	partNames := strings.Join(names, ", ")

	set.IntVar(&b.rounds, "rounds", 0, fmt.Sprintf("rounds, 1 to %d; everything is measured once in each (default %d, quick 1)", maxRounds, b.Rounds))
	set.BoolVar(&b.quick, "quick", false, "a short form of everything; checks only what holds on any machine")
	set.StringVar(&b.json, "json", "", "where the figures are written (default DATA_DIR/"+b.name+".json)")
	set.BoolVar(&b.keep, "keep", false, "keep the folder with data and logs")
	if b.name != "bench-reporting" {
		set.StringVar(&b.only, "only", "", "measure only these parts, a regular expression over: "+partNames)
	}

	switch b.name {
	case "bench":
		set.BoolVar(&b.scale, "scale", false, "several gateways and a cluster instead of the table of ratios; 3 rounds")
		set.BoolVar(&b.replica, "replica", false, "what redis.durability: replica costs instead of the table of ratios, with a server that knows WAITAOF; 5 rounds")
		set.StringVar(&b.need, "need", "", "measure nothing; print what these rates of orders per second need, such as 10000,100000")
		set.StringVar(&b.sizing, "sizing", "", "with -need: what an order costs (default loadtest/bench/sizing.json)")

	case "bench-webhooks":
		set.StringVar(&b.profile, "profile", "", "write a CPU profile of the worker during the last round of throughput to this file")
		set.Uint64Var(&b.seed, "seed", 0, "decides when the worker is killed; 0: another one every time, which the table names")

	case "bench-reporting":
		set.Func("parts", "measure only these, with commas between: "+partNames, func(list string) error {
			b.only = "^(" + strings.ReplaceAll(list, ",", "|") + ")$"
			b.listed = strings.Count(list, ",") + 1
			return nil
		})
		set.IntVar(&b.orders, "orders", 0, fmt.Sprintf("orders to export, %d to %d (default %d, quick %d)", minOrders, maxOrders, fullOrders, quickOrders))
		set.IntVar(&b.history, "history", 0, fmt.Sprintf("orders in the year, %d to %d (default %d, quick %d)", minHistory, maxHistory, fullHistory, quickHistory))
		set.StringVar(&b.profile, "profile", "", "write a CPU profile of the exporter during the last round to this file")
	}
}

// chooseSuite replaces the suite by the one of this name, all parts of it.
func (b *bench) chooseSuite(name string, suites map[string]suite) {
	b.name = "bench-" + name
	b.suite = suites[name]
	b.only = ""
}

// chooseParts takes the parts of the suite that -only or -parts asks for. It fails when there is
// none, or when -parts lists one that does not exist.
func (b *bench) chooseParts() error {
	only, err := regexp.Compile(b.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}

	for _, p := range b.Parts {
		if only.MatchString(p.Name) {
			b.chosen = append(b.chosen, p)
		}
	}
	if len(b.chosen) < max(b.listed, 1) {
		return fmt.Errorf("%q: no such part", b.only)
	}
	return nil
}

// setDefaults sets what no flag has set.
func (b *bench) setDefaults() error {
	b.rounds = cmp.Or(b.rounds, short(b, b.Rounds, 1))
	if b.json == "" {
		dir, err := stack.DataDir()
		if err != nil {
			return err
		}
		b.json = filepath.Join(dir, b.name+".json")
	}

	switch b.name {
	case "bench-webhooks":
		b.seed = cmp.Or(b.seed, rand.Uint64N(1_000_000)+1)
	case "bench-reporting":
		b.orders = cmp.Or(b.orders, short(b, fullOrders, quickOrders))
		b.history = cmp.Or(b.history, short(b, fullHistory, quickHistory))
	}
	return nil
}

// checkNumbers fails when a number that a flag has set is out of its range.
func (b *bench) checkNumbers() error {
	if b.name == "bench-reporting" {
		ordersInRange := minOrders <= b.orders && b.orders <= maxOrders
		historyInRange := minHistory <= b.history && b.history <= maxHistory
		if !ordersInRange || !historyInRange {
			return fmt.Errorf("want -orders of %d to %d, -history of %d to %d", minOrders, maxOrders, minHistory, maxHistory)
		}
	}

	if b.rounds < 1 || b.rounds > maxRounds {
		return fmt.Errorf("-rounds: want 1 to %d", maxRounds)
	}
	return nil
}

// report is what a run leaves behind.
type report struct {
	Machine harness.Machine   `json:"machine"`
	Rounds  int               `json:"rounds"`
	Quick   bool              `json:"quick"`
	Seed    uint64            `json:"seed,omitempty"`
	Orders  int               `json:"orders,omitempty"`
	History int               `json:"history,omitempty"`
	Seconds float64           `json:"seconds"`
	Figures []*harness.Figure `json:"figures"`
	// Costs are per order; see account.
	Costs map[string]*harness.Spread `json:"costs,omitempty"`
}

// measure runs the parts and reports what they found, also what was found before a failure.
func (b *bench) measure(ctx context.Context) error {
	r := report{Machine: harness.DescribeMachine(ctx), Rounds: b.rounds, Quick: b.quick, Seed: b.seed, Orders: b.orders, History: b.history}
	for _, p := range b.chosen {
		b.figures = append(b.figures, p.Figures...)
	}
	b.progress("%s", r.Machine)
	began := time.Now()
	failure := b.runParts(ctx)
	if failure != nil || b.quick { // which leave some out; otherwise that is an error
		b.figures = slices.DeleteFunc(b.figures, func(f *harness.Figure) bool { return len(f.Rounds) == 0 })
	}
	if len(b.figures) == 0 {
		return failure
	}
	var missed error
	r.Figures, missed = harness.Check(b.figures, b.quick)
	r.Seconds, r.Costs = time.Since(began).Seconds(), map[string]*harness.Spread{}
	for name, rounds := range b.costs {
		r.Costs[name] = harness.SpreadOf(rounds)
	}
	about := ""
	switch b.name {
	case "bench-webhooks":
		about = fmt.Sprintf(", seed %d", b.seed)
	case "bench-reporting":
		about = fmt.Sprintf(", %s orders exported, %s in the year", harness.Grouped(b.orders), harness.Grouped(b.history))
	}
	b.progress("\n%s\n%d rounds in %.0f s%s; medians, in brackets the least and the greatest", r.Machine, b.rounds, r.Seconds, about)
	if b.quick {
		b.progress("A quick run: too short, and beside too much else, for its times and rates to say anything.")
	}
	b.progress("")
	harness.Print(b.out, r.Figures)
	return errors.Join(failure, missed, harness.WriteJSON(b.json, &r, b.out))
}

func (b *bench) runParts(ctx context.Context) error {
	defer func() {
		if b.year != nil {
			b.year.Stop()
		}
	}()
	for _, p := range b.chosen {
		err := caught(func() { measurements[p.Name](b, ctx) })
		if ctx.Err() != nil {
			err = context.Cause(ctx) // what broke off because of it says less
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// failure is what a part ends with at its first error: what follows would measure nothing. Where the error is, must and
// got panic with it, as in a test that fails; caught, around each part and around what other packages call back, returns
// it. Other goroutines than the part's own return errors as usual.
type failure struct{ error }

// must ends the part unless err is nil.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// got is a result, unless there is none: then it ends the part.
func got[T any](result T, err error) T {
	must(err)
	return result
}

// caught does something and returns the error that ended it.
func caught(do func()) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			f, ended := reason.(failure)
			if !ended {
				panic(reason)
			}
			err = f.error
		}
	}()
	do()
	return nil
}

// inTurns measures n things once in every round. The order turns from round to
// round, so that none always runs behind the same other.
func (b *bench) inTurns(n int, measure func(round, i int)) {
	for round := range b.rounds {
		for i := range n {
			measure(round, (i+round)%n)
		}
	}
}

// add notes one round of a figure, and of its baseline if it has one. What
// suites.yaml does not name is in the JSON only.
func (b *bench) add(key string, value float64, base ...float64) {
	f := b.figure(key)
	f.Rounds, f.Bases = append(f.Rounds, value), append(f.Bases, base...)
}

// note adds to the end of a figure's line.
func (b *bench) note(key, format string, a ...any) {
	f := b.figure(key)
	f.Note = strings.TrimPrefix(f.Note+"; "+fmt.Sprintf(format, a...), "; ")
}

func (b *bench) figure(key string) *harness.Figure {
	if i := slices.IndexFunc(b.figures, func(f *harness.Figure) bool { return f.Key == key }); i >= 0 {
		return b.figures[i]
	}
	f := &harness.Figure{Key: key, Title: key, Aside: true}
	b.figures = append(b.figures, f)
	return f
}

func (b *bench) progress(format string, a ...any) {
	fmt.Fprintf(b.out, format+"\n", a...)
}

// short is whole, in a quick run quick.
func short[T any](b *bench, whole, quick T) T {
	if b.quick {
		return quick
	}
	return whole
}

func (b *bench) file(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}
