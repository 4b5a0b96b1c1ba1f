// Command prove shows that the tests hold the rules of the contract: it breaks one rule at a time
// (package rules), and runs the tests of the gate that name it, of which one must fail.
//
//	go run ./internal/rules/prove
//	go run ./internal/rules/prove -only limits/post-orders,errors/RATE_LIMITED -v
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/rules"
	"vendorapi/internal/rules/broken"
)

type options struct {
	only, folder string
	parallel     int
	isVerbose    bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "only these rules, with commas between; one that ends with / stands for all that begin so")
	flag.StringVar(&o.folder, "folder", ".data/rules", "where the test binaries are kept")
	flag.IntVar(&o.parallel, "parallel", 2, "how many rules are tried at a time")
	flag.BoolVar(&o.isVerbose, "v", false, "show what the tests say")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(1)
	}
}

// result is what became of one rule.
type result struct {
	id      string
	found   string // the test that failed
	trouble string // why there is none
	output  string
	took    time.Duration
}

func run(ctx context.Context, o options) error {
	began := time.Now()
	p, err := prepare(o)
	if err != nil {
		return err
	}

	results := make([]result, len(p.ids))
	var mu sync.Mutex // of the output
	var next int
	var tries sync.WaitGroup
	for range o.parallel {
		tries.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(p.ids) || ctx.Err() != nil {
					return
				}

				results[i] = p.try(ctx, p.ids[i])
				mu.Lock()
				show(results[i], i+1, len(p.ids), o.isVerbose)
				mu.Unlock()
			}
		})
	}

	tries.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return conclude(results, time.Since(began))
}

func show(r result, number, of int, isVerbose bool) {
	said := r.found
	if r.trouble != "" {
		said = "NOT PROVED: " + r.trouble
	}

	fmt.Printf("%3d of %d  %5.1f s  %s  %s\n", number, of, r.took.Seconds(), r.id, said)
	if isVerbose || r.trouble != "" {
		fmt.Println("    " + strings.ReplaceAll(strings.TrimSpace(r.output), "\n", "\n    "))
	}
}

// conclude prints the table, and returns an error if a rule is not proved.
func conclude(results []result, took time.Duration) error {
	fmt.Print("\n| rule | found by |\n|---|---|\n")
	unproved := 0
	for _, r := range results {
		if r.trouble == "" {
			fmt.Printf("| %s | %s |\n", r.id, r.found)
		}
	}

	for _, r := range results {
		if r.trouble != "" {
			fmt.Printf("| %s | NOT PROVED: %s |\n", r.id, r.trouble)
			unproved++
		}
	}

	fmt.Printf("\n%d rules after %.0f s, %d not proved\n", len(results), took.Seconds(), unproved)
	if unproved > 0 {
		return fmt.Errorf("%d of %d rules are not proved", unproved, len(results))
	}

	return nil
}

// prover breaks rules in test binaries that have all defects in them.
type prover struct {
	module, folder, overlay string

	ids    []string
	tests  map[string][]rules.Test
	suites map[string]*suite // by package
}

// suite is the tests of a package that name a rule.
type suite struct {
	path, binary string
	names        []string

	ready   sync.Once
	trouble string // why it cannot show anything
	output  string
}

func prepare(o options) (*prover, error) {
	module, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	all, err := rules.List(module)
	if err != nil {
		return nil, fmt.Errorf("run it in the module's folder: %w", err)
	}

	p := &prover{module: module, suites: make(map[string]*suite)}
	p.ids, err = choose(all, o.only)
	if err != nil {
		return nil, err
	}
	p.tests, err = rules.Tests(module)
	if err != nil {
		return nil, err
	}
	p.folder, err = filepath.Abs(o.folder)
	if err != nil {
		return nil, err
	}

	for _, id := range p.ids {
		packages, names := p.testsOf(id)
		for _, path := range packages {
			if p.suites[path] == nil {
				binary := filepath.Join(p.folder, strings.ReplaceAll(path, "/", "_")+".test")
				p.suites[path] = &suite{path: path, binary: binary}
			}
			p.suites[path].names = append(p.suites[path].names, names[path]...)
		}
	}

	texts := filepath.Join(p.folder, "overlay")
	if err := errors.Join(os.RemoveAll(texts), os.MkdirAll(texts, 0o700)); err != nil {
		return nil, err
	}

	changes, _, err := rules.Defects(module)
	if err != nil {
		return nil, err
	}

	p.overlay, err = changes.Write(texts)

	return p, err
}

// choose returns the ids that only names, in the order of all.
func choose(all []string, only string) (chosen []string, err error) {
	if only == "" {
		return all, nil
	}

	wanted := strings.Split(only, ",")
	for _, id := range all {
		isWanted := func(w string) bool { return id == w || strings.HasSuffix(w, "/") && strings.HasPrefix(id, w) }
		if slices.ContainsFunc(wanted, isWanted) {
			chosen = append(chosen, id)
		}
	}

	if len(chosen) == 0 {
		return nil, fmt.Errorf("there is no rule %s", only)
	}

	return chosen, nil
}

// quick are packages whose tests need no server, and slow those whose tests start whole systems. The
// first are run first; the second only of rules that no other test names.
var (
	quick = []string{"internal/delivery", "internal/webhook", "gateway/token"}
	slow  = []string{"loadtest/systemtest"}
)

// testsOf returns the names of the gate's tests that name a rule, by their packages, and the packages
// in the order in which they are tried.
func (p *prover) testsOf(id string) (packages []string, names map[string][]string) {
	names = make(map[string][]string)
	for _, test := range p.tests[id] {
		if test.IsLong {
			continue
		}
		if names[test.Package] == nil {
			packages = append(packages, test.Package)
		}
		names[test.Package] = append(names[test.Package], test.Name)
	}

	slices.SortStableFunc(packages, func(a, b string) int {
		return isAmong(quick, b) - isAmong(quick, a)
	})
	others := slices.DeleteFunc(slices.Clone(packages), func(path string) bool { return slices.Contains(slow, path) })
	if len(others) > 0 {
		packages = others
	}

	return packages, names
}

// isAmong is 1 of a member of the list.
func isAmong(list []string, member string) int {
	if slices.Contains(list, member) {
		return 1
	}
	return 0
}

// suite returns the tests of a package, compiled. While every rule is kept they must pass, so that a
// failure is the defect's.
func (p *prover) suite(ctx context.Context, path string) *suite {
	s := p.suites[path]
	s.ready.Do(func() {
		began := time.Now()
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", p.overlay, "-o", s.binary, "./"+path)
		build.Dir = p.module
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		output, err := build.CombinedOutput()
		if err != nil {
			s.trouble, s.output = "the tests of "+path+" cannot be compiled with the defects", string(output)
			return
		}

		compiled := time.Since(began)
		slices.Sort(s.names)
		s.names = slices.Compact(s.names)
		s.output, err = p.runTests(ctx, s, s.names, "")
		if err != nil {
			s.trouble = "the tests of " + path + " fail while every rule is kept"
			return
		}

		fmt.Printf("%s: %d tests compiled in %.0f s, passed in %.0f s while every rule is kept\n", path, len(s.names),
			compiled.Seconds(), (time.Since(began) - compiled).Seconds())
	})

	return s
}

// try breaks a rule and runs its tests until one fails.
func (p *prover) try(ctx context.Context, id string) result {
	began := time.Now()
	r := result{id: id, trouble: "no test fails"}
	packages, names := p.testsOf(id)
	for _, path := range packages {
		s := p.suite(ctx, path)
		if s.trouble != "" {
			r.trouble, r.output = s.trouble, s.output
			break
		}

		output, err := p.runTests(ctx, s, names[path], id)
		if err != nil {
			r.output = output
			r.found, r.trouble = failedTest(path, output)
			break
		}
	}

	r.took = time.Since(began)

	return r
}

// failedTest returns the first test that failed by an assertion, or why that is not so.
func failedTest(path, output string) (found, trouble string) {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "", "the tests of " + path + " end with a " + strings.TrimSpace(line)
		}
	}

	for line := range strings.Lines(output) {
		name, isFailed := strings.CutPrefix(line, "--- FAIL: ")
		if isFailed {
			name, _, _ = strings.Cut(name, " ")
			return name, ""
		}
	}

	return "", "the tests of " + path + " fail without saying which"
}

// testTimeout is for the tests of one rule in one package. Some of them build all programs.
const testTimeout = 20 * time.Minute

func (p *prover) runTests(ctx context.Context, s *suite, tests []string, brokenRule string) (output string, err error) {
	cmd := exec.CommandContext(ctx, s.binary, "-test.run", "^("+strings.Join(tests, "|")+")$", "-test.failfast",
		"-test.timeout", testTimeout.String())
	cmd.Dir = filepath.Join(p.module, s.path)
	// Tests that build the programs do so with the defects.
	cmd.Env = append(os.Environ(), broken.Variable+"="+brokenRule, "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+p.overlay)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	text, err := cmd.CombinedOutput()

	return string(text), err
}
