package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"

	"vendorapi/internal/testenv/overlay"
)

// newOverlay returns the overlay of a simulation's build: the substitutions that make it repeatable, and then the files
// of the given folders, each at the path of the package that it changes.
func newOverlay(ctx context.Context, module string, folders ...string) (*overlay.Overlay, error) {
	o := overlay.New(module)
	if err := makeRepeatable(ctx, o, module); err != nil {
		return nil, err
	}
	if err := importGateway(o, module); err != nil {
		return nil, err
	}
	for _, path := range lockingPackages {
		if err := waitDurably(o, filepath.Join(module, path)); err != nil {
			return nil, err
		}
	}

	for _, path := range seededPackages {
		if err := drawBySeed(o, filepath.Join(module, path)); err != nil {
			return nil, err
		}
	}

	for _, folder := range folders {
		if err := o.AddTree(filepath.Join(module, folder)); err != nil {
			return nil, err
		}
	}

	return o, nil
}

// lockingPackages hold mutexes while they wait for Redis. Each has a durableLock in standins.
var lockingPackages = []string{
	"internal/ledger/accounts",
	"internal/ledger/audit",
	"internal/ledger/core",
	"internal/ledger/limits",
	"internal/ledger/operations",
	"internal/ledger/orders",
}

// waitDurably replaces sync.Mutex in a package by durableLock. A goroutine that waits for a mutex does not count as
// blocked in a bubble, so the simulator, which acts only when all are blocked, would wait for ever while the mutex's
// holder waits for Redis.
func waitDurably(o *overlay.Overlay, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}

	for _, file := range files {
		text, err := o.Read(file)
		if err != nil {
			return err
		}

		if strings.HasSuffix(file, "_test.go") || !strings.Contains(string(text), "sync.Mutex") {
			continue
		}

		text = regexp.MustCompile(`\bsync\.Mutex\b`).ReplaceAll(text, []byte("durableLock"))
		o.Set(file, append(text, "\nvar _ sync.Once\n"...)) // the file still imports sync
	}

	return nil
}

// seededPackages are the packages that draw random numbers which reach Redis, or which decide when something happens.
var seededPackages = []string{
	"gateway",
	"internal/ledger/core",
	"internal/ledger/orders",
	"internal/ledger/partitions",
	"worker/dispatch",
}

// drawBySeed lets a package draw from package chance, which the seed determines, instead of math/rand/v2.
func drawBySeed(o *overlay.Overlay, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}

	for _, file := range files {
		text, err := o.Read(file)
		if err != nil {
			return err
		}
		const drawn = `"math/rand/v2"`
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), drawn) {
			o.Set(file, []byte(strings.Replace(string(text), drawn, `rand "vendorapi/loadtest/simulation/chance"`, 1)))
		}
	}

	return nil
}

// importGateway makes a package of the gateway's program, which no other package could import.
func importGateway(o *overlay.Overlay, module string) error {
	files, err := filepath.Glob(filepath.Join(module, "gateway", "*.go"))
	if err != nil {
		return err
	}

	clause := regexp.MustCompile(`(?m)^package main$`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			o.Remove(file) // they are of package main, too
			continue
		}

		text, err := o.Read(file)
		if err != nil {
			return err
		}

		o.Set(file, clause.ReplaceAll(text, []byte("package gateway")))
	}

	return nil
}
