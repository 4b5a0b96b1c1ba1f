// Command k6 is `make loadtest`: it runs the k6 scripts of loadtest/ one after
// another, each against a system of its own on free ports, and judges them three times over: by their service levels, by an exact count
// of what the limits let through, and by the webhooks that arrived. It leaves
// one HTML page and exits 0 only when everything held.
//
//	k6 script ──requests──> gateway        every sample ──> samples ──> window
//	    │ accepted orders                                      │        (limits)
//	    v                                                      v
//	webhooks: receivers <── worker         thresholds ──>  report (HTML)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/k6/report"
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
	dir := filepath.Dir(f.report)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	binary, err := ensureK6(ctx, filepath.Join(data, "bin"), out)
	if err != nil || f.install {
		return err
	}
	bin, err := os.MkdirTemp("", "vendor-load-bin-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(bin) }() // a folder of the system's for temporary ones
	fmt.Fprintln(out, "building the programs")
	if err := stack.Build(ctx, bin); err != nil {
		return err
	}
	p := &player{k6: binary, bin: bin, root: root, dir: dir, scale: f.scale, keep: f.keep, out: out}
	return p.playAll(ctx, chosen, f.report)
}

// playAll plays the scripts until they are through, one cannot be played or ctx
// ends. What was played by then is in the page.
func (p *player) playAll(ctx context.Context, chosen []script, path string) error {
	began := time.Now()
	var all []*played
	var broken error
	for i := range chosen {
		fmt.Fprintf(p.out, "\n%s, about %.0f s\n", chosen[i].name, chosen[i].expected(p.scale).Seconds())
		result, err := p.play(ctx, &chosen[i])
		if err != nil {
			broken = fmt.Errorf("%s: %w", chosen[i].name, err)
			break
		}
		all = append(all, result)
		tell(p.out, result)
	}
	if len(all) == 0 {
		return broken // and an earlier page stays
	}
	page := compose(all, began, machineFacts(harness.DescribeMachine(context.WithoutCancel(ctx))))
	if broken != nil {
		page.Interrupted = broken.Error()
	}
	if err := report.Write(path, page); err != nil {
		return errors.Join(broken, err)
	}
	fmt.Fprintf(p.out, "\nreport: %s\n", path)
	if broken == nil && !page.Passed() {
		broken = errors.New("not everything held")
	}
	return broken
}

// tell prints one script's result, and what failed.
func tell(out io.Writer, p *played) {
	all, held := p.run.All(), 0
	for _, l := range p.plan.Levels {
		if l.Held {
			held++
		}
	}
	verdict := "held"
	if !p.passed() {
		verdict = "FAILED"
	}
	fmt.Fprintf(out, "  %s\n  %s: %.0f s, %s requests, p99 %.1f ms, %d of %d service levels, %s of %s webhooks\n", p.plan.Proves,
		verdict, p.took.Seconds(), report.Grouped(all.Count), millis(all.P99), held, len(p.plan.Levels),
		report.Grouped(p.webhooks.Received), report.Grouped(p.webhooks.Expected))
	for _, f := range p.failures {
		fmt.Fprintf(out, "    - %s\n", f)
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// machineFacts is the page's line about where the figures were taken.
func machineFacts(m harness.Machine) []report.Fact {
	return []report.Fact{
		{Name: "Processors", Value: fmt.Sprint(m.Cores)},
		{Name: "Model", Value: m.CPU},
		{Name: "Memory", Value: fmt.Sprintf("%.1f GB", float64(m.Memory)/1e9)},
		{Name: "System", Value: m.Kernel},
		{Name: "Go", Value: m.Go},
		{Name: "Redis", Value: m.Redis},
		{Name: "k6", Value: k6Version},
		{Name: "Commit", Value: m.Commit},
	}
}
