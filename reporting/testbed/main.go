package testbed

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"vendorapi/reporting/engine"
	"vendorapi/reporting/engine/libchdb"
)

// What makes this binary an engine: where it listens and the folder of its
// tables.
const (
	addrVariable = "TESTBED_ENGINE_ADDR"
	dataVariable = "TESTBED_ENGINE_DATA"
)

// Main runs the tests of a package and ends the process. It belongs into the
// TestMain of every package that starts an engine:
//
//	func TestMain(m *testing.M) { testbed.Main(m) }
func Main(m *testing.M) {
	RunIfEngine()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	_, err := libchdb.Install(ctx, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need the engine's library:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared engine:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// RunIfEngine is for a TestMain that does more than Main: in a process that was
// started as an engine it serves until the end and does not return.
func RunIfEngine() {
	if os.Getenv(dataVariable) == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := engine.Run(ctx, engine.Options{
		Addr:          os.Getenv(addrVariable),
		DataDir:       os.Getenv(dataVariable),
		MaxQueries:    32,
		MaxBody:       256 << 20,
		Grace:         5 * time.Second,
		DieWithParent: true,
		Log:           slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready:         func(addr net.Addr) { fmt.Println(addr) },
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
