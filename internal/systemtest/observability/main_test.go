package observability

import (
	"context"
	"fmt"
	"os"
	"testing"

	"vendorapi/internal/stack"
)

// binaries is the folder of the programs, built once.
var binaries string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "observability-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := stack.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	return m.Run()
}
