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

// tests are the compiled tests of a package.
type tests struct {
	binary string
	folder string // the package's folder, in which the tests run because they read files there
}

// compileTests compiles the tests of a package such as "./gateway". A second call in the same run returns the first one's
// tests, whatever its flags. It panics with a failure when the tests do not compile.
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

// command returns the command that runs the benchmarks with a name such as "BenchmarkServe/order", n iterations each. In a
// name such as "BenchmarkDecode/*/sonic" the star stands for any name at that level. The length is a number of iterations
// and not a time: with a time, Go first tries how many iterations fit, and each try starts everything again.
func (t tests) command(ctx context.Context, name string, n int, timeout time.Duration) *exec.Cmd {
	pattern := "^" + strings.ReplaceAll(strings.ReplaceAll(name, "*", ".*"), "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, t.binary, "-test.run", "^$", "-test.bench", pattern,
		"-test.benchtime", fmt.Sprintf("%dx", n), "-test.benchmem", "-test.timeout", timeout.String())
	cmd.Dir = t.folder
	return cmd
}

// measures are a benchmark's results by unit, such as "orders/s".
type measures map[string]float64

// runBenchmark runs a package's benchmark for n iterations and returns its results by unit. Where the name has a star, they
// are the sums over all benchmarks that match. It panics with a failure if the benchmark fails or has no result.
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

// endOf returns at most the last 4 KiB of a command's output.
func endOf(out []byte) []byte {
	const longest = 4 << 10
	return bytes.TrimSpace(out[max(0, len(out)-longest):])
}

// resultLine matches a line such as "BenchmarkServe/order-2  30000  41375 ns/op  24169 orders/s". On one processor the name
// has no number at its end.
var resultLine = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(\S.*)$`)

// parseBenchmarks returns the results in the output of a test binary, by the names of the benchmarks. It fails if there is
// no result, if two have the same name, or if a figure has no unit.
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

// resultCount is the unit under which sumOfBenchmarks returns the number of results it has added up.
const resultCount = "results"

// sumOfBenchmarks adds up, unit by unit, the results whose names match the pattern. It fails if none does.
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

// A trial is one of several benchmarks that are compared.
type trial struct {
	name string
	n    int // iterations in a full run: about a second and a half on two cores
}

// trials are the results of compared benchmarks, round by round, by the name of the trial.
type trials map[string][]measures

// runTrials runs the trials of a package's benchmark in turns, and returns their results. unit is the one that progress
// lines show.
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

// rounds returns one trial's figures in a unit. A round that did not measure the unit is NaN, which check refuses.
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

// addTrials sets all rounds of a figure and of its baseline to the results of two trials, in the figure's unit.
func (b *bench) addTrials(t trials, key, name, base string) {
	f := b.figure(key)
	f.Values = t.rounds(name, f.Unit)
	f.Bases = t.rounds(base, f.Unit)
}
