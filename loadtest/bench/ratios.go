package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// benchmarkTimeout bounds one benchmark, its Redis and gateway included.
const benchmarkTimeout = 2 * time.Minute

// compileTests compiles the tests of a package such as "./gateway" to a file, once.
// They read files in the package's folder.
func (b *bench) compileTests(ctx context.Context, pkg string) (binary, folder string) {
	root := got(stack.ModuleDir())
	binary, folder = b.file(filepath.Base(pkg)+".test"), filepath.Join(root, pkg)
	if _, missing := os.Stat(binary); missing == nil {
		return binary, folder
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		must(fmt.Errorf("compile the tests of %s: %w\n%s", pkg, err, out))
	}
	b.progress("compiled the tests of %s in %.0f s", pkg, time.Since(began).Seconds())
	return binary, folder
}

// measures are a benchmark's results by unit, such as "orders/s".
type measures map[string]float64

// runBenchmark runs one sub-benchmark of a package, such as "BenchmarkServe/order", n times. In a name such as
// "BenchmarkDecode/*/sonic" the star stands for all of them, and the result is their sum. A count and not a time: with
// a time, Go first tries how many fit, and each try starts everything again.
func (b *bench) runBenchmark(ctx context.Context, pkg, name string, n int) measures {
	binary, folder := b.compileTests(ctx, pkg)
	ctx, cancel := context.WithTimeout(ctx, benchmarkTimeout)
	defer cancel()
	pattern := "^" + strings.ReplaceAll(strings.ReplaceAll(name, "*", ".*"), "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", pattern,
		"-test.benchtime", fmt.Sprintf("%dx", n), "-test.benchmem", "-test.timeout", benchmarkTimeout.String())
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir)
	out, err := cmd.CombinedOutput()
	var found measures
	if err == nil {
		found, err = parseBenchmark(string(out), name)
	}
	if err != nil {
		must(fmt.Errorf("%s: %w\n%s", name, err, bytes.TrimSpace(out[max(0, len(out)-4<<10):])))
	}
	return found
}

// resultCount is the unit of how many results were summed up.
const resultCount = "results"

// result is a line such as "BenchmarkServe/order-2  30000  41375 ns/op  24169 orders/s"; on one processor the name has no number.
var result = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(\S.*)$`)

// parseBenchmark sums up the results of the named benchmark in the output of a test binary, which has each of them
// once; none at all is an error.
func parseBenchmark(out, name string) (measures, error) {
	found, seen := measures{}, map[string]bool{}
	for _, line := range result.FindAllStringSubmatch(out, -1) {
		if match, err := path.Match(name, line[1]); err != nil || !match {
			continue
		}
		if seen[line[1]] {
			return nil, fmt.Errorf("%s: more than one result", line[1])
		}
		seen[line[1]] = true
		found[resultCount]++
		for pair := range slices.Chunk(strings.Fields(line[2]), 2) {
			v, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				return nil, fmt.Errorf("%s: a figure without a unit in %q", line[1], line[2])
			}
			found[pair[1]] += v
		}
	}
	if len(seen) == 0 {
		return nil, errors.New("no result")
	}
	return found, nil
}

// trial is one sub-benchmark and how many operations a whole run gives it: about
// a second and a half of a two-core machine.
type trial struct {
	name string
	n    int
}

// results are the measures of trials, round by round.
type results map[string][]measures

func (b *bench) runTrials(ctx context.Context, pkg, benchmark, unit string, trials ...trial) results {
	found := results{}
	b.inTurns(len(trials), func(round, i int) {
		name := benchmark + "/" + trials[i].name
		counted := b.runBenchmark(ctx, pkg, name, short(b, trials[i].n, max(trials[i].n/10, 1000)))
		b.progress("round %d of %d  %-31s %9s %s", round+1, b.rounds, name, harness.Number(counted[unit]), unit)
		found[trials[i].name] = append(found[trials[i].name], counted)
	})
	return found
}

// of are one trial's figures of a unit; no number where a round lacks it, which no figure may be.
func (r results) of(name, unit string) (list []float64) {
	for _, m := range r[name] {
		v, ok := m[unit]
		if !ok {
			v = math.NaN()
		}
		list = append(list, v)
	}
	return list
}

// better is a trial over a plain connection pool, or the same over AutoPipelines.
func (r results) better(unit, name string) string {
	if other := name + "_pipelines"; harness.Median(r.of(other, unit)) > harness.Median(r.of(name, unit)) {
		return other
	}
	return name
}

func (b *bench) addRatio(r results, key, name, base string) {
	f := b.figure(key)
	f.Rounds, f.Bases = r.of(name, f.Unit), r.of(base, f.Unit)
}

const (
	perSecond    = "orders/s"
	perCPUSecond = "orders/cpu-s" // of gateway and load, and of Redis's main thread
	redisCost    = "redis-us/order"
)

// measureGateway compares the whole gateway, in one process with 64 vendors'
// connections and over a Redis that syncs every write.
func (b *bench) measureGateway(ctx context.Context) {
	r := b.runTrials(ctx, "./gateway", "BenchmarkServe", perSecond, trial{"empty", 150_000}, trial{"xadd", 60_000},
		trial{"xadd_pipelines", 60_000}, trial{"plain", 12_000}, trial{"order", 30_000}, trial{"order_pipelines", 30_000})
	for _, name := range []string{"plain", "order", "order_pipelines"} {
		redis := r.of(name, redisCost)
		for i, cpu := range r.of(name, "cpu-us/order") {
			r[name][i][perCPUSecond] = 1e6 / (cpu + redis[i])
		}
	}
	order, xadd := r.better(perSecond, "order"), r.better(perSecond, "xadd")
	frugal := r.better(perCPUSecond, "order")
	b.addRatio(r, "orders_per_xadd", order, xadd)
	b.addRatio(r, "orders_per_empty", order, "empty")
	b.addRatio(r, "orders_per_plain_elapsed", order, "plain")
	b.addRatio(r, "orders_per_plain", frugal, "plain")
	b.addRatio(r, "allocations", order, xadd)
	b.addRatio(r, "bytes", order, xadd)
	b.note("orders_per_xadd", "by %s, XADD by %s", way(order), way(xadd))
	b.note("orders_per_plain", "by %s", way(frugal))
}

func way(name string) string {
	if strings.HasSuffix(name, "_pipelines") {
		return "AutoPipelines"
	}
	return "pool"
}

// measureJSON compares the readers of an order's body, by the time that they take to read one of each kind: a typical
// order, one with the required fields only, one with escaped Turkish letters and white space, one with long notes and
// fields that are not known.
func (b *bench) measureJSON(ctx context.Context) {
	const strict, sonic, std = "*/strictjson", "*/sonic", "*/encodingjson"
	r := b.runTrials(ctx, "./gateway", "BenchmarkDecode", "ns/op", trial{strict, 50_000}, trial{sonic, 50_000}, trial{std, 50_000})
	for _, reader := range []string{sonic, std} {
		if r[reader][0][resultCount] != r[strict][0][resultCount] {
			must(fmt.Errorf("BenchmarkDecode: %s reads other bodies than %s", reader, strict))
		}
	}
	b.addRatio(r, "strictjson_time", strict, std)
	b.addRatio(r, "sonic_time", sonic, std)
}

// measureRedis compares what an order costs Redis's main thread, the one
// resource of a partition that cannot be added to.
func (b *bench) measureRedis(ctx context.Context) {
	r := b.runTrials(ctx, "./internal/ledger", "BenchmarkRedisCost", redisCost,
		trial{"order", 50_000}, trial{"native", 50_000}, trial{"own_writes", 50_000})
	b.addRatio(r, "redis_per_native", "order", "native")
	b.addRatio(r, "redis_per_own_writes", "order", "own_writes")
}
