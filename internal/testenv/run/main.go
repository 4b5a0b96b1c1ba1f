// Command run is what `make test` and `make test-long` call: it builds the programs
// once, starts the Redis and the ClickHouse that all tests share (package
// testserver) and runs go test, whose output it passes on. It fails when a test
// does, or when a program was denied a command that it needs in Redis.
//
//	go run ./internal/testenv/run                 the gate: every package with tests
//	go run ./internal/testenv/run -long           with the tag long, all with -race
//	go run ./internal/testenv/run ./internal/ledger ./worker/...
//	go run ./internal/testenv/run -changed HEAD~3 -count 20 -load
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/testenv/testserver"
)

// concurrent are the packages, with those below them, whose goroutines share state on the way of an
// order: the gate runs their tests under the race detector, which makes them several times as slow.
// The long run does so with all packages.
var concurrent = regexp.MustCompile(`^vendorapi/(gateway|internal/ledger|worker)(/|$)`)

type options struct {
	long, load, verbose bool
	count               int
	pattern, changed    string
	packages            []string
}

// tags are those of go list and go test.
func (o *options) tags() string {
	if o.long {
		return "-tags=long"
	}
	return "-tags="
}

func main() {
	var o options
	flag.BoolVar(&o.long, "long", false, "also what needs real time, kills, clusters, a browser or LibreOffice (tag long)")
	flag.IntVar(&o.count, "count", 1, "how often each test runs")
	flag.BoolVar(&o.load, "load", false, "keep every core busy meanwhile")
	flag.StringVar(&o.pattern, "run", "", "only tests that match, as go test -run")
	flag.BoolVar(&o.verbose, "v", false, "as go test -v")
	flag.StringVar(&o.changed, "changed", "", "only packages with files that differ from this commit")
	flag.Parse()

	o.packages = flag.Args()
	if len(o.packages) == 0 && o.changed == "" {
		o.packages = []string{"./..."}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	began := time.Now()
	packages, err := testPackages(ctx, o)
	if err != nil || len(packages) == 0 {
		return errors.Join(err, errors.New("no package with tests was named or has changed"))
	}

	defer func() { err = errors.Join(err, testserver.Stop()) }()

	env, err := testserver.Start()
	err = errors.Join(err, ctx.Err())
	if err != nil {
		return err
	}

	fmt.Printf("programs built and servers started after %.0f s\n", time.Since(began).Seconds())

	if !o.long {
		seed, err := commitSeed(ctx)
		if err != nil {
			return err
		}

		fmt.Printf("seed %d; to draw the same again: %s=%[1]d make test\n", seed, testserver.SeedVariable)
		env = append(env, fmt.Sprintf("%s=%d", testserver.SeedVariable, seed))
		// The tests collect garbage less often, and so do the programs that they start. The long run, which
		// measures memory, keeps the usual setting.
		env = append(env, "GOGC=400")
	}

	if o.load {
		for range runtime.NumCPU() { // each keeps a core busy
			go func() {
				for ctx.Err() == nil {
				}
			}()
		}
	}

	if o.long {
		endK6 := prepareK6(ctx, packages)
		defer endK6()
	}

	err = goTests(ctx, o, packages, append(os.Environ(), env...))
	fmt.Printf("tests ended after %.0f s\n", time.Since(began).Seconds())

	return err
}

// commitSeed returns the seed of this run's property tests: the one of the environment, or one that
// follows from the commit that is checked out, so that each commit tries other cases and a run of it
// can be repeated. Where there is no git it is 1.
func commitSeed(ctx context.Context) (uint64, error) {
	given := os.Getenv(testserver.SeedVariable)
	if given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil || seed == 0 {
			return 0, fmt.Errorf("%s is %q, want a positive number", testserver.SeedVariable, given)
		}
		return seed, nil
	}

	hash, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return 1, nil
	}
	seed, err := strconv.ParseUint(string(hash[:min(8, len(hash))]), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("git rev-parse HEAD said %q", hash)
	}

	return max(seed, 1), nil
}

// prepareK6 compiles k6, which takes minutes, beside the first tests and at the lowest priority, if packages whose tests
// need it are among those that run. Those tests wait for it, or say why it cannot be had (harness.K6). The returned
// function must be called when the tests have ended.
func prepareK6(ctx context.Context, packages []string) (end func()) {
	isNeeded := slices.Contains(packages, "vendorapi/loadtest/lib") || slices.Contains(packages, "vendorapi/loadtest/k6")
	if !isNeeded {
		return func() {}
	}

	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", "go", "run", "./loadtest/k6", "-install")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Run() // the tests report it
	}()

	return func() {
		cancel()
		<-ended
	}
}

// goTests runs go test twice at once: with the race detector for packages that have concurrency of their own, without it
// for the others. Of two that fail one error is returned; both have printed theirs.
func goTests(ctx context.Context, o options, packages, env []string) error {
	// The compiler collects less often: a third of its work saved for 300 MB.
	args := []string{"test", "-vet=off", "-toolexec", "env GOGC=400", "-timeout", "40m", o.tags(), "-run", o.pattern, fmt.Sprint("-v=", o.verbose)}
	if o.count > 1 { // once is what may come from the cache
		args = append(args, "-count", fmt.Sprint(o.count))
	}

	goTest := func(cgo string, more ...string) error {
		cmd := exec.CommandContext(ctx, "go", append(slices.Clone(args), more...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(slices.Clone(env), "CGO_ENABLED="+cgo), os.Stdout, os.Stderr
		// A group of its own, so that the test binaries end with go test.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
		return cmd.Run()
	}

	// Nothing shares what is compiled for the race detector, so it can do without a
	// debugger's tables.
	raced, plain := []string{"-race", "-gcflags=all=-dwarf=false"}, []string(nil)
	for _, p := range packages {
		if o.long || concurrent.MatchString(p) {
			raced = append(raced, p)
		} else {
			plain = append(plain, p)
		}
	}

	// Both at once: where the tests of one wait for a server or a timer, those of the other go on.
	var tests errgroup.Group
	if len(raced) > 2 {
		tests.Go(func() error { return goTest("1", raced...) })
	}

	if len(plain) > 0 {
		// Without cgo, as the programs are built: what they share is compiled once.
		tests.Go(func() error { return goTest("0", plain...) })
	}

	err := tests.Wait()

	// What is allocated is measured without the race detector, which allocates.
	if slices.Contains(packages, "vendorapi/gateway") && o.pattern == "" && ctx.Err() == nil {
		err = errors.Join(err, goTest("0", "-run", "^TestAllocations", "vendorapi/gateway"))
	}

	return err
}

func testPackages(ctx context.Context, o options) ([]string, error) {
	wanted := o.packages
	if o.changed != "" {
		diff, err := exec.CommandContext(ctx, "git", "diff", "--name-only", o.changed, "--", "*.go", "*.lua").Output()
		if err != nil {
			return nil, fmt.Errorf("git diff %s: %w", o.changed, err)
		}

		for name := range strings.Lines(string(diff)) {
			dir := strings.TrimSuffix(filepath.Dir(strings.TrimSpace(name)), "/lua")
			if _, err := os.Stat(dir); err == nil && !slices.Contains(wanted, "./"+dir) {
				wanted = append(wanted, "./"+dir)
			}
		}

		if len(wanted) == 0 {
			return nil, nil
		}
	}

	list := []string{"list", o.tags(), "-e", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}
	cmd := exec.CommandContext(ctx, "go", append(list, wanted...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}

	return longestFirst(strings.Fields(string(out))), nil
}

// longestFirst returns the packages with the one in front whose tests take longest. go test starts packages in
// their order, so that one would run alone at the end.
func longestFirst(packages []string) []string {
	const longest = "vendorapi/reporting/closing"
	i := slices.Index(packages, longest)
	if i < 0 {
		return packages
	}
	others := slices.Delete(slices.Clone(packages), i, i+1)
	return append([]string{longest}, others...)
}
