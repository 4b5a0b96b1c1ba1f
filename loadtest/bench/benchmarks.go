// This file runs Go benchmarks of other packages, which see what no program shows. They are compiled once and run one
// by one, so that the suites can take turns between them.

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
)

// benchmarkTimeout bounds one benchmark, its Redis and gateway included.
const benchmarkTimeout = 2 * time.Minute

// A tests is the compiled tests of a package. They read files in the package's folder.
type tests struct{ binary, folder string }

// compileTests compiles the tests of a package such as "./gateway", once in a run.
func (b *bench) compileTests(ctx context.Context, pkg string, flags ...string) tests {
	root := got(stack.ModuleDir())
	compiled := tests{binary: b.file(filepath.Base(pkg) + ".test"), folder: filepath.Join(root, pkg)}
	_, missing := os.Stat(compiled.binary)
	if missing == nil {
		return compiled
	}

	began := time.Now()
	args := append([]string{"test", "-c", "-o", compiled.binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		must(fmt.Errorf("compile the tests of %s: %w\n%s", pkg, err, out))
	}

	b.progress("compiled the tests of %s in %.0f s", pkg, time.Since(began).Seconds())

	return compiled
}

// command runs the benchmarks of a name such as "BenchmarkServe/order", n times each. In a name such as
// "BenchmarkDecode/*/sonic" the star stands for all of them. A count and not a time: with a time, Go first tries how
// many fit, and each try starts everything again.
func (t tests) command(ctx context.Context, name string, n int, timeout time.Duration) *exec.Cmd {
	pattern := "^" + strings.ReplaceAll(strings.ReplaceAll(name, "*", ".*"), "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, t.binary, "-test.run", "^$", "-test.bench", pattern,
		"-test.benchtime", fmt.Sprintf("%dx", n), "-test.benchmem", "-test.timeout", timeout.String())
	cmd.Dir = t.folder
	return cmd
}

// measures are a benchmark's results by unit, such as "orders/s".
type measures map[string]float64

// runBenchmark returns the results of a package's benchmark, the sum of all of them where the name has a star.
func (b *bench) runBenchmark(ctx context.Context, pkg, name string, n int) measures {
	compiled := b.compileTests(ctx, pkg)
	ctx, cancel := context.WithTimeout(ctx, benchmarkTimeout)
	defer cancel()

	cmd := compiled.command(ctx, name, n, benchmarkTimeout)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir)
	out, err := cmd.CombinedOutput()
	var sum measures
	if err == nil {
		sum, err = sumOfBenchmarks(string(out), name)
	}

	if err != nil {
		must(fmt.Errorf("%s: %w\n%s", name, err, endOf(out)))
	}

	return sum
}

// endOf returns the last lines of what a command has written.
func endOf(out []byte) []byte {
	const longest = 4 << 10
	return bytes.TrimSpace(out[max(0, len(out)-longest):])
}

// resultLine is such as "BenchmarkServe/order-2  30000  41375 ns/op  24169 orders/s"; on one processor the name has no number.
var resultLine = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(\S.*)$`)

// parseBenchmarks reads the results in the output of a test binary, by the names of the benchmarks. None at all is an
// error, and so are two of one name.
func parseBenchmarks(out string) (map[string]measures, error) {
	all := make(map[string]measures)
	for _, line := range resultLine.FindAllStringSubmatch(out, -1) {
		name := line[1]
		if all[name] != nil {
			return nil, fmt.Errorf("%s: more than one result", name)
		}

		all[name] = make(measures)
		for pair := range slices.Chunk(strings.Fields(line[2]), 2) {
			value, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				return nil, fmt.Errorf("%s: a figure without a unit in %q", name, line[2])
			}
			all[name][pair[1]] = value
		}
	}

	if len(all) == 0 {
		return nil, errors.New("no result")
	}

	return all, nil
}

// resultCount is the unit of how many results were summed up.
const resultCount = "results"

// sumOfBenchmarks adds up the results whose names match, of which there must be one at least.
func sumOfBenchmarks(out, name string) (measures, error) {
	all, err := parseBenchmarks(out)
	if err != nil {
		return nil, err
	}

	sum := make(measures)
	for found, results := range all {
		match, err := path.Match(name, found)
		if err != nil {
			return nil, err
		}

		if !match {
			continue
		}

		sum[resultCount]++
		for unit, value := range results {
			sum[unit] += value
		}
	}

	if sum[resultCount] == 0 {
		return nil, fmt.Errorf("no result of %s", name)
	}

	return sum, nil
}

// A trial is one benchmark of several that are compared, and how often a full run does what it measures:
// for about a second and a half of a two-core machine.
type trial struct {
	name string
	n    int
}

// trials are the results of several, round by round.
type trials map[string][]measures

// runTrials runs the trials of a benchmark in turns.
func (b *bench) runTrials(ctx context.Context, pkg, benchmark, unit string, compared ...trial) trials {
	results := make(trials)
	b.inTurns(len(compared), func(round, i int) {
		t := compared[i]
		name := benchmark + "/" + t.name
		found := b.runBenchmark(ctx, pkg, name, short(b, t.n, max(t.n/10, 1000)))
		b.progress("round %d of %d  %-31s %9s %s", round+1, b.rounds, name, number(found[unit]), unit)
		results[t.name] = append(results[t.name], found)
	})

	return results
}

// rounds returns one trial's figures of a unit. A round without it is no number, which no figure may be.
func (t trials) rounds(name, unit string) []float64 {
	var list []float64
	for _, m := range t[name] {
		value, measured := m[unit]
		if !measured {
			value = math.NaN()
		}
		list = append(list, value)
	}
	return list
}

// addTrials notes all rounds of a figure: one trial beside another, in the figure's unit.
func (b *bench) addTrials(t trials, key, name, base string) {
	f := b.figure(key)
	f.Values = t.rounds(name, f.Unit)
	f.Bases = t.rounds(base, f.Unit)
}
