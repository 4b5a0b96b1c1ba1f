// Command k6 is `make loadtest`: it runs the k6 scripts of loadtest/ one after another, each against a system of its
// own on free ports, and checks the service levels, an exact count of what the limits let through, and the webhooks
// that arrived. It leaves a page with all figures, which links k6's own dashboards, and exits 0 only when everything
// held.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const manual = `Usage: make loadtest [ARGS='flags']

Runs the k6 scripts, each against a whole system of its own, and leaves an HTML
page. Exits 0 only when the service levels, the limits and the webhooks held.
`

func main() {
	p := &player{out: os.Stdout}
	names := flag.String("scripts", "", "which ones, separated by commas; empty: all")
	flag.Float64Var(&p.scale, "duration-scale", 1, "multiplies the lengths of those whose length is free")
	flag.BoolVar(&p.keep, "keep", false, "keep the system's data and every sample")
	install := flag.Bool("install", false, "only make sure that k6 is there")
	harness.Main("loadtest", manual, func(ctx context.Context) error { return p.main(ctx, *names, *install) })
}

func (p *player) main(ctx context.Context, names string, install bool) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	if p.scale <= 0 {
		return fmt.Errorf("-duration-scale is %v: it must be above 0", p.scale)
	}
	if p.root, err = stack.ModuleDir(); err != nil {
		return err
	}
	data, err := stack.DataDir()
	if err != nil {
		return err
	}
	p.dir = filepath.Join(data, "loadtest")
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if p.k6, err = harness.K6(ctx, p.out); err != nil || install {
		return err
	}
	if p.bin, err = os.MkdirTemp("", "vendor-load-bin-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(p.bin) }() // it is among the temporary ones
	fmt.Fprintln(p.out, "building the programs")
	if err := stack.Build(ctx, p.bin); err != nil {
		return err
	}
	return p.playAll(ctx, chosen, filepath.Join(p.dir, "report.html"))
}
