//go:build simulation

package world_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"vendorapi/gateway"
	"vendorapi/internal/ledger"
	"vendorapi/loadtest/simulation/world"
	"vendorapi/reporting/archive"
	"vendorapi/worker/dispatch/sender"
)

// TestSeed plays the life of the seed SIMULATION_SEED, and writes a line of JSON.
func TestSeed(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("SIMULATION_SEED"), 10, 64)
	if err != nil {
		t.Fatalf("SIMULATION_SEED: %v", err)
	}

	library := os.Getenv("SIMULATION_SHIM")
	if library == "" {
		t.Fatal("SIMULATION_SHIM: not set")
	}

	server, err := world.StartServer(context.Background(), library, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	seams := world.Seams{
		Module:  os.Getenv("SIMULATION_MODULE"),
		Gateway: openGateway,
		Receive: func(receive func(context.Context, string, http.Header, []byte) world.Reception) {
			sender.Receive = func(ctx context.Context, url string, header http.Header, body []byte) sender.Received {
				return sender.Received(receive(ctx, url, header, body))
			}
		},
		Store: func(store func(context.Context, *archive.Batch) error) { archive.Store = store },
	}

	cryptotest.SetGlobalRandom(t, seed)
	runtime.SimulatedSeed = uint32(seed)
	var judge func() *world.Verdict
	began := time.Now()
	synctest.Test(t, func(*testing.T) {
		judge = world.Play(server, seams, seed, os.Getenv("SIMULATION_STORY") != "")
	})

	verdict := judge()
	verdict.Took = time.Since(began)
	line, err := json.Marshal(verdict)
	if err != nil {
		t.Fatal(err)
	}

	fmt.Printf("verdict %s\n", line)
}

func openGateway(work context.Context, file string, log *slog.Logger, change func(*ledger.Config)) (world.Gateway, error) {
	return gateway.NewSimulated(work, file, log, change)
}
