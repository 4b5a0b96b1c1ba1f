package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"

	"vendorapi/internal/testenv/overlay"
)

// standins is the folder of what every build of the simulation replaces.
const standins = "loadtest/simulation/testdata/standins"

// simulated makes an overlay of what the simulation needs, and of folders whose files stand below the paths of the
// packages that they change, see package overlay.
func simulated(ctx context.Context, module string, folders ...string) (*overlay.Overlay, error) {
	o := overlay.New(module)
	if err := makeRepeatable(ctx, o, module); err != nil {
		return nil, err
	}
	if err := importGateway(o, module); err != nil {
		return nil, err
	}
	if err := waitDurably(o, filepath.Join(module, "internal/ledger")); err != nil {
		return nil, err
	}
	for _, path := range drawers {
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

// waitDurably replaces the mutexes of a package by locks that are made of a channel. Who waits for a mutex does not
// count as blocked in a bubble, which would never come to rest while a call of Redis is made under it.
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
		o.Set(file, append(text, "\nvar _ sync.Once\n"...))
	}
	return nil
}

// drawers are the packages that draw numbers which reach Redis, or times.
var drawers = []string{"gateway", "internal/ledger", "worker/dispatch"}

// drawBySeed replaces the source that nobody can seed.
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
