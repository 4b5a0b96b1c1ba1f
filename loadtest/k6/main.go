// Command k6 is `make loadtest`: it runs the k6 scripts of loadtest/ one after
// another, each against a system of its own on free ports, and checks the service
// levels, an exact count of what the limits let through, and the webhooks that
// arrived. It leaves a page with all figures, which links k6's own dashboards, and
// exits 0 only when everything held.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// k6 is pinned: another version may measure otherwise.
const (
	k6Module  = "go.k6.io/k6"
	k6Version = "v1.8.1"
)

type flags struct {
	scripts string
	scale   float64
	report  string
	keep    bool
	install bool
}

const manual = `Usage: make loadtest [ARGS='flags']

Runs the k6 scripts, each against a whole system of its own, and leaves an HTML
page. Exits 0 only when the service levels, the limits and the webhooks held.

Flags:
`

func main() {
	var f flags
	flag.StringVar(&f.scripts, "scripts", "", "which ones, separated by commas; empty: all")
	flag.Float64Var(&f.scale, "duration-scale", 1, "multiplies the lengths of those whose length is free")
	flag.StringVar(&f.report, "report", "", "where the page goes; empty: DATA_DIR/loadtest/report.html")
	flag.BoolVar(&f.keep, "keep", false, "keep the system's data and every sample")
	flag.BoolVar(&f.install, "install", false, "only make sure that k6 is there")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), manual)
		flag.PrintDefaults()
	}
	flag.Parse()
	// The first Ctrl-C stops everything in order; a second one has its usual
	// effect, and children die with this process in any case.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, f, os.Stdout)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) error {
	chosen, err := choose(f.scripts)
	if err != nil {
		return err
	}
	if f.scale <= 0 {
		return fmt.Errorf("-duration-scale is %v: it must be above 0", f.scale)
	}
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	data := os.Getenv("DATA_DIR")
	if data == "" {
		data = filepath.Join(root, ".data")
	}
	if f.report == "" {
		f.report = filepath.Join(data, "loadtest", "report.html")
	}
	p := &player{root: root, scale: f.scale, keep: f.keep, out: out}
	if p.dir, err = filepath.Abs(filepath.Dir(f.report)); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if p.k6, err = ensureK6(ctx, filepath.Join(data, "bin"), out); err != nil || f.install {
		return err
	}
	if p.bin, err = os.MkdirTemp("", "vendor-load-bin-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(p.bin) }() // a folder of the system's for temporary ones
	fmt.Fprintln(out, "building the programs")
	if err := stack.Build(ctx, p.bin); err != nil {
		return err
	}
	return p.playAll(ctx, chosen, f.report)
}

// ensureK6 makes sure that the pinned k6 lies in dir and returns its path. It is
// compiled when it is not there, which needs Go's module proxy.
func ensureK6(ctx context.Context, dir string, out io.Writer) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "k6")
	isPinned := func() bool {
		info, err := buildinfo.ReadFile(path)
		return err == nil && info.Main.Path == k6Module && info.Main.Version == k6Version
	}
	if isPinned() {
		return path, nil
	}
	fmt.Fprintf(out, "installing k6 %s into %s: about two minutes of compiling, once\n", k6Version, dir)
	cmd := exec.CommandContext(ctx, "go", "install", k6Module+"@"+k6Version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install k6: %w\n%s", err, said)
	}
	if !isPinned() {
		return "", fmt.Errorf("install k6: %s is not %s %s", path, k6Module, k6Version)
	}
	return path, nil
}

// playAll plays the scripts until they are through, one cannot be played or ctx
// ends. What was played by then is in the page.
func (p *player) playAll(ctx context.Context, chosen []script, path string) error {
	page := page{Began: time.Now(), Machine: harness.DescribeMachine(ctx).String()}
	var broken error
	for i := range chosen {
		s := &chosen[i]
		fmt.Fprintf(p.out, "\n%s, about %.0f s\n", s.name, s.expected(p.scale).Seconds())
		r, err := p.play(ctx, s)
		if err != nil {
			broken = fmt.Errorf("%s: %w", s.name, err)
			page.Interrupted = broken.Error()
			break
		}
		page.add(r)
		fmt.Fprintf(p.out, "  %s\n  %s\n", r.Proves, r.headline())
		for _, f := range r.failures {
			fmt.Fprintf(p.out, "    - %s\n", f)
		}
	}
	if len(page.Scripts) == 0 {
		return broken // and an earlier page stays
	}
	if err := page.write(path); err != nil {
		return errors.Join(broken, err)
	}
	fmt.Fprintf(p.out, "\nreport: %s\n", path)
	if broken == nil && !page.Passed() {
		broken = errors.New("not everything held")
	}
	return broken
}
