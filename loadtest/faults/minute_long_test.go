//go:build long

package main

import (
	"os"
	"strconv"
	"testing"

	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == healthyCommand {
		main() // the test binary is the healthy vendor's client, too
		return
	}
	testserver.Main(m)
}

// The short form of `make faults`. SEED= draws other faults.
func TestSuite_AMinuteOfFaults(t *testing.T) {
	o, err := parse([]string{"-duration", "60s", "-seed", "1"})
	if err != nil {
		t.Fatal(err)
	}

	if seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		o.seed = seed
	}

	res, err := playAll(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}

	if res.Injected == 0 || res.Report.Operations == 0 || res.Report.Orders == 0 || res.Report.Webhooks == 0 {
		t.Errorf("nothing was tested: %+v", res)
	}
}
