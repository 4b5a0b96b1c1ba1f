package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	"vendorapi/internal/stack"
)

// benchmarkTimeout bounds one benchmark, its Redis and gateway included.
const benchmarkTimeout = 2 * time.Minute

// testBinary is a package's compiled tests.
type testBinary struct {
	path, dir string // dir is the package's folder: its tests read files beside them
	tmp       string // for what they write
}

// compileTests compiles the tests of a package such as "./gateway", once.
func (b *bench) compileTests(ctx context.Context, pkg string) (*testBinary, error) {
	if t := b.compiled[pkg]; t != nil {
		return t, nil
	}
	root, err := stack.ModuleDir()
	if err != nil {
		return nil, err
	}
	t := &testBinary{
		path: filepath.Join(b.dir, filepath.Base(pkg)+".test"),
		dir:  filepath.Join(root, pkg),
		tmp:  b.dir,
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", t.path, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", pkg, err, out)
	}
	fmt.Fprintf(b.out, "compiled the tests of %s in %.0f s\n", pkg, time.Since(began).Seconds())
	b.compiled[pkg] = t
	return t, nil
}

// measures are a benchmark's results by unit, such as "orders/s".
type measures map[string]float64

// need returns the figures of units; a missing one is an error.
func (f measures) need(unit string) (float64, error) {
	v, ok := f[unit]
	if !ok {
		return 0, fmt.Errorf("it reports no %s, only %v", unit, map[string]float64(f))
	}
	return v, nil
}

// run runs one sub-benchmark such as "BenchmarkServe/order" n times. In a name
// such as "BenchmarkDecode/*/sonic" the star stands for all of them, each run n
// times, and the figures are their sums. A count and not a time: with a time, Go
// first tries how many fit, and each try starts everything anew.
func (t *testBinary) run(ctx context.Context, name string, n int) (measures, error) {
	ctx, cancel := context.WithTimeout(ctx, benchmarkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.path,
		"-test.run", "^$", "-test.bench", exactly(name), "-test.benchtime", fmt.Sprintf("%dx", n), "-test.benchmem",
		"-test.timeout", benchmarkTimeout.String())
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+t.tmp)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, lastBytes(out, 4<<10))
	}
	found, err := parseBenchmark(bytes.NewReader(out), name)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, lastBytes(out, 4<<10))
	}
	return found, nil
}

// exactly is the pattern that selects the named sub-benchmark and no other.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + strings.ReplaceAll(p, "*", ".*") + "$"
	}
	return strings.Join(parts, "/")
}

// resultCount is the unit of how many results were added up.
const resultCount = "results"

// parseBenchmark adds up the results of the named benchmark in the output of a
// test binary, which has each of them once; none at all is an error.
func parseBenchmark(out io.Reader, name string) (measures, error) {
	reader := benchfmt.NewReader(out, name)
	found, seen := measures{}, map[string]bool{}
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		got := nameOf(result.Name)
		if match, err := path.Match(strings.TrimPrefix(name, "Benchmark"), got); err != nil || !match {
			continue
		}
		if seen[got] {
			return nil, fmt.Errorf("%s: more than one result", got)
		}
		seen[got] = true
		found[resultCount]++
		for _, v := range result.Values {
			if v.OrigUnit != "" { // the reader turns ns into sec
				found[v.OrigUnit] += v.OrigValue
			} else {
				found[v.Unit] += v.Value
			}
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(seen) == 0 {
		return nil, fmt.Errorf("%s: no result", name)
	}
	return found, nil
}

// nameOf is a benchmark's name without the number of processors that results
// carry; they have no "Benchmark" in front either.
func nameOf(result benchfmt.Name) string {
	base, parts := result.Parts()
	name := string(base)
	for _, p := range parts {
		if p[0] == '/' {
			name += string(p)
		}
	}
	return name
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
