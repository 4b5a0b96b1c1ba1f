package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"vendorapi/internal/stack"
)

func main() {
	bin := flag.String("build", "", "only build to this path")
	defect := flag.String("defect", "", "")
	flag.Parse()
	module, err := stack.ModuleDir()
	if err == nil {
		err = build(context.Background(), module, *bin, *defect)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(ctx context.Context, module, bin, defect string) error {
	dir := filepath.Join(os.TempDir(), "vendorapi-simulation-"+defect)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	folders := []string{standins}
	if defect != "" {
		folders = append(folders, filepath.Join("loadtest/simulation/testdata/defects", defect))
	}
	o, err := newOverlay(module, folders...)
	if err != nil {
		return err
	}
	file, err := o.write(dir)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "simulation", "-overlay", file, "-ldflags=-w", "-v", "-o", bin, "./loadtest/simulation/world")
	command.Dir = module
	output, err := command.CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(output)))
	}
	return nil
}
