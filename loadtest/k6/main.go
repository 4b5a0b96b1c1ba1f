// Command k6 is `make loadtest`: it runs the k6 scripts of loadtest/ one after another, each against a system of its
// own on free ports, and checks the service levels, an exact count of what the limits let through, and the webhooks
// that arrived. It leaves a page with all figures, which links k6's own dashboards, and exits 0 only when everything
// held.
package main

import (
	"context"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// k6 is pinned: another version may measure otherwise.
const (
	k6Module  = "go.k6.io/k6"
	k6Version = "v1.8.1"
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
	if p.k6, err = ensureK6(ctx, filepath.Join(data, "bin"), p.out); err != nil || install {
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

// ensureK6 makes sure that the pinned k6 lies in dir, an absolute path, and returns its own. It is
// compiled when it is not there, which needs Go's module proxy.
func ensureK6(ctx context.Context, dir string, out io.Writer) (string, error) {
	path := filepath.Join(dir, "k6")
	if info, err := buildinfo.ReadFile(path); err == nil && info.Main.Path == k6Module && info.Main.Version == k6Version {
		return path, nil
	}
	fmt.Fprintf(out, "installing k6 %s into %s: about two minutes of compiling, once\n", k6Version, dir)
	cmd := exec.CommandContext(ctx, "go", "install", k6Module+"@"+k6Version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install k6: %w\n%s", err, output)
	}
	return path, nil
}
